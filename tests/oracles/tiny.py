"""Random instances small enough for `brute_force`, as hypothesis strategies."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from optsched.files.faults import find_faults
from optsched.model.cluster import Cluster, Node, Tenant
from optsched.model.instance import Instance, Running, Slot, Suspended
from optsched.model.job import Elastic, Job, Mode
from optsched.model.profile import Clock, Locality, Profile, Sharing
from optsched.physics import held_resources
from tests.clusters import one_node
from tests.oracles.brute_force import capacities, holds

RACKS = (None, "r0", "r1")
MEMORY: SearchStrategy[dict[str, Any]] = st.sampled_from(
    (
        {},
        {},
        {},
        {"gpu_memory_gib": 24.0},
        {"gpu_memory_gib": 24.0, "gpu_memory_rates": {10.0: 0.5, 16.0: 0.8}},
        {"memory_gib_per_gpu": 8.0, "memory_rates": {4.0: 0.75}},
        {"memory_gib_per_gpu": 10.0, "memory_rates": {2.5: 0.4, 6.0: 0.9}},
        {
            "memory_gib_per_gpu": 5.0,
            "memory_rates": {4.0: 1.2},
            "gpu_memory_gib": 20.0,
            "gpu_memory_rates": {8.0: 1.0},
        },
    )
)
"""What jobs need of memory, and the smaller amounts with which they may be started."""
LOCALITY = (None, None, Locality(node=1.0, rack=0.8, cluster=0.5), Locality(cluster=0.5))
"""By the last a gang is as fast within a rack as on one node."""


@st.composite
def clusters(draw: DrawFn, most_nodes: int = 3, uplinks: bool = False) -> Cluster:
    """One to three nodes of two GPU types, with or without cores, racks, a licence and a power
    cap."""
    with_cores = draw(st.booleans())
    nodes = tuple(
        Node(
            name=f"n{i}",
            gpu_type=draw(st.sampled_from(("a", "b"))),
            gpus=draw(st.integers(1, 3)),
            cpus=draw(st.integers(2, 6)) if with_cores else None,
            memory_gib=draw(st.sampled_from((None, None, 8.0, 20.5))),
            gpu_memory_gib=draw(st.sampled_from((None, 16.0, 32.0))),
            rack=draw(st.sampled_from(RACKS)),
            gpu_price_per_h=draw(st.sampled_from((1.0, 2.0))),
        )
        for i in range(draw(st.integers(1, most_nodes)))
    )
    resources = {"licence": draw(st.sampled_from((1.0, 2.5, 3.0)))}
    if draw(st.sampled_from((False, False, True))):
        resources["power_w"] = draw(st.sampled_from((350.0, 700.0, 1000.5)))
    racks = dict.fromkeys(node.rack for node in nodes if node.rack is not None) if uplinks else {}
    limits = {rack: draw(st.sampled_from((1.0, 2.5))) for rack in racks if draw(st.booleans())}
    return Cluster(
        nodes=nodes,
        resources=resources,
        rack_uplink_gbps=limits,
        carbon_g_per_kwh=draw(st.sampled_from((100.0, ((-1.0, 300.0), (2.0, 50.0), (4.0, 200.0))))),
        energy_price_per_kwh=((0.0, 0.25), (3.0, 0.5)),
    )


@st.composite
def profiles(draw: DrawFn) -> Profile:
    """Rates on two GPU types, over cores and locality; set-up times and checkpoints."""
    rate = draw(st.sampled_from(({}, {}, {"a": 1.0, "b": 0.5}, {"a": 1.0}, {"a": 0.75, "b": 2.0})))
    return Profile(
        name="p",
        rate=dict(rate),
        gpus=dict(draw(st.sampled_from(({}, {}, {1: 0.7, 2: 1.0, 4: 1.6}, {2: 1.0, 3: 1.2})))),
        cpus_per_gpu=dict(draw(st.sampled_from(({}, {}, {}, {1: 0.5, 3: 1.0}, {2: 1.0})))),
        locality=draw(st.sampled_from(LOCALITY)),
        sharing=draw(
            st.sampled_from((None, None, Sharing(duty=0.6), Sharing(partners={"p": 0.9})))
        ),
        **draw(MEMORY),
        startup_s=draw(st.sampled_from((0.0, 0.0, 1.0))),
        restore_s=draw(st.sampled_from((0.0, 1.0))),
        checkpoint_s=draw(st.sampled_from((0.0, 1.0, 2.0))),
        checkpoint_every_s=draw(st.sampled_from((None, None, 3.0))),
        power_w={"a": 300.0, "b": draw(st.sampled_from((0.0, 100.0)))},
        network_gbps=draw(st.sampled_from((0.0, 1.0, 1.5))),
        clocks=dict(
            draw(
                st.sampled_from(
                    (
                        {},
                        {},
                        {},
                        {900: Clock(rate=0.8, power=0.6)},
                        {800: Clock(rate=0.5, power=0.7), 1600: Clock(rate=1.25, power=1.5)},
                    )
                )
            )
        ),
    )


@st.composite
def _jobs(draw: DrawFn, name: str, before: tuple[str, ...]) -> Job:
    kind = draw(st.sampled_from(("gang", "gang", "gang", "elastic", "cpu", "modes")))
    job = Job(
        id=name,
        submit_s=float(draw(st.sampled_from((0, 0, 0, 2, 5, -4)))),
        weight=float(draw(st.sampled_from((1, 1, 1, 2, 3, 0)))),
        tenant=draw(st.sampled_from((None, None, "t", "u"))),
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
def instances(
    draw: DrawFn,
    most_jobs: int = 4,
    most_running: int = 2,
    most_nodes: int = 3,
    uplinks: bool = False,
) -> Instance:
    """A sound instance: jobs that can never run are left out, a job may run or be suspended at
    now."""
    cluster = draw(clusters(most_nodes, uplinks))
    names = [f"j{k}" for k in range(draw(st.integers(1, most_jobs)))]
    jobs = [draw(_jobs(name, tuple(names[:k]))) for k, name in enumerate(names)]
    quota = draw(st.sampled_from((None, 2, 3)))
    above = draw(st.sampled_from((None, None, "t", "all")))
    tenants = (
        Tenant(
            name="t",
            parent="all" if above == "all" else None,
            gpu_quota=quota,
            borrow_gpus=draw(st.sampled_from((0, 1))) if quota else 0,
        ),
        Tenant(name="u", parent=above, gpu_quota=draw(st.sampled_from((None, 1, 2)))),
        Tenant(name="all", gpu_quota=draw(st.sampled_from((2, 3))) if above == "all" else None),
    )
    found = Instance(cluster=cluster, tenants=tenants)
    for job in jobs:  # keep what fits, one by one
        kept = replace(job, after=tuple(before for before in job.after if before in found.job))
        wider = replace(found, jobs=(*found.jobs, kept))
        found = found if find_faults(wider) else wider
    free = {node.name: node.gpus for node in cluster.nodes}
    cores = {node.name: node.cpus for node in cluster.nodes}
    for job in found.jobs[: draw(st.integers(0, most_running))]:
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
            mode=_running_mode(
                cluster,
                job,
                Mode(
                    gpu_type=node.gpu_type,
                    gpus=count,
                    cpus_per_gpu=level,
                    clock_mhz=draw(st.sampled_from((None, *job.profile.clocks))),
                    memory_gib_per_gpu=draw(st.sampled_from((None, *job.profile.memory_rates))),
                    gpu_memory_gib=draw(st.sampled_from((None, *job.profile.gpu_memory_rates))),
                ),
            ),
            placement=(Slot(node=node.name, gpus=count, cpus=count * level),),
            started_s=started_s,
            remaining_s=job.work_s * draw(st.sampled_from((0.25, 0.5, 1.0))),
            last_checkpoint_s=draw(st.sampled_from((None, started_s))),
        )
        wider = replace(found, running=(*found.running, entry))
        if find_faults(wider) or not _holds_no_more_than_there_is(wider):
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


@st.composite
def with_pairs(draw: DrawFn, most_jobs: int = 4, most_nodes: int = 2) -> Instance:
    """A sound instance in which one or two pairs of running jobs share their GPUs, beside others
    that wait or run."""
    pairs = draw(st.sampled_from((1, 1, 2)))
    found = draw(
        instances(most_jobs=max(1, most_jobs - 2 * pairs), most_running=1, most_nodes=most_nodes)
    )
    free = {node.name: node.gpus for node in found.cluster.nodes}
    for entry in found.running:
        for slot in entry.placement:
            free[slot.node] -= slot.gpus
    for pair in range(pairs):
        node = draw(st.sampled_from(found.cluster.nodes))
        gpus = draw(st.integers(1, 2))
        if free[node.name] < gpus:
            continue
        names = (f"p{pair}", f"q{pair}")
        jobs, running = [], []
        for name, other in zip(names, reversed(names), strict=True):
            profile = draw(profiles())
            started_s = float(draw(st.sampled_from((0, -2, -5))))
            level = min(profile.cpus_per_gpu, default=0)
            count: int | Elastic = draw(
                st.sampled_from((gpus, gpus, Elastic(min=1, max=max(gpus, 2))))
            )
            jobs.append(
                Job(
                    id=name,
                    submit_s=started_s,
                    weight=float(draw(st.sampled_from((1, 1, 2, 3, 0)))),
                    gpus=count,
                    deadline_s=draw(st.sampled_from((None, 4.0, 9.0))),
                    duration_s=float(draw(st.integers(2, 12))),
                    tenant=draw(st.sampled_from((None, None, "t"))),
                    preemptible=draw(st.sampled_from((True, True, False))),
                    profile=replace(
                        profile,
                        sharing=draw(
                            st.sampled_from(
                                (
                                    Sharing(duty=0.25),
                                    Sharing(duty=0.75),
                                    Sharing(partners={"p": 0.5}, duty=1.0),
                                )
                            )
                        ),
                    ),
                )
            )
            running.append(
                Running(
                    job=name,
                    mode=_running_mode(
                        found.cluster,
                        jobs[-1],
                        Mode(
                            gpu_type=node.gpu_type, gpus=gpus, cpus_per_gpu=level, share_with=other
                        ),
                    ),
                    placement=(Slot(node=node.name, gpus=gpus, cpus=gpus * level),),
                    started_s=started_s,
                    remaining_s=jobs[-1].work_s * draw(st.sampled_from((0.25, 0.5, 1.0))),
                    setup_s=draw(st.sampled_from((0.0, 0.0, profile.startup_s))),
                    last_checkpoint_s=draw(st.sampled_from((None, started_s))),
                )
            )
        wider = replace(found, jobs=(*jobs, *found.jobs), running=(*found.running, *running))
        if find_faults(wider) or not _holds_no_more_than_there_is(wider):
            continue
        found = wider
        free[node.name] -= gpus
    return found


def _running_mode(cluster: Cluster, job: Job, mode: Mode) -> Mode:
    return replace(mode, resources=held_resources(cluster, job, mode, mode.gpu_type))


def _holds_no_more_than_there_is(instance: Instance) -> bool:
    """Of resources and quotas; what nodes hold is checked by `find_faults`."""
    held: dict[tuple[str, str], float] = {}
    for entry in instance.running:
        for what, amount in holds(
            instance, instance.job[entry.job], entry.mode, entry.placement
        ).items():
            held[what] = held.get(what, 0.0) + amount
    there_is = capacities(instance)
    return all(
        amount <= there_is.get(what, amount)
        for what, amount in held.items()
        if what[0] in ("resource", "quota", "all quotas")
    )


def single_gpu(
    processing: list[float],
    releases: list[float] | None = None,
    weights: list[float] | None = None,
    due: list[float] | None = None,
    gpus: int = 1,
) -> Instance:
    """One node of `gpus` GPUs and jobs of one GPU each."""
    return Instance(
        cluster=one_node(gpus=gpus),
        jobs=tuple(
            Job(
                id=f"j{k}",
                duration_s=length,
                submit_s=releases[k] if releases else 0.0,
                weight=weights[k] if weights else 1.0,
                deadline_s=due[k] if due else None,
            )
            for k, length in enumerate(processing)
        ),
    )


lengths: SearchStrategy[list[float]] = st.lists(
    st.integers(1, 20).map(float), min_size=1, max_size=8
)
