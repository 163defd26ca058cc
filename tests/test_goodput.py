"""Goodput that changes with progress: epochs by hand, what an agent may know, and whole plays."""

from functools import cache

import numpy as np
import pytest

from benchmarks import goodput
from benchmarks.goodput import ROUND_S, Kind, Training, Truth, play, shape_of
from optsched.traces.readers.pollux import RESTART_S
from optsched.traces.readers.pollux_application import Application
from optsched_solvers.policies.pollux.exact import best
from optsched_solvers.policies.pollux.state import Best, State
from tests.data import DATA, needs_data

pytestmark = needs_data("pollux_profiles")
KINDS: tuple[Kind, ...] = goodput.KINDS


@cache
def truth(name: str) -> Truth:
    return Truth(Application(DATA / "pollux_profiles" / name))


def training(name: str = "cifar10", kind: Kind = "known", submit_s: float = 0.0) -> Training:
    return Training(
        id=f"{name} {submit_s}", truth=truth(name), submit_s=submit_s, most_gpus=32, kind=kind
    )


def test_placements_that_stand_for_a_size() -> None:
    assert shape_of(3, True) == (3,) and shape_of(4, False) == (2, 2)
    assert shape_of(3, False) == (2, 1) and shape_of(10, False) == (4, 4, 2)


@pytest.mark.parametrize("name", ["cifar10", "yolov3"])
def test_a_job_that_stays_takes_the_sum_of_its_epochs(name: str) -> None:
    job = training(name)
    job.place(((0, 1),))
    alone_s = truth(name).application.adaptive_run_s((1,))
    job.run(0.0, alone_s / 2)
    assert 0 < job.epoch < job.truth.epochs and job.end_s == np.inf
    assert job.shape == (1,) and job.limit == 2
    job.run(alone_s / 2, 1e9)
    assert job.end_s == pytest.approx(RESTART_S + alone_s)


def test_more_gpus_are_worth_more_later() -> None:
    """What the harmonic mean hides: 16 GPUs do little for an early epoch of cifar10."""
    own = truth("cifar10")
    gain = own.goodput((4,) * 4) / own.goodput((1,))
    assert gain[0] < 2 < 8 < gain[-1]
    assert own.mean_rate((4,) * 4) / own.mean_rate((1,)) == pytest.approx(
        float((1 / own.goodput((1,))).sum())
        / float(sum(np.minimum.reduce([1 / own.goodput(s) for s in _up_to((4,) * 4)])))
    )


def _up_to(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape_of(gpus, True) for gpus in range(1, sum(shape) + 1)]


def test_an_agent_knows_what_it_has_run_with_and_nothing_else() -> None:
    job, other = training(kind="learned"), training(kind="learned")
    for one in (job, other):
        alone, spread, _ = one.values()
        assert alone[7] == 8 * alone[0] and spread[7] == alone[7], "a job's GPUs are its speedup"
    stranger = replace_times(truth("cifar10"))
    other.truth = stranger
    for one in (job, other):
        one.place(((0, 1),))
        one.run(0.0, 300.0)
    assert job.values()[0].tolist() == other.values()[0].tolist(), "they differ on two GPUs alone"
    assert {key[:2] for key in job.seen} == {(1, 1)}
    for one in (job, other):
        one.place(((0, 2),))
        one.run(300.0, 300.0)
    assert job.values()[0][1] > 1.5 * other.values()[0][1]
    # It now predicts what it sees.
    local = job.truth.choices(2).local[job.way]
    assert job.model is not None
    assert job.model.step_s(1, 2, local) == pytest.approx(job.seen[1, 2, local].step_s, rel=0.1)


def replace_times(of: Truth) -> Truth:
    """The same application, twice as slow on several GPUs."""

    class Slower(Truth):
        def times(self, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[override]
            factor = 2.0 if sum(shape) > 1 else 1.0
            pass_s, step_s = Truth.times(of, shape)
            return factor * pass_s, factor * step_s

    return Slower(of.application)


@pytest.mark.parametrize("kind", KINDS)
def test_all_jobs_get_done_on_the_gpus_that_there_are(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[tuple[State, Best]] = []

    def watched(state: State) -> Best:
        found = best(state)
        rounds.append((state, found))
        return found

    monkeypatch.setattr(goodput, "best", watched)
    names = ["ncf", "cifar10", "ncf", "cifar10"]
    jobs = [training(name, kind, 90.0 * i) for i, name in enumerate(names)]
    play(jobs)
    assert all(state.is_sound(found.given) for state, found in rounds)
    for job in jobs:
        assert job.epoch == job.truth.epochs
        assert job.end_s > job.submit_s + RESTART_S
        assert job.submit_s + ROUND_S * 1e4 > job.end_s
    grown = [max(sum(g for _, g in parts) for parts in found.given) for _, found in rounds]
    assert grown[0] == 1 and all(b <= 2 * max(grown[:i]) for i, b in enumerate(grown) if i)
