"""Packings node by node: each node in turn is a knapsack of GPUs and of memory or cores, filled
with those units of a choice of options that cost most together at the prices of the rows.

Where memory or cores run out as soon as GPUs do, a node must hold what goes together, which no
order of the jobs finds. What found no room is worth more the next time.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import mul

import numpy as np

from optsched.round.deadline import Deadline
from optsched.round.held import SLACK
from optsched.round.model import NO_OPTION, Bools, Floats, Ints, Kind, RoundModel
from optsched.round.nodes import Taken
from optsched.round.place import Packing

from .units import Gathering, Unit, unit_of

TURNS = 12
"""Most packings of a choice."""
TICKS = 120
"""Parts of the memory or the cores of a node in a knapsack, in which takings are rounded up."""
RISE = 0.3
"""Most that a unit is worth more in the next turn, as a part."""

NOWHERE = -2
"""The rack of gangs that no rack may hold."""

Item = tuple[int, int, float, int]
"""GPUs, ticks, what a unit is worth, and how many units there are."""


class Knapsacks:
    """A choice of options to be put on nodes. `reduced` are the reduced values of options, which
    say what each costs and what a job takes instead. Jobs that mind who else is where, or on how
    many nodes they are, take what room is left."""

    def __init__(self, model: RoundModel, wish: Ints, reduced: Floats, deadline: Deadline) -> None:
        self._model, self._wish, self._reduced = model, wish, reduced
        self._deadline = deadline
        kept = model.patterns.kept
        stays = wish[kept] == model.options.first[kept]
        self._kept = np.full(len(wish), NO_OPTION, dtype=np.int64)
        self._kept[kept[stays]] = wish[kept[stays]]
        self._jobs: dict[Unit, list[tuple[int, int]]] = defaultdict(list)
        self._worth: dict[Unit, float] = {}
        costs = np.maximum(model.options.value - reduced, 0.0)[wish]
        free = self._start().nodes.gpus
        in_rack = [sum(free[n] for n in nodes) for nodes in model.held.racks]
        for j in np.argsort(-costs, kind="stable").tolist():
            if self._is_packed(j):
                unit, count = self._unit(int(wish[j]), in_rack)
                self._jobs[unit].append((j, count))
                self._worth[unit] = float(costs[j]) / count

    def _start(self) -> Packing:
        """Return the packing of what stays where it is."""
        packing = Packing(self._model, deadline=self._deadline)
        packing.place_all(self._kept, self._reduced)
        return packing

    def _is_packed(self, j: int) -> bool:
        """Return whether a job is put on nodes as units."""
        model, option = self._model, int(self._wish[j])
        if option < 0 or model.options.kind[option] not in (Kind.START, Kind.MOVE):
            return False
        pattern, job = model.fresh(option), model.jobs[j]
        anyhow = pattern.together or job.max_nodes is None
        return bool(pattern.gpus and anyhow and model.held.domains.ties(job) is None)

    def _unit(self, option: int, in_rack: list[int]) -> tuple[Unit, int]:
        """Return the unit of an option, and how many it has. A gang that must lie within a rack
        gets the one with the most GPUs that are not spoken for (`in_rack`)."""
        model, held, pattern = self._model, self._model.held, self._model.fresh(option)
        unit, count = unit_of(model.patterns.table.key[int(model.options.pattern[option])])
        rack = -1
        if pattern.option.spread == "rack" and not pattern.together:
            able = [
                r
                for r, nodes in enumerate(held.racks)
                if any(pattern.classes >> model.class_of[n] & 1 for n in nodes)
            ]
            rack = max(able, key=lambda r: in_rack[r], default=NOWHERE)
            if able:
                in_rack[rack] -= pattern.gpus
        return replace(unit, rack=rack), count

    def packings(self) -> Iterator[Packing]:
        """Yield packings; from one to the next, units are worth more the more of them found no
        room."""
        worth = dict(self._worth)
        for _ in range(TURNS):
            packing = self._start()
            on_nodes = self._filled(packing, worth)
            lost = {
                unit: self._hand_out(packing, unit, jobs, on_nodes[unit]) * self._worth[unit]
                for unit, jobs in self._jobs.items()
            }
            self._rest(packing)
            yield packing
            most = max(lost.values(), default=0.0)
            if most <= 0:
                return
            for unit, loss in lost.items():
                worth[unit] *= 1.0 + RISE * loss / most

    def on_nodes(self, units: Mapping[Unit, Counter[int]], sure: Bools) -> Packing:
        """Return the packing in which the jobs that are sure get these units on these nodes; gangs
        that must lie within a rack take them first."""
        packing = self._start()
        gathering = Gathering(self._model, packing.nodes, units)
        for in_rack in (True, False):
            for unit, jobs in self._jobs.items():
                kind = replace(unit, rack=-1)
                for job in jobs if in_rack == (unit != kind) else ():
                    if sure[job[0]]:
                        there = gathering.in_a_rack(kind, job[1]) if in_rack else gathering.of(kind)
                        left = there.copy()
                        self._hand_out(packing, unit, [job], left)
                        gathering.taken(kind, there - left)
        self._rest(packing)
        return packing

    def _rest(self, packing: Packing) -> None:
        """Give what room is left to the jobs that got none."""
        for j in np.flatnonzero((self._wish >= 0) & (packing.chosen < 0)).tolist():
            if not packing.put(j, int(self._wish[j])):
                packing.put_otherwise(j, self._reduced)
        packing.fill()

    def _filled(self, packing: Packing, worth: dict[Unit, float]) -> dict[Unit, Counter[int]]:
        """Return how many of which units get room on which node. Nodes with the least room come
        first."""
        model, nodes = self._model, packing.nodes
        left = {unit: sum(count for _, count in jobs) for unit, jobs in self._jobs.items()}
        filled: dict[Unit, Counter[int]] = defaultdict(Counter)
        for n in sorted(range(len(nodes.gpus)), key=lambda n: (nodes.gpus[n], nodes.memory[n])):
            room = nodes.gpus[n], nodes.cpus[n], nodes.memory[n]
            rack, bit = model.held.rack[n], 1 << model.class_of[n]
            asked = {
                unit: count
                for unit, count in left.items()
                if count and unit.classes & bit and unit.rack in (-1, rack)
            }
            for unit, count in _knapsack(asked, room, worth).items():
                filled[unit][n] = count
                left[unit] -= count
        return filled

    def _hand_out(
        self, packing: Packing, unit: Unit, jobs: list[tuple[int, int]], on_nodes: Counter[int]
    ) -> int:
        """Give the units that got room to jobs, on few nodes each; return how many are missing for
        the jobs that get none."""
        missing = 0
        for j, count in jobs:
            held: Taken = []
            need = count if count <= on_nodes.total() else 0
            for n, there in on_nodes.most_common():
                if got := min(there, need):
                    held.append((n, got * unit.gpus, got * unit.cpus))
                    need -= got
            if held and packing.put_on(j, int(self._wish[j]), sorted(held)):
                on_nodes.subtract({n: gpus // unit.gpus for n, gpus, _ in held})
            else:
                missing += count
        return missing


def _knapsack(
    asked: dict[Unit, int], room: tuple[int, float, float], worth: dict[Unit, float]
) -> dict[Unit, int]:
    """Return how many of which units are worth most together in the room of a node. Of cores and
    memory only that counts of which all that is asked for would need more."""
    gpus, cpus, gib = room
    able = {
        unit: count
        for unit, count in asked.items()
        if unit.gpus <= gpus and unit.cpus <= cpus and unit.memory_gib <= gib * (1 + SLACK)
    }
    cores = [unit.cpus / cpus if cpus else 0.0 for unit in able]
    memory = [unit.memory_gib / gib if gib else 0.0 for unit in able]
    parts = max(cores, memory, key=lambda each: sum(map(mul, each, able.values())))
    items = [
        (unit.gpus, math.ceil(part * TICKS * (1 - 2 * SLACK)), worth[unit], count)
        for (unit, count), part in zip(able.items(), parts, strict=True)
    ]
    counts = best_counts(items, gpus, TICKS) if items else []
    return {unit: count for unit, count in zip(able, counts, strict=True) if count}


def best_counts(items: list[Item], gpus: int, ticks: int) -> list[int]:
    """Return how many units of each item are worth most together: a bounded knapsack of GPUs and
    ticks, by dynamic programming."""
    best = np.zeros((gpus + 1, ticks + 1))
    stages = []
    for i, (takes, part, worth, count) in enumerate(items):
        for _ in range(min(count, gpus // takes) if part <= ticks else 0):
            stages.append((i, best))
            with_it = best.copy()
            rest = best[: gpus + 1 - takes, : ticks + 1 - part]
            np.maximum(with_it[takes:, part:], rest + worth, out=with_it[takes:, part:])
            best = with_it
    counts = [0] * len(items)
    for i, without in reversed(stages):
        if best[gpus, ticks] > without[gpus, ticks]:
            counts[i] += 1
            gpus, ticks = gpus - items[i][0], ticks - items[i][1]
        best = without
    return counts
