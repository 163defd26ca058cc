"""Rounds small enough to try every option on every real placement: the rows cut off none of
them."""

from dataclasses import replace

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from optsched import Instance
from optsched.round import patterns
from optsched.round.decide import decide
from optsched.round.verify import verify_round
from tests.oracles.round_brute_force import best_round, combinations_of

from .random_rounds import rounds
from .test_solvers_agree import SAME, at_least, model_of

pytestmark = pytest.mark.usefixtures("in_one_tier")
ROUND_S = 10.0
MORE_GIB = st.sampled_from([0.0, 1e-9, 0.5, 9.0])
SIZES = (0, 1, 2, 3, 4, 4)


def check(instance: Instance, most: int) -> None:
    model = model_of(instance)
    if not model.jobs:
        return
    assume(combinations_of(model) <= most)
    best, jobs = best_round(model)
    assert not verify_round(instance, jobs)
    for solver in ("price", "highs"):
        found = decide(instance, round_s=ROUND_S, solver=solver, budget_s=60.0, gap=0.0)
        event(f"{solver} {found.status}, bound by {found.bound_source}")
        assert at_least(found.bound, best)
        assert at_least(best, found.value)
        if found.gap <= SAME:
            assert at_least(found.value, best)


@settings(max_examples=50)
@given(rounds(most_jobs=4, most_nodes=3, sizes=SIZES))
def test_no_real_round_beats_a_bound_and_a_proved_optimum_is_the_best_there_is(
    instance: Instance,
) -> None:
    check(instance, 20_000)


@settings(max_examples=30)
@given(rounds(most_jobs=4, most_nodes=3, sizes=(2, 4)), st.data())
def test_the_same_where_nodes_of_different_cores_and_memory_are_one_class(
    instance: Instance, data: st.DataObject
) -> None:
    nodes = tuple(
        replace(
            node,
            cpus=None if node.cpus is None else node.cpus + data.draw(st.integers(0, 3)),
            memory_gib=None if node.memory_gib is None else node.memory_gib + data.draw(MORE_GIB),
        )
        for node in instance.cluster.nodes
    )
    instance = replace(instance, cluster=replace(instance.cluster, nodes=nodes))
    with pytest.MonkeyPatch.context() as patch:
        apart = len(model_of(instance).classes)
        patch.setattr(patterns, "MOST_CLASSES", 0)
        event(f"classes are merged: {len(model_of(instance).classes) < apart}")
        check(instance, 20_000)


@pytest.mark.slow
@settings(max_examples=2000)
@given(rounds(most_jobs=4, most_nodes=3, sizes=SIZES))
def test_the_same_of_many_rounds(instance: Instance) -> None:
    check(instance, 1_000_000)
