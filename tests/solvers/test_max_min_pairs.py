"""Max-min fairness over job pairs against the complete LP, cases by hand, and certificates checked
by plain loops."""

import gzip
import json
import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pulp
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.max_min_pairs import complete_lp, draw, made_distinct
from optsched_solvers.policies.gavel.max_min_pairs import (
    Shares,
    SharingProblem,
    equal_share_rate,
    solve,
)
from tests.data import DATA, needs_data

CLOSE = 1e-6
"""Relative; CBC stops at about 1e-7."""


def problem_of(
    rate: Any, pair_rate: Any, gpus: Any, workers: Any, kind: Any = None, weight: Any = None
) -> SharingProblem:
    arrays = [np.array(part, dtype=float) for part in (rate, pair_rate, gpus, workers)]
    return SharingProblem(
        *arrays,
        None if kind is None else np.array(kind),
        None if weight is None else np.array(weight, dtype=float),
    )


def jobs_of(problem: SharingProblem) -> tuple[list[int], list[float]]:
    kind = list(range(len(problem.gpus))) if problem.kind is None else problem.kind.tolist()
    return kind, [1.0] * len(kind) if problem.weight is None else problem.weight.tolist()


def columns_of(problem: SharingProblem) -> dict[tuple[int, int, int], dict[int, float]]:
    """(job, partner or -1, GPU type) -> normalised throughput of each of its jobs at fraction 1,
    job by job."""
    kind, weight = jobs_of(problem)
    total = sum(problem.workers.tolist())

    def normalised(job: int, rate: float) -> float:
        a = kind[job]
        equal = sum(
            r * n / total
            for r, n in zip(problem.rate[a].tolist(), problem.workers.tolist(), strict=True)
        )
        return float(problem.gpus[a]) * rate / (equal * weight[job])

    columns = {}
    for k in range(len(problem.workers)):
        for j in range(len(kind)):
            columns[j, -1, k] = {j: normalised(j, float(problem.rate[kind[j], k]))}
        for i, j in combinations(range(len(kind)), 2):
            if problem.gpus[kind[i]] == problem.gpus[kind[j]]:
                columns[i, j, k] = {
                    i: normalised(i, float(problem.pair_rate[kind[i], kind[j], k])),
                    j: normalised(j, float(problem.pair_rate[kind[j], kind[i], k])),
                }
    return columns


def optimum_of(problem: SharingProblem) -> float:
    """The complete LP, by CBC."""
    kind, _ = jobs_of(problem)
    columns = columns_of(problem)
    model = pulp.LpProblem("max_min", pulp.LpMaximize)
    level = model.add_variable("z", 0)
    x = {column: model.add_variable(f"x{number}", 0) for number, column in enumerate(columns)}
    model += level
    for j in range(len(kind)):
        mine = [column for column in columns if j in columns[column]]
        model += pulp.lpSum(columns[column][j] * x[column] for column in mine) >= level
        model += pulp.lpSum(x[column] for column in mine) <= 1
    for k, workers in enumerate(problem.workers.tolist()):
        model += (
            pulp.lpSum(float(problem.gpus[kind[c[0]]]) * x[c] for c in columns if c[2] == k)
            <= workers
        )
    model.solve(pulp.PULP_CBC_CMD(msg=False))
    assert model.sol_status == pulp.LpSolutionOptimal
    return float(pulp.value(level))


def check(problem: SharingProblem, shares: Shares) -> None:
    """Feasible, throughputs as said, and prices that prove the bound: all job by job."""
    kind, _ = jobs_of(problem)
    columns = columns_of(problem)
    time, throughput = [0.0] * len(kind), [0.0] * len(kind)
    used = [0.0] * len(problem.workers)
    seen = list(
        zip(shares.job.tolist(), shares.partner.tolist(), shares.gpu_type.tolist(), strict=True)
    )
    assert len(set(seen)) == len(seen)
    for column, fraction in zip(seen, shares.fraction.tolist(), strict=True):
        assert 0 < fraction <= 1 + 1e-12
        used[column[2]] += float(problem.gpus[kind[column[0]]]) * fraction
        for j, rate in columns[column].items():  # KeyError: a column that may not be used
            time[j] += fraction
            throughput[j] += rate * fraction
    assert max(time) <= 1 + 1e-12
    assert all(u <= w * (1 + 1e-12) for u, w in zip(used, problem.workers.tolist(), strict=True))
    assert shares.throughput.tolist() == pytest.approx(throughput, rel=1e-9, abs=1e-12)
    assert shares.value == shares.throughput.min()

    prices = shares.prices
    worth, hour, gpu = prices.throughput.tolist(), prices.time.tolist(), prices.gpus.tolist()
    assert min(worth + hour + gpu) >= 0
    for (j, partner, k), rates in columns.items():
        cost = sum(hour[job] for job in rates) + float(problem.gpus[kind[j]]) * gpu[k]
        gain = sum(worth[job] * rate for job, rate in rates.items())
        assert gain <= cost * (1 + 1e-12) + 1e-15, (j, partner, k)
    proved = math.fsum(hour) + math.fsum(
        p * n for p, n in zip(gpu, problem.workers.tolist(), strict=True)
    )
    assert shares.bound >= proved / math.fsum(worth) * (1 - 1e-15)


RATES = st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 4.0]) | st.floats(0.01, 100)


@st.composite
def problems(draw: st.DrawFn) -> SharingProblem:
    kinds, gpu_types = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    jobs = draw(st.none() | st.lists(st.integers(0, kinds - 1), min_size=1, max_size=7))
    many = kinds if jobs is None else len(jobs)

    def array(*shape: int, of: st.SearchStrategy[float]) -> Any:
        size = math.prod(shape)
        return np.reshape(draw(st.lists(of, min_size=size, max_size=size)), shape)

    rate = array(kinds, gpu_types, of=RATES)
    share = array(
        kinds,
        kinds,
        gpu_types,
        of=st.sampled_from([0.0, 0.3, 0.5, 0.7, 0.9, 1.0]) | st.floats(0, 1.2),
    )
    problem = problem_of(
        rate,
        rate[:, None, :] * share,
        array(kinds, of=st.sampled_from([1.0, 1.0, 2.0, 4.0])),
        array(gpu_types, of=st.sampled_from([0.0, 1.0, 2.0, 3.0, 8.0])),
        jobs,
        draw(
            st.none()
            | st.lists(st.sampled_from([1.0, 1.0, 5.0, 0.25]), min_size=many, max_size=many)
        ),
    )
    kind, _ = jobs_of(problem)
    assume(problem.workers.any() and (equal_share_rate(problem)[kind] > 0).all())
    return problem


@settings(max_examples=60)
@given(problems())
def test_the_complete_lp_agrees(problem: SharingProblem) -> None:
    shares = solve(problem)
    check(problem, shares)
    optimum = optimum_of(problem)
    assert shares.value == pytest.approx(optimum, rel=CLOSE)
    assert shares.bound >= optimum * (1 - CLOSE)
    assert 0 <= shares.gap <= 2e-6


@settings(max_examples=40)
@given(problems(), st.sampled_from([0.5, 0.1, 0.01]))
def test_a_wide_gap_is_kept_and_proved(problem: SharingProblem, gap: float) -> None:
    shares = solve(problem, gap)
    check(problem, shares)
    assert shares.value <= shares.bound <= shares.value * (1 + gap + 1e-6)


@settings(max_examples=40)
@given(problems())
def test_jobs_of_one_kind_and_weight_get_the_same(problem: SharingProblem) -> None:
    shares = solve(problem)
    kind, weight = jobs_of(problem)
    first: dict[tuple[int, float], float] = {}
    for key, throughput in zip(
        zip(kind, weight, strict=True), shares.throughput.tolist(), strict=True
    ):
        assert throughput == pytest.approx(first.setdefault(key, throughput), rel=1e-9, abs=1e-12)


def test_two_jobs_share_one_gpu() -> None:
    # Taking turns gives each 1/2; together each runs at 0.8 all the time.
    shares = solve(problem_of([[1]], [[[0.8]]], [1], [1], [0, 0]))
    assert shares.value == pytest.approx(0.8)
    assert shares.bound == pytest.approx(0.8)
    assert (shares.job.tolist(), shares.partner.tolist()) == ([0], [1])
    assert shares.fraction.tolist() == pytest.approx([1.0])


def test_three_jobs_share_two_gpus() -> None:
    # Together at 0.6. A pair takes a GPU and gives 1.2, a single gives 1; each job has a time of 1.
    # All time used: p pair time (two jobs each), s single time: 2 p + s = 3, p + s = 2, so p = s =
    # 1 and 2.2 in all.
    shares = solve(problem_of([[5]], [[[3]]], [1], [2], [0, 0, 0]))
    assert shares.throughput.tolist() == pytest.approx([2.2 / 3] * 3)
    assert shares.bound == pytest.approx(2.2 / 3)


def test_weights_divide() -> None:
    # One GPU in turns: x / 1 = y / 3 and x + y = 1.
    shares = solve(problem_of([[1]], [[[0]]], [1], [1], [0, 0], [1, 3]))
    assert shares.value == pytest.approx(0.25)
    assert shares.fraction.tolist() == pytest.approx([0.25, 0.75])


def test_gpus_count_as_time() -> None:
    # Two GPUs; one job needs both: 2 x = y and 2 x + y <= 2.
    shares = solve(problem_of([[1], [1]], np.full((2, 2, 1), 1.0), [2, 1], [2]))
    assert shares.throughput.tolist() == pytest.approx([1.0, 1.0])
    assert shares.fraction.tolist() == pytest.approx([0.5, 1.0])
    assert shares.partner.tolist() == [
        -1,
        -1,
    ]  # they need different numbers of GPUs, so they may not share


def test_throughput_is_relative_to_an_equal_share() -> None:
    # One GPU of each type. a: 4 and 1, so 2.5 at equal shares; b: 1 and 1. a may take all of the
    # fast one: 1.6; b is at most 1 wherever it is.
    shares = solve(problem_of([[4, 1], [1, 1]], np.zeros((2, 2, 2)), [1, 1], [1, 1]))
    assert shares.value == pytest.approx(1.0)
    assert shares.throughput[1] == pytest.approx(1.0)


def test_no_time_on_gpus_that_are_not_there() -> None:
    # The LP solver left a fraction within its tolerance on the first GPU type, which has no GPUs.
    rate = [[0, 0, 0.1], [0.1, 0, 0.1], [0, 0, 0.1], [1, 0.25, 0]]
    problem = problem_of(rate, np.zeros((4, 4, 3)), np.ones(4), [0, 3, 1])
    shares = solve(problem)
    assert 0 not in shares.gpu_type
    check(problem, shares)


def test_jobs_with_equal_rates_are_found() -> None:
    rng = np.random.default_rng(3)
    rate = rng.uniform(1, 5, (4, 2))
    pair_rate = rate[:, None, :] * rng.uniform(0.3, 0.9, (4, 4, 2))
    kind = np.array([0, 1, 2, 3, 1, 0, 1])
    short = problem_of(rate, pair_rate, np.ones(4), [2, 1], kind)
    long = problem_of(rate[kind], pair_rate[np.ix_(kind, kind)], np.ones(7), [2, 1])
    assert solve(long).groups == solve(short).groups == 4
    assert solve(long).throughput.tolist() == solve(short).throughput.tolist()
    # One number changed, of one job beside another: it is no longer like the others.
    changed = long.pair_rate.copy()
    changed[4, 3, 1] *= 0.9
    assert solve(replace(long, pair_rate=changed)).groups == 5


def test_same_input_same_bytes() -> None:
    rng = np.random.default_rng(5)
    rate = rng.uniform(1, 5, (12, 3))
    problem = problem_of(
        rate,
        rate[:, None, :] * rng.uniform(0.3, 0.9, (12, 12, 3)),
        np.ones(12),
        [3, 2, 1],
        rng.integers(0, 12, 40),
    )
    one, two = solve(problem), solve(problem)
    for name in ("job", "partner", "gpu_type", "fraction", "throughput"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
    assert (one.value, one.bound) == (two.value, two.bound)


def table() -> dict[str, Any]:
    with gzip.open(DATA / "gavel" / "simulation_throughputs.json.gz", "rt") as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


@needs_data("gavel")
@pytest.mark.parametrize(
    "options", [{}, {"multi_gpu": True}, {"weights": True}, {"multi_gpu": True, "weights": True}]
)
def test_gavel_jobs_against_the_complete_lp(options: dict[str, bool]) -> None:
    problem = draw(table(), 40, 1, **options)
    shares = solve(problem)
    check(problem, shares)
    assert shares.gap <= 1e-6
    assert shares.value == pytest.approx(optimum_of(problem), rel=CLOSE)
    assert shares.value == pytest.approx(complete_lp(problem, "glop")["peer_value"], rel=CLOSE)


@needs_data("gavel")
@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_no_two_jobs_alike(noise: float) -> None:
    problem = made_distinct(draw(table(), 48, 2), noise, 2)
    shares = solve(problem)
    check(problem, shares)
    assert shares.groups == 48
    assert shares.value == pytest.approx(complete_lp(problem, "highs")["peer_value"], rel=CLOSE)


@needs_data("gavel")
@pytest.mark.parametrize("options", [{}, {"multi_gpu": True, "weights": True}])
def test_five_hundred_and_twelve_jobs(options: dict[str, bool]) -> None:
    problem = draw(table(), 512, 0, **options)
    shares = solve(problem)
    assert shares.value <= shares.bound <= shares.value * 1.000001
    assert shares.groups <= 2 * 83  # kinds of the table by two weights, however many jobs
    assert len(shares.fraction) < 20 * 512
