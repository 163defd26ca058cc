"""The compiled part of `evolution`: orders of jobs that become schedules of one pool, and orders
bred from them.

Times are ticks. An order becomes a schedule by serial generation, and is justified: all jobs are
moved as late as they fit in the order of their ends, then as early as they fit in that of their
starts, as long as that ends sooner (Valls, Ballestin and Quintanilla, EJOR 165, 2005).
"""

from typing import NamedTuple, cast

import numpy as np

from .compiled import compiled, pick, put, random, within
from .placing import Ints, Numbers

FIELD, FIELDS = 16, 4
"""Bits of an amount in a packed number, and how many amounts one has; the highest bit of each is
set as long as enough is left."""
MOST_AMOUNT = 2 ** (FIELD - 1) - 1
"""Most that there may be of anything."""
ENOUGH = cast(int, np.int64(sum(1 << (FIELD * k + FIELD - 1) for k in range(FIELDS)) - 2**64))
"""The highest bits of all amounts."""
STARTED, PLACED, STALE, LEAST, BEST, TURN = range(6)
"""Places in `Population.counts`: how many orders there are so far, how many jobs were placed in
all, how many orders were bred since one ended sooner than all in the population, when the best of
them ends, and the best of all so far; how often all began anew."""
VICTIMS = 5
"""Of so many orders drawn the worst is replaced."""
SWAPPED, SHIFTS, SHIFTED = 0.05, 2, 0.5
"""How often two neighbours swap places in an order that was bred, how many jobs may be put
elsewhere, and how often each is."""
HOPELESS = 28
"""An order that was bred is not justified if it ends later than the best by more than this part of
the time until then: few of these would become as good."""
PATIENCE = 100
"""All begins anew when so many times as many orders as there are were bred in vain."""
LATEST = np.iinfo(np.int64).max
"""Later than any end."""


class Project(NamedTuple):
    """What does not change: the length of each job, the tick before which it does not start, what
    it needs, packed, of what there is; those right before it and right after it, those of job j
    from `first_before[j]` until `first_before[j + 1]`."""

    lengths: Ints
    ready: Ints
    needs: Ints
    amounts: Ints
    first_before: Ints
    before: Ints
    first_after: Ints
    after: Ints


class Profile(NamedTuple):
    """What is left, packed, from each instant until the one that is `following`; at which of
    `ticks` instants are, the first at 0, the last never; at which each job ends. `head` says how
    many instants there are."""

    ticks: Ints
    left: Ints
    following: Ints
    ends: Ints
    head: Ints


class Population(NamedTuple):
    """Orders and how bad each is, the best order of all so far, and counts; `random` is the state
    of random numbers. `some` are for what is computed on the way."""

    orders: Ints
    badness: Ints
    best: Ints
    counts: Ints
    random: Numbers
    some: Ints


def room(jobs: int, rows: int, orders: int, seed: int, turn: int) -> tuple[Profile, Population]:
    """Return room for the profile of one schedule, and for so many orders."""

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    ticks = 2 * jobs + 2
    population = Population(
        ints(orders, jobs),
        ints(orders),
        ints(jobs),
        np.array((0, 0, 0, LATEST, LATEST, turn)),
        np.array((seed,), np.uint64),
        ints(5, jobs),
    )
    profile = Profile(ints(ticks), ints(ticks, rows), ints(ticks), ints(jobs), ints(1))
    return profile, population


# --------------------------------------------------------------------------------------- schedules


@within
def _instant(profile: Profile, k: int, tick: int) -> int:
    """Return the instant at a tick, after the k-th and before the one that follows it; make it."""
    following, made = profile.following[k], profile.head[0]
    if profile.ticks[k] == tick:
        return k
    if profile.ticks[following] == tick:
        return int(following)
    profile.head[0] += 1
    profile.ticks[made] = tick
    profile.following[k], profile.following[made] = made, following
    for row in range(profile.left.shape[1]):
        profile.left[made, row] = profile.left[k, row]
    return int(made)


@within
def _place(project: Project, profile: Profile, j: int, first: int, ready: int) -> int:
    """Place a job as early as it fits, from a tick on that is not before the instant `first`;
    return the instant of its end."""
    ticks, left, following = profile.ticks, profile.left, profile.following
    while ticks[following[first]] <= ready:
        first = following[first]
    length, needs = project.lengths[j], project.needs[j]
    start, end = ready, ready + length
    k = first
    while ticks[k] < end:
        fits = (left[k, 0] - needs[0]) & ENOUGH == ENOUGH
        for row in range(1, len(needs)):
            fits = fits and (left[k, row] - needs[row]) & ENOUGH == ENOUGH
        k = following[k]
        if not fits:  # in the end there is enough
            first, start = k, ticks[k]
            end = start + length
    k = _instant(profile, first, start)
    while ticks[following[k]] < end:
        for row in range(left.shape[1]):
            left[k, row] -= needs[row]
        k = following[k]
    last = _instant(profile, k, end)
    for row in range(left.shape[1]):
        left[k, row] -= needs[row]
    return last


@within
def _schedule(
    project: Project,
    profile: Profile,
    order: Ints,
    first: Ints,
    linked: Ints,
    waits: int,
    ends: Ints,
) -> int:
    """Place all jobs in their order, each after those that it is `linked` to and, if it `waits`,
    when it is ready; note their ends; return the last one."""
    ticks, instants = profile.ticks, profile.ends
    profile.head[0], profile.following[0], ticks[0], ticks[1] = 2, 1, 0, LATEST
    for row in range(len(project.amounts)):
        profile.left[0, row] = project.amounts[row]
    last = 0
    for j in order:
        instant = 0
        for k in range(first[j], first[j + 1]):
            other = instants[linked[k]]
            if ticks[other] > ticks[instant]:
                instant = other
        ready = ticks[instant]
        if waits:
            ready = max(ready, project.ready[j])
        instants[j] = _place(project, profile, j, instant, ready)
        ends[j] = ticks[instants[j]]
        last = max(last, ends[j])
    return last


@within
def _sort(order: Ints, keys: Ints) -> None:
    """Sort jobs by rising keys, then by number (Shell, CACM 2(7), 1959; gaps of Tokuda, 1992)."""
    gap = 1
    while gap < len(order):
        gap = gap * 9 // 4 + 1
    while gap:
        for k in range(gap, len(order)):
            j, at = order[k], k
            while at >= gap:
                other = order[at - gap]
                if keys[other] < keys[j] or (keys[other] == keys[j] and other < j):
                    break
                order[at] = other
                at -= gap
            order[at] = j
        gap = gap * 4 // 9


@within
def _justify(
    project: Project, profile: Profile, population: Population, order: Ints, latest: int
) -> int:
    """Justify an order, have it be by starts, and return how bad it is: when its last job ends,
    then, in every other turn, how many jobs cannot be moved: the fewer they are, the nearer may be
    a sooner end. One that ends after `latest` is left as it is."""
    ends, keys, late = population.some[0], population.some[1], population.some[2]
    other = population.some[3]
    jobs = len(order)
    for k in range(jobs):
        other[k] = order[k]
    last = _schedule(project, profile, order, project.first_before, project.before, 1, ends)
    population.counts[PLACED] += jobs
    if last > latest:
        return int(last * (jobs + 1) + jobs)
    while True:
        for j in range(jobs):
            keys[j] = -ends[j]
        _sort(other, keys)
        first = _schedule(project, profile, other, project.first_after, project.after, 0, ends)
        for j in range(jobs):
            keys[j] = -ends[j]
            late[j] = first - ends[j]
        _sort(other, keys)
        sooner = _schedule(project, profile, other, project.first_before, project.before, 1, ends)
        population.counts[PLACED] += 2 * jobs
        if sooner <= last:
            for j in range(jobs):
                keys[j] = ends[j] - project.lengths[j]
            _sort(other, keys)
            for k in range(jobs):
                order[k] = other[k]
        if sooner >= last:
            break
        last = sooner
    stuck = jobs
    if sooner == last and population.counts[TURN] % 2 == 0:
        for j in range(jobs):
            stuck -= late[j] > keys[j]
    return int(last * (jobs + 1) + stuck)


# -------------------------------------------------------------------------------------- evolution


@within
def _draw(project: Project, population: Population, order: Ints) -> None:
    """Draw an order in which each job comes after those before it."""
    waits_for, jobs, ready = population.some[0], len(order), 0
    for j in range(jobs):
        waits_for[j] = project.first_before[j + 1] - project.first_before[j]
    for j in range(jobs):
        if waits_for[j] == 0:
            order[ready] = j
            ready += 1
    for k in range(jobs):
        at = k + pick(population.random, ready - k)
        order[k], order[at] = order[at], order[k]
        j = order[k]
        for i in range(project.first_after[j], project.first_after[j + 1]):
            waits_for[project.after[i]] -= 1
            if waits_for[project.after[i]] == 0:
                order[ready] = project.after[i]
                ready += 1


@within
def _cross(population: Population, one: int, two: int, order: Ints) -> None:
    """Take the first jobs from one order, the next in the order of another, the rest as in the
    first again: two-point crossover (Hartmann, Naval Research Logistics 45, 1998)."""
    taken, jobs, orders = population.some[0], len(order), population.orders
    for j in range(jobs):
        taken[j] = 0
    a, b = pick(population.random, jobs), pick(population.random, jobs)
    count = 0
    for until, parent in ((min(a, b), one), (max(a, b), two), (jobs, one)):
        k = 0
        while count < until:
            j = orders[parent, k]
            if not taken[j]:
                taken[j] = 1
                order[count] = j
                count += 1
            k += 1


@within
def _is_before(project: Project, i: int, j: int) -> bool:
    for k in range(project.first_before[j], project.first_before[j + 1]):
        if project.before[k] == i:
            return True
    return False


@within
def _swap(project: Project, population: Population, order: Ints) -> None:
    """Swap some neighbours of which none has to come before the other."""
    for k in range(len(order) - 1):
        one, two = order[k], order[k + 1]
        if random(population.random) < SWAPPED and not _is_before(project, one, two):
            order[k], order[k + 1] = two, one


@within
def _shift(project: Project, population: Population, order: Ints) -> None:
    """Put one job elsewhere between those before it and those after it."""
    at = pick(population.random, len(order))
    j, first, last = order[at], at, at
    while first > 0 and not _is_before(project, order[first - 1], j):
        first -= 1
    while last < len(order) - 1 and not _is_before(project, j, order[last + 1]):
        last += 1
    to = first + pick(population.random, last - first + 1)
    put(order, at, to)


@within
def _is_known(population: Population, order: Ints, badness: int) -> bool:
    for other in range(len(population.badness)):
        if population.badness[other] == badness:
            k = 0
            while k < len(order) and population.orders[other, k] == order[k]:
                k += 1
            if k == len(order):
                return True
    return False


@within
def _keep(population: Population, at: int, order: Ints, badness: int) -> bool:
    """Keep an order in a place; return whether it ends sooner than all before it."""
    counts, end = population.counts, badness // (len(order) + 1)
    for k in range(len(order)):
        population.orders[at, k] = order[k]
    population.badness[at] = badness
    if end < counts[LEAST]:
        counts[LEAST], counts[STALE] = end, 0
    if end >= counts[BEST]:
        return False
    counts[BEST] = end
    for k in range(len(order)):
        population.best[k] = order[k]
    return True


@within
def _breed(project: Project, population: Population, order: Ints) -> None:
    """Make an order from two that are drawn."""
    size = len(population.badness)
    _cross(population, pick(population.random, size), pick(population.random, size), order)
    _swap(project, population, order)
    for _ in range(SHIFTS):
        if random(population.random) < SHIFTED:
            _shift(project, population, order)


@within
def _worst(population: Population) -> int:
    """Return the worst of some orders that are drawn."""
    size = len(population.badness)
    worst = pick(population.random, size)
    for _ in range(VICTIMS - 1):
        other = pick(population.random, size)
        if population.badness[other] > population.badness[worst]:
            worst = other
    return worst


@compiled
def begin(project: Project, profile: Profile, population: Population, order: Ints) -> None:
    """Have an order be the first one."""
    _keep(population, 0, order, _justify(project, profile, population, order, LATEST))
    population.counts[STARTED] = 1


@compiled
def evolve(project: Project, profile: Profile, population: Population, steps: int) -> bool:
    """Draw or breed up to so many orders, until one ends sooner than all before it; return whether
    one does."""
    counts, order, size = population.counts, population.some[4], len(population.badness)
    for _ in range(steps):
        if counts[STARTED] < size:
            _draw(project, population, order)
            badness = _justify(project, profile, population, order, LATEST)
            at = counts[STARTED]
            counts[STARTED] += 1
        else:
            _breed(project, population, order)
            latest = counts[LEAST] + counts[LEAST] // HOPELESS
            badness = _justify(project, profile, population, order, latest)
            at = _worst(population)
            counts[STALE] += 1
            if counts[STALE] > PATIENCE * size:
                counts[STARTED], counts[STALE], counts[LEAST] = 0, 0, LATEST
                counts[TURN] += 1
            if badness > population.badness[at] or _is_known(population, order, badness):
                continue
        if _keep(population, at, order, badness):
            return True
    return False
