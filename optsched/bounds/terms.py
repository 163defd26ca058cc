"""Lower bounds on one term of an objective."""

from collections.abc import Iterator
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import assert_never

import numpy as np

from ..frozen import record
from ..model import Instance, Job, Mode, most_gpus
from ..objectives import Hinge, JobCost, RankOfJobs, Relaxation, Square, Term, Usage
from .machines import Family, Machine, families
from .mode_table import Flags, Floats, Ints, ModeTable
from .relaxations import edd_lateness, first_come_ends, last_end_s, mean_busy_times, srpt_cost
from .relaxed_modes import Density

Found = tuple[float, str]
"""A bound and what proves it."""
LATE_SLACK_S, LATE_SLACK = 1e-3, 1e-8
"""A deadline counts as missed only beyond this time and share of the time from now: more than the
verifier forgives along a chain of jobs, as one job more or less in time is no rounding error."""
LARGE_GANGS = 4.0
"""How much faster than a job alone the whole machine may be for `srpt_cost` to be worth its
time."""
TANGENTS, CLOSE_TANGENTS = 20, 1e-3
"""Most tangents of each square that are tried, and the share of a sum of squares within which they
are good enough."""


@record
class Outlook:
    """The earliest start of each job (counted from now), the time that it takes alone, and that of
    the jobs that wait for it."""

    modes: ModeTable
    heads_s: Floats
    seconds: Floats
    tails_s: Floats
    has_chains: bool
    families: tuple[Family, ...]

    @property
    def ends_s(self) -> Floats:
        """Return the earliest completion of each job."""
        return self.heads_s + self.seconds


def look(instance: Instance, modes: ModeTable) -> Outlook:
    """Return the heads and tails along the longest chains of `after`, and the machines that jobs
    compete for."""
    seconds = modes.least(Density.steady(np.ones(len(modes.job))))
    heads = np.array([max(0.0, job.submit_s - instance.now_s) for job in instance.jobs], np.float64)
    tails = np.zeros(len(heads))
    order = chains(instance)
    for j, before in order:
        heads[j] = max(heads[j], *(heads[i] + seconds[i] for i in before))
    for j, before in reversed(order):
        for i in before:
            tails[i] = max(tails[i], seconds[j] + tails[j])
    return Outlook(
        modes, heads, seconds, tails, bool(order), tuple(families(instance, modes, seconds))
    )


def chains(instance: Instance) -> list[tuple[int, list[int]]]:
    """Return the jobs that wait for others, with these, by position: no job before one that it
    waits for."""
    position = instance.position
    before = {
        j: [position[name] for name in job.after]
        for j, job in enumerate(instance.jobs)
        if job.after
    }
    return [(j, before[j]) for j in TopologicalSorter(before).static_order() if j in before]


def term_bounds(term: Term, instance: Instance, outlook: Outlook) -> Iterator[Found]:
    """Yield every bound on `term`, at least one."""
    if isinstance(term, Usage):
        yield cheapest(term, instance, outlook.modes), "the cheapest way of each job"
        return
    counted, cost = term.costs(instance, instance.jobs)
    by_itself = alone(cost, outlook.ends_s[counted], instance.now_s)
    yield term.combine(by_itself.tolist()), "each job alone"
    if not len(counted):
        return
    match term.relaxation:
        case Relaxation.NONE:
            pass
        case Relaxation.LAST_END:
            yield from _last_end(outlook, counted)
        case Relaxation.BUSY_TIME:
            yield from _busy_time(instance, outlook, counted, cost)
        case Relaxation.DUE_DATES:
            if isinstance(term, RankOfJobs) and term.rank(len(counted)) == len(counted):
                yield from _due_dates(instance, outlook, counted, cost)
        case _:
            assert_never(term.relaxation)


def alone(cost: JobCost, ends_s: Floats, now_s: float) -> Floats:
    """Return the cost of each job at its earliest completion: every cost is nondecreasing."""
    if cost.jumps:
        ends_s = ends_s * (1 - LATE_SLACK) - LATE_SLACK_S
    return np.asarray(cost.at(ends_s + now_s), np.float64)


def cheapest(term: Usage, instance: Instance, modes: ModeTable) -> float:
    """Return the sum over jobs of the cheapest way to do what is left, at the lowest price of each
    GPU type and, at the most that the job can use in a second, at the cheapest times."""
    units = modes.least(usage(term, instance, modes))
    tariff = term.tariff(instance.cluster)
    if tariff.is_constant:
        return tariff.rates[0] * float(np.sum(units))
    most = np.array([_most_per_s(term, instance, job) for job in instance.jobs])
    most = np.where(units > 0, most, 1.0)
    return float(np.sum(most * tariff.least(instance.now_s, units / most)))


def _most_per_s(term: Usage, instance: Instance, job: Job) -> float:
    """Return what a job uses in a second at most."""
    counts = [mode.gpus for mode in job.modes]
    counts.append(most_gpus(job))
    if job.id in instance.running_job:
        counts.append(instance.running_job[job.id].mode.gpus)
    nodes = {(node.gpu_type, node.gpu_price_per_h): node for node in instance.cluster.nodes}
    clocks = (None, *job.profile.clocks)
    return max(counts) * max(
        term.rate(job, Mode(gpu_type=node.gpu_type, clock_mhz=clock), node, 1)
        for node in nodes.values()
        for clock in clocks
    )


def usage(term: Usage, instance: Instance, modes: ModeTable) -> Density:
    """Return the lowest cost of a second in each mode."""
    price = instance.cluster.lowest_gpu_price_per_h
    by_type = np.array([price[gpu_type] for gpu_type in modes.empty.types])
    return modes.gpus.times(term.per_s(modes.power_w, modes.on_types(by_type)))


def _spread(count: int, which: Ints, values: Floats) -> Floats:
    """Return `values` at the positions `which` of so many zeros."""
    spread = np.zeros(count)
    spread[which] = values
    return spread


def _due_dates(
    instance: Instance, outlook: Outlook, counted: Ints, cost: JobCost
) -> Iterator[Found]:
    count = len(instance.jobs)
    due = _spread(count, counted, cost.origin_s - instance.now_s)
    counts = _spread(count, counted, np.ones(len(counted))) > 0
    for machine in (machine for family in outlook.families for machine in family.machines):
        jobs, work_s = _that_count(machine, counts)
        if len(jobs):
            late_s = edd_lateness(outlook.heads_s[jobs], work_s, due[jobs])
            yield late_s, f"{machine.name}, earliest due date first"


def _that_count(machine: Machine, counts: Flags) -> tuple[Ints, Floats]:
    """Return the jobs of a machine that count, and their work there."""
    here = counts[machine.jobs]
    return machine.jobs[here], machine.work_s[here]


def _busy_time(
    instance: Instance, outlook: Outlook, counted: Ints, cost: JobCost
) -> Iterator[Found]:
    """Bound a sum of costs; `scale` x (completion - origin), its positive part or the square of
    that is what counts."""
    count, is_squared = len(instance.jobs), isinstance(cost, Square)
    linear = Hinge(1.0, cost.origin_s) if is_squared else replace(cost, scale=1.0)
    alone_s = alone(linear, outlook.ends_s[counted], instance.now_s)
    columns = (cost.scale, cost.origin_s - instance.now_s, alone_s)
    scale, origin_s, alone_s = (_spread(count, counted, column) for column in columns)
    for family in outlook.families:
        if is_squared:
            value = _squares(outlook, family, scale, origin_s, alone_s)
        else:
            value, _ = _sum(outlook, family, scale, origin_s, scale * alone_s)
        yield value, f"{family.name}, preemptive"


def _squares(
    outlook: Outlook, family: Family, weights: Floats, origin_s: Floats, alone_s: Floats
) -> float:
    """Return a bound on the sum of weight x lateness^2, where nobody is less late than alone: the
    least sum of tangents, which touch all squares at the mean (Cauchy and Schwarz), then where the
    method of Frank and Wolfe (Naval Research Logistics Quarterly 1956) is on its way to the least
    sum of squares of the relaxation."""
    value, ends_s = _sum(outlook, family, weights, origin_s, weights * alone_s)
    best = max(0.0, value) ** 2 / max(float(weights.sum()), 1e-300)
    late_s = np.maximum(ends_s - origin_s, alone_s)
    for _ in range(TANGENTS):
        squares = float(np.sum(weights * late_s**2))
        if best >= (1 - CLOSE_TANGENTS) * squares:
            break
        slopes = 2 * weights * late_s
        value, ends_s = _sum(outlook, family, slopes, origin_s, slopes * alone_s)
        best = max(best, value - squares)
        towards = np.maximum(ends_s - origin_s, alone_s) - late_s
        curvature = float(np.sum(weights * towards**2))
        downhill = -float(np.sum(weights * late_s * towards))
        if curvature <= 0 or downhill <= 0:
            break
        late_s = late_s + min(1.0, downhill / curvature) * towards
    return best


def _last_end(outlook: Outlook, counted: Ints) -> Iterator[Found]:
    counts = _spread(len(outlook.heads_s), counted, np.ones(len(counted))) > 0
    # Jobs that wait for one that counts may not count themselves.
    tails_s = outlook.tails_s if counts.all() else np.zeros(len(counts))
    if outlook.has_chains:
        yield float((outlook.ends_s + tails_s)[counts].max()), "critical path"
    for family in outlook.families:
        for machine in family.machines:
            jobs, work_s = _that_count(machine, counts)
            if len(jobs):
                end_s = last_end_s(outlook.heads_s[jobs], work_s, tails_s[jobs])
                yield end_s, f"area of {machine.name}"


def _sum(
    outlook: Outlook, family: Family, scale: Floats, origin_s: Floats, cost_alone: Floats
) -> tuple[float, Floats]:
    """Return the least sum of scale x (completion - origin), or of its positive part, whichever
    `cost_alone` was made of, and completions (counted from now) with about that sum.

    Each machine stands for its jobs where that is better than each of them alone.
    """
    modes = outlook.modes
    one_piece = None
    if not modes.preemptive:
        one_piece = np.minimum.reduceat(modes.setup_s + modes.run_s, modes.first)
        one_piece[modes.job[modes.shares]] = 0.0
    total, ends_s = float(np.sum(cost_alone)), outlook.ends_s.copy()
    for machine in family.machines:
        heavy = scale[machine.jobs] > 0
        jobs, work = machine.jobs[heavy], machine.work_s[heavy]
        if not len(jobs):
            continue
        weights, heads = scale[jobs], outlook.heads_s[jobs]
        shortest = machine.shortest_s[heavy]
        if one_piece is not None:
            shortest = np.maximum(shortest, one_piece[jobs])
        # From here on values are counted above those of each job alone.
        base = float(np.sum(weights * origin_s[jobs])) + float(np.sum(cost_alone[jobs]))
        half = float(np.sum(weights * shortest)) / 2
        ends = first_come_ends(heads, work)
        gain = 0.0
        if (
            float(np.sum(weights * (ends - work / 2))) + half > base
        ):  # else the least cannot be above it either
            busy_s = mean_busy_times(heads, work, weights)
            gain = max(gain, float(np.sum(weights * busy_s)) + half - base)
            if gain > 0:
                ends_s[jobs] = busy_s + shortest / 2
        # Shortest remaining work says more only where a job alone takes a good part of the machine.
        is_equal = weights.min() == weights.max() and np.sum(shortest) < LARGE_GANGS * np.sum(work)
        if is_equal and float(np.sum(weights * ends)) > base + gain:
            gain = max(gain, float(weights[0]) * srpt_cost(heads, work) - base)
        total += gain
    return total, ends_s
