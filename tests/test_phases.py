"""Gangs whose steps meet on links: rotations against all others, shifts on trees, paces by hand."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import phases
from benchmarks.phases import (
    Phased,
    Sender,
    Step,
    best_place,
    connected,
    fair_shares,
    rotation,
    score_of,
    shared,
    slowdowns,
    step_of,
    time_shifts,
)
from optsched import Cluster, Instance, Job, Node, Profile
from optsched.driver.world import World
from optsched.model.instance import Placement
from optsched.physics.contention import Channel
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation
from optsched.study.design import runs
from tests.plan_cases import place

A, B, C = (frozenset[Channel]({("uplink", rack)}) for rack in "abc")
STEPS = st.integers(1, 6).flatmap(
    lambda ticks: st.builds(Step, st.just(ticks), st.integers(1, ticks))
)
NODES = tuple(Node(name=f"{rack}{i}", gpus=1, rack=rack) for rack in "abcd" for i in range(2))
CLUSTER = Cluster(nodes=NODES, rack_uplink_gbps=dict.fromkeys("abcd", 25.0), uplinks="shared")
VGG, BERT = (Profile(name=name, network_gbps=25.0, network_duty=0.4) for name in ("vgg16", "bert"))


@given(st.lists(STEPS, min_size=1, max_size=3), st.sampled_from([1.0, 1.5, 2.0]))
def test_a_rotation_is_the_best_of_all(steps: list[Step], capacity: float) -> None:
    best = max(
        score_of(steps, shifts, capacity)
        for shifts in product(*(range(step.ticks) for step in steps))
    )
    found = rotation(tuple(steps), capacity)
    assert found.score == pytest.approx(best)
    assert score_of(steps, found.shifts, capacity) == pytest.approx(best)


def test_scores_by_hand() -> None:
    """Two that send for half of their steps fit; beside one that sends for three quarters, or every
    other time, a quarter of the time is too much."""
    half = Step(8, 4)
    assert rotation((half, half), 1.0) == (1.0, (0, 4))
    assert rotation((half, Step(8, 6)), 1.0).score == 0.75
    assert rotation((half, Step(4, 2)), 1.0).score == 0.75
    assert rotation((half, Step(8, 6)), 2.0).score == 1.0


@given(st.lists(STEPS, min_size=2, max_size=5), st.data())
def test_shifts_keep_the_best_rotation_of_each_link_of_a_tree(
    steps: list[Step], data: st.DataObject
) -> None:
    links: dict[int, frozenset[Channel]] = {0: frozenset()}
    for i in range(1, len(steps)):
        other, link = data.draw(st.integers(0, i - 1)), ("uplink", str(i))
        links[other] |= {link}  # type: ignore[arg-type]
        links[i] = frozenset({link})  # type: ignore[arg-type]
    shifts, is_forest = time_shifts(links, dict(enumerate(steps)), 1.0)
    assert is_forest
    for group in shared(links):
        own = [steps[i] for i in group]
        score = score_of(own, [shifts[i] for i in group], 1.0)
        assert score == pytest.approx(rotation(tuple(own), 1.0).score)


def test_graphs_with_circles_are_told_apart() -> None:
    step = dict.fromkeys(range(3), Step(4, 2))
    assert time_shifts({0: A | B, 1: A | B}, step, 1.0)[1]  # links of the same gangs are one
    assert not time_shifts({0: A | B, 1: B | C, 2: C | A}, step, 1.0)[1]
    assert connected([(0, 1), (2, 3), (1, 2), (4, 5)]) == [{0, 1, 2, 3}, {4, 5}]


@pytest.mark.parametrize(
    ("senders", "times"),
    [
        ([Sender(Step(10, 5), A, 0)], [1.0]),
        ([Sender(Step(10, 5), A, 0), Sender(Step(10, 5), B, 0)], [1.0, 1.0]),
        ([Sender(Step(10, 5), A, 0), Sender(Step(10, 5), A, 5)], [1.0, 1.0]),
        ([Sender(Step(10, 5), A, 0), Sender(Step(10, 5), A, 0)], [1.5, 1.5]),
        ([Sender(Step(10, 10), A, 0), Sender(Step(10, 10), A, 3)], [2.0, 2.0]),
        ([Sender(Step(4, 4), A | B, 0), Sender(Step(4, 2), A, 0)], [1.5, 1.5]),
    ],
)
def test_paces_by_hand(senders: list[Sender], times: list[float]) -> None:
    assert slowdowns(tuple(senders), 1.0) == pytest.approx(times)


def test_shares_are_max_min_fair() -> None:
    assert fair_shares((A, A, A | B, B), 1.0) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3])
    assert fair_shares((A, A, B), 1.5) == pytest.approx([0.75, 0.75, 1.0])


def gang(nodes: str) -> Placement:
    """Return a placement with a GPU of each node."""
    return place(*(f"{name}:1g0c" for name in nodes.split()))


def test_a_gang_joins_those_with_whom_it_is_compatible() -> None:
    """Of two racks with half of their GPUs left, that with a gang of equal steps is chosen, though
    the other comes first."""
    assert step_of(VGG).ticks != step_of(BERT).ticks
    jobs = (
        Job(id="bert", gpus=2, duration_s=1e4, profile=BERT),
        Job(id="vgg", gpus=2, duration_s=1e4, profile=VGG),
        Job(id="silent", gpus=2, duration_s=1e4),
        Job(id="new", gpus=2, duration_s=1e4, profile=VGG),
    )
    instance = Instance(name="racks", cluster=CLUSTER, jobs=jobs)
    chosen = []

    class Placing:
        name = title = "places two gangs and asks for the third"

        def decide(self, world: World) -> None:
            if chosen:
                return
            for name, nodes in (("bert", "a0 b0"), ("vgg", "c0 d0")):
                world.start(name, world.options(name)[0], gang(nodes))
            first = world.options("new")[0], gang("a1 b1")
            chosen.append(best_place(world, links, "new", first)[1])
            assert best_place(world, links, "silent", first) == first

    simulation = Simulation(instance, Placing())
    links = Phased(instance, shifts=True)
    simulation.world._channels = links
    simulation.run(until=lambda: bool(chosen))
    assert [slot.node for slot in chosen[0]] == ["c1", "d1"]


def test_a_gang_that_shares_no_link_runs_as_without_contention() -> None:
    study = phases.read_study(phases.STUDY)
    run = next(run for run in runs(study) if run.method == "no contention")
    instance = phases.instance_of(run.make or "")
    alone = replace(instance, jobs=instance.jobs[:1])
    simulation = Simulation(alone, policy("fifo"))
    simulation.world._channels = Phased(alone, shifts=False)
    simulation.run()
    without = Simulation(alone, policy("fifo"))
    without.run()
    assert simulation.record().plan() == without.record().plan()
