"""Orders that are bred for the least makespan: each is the schedule that serial generation makes of
it, and few jobs end as soon as they can."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.known_optima import SETS
from optsched.engine import solve
from optsched.model import Cluster, Instance, Job, Mode, Running, Slot, Window
from optsched.objectives import parse
from optsched.plugins.solver import SILENT
from optsched.traces.readers import psplib
from optsched_solvers.cpsat import beside, evolution
from optsched_solvers.cpsat.beside import Beside
from optsched_solvers.cpsat.clock import Budget
from optsched_solvers.cpsat.evolution import Evolution, applies
from optsched_solvers.cpsat.progress import Progress
from optsched_solvers.scheduling.evaluate import Evaluator
from optsched_solvers.scheduling.plans import plan_of
from optsched_solvers.scheduling.problem import Problem
from optsched_solvers.scheduling.schedule_generation import generate
from tests.clusters import equal_nodes
from tests.data import needs_data
from tests.verified import checked

MAKESPAN = parse("makespan")


@st.composite
def projects(draw: st.DrawFn, most_jobs: int = 12) -> Instance:
    """Jobs that wait for others, are released late, and need up to six resources in whole amounts,
    or GPUs of one pool."""
    kinds = [f"r{k}" for k in range(draw(st.integers(1, 6)))]
    gpus = draw(st.integers(0, 4))
    needs = st.fixed_dictionaries({kind: st.integers(0, 5).map(float) for kind in kinds})
    count = draw(st.integers(2, most_jobs))
    jobs = []
    for j in range(count):
        mode = Mode(
            gpus=draw(st.integers(0, gpus)) if gpus else 0,
            duration_s=float(draw(st.integers(1, 9))),
            resources=draw(needs),
        )
        before = draw(st.sets(st.integers(0, j - 1), max_size=3)) if j else set()
        jobs.append(
            Job(
                id=f"j{j}",
                gpus=mode.gpus,
                modes=(mode,),
                submit_s=float(draw(st.sampled_from((0, 0, 0, 7)))),
                after=tuple(f"j{i}" for i in sorted(before)),
            )
        )
    resources = dict.fromkeys(kinds, 7.0)
    nodes = equal_nodes(gpus, gpu_type="a", gpus=1)
    return Instance(cluster=Cluster(nodes=nodes, resources=resources), jobs=tuple(jobs))


def begun(instance: Instance, seconds: float = 60.0, seed: int = 0) -> Progress:
    """Return a search that has the schedule of one order."""
    problem = Problem(instance, MAKESPAN)
    progress = Progress(problem, Evaluator(problem), SILENT, Budget(seconds, 1, seed))
    progress.offer(generate(problem, [0.0] * len(problem.activities)))
    return progress


@settings(max_examples=100)
@given(instance=projects(), orders=st.integers(1, 60))
def test_ends_are_those_of_serial_generation(instance: Instance, orders: int) -> None:
    progress = begun(instance)
    problem = progress.problem
    assert applies(problem)
    evolution = Evolution(progress)
    compiled, population = evolution._justified, evolution._population
    compiled.evolve(evolution._project, evolution._profile, population, orders)
    for order, badness in zip(population.orders, population.badness, strict=True):
        if badness:
            priority = [float(place) for place in order.argsort()]
            schedule = generate(problem, priority)
            assert schedule is not None
            latest = max(problem.end(j, choice) for j, choice in enumerate(schedule))
            end = badness // (len(order) + 1)
            assert latest <= end  # it is by starts, and a pass in that order only moves jobs ahead
            checked(instance, plan_of(problem, schedule), "makespan")


@settings(max_examples=40, deadline=None)
@given(instance=projects(most_jobs=7))
def test_few_jobs_end_as_soon_as_they_can(instance: Instance) -> None:
    progress = begun(instance, seconds=0.3)
    Evolution(progress).run()
    best = solve(instance, "makespan", solver="cpsat", time_limit_s=20, workers=1, isolate=False)
    assert best.status == "optimal"
    assert progress.values[0] == pytest.approx(best.value)


@needs_data("known-optima")
@pytest.mark.parametrize(
    ("name", "optimum"), [("j3013_1", 58), ("j3045_1", 82), ("j309_1", 83), ("j3025_1", 93)]
)
def test_scarce_resources_of_published_projects(name: str, optimum: float) -> None:
    instance = psplib.read(SETS / "psplib-j30" / f"{name}.sm").instance
    progress = begun(instance)
    progress.proved[0] = optimum
    Evolution(progress).run()
    assert progress.values[0] == optimum
    assert progress.schedule is not None
    checked(instance, plan_of(progress.problem, progress.schedule), "makespan")


def long_chains() -> Instance:
    """Return jobs of which the first ones have the longest chains after them."""
    jobs = []
    for chain in range(4):
        for k in range(5):
            after = (f"{chain}.{k - 1}",) if k else ()
            mode = Mode(gpus=0, duration_s=1.5 + (7 * chain + 3 * k) % 5, resources={"r": 1 / 3})
            jobs.append(Job(id=f"{chain}.{k}", gpus=0, modes=(mode,), after=after))
    return Instance(cluster=Cluster(nodes=(), resources={"r": 1.0}), jobs=tuple(jobs))


def test_amounts_that_are_no_whole_numbers() -> None:
    instance = long_chains()
    progress = begun(instance, seconds=0.5)
    before = progress.values[0]
    Evolution(progress).run()
    assert progress.values[0] < before
    assert progress.schedule is not None
    checked(instance, plan_of(progress.problem, progress.schedule), "makespan")


def test_the_same_seed_breeds_the_same() -> None:
    def found(seed: int) -> Any:
        progress = begun(long_chains(), seconds=0.1, seed=seed)
        evolution = Evolution(progress)
        evolution.run()
        return evolution._population.orders.tolist()

    assert found(1) == found(1)
    assert found(1) != found(2)


@pytest.mark.parametrize("failing", ["here", "in the copy"])
def test_what_is_found_here_or_in_a_copy_is_taken(failing: str) -> None:
    progress = begun(long_chains(), seconds=2.0)

    def breed(self: Evolution, copies: list[Beside]) -> None:
        if not copies and failing == "in the copy":
            raise MemoryError
        if not copies or failing == "in the copy":
            bred(self, copies)

    bred, before = Evolution._breed, progress.values[0]
    with patch.object(beside, "most", return_value=1), patch.object(Evolution, "_breed", breed):
        Evolution(progress).run()
    assert progress.values[0] < before


def test_a_proved_schedule_ends_the_search() -> None:
    progress = begun(long_chains())
    progress.proved[0] = progress.values[0]
    Evolution(progress).run()
    assert progress.budget.fraction_left() > 0.99


def test_where_it_applies() -> None:
    instance = long_chains()
    assert applies(Problem(instance, MAKESPAN))
    assert not applies(Problem(instance, parse("wct")))
    assert not applies(Problem(instance, parse("makespan,wct")))
    gang = Job(id="g", gpus=2, modes=(Mode(gpus=2, gpu_type="a", duration_s=2.0),))
    nodes = equal_nodes(2, gpu_type="a", gpus=2)
    apart = replace(instance, cluster=replace(instance.cluster, nodes=nodes))
    apart = replace(apart, jobs=(*apart.jobs, gang))
    assert applies(Problem(apart, MAKESPAN)) == Problem(apart, MAKESPAN).is_one_pool({0, 1})
    one = replace(apart, cluster=replace(apart.cluster, nodes=nodes[:1]))
    assert applies(Problem(one, MAKESPAN))
    window = Window(from_s=1.0, to_s=2.0, nodes=("n0",))
    shut = replace(one, cluster=replace(one.cluster, windows=(window,)))
    assert not applies(Problem(shut, MAKESPAN))
    here = (Slot(node="n0", gpus=2),)
    runs = Running(job="g", mode=gang.modes[0], placement=here, remaining_s=2.0)
    assert not applies(Problem(replace(one, running=(runs,)), MAKESPAN))
    with patch.object(evolution, "MOST_JOBS", 5):
        assert not applies(Problem(instance, MAKESPAN))
