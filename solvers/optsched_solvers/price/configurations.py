"""Node configurations: what one node holds, as columns of a linear program over all nodes.

max   sum value x
s.t.  sum_o x[j,o] <= 1                        each job (= 1 where it must be kept)
      sum take x <= capacity                   what nodes share: resources, budgets, quotas
      sum units x <= sum over columns z        each kind of unit, over all nodes; of a job that is
                                               kept its part of each of its nodes, there
      sum z <= 1                               each node (nodes that are alike count together)

A unit is what lies on one node: an option, or a single GPU of a gang that may be split. Columns are
generated (Gilmore and Gomory, Operations Research 9, 1961): at prices of the units each node is a
knapsack of GPUs and of memory or cores, and what all knapsacks and all jobs earn is a bound, at any
prices. Relaxed are racks and uplinks, over how many nodes a gang is split, guests on shared GPUs,
jobs without GPUs, and of memory and cores the one that costs less.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optsched.round.deadline import Deadline
from optsched.round.model import EXCESS, FEW, Bools, Floats, Ints, Kind, RoundModel, Row, Rows
from optsched.round.patterns import NodeClass
from optsched.round.place import Packing

from .columns import Master
from .dual import stake
from .knapsacks import TICKS, Knapsacks
from .units import Unit, unit_of

FINEST = 1e-3
"""Amounts of memory or cores are taken for multiples of this where that gives few enough ticks."""
ROUNDING = 1e-6
"""What a taking may be short of whole ticks by rounding."""
MOST_TURNS, STEPS = 40, (1.0, 0.2)
"""Most linear programs, and how far from the best prices to those of the last one units are priced
in each turn."""
NEARLY = 3e-4
"""Part of what capacity can cost by which the bound may lie above the linear program in the end."""
AT_ONCE, SURE = 0.25, 0.6
"""Part of the open nodes whose columns are fixed at once, a third of these if they are taken to a
lesser part than is sure."""
LEAST = 1e-6
"""Columns that are taken to a lesser part are not taken."""

Configuration = tuple[int, tuple[tuple[int, int], ...]]
"""A group of nodes that are alike, and how many of which units (by row) one of them holds."""
Part = tuple[int, float, int]
"""GPUs, memory or cores, and the row of a unit."""


class Units:
    """A round in which options take units where they took GPUs, cores, memory and slots. The rows
    of its `model` are those that nodes share (`shared` in the whole), then the `kinds` of units,
    then the `parts` of running jobs (by hold and node); of units there is nothing without
    columns."""

    def __init__(self, whole: RoundModel) -> None:
        rows, table = whole.rows, whole.patterns.table
        self.whole, self.shared = whole, np.flatnonzero(rows.is_shared)
        fresh, self.first = len(whole.patterns.fresh), len(self.shared)
        self.kinds: dict[Unit, int] = {}
        self.parts: dict[tuple[int, int], int] = {}
        entries: list[tuple[int, int, int]] = []
        for p, key in enumerate(table.key):
            if key[2]:
                unit, count = unit_of(key)
                kind = self.kinds.setdefault(unit, self.first + len(self.kinds))
                entries.append((kind, p, count))
        for k, hold in enumerate(whole.patterns.holds):
            for n, *_ in hold.parts if hold.kind != Kind.BESIDE else ():
                if not whole.classes[whole.class_of[n]].node.gpus:
                    continue  # no column says what such a node holds
                part = self.parts.setdefault((k, n), self.first + len(self.kinds) + len(self.parts))
                entries.append((part, fresh + k, 1))
        number = np.full(len(rows.limits), -1, dtype=np.int64)
        number[self.shared] = np.arange(self.first)
        stays = number[rows.row] >= 0
        units: Ints = np.array(entries, dtype=np.int64).reshape(-1, 3)
        limits = [rows.limits[r] for r in self.shared.tolist()]
        limits += [Row("units", "", 0.0)] * (len(self.kinds) + len(self.parts))
        both = [
            (number[rows.row[stays]], rows.pattern[stays], rows.amount[stays]),
            (units[:, 0], units[:, 1], units[:, 2].astype(float)),
        ]
        self.model = replace(whole, rows=Rows.of(tuple(limits), both))

    def prices(self, prices: Floats) -> Floats:
        """Return what units cost at prices of the rows of the whole."""
        whole, own = self.whole, np.zeros(len(self.model.rows.limits))
        own[: self.first] = prices[self.shared]
        costs = whole.pattern_prices(np.where(whole.rows.is_shared, 0.0, prices))
        for p, key in enumerate(whole.patterns.table.key):
            if key[2]:
                unit, count = unit_of(key)
                own[self.kinds[unit]] = costs[p] / count
        for (k, n), row in self.parts.items():
            parts = whole.held.holds[k].parts
            here = sum(gpus for at, gpus, *_ in parts if at == n)
            share = here / max(1, sum(gpus for _, gpus, *_ in parts))
            own[row] = costs[len(whole.patterns.fresh) + k] * share
        return np.maximum(own, 0.0)

    def of_packing(self, packing: Packing) -> dict[int, Counter[int]]:
        """Return the units that each node holds in a packing."""
        model, fresh = self.whole, len(self.whole.patterns.fresh)
        on_node: dict[int, Counter[int]] = defaultdict(Counter)
        for j in np.flatnonzero(packing.chosen >= 0).tolist():
            p = int(model.options.pattern[packing.chosen[j]])
            if p >= fresh:
                for n, *_ in model.held.holds[p - fresh].parts:
                    if (row := self.parts.get((p - fresh, n))) is not None:
                        on_node[n][row] += 1
            elif (key := model.patterns.table.key[p])[2]:
                unit, count = unit_of(key)
                for n, gpus, _ in packing.held[j]:
                    on_node[n][self.kinds[unit]] += gpus if count > 1 else 1
        return on_node


class _Nodes:
    """The nodes of a class as knapsacks: of units as many as fit, of each part of a running job one
    at most."""

    def __init__(self, units: Units, kind: NodeClass, scarce: str | None) -> None:
        """`scarce` says which of cores and memory counts."""
        held, self.nodes = units.whole.held, list(kind.nodes)
        of = 0 if scarce == "cores" else 1
        items: list[Part] = sorted(
            (unit.gpus, (unit.cpus, unit.memory_gib)[of], row)
            for unit, row in units.kinds.items()
            if unit.classes & kind.bit
        )
        parts: list[list[Part]] = [[] for _ in self.nodes]
        position = {n: i for i, n in enumerate(self.nodes)}
        for k, n in units.parts:
            if n in position:
                mine = [part[1:] for part in held.holds[k].parts if part[0] == n]
                takes = [sum(each) for each in zip(*mine, strict=True)]
                parts[position[n]].append((int(takes[0]), takes[1 + of], units.parts[k, n]))
        room = (held.room_cpus, held.room_memory_gib)[of][self.nodes]
        amounts = [amount for _, amount, _ in (*items, *(part for own in parts for part in own))]
        tick = _tick(amounts, room) if scarce is not None else math.inf
        count = kind.node.gpus + max(map(len, parts)) + 1
        self.room = [
            (max(0, g), _ticks(limit * (1 + 2 * EXCESS), tick, count * ROUNDING))
            for g, limit in zip(held.room_gpus[self.nodes].tolist(), room.tolist(), strict=True)
        ]
        self._most = max(g for g, _ in self.room), max(t for _, t in self.room)
        self._items(items, tick)
        self._parts = [[(g, _ticks(a, tick, ROUNDING), row) for g, a, row in own] for own in parts]
        self._layers = [self._layer(k) for k in range(max(map(len, parts)))]

    def _items(self, items: list[Part], tick: float) -> None:
        """Note the units that fit on some node: the first item is a GPU that nothing has."""
        most_gpus, most = self._most
        ticked = ((gpus, _ticks(amount, tick, ROUNDING), row) for gpus, amount, row in items)
        able = [(1, 0, -1), *(each for each in ticked if each[1] <= most)]
        self._gpus, self._ticks, self._row = np.array(able, dtype=np.int64).T
        self._upto = np.searchsorted(self._gpus, np.arange(most_gpus + 1), "right").tolist()
        rest = np.arange(most + 1) - self._ticks[:, None]
        self._rest, self._beyond = np.maximum(rest, 0), rest < 0

    def _layer(self, k: int) -> tuple[Ints, Ints, Ints, Bools]:
        """Return, of the nodes that have a k-th part, their positions, its row, and for each room
        left the one that is left with it and whether there is so much."""
        which = np.array([i for i, own in enumerate(self._parts) if len(own) > k], dtype=np.int64)
        gpus, ticks, row = np.array([self._parts[i][k] for i in which.tolist()]).T
        size = self._most[1] + 1
        cells = np.arange((self._most[0] + 1) * size)
        fits = (cells // size >= gpus[:, None]) & (cells % size >= ticks[:, None])
        return which, row, np.where(fits, cells - (gpus * size + ticks)[:, None], 0), fits

    def filled(self, prices: Floats) -> tuple[Floats, Callable[[int], Counter[int]]]:
        """Return what the units are worth that are worth most together on each node, and what tells
        which these are, by its position."""
        gpus, ticks = self._most
        worth = np.append(prices, 0.0)[self._row]
        best = np.zeros((gpus + 1, ticks + 1))
        last = np.zeros((gpus + 1, ticks + 1), dtype=np.int64)
        for g in range(1, gpus + 1):
            upto = self._upto[g]
            with_it = best[(g - self._gpus[:upto])[:, None], self._rest[:upto]]
            with_it += worth[:upto, None]
            with_it[self._beyond[:upto]] = -np.inf
            last[g] = with_it.argmax(axis=0)
            best[g] = with_it[last[g], np.arange(ticks + 1)]
        own = np.tile(best.ravel(), (len(self.nodes), 1))
        kept = []
        for which, row, rest, fits in self._layers:
            with_it = np.take_along_axis(own[which], rest, axis=1) + prices[row][:, None]
            stays = np.zeros(own.shape, dtype=bool)
            stays[which] = fits & (with_it > own[which])
            own[stays] = with_it[stays[which]]
            kept.append(stays)

        def units(i: int) -> Counter[int]:
            held: Counter[int] = Counter()
            g, t = self.room[i]
            for stays, (takes, parts, row) in reversed(
                list(zip(kept, self._parts[i], strict=False))
            ):
                if stays[i, g * (ticks + 1) + t]:
                    held[row] += 1
                    g, t = g - takes, t - parts
            while g > 0:
                item = last[g, t]
                if item:
                    held[int(self._row[item])] += 1
                g, t = g - int(self._gpus[item]), t - int(self._ticks[item])
            return held

        cells = np.array([g * (ticks + 1) + t for g, t in self.room])
        return own[np.arange(len(cells)), cells], units


def _tick(amounts: Sequence[float], room: Floats) -> float:
    """Return the largest tick that measures all, or else a part of the room; inf where there is no
    limit."""
    limits = [limit for limit in room.tolist() if 0 < limit < math.inf]
    if not limits or not np.isfinite(room).all():
        return math.inf
    exact = math.gcd(*(round(amount / FINEST) for amount in (*amounts, *limits))) * FINEST
    return exact if exact * TICKS >= max(limits) else max(limits) / TICKS


def _ticks(amount: float, tick: float, more: float) -> int:
    """Return the whole ticks of an amount, to which a little more is added: never too many for
    takings, never too few for room."""
    return max(0, math.floor(amount / tick + more)) if tick < math.inf else 0


class _Program(Master):
    """The linear program over options and the configurations of groups of so many nodes."""

    def __init__(self, units: Units, fixed: Ints, unit: float, groups: list[int]) -> None:
        super().__init__(units.model, fixed, unit)
        least = -self._program.infinity()
        self._groups = [self._program.RowConstraint(least, float(n), "") for n in groups]
        self._columns: dict[Configuration, Any] = {}

    def allow(self, configurations: list[Configuration]) -> bool:
        """Add the configurations that are not there yet; False where all are."""
        new = [each for each in dict.fromkeys(configurations) if each not in self._columns]
        for each in new:
            column = self._program.NumVar(0.0, self._program.infinity(), "")
            self._columns[each] = column
            self._groups[each[0]].SetCoefficient(column, 1.0)
            for row, count in each[1]:
                self._rows[row].SetCoefficient(column, -float(count))
        return bool(new)

    def used(self) -> list[tuple[float, Configuration]]:
        """Return how many nodes have each configuration in the solution, before anything is
        added."""
        used = [(column.solution_value(), each) for each, column in self._columns.items()]
        return [(nodes, each) for nodes, each in used if nodes > LEAST]

    def fix(self, configuration: Configuration, nodes: int) -> None:
        """Let so many nodes have a configuration."""
        self._columns[configuration].SetLb(float(nodes))


class Configurations:
    """Bounds, and in the end a packing, from prices of the rows and a packing on."""

    def __init__(self, model: RoundModel, prices: Floats, packing: Packing) -> None:
        self._units, self._asked = Units(model), packing.model  # which has no rows of guests
        self._kinds = [
            _Nodes(self._units, kind, _scarcer(model, kind, prices))
            for kind in model.classes
            if kind.node.gpus
        ]
        self._groups: list[list[int]] = []
        self._group_of: dict[int, int] = {}
        alone = {n for _, n in self._units.parts}
        known: dict[object, int] = {}
        for c, kind in enumerate(self._kinds):
            for n, room in zip(kind.nodes, kind.room, strict=True):
                group = known.setdefault(n if n in alone else (c, room), len(self._groups))
                if group == len(self._groups):
                    self._groups.append([])
                self._groups[group].append(n)
                self._group_of[n] = group
        self.prices = self._units.prices(prices)
        self.bound, found, reduced = self._priced(self.prices)
        size = stake(model, self.bound, packing.worth())
        self._allowed = NEARLY * size
        self._program = _Program(
            self._units, packing.chosen, size / len(model.jobs), [len(own) for own in self._groups]
        )
        used = self._units.of_packing(packing)
        self._program.allow(
            found + [self._configuration(n, used[n]) for n in sorted(self._group_of)]
        )
        self._program.add(self._program.missing(reduced, self._allowed))

    def _configuration(self, n: int, held: Counter[int]) -> Configuration:
        return self._group_of[n], tuple(sorted(held.items()))

    def _priced(self, prices: Floats) -> tuple[float, list[Configuration], Floats]:
        """Return the bound that prices of units prove, the best configuration of each group, and
        the reduced values of options."""
        model = self._units.model
        reduced = model.reduced_values(prices)
        bound = float(np.sum(model.rows.capacity * prices) + model.best_reduced(reduced).sum())
        found: dict[int, Configuration] = {}
        for kind in self._kinds:
            values, units = kind.filled(prices)
            bound += float(values.sum())
            for i, n in enumerate(kind.nodes):
                if self._group_of[n] not in found:
                    found[self._group_of[n]] = self._configuration(n, units(i))
        return bound, list(found.values()), reduced

    def bounds(self, left_s: Callable[[], float]) -> Iterator[float]:
        """Yield better and better bounds, until there is no time for more or the linear program has
        no more to give."""
        for _ in range(MOST_TURNS):
            solution = self._program.solve(left_s()) if left_s() > 0 else None
            if solution is None:
                return
            value, duals, _ = solution
            best, is_new = self.prices, False
            for step in STEPS:
                trial = best + step * (duals - best)
                bound, found, reduced = self._priced(trial)
                is_new |= self._program.allow(found)
                is_new |= self._program.add(self._program.missing(reduced, self._allowed))
                if bound < self.bound:
                    self.prices, self.bound = trial, bound
                    yield bound
            if self.bound <= value + self._allowed or not is_new:
                return

    def packings(self, left_s: Callable[[], float]) -> Iterator[Packing]:
        """Yield packings to which the linear program leads if nodes get their configurations one
        after the other, those that are surest first; none where there is no time."""
        open_nodes = [len(own) for own in self._groups]
        fixed: Counter[Configuration] = Counter()
        while True:
            solution = self._program.solve(left_s()) if left_s() > 0 else None
            if solution is None:
                return
            _, duals, weights = solution
            surest = sorted(
                (fixed[each] - nodes, each)
                for nodes, each in self._program.used()
                if nodes - fixed[each] > LEAST and open_nodes[each[0]]
            )
            if not surest:
                yield from self._packed(fixed, weights, duals)
                return
            _, found, reduced = self._priced(duals)
            self._program.allow([each for each in found if open_nodes[each[0]]])
            self._program.add(self._program.missing(reduced, self._allowed))
            self._fix(surest, fixed, open_nodes)

    def _fix(
        self,
        surest: list[tuple[float, Configuration]],
        fixed: Counter[Configuration],
        open_nodes: list[int],
    ) -> None:
        """Fix all that is sure, and some more."""
        most, rounded = max(1, int(AT_ONCE * sum(open_nodes))), 0
        for less, each in surest:
            nodes = min(open_nodes[each[0]], int(LEAST - less))
            if not nodes:
                if rounded >= (most if -less >= SURE else max(1, most // 3)):
                    break
                nodes = min(1, open_nodes[each[0]])
                rounded += nodes
            fixed[each] += nodes
            open_nodes[each[0]] -= nodes
            self._program.fix(each, fixed[each])

    def _packed(
        self, fixed: Counter[Configuration], weights: Floats, duals: Floats
    ) -> Iterator[Packing]:
        """Yield packings of what a solution takes by half at least, on the nodes whose
        configurations have it: first with what it takes in whole first, then by cost."""
        model, units = self._asked, {row: unit for unit, row in self._units.kinds.items()}
        left = [iter(own) for own in self._groups]
        on_nodes: dict[Unit, Counter[int]] = defaultdict(Counter)
        for (group, held), nodes in fixed.items():
            for _ in range(nodes):
                n = next(left[group])
                for row, count in held:
                    if row in units:
                        on_nodes[units[row]][n] += count
        taken = np.flatnonzero(weights > 0.5)
        wish = np.full(len(model.jobs), -1, dtype=np.int64)
        wish[model.options.job[taken]] = taken
        reduced = self._units.model.reduced_values(duals)
        sure = np.isin(np.arange(len(wish)), model.options.job[weights > 1 - LEAST])
        knapsacks = Knapsacks(model, wish, reduced, Deadline())
        for first in (sure, wish >= 0):
            yield knapsacks.on_nodes(on_nodes, first)


def _scarcer(model: RoundModel, kind: NodeClass, prices: Floats) -> str | None:
    """Return which of the cores and the memory of a class costs more, None where neither can run
    short."""
    cost: Counter[str] = Counter()
    for row, price in zip(model.rows.limits, prices.tolist(), strict=True):
        if row.what in FEW and row.classes & kind.bit:
            cost[row.what] += price * kind.limits[FEW.index(row.what)]
    return max(cost, key=cost.__getitem__, default=None)
