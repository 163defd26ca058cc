"""cpsat against brute force and polynomial oracles: values equal, bounds never above the
optimum."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched.bounds.yardstick import yardsticks
from optsched.engine.plan_class import outside_class
from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Instance, Running, Slot
from optsched.model.job import Job, Mode
from optsched.model.plan import Plan
from optsched.model.profile import Profile
from optsched.objectives import parse
from optsched.physics import TIME_TOLERANCE_S
from optsched.plugins.solver import Report, Request
from optsched.traces.generate.synth import generate
from optsched.verify import verify
from optsched_solvers.cpsat import SOLVER
from tests.clusters import equal_nodes
from tests.oracles import brute_force, edd, mcnaughton, moore_hodgson, smith, spt, tiny, unrelated
from tests.simulate.windowed import windowed
from tests.verified import checked

TOLERANCE = 2e-6
"""Relative; times off every common grid are rounded at a hundred-millionth of the horizon."""


@dataclass
class Outcome:
    """What a solver reported, each plan verified."""

    values: tuple[float, ...] | None = None
    plan: Plan | None = None
    bounds: dict[int, float] = field(default_factory=dict)
    infeasible: bool = False


def solve(
    instance: Instance, objective: str, seconds: float = 60, seed: int = 0, workers: int = 8
) -> Outcome:
    """Run cpsat in this process and keep the best verified plan and bounds."""
    goal, outcome = parse(objective), Outcome()

    def plan(found: Plan) -> None:
        values = checked(instance, found, goal)
        if outcome.values is None or values < outcome.values:
            outcome.values, outcome.plan = values, found

    def bound(level: int, value: float, source: str) -> None:
        outcome.bounds[level] = max(value, outcome.bounds.get(level, -math.inf))

    def infeasible(reason: str) -> None:
        outcome.infeasible = True

    request = Request(
        instance=instance, objective=goal, time_limit_s=seconds, seed=seed, workers=workers
    )
    SOLVER.solve(
        request, Report(plan=plan, bound=bound, infeasible=infeasible, note=lambda text: None)
    )
    return outcome


def assert_optimal(instance: Instance, objective: str, optimum: tuple[float, ...]) -> None:
    outcome = solve(instance, objective)
    assert outcome.values is not None
    terms = parse(objective).levels
    for level, (value, best) in enumerate(zip(outcome.values, optimum, strict=True)):
        in_seconds = all(term.unit == "s" for _, term in terms[level])
        # starts lie on a grid of microseconds where times have no common unit; other units have no
        # such excuse
        slack = TOLERANCE * abs(best) + (TIME_TOLERANCE_S / 10 if in_seconds else 1e-9)
        assert abs(value - best) <= slack
        if level in outcome.bounds:
            assert outcome.bounds[level] <= best + slack
    assert outcome.bounds[0] >= optimum[0] - 10 * TOLERANCE * abs(optimum[0]) - 1e-9


OBJECTIVES = (
    "wct",
    "makespan",
    "tardiness",
    "deadline,wct",
    "lateness",
    "tail:0.5",
    "ftf",
    "maxmin",
    "throughput",
    "energy",
    "cost",
    "wct+3*makespan",
)


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(instance=tiny.instances(most_jobs=4))
@settings(max_examples=6)
def test_equals_brute_force(objective: str, instance: Instance) -> None:
    assume(instance.jobs)
    best = brute_force.optimum(instance, parse(objective))
    if best is None:
        assert solve(instance, objective).values is None
    else:
        assert_optimal(instance, objective, best[0])


@given(instance=tiny.instances(most_jobs=5, most_running=3))
@settings(max_examples=15)
def test_preempt_or_continue_equals_brute_force(instance: Instance) -> None:
    assume(instance.jobs)
    best = brute_force.optimum(instance, parse("wct"))
    if best is not None:
        assert_optimal(instance, "wct", best[0])


def assert_optimal_beside_windows(instance: Instance, objective: str) -> None:
    if SOLVER.supports(instance, parse(objective)) is None:
        best = brute_force.optimum(instance, parse(objective))
        if best is None:
            assert solve(instance, objective).values is None
        else:
            assert_optimal(instance, objective, best[0])


BESIDE_WINDOWS = ("wct", "makespan", "deadline,wct", "cost", "tail:0.5", "maxmin")


@pytest.mark.parametrize("objective", BESIDE_WINDOWS)
@given(instance=windowed(tiny.instances(most_jobs=4).filter(lambda i: i.jobs)))
@settings(max_examples=8)
def test_windows_equal_brute_force(objective: str, instance: Instance) -> None:
    assert_optimal_beside_windows(instance, objective)


@pytest.mark.slow
@pytest.mark.parametrize("objective", BESIDE_WINDOWS)
@given(instance=windowed(tiny.instances(most_jobs=4, most_running=3).filter(lambda i: i.jobs)))
@settings(max_examples=150)
def test_many_windows_equal_brute_force(objective: str, instance: Instance) -> None:
    assert_optimal_beside_windows(instance, objective)


@pytest.mark.slow
@given(instance=tiny.instances(most_jobs=6, most_running=3))
@settings(max_examples=150)
def test_preempt_or_continue_of_six_jobs_equals_brute_force(instance: Instance) -> None:
    assume(instance.jobs)
    best = brute_force.optimum(instance, parse("wct"))
    if best is not None:
        assert_optimal(instance, "wct", best[0])


@pytest.mark.parametrize("objective", ("wct", "makespan", "deadline,wct", "cost", "tail:0.5"))
@given(instance=tiny.with_pairs())
@settings(max_examples=12)
def test_pairs_that_share_gpus_equal_brute_force(objective: str, instance: Instance) -> None:
    assume(any(entry.mode.share_with for entry in instance.running))
    best = brute_force.optimum(instance, parse(objective))
    if best is None:
        assert solve(instance, objective).values is None
    else:
        assert verify(instance, best[1], parse(objective)).values == pytest.approx(best[0])
        assert outside_class(instance, best[1]) is None
        assert_optimal_with_pairs(instance, objective, best[0])


@pytest.mark.slow
@given(instance=tiny.with_pairs(most_jobs=5))
@settings(max_examples=250)
def test_many_pairs_that_share_gpus_equal_brute_force(instance: Instance) -> None:
    assume(any(entry.mode.share_with for entry in instance.running))
    best = brute_force.optimum(instance, parse("wct"))
    if best is not None:
        assert_optimal_with_pairs(instance, "wct", best[0])


def assert_optimal_with_pairs(
    instance: Instance, objective: str, optimum: tuple[float, ...]
) -> None:
    """Equal, but where one of a pair could move to other GPUs of its node, which takes cpsat a
    tick: never wrong."""
    node = instance.cluster.node
    if not any(
        entry.mode.share_with
        and all(node[slot.node].gpus >= 2 * slot.gpus for slot in entry.placement)
        for entry in instance.running
    ):
        return assert_optimal(instance, objective, optimum)
    outcome = solve(instance, objective)
    assert outcome.values is not None
    slack = TOLERANCE * abs(optimum[0]) + 1e-4
    assert outcome.bounds[0] <= optimum[0] + slack
    assert outcome.values[0] >= optimum[0] - slack
    assert abs(outcome.values[0] - outcome.bounds[0]) <= 0.2 * abs(optimum[0]) + 5
    return None


durations = st.lists(st.integers(1, 20), min_size=1, max_size=7)


def one_node(gpus: int, jobs: list[Job]) -> Instance:
    return Instance(cluster=Cluster(nodes=(Node(name="n", gpus=gpus),)), jobs=tuple(jobs))


@given(durations, st.data())
@settings(max_examples=15)
def test_smiths_rule(processing: list[int], data: st.DataObject) -> None:
    weights = [data.draw(st.integers(1, 9)) for _ in processing]
    jobs = [
        Job(id=f"j{i}", duration_s=p, weight=w)
        for i, (p, w) in enumerate(zip(processing, weights, strict=True))
    ]
    best = smith.weighted_completion([*map(float, processing)], [*map(float, weights)])
    assert_optimal(one_node(1, jobs), "wct", (best,))


@given(durations, st.integers(2, 3))
@settings(max_examples=15)
def test_shortest_first_on_identical_gpus(processing: list[int], machines: int) -> None:
    jobs = [Job(id=f"j{i}", duration_s=p) for i, p in enumerate(processing)]
    assert_optimal(
        one_node(machines, jobs),
        "wct",
        (spt.total_completion([*map(float, processing)], machines),),
    )


@given(durations, st.integers(2, 3))
@settings(max_examples=10)
def test_no_shorter_than_mcnaughton(processing: list[int], machines: int) -> None:
    outcome = solve(
        one_node(machines, [Job(id=f"j{i}", duration_s=p) for i, p in enumerate(processing)]),
        "makespan",
    )
    assert outcome.values is not None
    assert outcome.values[0] >= mcnaughton.makespan([*map(float, processing)], machines) - 1e-6
    assert outcome.bounds[0] == pytest.approx(outcome.values[0])


@given(durations, st.data())
@settings(max_examples=15)
def test_due_dates(processing: list[int], data: st.DataObject) -> None:
    due = [float(data.draw(st.integers(1, 60))) for _ in processing]
    jobs = [
        Job(id=f"j{i}", duration_s=p, deadline_s=d)
        for i, (p, d) in enumerate(zip(processing, due, strict=True))
    ]
    floats = [*map(float, processing)]
    assert_optimal(one_node(1, jobs), "lateness", (edd.largest_lateness(floats, due),))
    assert_optimal(one_node(1, jobs), "deadline", (moore_hodgson.late_jobs(floats, due),))


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=6))
@settings(max_examples=15)
def test_unrelated_gpus(times: list[tuple[int, int]]) -> None:
    nodes = (Node(name="m0", gpu_type="a", gpus=1), Node(name="m1", gpu_type="b", gpus=1))
    jobs = tuple(
        Job(
            id=f"j{i}",
            modes=(
                Mode(duration_s=a, gpus=1, gpu_type="a"),
                Mode(duration_s=b, gpus=1, gpu_type="b"),
            ),
        )
        for i, (a, b) in enumerate(times)
    )
    best = unrelated.total_completion([list(pair) for pair in times])
    assert_optimal(Instance(cluster=Cluster(nodes=nodes), jobs=jobs), "wct", (float(best),))


@given(
    remaining=st.integers(10, 400),
    waiting=st.integers(10, 200),
    checkpoint=st.integers(0, 40),
    startup=st.integers(0, 20),
    restore=st.integers(0, 40),
)
@settings(max_examples=40)
def test_swap_rule(
    remaining: int, waiting: int, checkpoint: int, startup: int, restore: int
) -> None:
    """With one victim and one waiter, preempt exactly when rem_r - rem_w > 2 pause_r + load_w +
    load_r."""
    profile = Profile(checkpoint_s=checkpoint, startup_s=startup, restore_s=restore)
    instance = Instance(
        cluster=Cluster(nodes=(Node(name="n", gpus=1),)),
        jobs=(
            Job(id="r", duration_s=1000, submit_s=-600, profile=profile),
            Job(id="w", duration_s=waiting, profile=profile),
        ),
        running=(
            Running(
                job="r",
                mode=Mode(gpus=1),
                placement=(Slot(node="n", gpus=1),),
                started_s=-600,
                remaining_s=remaining,
            ),
        ),
    )
    outcome = solve(instance, "wct")
    assert outcome.plan is not None
    gain = remaining - waiting - (2 * checkpoint + startup + (startup + restore))
    if gain != 0:
        assert (outcome.plan.jobs[0].decision == "preempt") == (gain > 0)


def batch(jobs: int) -> Instance:
    nodes = equal_nodes(2, gpus=4)
    return Instance(
        cluster=Cluster(nodes=nodes),
        jobs=tuple(
            Job(
                id=f"j{i}",
                gpus=(1, 1, 2, 4)[i * 7 % 4],
                duration_s=10 + i * 37 % 91,
                weight=1 + i % 3,
            )
            for i in range(jobs)
        ),
    )


@pytest.mark.parametrize("jobs", [6, 70])
def test_one_worker_is_reproducible(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched_solvers.cpsat.clock.WORK_PER_SECOND", 0.01)
    first = solve(batch(jobs), "wct", seconds=15, seed=3, workers=1)
    second = solve(batch(jobs), "wct", seconds=15, seed=3, workers=1)
    assert first == second


def test_counted_work_finds_a_good_plan_of_few_gangs_on_several_types() -> None:
    """The best value known is 484,930: list search comes near it before the model is solved."""
    outcome = solve(generate(jobs=24, gpus=16, seed=2, running=0.3), "wct", seconds=2, workers=1)
    assert outcome.values is not None
    assert outcome.values[0] < 1.01 * 484_930


def test_no_plan_exists() -> None:
    """Two jobs that both need most of a budget: infeasible, and said so."""
    jobs = tuple(Job(id=f"j{i}", duration_s=10, budgets={"energy": 6}) for i in range(2))
    cluster = Cluster(nodes=(Node(name="n", gpus=1),), budgets={"energy": 10})
    outcome = solve(Instance(cluster=cluster, jobs=jobs), "wct")
    assert outcome.infeasible
    assert outcome.plan is None


def test_chooses_modes_within_a_budget() -> None:
    """The fast mode of both jobs would break the budget; list schedules take it and fail."""
    modes = (Mode(duration_s=10, budgets={"energy": 6}), Mode(duration_s=30, budgets={"energy": 2}))
    jobs = tuple(Job(id=f"j{i}", modes=modes) for i in range(2))
    assert_optimal(Instance(cluster=Cluster(budgets={"energy": 8}), jobs=jobs), "wct", (40.0,))


def test_wide_gang_takes_several_nodes_at_its_rate() -> None:
    from optsched.model.profile import Locality

    nodes = (
        Node(name="a0", gpus=2, rack="r0"),
        Node(name="a1", gpus=2, rack="r0"),
        Node(name="b0", gpus=2, rack="r1"),
    )
    gang = Job(
        id="gang",
        gpus=4,
        duration_s=90,
        profile=Profile(locality=Locality(node=1, rack=0.9, cluster=0.5)),
    )
    outcome = solve(Instance(cluster=Cluster(nodes=nodes), jobs=(gang,)), "makespan")
    assert outcome.values == pytest.approx((100.0,))


def test_incumbent_off_the_grid_is_taken_up() -> None:
    """Its starts are no multiples of a tick, so it is moved to the grid before it is built on."""
    from optsched.plugins.registry import policy
    from optsched.simulate.run import simulate

    slow = Profile(rate={"a": 0.7, "b": 0.3}, startup_s=1 / 3)
    instance = Instance(
        cluster=Cluster(
            nodes=(Node(name="a", gpu_type="a", gpus=2), Node(name="b", gpu_type="b", gpus=2))
        ),
        jobs=tuple(
            Job(id=f"j{i}", gpus=1 + i % 2, duration_s=10 + i * 7 % 13, profile=slow)
            for i in range(30)
        ),
    )
    start = simulate(instance, policy("sjf"))
    goal, seen = parse("wct"), []

    def plan(found: Plan) -> None:
        values = checked(instance, found, goal)
        seen.append(values)

    request = Request(instance=instance, objective=goal, time_limit_s=5, incumbent=start)
    SOLVER.solve(request, Report(plan=plan, bound=lambda *_: None, infeasible=print, note=print))
    assert seen


def test_fractions_that_just_do_not_fit() -> None:
    """Three times 33.3336 GiB is more than 100 by less than a thousandth each."""
    profile = Profile(memory_gib_per_gpu=33.3336)
    node = Node(name="n", gpus=4, memory_gib=100.0)
    jobs = tuple(Job(id=f"j{i}", duration_s=10, profile=profile) for i in range(4))
    outcome = solve(Instance(cluster=Cluster(nodes=(node,)), jobs=jobs), "makespan", seconds=20)
    assert outcome.values == (20.0,)
    assert outcome.bounds[0] <= 20.0


def test_huge_amounts_of_a_resource() -> None:
    cluster = Cluster(nodes=(Node(name="n", gpus=4),), resources={"power": 9e11})
    jobs = tuple(Job(id=f"j{i}", duration_s=10 + i, resources={"power": 4e11}) for i in range(3))
    assert_optimal(Instance(cluster=cluster, jobs=jobs), "makespan", (21.0,))


def on_one_node(gpus: int, jobs: tuple[Job, ...], **fields: object) -> Instance:
    node = Node(name="n0", gpu_type="v", gpus=gpus)
    return Instance(cluster=Cluster(nodes=(node,)), jobs=jobs, **fields)  # type: ignore[arg-type]


def test_a_successor_of_a_long_job_starts_after_it() -> None:
    """The length of `a` lies 0.44 ms beyond a multiple of 10 ms, a billionth of it less than 2
    ms."""
    outcome = solve(
        on_one_node(
            2,
            (
                Job(
                    id="a",
                    gpus=2,
                    duration_s=1759430.0,
                    weight=5.0,
                    profile=Profile(rate={"v": 0.91}),
                ),
                Job(
                    id="b",
                    gpus=2,
                    duration_s=3600.0,
                    after=("a",),
                    profile=Profile(rate={"v": 0.9}),
                ),
                Job(id="c", gpus=1, duration_s=90000.0, profile=Profile(rate={"v": 0.9})),
            ),
        ),
        "wct",
        workers=1,
    )
    assert outcome.values is not None and outcome.bounds[0] > outcome.values[0] * (1 - 1e-7)


def test_a_job_shorter_than_a_tick() -> None:
    """The first job is so short that its end is its start, which is hinted once."""
    jobs = (
        Job(id="short", duration_s=0.3),
        *(Job(id=f"j{k}", duration_s=1e8 + k / 3) for k in range(2)),
    )
    outcome = solve(on_one_node(1, jobs), "makespan", workers=1)
    assert outcome.values == pytest.approx((2e8 + 1 / 3 + 0.3,), abs=10.0), "a tick is 5 s"
    assert 2e8 - 10 < outcome.bounds[0] <= 2e8 + 1 / 3 + 0.3


@pytest.mark.parametrize(
    "objective", ("throughput", "maxmin", "ftf", "wct", "tardiness", "throughput+wct", "tail:0.5")
)
def test_numbers_at_the_ends_of_their_ranges(objective: str) -> None:
    """Weights of 1e9 and 1e-6, lengths of a millisecond and of three centuries, a past since
    1970."""
    now_s = 1.7e9
    instance = on_one_node(
        1,
        (
            Job(id="heavy", weight=1e9, duration_s=1e7 + 0.001, deadline_s=-1e10),
            Job(id="longest", duration_s=1e10, deadline_s=1e10),
            Job(
                id="here",
                submit_s=now_s - 45,
                duration_s=1e7,
                profile=Profile(restore_s=3e7),
                deadline_s=now_s,
            ),
            Job(
                id="light",
                weight=1e-6,
                submit_s=now_s - 0.002,
                duration_s=0.001,
                deadline_s=now_s + 1,
            ),
        ),
        now_s=now_s,
        running=(
            Running(
                job="here",
                mode=Mode(gpu_type="v", gpus=1),
                placement=(Slot(node="n0", gpus=1),),
                started_s=now_s - 45,
                remaining_s=1e7,
            ),
        ),
    )
    best = brute_force.optimum(instance, parse(objective))
    outcome = solve(instance, objective, workers=1)
    assert best is not None and outcome.values is not None
    [by] = yardsticks(instance, parse(objective), any_plan=False)
    assert not by.refutes(best[0][0], outcome.bounds[0])
    assert best[0][0] - outcome.bounds[0] <= best[0][0] - by.certain + 1e-5 * abs(best[0][0])


def test_off_the_grid_a_gang_stays_on_the_nodes_that_cost_least() -> None:
    """It is split to have a GPU of the cheap node, once the job of 4/3 s there is done."""
    nodes = (
        Node(name="dear", gpu_type="a", gpus=2, gpu_price_per_h=2.0),
        Node(name="cheap", gpu_type="a", gpus=1, gpu_price_per_h=1.0),
    )
    jobs = (
        Job(id="slow", duration_s=1.0, profile=Profile(rate={"a": 0.75})),
        Job(id="gang", gpus=2, duration_s=1.0),
    )
    optimum = (4 / 3 + 2 + 1) / 3600
    assert_optimal(Instance(cluster=Cluster(nodes=nodes), jobs=jobs), "cost", (optimum,))
