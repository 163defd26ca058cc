"""How long jobs will be: from those that have ended, and from what a job reports of itself."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..duration import human
from ..estimates.history import Ended, Likeness
from ..estimates.unknown import FIRST_GUESS_S
from ..executors.base import Progress

SHORTEST_S = 1e-3
"""What a job is believed to be at least, as `duration_s` in a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A job that has completed: who ran what on how many GPUs, `work_s`, the seconds it took at
    rate 1, and `prior_s`, what was said or assumed of that beforehand (`basis` as in
    `Likeness`)."""

    user: str | None
    command: str | None
    gpus: int
    work_s: float
    prior_s: float = FIRST_GUESS_S
    basis: str | None = None


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """Reference work in seconds, and what it was taken from, in words; `jobs` is how many ended
    jobs are behind it."""

    work_s: float
    taken_from: str
    jobs: int = 0


class Durations:
    """Predicts the work of new jobs from that of ended ones, as simulations with `--estimates
    history` do (`Ended`)."""

    def __init__(self, past: Iterable[Past] = ()) -> None:
        self._ended = Ended()
        for one in past:
            self.add(one)

    def add(self, past: Past) -> None:
        """One more job has completed, the latest one."""
        like = Likeness(user=past.user, command=past.command, gpus=past.gpus, basis=past.basis)
        self._ended.add(like, past.prior_s, past.work_s)

    def predict(
        self,
        user: str | None,
        command: str | None,
        gpus: int,
        *,
        prior_s: float = FIRST_GUESS_S,
        basis: str | None = None,
    ) -> WorkEstimate:
        """The work of a job that has just been submitted, of which `prior_s` is said or assumed."""
        like = Likeness(user=user, command=command, gpus=gpus, basis=basis)
        alike, same = self._ended.jobs(like)
        if not alike:
            return WorkEstimate(
                prior_s, f"no job like it has ended yet: {human(prior_s)} {_PRIOR[basis]}"
            )
        jobs = "one ended job" if alike == 1 else f"{alike} ended jobs"
        whose = "" if user is None else f" of user {user}"
        very = f", {same} of them the same on as many GPUs" if same else ""
        return WorkEstimate(
            self._ended.belief_s(like, prior_s),
            f"{human(prior_s)} {_PRIOR[basis]}, and {jobs}{whose} with such a command{very}",
            alike,
        )


_PRIOR = {None: "as a first guess", "stated": "as its user says", "limit": "as its time limit"}


def by_progress(progress: Progress, rate: float = 1.0) -> WorkEstimate | None:
    """The work of a whole job by its own report, where it knows how many steps it has and has done
    some since it began: time a step so far, times all steps, at the `rate` it ran at. None where it
    does not say."""
    done = progress.step - progress.first_step
    if (
        progress.total_steps is None
        or progress.began_s is None
        or done <= 0
        or progress.at_s <= progress.began_s
    ):
        return None
    step_s = (progress.at_s - progress.began_s) / done
    work_s = max(SHORTEST_S, step_s * progress.total_steps * rate)
    return WorkEstimate(
        work_s, f"its own report: {progress.step} of {progress.total_steps} steps done"
    )


def outrun(work_s: float, worked_s: float) -> float:
    """What is believed of a job that has worked for `worked_s` already: twice as long, as often as
    it takes."""
    while work_s <= worked_s:
        work_s *= 2
    return work_s
