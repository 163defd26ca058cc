"""Node configurations as columns: no round on real nodes is worth more than their bound at any
prices, the verifier accepts what they pack, and where memory is tight both are better than what
rows and single nodes give."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from benchmarks.families import with_tight_memory
from optsched import Cluster, Instance, Job, Mode, Node, Profile, Running, Slot
from optsched.objectives import parse
from optsched.round.build import build
from optsched.round.deadline import NEVER
from optsched.round.decide import job_rounds
from optsched.round.model import RoundModel
from optsched.round.place import Packing
from optsched.round.realise import keep_all
from optsched.round.verify import verify_round
from optsched_solvers.price.configurations import Configurations
from optsched_solvers.price.dual import optimise
from optsched_solvers.price.guests import with_guest_rows
from optsched_solvers.price.knapsacks import Knapsacks
from optsched_solvers.price.units import Gathering, Unit
from tests.clusters import equal_nodes, one_node
from tests.oracles.round_brute_force import best_round, combinations_of

from .random_rounds import rounds
from .test_knapsacks import wish_of
from .test_solvers_agree import OBJECTIVES, at_least, model_of

pytestmark = pytest.mark.usefixtures("in_one_tier")
SIZES = (0, 1, 2, 3, 4, 4)


def left_s() -> float:
    return 60.0


def prices_of(model: RoundModel, price: float | None) -> np.ndarray:
    """The best prices of the rows, or one for all."""
    if price is not None:
        return np.full(len(model.rows.limits), price)
    *_, found = optimise(model, None, left_s)
    return found.prices


def check_bounds(instance: Instance, price: float | None, most: int) -> None:
    model = model_of(instance)
    assume(model.jobs and combinations_of(model) <= most)
    priced = with_guest_rows(model)
    prices = prices_of(priced, price)
    best, _ = best_round(model)
    search = Configurations(priced, prices, keep_all(model))
    assert at_least(search.bound, best)
    for bound in search.bounds(left_s):
        assert at_least(bound, best)
    event(f"the bound is the best round: {at_least(best, search.bound)}")


PRICES = st.sampled_from([None, None, 0.0, 0.1, 3.0])


@settings(max_examples=25)
@given(rounds(most_jobs=4, most_nodes=3, sizes=SIZES), PRICES)
def test_no_real_round_beats_a_bound_of_configurations(
    instance: Instance, price: float | None
) -> None:
    check_bounds(instance, price, 500)


@pytest.mark.slow
@settings(max_examples=1000)
@given(rounds(most_jobs=4, most_nodes=3, sizes=SIZES), PRICES)
def test_the_same_of_many_rounds(instance: Instance, price: float | None) -> None:
    check_bounds(instance, price, 100_000)


@settings(max_examples=12)
@given(rounds(most_jobs=12), st.sampled_from(OBJECTIVES))
def test_each_packing_is_accepted(instance: Instance, objective: str) -> None:
    model = model_of(instance, objective)
    assume(model.jobs)
    priced = with_guest_rows(model)
    search = Configurations(priced, prices_of(priced, None), keep_all(model))
    for _ in search.bounds(left_s):
        pass
    packings = list(search.packings(left_s))
    event(f"packings: {len(packings)}")
    for packing in packings:
        assert packing.model is model
        assert not verify_round(instance, job_rounds(packing))
        assert (packing.chosen[model.must] >= 0).all()
        assert at_least(search.bound, packing.worth())


@pytest.mark.parametrize("short", ["memory", "cores"])
def test_the_bound_is_what_a_node_can_hold_of_what_runs_and_waits(short: str) -> None:
    """On two nodes of four GPUs, of which one job runs: jobs take a quarter of the memory or the
    cores of a node each, or five eighths."""
    few = short == "cores"

    def job(name: str, amount: int, weight: float) -> Job:
        shape = Profile(
            cpus_per_gpu={amount: 1.0} if few else {},
            memory_gib_per_gpu=0.0 if few else float(amount),
        )
        return Job(id=name, gpus=1, duration_s=50.0, profile=shape, weight=weight)

    mode = Mode(gpu_type="a", gpus=1, cpus_per_gpu=2 if few else 0)
    at = Slot(node="n0", gpus=1, cpus=2 if few else 0)
    nodes = equal_nodes(2, gpu_type="a", gpus=4, cpus=8 if few else None, memory_gib=8.0)
    instance = Instance(
        cluster=Cluster(nodes=nodes),
        jobs=(
            *(job(f"even{i}", 2, 2.0 - i / 9) for i in range(5)),
            *(job(f"much{i}", 5, 1.5) for i in range(2)),
        ),
        running=(Running(job="even0", mode=mode, placement=(at,), remaining_s=50.0),),
    )
    model = model_of(instance)
    best, _ = best_round(model)
    search = Configurations(model, prices_of(model, None), keep_all(model))
    for _ in search.bounds(left_s):
        pass
    assert search.bound == pytest.approx(best, rel=1e-3)
    assert at_least(search.bound, best)


def test_a_job_that_must_go_on_takes_its_part_of_its_node_at_any_price() -> None:
    at = Slot(node="n0", gpus=2, cpus=0)
    instance = Instance(
        cluster=one_node("n0", gpu_type="a", gpus=4),
        jobs=(Job(id="stays", gpus=2, duration_s=50.0, preemptible=False),),
        running=(
            Running(
                job="stays", mode=Mode(gpu_type="a", gpus=2), placement=(at,), remaining_s=50.0
            ),
        ),
    )
    model = model_of(instance)
    best, _ = best_round(model)
    search = Configurations(model, prices_of(model, 3.0), keep_all(model))
    bound, *_ = search._priced(np.array([0.0, 6.0]))  # of a unit, and of that part
    assert at_least(bound, best)


def test_nothing_is_asked_for_a_part_on_a_node_without_gpus() -> None:
    at = Slot(node="cpu", gpus=0, cpus=4)
    saves = Profile(checkpoint_s=40.0, restore_s=40.0)
    instance = Instance(
        cluster=Cluster(
            nodes=(
                Node(name="gpu", gpu_type="a", gpus=4, cpus=8, memory_gib=8.0),
                Node(name="cpu", gpu_type="a", gpus=0, cpus=8, memory_gib=8.0),
            )
        ),
        jobs=(
            Job(id="cpu-only", gpus=0, cpus=4, duration_s=50.0, weight=9.0, profile=saves),
            *(Job(id=f"j{i}", gpus=1, duration_s=50.0 + i, memory_gib=3.0) for i in range(5)),
        ),
        running=(Running(job="cpu-only", mode=Mode(cpus=4), placement=(at,), remaining_s=50.0),),
    )
    model = model_of(instance)
    best, _ = best_round(model)
    search = Configurations(model, prices_of(model, None), keep_all(model))
    units = search._units
    dear = np.where(np.arange(len(search.prices)) < units.first + len(units.kinds), 0.0, 50.0)
    assert at_least(search._priced(dear)[0], best)
    assert all(at_least(bound, best) for bound in search.bounds(left_s))


def test_units_are_gathered_in_one_rack_in_exchange_for_others() -> None:
    nodes = tuple(
        Node(name=f"n{i}", gpu_type="a", gpus=1, memory_gib=4.0, rack=f"r{i // 2}")
        for i in range(4)
    )
    job = Job(id="any", gpus=1, duration_s=9.0)
    model = model_of(Instance(cluster=Cluster(nodes=nodes), jobs=(job,)))
    small, large = Unit(1, -1, 1, 0, 2.0), Unit(1, -1, 1, 0, 4.0)
    on_nodes = {small: Counter({0: 1, 2: 1}), large: Counter({1: 1, 3: 1})}
    gathering = Gathering(model, Packing(model).nodes, on_nodes)
    assert gathering.in_a_rack(small, 2) == {0: 1, 1: 1}
    assert gathering.of(large) == {2: 1, 3: 1}
    assert gathering.in_a_rack(small, 3) == {}


def test_where_memory_is_tight_bound_and_packing_are_better() -> None:
    model = build(with_tight_memory(120, 128), parse("wct"), 300.0, refill=False)
    *_, found = optimise(model, None, left_s)
    by_node = next(Knapsacks(model, *wish_of(model, found.prices), NEVER).packings())
    search = Configurations(model, found.prices, by_node)
    bounds = list(search.bounds(left_s))
    assert bounds == sorted(bounds, reverse=True)
    best = max(packing.worth() for packing in search.packings(left_s))
    assert search.bound < 0.997 * found.bound
    assert best > 1.03 * by_node.worth()
