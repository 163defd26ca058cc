"""How long jobs will be, from those that have ended."""

from collections.abc import Iterable

from ..duration import human
from ..estimates.history import Ended, Likeness
from ..estimates.unknown import FIRST_GUESS_S
from ..frozen import frozen, record


@frozen
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


@record
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
        for job in past:
            self.add(job)

    def add(self, past: Past) -> None:
        """Add one more job that has completed, the latest one."""
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
        """Return the work of a job that has just been submitted, of which `prior_s` is said or
        assumed."""
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
