"""What ended attempts teach about jobs to come: profiles in a store, and how long jobs like these ran."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..errors import InputError
from ..executors.base import AttemptState, Observation
from ..profile import UNMEASURED, Profile
from ..profiling.attempts import measured_of
from ..profiling.durations import Durations, Ended, WorkEstimate
from ..profiling.estimate import estimate
from ..profiling.likeness import name_of
from ..profiling.store import Store, Stored
from .events import AttemptEnded, Event, key
from .happened import work_done_s
from .state import Attempt, LiveJob, State

COSTS = ("checkpoint_s", "checkpoint_every_s", "restore_s", "startup_s")
"""What is taken over from jobs alike. Memory is not: a limit that nobody stated would end jobs."""


class Learning:
    """Hears what happens (`heard`) and tells what may be expected of a new job (`work`, `costs`).

    Profiles are files of `folder`, which may be read and edited at any time; one that is faulty is not learned into,
    and `complain` is told why.
    """

    def __init__(self, folder: Path, state: State, complain: Callable[[str], None]) -> None:
        self._store = Store(folder)
        self._state, self._complain = state, complain
        self._durations = Durations()
        self._known: dict[str, Stored] | None = None
        self._stale: set[str] = set()
        done = [job for job in state.jobs.values() if job.finished == "completed"]
        for job in sorted(done, key=lambda job: job.finished_s or 0.0):
            self._add(job)

    def heard(self, at_s: float, event: Event) -> None:
        """Learn from attempts that ended by their own doing."""
        if not isinstance(event, AttemptEnded) or event.exit_status is None:
            return
        job, attempt = self._state.jobs[event.job], self._state.attempt(event.job, event.number)
        if job.finished == "completed":
            self._add(job)
        if event.progress is None and event.peak_memory_gib is None:
            return
        try:
            self._learn(job, attempt, event)
        except (InputError, OSError) as error:
            self._complain(f"nothing was learned from {key(event)}: {error}")

    def work(self, user: str | None, command: str | None, gpus: int) -> WorkEstimate | None:
        """The reference work of a job of which nobody says how long it runs; None where none has completed yet."""
        found = self._durations.predict(user, command, gpus)
        return found if found.jobs else None

    def costs(self, user: str | None, command: str | None) -> Profile:
        """A profile with what starting and saving took jobs alike."""
        if self._known is None:
            self._known, self._stale = {}, set(self._store.names())
        for name in self._stale:
            try:
                self._known[name] = self._store.read(name)
            except InputError as error:
                self._complain(str(error))
        self._stale.clear()
        profile = estimate(user, command, self._known.values()).profile
        return replace(UNMEASURED, **{name: getattr(profile, name) for name in COSTS})

    def _add(self, job: LiveJob) -> None:
        noun = job.submission.job
        gpus = noun.gpus if isinstance(noun.gpus, int) else noun.gpus.max
        self._durations.add(Ended(user=noun.user, command=noun.command, gpus=gpus, work_s=work_done_s(job)))

    def _learn(self, job: LiveJob, attempt: Attempt, event: AttemptEnded) -> None:
        noun = job.submission.job
        if noun.command is None:
            return
        seen = Observation(
            key=attempt.key, state=AttemptState.ENDED, started_s=event.started_s, ended_s=event.ended_s,
            exit_status=event.exit_status, progress=event.progress, peak_memory_gib=event.peak_memory_gib,
        )
        measured = measured_of(
            seen, gpus=attempt.mode.gpus, cpus=sum(slot.cpus for slot in attempt.placement),
            gpu_type=attempt.mode.gpu_type, user=noun.user, command=noun.command, stop_asked_s=attempt.stop_s,
        )
        name = name_of(noun.user, noun.command)
        self._store.note(name, measured, str(attempt.key))
        if self._known is not None:
            self._stale.add(name)
