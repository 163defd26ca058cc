"""The least sum of job costs of a small problem, over all orders in which its jobs may start.

Some optimal schedule is active: no job can start earlier with the others in place. Listing its jobs
by start, each starts at the first instant, not before the one listed before it, at which what it
needs is free: all that is held began before, so what is free only grows from there. All lists are
tried, as dynamic programming over sets of listed jobs. Of two ways to have listed the same jobs the
second is dropped if the first costs no more, is no later and leaves as much free at any time after
(Held and Karp, J. SIAM 10, 1962, with dominance as in Demeulemeester and Herroelen, Management
Science 38, 1992). Nor is a job listed that starts when another one could already have been done.

Lengths and releases are rounded down to ticks and amounts may exceed capacities by a hair, so what
is least here is a bound on every schedule.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import field
from itertools import islice, product

from optsched.frozen import record
from optsched.objectives import SumOfJobs

from .problem import Activity, Alternative, Choice, Problem, Schedule, Split

MOST_JOBS = 12
MOST_WAYS = 12
"""Most ways to place one job."""
MOST_STATES = 150_000
"""Most lists that are looked at."""
HAIR = 1e-6

Needs = tuple[tuple[int, float], ...]
Held = tuple[tuple[int, Needs], ...]
"""Until when something is held, and how much of which rows; by end."""


@record
class Way:
    """One alternative of a job on given nodes, for `length` ticks from `ready` on at the least."""

    alternative: int
    split: Split
    ready: int
    length: int
    needs: Needs
    cost: Callable[[int], float]
    """Its cost by the tick at which it starts."""


@record
class State:
    """The listed jobs' costs, the start of the last of them, what is held from there on, and their
    choices, the last first."""

    cost: float
    at: int
    held: Held
    choices: tuple[tuple[int, Choice], ...]
    last: int = -1
    levels: "Levels" = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _levels(self.held))

    def leaves_as_much(self, other: "State") -> bool:
        """Return whether at least as much is free as in `other` whenever something may follow
        that: so it is at any time if it is just before each end of what is held here."""
        for row, (ends, used) in self.levels.items():
            other_ends, other_used = other.levels.get(row, NOTHING)
            for i in range(len(ends) - 1, -1, -1):
                if ends[i] <= other.at:
                    break
                k = bisect_left(other_ends, ends[i])
                if k == len(other_ends) or used[i] > other_used[k]:
                    return False
        return True


Levels = dict[int, tuple[list[int], list[float]]]
"""For each row the ends of what is held of it, rising, and how much is held until each."""
NOTHING: tuple[list[int], list[float]] = ([], [])


def _levels(held: Held) -> Levels:
    levels: Levels = {}
    for end, needs in reversed(held):
        for row, amount in needs:
            ends, used = levels.setdefault(row, ([], []))
            if ends and ends[-1] == end:
                used[-1] += amount
            else:
                ends.append(end)
                used.append(amount + (used[-1] if used else 0.0))
    for ends, used in levels.values():
        ends.reverse()
        used.reverse()
    return levels


def _used(held: Held, row: int, at: int) -> float:
    return sum(amount for end, needs in held if end > at for r, amount in needs if r == row)


class Orders:
    """All orders of the jobs of a problem that `applies`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.capacity = [row.capacity * (1 + HAIR) + HAIR for row in problem.rows]
        types = problem.node_types
        self._pool: dict[int, int] = {}
        for gpu_type in dict.fromkeys(types):
            members = {n for n, own in enumerate(types) if own == gpu_type}
            if len(members) > 1 and problem.is_one_pool(members):
                self._pool.update(dict.fromkeys(members, len(self.capacity)))
                self.capacity.append(
                    sum(problem.rows[problem.gpu_row[n]].capacity for n in members)
                )
        self.ways = [
            list(islice(self._ways(activity), MOST_WAYS + 1)) for activity in problem.activities
        ]

    @classmethod
    def of(cls, problem: Problem) -> "Orders | None":
        """Return the orders of a problem, or None where they are too many or not all there is."""
        activities = problem.activities
        if (
            len(activities) > MOST_JOBS
            or problem.partner
            or problem.changes_s
            or problem.windows
            or problem.instance.cluster.budgets
            or any(activity.before for activity in activities)
            or not all(isinstance(t, SumOfJobs) for _, t in problem.objective.levels[0])
        ):
            return None
        orders = cls(problem)
        return orders if all(0 < len(ways) <= MOST_WAYS for ways in orders.ways) else None

    def _ways(self, activity: Activity) -> Iterator[Way]:
        for which, alternative in enumerate(activity.alternatives):
            for split in self._splits(alternative):
                yield self._way(activity, which, split)

    def _splits(self, alternative: Alternative) -> Iterator[Split]:
        gpus, rooms = alternative.mode.gpus, alternative.rooms
        if alternative.fixed or not rooms:
            yield rooms
        elif rooms[0][0] in self._pool:
            yield ((rooms[0][0], gpus),)
        elif alternative.spread == "node" or gpus <= 1:
            yield from (((node, gpus),) for node, most in rooms if most >= gpus)
        else:
            racks = self.problem.racks
            for parts in product(*(range(min(most, gpus) + 1) for _, most in rooms)):
                if sum(parts) == gpus:
                    split = [(node, n) for (node, _), n in zip(rooms, parts, strict=True) if n]
                    if alternative.spread != "rack" or len({racks[node] for node, _ in split}) == 1:
                        yield tuple(split)

    def _way(self, activity: Activity, which: int, split: Split) -> Way:
        problem, alternative = self.problem, activity.alternatives[which]
        costs = [
            (weight, cost)
            for weight, term in problem.objective.levels[0]
            if isinstance(term, SumOfJobs)
            and (cost := term.cost(problem.instance, activity.job)) is not None
        ]
        end_s = problem.instance.now_s + alternative.seconds
        first_s = max(problem.earliest_s[activity.index], activity.ready_s(which))

        def cost_at(start: int) -> float:
            # Rounded down a start may be before its release, where a rate has no meaning.
            at_s = end_s + max(first_s, start * problem.tick.length_s)
            return sum(w * float(cost.at(at_s)) for w, cost in costs)

        later = activity.release_down if activity.hold is None else activity.hold.down
        ready = 0 if alternative.fixed else later
        needs = self._needs(activity, alternative, split)
        return Way(which, split, ready, alternative.down, needs, cost_at)

    def _needs(self, activity: Activity, held: Alternative, split: Split) -> Needs:
        """Return what is held, with the GPUs of nodes that are not told apart on one row."""
        needs = dict(held.shared)
        for node, gpus in split:
            on_node = (
                [(self._pool[node], float(gpus))]
                if node in self._pool
                else (self.problem.table.on_node(activity.job, held.mode, node, gpus))
            )
            for row, amount in on_node:
                needs[row] = needs.get(row, 0.0) + amount
        return tuple(needs.items())

    def least(
        self, most: float, is_over: Callable[[], bool]
    ) -> tuple[float, Schedule | None] | None:
        """Return the least cost if it is below `most`, else `most`, and a schedule of that cost on
        the rounded grid; None if there are too many lists."""
        layers: list[dict[int, list[State]]] = [{} for _ in range(len(self.ways) + 1)]
        every, seen = (1 << len(self.ways)) - 1, 0
        for mask, state in self._beginnings():
            _keep(layers[mask.bit_count()].setdefault(mask, []), state)
        best: State | None = None
        for layer in layers[:-1]:
            for mask, states in layer.items():
                seen += len(states)
                if seen > MOST_STATES or is_over():
                    return None
                for state in states:
                    for j, following in self._following(every & ~mask, state, most):
                        grown = mask | 1 << j
                        if grown == every:
                            if following.cost < most:
                                best, most = following, following.cost
                        else:
                            _keep(layers[grown.bit_count()].setdefault(grown, []), following)
            layer.clear()
        for state in layers[-1].get(every, []):
            if state.cost < most:
                best, most = state, state.cost
        return most, None if best is None else [c for _, c in sorted(best.choices, key=_index)]

    def _beginnings(self) -> Iterator[tuple[int, State]]:
        """Yield who is listed, and the state, for each choice of running jobs to preempt."""
        running = [a for a in self.problem.activities if a.running is not None]
        for kept in product(*([True] if a.hold is None else [True, False] for a in running)):
            mask, cost, held, choices = 0, 0.0, [], []
            for activity, is_kept in zip(running, kept, strict=True):
                j = activity.index
                if is_kept:
                    stay = next(
                        w for w in self.ways[j] if activity.alternatives[w.alternative].fixed
                    )
                    mask, cost = mask | 1 << j, cost + stay.cost(0)
                    held.append((stay.length, stay.needs))
                    choices.append((j, Choice(stay.alternative, 0, stay.split)))
                elif activity.hold is not None:
                    needs = self._needs(activity, activity.hold, activity.hold.rooms)
                    held.append((activity.hold.down, needs))
            yield mask, State(cost, 0, tuple(sorted(held)), tuple(choices))

    def _following(self, open_jobs: int, state: State, most: float) -> Iterator[tuple[int, State]]:
        """Yield each next job with the state that it leads to, if that may cost less than
        `most`."""
        starts = [
            (j, way, max(way.ready, self._earliest(state, way.needs)))
            for j in range(len(self.ways))
            if open_jobs >> j & 1
            for way in self.ways[j]
            if not self.problem.activities[j].alternatives[way.alternative].fixed
        ]
        alone: dict[int, float] = {}
        for j, way, start in starts:
            alone[j] = min(alone.get(j, float("inf")), way.cost(start))
        least = state.cost + sum(alone.values())
        if least >= most:
            return
        for j, way, start in starts:
            if start == state.at and j < state.last:
                continue  # the same as listed the other way round
            if least - alone[j] + way.cost(start) >= most or any(
                k != j and begun < start and begun + other.length <= start
                for k, other, begun in starts
            ):
                continue
            held = [entry for entry in state.held if entry[0] > start]
            if way.length:
                held.append((start + way.length, way.needs))
            choice = Choice(way.alternative, start, way.split)
            yield (
                j,
                State(
                    state.cost + way.cost(start),
                    start,
                    tuple(sorted(held)),
                    ((j, choice), *state.choices),
                    j,
                ),
            )

    def _earliest(self, state: State, needs: Needs) -> int:
        """Return the first tick from the last start on at which `needs` are free."""
        earliest = state.at
        for row, amount in needs:
            free = self.capacity[row] - _used(state.held, row, state.at) - amount
            for end, held in state.held:
                if free >= 0:
                    break
                free += sum(given for r, given in held if r == row and end > state.at)
                earliest = max(earliest, end)
        return earliest


def _index(entry: tuple[int, Choice]) -> int:
    return entry[0]


def _keep(states: list[State], state: State) -> None:
    """Add a state that none dominates, and drop those that it dominates."""
    cost, at = state.cost, state.at
    kept = []
    for other in states:
        if other.cost <= cost and other.at <= at and other.leaves_as_much(state):
            return
        if other.cost < cost or other.at < at or not state.leaves_as_much(other):
            kept.append(other)
    states[:] = [*kept, state]
