"""The workers of each ring for one slot, exactly."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

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
        return _of_one_type(choices, gpus.get(next(iter(kinds)), 0))
    return _of_several_types(choices, gpus, largest)


def _of_one_type(choices: Sequence[Sequence[Choice]], gpus: int) -> list[int | None]:
    """By dynamic programming over the GPUs."""
    value, picks = np.zeros(gpus + 1), []
    for choice in choices:
        best, pick = value.copy(), np.full(gpus + 1, -1)
        for i, (_, workers, gain) in enumerate(choice):
            if workers <= gpus:
                with_it = np.full(gpus + 1, -np.inf)
                with_it[workers:] = value[: gpus + 1 - workers] + gain
                pick = np.where(with_it > best, i, pick)
                best = np.maximum(with_it, best)
        value = best
        picks.append(pick)
    found: list[int | None] = []
    left = gpus
    for choice, pick in zip(reversed(choices), reversed(picks), strict=True):
        i = int(pick[left])
        found.append(None if i < 0 else i)
        left -= choice[i][1] if i >= 0 else 0
    return found[::-1]


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
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = EFFORT
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [None] * len(choices)
    return [next((i for i, at in enumerate(own) if solver.value(at)), None) for own in taken]
