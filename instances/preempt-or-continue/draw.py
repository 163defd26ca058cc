"""Instances drawn by seed, from Python's Mersenne twister by `random()` alone, so that every
version draws the same.

Seeds whose instances most rules of `benchmarks/preempt_or_continue.py` solve were passed over.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from notation import COST, Entry, gpus, instance, job

from optsched.model.instance import Instance
from optsched.model.profile import Profile, Sharing

SEEDS = (
    (5, 1),
    (5, 2),
    (6, 1),
    (6, 2),
    (7, 1),
    (7, 2),
    (8, 1),
    (8, 2),
    (9, 1),
    (9, 2),
    (10, 1),
    (10, 2),
)
"""(jobs, seed) of the family `mix`."""
PAIRED_SEEDS = (1, 2, 3, 4)
"""Seeds of the drawn instances with pairs that share GPUs."""

TYPED_SEEDS = ((4, 1), (5, 1), (6, 1), (6, 2), (7, 1))
"""(jobs, seed) of those with two GPU types and cores."""

T = TypeVar("T")


def mixed(jobs: int, seed: int) -> Instance:
    """One node of 4 GPUs, up to 7 jobs, or of 8, filled by running jobs (about half of all), the
    others waiting.

    Gangs of 1, 2 or 4, weights 1 to 3, run times of 60 to 900 s, and for each job a checkpoint of 5
    to 60 s, a start-up of 5 to 20 s and a restore of 10 to 60 s, all in steps of 5 s.
    """
    draw = Draw(1000 * jobs + seed)
    total = 4 if jobs <= 7 else 8
    entries: list[Entry] = []
    free = total
    for k in range(jobs):
        count = draw.one_of((1, 1, 2, 2, 4) if total == 8 else (1, 1, 2))
        weight, profile = draw.one_of((1, 1, 1, 2, 3)), draw.costs()
        if len(entries) < (jobs + 1) // 2 and count <= free:
            free -= count
            entries.append(
                job(f"r{k}", 3000, count, left=draw.steps(150, 900), weight=weight, profile=profile)
            )
        else:
            entries.append(job(f"w{k}", draw.steps(60, 500), count, weight=weight, profile=profile))
    return instance(gpus(total), *entries)


def mixed_types(jobs: int, seed: int) -> Instance:
    """Two nodes of 2 GPUs and 8 cores, one of type `fast`, one of type `slow`; about half of the
    jobs run.

    Rates of 0.4, 0.5, 0.8 or 1 on `slow`, and one of three tables of cores per GPU; else as in
    `mixed`. A running job has the most cores its table has.
    """
    draw = Draw(90000 + 1000 * jobs + seed)
    entries: list[Entry] = []
    free = {"n0": 2, "n1": 2}
    for k in range(jobs):
        table = draw.one_of(({1: 0.8, 2: 1.0}, {2: 0.8, 4: 1.0}, {1: 0.5, 2: 0.8, 4: 1.0}))
        profile = replace(
            draw.costs(),
            rate={"fast": 1.0, "slow": draw.one_of((0.4, 0.5, 0.8, 1.0))},
            cpus_per_gpu=table,
        )
        node, count = draw.one_of(("n0", "n1")), draw.one_of((1, 1, 2))
        weight = draw.one_of((1, 1, 1, 2, 3))
        if len(entries) < (jobs + 1) // 2 and count <= free[node]:
            free[node] -= count
            entries.append(
                job(
                    f"r{k}",
                    3000,
                    count,
                    left=draw.steps(150, 900),
                    on={node: count},
                    level=max(table),
                    weight=weight,
                    profile=profile,
                )
            )
        else:
            entries.append(job(f"w{k}", draw.steps(60, 500), count, weight=weight, profile=profile))
    return instance(gpus(2, 2, types=("fast", "slow"), cpus=8), *entries)


def mixed_pairs(seed: int) -> Instance:
    """Two nodes of one GPU each: a pair shares the first, a pair or a single job runs on the
    second, others wait.

    Rates beside a partner of 0.5, 0.625 or 0.8; the rest as in `mixed`.
    """
    draw = Draw(50000 + seed)
    names = [("a", "b"), ("c", "d")] if seed % 2 else [("a", "b"), ("c",)]
    entries: list[Entry] = []
    for node, together in enumerate(names):
        duty = draw.one_of((1.0, 0.8, 0.625))
        for name in together:
            beside = None if len(together) == 1 else together[1 - together.index(name)]
            profile = replace(draw.costs(), sharing=Sharing(duty=duty))
            entries.append(
                job(
                    name,
                    3000,
                    left=draw.steps(80, 800),
                    on={f"n{node}": 1},
                    beside=beside,
                    weight=draw.one_of((1, 1, 2)),
                    profile=profile,
                )
            )
    for k in range(draw.one_of((1, 2, 3))):
        entries.append(
            job(f"w{k}", draw.steps(40, 300), weight=draw.one_of((1, 1, 2)), profile=draw.costs())
        )
    return instance(gpus(1, 1), *entries)


class Draw:
    """Values drawn by seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def one_of(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[int(self._random.random() * len(values))]

    def steps(self, low: int, high: int, step: int = 5) -> int:
        """A number from `low` to `high` in steps."""
        return low + step * int(self._random.random() * ((high - low) // step + 1))

    def costs(self) -> Profile:
        """Costs of saving, starting and restoring."""
        return replace(
            COST,
            checkpoint_s=self.steps(5, 60),
            startup_s=self.steps(5, 20),
            restore_s=self.steps(10, 60),
        )
