"""Bounds against all choices on tiny clusters, patterns by hand, and prices of any kind."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.model.instance import Instance
from optsched.packing.bound import upper_bound
from optsched.packing.certificate import ClassPrices, best_pattern, certified_units, node_classes
from optsched.packing.problem import WHOLE, problem
from tests.packing.cases import instance, instances, job, most_units, node


@settings(max_examples=60)
@given(instances())
def test_no_choice_exceeds_the_bound(found: Instance) -> None:
    asked = problem(found)
    bound = upper_bound(asked, np.arange(len(asked.names))).units
    assert most_units(found) <= bound * (1 + 1e-9) + 1e-3


@settings(max_examples=60)
@given(instances(), st.data())
def test_any_prices_prove_a_bound(found: Instance, data: st.DataObject) -> None:
    asked = problem(found)
    price = st.floats(0, 2)
    prices = [
        ClassPrices(
            per_gpu=data.draw(price),
            per_cpu=0.0 if one.cpus is None else data.draw(price),
            per_kib=0.0 if one.memory_kib is None else data.draw(price) / (1 << 20),
            per_part={
                part: data.draw(price)
                for part in {request.part for request in asked.requests if request.part}
            },
        )
        for one in node_classes(asked.nodes)
    ]
    counts = Counter(int(kind) for kind in asked.kinds)
    assert (
        most_units(found)
        <= certified_units(asked.nodes, asked.requests, counts, prices) * (1 + 1e-9) + 1e-3
    )


def test_parts_that_do_not_pair() -> None:
    """Three jobs of 0.6 fit on two GPUs one each; their sum, 1.8, would fit."""
    found = problem(instance([node("n", 2)], [job(f"j{i}", 1, 0.6) for i in range(3)]))
    assert upper_bound(found, np.arange(3)).units == pytest.approx(1.2 * WHOLE)


def test_cores_bind() -> None:
    """Eight cores serve two of the jobs with four each, whatever the GPUs."""
    found = problem(instance([node("n", 4, 8)], [job(f"j{i}", cpus=4) for i in range(4)]))
    assert upper_bound(found, np.arange(4)).units == pytest.approx(2 * WHOLE)


def test_memory_and_types_bind() -> None:
    jobs = [job(f"j{i}", gib=4, types="a") for i in range(4)]
    found = problem(instance([node("n", 4, gib=8, type_="a"), node("m", 4, type_="b")], jobs))
    assert upper_bound(found, np.arange(4)).units == pytest.approx(2 * WHOLE)


def test_a_job_that_fits_no_node_counts_for_nothing() -> None:
    found = problem(instance([node("n", 2), node("m", 2)], [job("a", 4), job("b")]))
    assert upper_bound(found, np.arange(2)).units == pytest.approx(WHOLE)


def test_patterns_by_hand() -> None:
    """0.5 + 0.5 at 0.5 each is beaten by 0.81 + 0.19."""
    worth, pattern = best_pattern({500_000: 0.5, 810_000: 0.9, 190_000: 0.2})
    assert worth == pytest.approx(1.1)
    assert pattern == {810_000: 1, 190_000: 1}
    assert best_pattern({}) == (0.0, {})


def test_prices_that_prove_nothing_are_refused() -> None:
    found = problem(instance([node("n", 2, 4)], [job("a")]))
    free = ClassPrices(per_gpu=0, per_cpu=0, per_kib=0, per_part={})
    assert certified_units(found.nodes, found.requests, {0: 1}, [free]) == WHOLE
    for bad in (
        ClassPrices(-1, 0, 0, {}),
        ClassPrices(float("nan"), 0, 0, {}),
        ClassPrices(0, 0, 1, {}),
    ):
        with pytest.raises(ValueError, match="price"):
            certified_units(found.nodes, found.requests, {0: 1}, [bad])
    with pytest.raises(ValueError, match="sets of prices"):
        certified_units(found.nodes, found.requests, {0: 1}, [])


def test_prices_on_parts_raise_that_of_the_gpu() -> None:
    """Room for two halves at 0.9 each on a GPU that is said to cost nothing: the GPU costs 1.8."""
    found = problem(instance([node("n", 1)], [job(f"j{i}", 1, 0.5) for i in range(9)]))
    cheap = ClassPrices(per_gpu=0, per_cpu=0, per_kib=0, per_part={500_000: 0.4})
    assert certified_units(found.nodes, found.requests, {0: 9}, [cheap]) == pytest.approx(
        min(0.8 + 9 * 0.1, 1) * WHOLE
    )
