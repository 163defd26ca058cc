"""Model caches in a simulation: who fetches, and that the verifier's own replay agrees."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Mode, Node, Outage, Profile, Running, Slot
from optsched.errors import InputError
from optsched.files import check_instance, dump_instance, load_instance
from optsched.physics.model_caches import ModelCaches
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation, simulate
from optsched.simulate.virtual import VirtualWorld
from tests.plan_cases import CASES
from tests.policies.verified import plan_of, times
from tests.verified import checked

NODE = (Node(name="n", gpus=2, model_cache_gib=10.0),)


def model(name: str | None, gib: float = 6.0) -> Profile:
    return Profile(name=name, model_gib=gib, fetch_s=5.0, startup_s=1.0)


def jobs(*rows: tuple[str, Profile, float]) -> tuple[Job, ...]:
    return tuple(
        Job(id=name, duration_s=10.0, profile=profile, submit_s=submit_s)
        for name, profile, submit_s in rows
    )


def test_only_the_first_of_a_model_fetches_it() -> None:
    found = plan_of(
        "fifo", *jobs(("a", model("m"), 0), ("b", model("m"), 0), ("c", model("m"), 1)), nodes=NODE
    )
    # a and b start together, so neither finds what the other fetches; c starts when both are done.
    assert [times(found[name]) for name in "abc"] == [[(0, 16)], [(0, 16)], [(16, 27)]]


def test_what_was_used_longest_ago_leaves() -> None:
    rows = jobs(
        ("a", model("a"), 0),
        ("c", model("c", 4.0), 20),
        ("a2", model("a"), 40),
        ("b", model("b"), 60),
        ("c2", model("c", 4.0), 80),
        ("big", model("big", 11.0), 100),
        ("b2", model("b"), 120),
    )
    found = plan_of("fifo", *rows, nodes=NODE)
    # b takes the room of c, used longest ago, and of a; what never fits evicts nothing.
    lengths = {
        name: round(one.completion_s - one.segments[0].start_s) for name, one in found.items()
    }
    assert lengths == {"a": 16, "c": 16, "a2": 11, "b": 16, "c2": 16, "big": 16, "b2": 11}


def test_a_lost_node_has_lost_its_cache() -> None:
    rows = jobs(("a", model("a"), 0), ("b", model("a"), 30))
    instance = Instance(
        cluster=Cluster(nodes=NODE),
        jobs=rows,
        outages=(Outage(node="n", start_s=20.0, end_s=25.0),),
    )
    simulation = Simulation(instance, policy("fifo"))
    simulation.run()
    plan = simulation.record().plan()
    checked(instance, plan)
    assert [entry.completion_s for entry in plan.jobs] == [16.0, 46.0]
    assert [
        entry.completion_s for entry in simulate(instance.undisturbed, policy("fifo")).jobs
    ] == [16.0, 41.0]


def test_jobs_that_run_have_their_models_there() -> None:
    one = Mode(gpus=1)
    running = (
        Running(
            job="a", mode=one, placement=(Slot(node="n", gpus=1),), started_s=-9.0, remaining_s=4.0
        ),
    )
    found = plan_of(
        "fifo", *jobs(("a", model("m"), 0), ("b", model("m"), 1)), nodes=NODE, running=running
    )
    assert times(found["b"]) == [(1, 12)]


def test_what_a_policy_may_know() -> None:
    instance, _ = CASES["cached"]()
    world = VirtualWorld(instance)
    world.advance()
    at = {name: (Slot(node=name, gpus=1),) for name in ("n0", "n1", "n2")}
    assert [world.fetch_s("b3", at[name]) for name in at] == [5.0, 0.0, 5.0]
    assert world.evicted_by("a1", "n1") == ["b"] and world.evicted_by("c1", "n1") == []


def test_a_model_has_one_size() -> None:
    rows = jobs(("a", model("m"), 0), ("b", model("m", 4.0), 0))
    with pytest.raises(InputError, match="elsewhere 6"):
        check_instance(Instance(cluster=Cluster(nodes=NODE), jobs=rows))
    sound = Instance(cluster=Cluster(nodes=NODE), jobs=rows[:1])
    assert load_instance(dump_instance(sound)) == sound


@given(data=st.data())
@settings(max_examples=60)
def test_starts_at_one_instant_and_any_order_of_calls(data: st.DataObject) -> None:
    """Whatever starts when, in whatever order the policy says so: against a replay in the order of
    jobs."""
    gib = {"a": 6.0, "b": 5.0, "c": 4.0, "d": 3.0}
    count = data.draw(st.integers(1, 12))
    rows = [
        (data.draw(st.sampled_from("abcd")), data.draw(st.integers(0, 4))) for _ in range(count)
    ]
    instance = Instance(
        cluster=Cluster(nodes=NODE),
        jobs=jobs(*((f"j{i}", model(name, gib[name]), 0.0) for i, (name, _) in enumerate(rows))),
    )
    caches, place = ModelCaches(instance), (Slot(node="n", gpus=1),)
    order = data.draw(st.permutations(range(count)))
    found = {}
    for i in sorted(order, key=lambda i: rows[i][1]):
        found[i] = caches.fetch_s(instance.jobs[i], place, float(rows[i][1]))
        caches.start(i, instance.jobs[i], place, float(rows[i][1]))
    held: list[str] = []
    for at in range(5):
        now = [i for i in range(count) if rows[i][1] == at]
        assert all(found[i] == (0.0 if rows[i][0] in held else 5.0) for i in now)
        for i in now:
            held = [*(one for one in held if one != rows[i][0]), rows[i][0]]
            while sum(gib[one] for one in held) > 10.0:
                held.pop(0)
