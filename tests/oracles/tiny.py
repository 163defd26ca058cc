"""Random instances small enough for `brute_force`, as hypothesis strategies."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from optsched.cluster import Cluster, Node, Tenant
from optsched.faults import find_faults
from optsched.instance import Instance, Running, Slot, Suspended
from optsched.job import Elastic, Job, Mode
from optsched.profile import Locality, Profile, Sharing

RACKS = (None, "r0", "r1")


@st.composite
def clusters(draw: DrawFn, most_nodes: int = 3) -> Cluster:
    """One to three nodes of two GPU types, with or without cores, racks and a licence."""
    with_cores = draw(st.booleans())
    nodes = tuple(
        Node(
            name=f"n{i}",
            gpu_type=draw(st.sampled_from(("a", "b"))),
            gpus=draw(st.integers(1, 3)),
            cpus=draw(st.integers(2, 6)) if with_cores else None,
            gpu_memory_gib=draw(st.sampled_from((None, 16.0, 32.0))),
            rack=draw(st.sampled_from(RACKS)),
            gpu_price_per_h=draw(st.sampled_from((1.0, 2.0))),
        )
        for i in range(draw(st.integers(1, most_nodes)))
    )
    return Cluster(nodes=nodes, resources={"licence": draw(st.sampled_from((1.0, 2.5, 3.0)))})


@st.composite
def profiles(draw: DrawFn) -> Profile:
    """Rates on two GPU types, over cores and locality; set-up times and checkpoints."""
    rate = draw(st.sampled_from(({}, {}, {"a": 1.0, "b": 0.5}, {"a": 1.0}, {"a": 0.75, "b": 2.0})))
    return Profile(
        name="p",
        rate=dict(rate),
        gpus=dict(draw(st.sampled_from(({}, {}, {1: 0.7, 2: 1.0, 4: 1.6}, {2: 1.0, 3: 1.2})))),
        cpus_per_gpu=dict(draw(st.sampled_from(({}, {}, {}, {1: 0.5, 3: 1.0}, {2: 1.0})))),
        locality=draw(st.sampled_from((None, None, Locality(node=1.0, rack=0.8, cluster=0.5)))),
        sharing=draw(st.sampled_from((None, None, Sharing(duty=0.6), Sharing(partners={"p": 0.9})))),
        gpu_memory_gib=draw(st.sampled_from((0.0, 0.0, 0.0, 24.0))),
        startup_s=draw(st.sampled_from((0.0, 0.0, 1.0))),
        restore_s=draw(st.sampled_from((0.0, 1.0))),
        checkpoint_s=draw(st.sampled_from((0.0, 1.0, 2.0))),
        checkpoint_every_s=draw(st.sampled_from((None, None, 3.0))),
        power_w={"a": 300.0, "b": draw(st.sampled_from((0.0, 100.0)))},
    )


@st.composite
def _jobs(draw: DrawFn, name: str, before: tuple[str, ...]) -> Job:
    kind = draw(st.sampled_from(("gang", "gang", "gang", "elastic", "cpu", "modes")))
    job = Job(
        id=name,
        submit_s=float(draw(st.sampled_from((0, 0, 0, 2, 5, -4)))),
        weight=float(draw(st.sampled_from((1, 1, 1, 2, 3, 0)))),
        tenant=draw(st.sampled_from((None, None, "t"))),
        deadline_s=draw(st.sampled_from((None, 4.0, 9.0, 15.0))),
        after=draw(st.sampled_from(((), (), (), *((other,) for other in before)))),
        gpus=draw(st.sampled_from((1, 1, 2, 3))),
        duration_s=float(draw(st.integers(1, 8))),
        resources=dict(draw(st.sampled_from(({}, {}, {}, {"licence": 1.0}, {"licence": 0.8})))),
        preemptible=draw(st.sampled_from((True, True, False))),
        profile=draw(profiles()),
    )
    if kind == "elastic":
        return replace(job, gpus=Elastic(min=1, max=draw(st.integers(1, 4))))
    if kind == "cpu":
        return replace(job, gpus=0, cpus=draw(st.integers(0, 3)))
    if kind == "modes":
        listed = tuple(
            Mode(
                duration_s=float(draw(st.integers(1, 8))),
                gpus=draw(st.sampled_from((1, 2))),
                gpu_type=draw(st.sampled_from((None, "a"))),
                resources=dict(draw(st.sampled_from(({}, {"licence": 1.0})))),
            )
            for _ in range(draw(st.integers(1, 2)))
        )
        return replace(job, modes=listed, duration_s=None, gpus=1)
    return job


@st.composite
def instances(draw: DrawFn, most_jobs: int = 4, most_running: int = 2, most_nodes: int = 3) -> Instance:
    """A sound instance: jobs that can never run are left out, a job may run or be suspended at now."""
    cluster = draw(clusters(most_nodes))
    names = [f"j{k}" for k in range(draw(st.integers(1, most_jobs)))]
    jobs = [draw(_jobs(name, tuple(names[:k]))) for k, name in enumerate(names)]
    tenants = (Tenant(name="t", gpu_quota=draw(st.sampled_from((None, 2, 3)))),)
    found = Instance(cluster=cluster, tenants=tenants)
    for job in jobs:  # keep what fits, one by one
        kept = replace(job, after=tuple(before for before in job.after if before in found.job))
        wider = replace(found, jobs=(*found.jobs, kept))
        found = found if find_faults(wider) else wider
    free = {node.name: node.gpus for node in cluster.nodes}
    cores = {node.name: node.cpus for node in cluster.nodes}
    for job in found.jobs[:draw(st.integers(0, most_running))]:
        if job.after or job.submit_s > 0 or job.modes or job.gpus == 0:
            continue
        node = draw(st.sampled_from(cluster.nodes))
        count = job.gpus.min if isinstance(job.gpus, Elastic) else job.gpus
        level = 1 if job.profile.cpus_per_gpu else 0
        have = cores[node.name]
        if free[node.name] < count or (have is not None and have < count * level):
            continue
        started_s = float(draw(st.sampled_from((0, -2, -5))))
        entry = Running(
            job=job.id,
            mode=Mode(gpu_type=node.gpu_type, gpus=count, cpus_per_gpu=level, resources=job.resources),
            placement=(Slot(node=node.name, gpus=count, cpus=count * level),),
            started_s=started_s,
            remaining_s=job.work_s * draw(st.sampled_from((0.25, 0.5, 1.0))),
            last_checkpoint_s=draw(st.sampled_from((None, started_s))),
        )
        wider = replace(found, running=(*found.running, entry))
        amount = sum(other.mode.resources.get("licence", 0.0) for other in wider.running)
        held = sum(other.mode.gpus for other in wider.running if found.job[other.job].tenant == "t")
        quota = tenants[0].gpu_quota
        if amount > cluster.resources["licence"] or (quota is not None and held > quota):
            continue
        if find_faults(wider):
            continue
        found = wider
        free[node.name] -= count
        cores[node.name] = None if have is None else have - count * level
    early = [job for job in found.jobs if not job.after and job.submit_s <= 0]
    waiting = [job for job in early if job.id not in found.running_job]
    if waiting and draw(st.sampled_from((False, True))):
        half_done = Suspended(job=waiting[0].id, remaining_s=waiting[0].work_s / 2)
        found = replace(found, suspended=(half_done,))
    return found


def single_gpu(
    processing: list[float], releases: list[float] | None = None, weights: list[float] | None = None,
    due: list[float] | None = None, gpus: int = 1,
) -> Instance:
    """One node of `gpus` GPUs and jobs of one GPU each."""
    return Instance(
        cluster=Cluster(nodes=(Node(name="n", gpus=gpus),)),
        jobs=tuple(
            Job(id=f"j{k}", duration_s=length, submit_s=releases[k] if releases else 0.0,
                weight=weights[k] if weights else 1.0, deadline_s=due[k] if due else None)
            for k, length in enumerate(processing)
        ),
    )


lengths: SearchStrategy[list[float]] = st.lists(st.integers(1, 20).map(float), min_size=1, max_size=8)
