"""What ended attempts teach about jobs to come: profiles in a store, and how long jobs like these
ran."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..duration import human
from ..errors import InputError
from ..estimates.history import Ended, Likeness
from ..executors.base import AttemptState, Observation
from ..model import UNMEASURED, Job, Profile
from ..profiling.attempts import measured_of
from ..profiling.estimate import estimate
from ..profiling.likeness import name_of
from ..profiling.store import Store, Stored
from .journal.events import AttemptEnded, Event
from .journal.state import Attempt, LiveJob, State
from .regret.spent import useful_work_s
from .settings import Settings

COSTS = ("restore_s", "startup_s")
"""What is taken over from jobs alike. Memory is not: a limit that nobody stated would end jobs."""
SAVING = ("checkpoint_s", "checkpoint_every_s")
"""What says that a job saves: taken over only from the same user's runs of a similar command."""


class Learning:
    """Hears what happens (`heard`) and tells what may be expected of a new job (`ended`,
    `costs`).

    Profiles are files of `folder`, which may be read and edited at any time; one that is faulty is
    not learned into, and `complain` is told why. `runs_s` is believed of jobs of which nothing is
    said or known.
    """

    def __init__(
        self, folder: Path, state: State, complain: Callable[[str], None], runs_s: float
    ) -> None:
        self._store = Store(folder)
        self._state, self._complain, self._runs_s = state, complain, runs_s
        self.ended = Ended()
        self._known: dict[str, Stored] | None = None
        self._stale: set[str] = set()
        done = [job for job in state.jobs.values() if job.finished == "completed"]
        for job in sorted(done, key=lambda job: job.finished_s or 0.0):
            self._add(job)

    def reload(self, settings: Settings) -> None:
        """Take over what is believed of jobs of which nothing is known."""
        self._runs_s = settings.runs

    def heard(self, at_s: float, event: Event) -> None:
        """Learn from attempts that ended by their own doing."""
        if not isinstance(event, AttemptEnded) or event.exit_status is None:
            return
        job, attempt = self._state.jobs[event.job], self._state.attempt(event.key)
        if job.finished == "completed":
            self._add(job)
        if event.progress is None and event.peak_memory_gib is None:
            return
        try:
            self._learn(job, attempt, event)
        except (InputError, OSError) as error:
            self._complain(f"nothing was learned from {event.key}: {error}")

    def costs(self, user: str | None, command: str | None) -> Profile:
        """Return a profile with what starting and saving took jobs alike."""
        if self._known is None:
            self._known, self._stale = {}, set(self._store.names())
        for name in self._stale:
            try:
                self._known[name] = self._store.read(name)
            except InputError as error:
                self._complain(str(error))
        self._stale.clear()
        stored = [*self._known.values()]
        starting = estimate(user, command, stored)
        costs = {name: getattr(starting, name) for name in COSTS}
        if command is not None:
            own = name_of(user, command)
            alike = [run for run in stored if run.command and name_of(run.user, run.command) == own]
            saving = estimate(user, command, alike)
            costs |= {name: getattr(saving, name) for name in SAVING}
        return replace(UNMEASURED, **costs)

    def _add(self, job: LiveJob) -> None:
        submission = job.submission
        prior_s, basis = prior(submission.stated_s, submission.limit_s, self._runs_s)
        self.ended.add(Likeness.of(submission.job, basis), prior_s, useful_work_s(job))

    def _learn(self, job: LiveJob, attempt: Attempt, event: AttemptEnded) -> None:
        noun = job.submission.job
        if noun.command is None:
            return
        names = ("started_s", "ended_s", "exit_status", "progress", "peak_memory_gib")
        told = {name: getattr(event, name) for name in names}
        seen = Observation(key=attempt.key, state=AttemptState.ENDED, **told)
        measured = measured_of(
            seen,
            gpus=attempt.mode.gpus,
            cpus=sum(slot.cpus for slot in attempt.placement),
            gpu_type=attempt.mode.gpu_type,
            user=noun.user,
            command=noun.command,
            stop_asked_s=attempt.stop_s,
        )
        name = name_of(noun.user, noun.command)
        self._store.note(name, measured, str(attempt.key))
        if self._known is not None:
            self._stale.add(name)


def believed(
    learning: Learning | None, runs_s: float, job: Job, limit_s: float | None = None
) -> tuple[float, str | None]:
    """Return the reference work that a new job is believed to be, and what that was taken from;
    None for that where it is its `duration_s`, what its user states. `limit_s` is when it is
    ended."""
    prior_s, basis = prior(job.duration_s, limit_s, runs_s)
    like = Likeness.of(job, basis)
    alike, same = (0, 0) if learning is None else learning.ended.jobs(like)
    if learning is None or not alike:
        return prior_s, _UNTAUGHT[basis]
    jobs = "one ended job" if alike == 1 else f"{alike} ended jobs"
    whose = "" if job.user is None else f" of user {job.user}"
    very = f", {same} of them the same on as many GPUs" if same else ""
    return (
        min(learning.ended.belief_s(like, prior_s), limit_s or math.inf),
        f"{human(prior_s)} {_PRIOR[basis]}, and {jobs}{whose} with such a command{very}",
    )


_PRIOR = {None: "as a first guess", "stated": "as its user says", "limit": "as its time limit"}
_UNTAUGHT = {None: "nobody stated how long it runs", "limit": "its time limit", "stated": None}


def prior(stated_s: float | None, limit_s: float | None, runs_s: float) -> tuple[float, str | None]:
    """Return what is believed of a job's work before any other has ended, and what that is based on
    (see `Likeness`)."""
    if stated_s is not None:
        return min(stated_s, limit_s or math.inf), "stated"
    return (runs_s, None) if limit_s is None else (limit_s, "limit")
