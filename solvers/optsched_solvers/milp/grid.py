"""Possible starts of each job: windows from releases, precedence and the incumbent, on a grid of
some size."""

from collections.abc import Sequence
from itertools import chain

from optsched.frozen import record
from optsched.model import Plan
from optsched.objectives import Usage, level_value

from ..scheduling.ticks import Tick, choose_tick
from .alternatives import Way, Ways

GRIDS = (10**9, 20_000, 10_000, 5_000, 2_000, 1_000, 600, 400, 300, 200, 120, 60)
"""Most ticks to try, from fine to coarse."""


@record
class Start:
    """One binary of the model: a job starts by a `way` at `tick` and is done, in ticks, at `end`.

    `completion_s` is the earliest instant at which any true schedule that rounds down to this start
    completes.
    """

    way: Way
    tick: int
    end: int
    completion_s: float


@record
class Grid:
    """All starts of all jobs, by index."""

    tick: Tick
    of: list[list[Start]]
    entries: int


def make_grid(
    ways: Ways, incumbent: Plan | None, max_variables: int, max_entries: int, coarse_entries: int
) -> Grid | None:
    """Return the exact grid if it has at most so many starts and so many entries in capacity rows,
    else the finest with at most `coarse_entries`, at least one of 60 ticks; None where even that
    has more than `max_entries`."""
    windows = _Windows(ways, incumbent)
    every = list(chain.from_iterable(ways.of))
    times_s = [time_s for way in every for time_s in (way.seconds, way.ready_s)]
    horizon_s = max([*windows.latest_s, 1e-3])
    for most in GRIDS:
        tick = choose_tick(times_s, most, horizon_s, ways.problem.instance.now_s)
        counts = [len(windows.range(tick, way)) for way in every]
        entries = sum(
            count * (tick.floor(way.seconds) + 1) * max(1, len(way.split))
            for count, way in zip(counts, every, strict=True)
        )
        is_fine = (ways.exact and tick.exact) or most == GRIDS[-1]
        if sum(counts) <= max_variables and entries <= (max_entries if is_fine else coarse_entries):
            return Grid(tick, [windows.starts(tick, own) for own in ways.of], entries)
    return None


class _Windows:
    """Earliest start and latest completion of every job, in seconds after now.

    Latest completions hold for at least one optimal plan. All objectives grow with completion times
    or ignore them, so some optimal plan has no job that could start earlier, all else being equal.
    From the last release (and checkpoint) on, such a plan always has a job that runs, so it ends by
    that instant plus the sum of the longest durations. And in a plan no worse than the incumbent,
    no job alone may push the first objective above the incumbent's value while all others complete
    as early as they could.
    """

    def __init__(self, ways: Ways, incumbent: Plan | None) -> None:
        self.ways, self.problem = ways, ways.problem
        ready_s = max((way.ready_s for own in ways.of for way in own), default=0.0)
        longest_s = sum(max(way.seconds for way in own) for own in ways.of)
        self.earliest_s = self.problem.earliest_s
        self.latest_s = [ready_s + longest_s] * len(ways.of)
        if incumbent is not None:
            self._cap(incumbent)
        self._latest_before_successors()

    def range(self, tick: Tick, way: Way) -> range:
        """Return the ticks at which a job may start by a way."""
        if way.alternative.fixed:
            return range(1)
        j = way.activity.index
        first = tick.floor(max(self.earliest_s[j], way.ready_s))
        return range(first, tick.floor(self.latest_s[j] - way.seconds) + 1)

    def starts(self, tick: Tick, own: Sequence[Way]) -> list[Start]:
        """Return all starts of a job."""
        starts = []
        for way in own:
            begins_s = max(self.earliest_s[way.activity.index], way.ready_s)
            if way.alternative.fixed:
                begins_s = 0.0
            length, done_s = tick.floor(way.seconds), self.problem.instance.now_s + way.seconds
            for at in self.range(tick, way):
                completion_s = max(tick.seconds(at), begins_s) + done_s
                starts.append(Start(way, at, at + length, completion_s))
        return starts

    def _latest_before_successors(self) -> None:
        for activity in reversed(self.problem.in_order):
            if activity.running is None:
                starts_s = self.latest_s[activity.index] - activity.shortest_s
                for i in activity.before:
                    self.latest_s[i] = min(self.latest_s[i], starts_s)

    def _cap(self, incumbent: Plan) -> None:
        """Lower `latest_s` to where a job alone would push the first level above its value in the
        incumbent."""
        problem, instance = self.problem, self.problem.instance
        level = problem.objective.levels[0]
        now_s, value = instance.now_s, level_value(level, instance, incumbent)
        done_s = [
            now_s + activity.done_s(start_s)
            for activity, start_s in zip(problem.activities, self.earliest_s, strict=True)
        ]
        fixed = 0.0
        over_jobs = []
        for weight, term in level:
            if isinstance(term, Usage):
                fixed += weight * sum(
                    min(self.ways.usage(term, way) for way in own) for own in self.ways.of
                )
            else:
                every = {j: term.cost(instance, job) for j, job in enumerate(instance.jobs)}
                costs = {j: cost for j, cost in every.items() if cost is not None}
                least = {j: cost.at(done_s[j]) for j, cost in costs.items()}
                over_jobs.append((weight, term, costs, least))

        def at_least(j: int, completion_s: float) -> float:
            total = fixed
            for weight, term, costs, least in over_jobs:
                values = least | ({j: costs[j].at(completion_s)} if j in costs else {})
                total += weight * term.combine(list(values.values()))
            return total

        certain = at_least(0, done_s[0])
        limit = value + 1e-6 * max(0.0, value - certain) + 1e-12 * abs(value) + 1e-9
        for j, latest_s in enumerate(self.latest_s):
            low_s, high_s = done_s[j], now_s + latest_s
            if at_least(j, high_s) <= limit:
                continue
            for _ in range(60):
                middle_s = (low_s + high_s) / 2
                if at_least(j, middle_s) <= limit:
                    low_s = middle_s
                else:
                    high_s = middle_s
            self.latest_s[j] = high_s - now_s
