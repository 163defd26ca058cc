"""Gavel's policies in rounds: pairs of jobs on the same GPUs by hand, and what each policy does
with its options."""

from typing import Any

import pytest
from hypothesis import given, settings

from optsched import Cluster, Instance, Job, JobPlan, Node
from optsched.model.plan import Plan
from optsched.model.profile import Profile, Sharing
from optsched.objectives import parse
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation, simulate
from optsched.simulate.virtual import VirtualWorld
from tests.policies.verified import plan_of, times
from tests.simulate.random_instances import instances
from tests.verified import checked

ONE = (Node(name="n", gpu_type="v100", gpus=1),)
TWO = (Node(name="n", gpu_type="v100", gpus=2),)
PAIRS = {"sharing": "pairs"}
WCT = parse("wct")


def job(name: str, work_s: float, beside: dict[str, float] | None = None, **more: Any) -> Job:
    sharing = None if beside is None else Sharing(partners=beside)
    return Job(id=name, duration_s=work_s, profile=Profile(name=name, sharing=sharing), **more)


def partners(entry: JobPlan) -> list[str | None]:
    return [segment.mode.share_with for segment in entry.segments]


@pytest.mark.parametrize(
    "name", ["gavel-max-min", "gavel-finish-time-fairness", "gavel-makespan", "gavel-throughput"]
)
def test_two_that_do_not_disturb_each_other_run_together(name: str) -> None:
    made = [job(name, 720.0, {"a": 0.9, "b": 0.9}) for name in "ab"]
    found = plan_of(name, *made, nodes=ONE, options=PAIRS)
    assert (
        times(found["a"])[0] == times(found["b"])[0] == (0, 800)
    )  # then one may be alone for a rounding error
    assert (partners(found["a"])[0], partners(found["b"])[0]) == ("b", "a")
    assert times(found["a"])[-1][1] == times(found["b"])[-1][1] == 800


@pytest.mark.parametrize(
    "name", ["gavel-max-min", "gavel-finish-time-fairness", "gavel-makespan", "gavel-throughput"]
)
def test_two_that_lose_more_than_half_take_turns(name: str) -> None:
    made = [job(name, 1080.0, {"a": 0.4, "b": 0.4}) for name in "ab"]
    found = plan_of(name, *made, nodes=ONE, options=PAIRS)
    assert {*partners(found["a"]), *partners(found["b"])} == {None}
    assert max(times(found["a"])[-1][1], times(found["b"])[-1][1]) == pytest.approx(2160, abs=1)


def test_a_pair_and_a_third_job_share_the_time_as_the_program_says() -> None:
    """With y of the time for the pair, a and b get 0.8 y and c 1 - y: equal at y = 5/9."""
    long_s = 200 * 360.0
    made = [job("a", long_s, {"b": 0.8}), job("b", long_s, {"a": 0.8}), job("c", long_s)]
    found = plan_of("gavel-max-min", *made, nodes=ONE, options=PAIRS)
    until_s = 90 * 360.0
    received = {
        name: sum(min(end, until_s) - min(start, until_s) for start, end in times(found[name]))
        for name in "abc"
    }
    assert received["a"] == pytest.approx(received["b"], abs=1)
    assert received["a"] / until_s == pytest.approx(5 / 9, abs=0.02)
    assert received["c"] / until_s == pytest.approx(4 / 9, abs=0.02)


def test_who_stays_behind_is_alone_and_as_fast() -> None:
    """b is done at 360 / 0.8 = 450 s; a has then done 360 of 3,600 s and goes on without a
    pause."""
    made = job("a", 3600.0, {"b": 0.8}), job("b", 360.0, {"a": 0.8})
    found = plan_of("gavel-max-min", *made, nodes=ONE, options=PAIRS)
    assert times(found["b"]) == [(0, 450)]
    assert times(found["a"])[-1][1] == pytest.approx(450 + 3240, abs=0.01)


def test_a_job_joins_one_that_goes_on() -> None:
    """b comes at 100 s; shares are computed anew at 360 s, when a has done 360 of its 2,160 s:
    1,800 / 0.9 = 2,000."""
    made = (
        job("a", 2160.0, {"b": 0.9}, preemptible=False),
        job("b", 2160.0, {"a": 0.9}, submit_s=100.0),
    )
    found = plan_of("gavel-max-min", *made, nodes=ONE, options={**PAIRS, "reset": "360"})
    assert times(found["b"])[0][0] == 360
    assert [round(end, 3) for _, end in times(found["a"])][-1] == 2360
    assert times(found["b"])[-1][1] == pytest.approx(360 + 2000 + 360, abs=0.01)


def test_gangs_share_only_with_gangs_of_their_size() -> None:
    """The pair of one GPU each leaves half of the node idle that the gang cannot use."""
    rates = {"a": 0.9, "b": 0.9, "c": 0.9}
    made = [job("a", 3600.0, rates), job("b", 3600.0, rates), job("c", 3600.0, rates, gpus=2)]
    found = plan_of("gavel-max-min", *made, nodes=TWO, options=PAIRS)
    assert {*partners(found["c"])} == {None}
    assert "c" not in {*partners(found["a"]), *partners(found["b"])}


def test_memory_that_does_not_hold_both_keeps_them_apart() -> None:
    nodes = (Node(name="n", gpu_type="v100", gpus=1, gpu_memory_gib=16.0),)
    made = [
        Job(
            id=name,
            duration_s=720.0,
            profile=Profile(
                name=name, gpu_memory_gib=9.0, sharing=Sharing(partners={"a": 0.9, "b": 0.9})
            ),
        )
        for name in "ab"
    ]
    found = plan_of("gavel-max-min", *made, nodes=nodes, options=PAIRS)
    assert {*partners(found["a"]), *partners(found["b"])} == {None}


def simulated(instance: Instance, name: str, options: dict[str, str]) -> Plan:
    return simulate(instance, policy(name, options=options))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(
            (name, PAIRS)
            for name in (
                "gavel-max-min",
                "gavel-finish-time-fairness",
                "gavel-makespan",
                "gavel-slo",
            )
        ),
        ("gavel-max-min", {"heterogeneity": "agnostic"}),
        ("gavel-hierarchical", {"inside": "fifo"}),
    ],
)
@given(instance=instances())
@settings(max_examples=6)
def test_plans_with_options_are_sound_and_reproducible(
    name: str, options: dict[str, str], instance: Instance
) -> None:
    options = {**options, "round": "11", "reset": "11"}
    plan = simulated(instance, name, options)
    checked(instance, plan)
    assert simulated(instance, name, options) == plan


@pytest.mark.parametrize("name", ["gavel-max-min", "gavel-finish-time-fairness", "gavel-slo"])
def test_a_simulation_with_pairs_taken_up_again_ends_the_same(name: str) -> None:
    rates = {f"p{i}": 0.5 + 0.1 * i for i in range(4)}
    jobs = tuple(
        Job(
            id=f"j{i}",
            submit_s=600.0 * i,
            duration_s=1000.0 + 900 * (i % 5),
            gpus=1 + i % 2,
            deadline_s=40000.0,
            profile=Profile(name=f"p{i % 4}", sharing=Sharing(partners=rates)),
        )
        for i in range(20)
    )
    instance = Instance(cluster=Cluster(nodes=TWO), jobs=jobs)
    whole = simulated(instance, name, PAIRS)
    assert any(segment.mode.share_with for entry in whole.jobs for segment in entry.segments)
    half = Simulation(instance, policy(name, options=PAIRS))
    half.run(until=lambda: half.done >= 8)
    again = Simulation.restored(half.save())
    again.run()
    assert again.record().plan() == whole


# -------------------------------------------------------------------------------------------------
# each policy


def first(name: str, instance: Instance, **options: str) -> Any:
    """A policy after its first decision, and its shares by job and GPU type."""
    world = VirtualWorld(instance)
    world.advance()
    chosen: Any = policy(name, options=options)
    chosen.decide(world)
    return chosen, {
        job_id: chosen._active.ledger.share[:-1, i].round(4).tolist()
        for job_id, i in chosen._active.row.items()
    }


def two_types(*jobs: Job) -> Instance:
    nodes = (
        Node(name="v", gpu_type="v100", gpus=1, gpu_price_per_h=3.0),
        Node(name="k", gpu_type="k80", gpus=1, gpu_price_per_h=1.0),
    )
    return Instance(cluster=Cluster(nodes=nodes), jobs=jobs)


def on_both(name: str, work_s: float, k80: float, **more: Any) -> Job:
    return Job(id=name, duration_s=work_s, profile=Profile(rate={"v100": 1.0, "k80": k80}), **more)


def test_the_price_decides_where_throughput_is_worth_more() -> None:
    made = two_types(on_both("a", 3600.0, 0.5))
    assert first("gavel-throughput", made)[1] == {"a": [0, 1]}  # 0.5 / 1 is more than 1 / 3
    assert first("gavel-throughput", made, costs="none")[1] == {"a": [1, 0]}


def test_a_deadline_buys_as_much_of_the_dear_type_as_it_takes() -> None:
    """3,600 s of work in 4,800 s is a rate of 0.75: x + 0.5 (1 - x) = 0.75 at x = 1/2."""
    made = two_types(on_both("a", 3600.0, 0.5, deadline_s=4800.0))
    chosen, found = first("gavel-slo", made)
    assert found == {"a": [0.5, 0.5]}
    assert chosen.facts() == {"deadlines_dropped": 0}


def test_deadlines_that_cannot_all_be_met_do_not_count() -> None:
    """Each would need 0.8 of the only v100."""
    made = two_types(*(on_both(name, 3600.0, 0.5, deadline_s=4000.0) for name in "ab"))
    chosen, found = first("gavel-slo", made)
    assert found == first("gavel-throughput", made)[1]
    assert chosen.facts() == {"deadlines_dropped": 1}


def test_a_deadline_that_no_gpu_meets_leaves_the_others_theirs() -> None:
    made = two_types(
        on_both("late", 3600.0, 0.5, deadline_s=3000.0),
        on_both("due", 3600.0, 0.5, deadline_s=4800.0),
    )
    chosen, found = first("gavel-slo", made)
    assert found == {"late": [0.5, 0.5], "due": [0.5, 0.5]}
    assert chosen.facts() == {"deadlines_dropped": 0}


@pytest.mark.parametrize(("idle", "node"), [("filled", "v"), ("left", "k")])
def test_a_dear_gpu_may_be_left_idle(idle: str, node: str) -> None:
    """Its share is all of the k80, but in a round the v100 comes first and nobody else wants it."""
    made = two_types(on_both("a", 3600.0, 0.5))
    plan = simulate(made, policy("gavel-throughput", options={"idle": idle}))
    assert {slot.node for slot in plan.jobs[0].segments[0].placement} == {node}


def test_the_shortest_gets_the_fastest() -> None:
    """b has 300 s left on the v100; of what remains a has 4,000 s on the k80, c 3,000 s."""
    made = two_types(
        on_both("a", 1000.0, 0.25), on_both("b", 300.0, 0.9), on_both("c", 1500.0, 0.5)
    )
    assert first("gavel-sjf", made)[1] == {"a": [0, 0], "b": [1, 0], "c": [0, 1]}


def test_who_cannot_tell_the_types_apart_gives_equal_shares() -> None:
    """Two jobs like a and two like b. Aware, those like a share p each of the v100 only, those like
    b have the k80 and the rest: p / 0.6 = (0.95 - p) / 0.95 at p = 0.57 / 1.55. Agnostic, all have
    half of a GPU's time."""
    made = two_types(*(on_both(name, 3600.0, 0.2 if name < "c" else 0.9) for name in "abcd"))
    aware, agnostic = (
        first("gavel-max-min", made, heterogeneity=how)[1] for how in ("aware", "agnostic")
    )
    assert aware["a"] == aware["b"] == pytest.approx([0.57 / 1.55, 0.0], abs=1e-3)
    assert aware["c"] == aware["d"] == pytest.approx([0.5 - 0.57 / 1.55, 0.5], abs=1e-3)
    assert [sum(share) for share in agnostic.values()] == pytest.approx([0.5] * 4, abs=1e-3)


def test_past_time_alone_is_counted_at_the_part_of_that_time() -> None:
    """a alone for an hour: its part was all of the GPU; then half of it beside b."""
    made = job("a", 20000.0), job("b", 20000.0, submit_s=3500.0)
    chosen: Any = policy("gavel-finish-time-fairness")
    simulation = Simulation(Instance(cluster=Cluster(nodes=ONE), jobs=made), chosen)
    simulation.run(until=lambda: simulation.world.now_s >= 3600)
    past_s, left_s, rate = chosen._before["a"]
    assert (past_s, left_s, rate) == (pytest.approx(3600), pytest.approx(16400), 0.5)
