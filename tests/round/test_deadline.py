"""With a tenth of a second every solver still gives a verified round; benchmarks/round_deadline.py
holds the clock."""

import math

import pytest
from hypothesis import given, settings

from optsched import Instance
from optsched.round.decide import decide
from optsched.round.verify import verify_round

from .random_rounds import rounds
from .settings import PATIENT


@pytest.mark.parametrize(
    ("solver", "budget_s", "examples"),
    [("price", 0.1, 200), ("price", 1e-6, 50), ("highs", 1e-3, 50), ("milp", 0.1, 30)],
)
def test_a_round_in_a_hurry_is_verified(solver: str, budget_s: float, examples: int) -> None:
    @settings(PATIENT, max_examples=examples)
    @given(rounds(most_jobs=14))
    def check(instance: Instance) -> None:
        found = decide(instance, solver=solver, budget_s=budget_s, gap=0.0)
        assert not verify_round(instance, found.jobs)
        assert found.fallback is None
        assert not any("rejected" in note for note in found.notes), found.notes
        assert math.isfinite(found.bound) and found.bound >= found.value >= 0

    check()
