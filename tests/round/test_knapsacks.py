"""Nodes filled as knapsacks: the fill is the best there is, the verifier accepts each packing, and
where memory is tight they are worth more than what jobs get one by one."""

from itertools import product

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from benchmarks.families import with_tight_memory
from optsched import Instance
from optsched.objectives import parse
from optsched.round.build import build
from optsched.round.deadline import NEVER
from optsched.round.decide import job_rounds
from optsched.round.model import RoundModel
from optsched.round.place import Packing
from optsched.round.realise import realise
from optsched.round.verify import verify_round
from optsched_solvers.price import knapsacks
from optsched_solvers.price.dual import optimise, relaxed
from optsched_solvers.price.knapsacks import Item, Knapsacks, best_counts
from optsched_solvers.price.rounding import one_guest_each, round_choice

from .random_rounds import rounds
from .test_price_search import request_of
from .test_solvers_agree import OBJECTIVES, model_of

ITEMS = st.tuples(
    st.integers(1, 4), st.integers(0, 12), st.sampled_from([0.0, 1.0, 2.5, 3.0]), st.integers(1, 3)
)


@settings(max_examples=60)
@given(st.lists(ITEMS, max_size=4), st.integers(0, 8), st.integers(0, 20))
def test_no_counts_are_worth_more(items: list[Item], gpus: int, ticks: int) -> None:
    def total(counts: tuple[int, ...], what: int) -> float:
        return sum(n * item[what] for n, item in zip(counts, items, strict=True))

    every = product(*(range(count + 1) for *_, count in items))
    best = max(total(own, 2) for own in every if total(own, 0) <= gpus and total(own, 1) <= ticks)
    counts = tuple(best_counts(items, gpus, ticks))
    assert total(counts, 0) <= gpus and total(counts, 1) <= ticks
    assert all(n <= item[3] for n, item in zip(counts, items, strict=True))
    assert total(counts, 2) == pytest.approx(best)


def wish_of(model: RoundModel, prices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What prices say of each job, as far as the rows allow, and the reduced values."""
    reduced = model.reduced_values(prices)
    wish = one_guest_each(model, model.best_options(reduced), reduced)
    return round_choice(model, wish, reduced), reduced


@settings(max_examples=25)
@given(rounds(most_jobs=12), st.sampled_from(OBJECTIVES), st.sampled_from([0.0, 0.01, 1.0]))
def test_each_packing_is_accepted(instance: Instance, objective: str, price: float) -> None:
    model = model_of(instance, objective)
    if not model.jobs:
        return
    prices = np.full(len(model.rows.limits), price)
    packings = list(Knapsacks(model, *wish_of(model, prices), NEVER).packings())
    event(f"packings: {len(packings)}")
    bound, _, _ = relaxed(model, prices)
    for packing in packings:
        assert not verify_round(instance, job_rounds(packing))
        assert (packing.chosen[model.must] >= 0).all()
        assert packing.worth() <= bound + 1e-9 * abs(bound)


def test_tight_memory_is_packed_better_than_job_by_job() -> None:
    model = build(with_tight_memory(120, 128), parse("wct"), 300.0, refill=False)
    *_, found = optimise(model, None, lambda: 60.0)
    wish, reduced = wish_of(model, found.prices)
    packings: list[Packing] = []
    by_job = realise(request_of(model, packings, []), wish, reduced)
    by_node = [packing.worth() for packing in Knapsacks(model, wish, reduced, NEVER).packings()]
    assert by_node[0] > 1.02 * by_job
    assert max(by_node[1:]) > by_node[0]
    assert len(by_node) == knapsacks.TURNS
