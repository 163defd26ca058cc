"""The controller: observe, decide, write down, act. Its loop holds no state that the journal does
not."""

import time

from .core import AGAIN_S
from .deciding import Deciding
from .journal.events import Noted
from .warning import warning_of

DISK_EVERY_S = 5.0
"""How often a disk without room is looked at."""


class Controller(Deciding):
    """Drives the jobs of a journal on the nodes of an executor.

    `step` is one turn: it takes in what is seen, decides a round if one is due, and brings what
    runs closer to what the last round decided. A part of it that fails (a bug) keeps nobody from
    the others: it is noted, `bug` is told, and it is tried again later and less often. Every event
    is on the disk before anything is done about it. After a crash a new controller with the same
    journal goes on where the old one was: calls whose effect is not seen are made again, which is
    why every call of an executor is idempotent.

    Raises JournalError where the journal fails; nothing is started then, and what runs goes on
    running.
    """

    def step(self) -> float:
        """Take one turn. Return after how many seconds the next one is due if nothing happens
        before."""
        self.journal.check_there()
        self._begun_s = time.monotonic()
        self.look()
        self._part("looking at the disk", self._look_at_disk)
        self._part("stopping attempts", self._stop_unwanted)
        if self.notices is not None:
            self.record(*(Noted(text=text) for text in self.notices.troubles()))
        if self.short_of_disk is not None:
            self._part("dropping what is old", lambda: self.retention.take_turn(self))
            return DISK_EVERY_S
        if self._round_is_due():
            self._part("deciding a round", self.decide)
            self._part("stopping attempts", self._stop_unwanted)
        self._part("starting attempts", self._start_claimed)
        self._part("dropping what is old", lambda: self.retention.take_turn(self))
        return self._next_s()

    def _next_s(self) -> float:
        """Return the seconds until something is due by itself."""
        now_s = self.clock.now_s()
        due = [self.decided_s + self.settings.every, self.driver(now_s).next_wake_s(self.decided_s)]
        for job in self.state.open.values():
            live = job.live
            if live is None:
                due.append(job.ready_s if job.ready_s > now_s and job.held is None else due[0])
            elif live.leaving or live.started_s is None:
                due.append(now_s + AGAIN_S)
            elif job.submission.own_limit_s is not None:
                left_s, warning = job.limit_left_s(now_s), job.submission.warning
                if warning is not None and not live.warned:
                    left_s -= warning_of(warning)[1]
                due.append(now_s + max(0.0, left_s) if left_s > 0 else now_s + AGAIN_S)
        return max(0.0, min(due) - now_s)
