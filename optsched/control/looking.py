"""Taking in what is seen of nodes, attempts and disks."""

from contextlib import suppress
from functools import partial

from ..executors.base import (
    AttemptKey,
    AttemptState,
    NoAnswerError,
    Observation,
    Reserves,
    in_one_line,
)
from ..model import Placement, Slot
from .core import AGAIN_S, ControllerCore
from .disk import short_of_disk
from .journal.events import AttemptLost, Event, ManagerReserved, Noted
from .journal.journal import JournalError
from .journal.state import Attempt
from .posing import sound
from .seen import news, node_news

MOST_ASKED = 100
"""So many attempts that are over are remembered to have been asked something."""
SILENT_S = 30.0
"""After so long without an answer from the executor its attempts are lost."""


class Looking(ControllerCore):
    """The part of a controller that takes in what is seen."""

    def look(self) -> None:
        """Run `observe` as the first part of a turn."""
        self._part("looking at nodes and attempts", self.observe)

    def _look_at_disk(self) -> None:
        """Note when there is no room for more starts, and when there is again."""
        before, self.short_of_disk = self.short_of_disk, short_of_disk(self.settings)
        if (before is None) != (self.short_of_disk is None):
            self.record(
                Noted(text=self.short_of_disk or "the disk has room again; jobs are started again")
            )
            self._due = True

    def observe(self) -> None:
        """Take in what is seen of nodes and attempts, and let go of those that have ended."""
        jumped_s = self.clock.jump_s()
        if jumped_s is not None:
            self.record(
                Noted(
                    text=f"the clock of this host jumped by {jumped_s:+.1f} s; times here do not "
                    "follow it"
                )
            )
        self._looked_s = self.clock.now_s()
        try:
            self.statuses = sound(self.executor.inventory(), self._sound)
            self.observed = self._reports.take(self.executor.observe(), self.clock.steady_s)
            self._take_reservations()
            self._take_arrivals()
        except (NoAnswerError, OSError) as error:
            self._silent(str(error))
            return
        now_s = self.clock.now_s()
        self._answered_s, self._silence_noted = now_s, False
        self._record_each(
            [
                *node_news(self.state, self.statuses),
                *news(self.state, self.observed, now_s, self.clock.steady_s),
            ]
        )
        self._look_at_windows()
        for key, seen in self.observed.items():
            job = self.state.jobs.get(key.job)
            if job is None or key.number > len(job.attempts):
                if key not in self._strangers:
                    self._strangers.add(key)
                    self.record(
                        Noted(
                            text=f"{key} is not in the journal; it is left alone and keeps its GPUs"
                        )
                    )
            elif job.attempts[key.number - 1].ended is None:
                pass  # nothing is dropped that is not written down
            elif seen.state == AttemptState.ENDED and key not in self._forgotten:
                self._forget(key)
            elif seen.state in (AttemptState.STARTING, AttemptState.RUNNING):
                self._end_again(key)
        self._let_go()

    def _look_at_windows(self) -> None:
        """Note which windows of cluster.toml name nodes that were never in the cluster."""
        if self._windows_looked_at is self.settings or not self.statuses:
            return
        self._windows_looked_at = self.settings
        for window in self.settings.windows:
            unknown = [name for name in window.node_names() if name not in self.state.nodes]
            if unknown:
                which = f"the window {window.name!r} of cluster.toml names"
                names = in_one_line(", ".join(unknown))
                self.record(Noted(text=f"{which} what is no node of the cluster: {names}"))

    def _let_go(self) -> None:
        """Remember nothing of attempts that are over and no longer seen."""
        self._forgotten &= self.observed.keys()
        self._strangers &= self.observed.keys()
        if len(self._asked_s) > 2 * len(self.observed) + MOST_ASKED:
            live = {attempt.key for attempt in self.state.live_attempts()} | self.observed.keys()
            self._asked_s = {key: at_s for key, at_s in self._asked_s.items() if key in live}

    def _take_reservations(self) -> None:
        """Take in what the cluster manager has reserved for others; what was known before holds
        where it does not tell."""
        source = self.executor
        try:
            windows = source.reserved_windows() if isinstance(source, Reserves) else ()
        except NoAnswerError as error:
            if not self._reservations_silent:
                self._reservations_silent = True
                self.record(
                    Noted(
                        text="the cluster manager does not report its reservations, so the last "
                        f"known ones hold: {error}"
                    )
                )
            return
        self._reservations_silent = False
        if windows != self.state.reserved:
            self.record(ManagerReserved(windows=windows))

    def _take_arrivals(self) -> None:
        """Take in jobs that were given to the cluster manager itself; a bug about one of them keeps
        nobody from seeing what is. Raises NoAnswerError, OSError, JournalError."""
        if self._intake is None:
            return
        barred = self.state.barred.keys()
        try:
            self._intake.take()
            self._due |= bool(barred - self.state.barred.keys())
        except (NoAnswerError, OSError, JournalError):
            raise
        except Exception as error:
            self._failed("taking in jobs of the cluster manager", error)

    def _end_again(self, key: AttemptKey) -> None:
        """Kill what is still seen of an attempt that is over: somebody vouched for that, or its
        start failed."""
        if self.clock.now_s() - self._asked_s.get(key, -float("inf")) >= AGAIN_S:
            self._asked_s[key] = self.clock.now_s()
            with suppress(NoAnswerError, OSError):
                self.executor.kill(key)

    def _record_each(self, events: list[Event]) -> None:
        """Record events together, and those that can be where one of them cannot."""
        last = self.journal.last
        try:
            self.record(*events)
        except ValueError:
            if self.journal.last != last:
                raise
            for event in events:
                whose = getattr(event, "job", "")
                what = f"recording {type(event).__name__} {whose}".rstrip()
                self._part(what, partial(self.record, event))

    def strangers(self) -> tuple[Placement, ...]:
        """Return the GPUs of attempts that go on although the journal does not know them, or knows
        that they ended. Of one that was vouched for only what is seen running counts."""
        return tuple(
            tuple(Slot(node=node, gpus=len(ids)) for node, ids in sorted(seen.gpu_ids.items()))
            for key, seen in self.observed.items()
            if seen.gpu_ids and seen.state != AttemptState.ENDED and self._is_strange(key, seen)
        )

    def _is_strange(self, key: AttemptKey, seen: Observation) -> bool:
        job = self.state.jobs.get(key.job)
        if job is None or key.number > len(job.attempts):
            return True
        attempt = job.attempts[key.number - 1]
        return attempt.ended is not None and not (
            attempt.cleared and seen.state == AttemptState.UNREACHABLE
        )

    def may_go_on(self, attempt: Attempt) -> bool:
        """Return whether an attempt may still be there as far as can be known: it is seen, or
        nobody tells what is."""
        seen = self.observed.get(attempt.key)
        if seen is not None:
            return seen.state != AttemptState.ENDED
        return self._answered_s < self._looked_s

    def _forget(self, key: AttemptKey) -> None:
        with suppress(NoAnswerError, OSError):  # else tried again at the next turn
            self.executor.forget(key)
            self._forgotten.add(key)

    def _silent(self, why: str) -> None:
        if self.clock.now_s() - self._answered_s < SILENT_S:
            return
        if not self._silence_noted:
            self._silence_noted = True
            self.record(Noted(text=f"nothing is known about the nodes: {why}"))
        self.record(
            *(
                AttemptLost(job=attempt.key.job, number=attempt.key.number, reason=why)
                for attempt in self.state.live_attempts()
                if attempt.lost is None
            )
        )
