"""The bound by prices of gangs: never above a reachable value, computed a second time by plain
arithmetic, and tight where prices by GPU let half of one gang run beside half of another."""

import os
from itertools import chain, combinations, islice
from operator import itemgetter
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Mode, Node, Profile, Running, Slot
from optsched.objectives import parse
from optsched.plugins.solver import Report, Request
from optsched.traces.generate.synth import generate as random_batch
from optsched_solvers.cpsat import beside, search
from optsched_solvers.cpsat.list_search import ListSearch
from optsched_solvers.cpsat.lists import List
from optsched_solvers.cpsat.progress import Progress
from optsched_solvers.scheduling.gangs import GangBound
from optsched_solvers.scheduling.lagrange import Floats, PriceBound, grid
from optsched_solvers.scheduling.problem import Problem
from optsched_solvers.scheduling.schedule_generation import generate
from tests.clusters import one_node
from tests.oracles import brute_force, tiny


def bounds(problem: Problem, steps: int, grid_s: Floats | None = None) -> tuple[float, float]:
    """Return the bounds by prices of GPUs and of gangs after so many steps of both."""
    made = generate(problem, [a.shortest_s for a in problem.activities])
    if made is None:
        return -np.inf, -np.inf
    by_gpu = PriceBound(problem, grid(problem, made, 20) if grid_s is None else grid_s)
    first = by_gpu.start_prices(made)
    tried = islice(by_gpu.ascend(first, 1e3), steps)
    best, found = max(tried, key=itemgetter(0), default=(-np.inf, first))
    by_gang = GangBound(problem, by_gpu.grid_s)
    done = iter(k / steps for k in range(steps + 1))
    improved, _ = max(by_gang.ascend_from(found, lambda: next(done)), key=itemgetter(0))
    return by_gpu.certain + best, by_gang.certain + improved


@pytest.mark.parametrize("objective", ["wct", "tardiness2", "flow2", "wct+3*deadline"])
@settings(max_examples=12)
@given(instance=tiny.instances(most_jobs=3, most_nodes=2))
def test_no_bound_is_above_the_optimum(objective: str, instance: Instance) -> None:
    goal = parse(objective)
    problem = Problem(instance, goal)
    assume(not problem.partner and instance.cluster.total_gpus)
    best = brute_force.optimum(instance, goal)
    assume(best is not None)
    assert best is not None
    _, bound = bounds(problem, 40)
    assert bound <= best[0][0] + 1e-6 * (1 + abs(best[0][0]))


def test_a_long_grid_has_instants_where_few_jobs_end() -> None:
    """A quarter of the jobs runs for most of the time."""
    lengths_s = [1.0 + k for k in range(60)] + [4000.0 + 100 * k for k in range(20)]
    problem = Problem(tiny.single_gpu(lengths_s), parse("wct"))
    made = generate(problem, [a.shortest_s for a in problem.activities])
    assert made is not None
    grid_s = grid(problem, made, 50)
    ends_s = [problem.end_s(*pair) for pair in zip(problem.activities, made, strict=True)]
    assert len(grid_s) == 51 and (grid_s[0], grid_s[-1]) == (0.0, max(ends_s))
    assert np.diff(grid_s).max() < 0.1 * grid_s[-1] and np.median(grid_s) < 0.2 * grid_s[-1]


def two_types() -> Instance:
    """A gang that fills a type, smaller jobs, and one of them that runs."""
    paused = Profile(rate={"a": 1.0, "b": 0.5}, checkpoint_s=3.0, startup_s=1.0, restore_s=2.0)
    jobs = {"gang": (4, 20.0), "half": (2, 15.0), "long": (1, 60.0), "short": (1, 5.0)}
    return Instance(
        cluster=Cluster(
            nodes=(Node(name="a", gpu_type="a", gpus=4), Node(name="b", gpu_type="b", gpus=3))
        ),
        jobs=tuple(
            Job(id=name, gpus=gpus, duration_s=seconds, weight=1.0 + gpus, profile=paused)
            for name, (gpus, seconds) in jobs.items()
        ),
        running=(
            Running(
                job="long",
                mode=Mode(gpu_type="a", gpus=1),
                placement=(Slot(node="a", gpus=1),),
                started_s=0.0,
                remaining_s=60.0,
            ),
        ),
    )


def test_prices_of_gangs_rise_where_they_were_0() -> None:
    """The gang runs while GPUs would be free of charge by prices by GPU; 137 is the optimum."""
    jobs = [(1, 8, 3), (4, 2, 2), (1, 3, 3), (1, 13, 2), (1, 5, 3), (2, 5, 1), (1, 2, 2), (1, 3, 2)]
    instance = Instance(
        cluster=one_node(gpu_type="a", gpus=4),
        jobs=tuple(
            Job(id=f"{i}", gpus=gpus, duration_s=float(seconds), weight=float(weight))
            for i, (gpus, seconds, weight) in enumerate(jobs)
        ),
    )
    _, bound = bounds(Problem(instance, parse("wct")), 300, grid_s=np.arange(0.0, 60.0))
    assert 0.94 * 137 <= bound <= 137


def plain(problem: Problem, bound: GangBound, prices: Floats) -> float:
    """Return the dual function by plain arithmetic: every start in tenths of a second and every
    set of gangs."""
    grid_s, total = bound.grid_s, 0.0
    curve = {key: prices[row] for key, row in bound.gangs.items()}

    def paid(job: int, kind: str | None, gpus: int, from_s: float, to_s: float) -> float:
        own = curve[job, bound.types.index(kind), float(gpus)]
        return sum(
            price * max(0.0, min(to_s, high) - max(from_s, low))
            for price, low, high in zip(own, grid_s[:-1], grid_s[1:], strict=True)
        )

    for activity in problem.activities:
        least, hold = np.inf, activity.hold
        for alternative in activity.alternatives:
            mode, seconds = alternative.mode, alternative.seconds
            saved, ready = 0.0, 0.0
            if hold is not None and not alternative.fixed:
                ready = hold.seconds
                saved = paid(activity.index, hold.mode.gpu_type, hold.mode.gpus, 0.0, ready)
            for wait in range(1 if alternative.fixed else int(grid_s[-1] * 10) + 1):
                start = ready + wait / 10
                own = paid(activity.index, mode.gpu_type, mode.gpus, start, start + seconds)
                cost = activity.job.weight * (start + seconds)
                least = min(least, saved + own + cost)
        total += least
    for kind, name in enumerate(bound.types):
        there = sum(n.gpus for n in problem.instance.cluster.nodes if n.gpu_type == name)
        own = [key for key in bound.gangs if key[1] == kind]
        every = chain.from_iterable(combinations(own, n) for n in range(len(own) + 1))
        fit = [some for some in every if sum(gpus for *_, gpus in some) <= there]
        for cell, length in enumerate(np.diff(grid_s)):
            total -= length * max(sum(curve[key][cell] for key in some) for some in fit)
    return total


@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_the_dual_is_what_plain_arithmetic_says(seed: int) -> None:
    problem = Problem(two_types(), parse("wct"))
    bound = GangBound(problem, np.array([0.0, 2.0, 7.0, 20.0, 33.0]))
    draw = np.random.default_rng(seed)
    prices = draw.uniform(0, 4, (len(bound.gangs), 4)) * (draw.random((1, 4)) > 0.2)
    value, _ = bound.evaluate(prices)
    assert bound.certain + value == pytest.approx(plain(problem, bound, prices), rel=1e-6)


def test_a_gang_that_fills_a_type_runs_beside_nothing() -> None:
    jobs = tuple(
        Job(id=name, gpus=gpus, duration_s=10.0, profile=Profile(rate={"a": 1.0}))
        for name, gpus in (("gang", 4), ("b", 1), ("c", 1))
    )
    cluster = one_node(gpu_type="a", gpus=4)
    by_gpu, by_gang = bounds(Problem(Instance(cluster=cluster, jobs=jobs), parse("wct")), 150)
    assert by_gpu < 36  # gang after b and c: 10 + 10 + 20
    assert 39 < by_gang <= 40


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_gang_that_runs_on_several_types_pays_for_no_gpu_that_it_does_not_hold(
    first: str,
) -> None:
    """Neither type has as many GPUs as the whole gang."""
    slots = sorted((Slot(node="a", gpus=2), Slot(node="b", gpus=2)), key=lambda s: s.node != first)
    everywhere = Profile(rate={"a": 1.0, "b": 1.0})
    jobs = (Job(id="mixed", gpus=4, duration_s=30.0, preemptible=False, profile=everywhere),)
    jobs += tuple(
        Job(id=name, gpus=1, duration_s=10.0, profile=everywhere) for name in ("c", "d", "e")
    )
    instance = Instance(
        cluster=Cluster(nodes=tuple(Node(name=s.node, gpu_type=s.node, gpus=3) for s in slots)),
        jobs=jobs,
        running=(
            Running(
                job="mixed",
                mode=Mode(gpus=4),
                placement=tuple(slots),
                started_s=0.0,
                remaining_s=30.0,
            ),
        ),
    )
    goal = parse("wct")
    best = brute_force.optimum(instance, goal)
    assert best is not None
    for bound in bounds(Problem(instance, goal), 60):
        assert bound <= best[0][0] + 1e-6


@pytest.mark.parametrize("copies", [0, 1])
def test_prices_of_gangs_are_found_in_a_copy_of_the_process_if_there_may_be_one(
    copies: int,
) -> None:
    """Their certificate is told before the bound."""
    instance = random_batch(jobs=70, gpus=32, gpu_types=1, seed=6, arrivals="batch")
    said: list[tuple[object, ...]] = []
    report = Report.telling(lambda *words: said.append(words))

    def price(progress: Progress, level: int, gangs: GangBound, found: Floats) -> None:
        assert gangs.has_gangs and found.any()
        progress.report.certificate(str(os.getpid()))
        progress.proved[level] += 1.0
        progress.report.bound(level, progress.proved[level], "prices")

    request = Request(
        instance=instance, objective=parse("wct"), time_limit_s=2.0, workers=2, certify=True
    )
    with (
        patch.object(beside, "most", return_value=copies),
        patch.object(search, "_price_gangs_of", price),
    ):
        search.search(request, report)
    told = [words for words in said if words[0] in ("bound", "certificate")]
    *_, (_, _, first, _), (kind, pid), (_, _, last, _) = told
    assert kind == "certificate" and last == first + 1.0
    assert (pid == str(os.getpid())) == (copies == 0)


def test_list_search_on_several_types_begins_with_what_prices_of_gangs_suggest() -> None:
    """Their certificate is told before the bound."""
    instance = random_batch(jobs=70, gpus=32, gpu_types=3, seed=6, arrivals="batch")
    said: list[tuple[object, ...]] = []
    report = Report.telling(lambda *words: said.append(words))
    suggested, quick_lists = search._suggested, search._quick_lists
    guides: list[tuple[type, List]] = []
    begun: list[List | None] = []

    def price(progress: Progress, level: int, gangs: GangBound, found: Floats) -> None:
        assert gangs.has_gangs and found.any()
        gangs.evaluate(gangs.of_gangs(found))
        progress.report.certificate("of gangs")
        progress.proved[level] += 1.0
        progress.report.bound(level, progress.proved[level], "prices")

    def suggest(progress: Progress, level: int, prices: PriceBound, pinned: set[int]) -> List:
        guides.append((type(prices), suggested(progress, level, prices, pinned)))
        return guides[-1][1]

    def search_lists(progress: Progress, guide: List | None) -> ListSearch:
        begun.append(guide)
        return quick_lists(progress, guide)

    request = Request(
        instance=instance, objective=parse("wct"), time_limit_s=2.0, workers=1, certify=True
    )
    with (
        patch.object(search, "_suggested", suggest),
        patch.object(search, "_quick_lists", search_lists),
        patch.object(search, "_price_gangs_of", price),
    ):
        search.search(request, report)
    told = [words for words in said if words[0] in ("bound", "certificate")]
    *_, (_, _, first, _), (kind, text), (_, _, last, _) = told
    assert (kind, text, last) == ("certificate", "of gangs", first + 1.0)
    assert [kind for kind, _ in guides] == [PriceBound, GangBound]
    assert begun == [guides[-1][1]]
