"""Max-min fairness over job pairs: time fractions on GPU types that maximise the smallest
normalised throughput.

Source: Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning
workloads", OSDI 2020, section 4 (max-min fairness, the LAS policy) with space sharing;
normalisation as in the authors' public code, policy `max_min_fairness_packed`. A *column* c is one
job, or an unordered pair of jobs that share the same GPUs; X[c, k] is the fraction of time it runs
on GPU type k. With T[j, c, k] the rate of job j in column c, s_c its GPUs (a pair's jobs need the
same number, otherwise X = 0), w_j the job's weight and N_k the GPUs of type k,

    max min_j  (s_j / w_j) * sum_{c of j, k} T[j, c, k] X[c, k]  /  sum_k T[j, j, k] E_k sum_{c of
    j, k} X[c, k] <= 1      for every job j       (a job is in one place at a time) sum_c s_c X[c,
    k] <= N_k          for every GPU type k E_k = N_k / sum N                 (the job's time spread
    over the GPU types as the cluster's GPUs are)

The factor s_j makes a job on s GPUs count like one on a single GPU that gets s times the time. E_k
is what that code computes: it starts from N_k / number of jobs and divides by the row's sum,
whatever that sum is. Like that code, this gives fractions, not placements, and does not ask whether
s_j GPUs of a type exist at once.

Jobs of one kind and weight are interchangeable, and jobs with equal rates are found to be of one
kind, so the program is solved over groups of them by column generation (`pair_columns`) and the
fractions are then dealt out so that each member gets the same. With as many kinds as jobs it is
column generation over jobs.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .active import Floats, Ints, grouped
from .pair_columns import Groups, Prices, generate


@dataclass(frozen=True)
class SharingProblem:
    """Jobs of a few kinds (or each of its own) on GPU types.

    `rate[a, k]` is the rate of a job of kind a on GPU type k, alone on its GPUs; `pair_rate[a, b,
    k]` that of a job of kind a while it shares them with one of kind b (0 where the two cannot);
    any unit, the same for one kind throughout. `gpus[a]` is what a job of kind a needs,
    `workers[k]` how many GPUs of type k there are. `kind[j]` is the kind of job j (default: job j
    is of kind j) and `weight[j]` divides its throughput, as Gavel's priority weights do (1).
    """

    rate: Floats
    pair_rate: Floats
    gpus: Floats
    workers: Floats
    kind: Ints | None = None
    weight: Floats | None = None

    @property
    def kind_of_job(self) -> Ints:
        """Return the kind of each job."""
        return np.arange(len(self.rate)) if self.kind is None else self.kind


class Shares(NamedTuple):
    """Fraction i: job `job[i]`, beside `partner[i]` (a higher number; -1: alone), on GPU type
    `gpu_type[i]`."""

    job: Ints
    partner: Ints
    gpu_type: Ints
    fraction: Floats
    value: float
    """The smallest normalised throughput, recomputed from the fractions."""
    bound: float
    """No fractions whatever give the worst-off job more than this."""
    throughput: Floats
    """Normalised, of each job."""
    prices: Prices
    """The dual solution behind the bound, one entry a job and one a GPU type; anyone can check the
    bound with it."""
    groups: int
    columns: int
    """In the last linear program."""
    rounds: int

    @property
    def gap(self) -> float:
        """Return (bound - value) / value."""
        return (self.bound - self.value) / self.value


def solve(problem: SharingProblem, gap: float = 1e-6) -> Shares:
    """Return fractions whose worst-off job is within `gap` (relative) of the bound.

    The gap is met up to the LP solver's tolerances (about 1e-8). Deterministic: no clock, no random
    numbers. Every job needs a rate above 0 on some GPU type that has GPUs.
    """
    kind = _same_kinds(problem)[problem.kind_of_job]
    weight = np.ones(len(kind)) if problem.weight is None else problem.weight
    # In the order of first appearance, so that job numbers, not rates, decide ties.
    first, group, count = grouped(kind, weight)
    order = np.argsort(first)
    group, first = np.argsort(order)[group], first[order]
    groups = _groups(problem, kind[first], weight[first], count[order])
    master, bound, prices, rounds = generate(groups, gap)
    # The LP's tolerance is more than none.
    used = [(column, amount) for column, amount in master.used() if groups.workers[column[2]] > 0]
    job, partner, gpu_type, fraction = deal_out(used, group)
    sorted_ = np.lexsort((gpu_type, partner, job))
    job, partner, gpu_type = job[sorted_], partner[sorted_], gpu_type[sorted_]
    fraction, throughput = _measured(groups, group, job, partner, gpu_type, fraction[sorted_])
    return Shares(
        job,
        partner,
        gpu_type,
        fraction,
        float(throughput.min()),
        bound,
        throughput,
        Prices(prices.throughput[group], prices.time[group], prices.gpus),
        len(groups.count),
        len(master.variables),
        rounds,
    )


def equal_share_rate(problem: SharingProblem) -> Floats:
    """Return the rate of each kind if its time is spread over the GPU types as the GPUs are: what
    throughput is divided by."""
    rate: Floats = (problem.rate * (problem.workers / problem.workers.sum())).sum(axis=1)
    return rate


def _same_kinds(problem: SharingProblem) -> Ints:
    """Return for every kind the first kind that differs from it in nothing: not alone, not as a
    partner, not in GPUs."""
    alike: dict[bytes, list[int]] = defaultdict(list)
    for kind, row in enumerate(np.column_stack([problem.rate, problem.gpus])):
        alike[row.tobytes()].append(kind)
    same = np.arange(len(problem.gpus))
    for candidates in alike.values():
        if (
            len(candidates) == 1
        ):  # the usual case where each job has a kind of its own: its pairs need no look
            continue
        seen: dict[bytes, int] = {}
        for kind in candidates:
            pairs = problem.pair_rate[kind].tobytes() + problem.pair_rate[:, kind].tobytes()
            same[kind] = seen.setdefault(pairs, kind)
    return same


def _groups(problem: SharingProblem, kind: Ints, weight: Floats, count: Floats) -> Groups:
    gpus, workers = problem.gpus[kind].astype(np.float64), problem.workers.astype(np.float64)
    unit = gpus / (weight * equal_share_rate(problem)[kind])
    pair_rate = problem.pair_rate[np.ix_(kind, kind)].transpose(2, 0, 1) * unit[:, None]
    return Groups(
        count, gpus, problem.rate[kind] * unit[:, None], np.ascontiguousarray(pair_rate), workers
    )


def deal_out(
    used: Iterable[tuple[tuple[int, int, int], float]], group: Ints
) -> tuple[Ints, Ints, Ints, Floats]:
    """Return the amounts of columns dealt out to the jobs of their groups: jobs, partners, GPU
    types and fractions."""
    members = [(group == g).nonzero()[0] for g in range(int(group.max()) + 1)]
    parts = [(np.zeros(0, dtype=np.int64),) * 3 + (np.zeros(0),)]
    for (first, second, gpu_type), amount in used:
        jobs, partners, part = spread(
            members[first], members[second] if second >= 0 else None, first == second
        )
        parts.append((jobs, partners, np.full(len(jobs), gpu_type), amount * part))
    left, right, gpu_types, fraction = (np.concatenate(part) for part in zip(*parts, strict=True))
    job = np.where(right < 0, left, np.minimum(left, right))
    return job, np.where(right < 0, -1, np.maximum(left, right)), gpu_types, fraction


def _measured(
    groups: Groups, group: Ints, job: Ints, partner: Ints, gpu_type: Ints, fraction: Floats
) -> tuple[Floats, Floats]:
    """Return the fractions after the LP's rounding is taken off them, and the throughput of each
    job."""
    paired = partner >= 0
    own, other = group[job], group[partner]
    rate = np.where(paired, groups.pair_rate[gpu_type, own, other], groups.rate[own, gpu_type])
    # One entry for each job of a column.
    jobs = np.concatenate([job, partner[paired]])
    times = np.concatenate([fraction, fraction[paired]])
    rates = np.concatenate([rate, groups.pair_rate[gpu_type, other, own][paired]])
    busiest = np.bincount(jobs, times, len(group)).max()
    used = np.bincount(gpu_type, fraction * groups.gpus[own], len(groups.workers))
    fullest = (used[groups.workers > 0] / groups.workers[groups.workers > 0]).max()
    excess = max(1.0, float(busiest), float(fullest))
    return fraction / excess, np.bincount(jobs, rates * times, len(group)) / excess


def spread(first: Ints, second: Ints | None, same: bool) -> tuple[Ints, Ints, Floats]:
    """Return jobs, partners and parts of 1 such that each member of a group gets the same, with as
    few pairs as that takes."""
    n = len(first)
    if second is None:
        return first, np.full(n, -1), np.full(n, 1 / n)
    if same:
        ring = first if n > 2 else first[:1]
        return ring, np.roll(first, -1)[: len(ring)], np.full(len(ring), 1 / len(ring))
    m = len(second)
    # Both groups laid out along 0 .. n * m, a member of one m long, of the other n: who lies beside
    # whom.
    ends = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    return first[ends[:-1] // m], second[ends[:-1] // n], np.diff(ends) / (n * m)


__all__ = ["Prices", "Shares", "SharingProblem", "equal_share_rate", "solve"]
