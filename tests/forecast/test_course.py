"""Forecasts against sums by hand and against what then happens."""

import math
import random
from dataclasses import replace

import pytest

from benchmarks.forecast import LENGTHS, RUNNING, WAITING, knowing
from optsched import Cluster, Instance, Job, Mode, Node, Profile, Running, Slot, Suspended
from optsched.driver.reservation import Reservation
from optsched.estimates.errors import Belief, RunTimeErrors
from optsched.forecast.course import DRAWS, Question, ToCome, forecast
from optsched.physics.catalogue import catalogue_of
from tests.clusters import one_node

SURE = (None, 9)
"""A kind of belief that is always right."""


def sure() -> RunTimeErrors:
    errors = RunTimeErrors()
    for _ in range(50):
        errors.add(SURE, 10.0, 10.0)
    return errors


def instance(**more: object) -> Instance:
    """`a` runs on all 4 GPUs for 50 s more; `b` (30 s) and `c` (20 s, saved 5) want them all."""
    whole = Mode(gpu_type="x", gpus=4)
    jobs = tuple(
        Job(id=name, gpus=4, duration_s=seconds, submit_s=0.0)
        for name, seconds in (("a", 100.0), ("b", 30.0), ("c", 20.0))
    )
    given = {
        "name": "x",
        "now_s": 1000.0,
        "cluster": one_node(gpu_type="x", gpus=4),
        "jobs": jobs,
        "running": (
            Running(job="a", mode=whole, placement=(Slot(node="n", gpus=4),), remaining_s=50.0),
        ),
        "suspended": (Suspended(job="c", remaining_s=15.0),),
    }
    return Instance(**(given | more))  # type: ignore[arg-type]


def question(whole: Instance, **more: object) -> Question:
    given = {
        "instance": whole,
        "beliefs": {job.id: Belief(job.work_s, SURE) for job in whole.jobs},
        "errors": sure(),
    }
    return Question(**(given | more))  # type: ignore[arg-type]


def test_where_run_times_are_known_it_is_the_course_of_the_policy() -> None:
    times = forecast(question(instance()))
    assert times["a"].start_p90_s == 0.0 and times["a"].end_p90_s == pytest.approx(50.0)
    assert times["c"].start_p50_s == pytest.approx(50.0)
    assert times["b"].start_p50_s == pytest.approx(65.0)
    assert times["b"].end_p50_s == times["b"].end_p90_s == pytest.approx(95.0)
    fifo = forecast(question(instance(suspended=()), policy="fifo"))
    assert fifo["b"].start_p50_s == pytest.approx(50.0)
    assert fifo["c"].start_p50_s == pytest.approx(80.0)


def test_quantiles_are_those_of_the_errors() -> None:
    errors = RunTimeErrors()
    for ratio in range(1, 101):
        errors.add(SURE, 100.0, float(ratio))
    times = forecast(question(instance(running=(), suspended=()), errors=errors, draws=99))
    # b and c are alone on the GPUs one after the other: 30 and 20 s, times 0.01 to 1
    assert times["c"].start_p90_s == 0.0
    assert times["c"].end_p50_s == pytest.approx(10.0, rel=0.05)
    assert times["c"].end_p90_s == pytest.approx(18.0, rel=0.05)
    assert times["b"].start_p50_s == times["c"].end_p50_s


def test_what_has_run_for_long_is_one_of_the_longer_ones() -> None:
    errors = RunTimeErrors()
    for ratio in (0.1, 0.5, 2.0, 4.0) * 10:
        errors.add(SURE, 1.0, ratio)
    left = [errors.left_s(Belief(100.0, SURE), 60.0, 40.0, level / 10) for level in range(10)]
    assert set(left) == {140.0, 340.0}
    beyond = [errors.left_s(Belief(100.0, SURE), 500.0, 1.0, level / 10) for level in range(10)]
    assert beyond[0] == 0.0 and beyond[5] == pytest.approx(500.0) and max(beyond) <= 20 * 500.0
    by_steps = errors.left_s(Belief(100.0, SURE, measured=True), 60.0, 40.0, 0.5)
    assert by_steps == pytest.approx(40.0)


@pytest.mark.parametrize("ratio", [math.nan, math.inf, 0.0, -1.0])
def test_what_is_no_ratio_is_not_learned(ratio: float) -> None:
    errors = RunTimeErrors()
    errors.add(SURE, 1.0, ratio)
    assert errors.ratios(SURE) == RunTimeErrors().ratios(SURE)


def test_jobs_to_come_delay_those_that_they_overtake() -> None:
    """Every 30 s one of 20 s comes, which goes first before one of 100 s that waits."""
    whole = instance(suspended=())
    whole = replace(whole, jobs=(*whole.jobs[:1], replace(whole.jobs[1], duration_s=100.0)))
    short = Job(id="s", gpus=4, duration_s=20.0)
    came = ToCome(
        jobs=(short,) * 10,
        beliefs=(Belief(20.0, SURE),) * 10,
        before_s=tuple(30.0 * i for i in range(10)),
        window_s=300.0,
    )
    alone = forecast(question(whole))["b"].start_p50_s
    beside = forecast(question(whole, to_come=came))["b"].start_p50_s
    assert alone == pytest.approx(50.0) and beside >= 70.0


def test_beyond_the_horizon_nothing_is_said() -> None:
    times = forecast(question(instance(), horizon_s=60.0))
    assert times["c"].start_p50_s == pytest.approx(50.0) and times["c"].end_p50_s == math.inf
    assert times["b"].start_p50_s == math.inf
    never = replace(instance(), jobs=(*instance().jobs, Job(id="d", duration_s=1.0, after=("b",))))
    assert forecast(question(never, horizon_s=90.0))["d"].start_p50_s == math.inf


def test_the_same_question_has_the_same_answer_in_any_order() -> None:
    rng = random.Random(3)
    jobs = tuple(Job(id=f"j{i}", gpus=rng.choice([1, 2, 4]), duration_s=60.0) for i in range(20))
    whole = instance(jobs=jobs, running=(), suspended=())
    ask = question(whole, beliefs={job.id: Belief(60.0) for job in jobs}, draws=DRAWS)
    assert forecast(ask) == forecast(ask)
    assert forecast(replace(ask, seed=1)) != forecast(ask)
    for own in forecast(ask).values():
        assert 0 <= own.start_p50_s <= own.start_p90_s
        assert own.start_p50_s < own.end_p50_s <= own.end_p90_s


def test_what_nobody_knows_can_be_given() -> None:
    """`a` is believed to run for 50 s more and `c` for 15, which are 250 and 115 in truth."""
    asked = question(instance())
    truth = tuple(
        replace(job, duration_s=duration_s)
        for job, duration_s in zip(asked.instance.jobs, (300.0, 30.0, 120.0), strict=True)
    )
    running, waiting = (forecast(knowing(asked, truth, part)) for part in (RUNNING, WAITING))
    assert running["c"].start_p90_s == pytest.approx(250.0)
    assert running["b"].start_p90_s == pytest.approx(265.0)
    assert waiting["c"].start_p90_s == pytest.approx(50.0)
    assert waiting["b"].start_p90_s == pytest.approx(165.0)
    any_one = forecast(knowing(replace(asked, draws=2), truth, LENGTHS))
    assert any_one["c"].start_p50_s == pytest.approx(70.0)  # 120 or 300 s, of which 50 are done
    assert any_one["c"].start_p90_s == pytest.approx(250.0)


def test_who_loses_least_on_the_slower_gpus_starts_there() -> None:
    """Of two that wait for either GPU, the first would be half as fast on the one that comes free
    first: it waits for the other."""
    cluster = Cluster(
        nodes=(Node(name="n", gpu_type="x", gpus=1), Node(name="m", gpu_type="y", gpus=1))
    )
    rates = {"slow": {"x": 1.0, "y": 0.5}, "well": {"x": 1.0, "y": 0.95}}
    jobs = [
        Job(id=name, duration_s=100.0, profile=Profile(rate=rate), submit_s=0.0)
        for name, rate in (("a", {"x": 1.0}), ("b", {"y": 1.0}))
    ]
    running = [
        Running(
            job=name,
            mode=Mode(gpu_type=gpu_type, gpus=1),
            placement=(Slot(node=node, gpus=1),),
            remaining_s=left_s,
        )
        for name, gpu_type, node, left_s in (("a", "x", "n", 20.0), ("b", "y", "m", 10.0))
    ]
    jobs += [
        Job(id=name, duration_s=40.0, profile=Profile(rate=rate), submit_s=0.0)
        for name, rate in rates.items()
    ]
    whole = instance(cluster=cluster, jobs=tuple(jobs), running=tuple(running), suspended=())
    times = forecast(question(whole))
    assert times["well"].start_p50_s == pytest.approx(10.0)
    assert times["slow"].start_p50_s == pytest.approx(20.0)
    by_name = forecast(question(whole, policy="wspt"))
    assert by_name["slow"].start_p50_s == pytest.approx(10.0)


def test_errors_that_went_together_are_drawn_together() -> None:
    """A gang waits for eight jobs to end, of which each is short with 70 %: one is nearly always
    long, unless their errors go together."""
    nodes = (Node(name="n", gpu_type="x", gpus=8),)
    jobs = tuple(Job(id=f"j{i}", duration_s=100.0, submit_s=0.0) for i in range(8))
    gang = Job(id="gang", gpus=8, duration_s=10.0, submit_s=0.0)
    one = Mode(gpu_type="x", gpus=1)
    running = tuple(
        Running(job=job.id, mode=one, placement=(Slot(node="n", gpus=1),), remaining_s=100.0)
        for job in jobs
    )
    whole = instance(
        cluster=Cluster(nodes=nodes), jobs=(*jobs, gang), running=running, suspended=()
    )
    starts = {}
    mixed = (0.5, 1.5, 0.5, 0.5, 1.5, 0.5, 0.5, 1.5, 0.5, 0.5) * 5
    for name, ratios in (("together", sorted(mixed)), ("apart", mixed)):
        errors = RunTimeErrors()
        for ratio in ratios:
            errors.add(SURE, 1.0, ratio)
        starts[name] = forecast(question(whole, errors=errors))["gang"].start_p50_s
    assert starts == {"together": pytest.approx(50.0), "apart": pytest.approx(150.0)}


def test_none_for_nobody() -> None:
    assert forecast(question(instance(jobs=(), running=(), suspended=()))) == {}


def test_places_that_are_kept_are_played() -> None:
    """`a` runs for 100 s on one of two nodes; the other is kept with it for a gang that wants both.
    What would still run when the gang may start waits for it, what is shorter does not."""
    nodes = tuple(Node(name=name, gpu_type="x", gpus=4) for name in ("n", "m"))
    jobs = (
        Job(id="a", gpus=4, duration_s=100.0, submit_s=1000.0),
        Job(id="gang", gpus=8, duration_s=30.0, submit_s=1000.0),
        Job(id="long", gpus=1, duration_s=200.0, submit_s=1000.0),
        Job(id="short", gpus=1, duration_s=50.0, submit_s=1000.0),
    )
    run = replace(instance().running[0], remaining_s=100.0)
    whole = instance(
        cluster=Cluster(nodes=nodes), jobs=jobs, running=(run,), suspended=(), now_s=1000.0
    )
    option = catalogue_of(whole).options(jobs[1])[0]
    both = tuple(Slot(node=node.name, gpus=4) for node in nodes)
    kept = Reservation("gang", option, both, due_s=1100.0)
    free = forecast(question(whole))
    assert free["long"].start_p90_s == 0.0 and free["gang"].start_p50_s >= 200.0
    times = forecast(question(whole, kept=kept))
    assert times["gang"].start_p90_s == pytest.approx(100.0)
    assert times["long"].start_p50_s == pytest.approx(130.0) and times["short"].start_p90_s == 0.0
    elsewhere = replace(kept, placement=(Slot(node="gone", gpus=8),))
    for no_place in (elsewhere, replace(kept, job="nobody")):
        assert forecast(question(whole, kept=no_place)) == free
