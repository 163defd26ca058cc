"""The whole horizon as a CP-SAT model: optional intervals for every job, alternative and node.

Index names: j activity, a alternative, n node. `start[j]`, `end[j]` are ticks, `chosen[j][a]` says
which alternative runs. Classes (GPU types) carry one cumulative each; where that is not exact,
nodes carry their own, with literals `on[j, a, n]` for a gang on one node and integers `part[j, a,
n]` for one that may be split.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ortools.sat.python import cp_model

from optsched.plugins.solver import Constrain

from ..scheduling.problem import Activity, Alternative, Choice, Problem, Schedule, Split
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
        self.start: dict[int, Any] = {}
        self.end: list[Any] = [0] * len(problem.activities)
        self.own_end: dict[int, Any] = {}  # where the end is a variable of its own
        self.chosen: list[list[Any]] = [[] for _ in problem.activities]
        self.on: dict[tuple[int, int, int], Any] = {}
        self.part: dict[tuple[int, int, int], Any] = {}
        self.exact_amounts = True
        self.horizon = self._horizon()
        self.node_detail = self._types_in_detail(detailed)
        self.load: dict[tuple[str, Any], list[tuple[Any, Any]]] = defaultdict(list)
        for activity in problem.activities:
            self._add_activity(activity)
        for a, b in problem.couples():
            add_pair(self, a, b)
        self._add_precedence()
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
        """No active schedule is longer than all lengths in a row after the last release and the
        last change of what use costs."""
        ends = [a.release_up for a in self.problem.activities]
        ends += [self.problem.tick.ceil(change_s) for change_s in self.problem.changes_s]
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
        self.start[j], self.end[j], self.chosen[j] = start, end, literals
        if activity.running is not None:
            kept = kept_literal(self, activity)
            cp.add(start == 0).only_enforce_if(kept)
            if activity.hold is not None:
                held = self.ticks(activity.hold)
                cp.add(start >= held).only_enforce_if(~kept)
                if held:
                    interval = cp.new_optional_fixed_size_interval_var(0, held, ~kept, f"hold_{j}")
                    self._hold(activity, interval, activity.hold)
        for a, alternative in enumerate(activity.alternatives):
            self._add_alternative(activity, a, alternative, start, literals[a])

    def _add_alternative(
        self, activity: Activity, a: int, alternative: Alternative, start: Any, literal: Any
    ) -> None:
        cp, j = self.cp, activity.index
        length = self.ticks(alternative)
        interval = cp.new_optional_fixed_size_interval_var(start, length, literal, f"run_{j}_{a}")
        if alternative.fixed:
            self._hold(activity, interval, alternative)
            return
        for row, amount in alternative.shared:
            self.load["row", row].append((interval, amount))
        rooms = alternative.rooms
        if not rooms:
            return
        gpus = alternative.mode.gpus
        gpu_type = self.problem.node_types[rooms[0][0]]
        if gpus:
            self.load["type", gpu_type].append((interval, gpus))
        elif not self.node_detail[gpu_type] and all(
            not self.node_detail[self.problem.node_types[n]] for n, _ in rooms
        ):
            return
        if gpus and not self.node_detail[gpu_type]:
            return
        if alternative.spread == "node" or gpus <= 1:
            on = []
            for n, _ in rooms:
                here = literal if len(rooms) == 1 else cp.new_bool_var(f"on_{j}_{a}_{n}")
                self.on[j, a, n] = here
                on.append(here)
                stay = (
                    interval
                    if len(rooms) == 1
                    else cp.new_optional_fixed_size_interval_var(
                        start, length, here, f"run_{j}_{a}_{n}"
                    )
                )
                for row, amount in self.problem.table.on_node(
                    activity.job, alternative.mode, n, gpus
                ):
                    self.load["row", row].append((stay, amount))
            if len(rooms) > 1:
                cp.add(sum(on) == literal)
            return
        self._add_split(activity, a, alternative, rooms, interval, literal)

    def _add_split(
        self,
        activity: Activity,
        a: int,
        alternative: Alternative,
        rooms: Split,
        interval: Any,
        literal: Any,
    ) -> None:
        """A gang in parts: GPUs on each node add up to the gang, within one rack where it must
        be."""
        cp, j, gpus = self.cp, activity.index, alternative.mode.gpus
        parts = []
        by_rack: dict[str | None, list[Any]] = defaultdict(list)
        for n, most in rooms:
            part = cp.new_int_var(0, min(most, gpus), f"part_{j}_{a}_{n}")
            self.part[j, a, n] = part
            parts.append(part)
            by_rack[self.problem.instance.cluster.nodes[n].rack].append(part)
            for row, amount in self.problem.table.on_node(activity.job, alternative.mode, n, 1):
                self.load["row", row].append((interval, (part, amount)))
        cp.add(sum(parts) == gpus * literal)
        if alternative.spread == "rack":
            racks = [rack for rack in by_rack if rack is not None]
            inside = [cp.new_bool_var(f"rack_{j}_{a}_{rack}") for rack in racks]
            cp.add(sum(inside) == literal)
            for rack, here in zip(racks, inside, strict=True):
                cp.add(sum(by_rack[rack]) == gpus * here)
            for part in by_rack.get(None, []):
                cp.add(part == 0)

    def _hold(self, activity: Activity, interval: Any, held: Alternative) -> None:
        """Known demands of a running job on its nodes, for as long as `interval`."""
        for row, amount in self.problem.demands(activity, held, held.rooms):
            self.load["row", row].append((interval, amount))
        if activity.index in self.problem.partner:
            return
        by_type: dict[str | None, int] = defaultdict(int)
        for n, gpus in held.rooms:
            by_type[self.problem.node_types[n]] += gpus
        for gpu_type, gpus in by_type.items():
            if gpus:
                self.load["type", gpu_type].append((interval, gpus))

    def on_node(self) -> dict[tuple[int, int, int], tuple[Any, int]]:
        """Variables that place (activity, alternative) on a node, with the GPUs that one unit of
        each stands for."""
        gpus = {
            j: [a.mode.gpus for a in self.problem.activities[j].alternatives] for j, _, _ in self.on
        }
        return {
            **{key: (literal, gpus[key[0]][key[1]]) for key, literal in self.on.items()},
            **{key: (part, 1) for key, part in self.part.items()},
        }

    # ------------------------------------------------------------------------------------- rows

    def _add_precedence(self) -> None:
        for activity in self.problem.activities:
            j = activity.index
            for i in activity.before:
                self.cp.add(self.start[j] >= self.end[i])

    def _add_capacity(self) -> None:
        nodes = self.problem.instance.cluster.nodes
        for key, load in self.load.items():
            kind, which = key
            if kind == "type":
                members = [
                    n for n, node_type in enumerate(self.problem.node_types) if node_type == which
                ]
                capacity = float(sum(nodes[n].gpus for n in members))
            else:
                capacity = self.problem.rows[which].capacity
            self._add_cumulative(load, capacity)

    def _in_integers(self, amounts: Sequence[float], capacity: float) -> tuple[list[int], int]:
        """Amounts and capacity in whole units: as they are, or in thousandths (coarser where they
        are huge).

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
        for j, start in self.start.items():
            choice = schedule[j]
            yield start, choice.start
            for a, literal in enumerate(self.chosen[j]):
                yield literal, int(a == choice.alternative)
            if j in self.own_end:
                length = self.ticks(self.problem.activities[j].alternatives[choice.alternative])
                yield self.own_end[j], choice.start + length
        for (j, a, n), literal in self.on.items():
            choice = schedule[j]
            if literal is not self.chosen[j][a]:
                here = a == choice.alternative and any(n == m for m, _ in choice.split)
                yield literal, int(here)
        for (j, a, n), part in self.part.items():
            choice = schedule[j]
            yield part, dict(choice.split).get(n, 0) if a == choice.alternative else 0

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

    def read(self, value: Any) -> tuple[dict[int, Choice], bool]:
        """Choices of the free activities in a solution (`value` maps a variable to its value), and
        whether all nodes are known."""
        found, complete = {}, True
        for j, start in self.start.items():
            activity = self.problem.activities[j]
            a = next(i for i, literal in enumerate(self.chosen[j]) if value(literal))
            alternative = activity.alternatives[a]
            if alternative.fixed:
                split: Split = alternative.rooms
            else:
                split = tuple(
                    [
                        (n, alternative.mode.gpus)
                        for n, _ in alternative.rooms
                        if (j, a, n) in self.on and value(self.on[j, a, n])
                    ]
                    + [
                        (n, int(value(self.part[j, a, n])))
                        for n, _ in alternative.rooms
                        if (j, a, n) in self.part and value(self.part[j, a, n])
                    ]
                )
                complete = complete and (bool(split) or not alternative.rooms)
            found[j] = Choice(a, int(value(start)), split)
        return found, complete
