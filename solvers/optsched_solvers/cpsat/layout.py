"""What lists are decoded with, by numbers: the ways of jobs, sets of nodes, and who runs now."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import assert_never, cast

import numpy as np

from optsched.frozen import record
from optsched.objectives import Hinge, Inverse, JobCost, Linear, RankOfJobs, Square, Step, Usage

from ..scheduling.problem import Activity, Alternative, Problem
from . import placing
from .lists import Ways, by_type
from .placing import Ints

Row = tuple[int, ...]


@record
class Way:
    """One alternative, and the sets of nodes of one of which it takes one node or several."""

    which: int
    alternative: Alternative
    sets: Row


class Chart:
    """Numbers nodes and ways of jobs, those that a job is kept to when they are first asked for.
    `which` are the alternatives of ways, by their rows."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._nodes = problem, problem.instance.cluster.nodes
        self.types = list(dict.fromkeys(node.gpu_type for node in self._nodes))
        pools: dict[object, int] = {}
        self._pool = [pools.setdefault((n.gpu_type, n.rack), len(pools)) for n in self._nodes]
        self._gpus = [node.gpus for node in self._nodes]
        self._in_pool = [
            [n for n, own in enumerate(self._pool) if own == pool] for pool in range(len(pools))
        ]
        self._number_of_set: dict[Row, int] = {}
        self._number_of_kind: dict[tuple[int, Row | None], int] = {}
        self._members: list[Row] = []
        self._rows: list[Row] = []
        self._lists: list[int] = []
        self._seconds: list[float] = []
        self.which: list[int] = []
        self._number_nodes()
        self._jobs = self._describe_jobs()
        self.kinds = self._number_kinds()
        self._layout = self._lay_out()

    @property
    def layout(self) -> placing.Layout:
        """Return all that is numbered so far."""
        if len(self._layout.rows) < len(self._rows):
            self._layout = self._lay_out()
        return self._layout

    def kind(self, j: int, kept_to: Row | None) -> int:
        """Return the number of the ways of a job, of those that it is kept to."""
        kind = self._number_of_kind.get((j, kept_to))
        if kind is None:
            ways = self._find_ways(self._problem.activities[j], kept_to)
            kind = self._number_of_kind[j, kept_to] = self._row(*ways)
        return kind

    def kinds_of(self, ways: Ways) -> list[int]:
        """Return the numbers of the ways of the jobs that are kept to some."""
        known = list(map(self._number_of_kind.get, ways.items()))
        if None in known:
            return [self.kind(j, kept_to) for j, kept_to in ways.items()]
        return cast(list[int], known)

    def kept_to(self) -> dict[int, Row]:
        """Return the ways that jobs can be kept to, by their numbers."""
        return {kind: to for (_, to), kind in self._number_of_kind.items() if to is not None}

    def kinds_to_choose(self, choices: list[list[Row]]) -> tuple[Ints, Ints]:
        """Return the numbers of the ways of all jobs and of those that each may be kept to, and
        where those of each job begin."""
        kinds, first = [], [0]
        for j, own in enumerate(choices):
            kinds += [self.kind(j, None), *(self.kind(j, kept_to) for kept_to in own)]
            first.append(len(kinds))
        return np.array(kinds), np.array(first)

    def _number_kinds(self) -> Ints:
        """Number the ways of all jobs, kept to none and to each GPU type; return the former."""
        kinds = []
        for activity in self._problem.activities:
            kinds.append(self.kind(activity.index, None))
            for gpu_type in dict.fromkeys(a.mode.gpu_type for a in activity.alternatives):
                self.kind(activity.index, by_type(activity, gpu_type))
        return np.array(kinds)

    def lists(self, stops: int, work_per_job: float) -> placing.Lists:
        """Return room for two lists of all jobs, of so many stops each."""
        jobs, parts = len(self._jobs), len(self.types) + 1
        pieces = int(self._jobs[-1, placing.SPLIT]) + 2 * len(self._nodes)

        def coded() -> placing.Coded:
            made = placing.Coded(
                _ints(jobs, placing.PIECES + 1),
                np.zeros(jobs),
                _ints(pieces),
                _ints(parts, jobs),
                _ints(parts, placing.BEGUN + 1),
                _ints(parts, stops + 1),
            )
            made.parts[0, placing.BEGUN] = -1
            return made

        work = np.array((0.0, work_per_job))
        return placing.Lists(coded(), coded(), _ints(0), _ints(jobs + 1), work)

    def free(self, gaps: int, stops: int) -> tuple[placing.Free, placing.Stops]:
        """Return room for what is free, with so many gaps, and for so many stops of two lists."""
        gpus, width = 2 * sum(self._gpus), placing.TIMES + max(self._gpus)
        stops = 2 * (stops + len(self.types) + 3)
        free = placing.Free(
            _ints(gpus),
            _ints(gaps * width),
            np.arange(gaps),
            np.array((0, 0, 0, width, gaps)),
            _ints(gpus + gaps * width),
            _ints(len(self._nodes)),
        )
        unused = np.array((stops, *range(stops)))
        return free, placing.Stops(
            _ints(stops, gpus), _ints(stops, gaps * width), _ints(stops, 2), unused
        )

    def with_more_gaps(
        self, free: placing.Free, stops: placing.Stops
    ) -> tuple[placing.Free, placing.Stops]:
        """Return the same stops, with room for twice as many gaps."""
        larger, _ = self.free(2 * len(free.order), 0)
        gaps = _ints(len(stops.gaps), len(larger.gaps))
        gaps[:, : len(free.gaps)] = stops.gaps
        return larger, stops._replace(gaps=gaps)

    def _row(self, *numbers: int, seconds: float = 0.0, which: int = -1) -> int:
        self._rows.append(numbers)
        self._seconds.append(seconds)
        self.which.append(which)
        return len(self._rows) - 1

    def _list(self, numbers: Iterable[int]) -> Row:
        first = len(self._lists)
        self._lists += numbers
        return first, len(self._lists)

    def _lay_out(self) -> placing.Layout:
        inside = np.zeros((len(self._members), len(self._nodes)), np.uint8)
        for number, of in enumerate(self._members):
            inside[number, list(of)] = 1
        problem = self._problem
        goes_on = ((a, a.stays(alone=False)) for a in problem.activities if a.running is not None)
        ends_s = {a.index: problem.end_s(a, choice) for a, choice in goes_on}
        columns = placing.TYPE + 1
        return placing.Layout(
            np.array([row + (0,) * (columns - len(row)) for row in self._rows], np.int64),
            np.array(self._lists, np.int64),
            inside,
            self._jobs,
            np.array(self._seconds),
            np.array(
                (
                    problem.instance.now_s,
                    problem.tick.length_s,
                    *(ends_s.get(j, 0.0) for j in range(len(self._jobs))),
                )
            ),
        )

    def _number_nodes(self) -> None:
        at = 0
        for gpus, pool in zip(self._gpus, self._pool, strict=True):
            self._row(at, at + gpus, len(self._gpus) + pool)
            at += gpus
        for nodes in self._in_pool:
            gpus = sum(self._gpus[n] for n in nodes)
            self._row(at, at + gpus)
            at += gpus

    def _describe_jobs(self) -> Ints:
        jobs, place = [], 0
        for activity in self._problem.activities:
            stays = saves = -1
            held: Row = (0, 0)
            if activity.running is not None:
                own = activity.alternatives[activity.stays(alone=False).alternative]
                stays, held = own.up, self._list(chain.from_iterable(own.rooms))
            if activity.hold is not None:
                saves = activity.hold.up
            shortest = min(a.up for a in activity.alternatives)
            jobs.append((stays, saves, *held, shortest, place))
            most = max(a.mode.gpus for a in activity.alternatives)
            place += 2 * min(len(self._nodes), most)
        return np.array(jobs, np.int64)

    def _find_ways(self, activity: Activity, kept_to: Row | None) -> Row:
        """Number the ways of a job, shortest first; return what is known of them together."""
        single: list[Way] = []
        several: dict[str | None, list[Way]] = {}
        for which, a in sorted(enumerate(activity.alternatives), key=lambda pair: pair[1].up):
            if a.fixed or not (kept_to is None or which in kept_to):
                continue
            for on_one_node, sets in self._where(a):
                way = Way(which, a, tuple(map(self._set, sets)))
                if on_one_node:
                    single.append(way)
                else:
                    several.setdefault(a.mode.gpu_type, []).append(way)
        of_sets = {of for way in chain(single, *several.values()) for of in way.sets}
        types = {self._nodes[n].gpu_type for of in of_sets for n in self._nodes_of(of)}
        gpu_type = types.pop() if len(types) == 1 else None
        singles = self._number_ways(single)
        spreads = [self._number_spread(ways) for ways in several.values()]
        first = len(self._rows)
        for spread in spreads:
            self._row(*spread)
        ready = max(activity.release_up, 0 if activity.hold is None else activity.hold.up)
        number = -1 if gpu_type is None else self.types.index(gpu_type)
        return ready, *singles, first, first + len(spreads), number

    def _number_spread(self, ways: list[Way]) -> Row:
        """Number ways on several nodes, without those that have a shorter one on the same nodes
        that takes no more GPUs."""
        kept: list[Way] = []
        for way in ways:
            gpus = way.alternative.mode.gpus
            fewer = (other for other in kept if other.alternative.mode.gpus <= gpus)
            if not any(set(other.sets) >= set(way.sets) for other in fewer):
                kept.append(way)
        of_sets = dict.fromkeys(of for way in ways for of in way.sets)
        nodes = dict.fromkeys(n for of in of_sets for n in self._nodes_of(of))
        fewest = min(way.alternative.mode.gpus for way in kept)
        return self._set(tuple(nodes)), fewest, *self._number_ways(kept)

    def _number_ways(self, ways: list[Way]) -> Row:
        first = len(self._rows)
        for way in ways:
            a = way.alternative
            sets = self._list(way.sets)
            self._row(a.mode.gpus, a.up, *sets, seconds=a.seconds, which=way.which)
        return first, len(self._rows)

    def _where(self, a: Alternative) -> Iterator[tuple[bool, list[Row]]]:
        """Yield whether an alternative takes one node, and of which sets."""
        nodes, gpus = self._nodes, a.mode.gpus
        alone, racks = a.spread == "node" or gpus == 1, a.spread == "rack"
        if alone or racks:
            able = [n for n, most in a.rooms if most >= gpus and (alone or nodes[n].rack is None)]
            if able or alone:
                yield True, [tuple(able)]
        if not alone:
            sets: dict[str | None, list[int]] = {}
            for n, _ in a.rooms:
                if not racks or nodes[n].rack is not None:
                    sets.setdefault(nodes[n].rack if racks else None, []).append(n)
            enough = [own for own in sets.values() if sum(nodes[n].gpus for n in own) >= gpus]
            if enough:
                yield False, list(map(tuple, enough))

    def _set(self, nodes: Row) -> int:
        number = self._number_of_set.get(nodes)
        if number is None:
            pools = tuple(dict.fromkeys(self._pool[n] for n in nodes))
            own = sum(self._gpus[n] > 0 for pool in pools for n in self._in_pool[pool])
            is_whole = len(nodes) == own
            rows = self._list(len(self._gpus) + pool for pool in pools) if is_whole else (-1, -1)
            number = self._row(*self._list(nodes), *rows, len(self._members))
            self._members.append(nodes)
            self._number_of_set[nodes] = number
        return number

    def _nodes_of(self, of: int) -> Row:
        return self._members[self._rows[of][placing.INSIDE]]


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, np.int64)


def _shape(cost: JobCost) -> int:
    match cost:
        case Linear():
            return placing.LINEAR
        case Hinge():
            return placing.HINGE
        case Step():
            return placing.STEP
        case Square():
            return placing.SQUARE
        case Inverse():
            return placing.INVERSE
        case _:
            assert_never(cost)


def value_of(problem: Problem) -> placing.Value:
    """Return the terms of the levels of an objective, all of which are of jobs."""
    terms, weights, jobs, factors, first = [], [], [_ints(0)], [np.zeros((0, 2))], 0
    for number, level in enumerate(problem.objective.levels):
        for weight, term in level:
            assert not isinstance(term, Usage)
            which, cost = term.costs(problem.instance, problem.instance.jobs)
            rank = term.rank(len(which)) if isinstance(term, RankOfJobs) and len(which) else 0
            terms.append((number, _shape(cost), rank, first, first + len(which)))
            weights.append(weight)
            jobs.append(which)
            factors.append(np.column_stack((cost.scale, cost.origin_s)))
            first += len(which)
    return placing.Value(
        np.array(terms, np.int64),
        np.array(weights, np.float64),
        np.concatenate(jobs),
        np.concatenate(factors),
        np.zeros(first),
    )
