"""Hand-made instances with a valid plan each; together they use every rule of the verifier."""

from dataclasses import replace

from optsched import (
    Clock,
    Cluster,
    Elastic,
    Failure,
    Instance,
    Job,
    JobPlan,
    Locality,
    Mode,
    Node,
    Outage,
    Plan,
    Profile,
    Running,
    Segment,
    Sharing,
    Slot,
    Suspended,
    Tenant,
)
from tests.clusters import equal_nodes

Case = tuple[Instance, Plan]


def place(*slots: str) -> tuple[Slot, ...]:
    """`place("n0:4g8c", "n1:2g4c")`: GPUs and cores on each node."""
    found = []
    for text in slots:
        node, _, held = text.partition(":")
        gpus, _, cpus = held.removesuffix("c").partition("g")
        found.append(Slot(node=node, gpus=int(gpus), cpus=int(cpus)))
    return tuple(found)


def segment(start_s: float, end_s: float, mode: Mode, *slots: str) -> Segment:
    return Segment(start_s=start_s, end_s=end_s, mode=mode, placement=place(*slots))


def entry(job: str, decision: str, *segments: Segment) -> JobPlan:
    return JobPlan(id=job, decision=decision, segments=segments)  # type: ignore[arg-type]


def gangs() -> Case:
    """Gangs over nodes and racks, cores by a table, host memory, a release date."""
    cluster = Cluster(
        nodes=(
            *equal_nodes(
                2, gpus=4, gpu_type="a100", gpu_memory_gib=16.0, cpus=16, memory_gib=64.0, rack="r0"
            ),
            Node(
                name="far",
                gpus=4,
                gpu_type="a100",
                gpu_memory_gib=16.0,
                cpus=16,
                memory_gib=64.0,
                rack="r1",
            ),
        )
    )
    wide = Profile(
        cpus_per_gpu={1: 0.5, 2: 0.75, 3: 1.0},
        memory_gib_per_gpu=8.0,
        gpu_memory_gib=16.0,
        locality=Locality(node=1.0, rack=0.8, cluster=0.5),
    )
    jobs = (
        Job(id="six", gpus=6, duration_s=80.0, profile=wide),
        Job(
            id="two",
            gpus=2,
            duration_s=50.0,
            profile=Profile(cpus_per_gpu={1: 1.0, 4: 1.0, 6: 1.0}, memory_gib_per_gpu=16.0),
        ),
        Job(id="late", gpus=2, duration_s=20.0, submit_s=55.0, profile=Profile(startup_s=5.0)),
        Job(id="apart", gpus=8, duration_s=60.0, profile=wide),
    )
    plan = Plan(
        jobs=(
            entry(
                "six", "start", segment(0, 100, Mode(gpus=6, cpus_per_gpu=3), "n0:4g12c", "n1:2g6c")
            ),
            entry("two", "start", segment(0, 50, Mode(gpus=2, cpus_per_gpu=4), "n1:2g8c")),
            entry("late", "wait", segment(55, 80, Mode(gpus=2), "n1:2g0c")),
            entry(
                "apart",
                "wait",
                segment(100, 260, Mode(gpus=8, cpus_per_gpu=2), "n0:4g8c", "far:4g8c"),
            ),
        )
    )
    return Instance(cluster=cluster, jobs=jobs), plan


def kinds() -> Case:
    """GPU types with their rates and memory, an elastic gang, listed modes."""
    cluster = Cluster(
        nodes=(
            Node(name="a0", gpus=4, gpu_type="a100", gpu_memory_gib=80.0),
            Node(name="a1", gpus=4, gpu_type="a100", gpu_memory_gib=80.0),
            Node(name="a2", gpus=4, gpu_type="a100", gpu_memory_gib=80.0),
            Node(name="v0", gpus=4, gpu_type="v100", gpu_memory_gib=16.0),
            Node(name="v1", gpus=4, gpu_type="v100", gpu_memory_gib=16.0),
        )
    )
    jobs = (
        Job(
            id="big",
            gpus=2,
            duration_s=30.0,
            profile=Profile(rate={"a100": 1.0, "v100": 0.5}, gpu_memory_gib=40.0),
        ),
        Job(
            id="small",
            gpus=4,
            duration_s=30.0,
            profile=Profile(rate={"a100": 1.0, "v100": 0.5}, gpu_memory_gib=8.0),
        ),
        Job(id="only", gpus=1, duration_s=30.0, profile=Profile(rate={"a100": 1.0})),
        Job(
            id="grow",
            gpus=Elastic(min=1, max=4),
            duration_s=30.0,
            profile=Profile(gpus={1: 0.25, 3: 0.75, 4: 1.0}),
        ),
        Job(
            id="list",
            modes=(
                Mode(duration_s=10.0, gpus=4, gpu_type="a100"),
                Mode(duration_s=25.0, gpus=4),
                Mode(duration_s=90.0, gpus=1),
            ),
        ),
    )
    plan = Plan(
        jobs=(
            entry("big", "start", segment(0, 30, Mode(gpus=2, gpu_type="a100"), "a0:2g0c")),
            entry("small", "start", segment(0, 60, Mode(gpus=4, gpu_type="v100"), "v0:4g0c")),
            entry("only", "start", segment(0, 30, Mode(gpus=1), "a0:1g0c")),
            entry("grow", "start", segment(0, 60, Mode(gpus=2), "v1:2g0c")),
            entry("list", "start", segment(0, 25, Mode(duration_s=25.0, gpus=4), "a1:4g0c")),
        )
    )
    return Instance(cluster=cluster, jobs=jobs), plan


def shared() -> Case:
    """Cluster resources, budgets, quotas, precedence, CPU-only jobs, a job without a node."""
    cluster = Cluster(
        nodes=(Node(name="n0", gpus=8, cpus=8, memory_gib=32.0),),
        resources={"licence": 2.0},
        budgets={"energy": 10.0},
    )
    use = {"resources": {"licence": 1.0}, "budgets": {"energy": 4.0}}
    with_use = Mode(gpus=2, **use)  # type: ignore[arg-type]
    with_less = Mode(duration_s=10.0, gpus=1, budgets={"energy": 2.0})
    jobs = (
        Job(id="a", gpus=2, duration_s=10.0, tenant="blue", **use),  # type: ignore[arg-type]
        Job(id="b", gpus=2, duration_s=10.0, tenant="blue", after=("a",), **use),  # type: ignore[arg-type]
        Job(
            id="c",
            tenant="blue",
            modes=(with_less, Mode(duration_s=5.0, gpus=1, budgets={"energy": 7.0})),
        ),
        Job(id="cores", gpus=0, cpus=4, memory_gib=16.0, duration_s=30.0),
        Job(id="more", gpus=0, cpus=4, memory_gib=16.0, duration_s=20.0),
        Job(id="token", gpus=0, duration_s=15.0, resources={"licence": 1.0}),
        Job(id="wait", gpus=0, duration_s=5.0, resources={"licence": 2.0}, after=("b", "token")),
    )
    plan = Plan(
        jobs=(
            entry("a", "start", segment(0, 10, with_use, "n0:2g0c")),
            entry("b", "wait", segment(10, 20, with_use, "n0:2g0c")),
            entry("c", "start", segment(0, 10, with_less, "n0:1g0c")),
            entry("cores", "start", segment(0, 30, Mode(cpus=4), "n0:0g4c")),
            entry("more", "start", segment(0, 20, Mode(cpus=4), "n0:0g4c")),
            entry("token", "start", segment(0, 15, Mode(resources={"licence": 1.0}))),
            entry("wait", "wait", segment(20, 25, Mode(resources={"licence": 2.0}))),
        )
    )
    return Instance(cluster=cluster, tenants=(Tenant(name="blue", gpu_quota=3),), jobs=jobs), plan


NOW_S = 1_000.0
SLOW = Profile(startup_s=2.0, restore_s=3.0, checkpoint_s=4.0)


def held() -> Case:
    """Running jobs that continue, are preempted, migrate or resize, and a suspended one that comes
    back."""
    cluster = Cluster(nodes=equal_nodes(6, gpus=4))
    one, two, four = Mode(gpus=1), Mode(gpus=2), Mode(gpus=4)
    jobs = (
        Job(id="stay", gpus=4, duration_s=100.0, preemptible=False, profile=SLOW),
        Job(id="stop", gpus=2, duration_s=100.0, min_run_s=50.0, max_preemptions=1, profile=SLOW),
        Job(id="move", gpus=2, duration_s=100.0, profile=SLOW),
        Job(id="size", gpus=Elastic(min=1, max=2), duration_s=100.0, profile=SLOW),
        Job(id="back", gpus=1, duration_s=100.0, max_preemptions=3, profile=SLOW),
        Job(id="again", gpus=1, duration_s=100.0, min_run_s=20.0, profile=SLOW),
        Job(id="fixed", gpus=1, duration_s=10.0, preemptible=False),
    )
    running = (
        Running(
            job="stay",
            mode=four,
            placement=place("n0:4g0c"),
            started_s=999.0,
            remaining_s=100.0,
            setup_s=1.0,
        ),
        Running(
            job="stop", mode=two, placement=place("n1:2g0c"), started_s=900.0, remaining_s=30.0
        ),
        Running(
            job="move", mode=two, placement=place("n1:2g0c"), started_s=900.0, remaining_s=30.0
        ),
        Running(
            job="size", mode=one, placement=place("n2:1g0c"), started_s=900.0, remaining_s=40.0
        ),
    )
    plan = Plan(
        jobs=(
            entry("stay", "continue", segment(1000, 1101, four, "n0:4g0c")),
            entry(
                "stop",
                "preempt",
                segment(1000, 1004, two, "n1:2g0c"),
                segment(1010, 1045, two, "n1:2g0c"),
            ),
            entry(
                "move",
                "migrate",
                segment(1000, 1004, two, "n1:2g0c"),
                segment(1004, 1039, two, "n3:2g0c"),
            ),
            entry(
                "size",
                "resize",
                segment(1000, 1004, one, "n2:1g0c"),
                segment(1004, 1049, two, "n2:2g0c"),
            ),
            entry("back", "resume", segment(1000, 1055, one, "n4:1g0c")),
            entry(
                "again",
                "start",
                segment(1000, 1026, one, "n5:1g0c"),
                segment(1030, 1115, one, "n4:1g0c"),
            ),
            entry("fixed", "wait", segment(1005, 1015, one, "n5:1g0c")),
        )
    )
    suspended = (Suspended(job="back", remaining_s=50.0, preemptions=2),)
    instance = Instance(
        now_s=NOW_S, cluster=cluster, jobs=jobs, running=running, suspended=suspended
    )
    return instance, plan


def periodic() -> Case:
    """Periodic checkpoints: what was done since the last one is lost, and nothing is held to
    save."""
    profile = Profile(startup_s=2.0, restore_s=3.0, checkpoint_s=4.0, checkpoint_every_s=20.0)
    cluster = Cluster(nodes=equal_nodes(3, gpus=2))
    one = Mode(gpus=1)
    jobs = (
        Job(id="lose", gpus=1, duration_s=100.0, profile=profile),
        Job(id="later", gpus=1, duration_s=100.0, min_run_s=10.0, profile=profile),
        Job(id="fresh", gpus=1, duration_s=60.0, profile=profile),
    )
    running = (
        Running(
            job="lose",
            mode=one,
            placement=place("n0:1g0c"),
            started_s=900.0,
            remaining_s=40.0,
            last_checkpoint_s=985.0,
        ),
        Running(
            job="later",
            mode=one,
            placement=place("n0:1g0c"),
            started_s=995.0,
            remaining_s=60.0,
            last_checkpoint_s=995.0,
        ),
    )
    plan = Plan(
        jobs=(
            # 15 s since the last checkpoint are lost
            entry("lose", "migrate", segment(1000, 1060, one, "n1:1g0c")),
            # runs 20 s more: 25 s since the last checkpoint, of which 20 were saved at 1015 and 5
            # are lost
            entry(
                "later",
                "continue",
                segment(1000, 1020, one, "n0:1g0c"),
                segment(1030, 1080, one, "n2:1g0c"),
            ),
            # 2 s to start, 33 s of work of which 20 are kept
            entry(
                "fresh",
                "start",
                segment(1000, 1035, one, "n2:1g0c"),
                segment(1035, 1080, one, "n0:1g0c"),
            ),
        )
    )
    return Instance(now_s=NOW_S, cluster=cluster, jobs=jobs, running=running), plan


def pairs() -> Case:
    """Jobs on the same GPUs: a pair that parts midway, one that starts beside a running job."""
    cluster = Cluster(nodes=equal_nodes(2, gpus=2, gpu_memory_gib=20.0, cpus=8, memory_gib=32.0))
    half = Profile(
        name="half", sharing=Sharing(duty=0.5), gpu_memory_gib=8.0, memory_gib_per_gpu=4.0
    )
    full = Profile(
        name="full",
        sharing=Sharing(duty=1.0, partners={"half": 0.5}),
        gpu_memory_gib=8.0,
        startup_s=2.0,
    )
    busy = Profile(name="busy", sharing=Sharing(duty=0.75), gpu_memory_gib=4.0)
    jobs = (
        Job(id="p", gpus=2, duration_s=40.0, profile=half),
        Job(id="q", gpus=2, duration_s=40.0, profile=half),
        Job(id="r", gpus=1, duration_s=25.0, profile=full),
        Job(id="s", gpus=1, duration_s=50.0, profile=busy),
        Job(id="t", gpus=1, duration_s=40.0 / 3, profile=half),
    )
    running = (
        Running(
            job="s", mode=Mode(gpus=1), placement=place("n1:1g0c"), started_s=-5.0, remaining_s=40.0
        ),
    )

    def beside(partner: str | None, gpus: int) -> Mode:
        return Mode(gpus=gpus, share_with=partner)

    plan = Plan(
        jobs=(
            entry(
                "p", "start", segment(0, 40, beside("q", 2), "n0:2g0c")
            ),  # duties 0.5 + 0.5: no loss
            entry("q", "start", segment(0, 40, beside("p", 2), "n0:2g0c")),
            # beside t: measured 0.5; 2 s to start, 1 s of work done alone, then 20 s at half speed,
            # then alone
            entry(
                "r",
                "start",
                segment(0, 3, beside(None, 1), "n1:1g0c"),
                segment(3, 23, beside("t", 1), "n1:1g0c"),
                segment(23, 37, beside(None, 1), "n1:1g0c"),
            ),
            entry("s", "continue", segment(0, 40, Mode(gpus=1), "n1:1g0c")),
            # beside r: duties 0.5 + 1 = 1.5, so two thirds
            entry("t", "wait", segment(3, 23, beside("r", 1), "n1:1g0c")),
        )
    )
    return Instance(cluster=cluster, jobs=jobs, running=running), plan


def clocked() -> Case:
    """GPU clocks under a power cap, which is used up at first."""
    cluster = Cluster(nodes=equal_nodes(3, gpus=4, gpu_type="a100"), resources={"power_w": 1950.0})
    profile = Profile(
        power_w={"a100": 300.0},
        startup_s=2.0,
        clocks={900: Clock(rate=0.8, power=0.5), 1200: Clock(rate=1.25, power=1.5)},
    )

    def at(clock_mhz: int | None, gpus: int, watts: float) -> Mode:
        return Mode(gpus=gpus, clock_mhz=clock_mhz, resources={"power_w": watts})

    jobs = (
        Job(id="plain", gpus=3, duration_s=30.0, profile=profile),
        Job(id="slow", gpus=2, duration_s=40.0, profile=profile),
        Job(id="fast", gpus=2, duration_s=40.0, resources={"power_w": 50.0}, profile=profile),
        Job(id="stay", gpus=1, duration_s=80.0, profile=profile),
        Job(id="turn", gpus=1, duration_s=80.0, profile=profile),
        Job(id="cool", gpus=0, duration_s=10.0, resources={"power_w": 100.0}),
        Job(
            id="list",
            modes=(Mode(duration_s=12.0, gpus=1, resources={"power_w": 50.0}),),
            profile=profile,
        ),
    )
    running = (
        Running(
            job="stay",
            mode=at(900, 1, 150.0),
            placement=place("n1:1g0c"),
            started_s=-50.0,
            remaining_s=40.0,
        ),
        Running(
            job="turn",
            mode=at(None, 1, 300.0),
            placement=place("n1:1g0c"),
            started_s=-50.0,
            remaining_s=40.0,
        ),
    )
    plan = Plan(
        jobs=(
            entry("plain", "start", segment(0, 32, at(None, 3, 900.0), "n0:3g0c")),
            entry("slow", "start", segment(0, 52, at(900, 2, 300.0), "n2:2g0c")),
            entry("fast", "wait", segment(32, 66, at(1200, 2, 950.0), "n2:2g0c")),
            entry("stay", "continue", segment(0, 50, at(900, 1, 150.0), "n1:1g0c")),
            entry("turn", "resize", segment(0, 34, at(1200, 1, 450.0), "n1:1g0c")),
            entry("cool", "start", segment(0, 10, Mode(resources={"power_w": 100.0}))),
            entry(
                "list",
                "start",
                segment(
                    0, 14, Mode(duration_s=12.0, gpus=1, resources={"power_w": 50.0}), "n1:1g0c"
                ),
            ),
        )
    )
    return Instance(cluster=cluster, jobs=jobs, running=running), plan


def lean() -> Case:
    """Less host memory than jobs ask for, on a node that is full then; less GPU memory alone and
    beside another job; a running job that takes all again."""
    cluster = Cluster(nodes=equal_nodes(2, gpus=4, gpu_memory_gib=16.0, memory_gib=32.0))
    cached = Profile(
        memory_gib_per_gpu=12.0, memory_rates={4.0: 0.5, 8.0: 0.8}, cpus_per_gpu={1: 0.4, 2: 1.0}
    )
    batch = Profile(gpu_memory_gib=24.0, gpu_memory_rates={12.0: 0.4, 16.0: 0.8})
    half = Profile(
        sharing=Sharing(duty=0.5), gpu_memory_gib=10.0, gpu_memory_rates={5.0: 0.25, 6.0: 0.5}
    )
    jobs = (
        Job(id="all", duration_s=20.0, profile=cached),
        Job(id="less", gpus=2, duration_s=20.0, profile=cached),
        Job(id="least", duration_s=10.0, profile=cached),
        Job(id="cores", duration_s=10.0, profile=cached),
        Job(id="small", duration_s=20.0, profile=batch),
        Job(id="host", duration_s=40.0, profile=half),
        Job(id="guest", duration_s=10.0, profile=half),
        Job(id="grow", duration_s=60.0, profile=cached),
        Job(id="list", modes=(Mode(duration_s=10.0, gpus=1),), profile=cached),
    )
    few = Mode(gpus=1, cpus_per_gpu=1, memory_gib_per_gpu=8.0)
    running = (
        Running(job="host", mode=Mode(gpus=1), placement=place("n1:1g0c"), remaining_s=20.0),
        Running(
            job="grow",
            mode=Mode(gpus=1, cpus_per_gpu=2, memory_gib_per_gpu=4.0),
            placement=place("n1:1g2c"),
            remaining_s=30.0,
        ),
    )
    two = Mode(gpus=1, cpus_per_gpu=2)
    plan = Plan(
        jobs=(
            entry("all", "start", segment(0, 20, two, "n0:1g2c")),
            entry(
                "less",
                "start",
                segment(0, 25, replace(two, gpus=2, memory_gib_per_gpu=8.0), "n0:2g4c"),
            ),
            entry(
                "least", "start", segment(0, 20, replace(two, memory_gib_per_gpu=4.0), "n0:1g2c")
            ),
            entry("cores", "wait", segment(25, 50, few, "n0:1g1c")),
            entry("small", "start", segment(0, 25, Mode(gpus=1, gpu_memory_gib=16.0), "n1:1g0c")),
            entry("host", "continue", segment(0, 20, Mode(gpus=1, share_with="guest"), "n1:1g0c")),
            entry(
                "guest",
                "start",
                segment(0, 20, Mode(gpus=1, share_with="host", gpu_memory_gib=6.0), "n1:1g0c"),
            ),
            entry("grow", "resize", segment(0, 30, two, "n1:1g2c")),
            entry("list", "wait", segment(25, 35, Mode(duration_s=10.0, gpus=1), "n0:1g0c")),
        )
    )
    return Instance(cluster=cluster, jobs=jobs, running=running), plan


def racks() -> Case:
    """Gangs that span racks beside one that does not, on uplinks that are just enough."""
    cluster = Cluster(
        nodes=(
            *(Node(name=f"n{i}", gpus=6, rack=f"r{i // 2}") for i in range(4)),
            Node(name="n4", gpus=6, rack="r2"),
            Node(name="n5", gpus=6),
        ),
        rack_uplink_gbps={"r0": 10.0, "r1": 6.0},
    )
    jobs = tuple(
        Job(id=name, gpus=gpus, duration_s=20.0, profile=Profile(network_gbps=gbps))
        for name, gpus, gbps in (
            ("wide", 8, 6.0),
            ("two", 4, 4.0),
            ("inside", 4, 50.0),
            ("free", 4, 50.0),
            ("next", 8, 5.5),
        )
    )
    four, eight = Mode(gpus=4), Mode(gpus=8)
    plan = Plan(
        jobs=(
            entry("wide", "start", segment(0, 20, eight, "n0:4g0c", "n2:4g0c")),
            entry("two", "start", segment(0, 20, four, "n1:2g0c", "n5:2g0c")),
            entry("inside", "start", segment(0, 20, four, "n2:2g0c", "n3:2g0c")),
            entry("free", "start", segment(0, 20, four, "n4:2g0c", "n5:2g0c")),
            entry("next", "wait", segment(20, 40, eight, "n1:4g0c", "n3:4g0c")),
        )
    )
    return Instance(cluster=cluster, jobs=jobs), plan


def contended() -> Case:
    """Two gangs on a shared uplink, then a gang and a CPU-only job on the memory of a node beside
    one that takes none.

    Uplink r0 holds one gang: together `much` goes at 1/2 and `half` at 1 / (1 + 0.5). `half` has
    done its 20 s at 30 s, `much` has done 15 s by then and the rest alone. Memory of n1 holds 8,
    `busy` takes 2 x 4 and `host` 8: together `busy` goes at 1/2 and `host` at 1 / 1.5, so `host` is
    done at 55 s with `busy` at 7.5 of its 10 s.
    """
    cluster = Cluster(
        nodes=tuple(
            Node(
                name=f"n{i}", gpus=8, cpus=8, rack=f"r{i // 2}", memory_gbps=8.0 if i == 1 else None
            )
            for i in range(4)
        ),
        rack_uplink_gbps={"r0": 10.0, "r1": 20.0},
        uplinks="shared",
    )
    jobs = (
        Job(id="much", gpus=4, duration_s=20.0, profile=Profile(network_gbps=10.0)),
        Job(
            id="half", gpus=4, duration_s=20.0, profile=Profile(network_gbps=10.0, network_duty=0.5)
        ),
        Job(id="busy", gpus=2, duration_s=10.0, profile=Profile(memory_gbps=4.0)),
        Job(
            id="host",
            gpus=0,
            cpus=2,
            duration_s=10.0,
            profile=Profile(memory_gbps=8.0, memory_duty=0.5),
        ),
        Job(id="none", gpus=1, duration_s=10.0),
    )
    four = Mode(gpus=4)
    plan = Plan(
        jobs=(
            entry("much", "start", segment(0, 35, four, "n0:2g0c", "n2:2g0c")),
            entry("half", "start", segment(0, 30, four, "n1:2g0c", "n3:2g0c")),
            entry("busy", "wait", segment(40, 57.5, Mode(gpus=2), "n1:2g0c")),
            entry("host", "wait", segment(40, 55, Mode(cpus=2), "n1:0g2c")),
            entry("none", "wait", segment(40, 50, Mode(gpus=1), "n1:1g0c")),
        )
    )
    return Instance(cluster=cluster, jobs=jobs), plan


def cached() -> Case:
    """Models fetched in 5 s and cached: a and b take 6 of the 10 GiB of a cache, c 4; every start
    takes 1 s on top.

    On n0 `a2` finds what `a1` fetched; `b1`, at the same instant, evicts c and then a, so that `c2`
    fetches again, and `b2` does not. On n1 `run` has its model there from the beginning; models
    without a name are never cached, and n2 has no cache.
    """

    def model(name: str | None, gib: float) -> Profile:
        return Profile(name=name, model_gib=gib, fetch_s=5.0, startup_s=1.0)

    a, b, c, unnamed = model("a", 6.0), model("b", 6.0), model("c", 4.0), model(None, 1.0)
    one = Mode(gpus=1)
    rows = (
        ("a1", a, "n0", 0, 16),
        ("c1", c, "n0", 0, 16),
        ("a2", a, "n0", 16, 27),
        ("b1", b, "n0", 16, 32),
        ("c2", c, "n0", 32, 48),
        ("b2", b, "n0", 32, 43),
        ("run", b, "n1", 0, 4),
        ("b3", b, "n1", 4, 15),
        ("x1", unnamed, "n1", 15, 31),
        ("x2", unnamed, "n1", 31, 47),
        ("a3", a, "n2", 0, 16),
        ("a4", a, "n2", 16, 32),
    )
    jobs = tuple(Job(id=name, duration_s=10.0, profile=profile) for name, profile, *_ in rows)
    plan = Plan(
        jobs=tuple(
            entry(
                name,
                "continue" if name == "run" else "wait" if start else "start",
                segment(start, end, one, f"{node}:1g0c"),
            )
            for name, _, node, start, end in rows
        )
    )
    cluster = Cluster(
        nodes=(
            Node(name="n0", gpus=2, model_cache_gib=10.0),
            Node(name="n1", gpus=1, model_cache_gib=10.0),
            Node(name="n2", gpus=1),
        )
    )
    running = (
        Running(job="run", mode=one, placement=place("n1:1g0c"), started_s=-9.0, remaining_s=4.0),
    )
    return Instance(cluster=cluster, jobs=jobs, running=running), plan


def loans() -> Case:
    """A tenant that borrows what the other leaves idle, and one without a quota."""
    jobs = (
        Job(id="more", gpus=4, duration_s=10.0, tenant="blue"),
        Job(id="some", gpus=3, duration_s=10.0, tenant="blue"),
        Job(id="own", gpus=1, duration_s=10.0, tenant="red"),
        Job(id="any", gpus=4, duration_s=30.0, tenant="green"),
    )
    plan = Plan(
        jobs=(
            entry("more", "start", segment(0, 10, Mode(gpus=4), "n0:4g0c")),
            entry("some", "wait", segment(10, 20, Mode(gpus=3), "n0:3g0c")),
            entry("own", "wait", segment(10, 20, Mode(gpus=1), "n0:1g0c")),
            entry("any", "start", segment(0, 30, Mode(gpus=4), "n1:4g0c")),
        )
    )
    tenants = (
        Tenant(name="blue", gpu_quota=2, borrow_gpus=2),
        Tenant(name="red", gpu_quota=2),
        Tenant(name="green"),
    )
    return Instance(cluster=Cluster(nodes=equal_nodes(2, gpus=8)), tenants=tenants, jobs=jobs), plan


def incidents() -> Case:
    """What happened to a job whose first attempt failed, and to one whose node was lost."""
    slow = Profile(startup_s=3.0, restore_s=2.0, checkpoint_s=4.0)
    jobs = (Job(id="fails", duration_s=10.0, profile=slow), Job(id="lost", duration_s=10.0))
    one = Mode(gpus=1)
    failed, crashed = segment(0, 7, one, "n0:1g0c"), segment(0, 6, one, "n1:1g0c")
    plan = Plan(
        jobs=(
            entry(
                "fails",
                "start",
                replace(failed, stopped_by="failure"),
                segment(8, 23, one, "n0:1g0c"),
            ),
            entry(
                "lost",
                "start",
                replace(crashed, stopped_by="outage"),
                segment(20, 30, one, "n1:1g0c"),
            ),
        )
    )
    return Instance(
        cluster=Cluster(nodes=equal_nodes(2, gpus=1)),
        jobs=jobs,
        failures=(Failure(job="fails", work_s=4.0),),
        outages=(Outage(node="n1", start_s=6.0, end_s=20.0),),
    ), plan


def crowded() -> Case:
    """What happened to a job that was started beside another without the GPU memory for both."""
    shape = Profile(sharing=Sharing(duty=1.0), startup_s=3.0, restore_s=2.0, gpu_memory_gib=50.0)
    jobs = (
        Job(id="stays", duration_s=20.0, profile=shape),
        Job(id="dies", duration_s=10.0, profile=shape),
    )
    one = Mode(gpus=1)
    vain = segment(10, 13, replace(one, share_with="stays"), "n0:1g0c")
    plan = Plan(
        jobs=(
            entry(  # 7 s of work alone, 1.5 s beside the other, 11.5 s alone
                "stays",
                "start",
                segment(0, 10, one, "n0:1g0c"),
                segment(10, 13, replace(one, share_with="dies"), "n0:1g0c"),
                segment(13, 24.5, one, "n0:1g0c"),
            ),
            entry(
                "dies",
                "wait",
                replace(vain, stopped_by="out_of_memory"),
                segment(30, 45, one, "n0:1g0c"),
            ),
        )
    )
    cluster = Cluster(
        nodes=tuple(replace(node, gpu_memory_gib=80.0) for node in equal_nodes(2, gpus=1))
    )
    return Instance(cluster=cluster, jobs=jobs), plan


CASES = {
    case.__name__: case
    for case in (
        gangs,
        kinds,
        shared,
        held,
        periodic,
        pairs,
        clocked,
        lean,
        racks,
        contended,
        cached,
        loans,
        incidents,
        crowded,
    )
}
