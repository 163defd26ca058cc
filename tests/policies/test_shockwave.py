"""Shockwave: its objective by hand, the program against brute force, and who is put first."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Job, Node, Phase
from optsched_solvers.policies.shockwave import (
    MAKESPAN,
    Bidder,
    Fair,
    foreseen,
    log_progress,
    place,
    plan,
)
from tests.policies.verified import plan_of, times

TWO = (Node(name="n0", gpus=2),)


def welfare(jobs: Sequence[Bidder], rounds: Sequence[int], window: int, round_s: float) -> float:
    """The objective: mean weighted logarithm of the progress by the end of the window, less the
    longest rest."""
    utility = sum(
        job.weight * log_progress(job.progress + job.gain * count)
        for job, count in zip(jobs, rounds, strict=True)
    )
    rest_s = max(
        max(0.0, job.left_s - round_s * count) for job, count in zip(jobs, rounds, strict=True)
    )
    return utility / (len(jobs) * window) - MAKESPAN * rest_s


def test_the_logarithm_is_piecewise_linear() -> None:
    assert log_progress(0.0) == pytest.approx(math.log(1e-6))
    assert log_progress(0.4) == pytest.approx(math.log(0.4))
    assert log_progress(0.3) == pytest.approx((math.log(0.2) + math.log(0.4)) / 2)
    assert log_progress(1.7) == 0.0


def test_welfare_by_hand() -> None:
    jobs = [Bidder(1, 0.2, 0.1, 960.0), Bidder(2, 0.0, 0.2, 600.0, 3.0)]
    # Two rounds each: progress 0.4 and 0.4, rests of 720 and 360 s; two jobs in a window of four.
    expected = (math.log(0.4) + 3 * math.log(0.4)) / 8 - 0.001 * 720
    assert welfare(jobs, [2, 2], 4, 120.0) == pytest.approx(expected)


def published_left_s(schedule: Sequence[int], epoch_s: dict[int, float], progress: int) -> float:
    """The predictor of the public simulator (JobMetaData.py), epoch by epoch."""
    epochs, sizes = len(schedule), sorted(set(schedule))
    begun = schedule[: progress + 1]
    posterior = {size: Fraction(epochs, len(sizes)) + begun.count(size) for size in sizes}
    total = sum(posterior.values())
    rest = {size: epochs * weight / total for size, weight in posterior.items()}
    for size in begun:
        if rest[size] >= 1:
            rest[size] -= 1
    left = epochs - progress
    inflated = max(int(sum(rest.values()) + 1), left)
    return sum(float(count) * epoch_s[size] for size, count in rest.items()) * left / inflated


@given(
    lengths=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    at=st.integers(0, 30),
    again=st.booleans(),
)
@settings(max_examples=60)
def test_the_predictor_is_the_published_one(lengths: list[int], at: int, again: bool) -> None:
    epoch_s = {32: 100.0, 64: 70.0, 128: 50.0}
    sizes = [32, 64, 32 if again else 128, 64]
    phases = tuple(
        Phase(batch_size=size, epochs=count, epoch_s=epoch_s[size])
        for size, count in zip(sizes, lengths, strict=False)
    )
    schedule = [phase.batch_size for phase in phases for _ in range(int(phase.epochs))]
    progress = min(at, len(schedule) - 2)
    done_s = sum(epoch_s[size] for size in schedule[:progress])
    found = foreseen(phases, done_s)
    known = {size: epoch_s[size] for size in set(schedule)}
    assert found.left_s == pytest.approx(published_left_s(schedule, known, progress))
    begun = schedule[: progress + 1]
    mean_s = sum(epoch_s[size] for size in begun) / len(begun)
    assert found.progress == pytest.approx(progress / len(schedule))
    assert found.pace == pytest.approx(1 / (mean_s * len(schedule)))


@st.composite
def markets(draw: st.DrawFn) -> list[Bidder]:
    found = []
    for _ in range(draw(st.integers(1, 3))):
        rounds = draw(st.integers(1, 8))
        progress = draw(st.integers(0, 9)) / 10
        found.append(
            Bidder(
                draw(st.integers(1, 3)),
                progress,
                (1 - progress) / rounds,
                120.0 * rounds,
                draw(st.sampled_from([1.0, 2.0, 10.0])),
            )
        )
    return found


@given(jobs=markets(), gpus=st.integers(1, 4), window=st.integers(1, 4))
@settings(max_examples=30)
def test_the_program_finds_the_best_rounds(jobs: list[Bidder], gpus: int, window: int) -> None:
    every = itertools.product(range(window + 1), repeat=len(jobs))
    best = max(
        welfare(jobs, rounds, window, 120.0)
        for rounds in every
        if sum(job.gpus * count for job, count in zip(jobs, rounds, strict=True)) <= gpus * window
    )
    found = plan(jobs, gpus, window, 120.0)
    assert found is not None
    assert sum(job.gpus * count for job, count in zip(jobs, found, strict=True)) <= gpus * window
    assert welfare(jobs, found, window, 120.0) == pytest.approx(best, abs=1e-4)


def test_what_fairness_asks_for_is_given_or_refused() -> None:
    jobs = [Bidder(1, 0.0, 0.05, 2400.0), Bidder(1, 0.5, 0.05, 1200.0)]
    assert plan(jobs, 1, 4, 120.0, [0, 3]) in ([0, 4], [1, 3])
    assert plan(jobs, 1, 4, 120.0, [2, 3]) is None
    assert plan(jobs, 1, 4, 120.0, [0, 5]) is None


@given(jobs=markets(), gpus=st.integers(1, 4), data=st.data())
@settings(max_examples=30)
def test_rounds_are_placed_where_most_fit_and_the_urgent_come_first(
    jobs: list[Bidder], gpus: int, data: st.DataObject
) -> None:
    """Against all subsets of jobs in each of three rounds."""
    counts = [data.draw(st.integers(0, 3)) for _ in jobs]
    subsets = [
        some
        for size in range(len(jobs) + 1)
        for some in itertools.combinations(range(len(jobs)), size)
        if sum(jobs[i].gpus for i in some) <= gpus
    ]

    def worth(rounds: Sequence[Sequence[int]]) -> tuple[int, float]:
        used = sum(jobs[i].gpus for some in rounds for i in some)
        late = sum(jobs[i].weight / counts[i] * k for k, some in enumerate(rounds) for i in some)
        return used, -late

    best = max(
        worth(rounds)
        for rounds in itertools.product(subsets, repeat=3)
        if all(sum(i in some for some in rounds) <= counts[i] for i in range(len(jobs)))
    )
    rounds = place(jobs, counts, gpus, 3)
    assert all(tuple(some) in subsets for some in rounds)
    assert all(sum(i in some for some in rounds) <= counts[i] for i in range(len(jobs)))
    assert worth(rounds) == pytest.approx(best, rel=1e-3)


def test_the_longest_runs_in_every_round_of_its_window() -> None:
    """A job that would be done last is never behind the others."""
    short = [Job(id=f"short{i}", gpus=1, duration_s=1200.0) for i in range(2)]
    found = plan_of("shockwave-style", Job(id="long", gpus=1, duration_s=3600.0), *short, nodes=TWO)
    assert times(found["long"]) == [(0.0, 3600.0)]


def test_finish_times_are_averaged_over_the_time_for_which_they_held() -> None:
    fair = Fair(since_s=0.0)
    fair.note(0.0, 100.0)
    fair.note(30.0, 200.0)
    fair.note(40.0, 400.0)
    assert fair.mean_s() == pytest.approx(0.9 * (30 * 100 + 10 * 200) / 40 + 0.1 * 400)


def test_jobs_take_turns() -> None:
    jobs = [Job(id=name, gpus=2, duration_s=1200.0) for name in "ab"]
    found = plan_of("shockwave-style", *jobs, nodes=TWO)
    assert (
        max(times(found[name])[0][0] for name in "ab") < 1200
    )  # the second does not wait for the end of the first
    assert len(found["a"].segments) + len(found["b"].segments) > 2
