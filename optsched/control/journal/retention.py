"""What is dropped of the past: finished jobs, rounds, what jobs printed, and profiles of commands
that run no more."""

import math
import os
import shutil
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ...model import gang
from ...profiling.store import Store
from ..account import bill_of
from ..settings import RetentionSettings
from .state import LiveJob

if TYPE_CHECKING:
    from ..controller import Controller

EVERY_S = 3600.0
"""How often to look for what is to be dropped."""
FIRST_S = 60.0
"""How long after its start a controller looks first."""
KEPT_ALIKE = 20
"""So many of the last completed jobs of a user, a command and a size stay as long as profiles do:
estimates are made of them."""
AGAIN_S = 20.0
"""How long until the next turn where there was more to drop than is dropped at once."""
MOST_JOBS, MOST_ROUNDS = 2000, 500
"""So many are dropped at once, so that the controller is not held up."""
MOST_FOLDERS = 500
"""So many folders of outputs are removed at once."""


class Retention:
    """Drops what is older than `settings` say, now and then."""

    def __init__(self, settings: RetentionSettings, first_s: float = FIRST_S) -> None:
        self.settings = settings
        self._next_s = time.monotonic() + first_s

    def take_turn(self, controller: "Controller") -> None:
        """Drop what is due, if it is time for that. Raises JournalError."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + EVERY_S
            if self.drop(controller):
                self._next_s = time.monotonic() + AGAIN_S

    def drop(self, controller: "Controller") -> bool:
        """Drop what is too old now; return whether there is more of it. Raises JournalError."""
        now_s = controller.clock.now_s()
        state = controller.state
        jobs_s, rounds_s = now_s - self.settings.jobs, now_s - self.settings.rounds
        gone = self._gone(controller, jobs_s, min(jobs_s, now_s - self.settings.profiles))
        more = len(gone) > MOST_JOBS
        if more:
            gone = gone[:MOST_JOBS]
            jobs_s = state.jobs[gone[-1]].finished_s or 0.0
        journal = controller.journal
        rounds_s = max(rounds_s, journal.rounds_beyond(self.settings.rounds_gib * 2**30))
        many_s = journal.round_s(MOST_ROUNDS)
        if many_s is not None and many_s < rounds_s:
            rounds_s, more = many_s, True
        outputs_s = max(now_s - self.settings.outputs, jobs_s)
        dropped = frozenset(gone)
        printed = [
            job.id
            for job in state.jobs.values()
            if job.id in dropped or (job.finished_s is not None and job.finished_s < outputs_s)
        ]
        used = bill_of(state, (state.jobs[name] for name in gone), now_s)
        decayed = None if state.use is None else state.use.at(now_s)
        event = journal.prune(now_s, gone, jobs_s, rounds_s, used, decayed)
        more |= journal.give_back()
        for name in gone:
            state.drop(name)
        if event is not None:
            controller.hear(now_s, event)
        self._drop_outputs(controller, printed)
        if self.settings.profiles < math.inf:
            Store(controller.settings.state / "profiles").drop(self.settings.profiles)
        return more

    def _gone(self, controller: "Controller", before_s: float, alike_s: float) -> list[str]:
        """Return jobs that finished before, the first of them first, of which nothing is seen and
        which nobody needs any more; those of which estimates are made stay that finished since
        `alike_s`."""
        state = controller.state
        needed = {name for job in state.open.values() for name in job.submission.predecessors}
        needed.update(key.job for key in controller.observed)
        alike: Counter[object] = Counter()
        gone = []
        for job in sorted(state.jobs.values(), key=lambda job: job.finished_s or 0.0, reverse=True):
            if job.finished_s is None:
                continue
            if job.finished == "completed":
                alike[_kind(job)] += 1
                if alike[_kind(job)] <= KEPT_ALIKE and job.finished_s >= alike_s:
                    continue
            if job.finished_s < before_s and job.id not in needed:
                gone.append(job.id)
        return gone[::-1]

    def _drop_outputs(self, controller: "Controller", names: list[str]) -> None:
        """Remove what finished jobs printed; checkpoints are their users'."""
        settings = controller.settings
        kept = [settings.attempts / "attempts", *filter(None, [settings.outputs])]
        seen = {key.job for key in controller.observed}
        old = {name for name in names if name not in seen}
        there = (folder / name for folder in kept for name in _names_in(folder) if name in old)
        folders = (folder for folder in there if folder.is_dir() and not folder.is_symlink())
        for folder in [*islice(folders, MOST_FOLDERS)]:
            shutil.rmtree(folder, ignore_errors=True)


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _kind(job: LiveJob) -> object:
    noun = job.submission.job
    return noun.user, noun.command, gang(noun)
