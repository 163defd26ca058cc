"""CODA's search for a job's cores: hill climbing, one core count at a time."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from optsched.driver import World
from optsched.model import Job, Mode
from optsched.physics import TIME_TOLERANCE_S
from optsched.physics.modes import Option

from .starting import wake

Group = tuple[str, int]
"""The category of a job and its GPUs."""


class Climb:
    """One search over core counts, each of which shows its rate only once it is tried.

    One count up as long as the rate improves by more than `gain`, as a share; where the first step
    up does not, one down as long as it loses no more than that. `count` is what to run with next,
    and in the end what was found.
    """

    def __init__(self, counts: Iterable[int], first: float, gain: float) -> None:
        self._counts = sorted(counts)
        self._gain = gain
        self._begun = max((k for k, count in enumerate(self._counts) if count <= first), default=0)
        self._at = self._best = self._begun
        self._rate: float | None = None
        self._step = 1
        self.goes_on = True

    @property
    def count(self) -> int:
        """Return the cores to run with next."""
        return self._counts[self._at]

    @property
    def found(self) -> int:
        """Return the best count of those tried."""
        return self._counts[self._best]

    def shown(self, rate: float) -> None:
        """Take the rate that `count` has, and go on from there or turn."""
        if self._rate is None or self._is_better(rate, self._rate):
            self._best, self._rate = self._at, rate
            self._at += self._step
            if 0 <= self._at < len(self._counts):
                return
        self.turn()

    def turn(self) -> None:
        """Go no further this way, as `count` is no better or cannot be had: down from the first
        count where nothing above it is better, else the search is at its end."""
        self._at = self._best
        if self._step > 0 and self._best == self._begun > 0:
            self._step = -1
            self._at -= 1
        else:
            self.goes_on = False

    def _is_better(self, rate: float, before: float) -> bool:
        if self._step > 0:
            return rate > before * (1 + self._gain)
        return rate >= before * (1 - self._gain)


class CoreSearch:
    """Searches, each begun at the count at which the last one of its category and gang size ended.

    `searches` and `steps` count how often, and how many counts were tried.

    Source: H. Zhao et al., CODA, ICDCS 2020 (adaptive CPU allocator), reconstructed.
    """

    def __init__(self, gain: float) -> None:
        self.gain = gain
        self.searches = 0
        self.steps = 0
        self._found: dict[Group, int] = {}

    def first(self, group: Group, counts: Iterable[int], share: float) -> int:
        """Return the count at which a job begins: what was found last, at first its share."""
        return Climb(counts, self._found.get(group, share), self.gain).count

    def begin(self, counts: Iterable[int], first: float) -> Climb:
        """Return a new search."""
        self.searches += 1
        return Climb(counts, first, self.gain)

    def shown(self, climb: Climb, rate: float) -> None:
        """Take the rate of the count that a search tries."""
        self.steps += 1
        climb.shown(rate)

    def end(self, group: Group, climb: Climb) -> int:
        """Remember, and return, the best count that a search has tried."""
        self._found[group] = climb.found
        return climb.found


@dataclass(slots=True)
class Trial:
    """The search of a job that runs, whose present count has shown its rate at `due_s`."""

    group: Group
    climb: Climb
    due_s: float = math.inf


class Trials:
    """The searches of the jobs that run: each count for `trial_s` once the job has set up, which
    shows the rate that it had, and nothing else does."""

    def __init__(self, search: CoreSearch, trial_s: float) -> None:
        self._search = search
        self._trial_s = trial_s
        self._of: dict[str, Trial] = {}
        self._over: set[str] = set()

    def started(self, world: World, job_id: str, option: Option) -> None:
        """Begin the search of a job that has started, or go on with it; it is over where the job
        does not run with the count to be tried."""
        mode = option.mode
        if job_id not in self._of and job_id not in self._over and mode.gpus:
            counts = {other.mode.cpus_per_gpu for other in like(world, job_id, mode)}
            if len(counts) > 1:
                group = category(world.job(job_id)), mode.gpus
                self._of[job_id] = Trial(group, self._search.begin(counts, mode.cpus_per_gpu))
        trial = self._of.get(job_id)
        if trial is None:
            return
        if trial.climb.count != mode.cpus_per_gpu:
            self.over(job_id)
            return
        begins_s = world.preemptible_at_s(job_id)
        if changes_in_place(world, job_id):
            begins_s = world.works_from_s(job_id)
        trial.due_s = begins_s + self._trial_s
        wake(world, trial.due_s)

    def due(self, world: World) -> list[tuple[str, Climb]]:
        """Return the jobs whose count has shown its rate by now, with their searches, which have
        taken it."""
        found = []
        for job_id, trial in [*self._of.items()]:
            if not world.is_active(job_id):
                del self._of[job_id]
            elif job_id in world.running and trial.due_s <= world.now_s + TIME_TOLERANCE_S:
                trial.due_s = math.inf
                self._search.shown(trial.climb, world.rate_now(job_id))
                found.append((job_id, trial.climb))
        return found

    def over(self, job_id: str) -> None:
        """End the search of a job, if there is one."""
        trial = self._of.pop(job_id, None)
        if trial is None:
            return
        self._search.end(trial.group, trial.climb)
        self._over.add(job_id)


def category(job: Job) -> str:
    """Return what jobs are alike by: family, else command, else user."""
    return job.profile.name or job.command or job.user or ""


def changes_in_place(world: World, job_id: str) -> bool:
    """Return whether a job runs that may change its cores without a new start."""
    return world.changes_cores and job_id in world.running and world.job(job_id).cores_in_place


def like(world: World, job_id: str, mode: Mode) -> list[Option]:
    """Return a job's options that differ from a mode in nothing but cores."""
    cores = mode.unshared.cpus_per_gpu
    return [
        option
        for option in world.options(job_id)
        if replace(option.mode, cpus_per_gpu=cores) == mode.unshared
    ]
