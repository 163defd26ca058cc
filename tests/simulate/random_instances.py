"""Random sound instances that use every feature of the format, as a hypothesis strategy."""

from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from optsched import (
    Clock,
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
from optsched.driver.demand import Demands
from optsched.driver.layout import Layout
from optsched.driver.placement import Room
from optsched.files.faults import find_faults
from optsched.physics import held_resources, placed_rate
from optsched.physics.catalogue import Catalogue, catalogue_of
from optsched.physics.unschedulable import why_never

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
    if draw(st.booleans()):
        resources["power_w"] = draw(st.sampled_from([900.0, 1500.0, 2400.0]))
    uplinks = {}
    if draw(st.booleans()):  # then few gangs fit one rack
        nodes = [
            node
            if node.name == "last" or not node.gpus
            else replace(
                node, gpu_type="a", gpus=2, cpus=None, rack=draw(st.sampled_from(["r1", "r2"]))
            )
            for node in nodes
        ]
        racks = dict.fromkeys(node.rack for node in nodes if node.rack is not None)
        uplinks = {rack: draw(st.sampled_from([1.5, 3.0])) for rack in racks}
    if draw(st.integers(0, 3)) == 0:
        nodes = [
            replace(node, memory_gbps=draw(st.sampled_from([None, 3.0, 10.0]))) for node in nodes
        ]
    if draw(st.integers(0, 1)) == 0:
        nodes = [
            replace(node, model_cache_gib=draw(st.sampled_from([None, 4.0, 10.0])))
            for node in nodes
        ]
    budgets = {"money": draw(st.sampled_from([6.0, 20.0, 100.0]))} if draw(st.booleans()) else {}
    return Cluster(
        nodes=tuple(nodes),
        resources=resources,
        budgets=budgets,
        rack_uplink_gbps=uplinks,
        uplinks=draw(st.sampled_from(["reserved", "shared"])) if uplinks else "reserved",
    )


@st.composite
def profiles(draw: Any) -> Profile:
    return Profile(
        rate=draw(st.sampled_from([{}, {}, {"a": 1.0, "b": 0.4}, {"a": 0.7}])),
        gpus=draw(st.sampled_from([{}, {}, {1: 0.5, 2: 1.0, 4: 1.7}])),
        cpus_per_gpu=draw(st.sampled_from([{}, {}, {1: 0.5, 2: 0.9, 4: 1.0}])),
        locality=draw(
            st.sampled_from(
                [None, Locality(node=1.0, rack=0.8, cluster=0.5), Locality(cluster=0.0)]
            )
        ),
        **draw(
            st.sampled_from(
                [
                    {},
                    {},
                    {"gpu_memory_gib": 10.0},
                    {"gpu_memory_gib": 40.0},
                    {"gpu_memory_gib": 40.0, "gpu_memory_rates": {6.0: 0.7, 14.0: 0.9}},
                    {"gpu_memory_gib": 10.0, "gpu_memory_rates": {5.5: 0.8}},
                ]
            )
        ),
        **draw(
            st.sampled_from(
                [
                    {},
                    {},
                    {"memory_gib_per_gpu": 4.1},
                    {"memory_gib_per_gpu": 4.1, "memory_rates": {1.5: 0.6, 3.0: 0.95}},
                    {"memory_gib_per_gpu": 9.0, "memory_rates": {4.1: 1.3}},
                ]
            )
        ),
        checkpoint_s=draw(SECONDS),
        restore_s=draw(SECONDS),
        startup_s=draw(SECONDS),
        **draw(
            st.sampled_from(
                [{}, {"name": "llm", "model_gib": 4.0}, {"name": "vlm", "model_gib": 6.0}]
            )
        ),
        fetch_s=draw(st.sampled_from([0.0, 0.0, 1.3, 6.0])),
        checkpoint_every_s=draw(st.sampled_from([None, None, 0.0, 3.0, 50.0])),
        sharing=Sharing(duty=0.7),
        network_gbps=draw(st.sampled_from([0.0, 1.0, 1.5, 2.5])),
        network_duty=draw(st.sampled_from([1.0, 0.4])),
        memory_gbps=draw(st.sampled_from([0.0, 1.0, 2.3])),
        memory_duty=draw(st.sampled_from([1.0, 0.5])),
        power_w=draw(st.sampled_from([{}, {"a": 300.0}, {"a": 250.0, "b": 100.0}])),
        clocks=draw(
            st.sampled_from(
                [
                    {},
                    {},
                    {900: Clock(rate=0.8, power=0.55)},
                    {800: Clock(rate=0.5, power=0.3), 1600: Clock(rate=1.25, power=1.5)},
                ]
            )
        ),
    )


@st.composite
def jobs(
    draw: Any, cluster: Cluster, index: int, tenants: list[str], profile: Profile, now_s: float
) -> Job:
    kind = draw(st.sampled_from(["gang", "gang", "gang", "gang", "elastic", "cpu", "listed"]))
    common: dict[str, Any] = {
        "id": f"j{index}",
        "submit_s": now_s + draw(st.sampled_from([-5.0, 0.0, 0.0, 3.0, 10.0, 17.3])),
        "tenant": draw(st.sampled_from([None, *tenants])),
        "weight": draw(st.sampled_from([0.0, 1.0, 1.0, 3.0])),
        "priority": draw(st.sampled_from([0, 0, 0, 1])),
        "after": tuple(
            {f"j{k}": None for k in draw(st.lists(st.integers(0, index - 1), max_size=2))}
        )
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
        return Job(
            gpus=draw(st.sampled_from([1, 1, 1, 2, 3, 4, 6])), duration_s=duration_s, **common
        )
    if kind == "elastic":
        low = draw(st.integers(1, 3))
        return Job(
            gpus=Elastic(min=low, max=draw(st.integers(low, 6))), duration_s=duration_s, **common
        )
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
    above = draw(st.sampled_from([None, None, "t"]))
    tenants = (
        Tenant(name="t", gpu_quota=4, borrow_gpus=draw(st.sampled_from([0, 0, 2]))),
        Tenant(name="u", parent=above, gpu_quota=draw(st.sampled_from([None, None, 2]))),
        Tenant(
            name="v",
            parent=above,
            gpu_quota=draw(st.integers(1, 3)),
            borrow_gpus=draw(st.sampled_from([0, 1, 3])),
        ),
    )[: draw(st.integers(0, 3))]
    shapes = draw(st.lists(profiles(), min_size=1, max_size=3))
    found = [
        draw(
            jobs(
                cluster,
                i,
                [tenant.name for tenant in tenants],
                draw(st.sampled_from(shapes)),
                now_s,
            )
        )
        for i in range(draw(st.integers(1, max_jobs)))
    ]
    found = [job for job in found if why_never(Catalogue.of(cluster, tenants), job) is None]
    known = {job.id for job in found}
    found = [
        replace(job, after=tuple(name for name in job.after if name in known)) for job in found
    ]
    instance = Instance(
        name="random", now_s=now_s, cluster=cluster, tenants=tenants, jobs=tuple(found)
    )
    assume(found)
    if held:
        instance = draw(with_held(instance))
    assume(
        not find_faults(instance) and _least_money(instance) <= cluster.budgets.get("money", 0.0)
    )
    return instance


def _least_money(instance: Instance) -> float:
    """What the running modes and the cheapest modes of the other jobs use of the budget."""
    used = [entry.mode.budgets.get("money", 0.0) for entry in instance.running]
    for job in instance.jobs:
        if job.id not in instance.running_job:
            used.append(
                min(
                    option.mode.budgets.get("money", 0.0)
                    for option in catalogue_of(instance).options(job)
                )
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
def with_held(draw: Any, instance: Instance, pairs: bool = True) -> Instance:
    """Some jobs run or are suspended; with `pairs`, at times two more share GPUs of the node
    `last`."""
    layout = Layout(instance.cluster, instance.tenants)
    room = Room(layout)
    demands = Demands(instance, layout)
    running: dict[str, Running] = {}
    suspended = []
    jobs = []
    if pairs and draw(st.integers(0, 2)) == 0:
        shape = replace(
            draw(profiles()),
            rate={},
            gpus={},
            cpus_per_gpu={},
            memory_gib_per_gpu=0.0,
            gpu_memory_gib=0.0,
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
            resources = held_resources(instance.cluster, jobs[-1], entry.mode, "a")
            running[entry.job] = replace(entry, mode=replace(entry.mode, resources=resources))
        for job in jobs:
            entry = running[job.id]
            need = demands.need(job, entry.mode, "node", ())
            assume(room.holds(need, entry.placement if job.id == "p0" else ()))
            room.take(need, entry.placement, with_gpus=job.id == "p0")
    for job in instance.jobs:
        fate = draw(st.sampled_from(["waits", "waits", "runs", "runs", "suspended"]))
        remaining_s = job.work_s * draw(st.sampled_from([0.2, 0.5, 1.0]))
        started_s = instance.now_s - draw(st.sampled_from([0.0, 2.0, 30.0]))
        fit = demands.of(job)[1].fit(room)
        if fate == "suspended":
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
