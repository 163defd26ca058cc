"""How long jobs will be: from those that have ended, and from what a job reports of itself."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..executors.base import Progress
from ..job import Job
from ..simulate.estimates.history import History, groups
from ..simulate.estimates.unknown import FIRST_GUESS_S

SHORTEST_S = 1e-3
"""What a job is believed to be at least, as `duration_s` in a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A job that has completed: who ran what on how many GPUs, and `work_s`, the seconds it took at rate 1."""

    user: str | None
    command: str | None
    gpus: int
    work_s: float


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """Reference work in seconds, and what it was taken from, in words; `jobs` is how many ended jobs are behind it."""

    work_s: float
    taken_from: str
    jobs: int = 0


class Durations:
    """Predicts the work of new jobs from that of ended ones, as simulations with `--estimates history` do: the rolling
    mean over those most like it (`History`, after Hu et al., SC 2021)."""

    def __init__(self, ended: Iterable[Ended] = ()) -> None:
        self._history = History()
        for one in ended:
            self.add(one)

    def add(self, ended: Ended) -> None:
        """One more job has completed, the latest one."""
        self._history.completed(_job(ended.user, ended.command, ended.gpus), max(SHORTEST_S, ended.work_s), 0.0)

    def predict(self, user: str | None, command: str | None, gpus: int) -> WorkEstimate:
        """The work of a job that has just been submitted."""
        for group in groups(_job(user, command, gpus)):
            found = self._history.of(group)
            if found is not None:
                jobs = "one ended job" if found.count == 1 else f"{found.count} ended jobs"
                return WorkEstimate(found.mean_s, f"{jobs}: {_in_words(group)}", found.count)
        return WorkEstimate(FIRST_GUESS_S, "no job has ended yet: a first guess")


def by_progress(progress: Progress, rate: float = 1.0) -> WorkEstimate | None:
    """The work of a whole job by its own report, where it knows how many steps it has and has done some since it began:
    time a step so far, times all steps, at the `rate` it ran at. None where it does not say."""
    done = progress.step - progress.first_step
    if progress.total_steps is None or progress.began_s is None or done <= 0 or progress.at_s <= progress.began_s:
        return None
    step_s = (progress.at_s - progress.began_s) / done
    work_s = max(SHORTEST_S, step_s * progress.total_steps * rate)
    return WorkEstimate(work_s, f"its own report: {progress.step} of {progress.total_steps} steps done")


def outrun(work_s: float, worked_s: float) -> float:
    """What is believed of a job that has worked for `worked_s` already: twice as long, as often as it takes."""
    while work_s <= worked_s:
        work_s *= 2
    return work_s


def _job(user: str | None, command: str | None, gpus: int) -> Job:
    return Job(id="estimated", user=user, command=command, gpus=gpus, duration_s=SHORTEST_S)


def _in_words(group: tuple[str | int | None, ...]) -> str:
    kind, *rest = group
    what = {"command": "the same command", "similar": "a similar command", "user": "any command", "all": "any command"}
    whose = f"of user {rest[0]}" if kind != "all" and rest and rest[0] is not None else "of any user"
    sized = len(rest) > {"command": 2, "similar": 2, "user": 1, "all": 0}[str(kind)]
    return f"{what[str(kind)]} {whose}" + (f" on {rest[-1]} GPUs" if sized else "")
