"""When each job may start: windows from releases, precedence and the incumbent, on a grid of some
size."""

from dataclasses import dataclass
from graphlib import TopologicalSorter

from optsched.model.instance import Instance
from optsched.model.plan import Plan
from optsched.objectives import Level, Objective, Usage, level_value

from ..scheduling.ticks import Tick, choose_tick
from .alternatives import Alternative, Ways

GRIDS = (10**9, 20_000, 10_000, 5_000, 2_000, 1_000, 600, 400, 300, 200, 120, 60)
"""Most ticks to try, from fine to coarse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One binary of the model: a job starts an alternative at `tick` and is done, in ticks, at
    `end`.

    `completion_s` is the earliest instant at which any true schedule that rounds down to this start
    completes.
    """

    alternative: Alternative
    tick: int
    end: int
    completion_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All starts of all jobs."""

    tick: Tick
    of: dict[str, tuple[Start, ...]]
    entries: int


def make_grid(
    ways: Ways,
    objective: Objective,
    incumbent: Plan | None,
    max_variables: int,
    max_entries: int,
    coarse_entries: int,
) -> Grid | None:
    """The exact grid if it has at most so many starts and so many entries in capacity rows, else
    the finest with at most `coarse_entries`, at least one of 60 ticks; None where even that has
    more than `max_entries`."""
    windows = _Windows(ways, objective, incumbent)
    times = [each.seconds for found in ways.of.values() for each in found]
    times += [each.earliest_s for found in ways.of.values() for each in found]
    now_s = ways.instance.now_s
    for most in GRIDS:
        tick = choose_tick(times, most, max(windows.horizon_s, 1e-3), now_s)
        starts = entries = 0
        for job_id, alternative in windows.all():
            count = len(windows.range(tick, job_id, alternative))
            starts += count
            entries += (
                count * (tick.floor(alternative.seconds) + 1) * max(1, len(alternative.split))
            )
        allowed = (
            max_entries if (ways.exact and tick.exact) or most == GRIDS[-1] else coarse_entries
        )
        if starts <= max_variables and entries <= allowed:
            found = {job.id: windows.starts(tick, job.id) for job in ways.instance.jobs}
            return Grid(tick=tick, of=found, entries=entries)
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

    def __init__(self, ways: Ways, objective: Objective, incumbent: Plan | None) -> None:
        self.ways = ways
        self.instance: Instance = ways.instance
        jobs = self.instance.jobs
        every = [each for found in ways.of.values() for each in found]
        ready_s = max((each.earliest_s for each in every), default=0.0)
        longest_s = sum(max(each.seconds for each in ways.of[job.id]) for job in jobs)
        self.earliest_s = self._earliest_starts()
        self.latest_s = {job.id: ready_s + longest_s for job in jobs}
        if incumbent is not None:
            level = objective.levels[0]
            self._cap(level, level_value(level, self.instance, incumbent))
        self._latest_before_successors()
        self.horizon_s = max(self.latest_s.values(), default=0.0)

    def all(self) -> list[tuple[str, Alternative]]:
        """Every (job, alternative)."""
        return [(job_id, each) for job_id, found in self.ways.of.items() for each in found]

    def range(self, tick: Tick, job_id: str, alternative: Alternative) -> range:
        """Ticks at which the alternative may start."""
        if alternative.option is None:
            return range(1)
        first = tick.floor(max(self.earliest_s[job_id], alternative.earliest_s))
        last = tick.floor(self.latest_s[job_id] - alternative.seconds)
        return range(first, last + 1)

    def starts(self, tick: Tick, job_id: str) -> tuple[Start, ...]:
        """All starts of a job."""
        found = []
        for each in self.ways.of[job_id]:
            length = tick.floor(each.seconds)
            for at in self.range(tick, job_id, each):
                begins_s = max(tick.seconds(at), each.earliest_s, self.earliest_s[job_id])
                found.append(
                    Start(
                        alternative=each,
                        tick=at,
                        end=at + length,
                        completion_s=self.instance.now_s + begins_s + each.seconds,
                    )
                )
        return tuple(found)

    def _in_order(self) -> list[str]:
        """Jobs, each after its predecessors."""
        before = {job.id: job.after for job in self.instance.jobs}
        return list(TopologicalSorter(before).static_order())

    def _earliest_starts(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for job_id in self._in_order():
            # A running job holds its nodes from now on, whatever becomes of its predecessors.
            after = () if job_id in self.instance.running_job else self.instance.job[job_id].after
            found[job_id] = max(
                (found[b] + self._shortest_s(b, found[b]) for b in after), default=0.0
            )
        return found

    def _shortest_s(self, job_id: str, start_s: float) -> float:
        """Least seconds from `start_s` until the job can be done."""
        return (
            min(max(start_s, each.earliest_s) + each.seconds for each in self.ways.of[job_id])
            - start_s
        )

    def _latest_before_successors(self) -> None:
        for job_id in reversed(self._in_order()):
            if job_id in self.instance.running_job:
                continue
            starts_s = self.latest_s[job_id] - min(each.seconds for each in self.ways.of[job_id])
            for before in self.instance.job[job_id].after:
                self.latest_s[before] = min(self.latest_s[before], starts_s)

    def _cap(self, level: Level, value: float) -> None:
        """Lower `latest_s` to where a job alone would push the level above `value`."""
        now_s = self.instance.now_s
        jobs = self.instance.jobs
        done_s = {
            job_id: now_s + start_s + self._shortest_s(job_id, start_s)
            for job_id, start_s in self.earliest_s.items()
        }
        fixed = 0.0
        over_jobs = []
        for weight, term in level:
            if isinstance(term, Usage):
                fixed += weight * sum(
                    min(self.ways.usage(term, job, each) for each in self.ways.of[job.id])
                    for job in jobs
                )
            else:
                every = {job.id: term.cost(self.instance, job) for job in jobs}
                costs = {job_id: cost for job_id, cost in every.items() if cost is not None}
                least = {job_id: cost.at(done_s[job_id]) for job_id, cost in costs.items()}
                over_jobs.append((weight, term, costs, least))

        def at_least(job_id: str, completion_s: float) -> float:
            total = fixed
            for weight, term, costs, least in over_jobs:
                values = dict(least)
                if job_id in costs:
                    values[job_id] = costs[job_id].at(completion_s)
                total += weight * term.combine(list(values.values()))
            return total

        certain = at_least(jobs[0].id, done_s[jobs[0].id])
        limit = value + 1e-6 * max(0.0, value - certain) + 1e-12 * abs(value) + 1e-9
        for job in jobs:
            low_s, high_s = done_s[job.id], now_s + self.latest_s[job.id]
            if at_least(job.id, high_s) <= limit:
                continue
            for _ in range(60):
                middle_s = (low_s + high_s) / 2
                if at_least(job.id, middle_s) <= limit:
                    low_s = middle_s
                else:
                    high_s = middle_s
            self.latest_s[job.id] = high_s - now_s
