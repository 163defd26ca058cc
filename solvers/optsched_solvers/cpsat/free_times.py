"""Quick decoding of priority lists, where nothing but GPUs can run short.

What is known of a node is when each of its GPUs becomes free, and the gaps that gangs leave before
them. A gang on one node does not combine gaps; but for that, and ties, jobs are placed as by
`schedule_generation`, in a fraction of its time.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from copy import copy
from itertools import accumulate, chain
from math import ceil, inf

import numpy as np

from optsched.frozen import record
from optsched.objectives import Usage

from ..scheduling.evaluate import Evaluator
from ..scheduling.free_capacity import FAR, take_largest
from ..scheduling.problem import Activity, Alternative, Choice, Problem, Schedule, Split
from ..scheduling.schedule_generation import canonical
from .clock import Budget
from .lists import List

WORK_PER_JOB = 2e-6
"""Work of decoding one job, in CP-SAT's unit of work."""
STOPS = 64
"""States that are remembered of each list."""
LOOKS = 2
"""A list is looked at after so many of them, whether it is good enough to go on."""


def applies(problem: Problem) -> bool:
    """Return whether nothing but GPUs can run short, and no job gains by waiting."""
    return not (
        problem.partner
        or problem.windows
        or problem.changes_s
        or problem.instance.cluster.budgets
        or any(row is not None for row in (*problem.table.cores, *problem.table.memory))
        or any(isinstance(term, Usage) for term in problem.objective.terms)
    ) and all(_is_known(problem, activity) for activity in problem.activities)


def _is_known(problem: Problem, activity: Activity) -> bool:
    """Return whether each alternative takes GPUs of whole sets of nodes and nothing else."""
    nodes = problem.instance.cluster.nodes
    return not activity.before and all(
        a.mode.gpus > 0
        and not a.shared
        and (a.fixed or all(most >= min(a.mode.gpus, nodes[n].gpus) for n, most in a.rooms))
        for a in activity.alternatives
    )


@record
class Set:
    """Nodes among which a job has its place: all those of some `pools`, unless that is None."""

    nodes: tuple[int, ...]
    pools: tuple[int, ...] | None
    members: frozenset[int]


@record
class Way:
    """One alternative: its GPUs, its length in ticks, and the sets of nodes of one of which it
    takes one node or several."""

    which: int
    gpus: int
    length: int
    on_one_node: bool
    sets: tuple[Set, ...]


@record
class Spread:
    """The ways of a job on several nodes of one GPU type, shortest first, and all their nodes."""

    nodes: Set
    ways: tuple[Way, ...]


@record
class Ways:
    """The ways of a job, each kind in the order of their lengths, the tick before which it cannot
    start, and the GPU type of all its nodes, None where they are of several."""

    ready: int
    on_one_node: tuple[Way, ...]
    spread: tuple[Spread, ...]
    gpu_type: str | None


Gap = tuple[int, int, int, tuple[int, ...]]
"""Minus the length of a gap, when it ends, its node, and the ticks from which its GPUs are free,
rising."""


class Free:
    """The ticks from which the GPUs of each node are free for ever, rising; the same of each pool,
    the nodes of one GPU type in a rack; and the gaps before gangs that are at least as long as the
    `shortest` job to come."""

    __slots__ = ("gaps", "nodes", "pools", "shortest")

    def __init__(
        self, nodes: list[tuple[int, ...]], pools: list[list[int]], gaps: list[Gap], shortest: int
    ) -> None:
        self.nodes, self.pools, self.gaps, self.shortest = nodes, pools, gaps, shortest

    def copy(self) -> "Free":
        """Return the same, to be taken on its own."""
        return Free(self.nodes[:], [pool[:] for pool in self.pools], self.gaps[:], self.shortest)

    def gaps_of(self, length: int) -> list[Gap]:
        """Return the gaps that are at least so long."""
        return self.gaps[: bisect_left(self.gaps, (1 - length,))]

    def forget_gaps(self, shortest: int) -> None:
        """Forget the gaps that are too short for any job to come."""
        self.shortest, self.gaps = shortest, self.gaps_of(shortest)

    def count(self, of: Set, before: int, gaps: list[Gap]) -> int:
        """Return how many GPUs of a set and of gaps are free from before a tick on, or more."""
        together = (
            [self.nodes[n] for n in of.nodes]
            if of.pools is None
            else [self.pools[p] for p in of.pools]
        )
        free = sum([bisect_left(times, before) for times in together])
        return free + sum([len(gap[3]) for gap in gaps])

    def nth(self, n: int, of: Set, gaps: list[Gap]) -> int:
        """Return the tick from which `n` GPUs of a set and of gaps are free."""
        if of.pools is not None and len(of.pools) == 1 and not gaps:
            return self.pools[of.pools[0]][n - 1]
        if of.pools is None:
            times = [t for node in of.nodes for t in self.nodes[node]]
        else:
            times = [t for pool in of.pools for t in self.pools[pool]]
        for gap in gaps:
            times += gap[3]
        times.sort()
        return times[n - 1]

    def earliest(self, way: Way, ready: int, end: int, of: Set, gaps: list[Gap]) -> int:
        """Return the first start at which a way finds its GPUs in a set; any at which it does not
        end before `end` where there is none."""
        length = way.length
        start = max(ready, self.nth(way.gpus, of, gaps))
        if start + length >= end:
            return start
        gaps = [gap for gap in gaps if gap[0] <= -length and gap[2] in of.members]
        last = max(ready, self.nth(way.gpus, of, []))
        if not gaps:
            return last
        times = {t for gap in gaps for t in gap[3]}.union(*(self.nodes[n] for n in of.nodes))
        for at in (start, *sorted(t for t in times if start < t < last)):
            if at + length >= end or sum(r for r, _ in self.rooms(at, length, of)) >= way.gpus:
                return at
        return last

    def rooms(self, start: int, length: int, of: Set) -> list[tuple[int, int]]:
        """Return (GPUs free for `length`, node) of the nodes of a set that have any."""
        rooms = {n: bisect_right(self.nodes[n], start) for n in of.nodes}
        for _, until, node, times in self.gaps_of(length):
            if start + length <= until and node in rooms:
                rooms[node] += bisect_right(times, start)
        return [(room, n) for n, room in rooms.items() if room]

    def fill(self, place: int, gpus: int, start: int, end: int) -> None:
        """Hold GPUs of a gap."""
        _, until, node, times = self.gaps.pop(place)
        times = _taken(times, gpus, start, end)
        times = times[: bisect_right(times, until - self.shortest)]
        if times:
            insort(self.gaps, (times[0] - until, until, node, times))

    def fill_on(self, node: int, gpus: int, start: int, end: int) -> int:
        """Hold up to so many GPUs of gaps of a node; return how many."""
        left = gpus
        for gap in self.gaps_of(end - start):
            if gap[2] == node and end <= gap[1]:
                some = min(left, bisect_right(gap[3], start))
                if some:
                    self.fill(self.gaps.index(gap), some, start, end)
                    left -= some
        return gpus - left

    def take(self, node: int, pool: int, gpus: int, start: int, end: int) -> None:
        """Hold the GPUs of a node that become free last before `start` until `end`."""
        times, together = self.nodes[node], self.pools[pool]
        last = bisect_right(times, start)
        taken = times[last - gpus : last]
        if gap := taken[: bisect_right(taken, start - self.shortest)]:
            insort(self.gaps, (gap[0] - start, start, node, gap))
        self.nodes[node] = _taken(times, gpus, start, end)
        while taken:
            alike = bisect_right(taken, taken[0])
            at = bisect_left(together, taken[0])
            del together[at : at + alike]
            taken = taken[alike:]
        at = bisect_left(together, end)
        together[at:at] = [end] * gpus


def _taken(times: tuple[int, ...], gpus: int, start: int, end: int) -> tuple[int, ...]:
    """Return when GPUs become free after those that do so last before `start` are held until
    `end`."""
    last = bisect_right(times, start)
    at = bisect_left(times, end, last)
    return times[: last - gpus] + times[last:at] + (end,) * gpus + times[at:]


@record
class Part:
    """Jobs that do not compete with others, in their order; `stops` are what is free before every
    so-many-th of them."""

    order: list[int]
    stops: list[Free]


class Decoded:
    """A list with its schedule: its `parts` are by GPU type where all jobs are kept to one, else
    one of them has all. `begun` is what the running jobs leave free; `ends_s` are the
    completions."""

    def __init__(self, problem: Problem, code: List) -> None:
        jobs = len(problem.activities)
        self._problem, self.code = problem, code
        self.parts: dict[str | None, Part] = {}
        self.begun = Free([], [], [], 0)
        self.starts = [0] * jobs
        self.chosen = [0] * jobs
        self.splits: list[Split] = [()] * jobs
        self.ends_s = [0.0] * jobs

    def copy(self, code: List) -> "Decoded":
        """Return the same schedule, to be changed for another list."""
        made = copy(self)
        made.code, made.parts = code, {}
        made.starts, made.chosen, made.splits = self.starts[:], self.chosen[:], self.splits[:]
        made.ends_s = self.ends_s[:]
        return made

    def put(self, j: int, which: int, start: int, split: Split) -> None:
        """Note how a job runs."""
        activity, choice = self._problem.activities[j], Choice(which, start, split)
        self.starts[j], self.chosen[j], self.splits[j] = start, which, split
        self.ends_s[j] = self._problem.end_s(activity, choice)

    def values(self, evaluator: Evaluator) -> tuple[float, ...]:
        """Return the value of each level."""
        return evaluator.values_at(np.array(self.ends_s))

    @property
    def schedule(self) -> Schedule:
        """Return the schedule."""
        choices = map(Choice, self.chosen, self.starts, self.splits)
        return [
            canonical(self._problem, activity, choice)
            for activity, choice in zip(self._problem.activities, choices, strict=True)
        ]


class FreeTimes:
    """Decodes lists that differ little from one that is kept, from where they differ."""

    def __init__(self, problem: Problem, evaluator: Evaluator, budget: Budget) -> None:
        self._problem, self._evaluator, self._budget = problem, evaluator, budget
        nodes = problem.instance.cluster.nodes
        pools: dict[object, int] = {}
        self._pool = [pools.setdefault((n.gpu_type, n.rack), len(pools)) for n in nodes]
        self._members = [
            frozenset(n for n, own in enumerate(self._pool) if own == pool and nodes[n].gpus)
            for pool in range(len(pools))
        ]
        self._shortest = [min(a.up for a in x.alternatives) for x in problem.activities]
        self._every = max(1, ceil(len(problem.activities) / STOPS))
        self._sets: dict[tuple[int, ...], Set] = {}
        self._ways: dict[tuple[int, tuple[int, ...] | None], Ways] = {}
        self.kept: Decoded | None = None

    def decode(self, code: List, limit: float = inf) -> Decoded | None:
        """Return a list with its schedule; None if it has none.

        None too, mostly, where the value of its last level would be above `limit`: as soon as that
        is so with the jobs that are not placed yet where the list kept has them.
        """
        kept = self.kept
        if kept is None or kept.code.preempted != code.preempted:
            made, known = self._begin(code), dict[str | None, Part]()
        else:
            made, known = kept.copy(code), kept.parts
        for gpu_type, jobs in self._parts(code).items():
            part = self._decode_part(made, jobs, known.get(gpu_type), limit)
            if part is None:
                return None
            made.parts[gpu_type] = part
        return made

    def _decode_part(
        self, made: Decoded, order: list[int], known: Part | None, limit: float
    ) -> Part | None:
        """Place the jobs of a part, those from where it differs from the one `known`."""
        shortest, first = self._shortest_from(order), 0
        if known is not None and self.kept is not None:
            alike = self.kept.code.alike(made.code, known.order, order)
            if alike == len(order) == len(known.order):
                self._budget.spend(WORK_PER_JOB)
                return known
            first = min(alike // self._every, len(known.stops) - 1)
            while first and known.stops[first].shortest > shortest[first * self._every]:
                first -= 1
        if known is None or first == 0:
            start = made.begun.copy()
            start.forget_gaps(shortest[0])
            part = Part(order, [start])
        else:
            part = Part(order, known.stops[: first + 1])
        first *= self._every
        free, placed = part.stops[-1].copy(), first
        for placed in range(first, len(order)):
            if placed % self._every == 0 and placed > first:
                free.forget_gaps(shortest[placed])
                part.stops.append(free.copy())
                if placed // self._every % LOOKS == 0 and self._is_above(made, limit):
                    break
            if not self._place(order[placed], free, made):
                break
        else:
            placed = len(order)
        self._budget.spend(WORK_PER_JOB * max(1, placed - first))
        return part if placed == len(order) else None

    def _is_above(self, made: Decoded, limit: float) -> bool:
        return limit < inf and made.values(self._evaluator)[-1] > limit

    def _shortest_from(self, order: list[int]) -> list[int]:
        """Return for each place in a list, and its end, the length of the shortest job from there
        on."""
        lengths = [self._shortest[j] for j in reversed(order)]
        return list(accumulate(lengths, min, initial=FAR))[::-1]

    def _place(self, j: int, free: Free, made: Decoded) -> bool:
        """Place a job where it completes first; return whether it fits anywhere."""
        code = made.code
        place = _first_to_complete(self._ways_of(j, code), free, code.waits.get(j, 0))
        if place is None:
            return False
        way, start, where, gap = place
        end = start + way.length
        split: Split
        if gap >= 0:
            split = ((free.gaps[gap][2], way.gpus),)
            free.fill(gap, way.gpus, start, end)
        elif way.on_one_node:
            node = _tightest(way.gpus, start, end, where.nodes, free.nodes)
            split = ((node, way.gpus),)
            free.take(node, self._pool[node], way.gpus, start, end)
        else:
            split = take_largest(free.rooms(start, way.length, where), way.gpus) or ()
            for node, gpus in split:
                left = gpus - free.fill_on(node, gpus, start, end)
                if left:
                    free.take(node, self._pool[node], left, start, end)
        made.put(j, way.which, start, split)
        return True

    def _parts(self, code: List) -> dict[str | None, list[int]]:
        """Return the jobs that are to be placed, in the order of a list: by GPU type if each is
        kept to one."""
        activities, preempted = self._problem.activities, code.preempted
        jobs = [a.index for a in activities if a.running is None or a.index in preempted]
        jobs.sort(key=code.priority.__getitem__)
        parts: dict[str | None, list[int]] = {}
        for j in jobs:
            gpu_type = self._ways_of(j, code).gpu_type
            if gpu_type is None:
                return {None: jobs}
            parts.setdefault(gpu_type, []).append(j)
        return parts

    def _begin(self, code: List) -> Decoded:
        """Return the schedule of the running jobs, which go on or save; all others where the list
        kept has them."""
        problem, nodes = self._problem, self._problem.instance.cluster.nodes
        made = Decoded(problem, code) if self.kept is None else self.kept.copy(code)
        held: list[list[int]] = [[] for _ in nodes]
        for activity in problem.activities:
            if activity.running is None:
                continue
            if activity.hold is not None and activity.index in code.preempted:
                holds = activity.hold
            else:
                choice = activity.stays(alone=False)
                holds = activity.alternatives[choice.alternative]
                made.put(activity.index, choice.alternative, 0, holds.rooms)
            for node, gpus in holds.rooms:
                held[node] += [holds.up] * gpus
        free = [
            tuple(sorted([0] * (node.gpus - len(until)) + until))
            for node, until in zip(nodes, held, strict=True)
        ]
        pools = [sorted(chain.from_iterable(free[n] for n in own)) for own in self._members]
        made.begun = Free(free, pools, [], 0)
        return made

    # --------------------------------------------------------------------------------------- ways

    def _ways_of(self, j: int, code: List) -> Ways:
        """Return the ways of a job, of those that it is kept to."""
        kept_to = code.ways.get(j)
        ways = self._ways.get((j, kept_to))
        if ways is None:
            ways = self._ways[j, kept_to] = self._find_ways(self._problem.activities[j], kept_to)
        return ways

    def _find_ways(self, activity: Activity, kept_to: tuple[int, ...] | None) -> Ways:
        ready = max(activity.release_up, 0 if activity.hold is None else activity.hold.up)
        single: list[Way] = []
        several: dict[str | None, list[Way]] = {}
        for which, a in sorted(enumerate(activity.alternatives), key=lambda pair: pair[1].up):
            if a.fixed or not (kept_to is None or which in kept_to):
                continue
            for on_one_node, sets in self._where(a):
                way = Way(which, a.mode.gpus, a.up, on_one_node, sets)
                if on_one_node:
                    single.append(way)
                else:
                    several.setdefault(a.mode.gpu_type, []).append(way)
        nodes = self._problem.instance.cluster.nodes
        ways = chain(single, *several.values())
        types = {nodes[n].gpu_type for way in ways for own in way.sets for n in own.nodes}
        gpu_type = types.pop() if len(types) == 1 else None
        return Ways(ready, tuple(single), tuple(map(self._spread, several.values())), gpu_type)

    def _where(self, a: Alternative) -> Iterator[tuple[bool, tuple[Set, ...]]]:
        """Yield whether an alternative takes one node, and of which sets."""
        nodes, gpus = self._problem.instance.cluster.nodes, a.mode.gpus
        alone, racks = a.spread == "node" or gpus == 1, a.spread == "rack"
        if alone or racks:
            able = [n for n, most in a.rooms if most >= gpus and (alone or nodes[n].rack is None)]
            if able or alone:
                yield True, (self._set(able),)
        if not alone:
            sets: dict[str | None, list[int]] = {}
            for n, _ in a.rooms:
                if not racks or nodes[n].rack is not None:
                    sets.setdefault(nodes[n].rack if racks else None, []).append(n)
            enough = [own for own in sets.values() if sum(nodes[n].gpus for n in own) >= gpus]
            if enough:
                yield False, tuple(map(self._set, enough))

    def _spread(self, ways: list[Way]) -> Spread:
        """Return ways together, without those that have a shorter one on the same nodes."""
        nodes = dict.fromkeys(n for way in ways for own in way.sets for n in own.nodes)
        kept: list[Way] = []
        for way in ways:
            if not any(set(other.sets) >= set(way.sets) for other in kept):
                kept.append(way)
        return Spread(self._set(nodes), tuple(kept))

    def _set(self, nodes: Iterable[int]) -> Set:
        own = tuple(nodes)
        if own not in self._sets:
            pools = tuple(dict.fromkeys(self._pool[n] for n in own))
            is_whole = len(own) == sum(len(self._members[pool]) for pool in pools)
            self._sets[own] = Set(own, pools if is_whole else None, frozenset(own))
        return self._sets[own]


def _first_to_complete(ways: Ways, free: Free, wait: int) -> tuple[Way, int, Set, int] | None:
    """Return the way in which a job completes first, its start, a set of nodes that has room for
    it, and the place of the gap that it fills, or -1."""
    best: tuple[Way, int, Set, int] | None = None
    end, ready, nodes = FAR, max(ways.ready, wait), free.nodes
    for way in ways.on_one_node:
        k, length, where = way.gpus - 1, way.length, way.sets[0]
        start = max(ready, min([nodes[n][k] for n in where.nodes], default=FAR))
        if start + length < end:
            end, best = start + length, (way, start, where, -1)
        for place, (span, until, node, times) in enumerate(free.gaps):
            if span + length > 0:
                break
            if len(times) > k and node in where.members:
                start = times[k] if times[k] > ready else ready
                if start + length < end and start + length <= until:
                    end, best = start + length, (way, start, where, place)
    for spread in ways.spread:
        shortest, gpus = spread.ways[0].length, spread.ways[0].gpus
        gaps = free.gaps_of(shortest)
        if ready + shortest >= end or free.count(spread.nodes, end - shortest, gaps) < gpus:
            continue
        for way in spread.ways:
            for where in way.sets:
                start = free.earliest(way, ready, end, where, gaps)
                if start + way.length < end:
                    end, best = start + way.length, (way, start, where, -1)
    return best


def _tightest(
    gpus: int, start: int, end: int, able: tuple[int, ...], nodes: list[tuple[int, ...]]
) -> int:
    """Return the node with so many GPUs free at `start` that has fewest left over; among equal ones
    that where another becomes free nearest to `end`."""
    best, least = -1, (FAR, 0)
    for n in [n for n in able if nodes[n][gpus - 1] <= start]:
        left = bisect_right(nodes[n], start) - gpus
        rest = left, min([abs(time - end) for time in nodes[n]]) if left else 0
        if rest < least:
            best, least = n, rest
    return best
