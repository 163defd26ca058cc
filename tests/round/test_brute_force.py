"""Rounds small enough to try every option on every real placement: the rows cut off none of them."""

from hypothesis import event, given, settings

from optsched import Instance
from optsched.round.decide import decide
from optsched.round.verify import verify_round
from tests.oracles.round_brute_force import best_round

from .random_rounds import rounds
from .settings import PATIENT
from .test_solvers_agree import SAME, at_least, model_of

ROUND_S = 10.0


@settings(PATIENT, max_examples=200)
@given(rounds(most_jobs=4, most_nodes=3, sizes=(0, 1, 2, 3, 4, 4)))
def test_no_real_round_beats_a_bound_and_a_proved_optimum_is_the_best_there_is(instance: Instance) -> None:
    model = model_of(instance)
    if not model.jobs:
        return
    best, jobs = best_round(model)
    assert not verify_round(instance, jobs)
    for solver in ("price", "highs"):
        found = decide(instance, round_s=ROUND_S, solver=solver, budget_s=60.0, gap=0.0)
        event(f"{solver} {found.status}, bound by {found.bound_source}")
        assert at_least(found.bound, best)
        assert at_least(best, found.value)
        if found.gap <= SAME:
            assert at_least(found.value, best)
