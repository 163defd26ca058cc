"""The value of an option: what running a job by it until the next round is worth under each
objective.

A round asks which jobs to run now; the objectives of `optsched.objectives` speak of completion
times. The value of an option translates one into the other. Let T be the seconds in which the
option completes the job, everything it still has to pay included, D the length of the round, and u
the *urgency* of the job: the cost of delaying its completion by one second, at the time it would
complete.

- Sums (wct, tardiness, deadline, throughput): value = u D / T, the job's index in Smith's rule
  (Naval Research Logistics Quarterly 3, 1956) times the length of the round. Between jobs that
  compete for GPUs it is the index for each GPU that counts, as the capacity rows see to.
  Jobs that may choose how many GPUs they take are weighed otherwise under wct: see
  `Valuation._shared_out`.
- Maxima and quantiles (makespan, lateness, tail, ftf, maxmin): value = u D (T* / T), where T* is
  the time to complete in the job's best option. A maximum is replaced by a sum of exponentials or
  of fourth powers, whose slopes are u.
- Resources (energy, cost, carbon, energy_cost): value = (D / T) (what the job's dearest option
  uses, or what the job would use if it waited, where that is less - what this one uses). Where
  waiting saves: value = - (D / T) what each second of it saves at best, so that beside wct a job
  waits exactly where its waiting costs less.

Where nothing starts between two rounds, GPUs of a job that completes stay idle until the next:
`refill` False replaces D / T by min(1, D / T).

**Preempt or continue.** Preempting r for w pays under wct exactly when (docs/mathematics.md,
section 1)

    w_w (rem_r - save_r) > w_r (save_r + load_w + rem_w + load_r).

So T of *keeping* r is rem_r - save_r, and T of *starting* w where others must leave for it is
load_w + rem_w + (save + load of those who leave): then keeping has the higher value for each GPU
exactly when the rule says so, for victims that are alike also when a gang needs several of them. A
job that would complete before it could be saved is kept. Work lost since the last checkpoint counts
as load of the victim, start-up still to go is taken off it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import assert_never

import numpy as np

from ..errors import InputError
from ..model import Instance, Job
from ..objectives import (
    TERMS,
    Hinge,
    Inverse,
    JobCost,
    Level,
    Linear,
    Objective,
    RankOfJobs,
    Square,
    Step,
    SumOfJobs,
    Term,
    Usage,
)
from .model import Bools, Floats, Kind, Options

LATER_LEVEL = 1e-3
"""Weight of each further objective of a sequence relative to the one before, both scaled to the
same mean."""
IDLE = 1e-3
"""Weight of the wct value that is added where an objective sees no worth in running a job, so that
GPUs do not idle. A sequence of objectives ends in wct for the same reason."""
LENGTH = 0.1
"""The power of its length by which a job that chooses its GPU type is worth less: 1 would be
Smith's index, 0 the sum of what jobs run at of their best rates."""
BEHIND = 0.5
"""The share of the jobs that complete later which an elastic job keeps waiting; the others have
GPUs of their own meanwhile. With speed-ups g^p, p is best (see `Valuation._rest`)."""
CHANGES = 2.0
"""An elastic job keeps its size for as long as so many jobs complete."""
SAME = 1e-9
"""Relative difference between what two options use that is taken for rounding."""


@dataclass(frozen=True, kw_only=True)
class Valuation:
    """Values the `options` of the active `jobs`.

    `longest_s` is the longest that the jobs which could be preempted still take; `weight` is that
    of each job, `elastic` says which may choose how many GPUs they take, `chooses_type` which
    others may choose their GPU type while there are enough for all, and `cost_s` what preempting
    each costs. `gpus` are those of each option, `power_w` and `price_per_h` what it draws and
    costs, where the objective asks.
    """

    instance: Instance
    jobs: Sequence[Job]
    options: Options
    round_s: float
    refill: bool
    longest_s: float
    weight: Floats
    elastic: Bools
    chooses_type: Bools
    cost_s: Floats
    gpus: Floats
    power_w: Floats
    price_per_h: Floats

    @cached_property
    def pace(self) -> Floats:
        """Return D / T of each option."""
        pace = self.round_s / self.options.swap_s
        return pace if self.refill else np.minimum(1.0, pace)

    @cached_property
    def best_s(self) -> Floats:
        """Return the seconds to completion of each job in its fastest option."""
        return np.asarray(np.minimum.reduceat(self.options.finish_s, self.options.first[:-1]))

    def of(self, objective: Objective) -> Floats:
        """Return the value of every option. All are at least 0."""
        if len(objective.levels) == 1:
            return self.level(objective.levels[0], IDLE)
        total = np.zeros(len(self.options.job))
        waits = np.zeros(len(total), dtype=bool)
        for k, level in enumerate((*objective.levels, ((1.0, TERMS["wct"]),))):
            signed = self._signed(level, 0.0)
            waits |= (signed < 0.0) & (total == 0.0)
            values = np.where(waits, 0.0, np.maximum(signed, 0.0))
            mean = float(values.mean())
            total += values * (LATER_LEVEL**k / mean if mean > 0 else 0.0)
        return total

    def level(self, level: Level, idle: float) -> Floats:
        """Return the values under a weighted sum of terms; `idle` is the weight of running a job at
        all where a term sees no worth in it."""
        return np.maximum(self._signed(level, idle), 0.0)

    def _signed(self, level: Level, idle: float) -> Floats:
        """Return the values, below 0 where the job had better wait."""
        values = np.zeros(len(self.options.job))
        for weight, term in level:
            values += weight * self._term(term, idle)
        return values

    def _term(self, term: Term, idle: float) -> Floats:
        job, pace = self.options.job, self.pace
        match term:
            case Usage():
                used, later, saved_per_s = self._used(term)
                most = np.maximum.reduceat(used, self.options.first[:-1])
                spared = np.minimum(most[job], later) - used
                spared[np.abs(spared) < SAME * most[job]] = 0.0
                worth = pace * spared + self._least(idle) * (float(used.mean()) or 1.0)
                return np.where(spared < 0, -pace * saved_per_s, worth)
            case SumOfJobs() if term.shape is Linear:
                urgency = _floored(self._urgency(term))
                shared_out = (self.elastic | self.chooses_type)[job]
                return urgency[job] * np.where(
                    shared_out, self._shared_out(urgency), self._with_second_best()
                )
            case SumOfJobs():
                urgency = self._urgency(term)
                return urgency[job] * pace + (float(urgency.mean()) or 1.0) * self._least(idle)
            case RankOfJobs():
                urgency = self._urgency(term)
                scale = (float(urgency.mean()) or 1.0) * self.round_s
                return (urgency * self.best_s)[job] * pace + scale * self._least(idle)
            case _:
                assert_never(term)

    def _least(self, idle: float) -> Floats:
        """Return what running at all counts where a term sees no worth in it."""
        weight = _floored(self.weight) / (float(self.weight.mean()) or 1.0)
        return np.asarray(idle * weight[self.options.job] * self.pace)

    def _with_second_best(self) -> Floats:
        """Return D / T of each option, at least that of the job's best option less what the option
        falls behind it, at the rate of the longest job (see above)."""
        options, begin = self.options, self.options.first[:-1]
        best_s = np.minimum.reduceat(options.swap_s, begin)[options.job]
        best = np.maximum.reduceat(self.pace, begin)[options.job]
        behind = (options.swap_s - best_s) / self.longest_s
        return np.asarray(np.maximum(self.pace, best * (1.0 - behind)), dtype=float)

    def _shared_out(self, urgency: Floats) -> Floats:
        """Return D / T of each option of jobs that may choose their GPUs, times what it costs to
        finish the job relative to others, and less what a move loses before the next.

        Smith's index gives GPUs to short jobs up to sizes at which they hardly help. What a unit of
        work saves if it is done now depends on how the job scales and on who completes later: for
        elastic jobs see `_rest`; for those that choose their type it is almost their length.
        """
        options = self.options
        if not (self.elastic.any() or self.chooses_type.any()):
            return self.pace
        rest = np.ones(len(self.best_s))
        if self.chooses_type.any():
            lengths_s = self.best_s[self.chooses_type]
            rest[self.chooses_type] = (lengths_s / _typical(lengths_s)) ** (1.0 - LENGTH)
        if self.elastic.any():
            costs = self._rest(urgency)[self.elastic]
            rest[self.elastic] = costs / _typical(costs)
        keeps = options.kind == Kind.KEEP
        per_s = float((1.0 / options.finish_s[keeps]).sum()) / CHANGES
        lost = np.minimum(1.0, self.cost_s[options.job] * per_s)
        left = np.where(options.kind == Kind.MOVE, 1.0 - lost, 1.0)
        return np.asarray(self.pace * rest[options.job] * left)

    def _rest(self, urgency: Floats) -> Floats:
        """Return what it costs to finish each job, in seconds of its own delay: the least over its
        options of the time that the option takes, plus the delay of the jobs that complete later
        while it holds its share of all GPUs.

        A job that does a fraction of its work now saves that fraction of this cost. For many jobs
        with the speed-up g^p on g GPUs, that is what the optimal policy saves where `BEHIND` is p
        (Berg, Vesilo and Harchol-Balter, heSRPT, Performance Evaluation 144, 2020).
        """
        last_first = np.argsort(-self.best_s / urgency, kind="stable")
        behind = np.empty(len(urgency))
        behind[last_first] = np.cumsum(urgency[last_first]) - urgency[last_first]
        share = self.gpus / max(1, self.instance.cluster.total_gpus)
        waits = BEHIND * (behind / urgency)[self.options.job] * share
        return np.minimum.reduceat(self.options.finish_s * (1.0 + waits), self.options.first[:-1])

    def _used(self, term: Usage) -> tuple[Floats, Floats, Floats]:
        """Return what every option uses until completion, the least that its job would use if it
        waited until a better time, and the most that a second of such waiting saves."""
        per_s = term.per_s(self.power_w, self.price_per_h)
        now_s, finish_s = self.instance.now_s, self.options.finish_s
        tariff = term.tariff(self.instance.cluster)
        used = per_s * tariff.integral(now_s + 0.0 * finish_s, finish_s)
        later, saved_per_s = np.full(len(used), np.inf), np.zeros(len(used))
        job, first = self.options.job, self.options.first[:-1]
        for change_s in tariff.changes_s(now_s):
            for start_s in (change_s + 0.0 * finish_s, change_s - finish_s):
                cost = per_s * tariff.integral(now_s + start_s, finish_s)
                cost = np.minimum.reduceat(np.where(start_s > 0, cost, np.inf), first)[job]
                wait_s = np.maximum.reduceat(np.maximum(start_s, 0.0), first)[job]
                saved = np.where(cost < used, used - cost, 0.0)
                later = np.minimum(later, cost)
                saved_per_s = np.maximum(saved_per_s, saved / np.where(wait_s > 0, wait_s, 1.0))
        return used, later, saved_per_s

    def _urgency(self, term: SumOfJobs | RankOfJobs) -> Floats:
        """Return the cost of delaying the completion of each job by one second, at `now + best_s`;
        0 for those that do not count."""
        counted, cost = term.costs(self.instance, self.jobs)
        late_s = self.instance.now_s + self.best_s[counted] - cost.origin_s
        typical_s = max(float(self.best_s.mean()), 1e-300)
        urgency = np.zeros(len(self.best_s))
        if len(counted):
            match term:
                case SumOfJobs():
                    urgency[counted] = _of_sum(cost, late_s, typical_s)
                case RankOfJobs():
                    urgency[counted] = _of_largest(term, cost, late_s, typical_s)
                case _:
                    assert_never(term)
        return urgency


def _typical(values: Floats) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _floored(urgency: Floats) -> Floats:
    """Return urgencies, or weights, of which none is 0: jobs of no weight still run where nothing
    else would."""
    return np.maximum(urgency, IDLE**2 * (float(urgency.max()) or 1.0))


def _of_sum(cost: JobCost, late_s: Floats, typical_s: float) -> Floats:
    """Return the slope of each cost, before its kink by the rule of apparent tardiness cost
    (Vepsalainen and Morton, Management Science 33, 1987)."""
    near = np.exp(-np.clip(-late_s / (2.0 * typical_s), 0.0, 50.0))
    per_scale: Floats
    match cost:
        case Linear():
            per_scale = np.ones(len(late_s))
        case Hinge():
            per_scale = near
        case Step():  # a job that is late already has nothing to lose
            per_scale = np.where(late_s <= 0, near, 0.0)
        case Square():
            per_scale = near * 2.0 * np.maximum(late_s, typical_s)
        case Inverse():
            per_scale = 1.0 / np.maximum(late_s, 1e-9) ** 2
        case _:
            assert_never(cost)
    return np.asarray(cost.scale * per_scale)


def _of_largest(term: RankOfJobs, cost: JobCost, late_s: Floats, typical_s: float) -> Floats:
    """Return the slopes of a sum of exponentials of the costs, or of fourth powers of ratios."""
    per_s: Floats
    match cost:
        case Linear():
            per_s = cost.scale
        case Inverse():
            per_s = 1.0 / cost.scale
        case Hinge() | Step() | Square():
            raise InputError(f"a round cannot weigh the largest of such costs as {term.name} has")
        case _:
            assert_never(cost)
    height = late_s * per_s
    if term.relative:
        return np.asarray(height**3 / max(float(height.max()), 1e-300) ** 3 * per_s)
    return np.asarray(np.exp(np.clip((height - height.max()) / typical_s, -50.0, 0.0)))
