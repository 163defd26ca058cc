"""On random rounds every solver gives a verified plan and a bound that no plan of any other
exceeds, and where all prove optimality they agree to the last digit."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node
from optsched.model.plan import CLOSED_GAP
from optsched.objectives import TERMS, parse
from optsched.round.build import build
from optsched.round.decide import decide
from optsched.round.exact import program
from optsched.round.files import dump_round, load_round
from optsched.round.model import RoundModel
from optsched.round.plan import RoundSolution
from optsched.round.verify import verify_round
from optsched_solvers.native.highs import maximise
from tests.clusters import equal_nodes

from .random_rounds import rounds

pytestmark = pytest.mark.usefixtures("in_one_tier")
SAME = 1e-9
OBJECTIVES = (*TERMS, "deadline,wct", "0.5*wct+2*tardiness")


def at_least(a: float, b: float) -> bool:
    """a >= b but for the rounding of sums."""
    return a >= b - SAME * max(abs(a), abs(b))


def decided(instance: Instance, objective: str, solver: str) -> RoundSolution:
    """A round without the loss of a gap, checked."""
    found = decide(instance, objective, round_s=10.0, solver=solver, budget_s=60.0, gap=0.0)
    assert found.fallback is None
    assert not any("rejected" in note for note in found.notes), found.notes
    assert not verify_round(instance, found.jobs)
    assert at_least(found.bound, found.value) and found.value >= 0
    return found


def model_of(instance: Instance, objective: str = "wct") -> RoundModel:
    return build(instance, parse(objective), 10.0)


@settings(max_examples=50)
@given(rounds(), st.sampled_from(OBJECTIVES))
def test_all_solvers_agree(instance: Instance, objective: str) -> None:
    found = [decided(instance, objective, solver) for solver in ("price", "highs", "milp")]
    best = max(one.value for one in found)
    assert all(at_least(one.bound, best) for one in found)
    if all(one.gap <= SAME for one in found):
        assert all(at_least(one.value, best) for one in found)


@settings(max_examples=70)
@given(rounds(most_jobs=14), st.sampled_from(OBJECTIVES))
def test_prices_never_prove_less_than_the_model_allows(instance: Instance, objective: str) -> None:
    model = model_of(instance, objective)
    found = decided(instance, objective, "price")
    if model.jobs:
        outcome = maximise(program(model), 60.0)
        assert outcome.proved
        assert at_least(outcome.value, found.value)
        assert at_least(found.bound, outcome.value)


@settings(max_examples=70)
@given(rounds(most_jobs=14), st.data())
def test_any_prices_give_a_bound(instance: Instance, data: st.DataObject) -> None:
    model = model_of(instance)
    if not model.jobs:
        return
    prices = np.array(
        data.draw(
            st.lists(
                st.one_of(st.just(0.0), st.floats(0.0, 2.0)),
                min_size=len(model.rows.limits),
                max_size=len(model.rows.limits),
            )
        )
    )
    assert at_least(model.bound(prices), maximise(program(model), 60.0).value)


@settings(max_examples=40)
@given(rounds(most_jobs=14))
def test_a_decided_round_respects_every_row(instance: Instance) -> None:
    found = decided(instance, "wct", "price")
    for row in found.prices:
        assert row.used <= row.capacity * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("solver", ["price", "highs"])
@pytest.mark.parametrize("name", ["GPUs", "slots", "cores", "memory"])
def test_a_resource_may_be_called_what_nodes_have(name: str, solver: str) -> None:
    """It is held as any other, and limits the round."""
    jobs = tuple(Job(id=f"j{i}", gpus=1, duration_s=9.0, resources={name: 1.0}) for i in range(3))
    there = Cluster(nodes=(Node(name="n", gpus=4),), resources={name: 2.0})
    found = decided(Instance(cluster=there, jobs=jobs), "wct", solver)
    assert [entry.decision for entry in found.jobs].count("start") == 2
    assert found.status == "optimal"


@pytest.mark.parametrize("solver", ["price", "highs"])
def test_same_input_same_output(solver: str) -> None:
    @settings(max_examples=15)
    @given(rounds(most_jobs=14))
    def check(instance: Instance) -> None:
        one, two = decided(instance, "wct", solver), decided(instance, "wct", solver)
        assert (one.jobs, one.value, one.bound, one.prices) == (
            two.jobs,
            two.value,
            two.bound,
            two.prices,
        )

    check()


@pytest.mark.parametrize("solver", ["price", "highs", "milp"])
def test_jobs_of_hardly_any_weight(solver: str) -> None:
    """No scale of the values is infinite."""
    jobs = tuple(Job(id=f"j{i}", gpus=1, duration_s=9.0, weight=1e-307) for i in range(2))
    instance = Instance(cluster=Cluster(nodes=(Node(name="n", gpus=1),)), jobs=jobs)
    found = decided(instance, "wct", solver)
    assert found.status == "optimal" and not found.notes


@pytest.mark.parametrize("weight", (1.0, 1e9))
def test_one_huge_weight_hides_nothing_of_the_other_jobs(weight: float) -> None:
    for seed in range(8):
        random = Random(seed)
        gangs = [random.choice((1, 1, 2, 4, 8)) for _ in range(30)]
        jobs = tuple(
            Job(
                id=f"j{k}",
                gpus=gpus,
                duration_s=random.expovariate(1 / 3600) + 1,
                weight=random.choice((1.0, 2.0, 4.0)) if k else weight,
            )
            for k, gpus in enumerate(gangs)
        )
        nodes = equal_nodes(4, gpu_type="a", gpus=8)
        instance = Instance(cluster=Cluster(nodes=nodes), jobs=jobs)
        found, best = (
            decide(instance, budget_s=30.0),
            decide(instance, solver="highs", gap=0.0, budget_s=30.0),
        )
        model = build(instance, parse("wct"), found.round_s)
        alone = float(model.best_reduced(model.options.value).sum())
        assert found.status == "optimal"
        assert best.value - found.value <= CLOSED_GAP * (alone - found.value) + 1e-12 * alone
        assert found.bound - found.value <= CLOSED_GAP * (alone - found.value) + 1e-12 * alone
        assert load_round(dump_round(found)).status == found.status
