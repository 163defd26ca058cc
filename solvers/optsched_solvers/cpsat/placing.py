"""The compiled part of `free_times`: jobs are placed one after the other, on arrays of integers.

Times are ticks. All that is free from some tick on is kept sorted, so that what is free before a
tick is the first part of it. Imported only where a quick list search begins. All of it stands in
one file for the reason that `compiled` gives.
"""

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from optsched.objectives.costs import AT_ONCE_S, LATE_TOLERANCE_S

from ..scheduling.free_capacity import FAR
from .compiled import compiled, pick, put, random, within

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[Any]

LOOKS = 2
"""A list is looked at after so many stops, whether it is good enough to go on."""
NEVER, ZERO = cast(int, np.int64(FAR)), cast(int, np.int64(0))
"""Numbers that are of no type of their own to the compiler."""
LINEAR, HINGE, STEP, SQUARE, INVERSE = range(5)
"""Shapes of the costs of jobs."""
FAILED, DONE, FULL = range(3)
"""What becomes of a list: it has no schedule of a value within the limit, it has one, or there is
no room for all gaps."""
PREEMPTING, NEAR, FREED = range(3)
"""Places in `Walk.shares`."""
RETYPED, MOVED, RETYPED_TOO, EXCHANGED = 0.2, 0.6, 0.3, 0.4
"""How often a job is only kept to another type, else moved, and with that kept to another type; and
how often one is preempted in another's place."""
AROUND = 10
"""A job is swapped with one of so many that stand nearest."""

BEGIN, END, POOL = range(3)
"""Of a node, or a pool: the places of its GPUs; its pool."""
MEMBERS, MEMBERS_END, POOLS, POOLS_END, INSIDE = range(5)
"""Of a set: where its nodes are listed, and its pools, and its row of `Layout.inside`."""
GPUS, LENGTH, SETS, SETS_END = range(4)
"""Of a way: its GPUs, its length, and where the sets are listed of one of which it takes nodes."""
NODES, FEWEST, WAYS, WAYS_END = range(4)
"""Of a spread, the ways of a job on several nodes of one GPU type: all these nodes, the fewest GPUs
of a way, its ways."""
READY, SINGLE, SINGLES_END, SPREAD, SPREADS_END, TYPE = range(6)
"""Of the ways of a job: the tick before which it cannot start, those on one node, its spreads, and
the GPU type of all its nodes, -1 where they are of several."""
STAYS, SAVES, HELD, HELD_END, SHORTEST_WAY, SPLIT = range(6)
"""Of a job: until when it holds its nodes if it goes on, -1 where it does not run, and if it is
preempted; where these are listed, with its GPUs there; its shortest way; the place of its split."""
KIND, WAIT, LEAVES, START, WAY, PIECES = range(6)
"""Of a job in a list: its ways, before when it does not start, whether it is preempted; its start,
its way, -1 where it goes on, and on how many nodes it is."""
SIZE, COUNT, SHARED, REJOINED, TURN, BEGUN = range(6)
"""Of a part of a list: its jobs, its stops, how many of these it shares with the list kept at
first, and from which on it does again; in the first rows the parts in their turns, and the stop
where the running jobs are placed, or -1."""
GPUS_FREE, SPAN, UNTIL, NODE, TIMES = range(5)
"""Of a gap: how many GPUs it has, minus its length, when it ends, its node, and the ticks from
which its GPUs are free, rising."""
GAPS, SHORTEST, IS_FULL, WIDTH, MOST = range(5)
"""Places in `Free.head`: how many gaps there are, the shortest job to come, whether there was no
room for a gap, the room of one, and for how many there is room."""
LEVEL, SHAPE, RANK, COSTS, COSTS_END = range(5)
"""Of a term: its level, the shape of its costs, whose rank counts, or 0 for their sum, and where
they are."""
SCALE, ORIGIN_S = range(2)
"""Of the cost of a job."""


class Layout(NamedTuple):
    """What does not change. `rows` are of nodes, pools, sets, ways, spreads and the ways of each
    job, shortest first, which are known by their row; `lists` are of such numbers; `inside` says
    which nodes are in a set. `seconds` are the lengths of ways; `clock_s` the present, the length
    of a tick, and when each job ends that goes on."""

    rows: Ints
    lists: Ints
    inside: Bytes
    jobs: Ints
    seconds: Floats
    clock_s: Floats


class Value(NamedTuple):
    """Terms of the levels of an objective: each a sum of job costs, or one of them by its rank."""

    terms: Ints
    weights: Floats
    jobs: Ints
    factors: Floats
    costs: Floats


class Free(NamedTuple):
    """The ticks from which the GPUs of each node are free for ever, rising; the same of each pool,
    the nodes of one GPU type in a rack; and the gaps before gangs that are at least as long as the
    shortest job to come: `order` has their places, the longest first, then those that are unused.
    `some` and `room` are for what is computed on the way."""

    times: Ints
    gaps: Ints
    order: Ints
    head: Ints
    some: Ints
    room: Ints


class Stops(NamedTuple):
    """What is free at some places of lists; the first of `unused` says how many stops are."""

    times: Ints
    gaps: Ints
    heads: Ints
    unused: Ints


class Coded(NamedTuple):
    """A list and its schedule. Jobs that do not compete are in parts of their own, by GPU type,
    where all are kept to one; else the last part has all. `stops` are what is free before every
    so-many-th job of a part."""

    jobs: Ints
    ends_s: Floats
    splits: Ints
    order: Ints
    parts: Ints
    stops: Ints


class Walk(NamedTuple):
    """A search from list to list. `order` has the jobs to be placed, in their order, of the list
    kept and of the one that is made near it, `counts` how many these are; `places` are where jobs
    stood when they were placed last. `kinds` are the ways that jobs may be kept to, none first,
    those of each job from `first_kind` on. `often` says how often jobs are moved; `movable` are the
    running jobs that may be preempted; `shares` how often others are, how often jobs move a short
    way, and are kept to no type. `values` are those of the list kept and of the best one; `random`
    is the state of random numbers."""

    order: Ints
    counts: Ints
    places: Ints
    kinds: Ints
    first_kind: Ints
    often: Floats
    movable: Ints
    shares: Floats
    values: Floats
    random: Numbers


class Lists(NamedTuple):
    """The list kept and the one that is made near it; `listed` are the jobs to be placed, in the
    order of their priorities. `shortest` is for what is computed on the way; `work` is what is left
    of it, and what one job takes."""

    kept: Coded
    made: Coded
    listed: Ints
    shortest: Ints
    work: Floats


@within
def _at(times: Ints, first: int, last: int, tick: int) -> int:
    """Return the first place of sorted times that is not before a tick."""
    while first < last:
        middle = (first + last) // 2
        if times[middle] < tick:
            first = middle + 1
        else:
            last = middle
    return first


@within
def _copy(to: Ints, at: int, source: Ints, first: int, count: int) -> None:
    for k in range(count):
        to[at + k] = source[first + k]


@within
def _sort(times: Ints, first: int, last: int) -> None:
    """Sort times (Shell, CACM 2(7), 1959, with the gaps of Tokuda, 1992)."""
    gap = 1
    while gap < last - first:
        gap = gap * 9 // 4 + 1
    while gap:
        for k in range(first + gap, last):
            time, at = times[k], k
            while at >= first + gap and times[at - gap] > time:
                times[at] = times[at - gap]
                at -= gap
            times[at] = time
        gap = gap * 4 // 9


@within
def _hold(times: Ints, first: int, last: int, gpus: int, start: int, end: int) -> None:
    """Hold the GPUs that become free last before `start` until `end`."""
    after = _at(times, first, last, start + 1)
    at = _at(times, after, last, end)
    for k in range(after, at):
        times[k - gpus] = times[k]
    for k in range(at - gpus, at):
        times[k] = end


# -------------------------------------------------------------------------------------------- gaps


@within
def _gaps_of(free: Free, length: int) -> int:
    """Return how many gaps are at least so long."""
    first, last = 0, free.head[GAPS]
    while first < last:
        middle = (first + last) // 2
        if free.gaps[free.order[middle] * free.head[WIDTH] + SPAN] <= -length:
            first = middle + 1
        else:
            last = middle
    return first


@within
def _is_before(gaps: Ints, a: int, b: int) -> bool:
    """Return whether a gap comes before another: the longer one, the sooner, the first node's."""
    for k in range(SPAN, TIMES + min(gaps[a], gaps[b])):
        if gaps[a + k] != gaps[b + k]:
            return bool(gaps[a + k] < gaps[b + k])
    return bool(gaps[a] < gaps[b])


@within
def _insert(free: Free) -> None:
    """Put the gap that has been written to the first unused place in order."""
    order, width, k = free.order, free.head[WIDTH], free.head[GAPS]
    place = order[k]
    while k and _is_before(free.gaps, place * width, order[k - 1] * width):
        order[k] = order[k - 1]
        k -= 1
    order[k] = place
    free.head[GAPS] += 1


@within
def _fill(free: Free, k: int, gpus: int, start: int, end: int) -> None:
    """Hold GPUs of the k-th gap."""
    gaps, order, head = free.gaps, free.order, free.head
    place = order[k]
    head[GAPS] -= 1
    for i in range(k, head[GAPS]):
        order[i] = order[i + 1]
    order[head[GAPS]] = place
    gap = place * head[WIDTH]
    times, until = gap + TIMES, gaps[gap + UNTIL]
    _hold(gaps, times, times + gaps[gap], gpus, start, end)
    gaps[gap] = _at(gaps, times, times + gaps[gap], until - head[SHORTEST] + 1) - times
    if gaps[gap]:
        gaps[gap + SPAN] = gaps[times] - until
        _insert(free)


@within
def _fill_on(free: Free, node: int, gpus: int, start: int, end: int) -> int:
    """Hold up to so many GPUs of gaps of a node; return how many."""
    gaps, order, left = free.gaps, free.order, gpus
    count = _gaps_of(free, end - start)
    _copy(free.some, ZERO, order, ZERO, count)
    for k in range(count):
        gap = free.some[k] * free.head[WIDTH]
        if gaps[gap + NODE] == node and end <= gaps[gap + UNTIL]:
            times = gap + TIMES
            some = min(left, _at(gaps, times, times + gaps[gap], start + 1) - times)
            if some:
                at = 0
                while order[at] != free.some[k]:
                    at += 1
                _fill(free, at, some, start, end)
                left -= some
    return gpus - left


@within
def _take(layout: Layout, free: Free, node: int, gpus: int, start: int, end: int) -> None:
    """Hold the GPUs of a node that become free last before `start` until `end`."""
    times, head, gaps = free.times, free.head, free.gaps
    begin, stop = layout.rows[node, BEGIN], layout.rows[node, END]
    first = _at(times, begin, stop, start + 1) - gpus
    _take_of_pool(layout, free, layout.rows[node, POOL], first, gpus, end)
    count = _at(times, first, first + gpus, start - head[SHORTEST] + 1) - first
    if count and head[GAPS] + 1 >= head[MOST]:
        head[IS_FULL] = 1
    elif count:
        gap = free.order[head[GAPS]] * head[WIDTH]
        gaps[gap], gaps[gap + SPAN] = count, times[first] - start
        gaps[gap + UNTIL], gaps[gap + NODE] = start, node
        _copy(gaps, gap + TIMES, times, first, count)
        _insert(free)
    _hold(times, begin, stop, gpus, start, end)


@within
def _take_of_pool(layout: Layout, free: Free, pool: int, first: int, gpus: int, end: int) -> None:
    """Hold the GPUs of a node, which are free from the times from `first` on, in its pool."""
    times, together = free.times, free.times
    begin, stop = layout.rows[pool, BEGIN], layout.rows[pool, END]
    write, gone = _at(together, begin, stop, times[first]), 0
    at = _at(together, write, stop, end)
    for k in range(write, at):
        if gone < gpus and together[k] == times[first + gone]:
            gone += 1
        else:
            together[k - gone] = together[k]
    for k in range(at - gone, at):
        together[k] = end


# ------------------------------------------------------------------------------------------ places


@within
def _nth(times: Numbers, count: int, n: int) -> Any:
    """Return the n-th smallest of so many numbers, and leave them in another order."""
    first, last = 0, count - 1
    while first < last:
        pivot = times[(first + last) // 2]
        low, high = first, last
        while low <= high:
            while times[low] < pivot:
                low += 1
            while times[high] > pivot:
                high -= 1
            if low <= high:
                times[low], times[high] = times[high], times[low]
                low += 1
                high -= 1
        if n - 1 <= high:
            last = high
        elif n - 1 >= low:
            first = low
        else:
            break
    return times[n - 1]


@within
def _free_from(layout: Layout, free: Free, of: int, gpus: int, gaps: int) -> int:
    """Return the tick from which so many GPUs of a set and of the first `gaps` gaps are free."""
    pools, pools_end = layout.rows[of, POOLS], layout.rows[of, POOLS_END]
    if pools_end == pools + 1 and not gaps:
        return int(free.times[layout.rows[layout.lists[pools], BEGIN] + gpus - 1])
    count = _gather(layout, free, of)
    for k in range(gaps):
        gap = free.order[k] * free.head[WIDTH]
        _copy(free.some, count, free.gaps, gap + TIMES, free.gaps[gap])
        count += free.gaps[gap]
    return int(_nth(free.some, count, gpus))


@within
def _gather(layout: Layout, free: Free, of: int) -> int:
    """Note from when all GPUs of a set are free; return their number."""
    count = 0
    for k in range(layout.rows[of, MEMBERS], layout.rows[of, MEMBERS_END]):
        node = layout.lists[k]
        begin, gpus = layout.rows[node, BEGIN], layout.rows[node, END] - layout.rows[node, BEGIN]
        _copy(free.some, count, free.times, begin, gpus)
        count += gpus
    return count


@within
def _may_be_free(layout: Layout, free: Free, of: int, before: int, gaps: int) -> int:
    """Return how many GPUs of a set and of gaps are free from before a tick on, or more."""
    count = 0
    if layout.rows[of, POOLS] >= 0:
        for k in range(layout.rows[of, POOLS], layout.rows[of, POOLS_END]):
            begin, end = layout.rows[layout.lists[k], BEGIN], layout.rows[layout.lists[k], END]
            count += _at(free.times, begin, end, before) - begin
    else:
        for k in range(layout.rows[of, MEMBERS], layout.rows[of, MEMBERS_END]):
            begin, end = layout.rows[layout.lists[k], BEGIN], layout.rows[layout.lists[k], END]
            count += _at(free.times, begin, end, before) - begin
    for k in range(gaps):
        count += free.gaps[free.order[k] * free.head[WIDTH]]
    return count


@within
def _rooms(layout: Layout, free: Free, of: int, start: int, length: int) -> int:
    """Note how many GPUs of each node of a set are free for `length`; return their sum."""
    gaps, room, total = free.gaps, free.room, 0
    for k in range(layout.rows[of, MEMBERS], layout.rows[of, MEMBERS_END]):
        node = layout.lists[k]
        begin = layout.rows[node, BEGIN]
        room[node] = _at(free.times, begin, layout.rows[node, END], start + 1) - begin
        total += room[node]
    for k in range(_gaps_of(free, length)):
        gap = free.order[k] * free.head[WIDTH]
        node, times = gaps[gap + NODE], gap + TIMES
        if start + length <= gaps[gap + UNTIL] and layout.inside[layout.rows[of, INSIDE], node]:
            some = _at(gaps, times, times + gaps[gap], start + 1) - times
            room[node] += some
            total += some
    return total


@within
def _earliest(
    layout: Layout, free: Free, way: int, of: int, ready: int, end: int, gaps: int
) -> int:
    """Return the first start at which a way finds its GPUs in a set; any at which it does not end
    before `end` where there is none."""
    gpus, length = layout.rows[way, GPUS], layout.rows[way, LENGTH]
    start = max(ready, _free_from(layout, free, of, gpus, gaps))
    if start + length >= end:
        return start
    last = max(ready, _free_from(layout, free, of, gpus, ZERO))
    count = _gather(layout, free, of)
    alone, inside = count, layout.rows[of, INSIDE]
    for k in range(_gaps_of(free, length)):
        gap = free.order[k] * free.head[WIDTH]
        if layout.inside[inside, free.gaps[gap + NODE]]:
            _copy(free.some, count, free.gaps, gap + TIMES, free.gaps[gap])
            count += free.gaps[gap]
    if count == alone:
        return last
    while True:
        if start + length >= end or _rooms(layout, free, of, start, length) >= gpus:
            return start
        later = last
        for k in range(count):
            if start < free.some[k] < later:
                later = free.some[k]
        if later >= last:
            return last
        start = later


@within
def _on_one_node(
    layout: Layout, free: Free, way: int, of: int, ready: int, end: int
) -> tuple[int, int]:
    """Return the first start of a way on one node of a set, and which gap it fills there, or -1;
    any start where it does not end before `end`."""
    gaps, rows, length = free.gaps, layout.rows, layout.rows[way, LENGTH]
    last, start, fills = layout.rows[way, GPUS] - 1, FAR, -1
    for k in range(layout.rows[of, MEMBERS], layout.rows[of, MEMBERS_END]):
        start = min(start, free.times[rows[layout.lists[k], BEGIN] + last])
    start = max(ready, start)
    end = min(end, start + length)
    for k in range(free.head[GAPS]):
        gap = free.order[k] * free.head[WIDTH]
        if gaps[gap + SPAN] + length > 0:
            break
        if gaps[gap] > last and layout.inside[rows[of, INSIDE], gaps[gap + NODE]]:
            at = max(ready, gaps[gap + TIMES + last])
            if at + length < end and at + length <= gaps[gap + UNTIL]:
                start, fills, end = at, k, at + length
    return start, fills


@within
def _first_to_complete(
    layout: Layout, free: Free, kind: int, wait: int
) -> tuple[int, int, int, int]:
    """Return the way in which a job completes first, or -1, its start, a set of nodes that has room
    for it, and which gap it fills, or -1."""
    best, begins, where, fills, end = -1, 0, -1, -1, NEVER
    ready = max(layout.rows[kind, READY], wait)
    spread, spreads_end = layout.rows[kind, SPREAD], layout.rows[kind, SPREADS_END]
    for way in range(layout.rows[kind, SINGLE], layout.rows[kind, SINGLES_END]):
        of = layout.lists[layout.rows[way, SETS]]
        start, gap = _on_one_node(layout, free, way, of, ready, end)
        if start + layout.rows[way, LENGTH] < end:
            end = start + layout.rows[way, LENGTH]
            best, begins, where, fills = way, start, of, gap
    for k in range(spread, spreads_end):
        first, of = layout.rows[k, WAYS], layout.rows[k, NODES]
        shortest, gpus = layout.rows[first, LENGTH], layout.rows[k, FEWEST]
        gaps = _gaps_of(free, shortest)
        if ready + shortest >= end or _may_be_free(layout, free, of, end - shortest, gaps) < gpus:
            continue
        for way in range(first, layout.rows[k, WAYS_END]):
            for s in range(layout.rows[way, SETS], layout.rows[way, SETS_END]):
                start = _earliest(layout, free, way, layout.lists[s], ready, end, gaps)
                if start + layout.rows[way, LENGTH] < end:
                    end = start + layout.rows[way, LENGTH]
                    best, begins, where, fills = way, start, layout.lists[s], -1
    return best, begins, where, fills


@within
def _tightest(layout: Layout, free: Free, of: int, gpus: int, start: int, end: int) -> int:
    """Return the node with so many GPUs free at `start` that has fewest left over; among equal ones
    that where another becomes free nearest to `end`."""
    best, least, nearest = -1, FAR, 0
    for k in range(layout.rows[of, MEMBERS], layout.rows[of, MEMBERS_END]):
        node = layout.lists[k]
        begin, stop = layout.rows[node, BEGIN], layout.rows[node, END]
        if free.times[begin + gpus - 1] > start:
            continue
        left = _at(free.times, begin, stop, start + 1) - begin - gpus
        if left > least:
            continue
        near = FAR if left else 0
        if left:
            for i in range(begin, stop):
                near = min(near, abs(free.times[i] - end))
        if left < least or near < nearest:
            best, least, nearest = node, left, near
    return best


@within
def _take_largest(layout: Layout, free: Free, of: int, gpus: int, splits: Ints, at: int) -> int:
    """Take whole largest rooms of a set first; the last part goes where it leaves least. Note nodes
    and GPUs from a place on, and return how many."""
    room, left, pieces = free.room, gpus, 0
    first, last = layout.rows[of, MEMBERS], layout.rows[of, MEMBERS_END]
    while left > 0:
        best = layout.lists[first]
        for k in range(first, last):
            node = layout.lists[k]
            if room[node] > room[best] or (room[node] == room[best] and node < best):
                best = node
        for k in range(first, last):
            node = layout.lists[k]
            is_less = room[node] < room[best] or (room[node] == room[best] and node < best)
            if is_less and room[node] >= left:
                best = node
        some = min(left, room[best])
        k = at + 2 * pieces
        while k > at and splits[k - 2] > best:
            splits[k], splits[k + 1] = splits[k - 2], splits[k - 1]
            k -= 2
        splits[k], splits[k + 1] = best, some
        room[best] = 0
        left -= some
        pieces += 1
    return pieces


@within
def _place(layout: Layout, free: Free, made: Coded, j: int) -> bool:
    """Place a job where it completes first; return whether it fits anywhere."""
    kind, at, splits = made.jobs[j, KIND], layout.jobs[j, SPLIT], made.splits
    way, start, of, gap = _first_to_complete(layout, free, kind, made.jobs[j, WAIT])
    if way < 0:
        return False
    gpus, end, pieces = layout.rows[way, GPUS], start + layout.rows[way, LENGTH], 1
    if gap >= 0:
        splits[at] = free.gaps[free.order[gap] * free.head[WIDTH] + NODE]
        splits[at + 1] = gpus
        _fill(free, gap, gpus, start, end)
    elif way < layout.rows[kind, SINGLES_END]:
        splits[at], splits[at + 1] = _tightest(layout, free, of, gpus, start, end), gpus
        _take(layout, free, splits[at], gpus, start, end)
    else:
        _rooms(layout, free, of, start, layout.rows[way, LENGTH])
        pieces = _take_largest(layout, free, of, gpus, splits, at)
        for k in range(at, at + 2 * pieces, 2):
            left = splits[k + 1] - _fill_on(free, splits[k], splits[k + 1], start, end)
            if left:
                _take(layout, free, splits[k], left, start, end)
    made.jobs[j, START], made.jobs[j, WAY], made.jobs[j, PIECES] = start, way, pieces
    made.ends_s[j] = (layout.clock_s[0] + start * layout.clock_s[1]) + layout.seconds[way]
    return True


# ------------------------------------------------------------------------------------------ values


@within
def _cost(shape: int, scale: float, late_s: float) -> float:
    """Return what a job costs that completes so long after its origin."""
    if shape == LINEAR:
        return scale * late_s
    if shape == HINGE:
        return scale * max(0.0, late_s)
    if shape == STEP:
        return scale * (late_s > LATE_TOLERANCE_S)
    if shape == SQUARE:
        return scale * (late_s * late_s * (late_s > 0))
    return -scale / max(late_s, AT_ONCE_S)


@within
def _plus(total: float, rest: float, more: float) -> tuple[float, float]:
    """Return a sum of two floats, and what rounding has left of it."""
    both = total + more
    new = both - total
    return both, rest + ((total - (both - new)) + (more - new))


@within
def _value_of(value: Value, level: int, ends_s: Floats) -> float:
    """Return the value of a level by completions."""
    total = rest = 0.0
    for t in range(len(value.terms)):
        if value.terms[t, LEVEL] != level:
            continue
        combined = left = 0.0
        first, last, rank = value.terms[t, COSTS], value.terms[t, COSTS_END], value.terms[t, RANK]
        for k in range(first, last):
            late_s = ends_s[value.jobs[k]] - value.factors[k, ORIGIN_S]
            cost = _cost(value.terms[t, SHAPE], value.factors[k, SCALE], late_s)
            value.costs[k - first] = cost
            combined, left = _plus(combined, left, cost)
        combined = _nth(value.costs, last - first, rank) if rank else combined + left
        total, rest = _plus(total, rest, value.weights[t] * combined)
    return total + rest


# ------------------------------------------------------------------------------------------- lists


@within
def _save(free: Free, stops: Stops) -> int:
    """Remember what is free; return the number of the stop."""
    stop = stops.unused[stops.unused[0]]
    stops.unused[0] -= 1
    width, count = free.head[WIDTH], free.head[GAPS]
    _copy(stops.times[stop], ZERO, free.times, ZERO, len(free.times))
    for k in range(count):
        gap = free.order[k] * width
        _copy(stops.gaps[stop], k * width, free.gaps, gap, TIMES + free.gaps[gap])
    stops.heads[stop, GAPS], stops.heads[stop, SHORTEST] = count, free.head[SHORTEST]
    return int(stop)


@within
def _load(free: Free, stops: Stops, stop: int) -> None:
    """Make free what was so at a stop."""
    width, count = free.head[WIDTH], stops.heads[stop, GAPS]
    _copy(free.times, ZERO, stops.times[stop], ZERO, len(free.times))
    for k in range(count):
        gap = k * width
        _copy(free.gaps, gap, stops.gaps[stop], gap, TIMES + stops.gaps[stop, gap])
    for k in range(len(free.order)):
        free.order[k] = k
    free.head[GAPS], free.head[SHORTEST] = count, stops.heads[stop, SHORTEST]


@within
def _forget_gaps(free: Free, shortest: int) -> None:
    """Forget the gaps that are too short for any job to come."""
    free.head[SHORTEST] = shortest
    free.head[GAPS] = _gaps_of(free, shortest)


@within
def _drop(stops: Stops, stop: int) -> None:
    """Forget a stop."""
    stops.unused[0] += 1
    stops.unused[stops.unused[0]] = stop


@compiled
def release(stops: Stops, of: Coded, made: Coded, kept: Coded) -> None:
    """Forget the stops of one list, of that made and that kept, that they do not share."""
    for part in range(len(of.parts)):
        last = min(made.parts[part, REJOINED], of.parts[part, COUNT])
        for k in range(made.parts[part, SHARED], last):
            _drop(stops, of.stops[part, k])
        of.parts[part, COUNT] = 0
    if of.parts[0, BEGUN] >= 0 and made.parts[0, BEGUN] != kept.parts[0, BEGUN]:
        _drop(stops, of.parts[0, BEGUN])
    of.parts[0, BEGUN] = -1


@within
def _begin(layout: Layout, free: Free, made: Coded) -> None:
    """Leave free what the running jobs do, which go on or save."""
    rows, times, nodes = layout.rows, free.times, len(free.room)
    for k in range(len(times)):
        times[k] = 0
    for j in range(len(layout.jobs)):
        until = layout.jobs[j, STAYS]
        if until < 0:
            continue
        if made.jobs[j, LEAVES]:
            until = layout.jobs[j, SAVES]
        else:
            made.jobs[j, START], made.jobs[j, WAY], made.jobs[j, PIECES] = 0, -1, 0
            made.ends_s[j] = layout.clock_s[2 + j]
        for k in range(layout.jobs[j, HELD], layout.jobs[j, HELD_END], 2):
            node, gpus = layout.lists[k], layout.lists[k + 1]
            _hold(times, rows[node, BEGIN], rows[node, END], gpus, ZERO, until)
    pool, at = nodes, rows[nodes, BEGIN]
    while at < len(times):
        for node in range(nodes):
            if rows[node, POOL] == pool:
                begin, gpus = rows[node, BEGIN], rows[node, END] - rows[node, BEGIN]
                _copy(times, at, times, begin, gpus)
                at += gpus
        _sort(times, rows[pool, BEGIN], at)
        pool += 1
    free.head[GAPS] = free.head[SHORTEST] = 0


@within
def _divide(layout: Layout, made: Coded, listed: Ints) -> int:
    """Divide jobs, in their order, by the GPU type that each is kept to, if all are; note the parts
    in the order of their first jobs and return how many."""
    parts, types, count = made.parts, len(made.parts) - 1, 0
    for part in range(types + 1):
        parts[part, SIZE] = parts[part, SHARED] = 0
        parts[part, REJOINED] = NEVER
    for j in listed:
        part = layout.rows[made.jobs[j, KIND], TYPE]
        if part < 0:
            for k in range(count):
                parts[parts[k, TURN], SIZE] = 0
            _copy(made.order[types], ZERO, listed, ZERO, len(listed))
            parts[types, SIZE], parts[0, TURN] = len(listed), types
            return 1
        if parts[part, SIZE] == 0:
            parts[count, TURN] = part
            count += 1
        made.order[part, parts[part, SIZE]] = j
        parts[part, SIZE] += 1
    return count


@within
def _is_alike(kept: Coded, made: Coded, part: int, k: int) -> bool:
    """Return whether the k-th job of a part is and is to run so in the list kept, too."""
    j = made.order[part, k]
    return bool(
        kept.order[part, k] == j
        and kept.jobs[j, KIND] == made.jobs[j, KIND]
        and kept.jobs[j, WAIT] == made.jobs[j, WAIT]
    )


@within
def _alike(kept: Coded, made: Coded, part: int) -> int:
    """Return how many of the first jobs of a part stand and are to run so in the list kept, too."""
    size = min(kept.parts[part, SIZE], made.parts[part, SIZE])
    for k in range(size):
        if not _is_alike(kept, made, part, k):
            return k
    return int(size)


@within
def _alike_from(kept: Coded, made: Coded, part: int) -> int:
    """Return from which place on all jobs of a part do so."""
    k = made.parts[part, SIZE]
    if kept.parts[part, SIZE] == k:
        while k and _is_alike(kept, made, part, k - 1):
            k -= 1
    return int(k)


@within
def _is_as_at(free: Free, stops: Stops, stop: int) -> bool:
    """Return whether the same is free as at a stop."""
    times, gaps = stops.times[stop], stops.gaps[stop]
    width, count = free.head[WIDTH], free.head[GAPS]
    if stops.heads[stop, GAPS] != count:
        return False
    for k in range(len(free.times)):
        if free.times[k] != times[k]:
            return False
    for k in range(count):
        gap = free.order[k] * width
        for i in range(TIMES + free.gaps[gap]):
            if free.gaps[gap + i] != gaps[k * width + i]:
                return False
    return True


@within
def _first_stop(
    layout: Layout, stops: Stops, lists: Lists, every: int, part: int, known: int
) -> int:
    """Return from which of the `known` stops of the list kept on a part is to be placed."""
    kept, made = lists.kept, lists.made
    shortest, size = lists.shortest, made.parts[part, SIZE]
    shortest[size] = FAR
    for k in range(size - 1, -1, -1):
        shortest[k] = min(shortest[k + 1], layout.jobs[made.order[part, k], SHORTEST_WAY])
    if not known:
        return 0
    alike = _alike(kept, made, part)
    if alike == size == kept.parts[part, SIZE]:
        return known
    first = min(alike // every, known - 1)
    while first and stops.heads[kept.stops[part, first], SHORTEST] > shortest[first * every]:
        first -= 1
    return first


@within
def _decode_part(
    layout: Layout,
    value: Value,
    free: Free,
    stops: Stops,
    lists: Lists,
    every: int,
    part: int,
    limit: float,
) -> bool:
    """Place the jobs of a part, those from where it differs from the list kept."""
    kept, made, work = lists.kept, lists.made, lists.work
    known = kept.parts[part, COUNT] if made.parts[0, BEGUN] == kept.parts[0, BEGUN] else 0
    first = _first_stop(layout, stops, lists, every, part, known)
    if known and first == known:
        _copy(made.stops[part], ZERO, kept.stops[part], ZERO, known)
        made.parts[part, COUNT] = made.parts[part, SHARED] = known
        work[0] -= work[1]
        return True
    if first:
        _copy(made.stops[part], ZERO, kept.stops[part], ZERO, first + 1)
        made.parts[part, COUNT] = made.parts[part, SHARED] = first + 1
        _load(free, stops, made.stops[part, first])
    else:
        _load(free, stops, made.parts[0, BEGUN])
        _forget_gaps(free, lists.shortest[0])
        made.stops[part, 0] = _save(free, stops)
        made.parts[part, COUNT] = 1
    first *= every
    placed, size = first, made.parts[part, SIZE]
    alike_from = _alike_from(kept, made, part) if known else size
    while placed < size:
        if placed % every == 0 and placed > first:
            _forget_gaps(free, lists.shortest[placed])
            stop = placed // every
            if alike_from <= placed and _is_as_at(free, stops, kept.stops[part, stop]):
                _copy(made.stops[part], stop, kept.stops[part], stop, known - stop)
                made.parts[part, REJOINED], made.parts[part, COUNT] = stop, known
                look = -(-stop // LOOKS) * LOOKS * every  # work is counted as if jobs were placed
                is_over = look < size and limit < np.inf
                is_over = is_over and _value_of(value, value.terms[-1, LEVEL], made.ends_s) > limit
                placed = look if is_over else size
                break
            made.stops[part, placed // every] = _save(free, stops)
            made.parts[part, COUNT] += 1
            looks = placed // every % LOOKS == 0 and limit < np.inf
            if looks and _value_of(value, value.terms[-1, LEVEL], made.ends_s) > limit:
                break
        if not _place(layout, free, made, made.order[part, placed]):
            break
        placed += 1
    work[0] -= work[1] * max(1, placed - first)
    return placed == size and not free.head[IS_FULL]


@compiled
def decode(
    layout: Layout, value: Value, free: Free, stops: Stops, lists: Lists, every: int, limit: float
) -> int:
    """Place the jobs of the list that is made, as far as the value of the last level does not turn
    out to be above `limit`; there is a stop before every so-many-th of them."""
    kept, made = lists.kept, lists.made
    release(stops, made, made, kept)
    is_new = kept.parts[0, BEGUN] < 0
    for j in range(len(layout.jobs)):
        for column in range(START, PIECES + 1):
            made.jobs[j, column] = kept.jobs[j, column]
        made.ends_s[j] = kept.ends_s[j]
        is_new = is_new or kept.jobs[j, LEAVES] != made.jobs[j, LEAVES]
    for k in range(len(made.splits)):
        made.splits[k] = kept.splits[k]
    free.head[IS_FULL] = 0
    made.parts[0, BEGUN] = kept.parts[0, BEGUN]
    if is_new:
        _begin(layout, free, made)
        made.parts[0, BEGUN] = _save(free, stops)
    for turn in range(_divide(layout, made, lists.listed)):
        part = made.parts[turn, TURN]
        if not _decode_part(layout, value, free, stops, lists, every, part, limit):
            return FULL if free.head[IS_FULL] else FAILED
    return DONE


# ------------------------------------------------------------------------------------------- walks


@within
def _retype(walk: Walk, made: Coded, j: int) -> None:
    """Keep a job to another GPU type, or to none."""
    first, types = walk.first_kind[j], walk.first_kind[j + 1] - walk.first_kind[j] - 1
    if types < 2 or random(walk.random) < walk.shares[FREED]:
        made.jobs[j, KIND] = walk.kinds[first]
    else:
        made.jobs[j, KIND] = walk.kinds[first + 1 + pick(walk.random, types)]


@within
def _move(walk: Walk, made: Coded, at: int) -> None:
    """Move the job at a place just before or after another, mostly near it, at times to another GPU
    type."""
    order, count = walk.order[1], walk.counts[1]
    j = order[at]
    if random(walk.random) < walk.shares[NEAR]:
        places = int(count ** random(walk.random))
        beside = at + places if random(walk.random) < 0.5 else at - places
        beside = min(max(beside, 0), count - 1)
    else:
        beside = pick(walk.random, count)
    if beside != at:
        to = beside - (beside > at) + (random(walk.random) < 0.5)
        put(order, at, to)
    if random(walk.random) < RETYPED_TOO:
        _retype(walk, made, j)


@within
def _swap(walk: Walk, at: int) -> None:
    """Swap the job at a place and one that is near it."""
    order, count = walk.order[1], walk.counts[1]
    last = min(max(at - AROUND // 2, 0) + AROUND, count - 1)
    first = max(last - AROUND, 0)
    if first == last:
        return
    other = first + pick(walk.random, last - first)
    other += other >= at
    order[at], order[other] = order[other], order[at]


@within
def _preempt_other(walk: Walk, made: Coded, j: int) -> None:
    """Preempt a running job, which comes back anywhere in the list, or no more."""
    order = walk.order[1]
    if made.jobs[j, LEAVES]:
        made.jobs[j, LEAVES] = 0
        at = 0
        while order[at] != j:
            at += 1
        walk.counts[1] -= 1
        put(order, at, walk.counts[1])
    else:
        made.jobs[j, LEAVES] = 1
        order[walk.counts[1]] = j
        walk.counts[1] += 1
        at = pick(walk.random, walk.counts[1])
        put(order, walk.counts[1] - 1, at)
        _retype(walk, made, j)


@within
def _step(walk: Walk, kept: Coded, made: Coded) -> None:
    """Make a list near the one that is kept."""
    walk.counts[1] = walk.counts[0]
    _copy(walk.order[1], ZERO, walk.order[0], ZERO, walk.counts[0])
    for j in range(len(made.jobs)):
        for column in range(KIND, LEAVES + 1):
            made.jobs[j, column] = kept.jobs[j, column]
    count, movable = walk.counts[1], len(walk.movable)
    if movable and (count == 0 or random(walk.random) < walk.shares[PREEMPTING]):
        j = walk.movable[pick(walk.random, movable)]
        if random(walk.random) < EXCHANGED:
            other = walk.movable[pick(walk.random, movable)]
            if made.jobs[other, LEAVES] != made.jobs[j, LEAVES]:
                _preempt_other(walk, made, other)
        _preempt_other(walk, made, j)
        return
    if count == 0:
        return
    total = 0.0
    for k in range(count):
        total += walk.often[walk.order[1, k]]
    left, at = random(walk.random) * total, 0
    while at < count - 1 and left >= walk.often[walk.order[1, at]]:
        left -= walk.often[walk.order[1, at]]
        at += 1
    j = walk.order[1, at]
    if walk.first_kind[j + 1] - walk.first_kind[j] > 2 and random(walk.random) < RETYPED:
        _retype(walk, made, j)
    elif random(walk.random) < MOVED:
        _move(walk, made, at)
    else:
        _swap(walk, at)


@within
def _adopt(walk: Walk) -> None:
    """Keep the order of the list that was made."""
    walk.counts[0] = walk.counts[1]
    for k in range(walk.counts[1]):
        walk.order[0, k] = walk.order[1, k]
        walk.places[walk.order[1, k]] = k


@compiled
def walk_on(
    layout: Layout,
    value: Value,
    free: Free,
    stops: Stops,
    lists: Lists,
    every: int,
    walk: Walk,
    steps: int,
    least_work: float,
    certain: float,
    cool: float,
) -> tuple[int, bool]:
    """Go from list to list for so many steps, as long as there is work left, until there is no room
    for all gaps or a list is better than the best so far; return which of it, and whether the two
    lists have changed their roles.

    A list is taken if its value is at most that of the one kept plus an exponentially distributed
    number of temperatures, each `cool` times what can be changed: simulated annealing.
    """
    kept, made, turned, level = lists.kept, lists.made, False, value.terms[-1, LEVEL]
    for _ in range(steps):
        if lists.work[0] <= least_work:
            break
        _step(walk, kept, made)
        temperature = cool * max(0.0, walk.values[0] - certain)
        limit = walk.values[0] - temperature * np.log(1.0 - random(walk.random))
        listed = walk.order[1][: walk.counts[1]]
        now = Lists(kept, made, listed, lists.shortest, lists.work)
        done = decode(layout, value, free, stops, now, every, limit)
        if done == FULL:
            return FULL, turned
        if done == FAILED:
            continue
        found = _value_of(value, level, made.ends_s)
        if found > limit:
            continue
        release(stops, kept, made, kept)
        kept, made, turned = made, kept, not turned
        _adopt(walk)
        walk.values[0] = found
        if found < walk.values[1]:
            walk.values[1] = found
            return DONE, turned
    return FAILED, turned
