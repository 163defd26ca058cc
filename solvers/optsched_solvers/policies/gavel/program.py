"""The jobs to whom a linear program gives shares of GPU types, alone and in pairs, and the max-min
program over them.

The base constraints are Gavel's: with X[c, k] the fraction of time that a combination c (a job, or
two jobs on the same GPUs) runs on GPU type k, each job is in one place at a time, and combinations
use no more GPUs of a type than exist.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from optsched.frozen import entity

from . import max_min_lp
from .active import Floats, Ints, grouped
from .max_min_pairs import SharingProblem, equal_share_rate
from .max_min_pairs import solve as solve_pairs

PAIRS_GAP = 1e-5
"""Relative distance of value and bound at which the program with pairs ends."""


@entity
class Program:
    """`rate[j, k]` is the work per second of job j on GPU type k (0 where it cannot run), `gpus[j,
    k]` what it takes there, `workers[k]` > 0 how many GPUs there are. Jobs of one `kind` have equal
    rates and gpus. With `pairs` two jobs may share GPUs; a job then takes as many GPUs wherever it
    can run."""

    kind: Ints
    rate: Floats
    gpus: Floats
    workers: Floats
    pairs: SharingProblem | None = None

    def equal_rate(self) -> Floats:
        """Return the rate of each job if its time is spread over the GPU types as the GPUs are."""
        rate: Floats = (self.rate * (self.workers / self.workers.sum())).sum(axis=1)
        return rate

    def isolated_rate(self) -> Floats:
        """Return the rate of each job on an equal part of each GPU type, which a job that has more
        time than all of it wastes."""
        part = self.workers / len(self.rate) / np.maximum(self.gpus, 1.0)
        part /= np.maximum(1.0, part.sum(axis=1, keepdims=True))
        rate: Floats = (self.rate * part).sum(axis=1)
        return rate


class Allocation(NamedTuple):
    """`share[j, k]` of job j's time alone on type k; and in pair i `fraction[i]` of the time of
    jobs `first[i]` and `second[i]` together on type `column[i]`."""

    share: Floats
    first: Ints
    second: Ints
    column: Ints
    fraction: Floats

    def throughput(self, program: Program) -> Floats:
        """Return the work per second of each job."""
        throughput: Floats = (program.rate * self.share).sum(axis=1)
        if program.pairs is not None:
            own, other = (
                program.pairs.kind_of_job[self.first],
                program.pairs.kind_of_job[self.second],
            )
            rate, column = program.pairs.pair_rate, self.column
            np.add.at(throughput, self.first, rate[own, other, column] * self.fraction)
            np.add.at(throughput, self.second, rate[other, own, column] * self.fraction)
        return throughput


NOBODY: Ints = np.zeros(0, dtype=np.int64)


def alone(share: Floats) -> Allocation:
    """Return an allocation without pairs."""
    return Allocation(share, NOBODY, NOBODY, NOBODY, np.zeros(0))


def allocation(dealt: tuple[Ints, Ints, Ints, Floats], shape: tuple[int, ...]) -> Allocation:
    """Return fractions, given by job, partner (-1: alone) and GPU type, as an allocation."""
    job, partner, gpu_type, fraction = dealt
    share, single = np.zeros(shape), partner < 0
    np.add.at(share, (job[single], gpu_type[single]), fraction[single])
    both = ~single
    return Allocation(share, job[both], partner[both], gpu_type[both], fraction[both])


class Most(NamedTuple):
    """An allocation, the least that it gives anybody, and what no allocation can beat."""

    allocation: Allocation
    value: float
    bound: float


def most(program: Program, unit: Floats) -> Most:
    """Give the worst-off job the most, each job's throughput measured in its `unit` > 0. Every job
    needs a rate above 0 somewhere. With pairs it ends where value and bound are `PAIRS_GAP`
    apart, relatively."""
    if program.pairs is None:
        return most_alone(program, program.rate / unit[:, None])
    pairs = program.pairs
    equal = equal_share_rate(pairs)
    weight = unit * (pairs.gpus / np.where(equal > 0, equal, 1.0))[pairs.kind_of_job]
    solution = solve_pairs(replace(pairs, weight=weight), PAIRS_GAP)
    dealt = solution.job, solution.partner, solution.gpu_type, solution.fraction
    return Most(allocation(dealt, program.rate.shape), solution.value, solution.bound)


def most_alone(program: Program, worth: Floats) -> Most:
    """Return the same without pairs, where a job's time is worth `worth[j, k]` in column k."""
    first, group, count = grouped(program.kind, worth)
    solution = max_min_lp.solve(worth[first], program.gpus[first], count, program.workers)
    share = np.where(program.rate[first] > 0, solution.share, 0.0)
    return Most(alone(share[group]), solution.value, solution.bound)
