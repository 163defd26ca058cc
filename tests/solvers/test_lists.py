"""Lists that are decoded from where they differ from the one in hand give the schedules that they
give when decoded whole."""

import math
import random
from dataclasses import replace

import pytest

from optsched.objectives import parse
from optsched.traces.generate.synth import generate
from optsched_solvers.cpsat.clock import Budget
from optsched_solvers.cpsat.lists import Decoder, List
from optsched_solvers.scheduling.evaluate import Evaluator
from optsched_solvers.scheduling.problem import Problem


def changed(code: List, problem: Problem, rng: random.Random) -> List:
    """Return a list with another priority, kept to other alternatives, waiting or preempted."""
    activity = rng.choice(problem.activities)
    j = activity.index
    match rng.randrange(4):
        case 0:
            priority = [*code.priority]
            priority[j] = rng.choice(priority) + rng.choice((-0.5, 0.5))
            return replace(code, priority=priority)
        case 1:
            fresh = tuple(i for i, a in enumerate(activity.alternatives) if not a.fixed)
            return replace(code, ways={**code.ways, j: fresh[-1:]} if fresh else {})
        case 2:
            return replace(code, waits={**code.waits, j: rng.randrange(10**5)})
    return code if activity.hold is None else replace(code, preempted=code.preempted ^ {j})


@pytest.mark.parametrize("types", [1, 3])
def test_schedules_are_those_of_whole_lists(types: int) -> None:
    instance = generate(jobs=40, gpus=32, seed=3, like="llm", running=0.3, gpu_types=types)
    problem, rng = Problem(instance, parse("wct")), random.Random(0)
    decoder = Decoder(problem, Evaluator(problem), Budget(60, 1, 0))
    code = List([float(j) for j in range(40)], {}, frozenset(), {})
    resumed = 0
    for _ in range(60):
        decoded = decoder.decode(code, math.inf)
        schedule = code.schedule(problem)
        assert (decoded and decoded.schedule) == schedule
        if decoded is not None and rng.random() < 0.5:
            resumed += decoder.kept is not None and decoded.stops[:2] == decoder.kept.stops[:2]
            decoder.kept = decoded
        kept = decoder.kept.code if decoder.kept else code
        code = changed(kept, problem, rng)
    assert resumed > 5


def test_gives_up_what_is_too_bad() -> None:
    problem = Problem(generate(jobs=40, gpus=32, seed=3), parse("wct"))
    evaluator = Evaluator(problem)
    decoder = Decoder(problem, evaluator, Budget(60, 1, 0))
    good = [a.shortest_s for a in problem.activities]
    decoder.kept = decoder.decode(List(good, {}, frozenset(), {}), math.inf)
    assert decoder.kept is not None
    limit = evaluator.values(decoder.kept.schedule)[0]
    assert decoder.decode(List([-s for s in good], {}, frozenset(), {}), limit) is None
