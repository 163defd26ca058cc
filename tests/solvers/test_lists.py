"""Lists that are decoded from where they differ from the one kept give the schedules that they give
when decoded whole."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.files.faults import find_faults
from optsched.model.instance import Instance
from optsched.objectives import parse
from optsched.traces.generate.synth import generate
from optsched_solvers.cpsat.clock import Budget
from optsched_solvers.cpsat.lists import Decoder, List
from optsched_solvers.scheduling.problem import Problem
from tests.oracles import tiny


def changed(code: List, problem: Problem, data: st.DataObject) -> List:
    """Return a list with another priority, kept to other alternatives, waiting or preempted."""
    activity = data.draw(st.sampled_from(problem.activities))
    j = activity.index
    match data.draw(st.sampled_from(("priority", "ways", "waits", "preempted"))):
        case "priority":
            priority = [*code.priority]
            priority[j] = data.draw(st.sampled_from(priority)) + data.draw(
                st.sampled_from((-0.5, 0.0, 0.5))
            )
            return replace(code, priority=priority)
        case "ways":
            fresh = [i for i, a in enumerate(activity.alternatives) if not a.fixed]
            kept_to = tuple(data.draw(st.lists(st.sampled_from(fresh)))) if fresh else ()
            rest = {i: pick for i, pick in code.ways.items() if i != j}
            return replace(code, ways={**rest, j: kept_to} if kept_to else rest)
        case "waits":
            return replace(code, waits={**code.waits, j: data.draw(st.integers(0, 20))})
    return code if activity.hold is None else replace(code, preempted=code.preempted ^ {j})


def with_budget(instance: Instance, amount: float) -> Instance:
    """Return an instance whose jobs use up a budget, by mode where they list modes."""
    jobs = [
        replace(
            job,
            budgets={"energy": float(k % 3)},
            modes=tuple(
                replace(mode, budgets={"energy": float(n)}) for n, mode in enumerate(job.modes)
            ),
        )
        for k, job in enumerate(instance.jobs)
    ]
    cluster = replace(instance.cluster, budgets={"energy": amount})
    limited = replace(instance, cluster=cluster, jobs=tuple(jobs))
    return instance if find_faults(limited) else limited


def check(instance: Instance, data: st.DataObject, changes: int) -> None:
    """Decode a series of lists, each near the one kept."""
    problem = Problem(instance, parse("wct"))
    if not problem.activities:
        return
    decoder = Decoder(problem, Budget(60, 1, 0))
    jobs = len(problem.activities)
    code = List([float(j) for j in range(jobs)], {}, frozenset(), {})
    for _ in range(changes):
        schedule = code.schedule(problem)
        decoded = decoder.decode(code)
        assert (decoded and decoded.schedule) == schedule
        if decoded is not None and data.draw(st.booleans()):
            decoder.kept = decoded
        code = changed(decoder.kept.code if decoder.kept else code, problem, data)


@settings(max_examples=60)
@given(instance=tiny.instances(most_jobs=7), data=st.data())
def test_schedules_are_those_of_whole_lists(instance: Instance, data: st.DataObject) -> None:
    amount = data.draw(st.sampled_from((None, 3.0, 6.0)))
    check(instance if amount is None else with_budget(instance, amount), data, 5)


@settings(max_examples=30)
@given(instance=tiny.with_pairs(most_jobs=7), data=st.data())
def test_schedules_of_pairs_are_those_of_whole_lists(
    instance: Instance, data: st.DataObject
) -> None:
    check(instance, data, 5)


@pytest.mark.parametrize("types", [1, 3])
@settings(max_examples=3)
@given(data=st.data())
def test_schedules_of_many_jobs_are_those_of_whole_lists(types: int, data: st.DataObject) -> None:
    instance = generate(jobs=40, gpus=32, seed=3, like="llm", running=0.3, gpu_types=types)
    check(instance, data, 20)


def test_what_is_shared_is_not_decoded_again() -> None:
    problem = Problem(generate(jobs=64, gpus=32, seed=3), parse("wct"))
    decoder = Decoder(problem, Budget(60, 1, 0))
    priority = [float(j) for j in range(64)]
    kept = decoder.kept = decoder.decode(List(priority, {}, frozenset(), {}))
    assert kept is not None
    neighbour = List([*priority[:-2], *reversed(priority[-2:])], {}, frozenset(), {})
    decoded = decoder.decode(neighbour)
    assert decoded is not None
    assert len(decoded.stops) == 16
    assert all(a is b for a, b in zip(decoded.stops, kept.stops, strict=True))


def test_a_list_that_fits_nowhere_is_work_too() -> None:
    problem = Problem(tiny.single_gpu([3.0, 1.0]), parse("wct"))
    budget = Budget(60, 1, 0)
    decoder = Decoder(problem, budget)
    left = budget.fraction_left()
    assert decoder.decode(List([0.0, 1.0], {0: ()}, frozenset(), {})) is None
    assert budget.fraction_left() < left
