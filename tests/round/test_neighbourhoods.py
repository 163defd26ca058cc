"""Few nodes decided anew: each packing is a better round that the verifier accepts, and where few
nodes are all there are, no round is better."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from benchmarks.families import with_tight_memory
from optsched import Cluster, Instance, Job, Mode, Node, Profile
from optsched.objectives import parse
from optsched.round.build import build
from optsched.round.decide import job_rounds
from optsched.round.place import Packing
from optsched.round.realise import keep_all
from optsched.round.verify import verify_round
from optsched_solvers.price import SOLVER, neighbourhoods
from optsched_solvers.price.neighbourhoods import Neighbourhoods
from tests.clusters import equal_nodes
from tests.oracles.round_brute_force import best_round

from .random_rounds import rounds
from .test_price_search import request_of
from .test_solvers_agree import OBJECTIVES, model_of


def improved(packing: Packing) -> list[Packing]:
    """The packing and those that are found from it."""
    model = packing.model
    prices = np.zeros(len(model.rows.limits))
    search = Neighbourhoods(packing, model.options.value, prices, seed=0)
    return [packing, *search.better(lambda: 60.0, rough=False)]


@settings(max_examples=60)
@given(rounds(most_jobs=12), st.sampled_from([1, 2, 4]), st.sampled_from(OBJECTIVES))
def test_each_packing_is_better_and_accepted(
    instance: Instance, nodes: int, objective: str
) -> None:
    model = model_of(instance, objective)
    if not model.jobs:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbourhoods, "NODES", nodes)
        patch.setattr(neighbourhoods, "MISSES", 6)
        packings = improved(keep_all(model))
    event(f"better: {len(packings) > 1}")
    for before, after in pairwise(packings):
        assert after.worth() > before.worth()
        assert not verify_round(instance, job_rounds(after))
        assert (after.chosen[model.must] >= 0).all()


@st.composite
def on_few_nodes(draw: st.DrawFn) -> Instance:
    """Up to three nodes that lack memory or cores before GPUs."""
    shapes = st.builds(
        Profile,
        memory_gib_per_gpu=st.sampled_from([4.0, 10.1, 20.2]),
        cpus_per_gpu=st.sampled_from([{1: 1.0}, {1: 0.7, 4: 1.0}, {3: 1.0}]),
    )
    jobs = tuple(
        Job(
            id=f"j{i}",
            gpus=draw(st.sampled_from([1, 1, 2, 3])),
            duration_s=draw(st.sampled_from([10.0, 20.0, 50.0])),
            weight=draw(st.sampled_from([1.0, 1.5, 2.0])),
            profile=draw(shapes),
        )
        for i in range(draw(st.integers(3, 5)))
    )
    count = draw(st.integers(1, 3))
    nodes = (Node(name=f"n{i}", gpus=4, cpus=6, memory_gib=40.4) for i in range(count))
    return Instance(cluster=Cluster(nodes=tuple(nodes)), jobs=jobs)


@settings(max_examples=40)
@given(on_few_nodes())
def test_no_round_is_better_where_few_nodes_are_all(instance: Instance) -> None:
    model = model_of(instance)
    best, _ = best_round(model)
    *_, last = improved(Packing(model))
    event(f"the optimum is more than is kept: {best > keep_all(model).worth()}")
    assert last.worth() == pytest.approx(best, rel=1e-9)


def packings_of_price(monkeypatch: pytest.MonkeyPatch, misses: int) -> list[Packing]:
    """The packings of a round in which single nodes lack memory."""
    monkeypatch.setattr(neighbourhoods, "MISSES", misses)
    model = build(with_tight_memory(60, 64), parse("wct"), 300.0, refill=False)
    packings: list[Packing] = []
    SOLVER.solve(request_of(model, packings, []))
    return packings


def test_price_gets_further_by_nodes_and_always_as_far(monkeypatch: pytest.MonkeyPatch) -> None:
    without = packings_of_price(monkeypatch, 0)
    first, second = (packings_of_price(monkeypatch, 8) for _ in range(2))
    assert max(p.worth() for p in first) > 1.001 * max(p.worth() for p in without)
    assert [(p.chosen.tolist(), p.held) for p in first] == [
        (p.chosen.tolist(), p.held) for p in second
    ]


def test_a_rough_search_gives_up_sooner_with_larger_neighbourhoods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(Neighbourhoods, "_step", lambda self, _: sizes.append(self._size))
    packing = keep_all(build(with_tight_memory(300, 256), parse("wct"), 300.0, refill=False))
    prices = np.zeros(len(packing.model.rows.limits))
    search = Neighbourhoods(packing, packing.model.options.value, prices, seed=0)
    for rough, misses in ((False, [40, 40, 40]), (True, [20, 5, 2])):
        sizes.clear()
        assert list(search.better(lambda: 60.0, rough=rough)) == []
        assert [sizes.count(times * neighbourhoods.NODES) for times in (1, 2, 3)] == misses


def test_a_job_that_may_also_run_without_gpus_is_no_gang_to_split() -> None:
    modes = (Mode(duration_s=9.0), Mode(duration_s=4.0, gpus=1), Mode(duration_s=3.0, gpus=3))
    nodes = equal_nodes(2, gpu_type="a", gpus=2, cpus=2)
    jobs = tuple(Job(id=f"j{k}", modes=modes) for k in range(3))
    model = model_of(Instance(cluster=Cluster(nodes=nodes), jobs=jobs))
    best = max(packing.worth() for packing in improved(keep_all(model)))
    assert best == pytest.approx(best_round(model)[0])
