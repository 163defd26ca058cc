"""Random sound rounds with more asked for than there is, as a hypothesis strategy."""

from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node, Tenant
from optsched.files.faults import find_faults
from optsched.physics.catalogue import Catalogue, catalogue_of
from optsched.physics.unschedulable import why_never
from tests.simulate.random_instances import jobs, profiles, with_held

SIZES = (0, 1, 2, 3, 4, 4, 6, 8, 8, 10)


@st.composite
def clusters(draw: Any, most_nodes: int = 5, sizes: tuple[int, ...] = SIZES) -> Cluster:
    """Up to three kinds of nodes with few cores and little memory, some in racks with uplinks."""
    kinds = []
    for _ in range(draw(st.integers(1, 3))):
        gpus = draw(st.sampled_from(sizes))
        kinds.append(
            Node(
                name="",
                gpus=gpus,
                gpu_type=draw(st.sampled_from(["a", "b"])) if gpus else None,
                gpu_memory_gib=draw(st.sampled_from([None, 16.0, 80.0])) if gpus else None,
                cpus=draw(st.sampled_from([None, None, 4, 10, 2 * gpus])),
                memory_gib=draw(st.sampled_from([None, None, 12.3, 4.1 * gpus])),
                gpu_price_per_h=draw(st.sampled_from([1.0, 2.5])),
            )
        )
    racks = draw(st.sampled_from([(None,), ("r0", "r1"), ("r0", "r1", None)]))
    nodes = [
        replace(draw(st.sampled_from(kinds)), name=f"n{i}", rack=draw(st.sampled_from(racks)))
        for i in range(draw(st.integers(1, most_nodes)))
    ]
    resources = {}
    if draw(st.booleans()):
        resources["licence"] = draw(st.sampled_from([1.0, 2.5]))
    if draw(st.integers(0, 2)) == 0:
        resources["power_w"] = draw(st.sampled_from([900.0, 1500.0, 2400.0]))
    named = [rack for rack in dict.fromkeys(node.rack for node in nodes) if rack is not None]
    return Cluster(
        nodes=tuple(nodes),
        resources=resources,
        budgets={"money": draw(st.sampled_from([6.0, 20.0]))}
        if draw(st.integers(0, 2)) == 0
        else {},
        rack_uplink_gbps={
            rack: draw(st.sampled_from([1.0, 2.0, 3.0])) for rack in named if draw(st.booleans())
        },
        carbon_g_per_kwh=draw(
            st.sampled_from([100.0, ((0.0, 300.0), (40.0, 50.0), (1.7e9 + 30.0, 200.0))])
        ),
        energy_price_per_kwh=((0.0, 0.5), (60.0, 0.1), (1.7e9 + 90.0, 0.3)),
    )


@st.composite
def rounds(
    draw: Any,
    most_jobs: int = 9,
    most_nodes: int = 5,
    sizes: tuple[int, ...] = SIZES,
    held: bool = True,
) -> Instance:
    """Sound instances, in which most jobs ask for GPUs now; with `held` some run and some are
    suspended."""
    cluster = draw(clusters(most_nodes, sizes))
    now_s = draw(st.sampled_from([0.0, 0.0, 1.7e9]))
    above = draw(st.sampled_from([None, None, "t"]))
    tenants = (
        Tenant(
            name="t",
            gpu_quota=draw(st.integers(1, 8)),
            borrow_gpus=draw(st.sampled_from([0, 0, 2])),
        ),
        Tenant(name="u", parent=above, gpu_quota=draw(st.sampled_from([None, None, 2]))),
        Tenant(
            name="v",
            parent=above,
            gpu_quota=draw(st.integers(1, 3)),
            borrow_gpus=draw(st.sampled_from([0, 1, 3])),
        ),
    )[: draw(st.integers(0, 3))]
    shapes = draw(st.lists(profiles(), min_size=1, max_size=3))
    names = [tenant.name for tenant in tenants]
    found = [
        draw(jobs(cluster, i, names, draw(st.sampled_from(shapes)), now_s))
        for i in range(draw(st.integers(most_jobs // 2, most_jobs)))
    ]
    found = [
        replace(job, gpus=draw(st.sampled_from([job.gpus, 2, 3, 4, 8])))
        if job.duration_s and job.gpus == 1
        else job
        for job in found
    ]
    found = [job for job in found if why_never(Catalogue.of(cluster, tenants), job) is None]
    assume(found)
    known = {job.id for job in found}
    found = [
        replace(
            job,
            after=tuple(name for name in job.after if name in known),
            submit_s=job.submit_s if draw(st.integers(0, 5)) == 0 else min(job.submit_s, now_s),
            weight=draw(st.sampled_from([job.weight, 1.0, 2.0, 0.7])),
            priority=0,
            preemptible=draw(st.integers(0, 4)) > 0,
            min_run_s=draw(st.sampled_from([0.0, 0.0, 40.0])),
            deadline_s=draw(st.sampled_from([None, None, now_s + 5.0, now_s + 30.0, now_s - 2.0])),
        )
        for job in found
    ]
    instance = Instance(
        name="random", now_s=now_s, cluster=cluster, tenants=tenants, jobs=tuple(found)
    )
    if held:
        instance = draw(with_held(instance, pairs=False))
        instance = replace(
            instance,
            running=tuple(
                entry
                if draw(st.integers(0, 2)) == 0
                else replace(entry, started_s=now_s - 1000.0, setup_s=0.0)
                for entry in instance.running
            ),
            jobs=tuple(
                replace(job, submit_s=min(job.submit_s, now_s - 1000.0))
                if job.id in instance.running_job
                else job
                for job in instance.jobs
            ),
        )
    instance = replace(
        instance, jobs=tuple(draw(split_over_nodes(instance, job)) for job in instance.jobs)
    )
    assume(not find_faults(instance) and _running_pay(instance))
    return instance


@st.composite
def split_over_nodes(draw: Any, instance: Instance, job: Job) -> Job:
    """Now and then the job, unless it runs, with a say in over how many nodes it is split."""
    least = draw(st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3]))
    if not least or job.id in instance.running_job:
        return job
    limited = replace(job, min_nodes=least, max_nodes=least + draw(st.sampled_from([0, 0, 1, 2])))
    return job if why_never(catalogue_of(instance), limited) else limited


def _running_pay(instance: Instance) -> bool:
    """Whether the budgets allow what runs: some of it may not be preempted."""
    return all(
        sum(entry.mode.budgets.get(name, 0.0) for entry in instance.running) <= amount
        for name, amount in instance.cluster.budgets.items()
    )
