"""A lower bound on sums of job costs from prices on GPU time, one price curve a GPU type.

Relax "at most m_c GPUs of type c are held at any time" with prices lam_c(t) >= 0 per GPU-second,
constant on each cell of a time grid and 0 after its end. Every job then chooses alone the type,
mode and start that minimise its cost plus its GPUs times the integral of the price over its run,
and

    bound(lam) = sum_j min_{a, s} [ cost_j(s + p_a) + g_a * integral_s^{s+p_a} lam ] - sum_c m_c *
    integral lam_c

holds for every lam (reference: Lagrangian relaxation of time-indexed formulations; van den Akker,
Hurkens and Savelsbergh, INFORMS J. Computing 12, 2000). Costs that are linear or concave between
their kinks are smallest at a kink of cost or price, so the candidate starts are the release, the
grid points, the grid points minus the run time and the deadline minus the run time: the minimum
over those is exact, not a discretisation. Of a cost that is convex in between, lines below it
stand for it (`sag`). What use costs over time has its kinks on the grid. Node detail, cores,
memory, quotas and precedence (but for the earliest starts it implies) are not priced; leaving them
out only lowers the bound.
"""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import assert_never

import numpy as np
import numpy.typing as npt

from optsched.bounds.ascent import Pace, ascend
from optsched.objectives import RankOfJobs, SumOfJobs, Usage

from .problem import Activity, Alternative, Problem, Schedule

MOST_CHANGES = 500
"""At most so many changes of what use costs are instants of the grid."""
PACE = Pace(patience=20, floor=0.05, averaged=0.0, progress=0.1, nearest=1e-3, ends=1e-6)
BY_TIME = 0.4
"""Share of the instants of a long grid that lie by the root of time alone."""
MEMORY = 200
"""Relaxed solutions remembered."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def applies(problem: Problem, level: int = 0) -> bool:
    """Return whether a level of the objective is a sum over jobs."""
    return len(problem.changes_s) <= MOST_CHANGES and not any(
        isinstance(term, RankOfJobs) for _, term in problem.objective.levels[level]
    )


class PriceBound:
    """The dual function of one level of a problem on one time grid, and its ascent.

    Values are counted from `certain`, what the jobs cost at the least one by one, so that a long
    past or a huge weight takes no digits.
    """

    def __init__(self, problem: Problem, grid_s: Floats, level: int = 0) -> None:
        self.problem, self.terms = problem, problem.objective.levels[level]
        self.grid_s = grid_s
        self.cells_s = np.diff(grid_s)
        nodes = problem.instance.cluster.nodes
        self.types = [
            t
            for t in dict.fromkeys(problem.node_types)
            if any(node.gpus for node in nodes if node.gpu_type == t)
        ]
        self.capacity = self._capacity()
        self._tabulate()
        self._choices: list[tuple[Ints, Floats]] = []

    def _capacity(self) -> Floats:
        """Return the GPUs of each type in each cell, without those that are free now on nodes that
        a window closes for all throughout it."""
        problem, grid_s = self.problem, self.grid_s
        capacity = np.zeros((len(self.types), len(self.cells_s)))
        for n, node in enumerate(problem.instance.cluster.nodes):
            closed = np.zeros(len(self.cells_s), dtype=bool)
            for own in problem.windows.for_all if node.gpus else ():
                from_s, to_s = own.span
                if n in own.nodes:
                    closed |= (grid_s[:-1] >= from_s) & (grid_s[1:] <= to_s)
            if node.gpus:
                there = np.where(closed, node.gpus - problem.idle_gpus(n), node.gpus)
                capacity[self.types.index(node.gpu_type)] += there
        return capacity

    # -------------------------------------------------------------------------------------- the
    # dual function

    def _tabulate(self) -> None:
        """Tabulate one row for each job and alternative worth pricing, one column for each
        candidate start."""
        problem, cells = self.problem, len(self.cells_s)
        rows = list(self._rows())
        self.job: Ints = np.array([activity.index for activity, _, _ in rows], dtype=np.int64)
        self.first_row: Ints = np.searchsorted(self.job, np.arange(len(problem.activities)))
        charged = [self._charged(alternative) for _, alternative, _ in rows]
        self.of_type = np.array([kind for kind, _ in charged], dtype=np.int64)
        self.gpus = np.array([gpus for _, gpus in charged], dtype=np.float64)
        self.length_s = np.array([alternative.seconds for _, alternative, _ in rows])
        self.fixed = np.array([alternative.fixed for _, alternative, _ in rows])
        width = 2 * (cells + 1) + 2
        starts = np.empty((len(rows), width))
        for i, (activity, alternative, from_s) in enumerate(rows):
            if alternative.fixed:
                starts[i] = 0.0
                continue
            deadline_s = activity.job.deadline_s
            kink_s = (
                from_s
                if deadline_s is None
                else deadline_s - problem.instance.now_s - alternative.seconds
            )
            starts[i, 0], starts[i, 1] = from_s, kink_s
            starts[i, 2 : cells + 3] = self.grid_s
            starts[i, cells + 3 :] = self.grid_s - alternative.seconds
            np.maximum(starts[i], from_s, out=starts[i])
        self.starts_s = starts
        costs = self._costs(rows)
        least: Floats = np.minimum.reduceat(costs.min(axis=1), self.first_row)
        self.certain = math.fsum(least.tolist())
        self.costs = costs - least[self.job][:, None]
        ends = starts + self.length_s[:, None]
        self._from_cell, self._from_rest = self._locate(starts)
        self._to_cell, self._to_rest = self._locate(ends)
        curves = [
            self._curve(job, kind, gpus)
            for job, kind, gpus in zip(
                self.job.tolist(), self.of_type.tolist(), self.gpus.tolist(), strict=True
            )
        ]
        self.curve: Ints = np.array([curve for curve, _ in curves], dtype=np.int64)
        self.amount: Floats = np.array([amount for _, amount in curves])
        offset = (self.curve * (cells + 1))[:, None]
        self._from_cell += offset
        self._to_cell += offset
        self._hold_rows()

    def _charged(self, held: Alternative) -> tuple[int, int]:
        """Return the GPU type for which an alternative pays, and for how many: of a gang that runs
        on several types, those of the type of which it holds the most."""
        if not held.mode.gpus:
            return 0, 0
        of_type: Counter[int] = Counter()
        for node, gpus in held.rooms if held.fixed else [(held.rooms[0][0], held.mode.gpus)]:
            of_type[self.types.index(self.problem.node_types[node])] += gpus
        return of_type.most_common(1)[0]

    def _curve(self, job: int, kind: int, gpus: float) -> tuple[int, float]:
        """Return the price curve of GPUs of a type that a job holds, and how often it is paid."""
        return kind, gpus

    def _rows(self) -> Iterator[tuple[Activity, Alternative, float]]:
        for activity, earliest_s in zip(
            self.problem.activities, self.problem.earliest_s, strict=True
        ):
            for alternative in self._undominated(activity):
                ready_s = activity.ready_s(activity.alternatives.index(alternative))
                yield activity, alternative, max(earliest_s, ready_s)

    def _undominated(self, activity: Activity) -> list[Alternative]:
        """Return alternatives that differ in what is priced: the shortest for each GPU type, count,
        clock and what it uses in a second on the cheapest nodes."""
        terms = [term for _, term in self.terms if isinstance(term, Usage)]
        kept: dict[object, Alternative] = {}
        free: list[Alternative] = []
        for i, alternative in enumerate(activity.alternatives):
            if alternative.fixed:
                free.append(alternative)
                continue
            mode = alternative.mode
            used = tuple(self.problem.usage_per_s(term, activity, i) for term in terms)
            key = mode.gpu_type, mode.gpus, mode.clock_mhz, used
            if key not in kept or alternative.seconds < kept[key].seconds:
                kept[key] = alternative
        return [*free, *kept.values()]

    def _costs(self, rows: list[tuple[Activity, Alternative, float]]) -> Floats:
        """Return the cost of each row at each candidate start, without prices."""
        problem, instance = self.problem, self.problem.instance
        costs = np.zeros_like(self.starts_s)
        for weight, term in self.terms:
            match term:
                case SumOfJobs():
                    ends_s = instance.now_s + self.starts_s + self.length_s[:, None]
                    by_job = [term.cost(instance, job) for job in instance.jobs]
                    gaps_s = _gaps(self.starts_s) if term.shape.sags else np.zeros_like(costs)
                    for i, (activity, _, _) in enumerate(rows):
                        if (cost := by_job[activity.index]) is not None:
                            sag = cost.sag(ends_s[i], gaps_s[i])
                            costs[i] += weight * (cost.at(ends_s[i]) - sag)
                case Usage():
                    for i, (activity, alternative, _) in enumerate(rows):
                        which = activity.alternatives.index(alternative)
                        costs[i] += weight * problem.usage(term, activity, which, self.starts_s[i])
                case RankOfJobs():
                    raise TypeError(f"prices do not bound {term.name}")
                case _:
                    assert_never(term)
        return costs

    def _locate(self, at_s: Floats) -> tuple[Ints, Floats]:
        """Return the cell of each instant (the last one after the grid) and the seconds since the
        cell began."""
        cell = np.clip(np.searchsorted(self.grid_s, at_s, side="right") - 1, 0, len(self.cells_s))
        return cell, np.maximum(at_s - self.grid_s[cell], 0.0)

    def _hold_rows(self) -> None:
        """Price the checkpoint that every alternative but to continue pays first."""
        self._hold: list[tuple[Ints, int, float, float]] = []
        for activity in self.problem.activities:
            if activity.hold is None or not activity.hold.mode.gpus or activity.hold.seconds <= 0:
                continue
            rows = np.flatnonzero(self.job == activity.index)
            rows = rows[self.starts_s[rows].max(axis=1) > 0]
            kind, gpus = self._charged(activity.hold)
            curve, amount = self._curve(activity.index, kind, float(gpus))
            self._hold.append((rows, curve, amount, activity.hold.seconds))

    def evaluate(self, prices: Floats) -> tuple[float, Floats]:
        """Return the value of the dual above `certain` at `prices` (curve x cell, per second), and
        how much is used of each beyond what there is."""
        none = np.zeros((len(prices), 1))
        slope = np.concatenate([prices, none], axis=1)
        integral = np.concatenate([none, np.cumsum(prices * self.cells_s, axis=1)], axis=1)
        flat_slope, flat_integral = slope.ravel(), integral.ravel()
        total = flat_slope[self._to_cell]
        total *= self._to_rest
        total += flat_integral[self._to_cell]
        before = flat_slope[self._from_cell]
        before *= self._from_rest
        before += flat_integral[self._from_cell]
        total -= before
        total *= self.amount[:, None]
        total += self.costs
        column = total.argmin(axis=1)
        best = total[np.arange(len(total)), column]
        for rows, curve, amount, seconds in self._hold:
            best[rows] += amount * float(np.interp(seconds, self.grid_s, integral[curve]))
        cheapest = np.minimum.reduceat(best, self.first_row)
        chosen = self._chosen(best, cheapest)
        used = self._used(len(prices), chosen, column)
        worth, there = self._sold(prices, used)
        self._choices.append((chosen, self.starts_s[chosen, column[chosen]]))
        del self._choices[:-MEMORY]
        return float(cheapest.sum() - worth), used - there

    def _sold(self, prices: Floats, used: Floats) -> tuple[float, Floats]:
        """Return what all that can be held is worth at most, and how much of each curve that is."""
        there = self.capacity * self.cells_s
        return float((there * prices).sum()), there

    def _chosen(self, best: Floats, cheapest: Floats) -> Ints:
        """Return the first row of each job that attains its minimum."""
        hits = np.flatnonzero(best == cheapest[self.job])
        _, first = np.unique(self.job[hits], return_index=True)
        return hits[first]

    def _used(self, curves: int, chosen: Ints, column: Ints) -> Floats:
        """Return how much of each curve the chosen rows use in each cell."""
        starts = self.starts_s[chosen, column[chosen]]
        ends = starts + self.length_s[chosen]
        low, high = self.grid_s[:-1], self.grid_s[1:]
        overlap = np.minimum(ends[:, None], high) - np.maximum(starts[:, None], low)
        np.maximum(overlap, 0.0, out=overlap)
        overlap *= self.amount[chosen][:, None]
        used = np.zeros((curves, len(low)))
        np.add.at(used, self.curve[chosen], overlap)
        taken = set(chosen.tolist())
        for rows, curve, amount, seconds in self._hold:
            if taken.intersection(rows.tolist()):
                used[curve] += amount * np.clip(np.minimum(seconds, high) - low, 0.0, None)
        return used

    # -------------------------------------------------------------------------------------- the
    # ascent

    def start_prices(self, schedule: Schedule) -> Floats:
        """Return prices read off a schedule: going back in time, each completion adds what a
        GPU-second of that job earns.

        On one machine of speed m served in WSPT order these prices are optimal.
        """
        prices = np.zeros((len(self.types), len(self.cells_s)))
        middle = (self.grid_s[:-1] + self.grid_s[1:]) / 2
        for kind in range(len(self.types)):
            rows = [
                (choice, activity.alternatives[choice.alternative], activity)
                for activity, choice in zip(self.problem.activities, schedule, strict=True)
                if choice.split
                and activity.alternatives[choice.alternative].mode.gpus
                and self.problem.node_types[choice.split[0][0]] == self.types[kind]
            ]
            if not rows:
                continue
            start = np.array([choice.start * self.problem.tick.length_s for choice, _, _ in rows])
            length = np.array([alternative.seconds for _, alternative, _ in rows])
            area = length * np.array([alternative.mode.gpus for _, alternative, _ in rows])
            slope = self._slopes([activity for _, _, activity in rows], start + length) / area
            running = (start[:, None] <= middle) & (middle < (start + length)[:, None])
            gpus = (area / length)[:, None] * running
            busy = gpus.sum(axis=0)
            served = np.divide((gpus * slope[:, None]).sum(axis=0), np.maximum(busy, 1e-9))
            full = np.minimum(busy / np.maximum(self.capacity[kind], 1.0), 1.0)
            prices[kind] = np.cumsum((served * full * self.cells_s)[::-1])[::-1]
        return prices

    def _slopes(self, activities: list[Activity], ends_s: Floats) -> Floats:
        """Return how fast each job's cost grows around its completion."""
        step_s = max(1e-3, float(self.grid_s[-1]) / 50)
        slopes = np.zeros(len(activities))
        for weight, term in self.terms:
            if isinstance(term, Usage):
                continue
            for i, activity in enumerate(activities):
                cost = term.cost(self.problem.instance, activity.job)
                if cost is not None:
                    at = self.problem.instance.now_s + ends_s[i]
                    slopes[i] += weight * max(
                        0.0, cost.at(at + step_s) - cost.at(at - min(step_s, ends_s[i] / 2))
                    )
        return slopes / (1.5 * step_s)

    def ascend(self, prices: Floats, target: float) -> Iterator[tuple[float, Floats]]:
        """Yield the best bound and its prices after each step of an ascent, until it no longer
        moves; `target` is the value of a schedule, above `certain`."""
        return islice(ascend(self.evaluate, self.cells_s, None, target, prices, PACE), 1, None)

    def suggestion(self) -> tuple[list[float], list[int | None], frozenset[int]]:
        """Return the mean start of every job over the last evaluations, the index of the GPU type
        it took most often, and the running jobs that were preempted more often than not.

        The mean of the relaxed solutions along the ascent tends to a primal one (Barahona and
        Anbil, Mathematical Programming 87, 2000).
        """
        starts: Floats = np.array([starts for _, starts in self._choices], dtype=np.float64)
        votes = np.zeros((len(self.problem.activities), len(self.types)))
        preempted = np.zeros(len(self.problem.activities))
        for rows, _ in self._choices:
            np.add.at(votes, (self.job[rows], self.of_type[rows]), self.gpus[rows] > 0)
            preempted[self.job[rows]] += ~self.fixed[rows]
        kinds = [int(vote.argmax()) if vote.any() else None for vote in votes]
        leaves = frozenset(
            activity.index
            for activity in self.problem.activities
            if activity.hold is not None and 2 * preempted[activity.index] > len(self._choices)
        )
        return [float(mean) for mean in starts.mean(axis=0)], kinds, leaves


def _gaps(starts_s: Floats) -> Floats:
    """Return for each start of a row the longer of the gaps to the starts beside it."""
    order = np.argsort(starts_s, axis=1)
    steps = np.diff(np.take_along_axis(starts_s, order, axis=1), axis=1)
    gaps = np.empty_like(starts_s)
    wider = np.maximum(np.pad(steps, ((0, 0), (1, 0))), np.pad(steps, ((0, 0), (0, 1))))
    np.put_along_axis(gaps, order, wider, axis=1)
    return gaps


def grid(problem: Problem, schedule: Schedule, cells: int) -> Floats:
    """Return instants between which prices are constant: starts and ends of a schedule, or where
    these are more than `cells` so many instants, denser where they are and early; and the changes
    of what use costs."""
    tick_s = problem.tick.length_s
    events = {0.0}
    for activity, choice in zip(problem.activities, schedule, strict=True):
        start_s = choice.start * tick_s
        events.add(start_s)
        events.add(start_s + activity.alternatives[choice.alternative].seconds)
    points = np.array(sorted(events))
    if len(points) > cells + 1:
        # Where few jobs start or end, prices change as well.
        share = (1 - BY_TIME) * np.linspace(0, 1, len(points))
        share += BY_TIME * np.sqrt(points / points[-1])
        points = np.interp(np.linspace(0, 1, cells + 1), share, points)
    windows_s = [at_s for at_s in problem.windows.instants_s if at_s < points[-1]]
    points = np.union1d(points, [*problem.changes_s, *windows_s])
    return points if len(points) > 1 else np.array([0.0, 1.0])
