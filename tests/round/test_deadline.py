"""With a tenth of a second every solver still gives a verified round, and large rounds take no
longer than they may; benchmarks/round_deadline.py holds the clock."""

import gc
import math
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings

from benchmarks.families import with_kinds, with_sharing
from optsched import Instance
from optsched.round.decide import decide
from optsched.round.verify import verify_round
from optsched.traces.generate.synth import generate
from optsched_solvers.native import highs
from optsched_solvers.native.highs import maximise
from optsched_solvers.native.within import within
from optsched_solvers.price import solver as price

from .random_rounds import rounds


@pytest.mark.parametrize(
    ("solver", "budget_s", "examples"),
    [("price", 0.1, 80), ("price", 1e-6, 50), ("highs", 1e-3, 50), ("milp", 0.1, 20)],
)
def test_a_round_in_a_hurry_is_verified(solver: str, budget_s: float, examples: int) -> None:
    @settings(max_examples=examples)
    @given(rounds(most_jobs=14))
    def check(instance: Instance) -> None:
        found = decide(instance, solver=solver, budget_s=budget_s, gap=0.0)
        assert not verify_round(instance, found.jobs)
        assert found.fallback is None
        assert not any("rejected" in note for note in found.notes), found.notes
        assert math.isfinite(found.bound) and found.bound >= found.value >= 0

    check()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Keep what other tests left in memory from being searched for garbage meanwhile."""
    gc.disable()
    yield
    gc.enable()


LATE = 1.3
"""A part of the budget that no round takes, on a machine that does other work beside."""


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("slow", [1, 3])
@pytest.mark.parametrize(
    ("make", "budget_s"),
    [
        (lambda: with_sharing(3000, 4096), 0.2),
        (lambda: with_sharing(300, 400), 0.1),
        (lambda: with_kinds(1000, 2048, 300), 1.0),
        (lambda: generate(jobs=20_000, gpus=32_768, seed=1, like="mixed", running=0.5), 0.4),
    ],
)
def test_large_rounds_keep_to_their_budget(
    make: Callable[[], Instance], budget_s: float, slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that counts processor time: that of a machine so many times as slow."""
    instance = make()
    decide(generate(jobs=20, gpus=64, seed=0, running=0.5))  # imports what is needed
    monkeypatch.setattr(time, "monotonic", lambda: slow * time.process_time())
    _native_calls_are_slow(monkeypatch, slow)
    started_s = time.monotonic()
    found = decide(instance, budget_s=budget_s, gap=0.0)
    assert time.monotonic() - started_s <= LATE * budget_s
    assert {entry.id for entry in found.jobs} == {job.id for job in instance.jobs}


def _native_calls_are_slow(monkeypatch: pytest.MonkeyPatch, slow: int) -> None:
    """Native solvers have a clock of their own, by which their limits pass `slow` times as fast."""
    monkeypatch.setattr(price, "within", lambda limit_s, call: within(limit_s / slow, call))
    monkeypatch.setattr(
        highs,
        "maximise",
        lambda program, limit_s, **gaps: maximise(program, limit_s / slow, **gaps),
    )
