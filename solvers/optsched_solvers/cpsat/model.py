"""The whole horizon as a CP-SAT model: optional intervals for every job, alternative and node.

Index names: j activity, a alternative, n node. `start[j]`, `end[j]` are ticks, `chosen[j][a]` says
which alternative runs. Classes (GPU types) carry one cumulative each; where that is not exact,
nodes carry their own, and `placing[j, a, n]` has the variable that puts a gang there with the GPUs
that one unit of it stands for: a literal for a gang on one node, an integer for one that may be
split.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ortools.sat.python import cp_model

from optsched.model import Job
from optsched.plugins.solver import Constrain

from ..scheduling.problem import Activity, Alternative, Choice, Problem, Schedule
from ..scheduling.windows import Span, merged
from .pairs import add_pair, kept_literal

SCALE = 1000.0
"""Fractional amounts (GiB, power) are counted in thousandths."""
LARGEST_CAPACITY = 2.0**31
"""Larger capacities are counted in coarser units, so that amounts times ticks stay within 64
bits."""


class Model:
    """Variables and constraints: a relaxation of the true problem, with times rounded down, or
    under side constraints a restriction, with times rounded up."""

    def __init__(
        self, problem: Problem, detailed: bool, constrain: Constrain | None = None
    ) -> None:
        self.problem = problem
        self.constrained = constrain is not None
        self.cp = cp_model.CpModel()
        self.start: list[Any] = []
        self.end: list[Any] = []
        self.own_end: dict[int, Any] = {}  # where the end is a variable of its own
        self.chosen: list[list[Any]] = []
        self.placing: dict[tuple[int, int, int], tuple[Any, int]] = {}
        self.exact_amounts = True
        self.horizon = self._horizon()
        self.node_detail = self._types_in_detail(detailed)
        self.load: dict[tuple[str, Any], list[tuple[Any, Any]]] = defaultdict(list)
        self._windows: dict[object, Mapping[frozenset[int], Sequence[Any]]] = {}
        for activity in problem.activities:
            self._add_activity(activity)
        for a, b in problem.couples():
            add_pair(self, a, b)
        self._add_precedence()
        self._add_windows()
        self._add_capacity()
        self._add_budgets()
        if constrain is not None:
            from .variables import Variables

            constrain(self.cp, Variables(self))

    # ------------------------------------------------------------------------------------- sizes
    # and choices

    def ticks(self, length: Alternative | None) -> int:
        """Return how long an alternative, or saving a job, takes; 0 where there is none."""
        if length is None:
            return 0
        return length.up if self.constrained else length.down

    def _horizon(self) -> int:
        """Return the horizon: no active schedule is longer than all lengths in a row after the last
        release, the last change of what use costs and the last window."""
        ends = [a.release_up for a in self.problem.activities]
        ends += [self.problem.tick.ceil(change_s) for change_s in self.problem.changes_s]
        windows = self.problem.windows
        ends += [self.problem.tick.ceil(at_s) for at_s in windows.instants_s]
        if not windows.is_whole:
            ends.append(self.problem.tick.ceil(windows.reach_s))
        total = sum(
            max(alternative.up for alternative in a.alternatives) + (a.hold.up if a.hold else 0)
            for a in self.problem.activities
        )
        return max(ends, default=0) + total + 1

    def _types_in_detail(self, detailed: bool) -> dict[str | None, bool]:
        """Return for each GPU type whether its nodes must be told apart."""
        types = self.problem.node_types
        members = {t: {n for n, own in enumerate(types) if own == t} for t in types}
        return {
            t: self.constrained or (detailed and not self.problem.is_one_pool(nodes))
            for t, nodes in members.items()
        }

    def _add_activity(self, activity: Activity) -> None:
        cp, j = self.cp, activity.index
        release = activity.release_up if self.constrained else activity.release_down
        start = cp.new_int_var(release, self.horizon, f"start_{j}")
        literals = [cp.new_bool_var(f"chosen_{j}_{a}") for a in range(len(activity.alternatives))]
        cp.add_exactly_one(literals)
        lengths = [self.ticks(alternative) for alternative in activity.alternatives]
        if len(set(lengths)) == 1:
            end: Any = start + lengths[0]
        else:
            end = self.own_end[j] = cp.new_int_var(0, self.horizon, f"end_{j}")
            cp.add(end == start + cp_model.LinearExpr.weighted_sum(literals, lengths))
        self.start.append(start)
        self.end.append(end)
        self.chosen.append(literals)
        if activity.running is not None:
            kept = kept_literal(self, activity)
            cp.add(start == 0).only_enforce_if(kept)
            if activity.hold is not None:
                held = self.ticks(activity.hold)
                cp.add(start >= held).only_enforce_if(~kept)
                if held:
                    interval = cp.new_optional_fixed_size_interval_var(0, held, ~kept, f"hold_{j}")
                    self._hold(activity, interval, activity.hold)
        for a in range(len(literals)):
            self._add_alternative(activity, a)

    def _add_alternative(self, activity: Activity, a: int) -> None:
        j, alternative = activity.index, activity.alternatives[a]
        interval = self._interval(activity, a, self.chosen[j][a], f"run_{j}_{a}")
        if alternative.fixed:
            self._hold(activity, interval, alternative)
            return
        self._draw(interval, alternative.shared)
        self._place(activity, a, interval)
        self._keep_clear(activity, a, interval)

    def _place(self, activity: Activity, a: int, interval: Any) -> None:
        """Put an alternative on nodes, as far as they are told apart."""
        alternative = activity.alternatives[a]
        types = {self.problem.node_types[n] for n, _ in alternative.rooms}
        for gpu_type in types if alternative.mode.gpus else ():
            self.load["type", gpu_type].append((interval, alternative.mode.gpus))
        if any(self.node_detail[gpu_type] for gpu_type in types):
            if alternative.spread == "node" or alternative.mode.gpus <= 1:
                self._add_one_node(activity, a, interval)
            else:
                self._add_split(activity, a, interval)

    def _keep_clear(self, activity: Activity, a: int, interval: Any) -> None:
        """Keep an alternative apart from the windows of the nodes that it takes: where it takes one
        of them, its interval overlaps none of theirs."""
        cp, j, alternative = self.cp, activity.index, activity.alternatives[a]
        for nodes, spans in self._closed(activity.job).items():
            there = [n for n, _ in alternative.rooms if n in nodes]
            literal, stay = self.chosen[j][a], interval
            if not there:
                continue
            if len(there) < len(alternative.rooms):
                on = [self.placing[j, a, n][0] for n in there if (j, a, n) in self.placing]
                literal = cp.new_bool_var(f"meets_{j}_{a}")
                cp.add_implication(literal, self.chosen[j][a])
                for variable in on:
                    cp.add(variable <= max(1, alternative.mode.gpus) * literal)
                stay = self._interval(activity, a, literal, f"clear_{j}_{a}")
            cp.add_no_overlap([stay, *spans])

    def _closed(self, job: Job) -> Mapping[frozenset[int], Sequence[Any]]:
        """Return the intervals of the windows that bar a job, by their nodes."""
        who = job.tenant, job.user
        if who not in self._windows:
            spans: dict[frozenset[int], list[tuple[int, int]]] = defaultdict(list)
            for closing in self.problem.windows.closings(job):
                spans[closing.nodes].append(self._ticks_of(closing.span))
            self._windows[who] = {
                nodes: [self._fixed(*span) for span in merged(own)] for nodes, own in spans.items()
            }
        return self._windows[who]

    def _ticks_of(self, span: Span) -> tuple[int, int]:
        """Return a window in ticks: start and length rounded down, or outwards under side
        constraints. One beyond reach ends where that does."""
        tick, reach_s = self.problem.tick, self.problem.windows.reach_s
        (from_s, to_s), begin = span, tick.floor(span[0])
        if self.constrained:
            return begin, max(begin, min(tick.ceil(to_s), self.horizon))
        return begin, begin + tick.floor(max(0.0, min(to_s, reach_s) - from_s))

    def _fixed(self, begin: int, end: int) -> Any:
        return self.cp.new_fixed_size_interval_var(begin, end - begin, "window")

    def _interval(self, activity: Activity, a: int, literal: Any, name: str) -> Any:
        length = self.ticks(activity.alternatives[a])
        start = self.start[activity.index]
        return self.cp.new_optional_fixed_size_interval_var(start, length, literal, name)

    def _draw(self, interval: Any, demand: Iterable[tuple[int, Any]]) -> None:
        for row, amount in demand:
            self.load["row", row].append((interval, amount))

    def _add_one_node(self, activity: Activity, a: int, interval: Any) -> None:
        """Add a gang on one node: a literal for each."""
        j, alternative = activity.index, activity.alternatives[a]
        mode, on = alternative.mode, []
        for n, _ in alternative.rooms:
            literal, stay = self.chosen[j][a], interval
            if len(alternative.rooms) > 1:
                literal = self.cp.new_bool_var(f"on_{j}_{a}_{n}")
                stay = self._interval(activity, a, literal, f"run_{j}_{a}_{n}")
            self.placing[j, a, n] = literal, mode.gpus
            on.append(literal)
            self._draw(stay, self.problem.table.on_node(activity.job, mode, n, mode.gpus))
        if len(on) > 1:
            self.cp.add(sum(on) == self.chosen[j][a])

    def _add_split(self, activity: Activity, a: int, interval: Any) -> None:
        """Add a gang in parts: GPUs on each node add up to the gang, within one rack where it must
        be."""
        cp, j, alternative = self.cp, activity.index, activity.alternatives[a]
        literal, mode = self.chosen[j][a], alternative.mode
        parts = []
        by_rack: dict[str | int, list[Any]] = defaultdict(list)
        for n, most in alternative.rooms:
            part = cp.new_int_var(0, min(most, mode.gpus), f"part_{j}_{a}_{n}")
            self.placing[j, a, n] = part, 1
            parts.append(part)
            by_rack[self.problem.racks[n]].append(part)
            demand = self.problem.table.on_node(activity.job, mode, n, 1)
            self._draw(interval, ((row, (part, amount)) for row, amount in demand))
        cp.add(sum(parts) == mode.gpus * literal)
        if alternative.spread == "rack":
            inside = {rack: cp.new_bool_var(f"rack_{j}_{a}_{rack}") for rack in by_rack}
            cp.add(sum(inside.values()) == literal)
            for rack, here in inside.items():
                cp.add(sum(by_rack[rack]) == mode.gpus * here)

    def _hold(self, activity: Activity, interval: Any, held: Alternative) -> None:
        """Hold the known demands of a running job on its nodes, for as long as `interval`."""
        self._draw(interval, self.problem.demands(activity, held, held.rooms))
        if activity.index in self.problem.partner:
            return
        by_type: dict[str | None, int] = defaultdict(int)
        for n, gpus in held.rooms:
            by_type[self.problem.node_types[n]] += gpus
        for gpu_type, gpus in by_type.items():
            if gpus:
                self.load["type", gpu_type].append((interval, gpus))

    # ------------------------------------------------------------------------------------- rows

    def _add_precedence(self) -> None:
        for activity in self.problem.activities:
            for i in activity.before:
                self.cp.add(self.start[activity.index] >= self.end[i])

    def _add_windows(self) -> None:
        """Take resources and quotas for the time of a window, and the GPUs of nodes that are
        closed for all, but for those on which jobs run."""
        problem = self.problem
        for dip in problem.windows.dips():
            interval = self._fixed(*self._ticks_of(dip.span))
            self.load["row", dip.row].append((interval, dip.amount))
        spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for closing in problem.windows.for_all:
            for n in closing.nodes:
                spans[n].append(self._ticks_of(closing.span))
        for n, own in spans.items():
            gpus = problem.idle_gpus(n)
            for span in merged(own) if gpus else ():
                interval = self._fixed(*span)
                self.load["row", problem.gpu_row[n]].append((interval, gpus))
                self.load["type", problem.node_types[n]].append((interval, gpus))

    def _add_capacity(self) -> None:
        gpus: dict[object, int] = defaultdict(int)
        for node in self.problem.instance.cluster.nodes:
            gpus[node.gpu_type] += node.gpus
        for (kind, which), load in self.load.items():
            capacity = gpus[which] if kind == "type" else self.problem.rows[which].capacity
            self._add_cumulative(load, float(capacity))

    def _in_integers(self, amounts: Sequence[float], capacity: float) -> tuple[list[int], int]:
        """Return amounts and capacity in whole units: as they are, or in thousandths (coarser where
        they are huge).

        Rounding relaxes the row where the model is a relaxation and tightens it where it is a
        restriction; `exact_amounts` says whether any was needed.
        """
        values = [*amounts, capacity]
        whole = all(float(x).is_integer() for x in values) and capacity <= LARGEST_CAPACITY
        scale = 1.0 if whole else min(SCALE, LARGEST_CAPACITY / max(capacity, 1e-9))
        self.exact_amounts = self.exact_amounts and all(
            abs(x * scale - round(x * scale)) <= 1e-6 for x in values
        )
        if not self.constrained:
            return [math.floor(x * scale + 1e-6) for x in amounts], math.ceil(
                capacity * scale - 1e-6
            )
        return [math.ceil(x * scale - 1e-6) for x in amounts], math.floor(capacity * scale + 1e-6)

    def _add_cumulative(self, load: Sequence[tuple[Any, Any]], capacity: float) -> None:
        amounts = [amount[1] if isinstance(amount, tuple) else amount for _, amount in load]
        scaled, limit = self._in_integers(amounts, capacity)
        intervals, demands = [], []
        for (interval, amount), units in zip(load, scaled, strict=True):
            if units:
                intervals.append(interval)
                demands.append(units * amount[0] if isinstance(amount, tuple) else units)
        self.cp.add_cumulative(intervals, demands, limit)

    def _add_budgets(self) -> None:
        for name, capacity in self.problem.instance.cluster.budgets.items():
            literals, amounts = [], []
            for activity in self.problem.activities:
                for literal, alternative in zip(
                    self.chosen[activity.index], activity.alternatives, strict=True
                ):
                    amount = alternative.mode.budgets.get(name, 0.0)
                    if amount:
                        literals.append(literal)
                        amounts.append(amount)
            if literals:
                demands, limit = self._in_integers(amounts, capacity)
                self.cp.add(cp_model.LinearExpr.weighted_sum(literals, demands) <= limit)

    # -------------------------------------------------------------------------------------
    # solutions

    def hint(self, schedule: Schedule) -> None:
        """Start the search from `schedule`."""
        self.cp.clear_hints()
        for variable, value in self.values(schedule):
            self.cp.add_hint(variable, value)

    def values(self, schedule: Schedule) -> Iterator[tuple[Any, int]]:
        """Yield every variable with its value in `schedule`."""
        for j, choice in enumerate(schedule):
            yield self.start[j], choice.start
            for a, literal in enumerate(self.chosen[j]):
                yield literal, int(a == choice.alternative)
            if j in self.own_end:
                length = self.ticks(self.problem.activities[j].alternatives[choice.alternative])
                yield self.own_end[j], choice.start + length
        for (j, a, n), (variable, unit) in self.placing.items():
            choice = schedule[j]
            gpus = dict(choice.split).get(n) if a == choice.alternative else None
            if variable is not self.chosen[j][a]:
                yield variable, 0 if gpus is None else gpus // unit if unit else 1

    def admits(self, schedule: Schedule) -> bool:
        """Return whether `schedule` satisfies every constraint, the side constraints included."""
        fixed = self.cp.clone()
        fixed.clear_objective()
        fixed.clear_hints()
        for variable, value in self.values(schedule):
            fixed.add(variable == value)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        return bool(solver.solve(fixed) in (cp_model.OPTIMAL, cp_model.FEASIBLE))

    def read(self, value: Any) -> tuple[Schedule, bool]:
        """Return the choices in a solution (`value` maps a variable to its value), and whether all
        nodes are known."""
        schedule, complete = [], True
        for activity in self.problem.activities:
            j = activity.index
            a = next(i for i, literal in enumerate(self.chosen[j]) if value(literal))
            split = rooms = activity.alternatives[a].rooms
            if not activity.alternatives[a].fixed:
                placing = [
                    (n, *self.placing[j, a, n]) for n, _ in rooms if (j, a, n) in self.placing
                ]
                taken = [(n, int(value(variable)), unit) for n, variable, unit in placing]
                split = tuple((n, count * unit) for n, count, unit in taken if count)
                complete = complete and (bool(split) or not rooms)
            schedule.append(Choice(a, int(value(self.start[j])), split))
        return schedule, complete
