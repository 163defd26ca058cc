"""Best-fit gang placement against enumeration, and by hand."""

from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from optsched import Clock, Cluster, Instance, Job, Locality, Mode, Node, Profile, Slot, Tenant
from optsched.driver.demand import Demand, Demands
from optsched.driver.layout import Layout, Need
from optsched.driver.placement import Room
from optsched.model.instance import Placement
from optsched.physics import Span, uplinks

from .free_rows import left_of


def room_and_need(nodes: tuple[Node, ...], job: Job, spread: Span) -> tuple[Room, Need]:
    cluster = Cluster(nodes=nodes)
    instance = Instance(cluster=cluster, jobs=(job,))
    layout = Layout(cluster, ())
    demands = Demands(instance, layout)
    options, _ = demands.of(job)
    return Room(layout), demands.need(job, options[0].mode, spread, options)


def nodes_of(*gpus: int, **fields: Any) -> tuple[Node, ...]:
    return tuple(
        Node(name=f"n{i}", gpu_type="a", gpus=count, **fields) for i, count in enumerate(gpus)
    )


def placed(
    nodes: tuple[Node, ...], job: Job, spread: Span = "cluster"
) -> list[tuple[str, int]] | None:
    room, need = room_and_need(nodes, job, spread)
    found = Demand.made(0, (need,)).fit(room)
    return None if found is None else [(slot.node, slot.gpus or slot.cpus) for slot in found[1]]


def test_one_node_with_the_fewest_gpus_left_over() -> None:
    assert placed(nodes_of(8, 4, 3, 3), Job(id="j", gpus=3, duration_s=1)) == [("n2", 3)]
    assert placed(nodes_of(8, 4, 3, 3), Job(id="j", gpus=5, duration_s=1)) == [("n0", 5)]


def test_fewest_nodes_and_best_fit_for_the_rest() -> None:
    assert placed(nodes_of(2, 8, 4, 8, 3), Job(id="j", gpus=19, duration_s=1)) == [
        ("n1", 8),
        ("n3", 8),
        ("n4", 3),
    ]


def test_rack_spread_stays_within_one_rack() -> None:
    nodes = (
        Node(name="n0", gpu_type="a", gpus=4, rack="r0"),
        Node(name="n1", gpu_type="a", gpus=4, rack="r1"),
        Node(name="n2", gpu_type="a", gpus=2, rack="r0"),
        Node(name="n3", gpu_type="a", gpus=2, rack="r1"),
        Node(name="n4", gpu_type="a", gpus=2, rack="r1"),
        Node(name="n5", gpu_type="a", gpus=4),
    )
    job = Job(
        id="j", gpus=6, duration_s=1, profile=Profile(locality=Locality(rack=0.9, cluster=0.5))
    )
    assert placed(nodes, job, "rack") == [("n0", 4), ("n2", 2)]
    assert placed(nodes, Job(id="j", gpus=7, duration_s=1), "rack") == [
        ("n1", 4),
        ("n3", 2),
        ("n4", 1),
    ]
    assert placed(nodes, Job(id="j", gpus=8, duration_s=1), "rack") == [
        ("n1", 4),
        ("n3", 2),
        ("n4", 2),
    ]
    assert placed(nodes, Job(id="j", gpus=9, duration_s=1), "rack") is None


def test_cpu_only_job_goes_where_no_gpu_is_free() -> None:
    nodes = (
        Node(name="gpu", gpu_type="a", gpus=8, cpus=64),
        Node(name="small", cpus=4),
        Node(name="cpu", cpus=16),
    )
    assert placed(nodes, Job(id="j", gpus=0, cpus=8, duration_s=1)) == [("cpu", 8)]
    assert placed(nodes, Job(id="j", gpus=0, cpus=32, duration_s=1)) == [("gpu", 32)]


NODES = st.lists(
    st.builds(
        lambda gpus, cpus, memory, kind, rack: (gpus, cpus, memory, kind, rack),
        st.integers(0, 4),
        st.sampled_from([None, 2, 6]),
        st.sampled_from([None, 5.0, 9.9]),
        st.sampled_from(["a", "b"]),
        st.sampled_from([None, "r0", "r1"]),
    ),
    min_size=1,
    max_size=4,
)


@given(
    NODES,
    st.integers(1, 8),
    st.sampled_from([0, 2, 3]),
    st.sampled_from([0.0, 2.5, 3.3]),
    st.sampled_from(["node", "rack", "cluster"]),
)
def test_finds_a_place_if_there_is_one_on_the_fewest_nodes(
    drawn: list[tuple[int, int | None, float | None, str, str | None]],
    gpus: int,
    cores: int,
    memory: float,
    spread: Span,
) -> None:
    nodes = (
        *(
            Node(
                name=f"n{i}",
                gpu_type=kind if count else None,
                gpus=count,
                cpus=cpus,
                memory_gib=gib,
                rack=rack,
            )
            for i, (count, cpus, gib, kind, rack) in enumerate(drawn)
        ),
        Node(
            name="big", gpu_type="b", gpus=8
        ),  # gives the job an option; it is placed on type a only
    )
    profile = Profile(cpus_per_gpu={cores: 1.0} if cores else {}, memory_gib_per_gpu=memory)
    job = Job(id="j", gpus=gpus, duration_s=1.0, profile=profile)
    cluster = Cluster(nodes=nodes)
    layout = Layout(cluster, ())
    demands = Demands(Instance(cluster=cluster, jobs=(job,)), layout)
    options, _ = demands.of(job)
    need = demands.need(job, replace(options[0].mode, gpu_type="a"), spread, options)
    room = Room(layout)
    found = room.place(need)
    fitting = Demand.made(0, (need,)).fit(Room(layout))
    assert fitting == (None if found is None else (0, found))
    fewest = min(
        (
            sum(1 for count in split if count)
            for split in product(*(range(_most(node, cores, memory) + 1) for node in nodes))
            if sum(split) == gpus and _allowed(nodes, split, spread)
        ),
        default=None,
    )
    assert (None if found is None else len(found)) == fewest
    if found is not None:
        assert room.holds(need, found)
        before = _state(room)
        room.take(need, found)
        assert _state(room) != before
        room.give(need, found, finished=False)
        assert _state(room) == before


def _state(room: Room) -> tuple[Any, ...]:
    return (
        room._gpus[:],
        room._cpus[:],
        [round(x, 6) for x in room._memory],
        [m[:] for m in room._nodes],
        room.pool_gpus[:],
    )


def _most(node: Node, cores: int, memory: float) -> int:
    if node.gpu_type != "a":
        return 0
    most = node.gpus
    while most and (
        (cores and node.cpus is not None and most * cores > node.cpus)
        or (node.memory_gib is not None and most * memory > node.memory_gib)
    ):
        most -= 1
    return most


def _allowed(nodes: tuple[Node, ...], split: tuple[int, ...], spread: Span) -> bool:
    used = [node for node, count in zip(nodes, split, strict=True) if count]
    if len(used) == 1 or spread == "cluster":
        return True
    return spread == "rack" and used[0].rack is not None and len({node.rack for node in used}) == 1


def racked(*racks: str | None, gpus: int = 4) -> tuple[Node, ...]:
    return tuple(
        Node(name=f"n{i}", gpu_type="a", gpus=gpus, rack=rack) for i, rack in enumerate(racks)
    )


def room_of(
    cluster: Cluster, *jobs: Job, tenants: tuple[Tenant, ...] = ()
) -> tuple[Room, list[Need]]:
    """An empty room, and what each job takes in its fastest option."""
    layout = Layout(cluster, tenants)
    demands = Demands(Instance(cluster=cluster, jobs=jobs, tenants=tenants), layout)
    return Room(layout), [demands.of(job)[1].needs[0] for job in jobs]


def talks(name: str, gpus: int, gbps: float) -> Job:
    return Job(id=name, gpus=gpus, duration_s=1.0, profile=Profile(network_gbps=gbps))


def nodes_in(placement: Placement | None) -> list[tuple[str, int]] | None:
    return None if placement is None else [(slot.node, slot.gpus) for slot in placement]


def test_a_gang_with_traffic_spans_racks_only_where_their_uplinks_have_room() -> None:
    cluster = Cluster(
        nodes=racked("r0", "r1", "r2", None), rack_uplink_gbps={"r0": 10.0, "r1": 5.0}
    )
    room, [wide, loud, silent, four] = room_of(
        cluster, talks("w", 6, 4.0), talks("l", 8, 6.5), talks("s", 6, 0.0), talks("f", 4, 4.0)
    )
    first = room.place(wide)
    assert nodes_in(first) == [("n0", 4), ("n1", 2)] and room.holds(wide, first)
    room.take(wide, first)
    assert room.domains.gbps == {"r0": 4.0, "r1": 4.0}
    assert nodes_in(room.place(loud)) == [("n2", 4), ("n3", 4)], (
        "neither r0 nor r1 has 6.5 Gbit/s left"
    )
    assert nodes_in(room.place(wide)) == [("n2", 4), ("n3", 2)]
    assert nodes_in(room.place(silent)) == [("n1", 2), ("n2", 4)]
    through_r1 = (Slot(node="n1", gpus=2), Slot(node="n2", gpus=4))
    assert room.holds(silent, through_r1) and not room.holds(wide, through_r1)
    room.take(silent, (Slot(node="n2", gpus=3), Slot(node="n3", gpus=3)))
    assert room.place(four) is None, "four GPUs are free, but two of them behind a full uplink"
    room.give(wide, first, finished=True)
    assert room.domains.gbps == {"r0": 0.0, "r1": 0.0}
    assert nodes_in(room.place(wide)) == [("n0", 4), ("n1", 2)]


def test_a_gang_with_traffic_stays_in_one_rack_where_it_can() -> None:
    nodes = racked("r0", "r0", "r1", "r1", gpus=2)
    big = (Node(name="big", gpu_type="a", gpus=3, rack="r2"), *nodes)
    cluster = Cluster(nodes=big, rack_uplink_gbps={"r2": 1.0, "r0": 1.0})
    room, [inside, silent] = room_of(cluster, talks("i", 4, 50.0), talks("s", 4, 0.0))
    assert nodes_in(room.place(inside)) == [("n0", 2), ("n1", 2)]
    assert nodes_in(room.place(silent)) == [("big", 3), ("n0", 1)], (
        "who has no traffic is spread as ever"
    )
    unlimited, [free] = room_of(Cluster(nodes=big), talks("i", 4, 50.0))
    assert nodes_in(unlimited.place(free)) == [("big", 3), ("n0", 1)] and free.ties is None


@given(
    st.lists(
        st.tuples(st.sampled_from([None, "r0", "r1", "r2"]), st.integers(0, 3)),
        min_size=1,
        max_size=5,
    ),
    st.dictionaries(st.sampled_from(["r0", "r1", "r2"]), st.sampled_from([1.0, 2.5, 3.0])),
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from([0.0, 1.0, 1.5, 2.5])), min_size=1, max_size=5
    ),
)
def test_finds_a_place_within_the_uplinks_if_there_is_one(
    drawn: list[tuple[str | None, int]], limits: dict[str, float], gangs: list[tuple[int, float]]
) -> None:
    nodes = tuple(
        Node(name=f"n{i}", gpu_type="a", gpus=gpus, rack=rack)
        for i, (rack, gpus) in enumerate(drawn)
    )
    cluster = Cluster(nodes=nodes, rack_uplink_gbps=limits)
    layout = Layout(cluster, ())
    jobs = tuple(talks(f"j{i}", gpus, gbps) for i, (gpus, gbps) in enumerate(gangs))
    demands = Demands(Instance(cluster=cluster, jobs=jobs), layout)
    room = Room(layout)
    free = [node.gpus for node in nodes]
    left = dict(limits)
    for job in jobs:
        need = demands.need(job, Mode(gpu_type="a", gpus=job.gpus), "cluster", ())
        found = room.place(need)
        splits = [
            tuple(
                Slot(node=node.name, gpus=count)
                for node, count in zip(nodes, split, strict=True)
                if count
            )
            for split in product(*(range(count + 1) for count in free))
            if sum(split) == job.gpus
        ]
        fits = [
            split
            for split in splits
            if all(gbps <= left[rack] for rack, gbps in uplinks(cluster, job, split).items())
        ]
        assert (found is None) == (not fits)
        assert all(room.holds(need, split) == (split in fits) for split in splits)
        if found is not None:
            assert found in fits
            before = room.copy()
            room.take(need, found)
            assert room.overlap(before).domains.gbps == room.domains.gbps
            for slot in found:
                free[int(slot.node[1:])] -= slot.gpus
            for rack, gbps in uplinks(cluster, job, found).items():
                left[rack] -= gbps


def test_tenants_borrow_what_others_leave_idle() -> None:
    tenants = (
        Tenant(name="a", gpu_quota=2, borrow_gpus=3),
        Tenant(name="b", gpu_quota=4),
        Tenant(name="c"),
    )
    jobs = tuple(
        Job(id=f"{tenant}{gpus}", gpus=gpus, duration_s=1.0, tenant=tenant)
        for tenant, gpus in (("a", 3), ("a", 2), ("a", 1), ("b", 4), ("b", 2), ("c", 6))
    )
    cluster = Cluster(nodes=nodes_of(16))
    room, [a3, a2, a1, b4, b2, c6] = room_of(cluster, *jobs, tenants=tenants)
    where: Placement = (Slot(node="n0", gpus=3),)
    room.take(a3, where)
    assert room.place(a2) and room.place(b2) and room.place(c6)
    assert room.place(b4) is None, "a has borrowed one of them"
    copy = room.copy()
    copy.take(a2, (Slot(node="n0", gpus=2),))
    assert copy.place(a1) is None, "no more than three beyond its quota"
    assert copy.place(b2) is None and copy.place(c6), "one GPU of all quotas is left"
    assert room.place(b2) and room.overlap(copy).place(b2) is None
    room.give(a3, where, finished=True)
    assert room.place(b4)
    room.take(b4, (Slot(node="n0", gpus=4),))
    assert room.place(a2) and room.place(a3) is None, "b uses its quota"


def test_without_borrowing_only_the_own_quota_counts() -> None:
    tenants = (Tenant(name="a", gpu_quota=2), Tenant(name="b", gpu_quota=1))
    jobs = (
        Job(id="x", gpus=2, duration_s=1.0, tenant="a"),
        Job(id="y", gpus=1, duration_s=1.0, tenant="b"),
    )
    room, [x, y] = room_of(Cluster(nodes=nodes_of(8)), *jobs, tenants=tenants)
    room.take(x, (Slot(node="n0", gpus=2),))
    assert room.place(x) is None and room.place(y)


def test_gpus_draw_on_the_power_cap_in_their_mode() -> None:
    profile = Profile(power_w={"a": 300.0}, clocks={900: Clock(rate=0.8, power=0.5)})
    cluster = Cluster(nodes=nodes_of(8), resources={"power_w": 1000.0})
    layout = Layout(cluster, ())
    job = Job(id="j", gpus=2, duration_s=1.0, profile=profile)
    options, demand = Demands(Instance(cluster=cluster, jobs=(job,)), layout).of(job)
    assert [option.mode.clock_mhz for option in options] == [None, 900], "the default clock first"
    room = Room(layout)
    taken = []
    while (found := demand.fit(room)) is not None:
        taken.append(options[found[0]].mode.clock_mhz)
        room.take(demand.needs[found[0]], found[1])
    assert taken == [None, 900] and left_of(room, "resource") == {"power_w": 100.0}


def test_overlap_is_what_both_have() -> None:
    room, need = room_and_need(nodes_of(4, 4), Job(id="j", gpus=3, duration_s=1), "cluster")
    other = room.copy()
    first: Placement = (Slot(node="n0", gpus=3),)
    room.take(need, first)
    other.take(need, (Slot(node="n1", gpus=3),))
    both = room.overlap(other)
    assert both.place(need) is None
    assert room.place(need) == (Slot(node="n1", gpus=3),)
    assert other.place(need) == first
