"""Options: whatever they offer can be run, and nothing faster than the fastest of them can."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import (
    Clock,
    Cluster,
    Elastic,
    Instance,
    Job,
    JobPlan,
    Locality,
    Mode,
    Node,
    Plan,
    Profile,
    Running,
    Segment,
    Slot,
)
from optsched.objectives import parse
from optsched.physics import clocks, gang_sizes, held_resources, placed_rate
from optsched.physics.catalogue import Catalogue, on_uplinks
from optsched.physics.modes import Option, base_modes
from optsched.verify import verify
from tests.clusters import equal_nodes, one_node

MAKESPAN = parse("makespan")
RATES = st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0, 1.5])


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    limits = draw(
        st.sampled_from([{}, {}, {"r": 5.0}, {"r": 5.0, "s": 5.0}, {"r": 20.0, "s": 5.0}])
    )
    cap = draw(st.sampled_from([{}, {"power_w": 1e6}]))
    return Cluster(
        rack_uplink_gbps=dict(limits),
        resources=dict(cap),
        nodes=tuple(
            Node(
                name=f"n{i}",
                gpus=draw(st.integers(0, 3)),
                gpu_type=draw(st.sampled_from([None, "a", "b"])),
                cpus=draw(st.sampled_from([None, 2, 4, 7])),
                memory_gib=draw(st.sampled_from([None, 8.0, 30.0])),
                gpu_memory_gib=draw(st.sampled_from([None, 10.0, 20.0])),
                rack=draw(st.sampled_from([None, "r", "s"])),
            )
            for i in range(draw(st.integers(0, 3)))
        ),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    falling = sorted(draw(st.lists(RATES, min_size=3, max_size=3)), reverse=True)
    profile = Profile(
        rate=draw(st.sampled_from([{}, {"a": 1.0}, {"a": 0.5, "b": 1.0}])),
        gpus=draw(st.dictionaries(st.integers(1, 5), RATES, max_size=3)),
        cpus_per_gpu=draw(st.dictionaries(st.integers(1, 4), RATES, max_size=3)),
        locality=draw(
            st.sampled_from(
                [
                    None,
                    Locality(node=falling[0], rack=falling[1], cluster=falling[2]),
                    Locality(node=falling[0], cluster=falling[1]),
                ]
            )
        ),
        **draw(
            st.sampled_from(
                [
                    {},
                    {"gpu_memory_gib": 10.0},
                    {"gpu_memory_gib": 15.0, "gpu_memory_rates": {8.0: 0.8, 12.0: 0.5}},
                    {"gpu_memory_gib": 25.0, "gpu_memory_rates": {10.0: 0.6, 20.0: 0.9}},
                ]
            )
        ),
        memory_gib_per_gpu=draw(st.sampled_from([4.0, 10.0])),
        memory_rates=draw(st.dictionaries(st.sampled_from([1.5, 3.0]), RATES, max_size=2)),
        network_gbps=draw(st.sampled_from([0.0, 5.0, 7.5])),
        power_w=draw(st.sampled_from([{}, {"a": 300.0}, {"a": 300.0, "b": 0.0}])),
        clocks=draw(
            st.dictionaries(
                st.integers(1, 3), st.builds(Clock, rate=RATES, power=RATES), max_size=2
            )
        ),
    )
    match draw(st.sampled_from(["gang", "gang", "elastic", "cpu", "modes"])):
        case "gang":
            return Job(id="j", gpus=draw(st.integers(1, 6)), duration_s=60.0, profile=profile)
        case "elastic":
            low = draw(st.integers(1, 3))
            gang = Elastic(min=low, max=low + draw(st.integers(0, 4)))
            return Job(id="j", gpus=gang, duration_s=60.0, profile=profile)
        case "cpu":
            return Job(
                id="j",
                gpus=0,
                cpus=draw(st.integers(0, 5)),
                memory_gib=draw(st.sampled_from([0.0, 9.0])),
                duration_s=60.0,
                profile=profile,
            )
        case _:
            return Job(
                id="j",
                profile=profile,
                modes=tuple(
                    Mode(
                        duration_s=draw(st.sampled_from([10.0, 20.0, 50.0])),
                        gpus=gpus,
                        gpu_type=draw(st.sampled_from([None, "a", "b"])),
                        cpus_per_gpu=draw(st.integers(0, 3)),
                    )
                    for gpus in draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
                ),
            )


def ways(cluster: Cluster, job: Job) -> Iterator[tuple[Mode, tuple[Slot, ...]]]:
    """Every mode with measured cores and memory, of every gang size, in every placement."""
    if job.modes:
        modes = list(job.modes)
    elif job.gpus == 0:
        modes = [Mode(cpus=job.cpus)]
    else:
        sizes = [job.gpus] if isinstance(job.gpus, int) else range(job.gpus.min, job.gpus.max + 1)
        modes = [
            Mode(
                gpus=n,
                cpus_per_gpu=k,
                clock_mhz=mhz,
                memory_gib_per_gpu=gib,
                gpu_memory_gib=gpu_gib,
            )
            for n in sizes
            for k in job.profile.cpus_per_gpu or [0]
            for mhz in clocks(job)
            for gib in (None, *job.profile.memory_rates)
            for gpu_gib in (None, *job.profile.gpu_memory_rates)
        ]
    for mode in modes:
        if mode.gpus == 0:
            if mode.cpus == 0 and job.memory_gib == 0:
                yield mode, ()
            else:
                yield from (
                    (mode, (Slot(node=node.name, cpus=mode.cpus),)) for node in cluster.nodes
                )
            continue
        for split in product(*(range(node.gpus + 1) for node in cluster.nodes)):
            if sum(split) == mode.gpus:
                yield (
                    mode,
                    tuple(
                        Slot(node=node.name, gpus=n, cpus=n * mode.cpus_per_gpu)
                        for node, n in zip(cluster.nodes, split, strict=True)
                        if n
                    ),
                )


def run_s(cluster: Cluster, job: Job, mode: Mode, placement: tuple[Slot, ...]) -> float | None:
    """How long a verified plan of this job alone takes in this way; None where there is none."""
    if len({cluster.node[slot.node].gpu_type for slot in placement}) > 1:
        return None
    instance = Instance(cluster=cluster, jobs=(job,))
    if not job.modes and placement:
        resources = held_resources(cluster, job, mode, cluster.node[placement[0].node].gpu_type)
        mode = replace(mode, resources=resources)
    speed = placed_rate(instance, job, mode, placement)
    if speed <= 0:
        return None
    end_s = job.work_s / speed
    segment = Segment(start_s=0.0, end_s=end_s, mode=mode, placement=placement)
    plan = Plan(jobs=(JobPlan(id=job.id, decision="start", segments=(segment,)),))
    return end_s if verify(instance, plan, MAKESPAN).ok else None


@settings(max_examples=250)
@given(clusters(), jobs())
def test_the_fastest_option_is_the_fastest_way_of_all(cluster: Cluster, job: Job) -> None:
    found = Catalogue.of(cluster).options(job)
    possible = [
        time for way in ways(cluster, job) if (time := run_s(cluster, job, *way)) is not None
    ]
    assert bool(found) == bool(possible) == Catalogue.of(cluster).fits_somewhere(job)
    if found:
        assert min(option.run_s(job, job.work_s) for option in found) == pytest.approx(
            min(possible), rel=1e-9
        )


@settings(max_examples=150)
@given(clusters(), jobs())
def test_every_option_can_be_run_at_its_rate_or_faster(cluster: Cluster, job: Job) -> None:
    reach = {"node": 0, "rack": 1, "cluster": 2}
    every = list(ways(cluster, job))
    for option in Catalogue.of(cluster).options(job):
        times = [
            run_s(cluster, job, option.mode, placement)
            for mode, placement in every
            if (mode.size, mode.duration_s) == (option.mode.size, option.mode.duration_s)
        ]
        fastest = min(time for time in times if time is not None)
        assert fastest <= option.run_s(job, job.work_s) * (1 + 1e-9)
        assert reach[option.spread] in (0, 1, 2) and option.rate > 0


@settings(max_examples=150)
@given(clusters(), jobs())
def test_room_agrees_with_the_largest_gangs(cluster: Cluster, job: Job) -> None:
    for mode in base_modes(cluster, job):
        where = Catalogue.of(cluster).room(job, mode)
        assert set(where) <= set(cluster.node) and all(count > 0 for count in where.values())
        most = Catalogue.of(cluster).most_gpus(job, mode)
        racks = {
            rack: sum(n for name, n in where.items() if cluster.node[name].rack == rack)
            for rack in ("r", "s")
        }
        assert most["rack"] == max(racks.values()) and most["node"] == max(
            where.values(), default=0
        )
        slow = [
            rack
            for rack, gbps in cluster.rack_uplink_gbps.items()
            if gbps < job.profile.network_gbps
        ]
        across = sum(where.values()) - sum(racks[rack] for rack in slow)
        assert most["cluster"] == max(across, most["rack"], most["node"])


def test_dominated_options_are_dropped() -> None:
    cluster = Cluster(
        nodes=(
            Node(name="n0", gpus=4, cpus=64, rack="r"),
            Node(name="n1", gpus=4, cpus=64, rack="r"),
        )
    )
    job = Job(
        id="j",
        gpus=4,
        duration_s=60.0,
        profile=Profile(
            cpus_per_gpu={1: 0.5, 2: 1.0, 4: 1.0},
            locality=Locality(node=1.0, rack=1.0, cluster=0.5),
        ),
    )
    assert [
        (option.mode.cpus_per_gpu, option.spread, option.rate)
        for option in Catalogue.of(cluster).options(job)
    ] == [(1, "cluster", 0.25), (1, "rack", 0.5), (2, "cluster", 0.5), (2, "rack", 1.0)]


ONE_NODE = one_node("n0", gpus=4, gpu_type="a100")


def at_clocks(**fields: object) -> list[int | None]:
    """The clocks at which a job of one GPU is offered to run on an A100."""
    job = Job(id="j", duration_s=60.0, profile=Profile(**fields))  # type: ignore[arg-type]
    return [option.mode.clock_mhz for option in Catalogue.of(ONE_NODE).options(job)]


def test_a_slower_clock_is_kept_only_where_it_draws_less_power() -> None:
    slow, slower = Clock(rate=0.9, power=0.7), Clock(rate=0.8, power=0.8)
    watts = {"a100": 300.0}
    assert at_clocks(power_w=watts, clocks={900: slow}) == [None, 900]
    assert at_clocks(power_w={"v100": 300.0}, clocks={900: slow}) == [None], (
        "no power is known on an A100"
    )
    assert at_clocks(power_w=watts, clocks={900: slow, 800: slower}) == [None, 900]
    assert at_clocks(power_w=watts, clocks={800: Clock(rate=1.0, power=0.5)}) == [800], (
        "as fast with less power"
    )
    assert at_clocks(clocks={900: slow, 1400: Clock(rate=1.2, power=1.6)}) == [1400], (
        "only the fastest"
    )
    assert at_clocks(power_w=watts, clocks={1400: Clock(rate=1.2, power=1.6)}) == [None, 1400]
    assert at_clocks(power_w=watts, clocks={700: Clock(rate=0.0, power=0.1)}) == [None], (
        "it makes no progress"
    )
    equal = Clock(rate=1.0, power=1.0)
    assert at_clocks(power_w=watts, clocks={900: equal, 800: equal}) == [None], (
        "of equals the default clock"
    )
    assert at_clocks(clocks={900: slow, 800: slow}) == [None]


def test_clocks_cores_and_spreads_dominate_together() -> None:
    cluster = one_node("n0", gpus=4, gpu_type="a", cpus=64)
    job = Job(
        id="j",
        gpus=2,
        duration_s=60.0,
        profile=Profile(
            cpus_per_gpu={1: 0.5, 2: 1.0},
            power_w={"a": 100.0},
            clocks={900: Clock(rate=0.5, power=0.6)},
        ),
    )
    assert [
        (option.mode.cpus_per_gpu, option.mode.clock_mhz, option.rate)
        for option in Catalogue.of(cluster).options(job)
    ] == [(1, None, 0.5), (1, 900, 0.25), (2, None, 1.0), (2, 900, 0.5)]


def test_under_a_power_cap_modes_hold_what_their_gpus_draw() -> None:
    def of(job: Job, **cap: float) -> list[tuple[int | None, dict[str, float]]]:
        found = Catalogue.of(replace(ONE_NODE, resources=cap)).options(job)
        return [(option.mode.clock_mhz, option.mode.resources) for option in found]

    job = Job(
        id="j",
        gpus=2,
        duration_s=60.0,
        profile=Profile(power_w={"a100": 300.0}, clocks={900: Clock(rate=0.9, power=0.7)}),
    )
    assert of(job) == [(None, {}), (900, {})]
    assert of(job, power_w=900.0) == [(None, {"power_w": 600.0}), (900, {"power_w": 420.0})]
    own = replace(job, resources={"power_w": 10.0})
    assert of(own, power_w=900.0) == [(None, {"power_w": 610.0}), (900, {"power_w": 430.0})]
    listed = Job(
        id="l",
        modes=(Mode(duration_s=1.0, gpus=2, resources={"power_w": 77.0}),),
        profile=job.profile,
    )
    assert of(listed, power_w=900.0) == [(None, {"power_w": 77.0})]


def test_a_gang_with_traffic_spans_only_racks_with_fast_uplinks() -> None:
    nodes = tuple(Node(name=f"n{i}", gpus=4, rack=f"r{i // 2}") for i in range(6))

    def most(gpus: int, **limits: float) -> list[Option]:
        cluster = Cluster(nodes=nodes, rack_uplink_gbps=limits)
        job = Job(id="j", gpus=gpus, duration_s=60.0, profile=Profile(network_gbps=10.0))
        found = list(Catalogue.of(cluster).options(job))
        instance = Instance(cluster=cluster, jobs=(job,))
        assert (on_uplinks(instance) == "j") == bool(limits and found and gpus > 1)
        return found

    assert most(24) and not most(25)
    assert most(16, r0=9.0) and not most(17, r0=9.0), "eight GPUs are behind the slow uplink"
    assert most(8, r0=9.0, r1=9.0, r2=9.0) and not most(9, r0=9.0, r1=9.0, r2=9.0)
    assert most(24, r0=10.0) and most(1, r0=9.0)


def test_who_may_use_uplinks() -> None:
    nodes = tuple(Node(name=f"n{i}", gpus=4, rack=f"r{i}") for i in range(2))
    cluster = Cluster(nodes=nodes, rack_uplink_gbps={"r0": 50.0})
    packed = Job(
        id="packed",
        gpus=4,
        duration_s=9.0,
        profile=Profile(network_gbps=1.0, locality=Locality(cluster=0.0)),
    )
    silent = Job(id="silent", gpus=8, duration_s=9.0)
    loud = Job(id="loud", gpus=8, duration_s=9.0, profile=Profile(network_gbps=1.0))
    assert on_uplinks(Instance(cluster=cluster, jobs=(packed, silent))) is None
    assert on_uplinks(Instance(cluster=cluster, jobs=(packed, silent, loud))) == "loud"
    assert on_uplinks(Instance(cluster=Cluster(nodes=nodes), jobs=(loud,))) is None
    listed = Job(id="listed", modes=(Mode(duration_s=9.0),), profile=Profile(network_gbps=1.0))
    entry = Running(
        job="listed",
        mode=listed.modes[0],
        remaining_s=1.0,
        placement=(Slot(node="n0", gpus=1), Slot(node="n1", gpus=1)),
    )
    assert on_uplinks(Instance(cluster=cluster, jobs=(listed,), running=(entry,))) == "listed"


def test_an_elastic_job_is_offered_measured_sizes_powers_of_two_and_ends() -> None:
    cluster = Cluster(nodes=equal_nodes(2, gpus=3))
    job = Job(
        id="j",
        gpus=Elastic(min=1, max=16),
        duration_s=160.0,
        profile=Profile(gpus={1: 0.1, 6: 0.5, 16: 1.0}),
    )
    assert gang_sizes(job) == (1, 2, 4, 6, 8, 16)
    assert [option.mode.gpus for option in Catalogue.of(cluster).options(job)] == [1, 2, 4, 6]


def test_options_carry_what_the_job_uses_of_the_cluster() -> None:
    cluster = Cluster(nodes=(Node(name="n0", gpus=1),), resources={"r": 3.0}, budgets={"b": 9.0})
    job = Job(
        id="j",
        resources={"r": 1.0},
        budgets={"b": 2.0},
        modes=(
            Mode(duration_s=1.0, gpus=1, resources={"r": 1.5}),
            Mode(duration_s=2.0, budgets={"b": 3.0}),
        ),
    )
    first, second = Catalogue.of(cluster).options(job)
    assert (
        first.mode.resources == {"r": 2.5} and first.mode.budgets == {"b": 2.0} and first.needs_node
    )
    assert (
        second.mode.resources == {"r": 1.0}
        and second.mode.budgets == {"b": 5.0}
        and not second.needs_node
    )


def test_jobs_alike_share_one_answer() -> None:
    cluster = one_node("n0", gpus=2)
    profile = Profile(gpu_memory_gib=1.0)
    one, two = (
        Job(id=name, duration_s=5.0, submit_s=float(n), profile=profile)
        for n, name in enumerate("ab")
    )
    catalogue = Catalogue.of(cluster)
    assert catalogue.options(one) is Catalogue.of(replace(cluster)).options(two)
    other = Job(id="c", gpus=2, duration_s=5.0, profile=profile)
    assert catalogue.options(other) != catalogue.options(one)


def test_the_smallest_of_numbers_as_memory() -> None:
    tiny = Profile(memory_gib_per_gpu=5e-324)
    cluster = one_node(gpus=4, memory_gib=1e12)
    assert [
        option.mode.gpus
        for option in Catalogue.of(cluster).options(
            Job(id="j", gpus=2, duration_s=1.0, profile=tiny)
        )
    ] == [2]
