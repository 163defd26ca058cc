"""The workers of each ring for one slot, exactly."""

from collections import Counter
from collections.abc import Sequence

from .configuration_choice import Configuration, by_course
from .counted_cpsat import solved

SCALE = 1e7
EFFORT = 0.2
"""CP-SAT's deterministic time, about as many seconds, after which the best choice so far is
taken."""
Choice = tuple[str | None, int, float]
"""GPU type, workers, gain of utility."""


def most_utility(
    choices: Sequence[Sequence[Choice]], gpus: dict[str | None, int]
) -> list[int | None]:
    """At most one choice for each job, with the largest sum of gains within the GPUs of each
    type."""
    best = [max(range(len(choice)), key=lambda i: choice[i][2], default=None) for choice in choices]
    wanted = Counter[str | None]()
    for choice, k in zip(choices, best, strict=True):
        if k is not None:
            wanted[choice[k][0]] += choice[k][1]
    if all(count <= gpus.get(kind, 0) for kind, count in wanted.items()):
        return best
    largest = max(gain for choice in choices for _, _, gain in choice)
    if largest <= 0:
        return [None] * len(choices)
    kinds = dict.fromkeys(kind for choice in choices for kind, _, _ in choice)
    if len(kinds) == 1:
        jobs = [
            [
                Configuration(0.0),
                *(Configuration(-gain, ((0, workers),)) for _, workers, gain in choice),
            ]
            for choice in choices
        ]
        picks = by_course(jobs, gpus.get(next(iter(kinds)), 0))
        return [i - 1 if i else None for i in picks]
    return _of_several_types(choices, gpus, largest)


def _of_several_types(
    choices: Sequence[Sequence[Choice]], gpus: dict[str | None, int], largest: float
) -> list[int | None]:
    """By CP-SAT, to within 1e-7 of the largest gain."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    taken = [[model.new_bool_var("") for _ in choice] for choice in choices]
    for own in taken:
        model.add_at_most_one(own)
    for gpu_type, count in gpus.items():
        used = [
            workers * at
            for choice, own in zip(choices, taken, strict=True)
            for (kind, workers, _), at in zip(choice, own, strict=True)
            if kind == gpu_type
        ]
        if used:
            model.add(sum(used) <= count)
    model.maximize(
        sum(
            round(gain / largest * SCALE) * at
            for choice, own in zip(choices, taken, strict=True)
            for (_, _, gain), at in zip(choice, own, strict=True)
        )
    )
    solver, _ = solved(model, EFFORT)
    if solver is None:
        return [None] * len(choices)
    return [next((i for i, at in enumerate(own) if solver.value(at)), None) for own in taken]
