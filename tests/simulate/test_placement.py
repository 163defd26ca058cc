"""Best-fit gang placement against enumeration, and by hand."""

from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Locality, Node, Profile, Slot
from optsched.instance import Placement
from optsched.physics import Span
from optsched.simulate.demand import Demands
from optsched.simulate.placement import Layout, Need, Room


def room_and_need(nodes: tuple[Node, ...], job: Job, spread: Span) -> tuple[Room, Need]:
    cluster = Cluster(nodes=nodes)
    instance = Instance(cluster=cluster, jobs=(job,))
    layout = Layout(cluster)
    demands = Demands(instance, layout)
    options, _ = demands.of(job)
    return Room(layout, cluster, ()), demands.need(job, options[0].mode, spread, options)


def nodes_of(*gpus: int, **fields: Any) -> tuple[Node, ...]:
    return tuple(Node(name=f"n{i}", gpu_type="a", gpus=count, **fields) for i, count in enumerate(gpus))


def placed(nodes: tuple[Node, ...], job: Job, spread: Span = "cluster") -> list[tuple[str, int]] | None:
    room, need = room_and_need(nodes, job, spread)
    found = room.place(need)
    return None if found is None else [(slot.node, slot.gpus or slot.cpus) for slot in found]


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
    job = Job(id="j", gpus=6, duration_s=1, profile=Profile(locality=Locality(rack=0.9, cluster=0.5)))
    assert placed(nodes, job, "rack") == [("n0", 4), ("n2", 2)]
    assert placed(nodes, Job(id="j", gpus=7, duration_s=1), "rack") == [("n1", 4), ("n3", 2), ("n4", 1)]
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
@settings(deadline=None)
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
                name=f"n{i}", gpu_type=kind if count else None, gpus=count, cpus=cpus, memory_gib=gib,
                rack=rack,
            )
            for i, (count, cpus, gib, kind, rack) in enumerate(drawn)
        ),
        Node(name="big", gpu_type="b", gpus=8),  # gives the job an option; it is placed on type a only
    )
    profile = Profile(cpus_per_gpu={cores: 1.0} if cores else {}, memory_gib_per_gpu=memory)
    job = Job(id="j", gpus=gpus, duration_s=1.0, profile=profile)
    cluster = Cluster(nodes=nodes)
    layout = Layout(cluster)
    demands = Demands(Instance(cluster=cluster, jobs=(job,)), layout)
    options, _ = demands.of(job)
    need = demands.need(job, replace(options[0].mode, gpu_type="a"), spread, options)
    room = Room(layout, cluster, ())
    found = room.place(need)
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
        room._pool_gpus[:],
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
