"""Gavel's policies: the linear program by hand and against GLOP, the round mechanism, and the
published simulators."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fidelity import CASES, gavel_instance, run
from optsched import Cluster, Instance, Job, Node
from optsched.model.plan import Plan
from optsched.model.profile import Profile
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation, simulate
from optsched_solvers.policies.gavel.max_min_lp import GAP, MaxMin, solve
from tests.clusters import one_node
from tests.data import needs_data
from tests.verified import checked

HOUR_S = 3600.0


def shares(rate: object, gpus: object, count: object, workers: object) -> MaxMin:
    return solve(*(np.array(table, dtype=float) for table in (rate, gpus, count, workers)))


# ----------------------------------------------------------------------------------------- the
# linear program


@pytest.mark.parametrize(
    ("rate", "gpus", "count", "workers", "value"),
    [
        # Alone it runs on its best type all the time.
        ([[1, 3]], [[1, 1]], [1], [1, 1], 3.0),
        # Three equal jobs share two GPUs.
        ([[1]], [[1]], [3], [2], 2 / 3),
        # 4a + (1 - a) = 2 (1 - a) + a at a = 1/4 of the fast GPU for the first.
        ([[4, 1], [2, 1]], [[1, 1], [1, 1]], [1, 1], [1, 1], 1.75),
        # A gang of two and two single jobs on two GPUs: half of the time each.
        ([[1], [1]], [[2], [1]], [1, 2], [2], 0.5),
        # The second cannot use the second type: it gets the first one alone as soon as that is
        # worth more.
        ([[2, 1], [1, 0]], [[1, 1], [1, 1]], [1, 1], [1, 1], 1.0),
    ],
)
def test_values_derived_by_hand(
    rate: object, gpus: object, count: object, workers: object, value: float
) -> None:
    found = shares(rate, gpus, count, workers)
    assert found.value == pytest.approx(value, rel=2 * GAP)
    assert found.bound == pytest.approx(value, rel=2 * GAP)


def glop(rate: np.ndarray, gpus: np.ndarray, count: np.ndarray, workers: np.ndarray) -> float:
    from ortools.linear_solver import pywraplp

    program = pywraplp.Solver.CreateSolver("GLOP")
    least = program.NumVar(0.0, program.infinity(), "")
    kinds, columns = rate.shape
    x = [[program.NumVar(0.0, 1.0, "") for _ in range(columns)] for _ in range(kinds)]
    for a in range(kinds):
        program.Add(sum(float(rate[a, k]) * x[a][k] for k in range(columns)) >= least)
        program.Add(sum(x[a]) <= 1.0)
    for k in range(columns):
        program.Add(
            sum(float(count[a] * gpus[a, k]) * x[a][k] for a in range(kinds)) <= float(workers[k])
        )
    program.Maximize(least)
    assert program.Solve() == pywraplp.Solver.OPTIMAL
    return float(program.Objective().Value())


@st.composite
def programs(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds, columns = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    spread = draw(st.sampled_from([0.1, 1.0, 3.0]))
    rate = np.exp(rng.normal(0, spread, (kinds, columns))) * (rng.random((kinds, columns)) < 0.8)
    rate[np.arange(kinds), rng.integers(columns, size=kinds)] = np.exp(rng.normal(0, spread, kinds))
    gpus = np.repeat(rng.choice([1.0, 2.0, 4.0, 8.0], (kinds, 1)), columns, axis=1)
    return (
        rate,
        gpus,
        rng.integers(1, 9, kinds).astype(float),
        rng.integers(1, 40, columns).astype(float),
    )


@given(programs())
@settings(max_examples=150)
def test_the_optimum_is_that_of_another_solver(program: tuple[np.ndarray, ...]) -> None:
    _, gpus, count, workers = program
    found, best = solve(*program), glop(*program)
    assert found.value == pytest.approx(best, rel=5 * GAP)
    assert found.bound >= best * (1 - 1e-7)
    assert (found.share >= 0).all()
    assert (found.share.sum(axis=1) <= 1 + 1e-9).all()
    assert ((count[:, None] * gpus * found.share).sum(axis=0) <= workers * (1 + 1e-9)).all()


@given(programs())
@settings(max_examples=30)
def test_equal_jobs_may_be_one_kind_or_many(program: tuple[np.ndarray, ...]) -> None:
    rate, gpus, count, workers = program
    times = count.astype(int)
    apart = solve(
        rate.repeat(times, axis=0), gpus.repeat(times, axis=0), np.ones(times.sum()), workers
    )
    assert apart.value == pytest.approx(solve(*program).value, rel=5 * GAP)


def test_what_the_worst_off_cannot_use_is_given_to_others() -> None:
    """The first job cannot get more than 1; the second could do with a tenth of its type, and gets
    more."""
    found = shares([[1, 0], [0, 10]], [[1, 1], [1, 1]], [1, 1], [1, 1])
    assert found.value == pytest.approx(1.0, rel=2 * GAP)
    assert found.share[1, 1] > 0.3


# --------------------------------------------------------------------------------------------------
# --- rounds


def small(*jobs: Job, gpus: int = 1) -> Instance:
    return Instance(cluster=one_node(gpu_type="v100", gpus=gpus), jobs=jobs)


def stays(plan: Plan, job: str) -> list[tuple[float, float]]:
    entry = next(entry for entry in plan.jobs if entry.id == job)
    return [(round(segment.start_s), round(segment.end_s)) for segment in entry.segments]


def test_two_equal_jobs_take_turns() -> None:
    plan = simulate(
        small(Job(id="a", duration_s=720.0), Job(id="b", duration_s=720.0)), policy("gavel-max-min")
    )
    assert stays(plan, "a") == [(0, 360), (720, 1080)]
    assert stays(plan, "b") == [(360, 720), (1080, 1440)]


def test_a_job_that_is_chosen_again_keeps_its_gpus() -> None:
    plan = simulate(
        small(Job(id="a", duration_s=5000.0), Job(id="b", duration_s=5000.0), gpus=2),
        policy("gavel-max-min"),
    )
    assert stays(plan, "a") == stays(plan, "b") == [(0, 5000)]


def test_a_weight_of_two_is_twice_the_time() -> None:
    plan = simulate(
        small(Job(id="a", duration_s=40 * 360.0, weight=2.0), Job(id="b", duration_s=40 * 360.0)),
        policy("gavel-max-min"),
    )
    until_s = 30 * 360
    received = [
        sum(min(end, until_s) - min(start, until_s) for start, end in stays(plan, job))
        for job in ("a", "b")
    ]
    assert received[0] / received[1] == pytest.approx(2.0, rel=0.1)


def test_shares_are_not_computed_more_often_than_allowed() -> None:
    """A job that comes 100 s after the first waits for the first round that is 1,920 s after the
    start."""
    late = Job(id="late", submit_s=100.0, duration_s=360.0)
    plan = simulate(small(Job(id="a", duration_s=9000.0), late, gpus=2), policy("gavel-max-min"))
    assert stays(plan, "late") == [(2160, 2520)]
    plan = simulate(
        small(Job(id="a", duration_s=9000.0), late, gpus=2),
        policy("gavel-max-min", options={"reset": "360"}),
    )
    assert stays(plan, "late") == [(360, 720)]


def test_gpus_that_a_checkpoint_holds_go_to_whom_they_were_meant_for() -> None:
    profile = Profile(checkpoint_s=30.0)
    plan = simulate(
        small(*(Job(id=name, duration_s=600.0, profile=profile) for name in "ab")),
        policy("gavel-max-min"),
    )
    assert stays(plan, "a")[0] == (0, 390)
    assert stays(plan, "b")[0][0] == 390


def test_rounds_of_the_simulation_are_as_good_as_its_own() -> None:
    jobs = (
        Job(id=f"j{i}", submit_s=700.0 * i, duration_s=1000.0, gpus=1 + i % 2) for i in range(9)
    )
    instance = small(*jobs, gpus=2)
    assert simulate(instance, policy("gavel-max-min"), round_s=360.0) == simulate(
        instance, policy("gavel-max-min")
    )


def test_a_job_without_gpus_is_not_kept_waiting() -> None:
    instance = small(Job(id="a", duration_s=5000.0), Job(id="cpu", gpus=0, duration_s=50.0))
    for name in ("gavel-max-min", "gavel-fifo"):
        assert stays(simulate(instance, policy(name)), "cpu") == [(0, 50)]


def test_first_in_first_out_keeps_to_a_type() -> None:
    nodes = tuple(Node(name=name, gpu_type=name, gpus=1) for name in ("k80", "v100"))
    profile = Profile(rate={"k80": 0.5, "v100": 1.0})
    jobs = tuple(Job(id=f"j{i}", duration_s=3600.0, profile=profile) for i in range(2))
    plan = simulate(Instance(cluster=Cluster(nodes=nodes), jobs=jobs), policy("gavel-fifo"))
    assert stays(plan, "j0") == [(0, 3600)]
    assert stays(plan, "j1") == [(0, 7200)]


def test_a_simulation_taken_up_again_ends_the_same() -> None:
    rng = np.random.default_rng(0)
    jobs = [
        Job(
            id=f"j{i}",
            submit_s=float(600 * i),
            duration_s=float(rng.integers(600, 9000)),
            gpus=1 + i % 2,
        )
        for i in range(20)
    ]
    for name in ("gavel-max-min", "gavel-fifo"):
        instance = small(*jobs, gpus=2)
        whole = simulate(instance, policy(name))
        half = Simulation(instance, policy(name))
        half.run(until=lambda: half.done >= 8)  # noqa: B023 (called before the loop goes on)
        again = Simulation.restored(half.save())
        again.run()
        assert again.record().plan() == whole


# -------------------------------------------------------------------------------------------------
# fidelity


@needs_data("gavel")
@pytest.mark.parametrize(("name", "off"), [("gavel-100-fifo", 0.005), ("gavel-100-max-min", 0.005)])
def test_gavels_simulator_on_its_100_jobs(name: str, off: float) -> None:
    found = run(CASES[name])
    assert found["jct_h"] == pytest.approx(found["published_jct_h"], rel=off)
    assert found["makespan_h"] == pytest.approx(found["published_makespan_h"], rel=off)


@needs_data("shockwave_tacc32")
def test_shockwaves_simulator_on_its_120_jobs() -> None:
    found = run(CASES["shockwave-max-min"])
    assert found["jct_h"] == pytest.approx(found["published_jct_h"], rel=0.05)
    assert found["makespan_h"] == pytest.approx(found["published_makespan_h"], rel=0.05)


@needs_data("gavel")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("gavel-1000-max-min", 0.03),
        (
            "gavel-1000-fifo",
            0.10,
        ),  # their random strikes alone change the mean by more than 3 %: see GavelFifo
    ],
)
def test_gavels_simulator_on_its_1000_jobs(name: str, off: float) -> None:
    found = run(CASES[name])
    assert found["jct_h"] == pytest.approx(found["published_jct_h"], rel=off)


@needs_data("gavel")
@pytest.mark.parametrize("name", ["gavel-max-min", "gavel-fifo"])
def test_plans_of_a_busy_cluster_are_sound(name: str) -> None:
    made = gavel_instance("gavel_osdi_100_lam2400")
    nodes = tuple(node for node in made.cluster.nodes if node.name.endswith(("-0", "-1")))
    jobs = tuple(replace(job, submit_s=job.submit_s / 10) for job in made.jobs[:40])
    instance = replace(made, cluster=replace(made.cluster, nodes=nodes), jobs=jobs)
    checked(instance, simulate(instance, policy(name)))
