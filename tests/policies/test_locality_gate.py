"""The locality gate: against every placement there is, and when it opens."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched import Cluster, Elastic, Instance, Job, Locality, Node, Profile
from optsched.driver.world import World
from optsched.physics import Span, span
from optsched.physics.catalogue import Catalogue
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.parts.locality_gate import LEVELS, LocalityGate, Patience
from tests.policies.verified import plan_of, times
from tests.simulate.random_instances import instances

SLOW = settings(max_examples=100)
NODES = tuple(Node(name=f"n{i}", gpus=2, rack=f"r{i // 2}") for i in range(4))
PATIENCE = Patience(rack_s=30.0, cluster_s=90.0)


def world(gpus: int, *held: int, **profile: object) -> World:
    """A job that waits, beside held GPUs: so many on each node."""
    others = tuple(Job(id=f"o{i}", gpus=1, duration_s=9.0) for i in range(sum(held)))
    job = Job(id="j", gpus=gpus, duration_s=9.0, profile=Profile(**profile))  # type: ignore[arg-type]
    made = VirtualWorld(Instance(cluster=Cluster(nodes=NODES), jobs=(job, *others)))
    made.advance()
    names = iter(f"o{i}" for i in range(sum(held)))
    for node, count in zip(NODES, held, strict=False):
        for _ in range(count):
            name = next(names)
            option = made.fastest(name)
            place = next(
                iter(made.free.layout.alone(i, 1, 0) for i, one in enumerate(NODES) if one is node)
            )
            made.start(name, option, place)
    return made


@pytest.mark.parametrize(
    ("wait_s", "level"),
    [
        (0.0, "node"),
        (29.9, "node"),
        (30.0, "rack"),
        (89.9, "rack"),
        (90.0, "cluster"),
        (1e9, "cluster"),
    ],
)
def test_how_far_patience_goes(wait_s: float, level: Span) -> None:
    assert PATIENCE.widest(wait_s) == level


@pytest.mark.parametrize(
    ("gpus", "held", "wait_s", "level", "opens_s"),
    [
        (2, (1, 1, 1, 1), 0.0, None, 30.0),  # one GPU a node: a rack holds it, once it may
        (2, (1, 1, 1, 1), 40.0, "rack", 50.0),
        (2, (1, 1, 1, 0), 0.0, "node", 30.0),
        (2, (2, 1, 2, 1), 40.0, None, 50.0),  # one GPU a rack
        (2, (2, 1, 2, 1), 90.0, "cluster", math.inf),
        (3, (0, 0, 0, 0), 0.0, "rack", 90.0),  # no node ever holds it
        (5, (0, 0, 0, 0), 0.0, "cluster", math.inf),  # no rack ever does
    ],
)
def test_what_is_allowed_and_when_more_is(
    gpus: int, held: tuple[int, ...], wait_s: float, level: str | None, opens_s: float
) -> None:
    made, gate = world(gpus, *held), LocalityGate()
    found = gate.find(made, "j", PATIENCE, wait_s)
    assert (None if found is None else span(made.cluster, found[1])) == level
    assert gate.opens_s(made, "j", PATIENCE, wait_s) == opens_s


def test_the_fastest_place_is_taken_whatever_it_is_called() -> None:
    """On one node at 1, in a rack at 0.9: it takes the node though a rack is allowed."""
    made = world(2, 1, 1, 0, 0, locality=Locality(node=1.0, rack=0.9, cluster=0.5))
    found = LocalityGate().find(made, "j", PATIENCE, 1e6)
    assert found is not None and [slot.node for slot in found[1]] == ["n2"] and found[0].rate == 1.0


@given(instances(), st.sampled_from([0.0, 40.0, 1e6]))
@SLOW
def test_whatever_it_finds_is_allowed_and_can_be_started(instance: Instance, wait_s: float) -> None:
    made, gate = VirtualWorld(instance), LocalityGate()
    made.advance()
    assume(made.waiting)
    for job_id in list(made.waiting):
        found, free = gate.find(made, job_id, PATIENCE, wait_s), made.fit(job_id)
        if found is None:
            assert free is None or wait_s < 90.0, "with all patience gone it finds what there is"
            continue
        assert free is not None
        option, placement = found
        assert made.free.holds(made.need(job_id, option), placement)
        widest = PATIENCE.widest(wait_s)
        if LEVELS.index(span(made.cluster, placement)) > LEVELS.index(
            widest
        ):  # then it fits nothing narrower
            assert (
                Catalogue.of(made.cluster).most_gpus(made.job(job_id), option.mode)[widest]
                < option.mode.gpus
            )
        made.start(job_id, option, placement)


def test_elastic_jobs_that_fit_alike_go_at_their_own_rates() -> None:
    """On 2 GPUs of the 4 and 5 that they could use: 100 x 4 / 2 s and 100 x 5 / 2 s."""
    jobs = [
        Job(id=f"of-{most}", gpus=Elastic(min=2, max=most), duration_s=100.0) for most in (5, 4)
    ]
    plan = plan_of("vclos", *jobs, nodes=(Node(name="n", gpu_type="a", gpus=2),))
    assert times(plan["of-4"]) == [(0, 200)] and times(plan["of-5"]) == [(200, 450)]
