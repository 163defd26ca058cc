"""Random sound instances that use every feature of the format, as a hypothesis strategy."""

from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from optsched import (
    Cluster,
    Elastic,
    Instance,
    Job,
    Locality,
    Mode,
    Node,
    Profile,
    Running,
    Sharing,
    Slot,
    Suspended,
    Tenant,
)
from optsched.faults import find_faults
from optsched.modes import options
from optsched.physics import placed_rate
from optsched.simulate.demand import Demands
from optsched.simulate.placement import Layout, Room

SECONDS = st.sampled_from([0.0, 0.0, 1.0, 2.5, 7.0])


@st.composite
def clusters(draw: Any) -> Cluster:
    nodes = []
    for i in range(draw(st.integers(1, 4))):
        gpus = draw(st.sampled_from([0, 1, 2, 4, 4, 8]))
        nodes.append(
            Node(
                name=f"n{i}",
                gpu_type=draw(st.sampled_from(["a", "b"])) if gpus else None,
                gpus=gpus,
                gpu_memory_gib=draw(st.sampled_from([None, 16.0, 80.0])) if gpus else None,
                cpus=draw(st.sampled_from([None, 4, 16])),
                memory_gib=draw(st.sampled_from([None, 12.3, 64.0])),
                rack=draw(st.sampled_from([None, "r0", "r1"])),
            )
        )
    nodes.append(Node(name="last", gpu_type="a", gpus=4, rack="r0"))
    resources = {"licence": draw(st.sampled_from([1.0, 2.5]))} if draw(st.booleans()) else {}
    budgets = {"money": draw(st.sampled_from([6.0, 20.0, 100.0]))} if draw(st.booleans()) else {}
    return Cluster(nodes=tuple(nodes), resources=resources, budgets=budgets)


@st.composite
def profiles(draw: Any) -> Profile:
    return Profile(
        rate=draw(st.sampled_from([{}, {}, {"a": 1.0, "b": 0.4}, {"a": 0.7}])),
        gpus=draw(st.sampled_from([{}, {}, {1: 0.5, 2: 1.0, 4: 1.7}])),
        cpus_per_gpu=draw(st.sampled_from([{}, {}, {1: 0.5, 2: 0.9, 4: 1.0}])),
        locality=draw(
            st.sampled_from([None, Locality(node=1.0, rack=0.8, cluster=0.5), Locality(cluster=0.0)])
        ),
        gpu_memory_gib=draw(st.sampled_from([0.0, 0.0, 10.0, 40.0])),
        memory_gib_per_gpu=draw(st.sampled_from([0.0, 0.0, 4.1])),
        checkpoint_s=draw(SECONDS),
        restore_s=draw(SECONDS),
        startup_s=draw(SECONDS),
        checkpoint_every_s=draw(st.sampled_from([None, None, 0.0, 3.0, 50.0])),
        sharing=Sharing(duty=0.7),
    )


@st.composite
def jobs(draw: Any, cluster: Cluster, index: int, tenants: list[str], profile: Profile, now_s: float) -> Job:
    kind = draw(st.sampled_from(["gang", "gang", "gang", "gang", "elastic", "cpu", "listed"]))
    common: dict[str, Any] = {
        "id": f"j{index}",
        "submit_s": now_s + draw(st.sampled_from([-5.0, 0.0, 0.0, 3.0, 10.0, 17.3])),
        "tenant": draw(st.sampled_from([None, *tenants])),
        "weight": draw(st.sampled_from([0.0, 1.0, 1.0, 3.0])),
        "priority": draw(st.sampled_from([0, 0, 0, 1])),
        "after": tuple({f"j{k}": None for k in draw(st.lists(st.integers(0, index - 1), max_size=2))})
        if index and draw(st.integers(0, 4)) == 0
        else (),
        "preemptible": draw(st.sampled_from([True, True, True, False])),
        "min_run_s": draw(st.sampled_from([0.0, 0.0, 4.0])),
        "max_preemptions": draw(st.sampled_from([None, None, 0, 1])),
        "profile": profile,
        "resources": {"licence": draw(st.sampled_from([0.5, 1.0]))}
        if cluster.resources and draw(st.booleans())
        else {},
        "budgets": {"money": draw(st.sampled_from([0.5, 1.0]))}
        if cluster.budgets and draw(st.booleans())
        else {},
    }
    duration_s = draw(st.sampled_from([0.3, 1.0, 4.0, 9.0, 20.0, 33.3, 100.0]))
    if kind == "gang":
        return Job(gpus=draw(st.sampled_from([1, 1, 1, 2, 3, 4, 6])), duration_s=duration_s, **common)
    if kind == "elastic":
        low = draw(st.integers(1, 3))
        return Job(gpus=Elastic(min=low, max=draw(st.integers(low, 6))), duration_s=duration_s, **common)
    if kind == "cpu":
        return Job(
            gpus=0,
            cpus=draw(st.integers(0, 5)),
            memory_gib=draw(st.sampled_from([0.0, 5.0])),
            duration_s=duration_s,
            **common,
        )
    budgets = [{"money": x} if cluster.budgets else {} for x in (0.0, 2.0)]
    return Job(
        modes=(
            Mode(duration_s=duration_s, gpus=1, budgets=budgets[0]),
            Mode(duration_s=duration_s / 2, gpus=2, cpus_per_gpu=1, budgets=budgets[1]),
            Mode(duration_s=duration_s * 2, cpus=2),
        )[: draw(st.integers(1, 3))],
        **common,
    )


@st.composite
def instances(draw: Any, max_jobs: int = 9, held: bool = True) -> Instance:
    """Sound instances; with `held`, some jobs run or are suspended at the start."""
    cluster = draw(clusters())
    now_s = draw(st.sampled_from([0.0, 0.0, 1.7e9]))
    tenants = (Tenant(name="t", gpu_quota=4), Tenant(name="u"))[: draw(st.integers(0, 2))]
    shapes = draw(st.lists(profiles(), min_size=1, max_size=3))
    found = [
        draw(jobs(cluster, i, [tenant.name for tenant in tenants], draw(st.sampled_from(shapes)), now_s))
        for i in range(draw(st.integers(1, max_jobs)))
    ]
    found = [job for job in found if options(cluster, job)]
    known = {job.id for job in found}
    found = [replace(job, after=tuple(name for name in job.after if name in known)) for job in found]
    instance = Instance(name="random", now_s=now_s, cluster=cluster, tenants=tenants, jobs=tuple(found))
    assume(found)
    if held:
        instance = draw(_with_held(instance))
    assume(not find_faults(instance) and _least_money(instance) <= cluster.budgets.get("money", 0.0))
    return instance


def _least_money(instance: Instance) -> float:
    """What the running modes and the cheapest modes of the other jobs use of the budget."""
    used = [entry.mode.budgets.get("money", 0.0) for entry in instance.running]
    for job in instance.jobs:
        if job.id not in instance.running_job:
            used.append(
                min(option.mode.budgets.get("money", 0.0) for option in options(instance.cluster, job))
            )
    return sum(used)


@st.composite
def _pairs(draw: Any, now_s: float) -> list[Running]:
    """Two jobs that share GPUs of the last node."""
    gpus = draw(st.integers(1, 3))
    return [
        Running(
            job=name,
            mode=Mode(gpu_type="a", gpus=gpus, share_with=other),
            placement=(Slot(node="last", gpus=gpus),),
            started_s=now_s - draw(st.sampled_from([0.0, 2.0, 30.0])),
            remaining_s=draw(st.sampled_from([0.3, 4.0, 20.0])),
            setup_s=draw(SECONDS),
        )
        for name, other in (("p0", "p1"), ("p1", "p0"))
    ]


@st.composite
def _with_held(draw: Any, instance: Instance) -> Instance:
    layout = Layout(instance.cluster)
    room = Room(layout, instance.cluster, instance.tenants)
    demands = Demands(instance, layout)
    running: dict[str, Running] = {}
    suspended = []
    jobs = []
    if draw(st.integers(0, 2)) == 0:
        shape = replace(
            draw(profiles()), rate={}, gpus={}, cpus_per_gpu={}, memory_gib_per_gpu=0.0, gpu_memory_gib=0.0
        )
        for entry in draw(_pairs(instance.now_s)):
            jobs.append(
                Job(
                    id=entry.job,
                    submit_s=entry.started_s,
                    gpus=entry.mode.gpus,
                    duration_s=20.0,
                    profile=shape,
                    priority=draw(st.sampled_from([-1, 0])),
                    min_run_s=draw(SECONDS),
                )
            )
            running[entry.job] = entry
        need = demands.of(jobs[0])[1].needs[0]
        room.take(need, running["p0"].placement)
    for job in instance.jobs:
        fate = draw(st.sampled_from(["waits", "waits", "runs", "runs", "suspended"]))
        remaining_s = job.work_s * draw(st.sampled_from([0.2, 0.5, 1.0]))
        started_s = instance.now_s - draw(st.sampled_from([0.0, 2.0, 30.0]))
        fit = demands.of(job)[1].fit(room)
        if fate == "suspended" and job.max_preemptions != 0:
            suspended.append(Suspended(job=job.id, remaining_s=remaining_s))
        if fate == "runs" and fit is not None:
            mode, placement = demands.of(job)[0][fit[0]].mode, fit[1]
            if placed_rate(instance, job, mode, placement) > 0:
                room.take(demands.of(job)[1].needs[fit[0]], placement)
                running[job.id] = Running(
                    job=job.id,
                    mode=mode,
                    placement=placement,
                    started_s=started_s,
                    remaining_s=remaining_s,
                    setup_s=draw(SECONDS),
                    last_checkpoint_s=draw(st.sampled_from([None, started_s])),
                    preemptions=draw(st.sampled_from([0, 1])) if job.max_preemptions is None else 0,
                )
        if fate != "waits":
            job = replace(job, submit_s=min(job.submit_s, started_s), after=())
        jobs.append(job)
    instance = replace(instance, jobs=tuple(jobs))
    return replace(instance, running=tuple(running.values()), suspended=tuple(suspended))
