"""Valid rounds, written by hand, that mutation tests break in one way at a time."""

from collections.abc import Callable

from optsched import (
    Clock,
    Cluster,
    Elastic,
    Instance,
    Job,
    Mode,
    Node,
    Profile,
    Running,
    Sharing,
    Slot,
    Suspended,
    Tenant,
)
from optsched.model.instance import Placement
from optsched.model.plan import Decision
from optsched.round.plan import JobRound
from tests.clusters import one_node

Case = tuple[Instance, tuple[JobRound, ...]]


def place(*slots: str) -> Placement:
    """`n0:2g8c` is two GPUs and eight cores on node n0."""
    found = []
    for slot in slots:
        node, held = slot.split(":")
        gpus, cpus = held.removesuffix("c").split("g")
        found.append(Slot(node=node, gpus=int(gpus), cpus=int(cpus)))
    return tuple(found)


def holds(job: str, decision: Decision, mode: Mode | None = None, *slots: str) -> JobRound:
    return JobRound(id=job, decision=decision, mode=mode, placement=place(*slots))


def busy() -> Case:
    """Jobs on three nodes: one goes on, one leaves, one moves, one grows, one starts, one resumes,
    one waits."""
    shape = Profile(
        checkpoint_s=5.0,
        restore_s=5.0,
        startup_s=5.0,
        cpus_per_gpu={2: 0.8, 4: 1.0},
        memory_gib_per_gpu=10.0,
        gpu_memory_gib=20.0,
    )
    plain = Profile(checkpoint_s=1.0)
    two, one = Mode(gpu_type="a", gpus=2, cpus_per_gpu=4), Mode(gpu_type="a", gpus=1)
    instance = Instance(
        now_s=1000.0,
        cluster=Cluster(
            nodes=(
                *(
                    Node(
                        name=f"n{i}",
                        gpu_type="a",
                        gpus=4,
                        cpus=16,
                        memory_gib=64.0,
                        gpu_memory_gib=40.0,
                        rack="r0",
                    )
                    for i in range(3)
                ),
                Node(name="host", cpus=8, memory_gib=16.0),
            ),
            resources={"licence": 1.0},
            budgets={"money": 5.0},
        ),
        tenants=(Tenant(name="t", gpu_quota=4), Tenant(name="u", gpu_quota=4)),
        jobs=(
            Job(id="stay", gpus=2, duration_s=900.0, profile=shape, tenant="t"),
            Job(id="leave", gpus=2, duration_s=900.0, profile=shape),
            Job(id="move", gpus=1, duration_s=900.0, profile=plain),
            Job(id="grow", gpus=Elastic(min=1, max=4), duration_s=900.0, profile=plain),
            Job(
                id="start",
                gpus=2,
                duration_s=90.0,
                profile=shape,
                resources={"licence": 1.0},
                budgets={"money": 4.0},
                tenant="u",
            ),
            Job(id="resume", gpus=1, duration_s=90.0, profile=plain),
            Job(id="wait", gpus=4, duration_s=90.0, profile=plain),
            Job(id="cores", gpus=0, cpus=6, memory_gib=10.0, duration_s=90.0),
            Job(id="next", gpus=1, duration_s=90.0, after=("wait",)),
            Job(id="later", gpus=1, duration_s=90.0, submit_s=2000.0),
        ),
        running=(
            Running(job="stay", mode=two, placement=place("n0:2g8c"), remaining_s=500.0),
            Running(job="leave", mode=two, placement=place("n0:2g8c"), remaining_s=500.0),
            Running(job="move", mode=one, placement=place("n1:1g0c"), remaining_s=500.0),
            Running(job="grow", mode=one, placement=place("n1:1g0c"), remaining_s=500.0),
        ),
        suspended=(Suspended(job="resume", remaining_s=50.0),),
    )
    start = Mode(
        gpu_type="a", gpus=2, cpus_per_gpu=2, resources={"licence": 1.0}, budgets={"money": 4.0}
    )
    return instance, (
        holds("stay", "continue", two, "n0:2g8c"),
        holds("leave", "preempt"),
        holds("move", "migrate", one, "n0:1g0c"),
        holds("grow", "resize", Mode(gpu_type="a", gpus=4), "n2:4g0c"),
        holds("start", "start", start, "n1:2g4c"),
        holds("resume", "resume", one, "n1:1g0c"),
        holds("wait", "wait"),
        holds("cores", "start", Mode(cpus=6), "host:0g6c"),
    )


def racks() -> Case:
    """Two gangs over two racks, whose uplinks hold both."""
    fast = Profile(network_gbps=4.0)
    gang = Mode(gpu_type="a", gpus=2)
    return Instance(
        cluster=Cluster(
            nodes=tuple(
                Node(name=f"n{i}", gpu_type="a", gpus=2, rack=f"r{i % 2}") for i in range(4)
            ),
            rack_uplink_gbps={"r0": 10.0},
        ),
        jobs=tuple(Job(id=name, gpus=2, duration_s=9.0, profile=fast) for name in ("one", "two")),
    ), (
        holds("one", "start", gang, "n0:1g0c", "n1:1g0c"),
        holds("two", "start", gang, "n2:1g0c", "n3:1g0c"),
    )


def shared() -> Case:
    """Two jobs on the same GPUs."""
    shape = Profile(
        sharing=Sharing(duty=0.5), gpu_memory_gib=15.0, clocks={900: Clock(rate=0.8, power=0.5)}
    )
    return Instance(
        cluster=Cluster(
            nodes=(
                Node(name="n0", gpu_type="a", gpus=2, gpu_memory_gib=32.0),
                Node(name="n1", gpu_type="a", gpus=2, gpu_memory_gib=32.0),
            )
        ),
        jobs=(
            Job(id="p", gpus=2, duration_s=9.0, profile=shape),
            Job(id="q", gpus=2, duration_s=9.0, profile=shape),
        ),
    ), (
        holds("p", "start", Mode(gpu_type="a", gpus=2, share_with="q"), "n0:2g0c"),
        holds("q", "start", Mode(gpu_type="a", gpus=2, share_with="p"), "n0:2g0c"),
    )


def loans() -> Case:
    """A tenant that borrows what the other leaves idle."""
    gang = Mode(gpu_type="a", gpus=3)
    return Instance(
        cluster=one_node("n0", gpu_type="a", gpus=8),
        tenants=(Tenant(name="t", gpu_quota=2, borrow_gpus=1), Tenant(name="u", gpu_quota=2)),
        jobs=(
            Job(id="big", gpus=3, duration_s=9.0, tenant="t"),
            Job(id="own", gpus=1, duration_s=9.0, tenant="u"),
        ),
    ), (
        holds("big", "start", gang, "n0:3g0c"),
        holds("own", "start", Mode(gpu_type="a", gpus=1), "n0:1g0c"),
    )


CASES: dict[str, Callable[[], Case]] = {
    "busy": busy,
    "racks": racks,
    "shared": shared,
    "loans": loans,
}
