"""One attempt as its executor follows it, from what is in its folder."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from ..base import SAVED_AND_STOPPED, AttemptKey, AttemptState, Observation, Record
from ..supervision import records
from .ending import checked, exit_status, number
from .folder import NEVER_STARTED, AttemptFolder

Seen = TypeVar("Seen")
"""What the manager says, by which an attempt is looked at."""
LOST_GRACE_S = 5.0
"""So long may save what is left of an attempt that cannot go on."""
AGAIN_S = 5.0
"""How often a manager is told again what it has not done yet."""
SETTLE_S = 4.0
"""So long after the end of a job its supervisor's words may still be on their way through a shared
file system, and so long a submission whose answer was lost may take to be seen."""
FENCE_S = 15.0
"""So long after it was told to end is there no supervisor that still reads its folder has anything
running: a second until it looks, its grace, two and a half for what the command leaves behind."""


class FollowedAttempt(ABC, Generic[Seen]):
    """Cheap to look at again and again: what does not change any more is read once."""

    failed_in = "progress/failed.json"
    """Where in its folder supervisors say which node failed first: where the user of the job may
    write, as whom they run, unless they are ours."""

    def __init__(self, attempts: Path, key: AttemptKey) -> None:
        self.key = key
        self.folder = AttemptFolder(attempts, key)
        self.ended: Observation | None = None
        self.told_s = -float("inf")  # when its manager was last told to end it
        self._records: dict[tuple[str, str], Record] = {}
        self._endings: dict[str, Record] = {}
        self._instants_s: dict[float, float] = {}

    @property
    def names(self) -> list[str]:
        """Return its nodes, by rank."""
        return [node["name"] for node in self.folder.nodes]

    @property
    def uid(self) -> int:
        """Return whose job it is."""
        user = self.folder.spec.get("user")
        return os.geteuid() if user is None else int(user["uid"])

    def waited_s(self) -> float:
        """Return for how long it has been there to be started."""
        made_s = self.folder.spec.get("made_s")
        return 0.0 if made_s is None else self.since_s(float(made_s))

    def since_s(self, at_s: float) -> float:
        """Return the seconds since `at_s`, a Unix time that was written down: what the host's clock
        jumped by after this was first asked does not count."""
        now_s = time.monotonic()
        passed_s = max(0.0, time.time() - at_s)
        return now_s - self._instants_s.setdefault(at_s, now_s - passed_s)

    def held(self) -> list[Record]:
        """Return its nodes with what it holds of each, until it has ended."""
        return [] if self.ended is not None else self.folder.nodes

    def remove(self, outputs: bool) -> None:
        """Remove what is kept of it; without `outputs` what it printed stays."""
        self.folder.remove(outputs)

    # ----------------------------------------------------------------------------------------------
    # to end it

    def stop_record(self) -> Record | None:
        """Return that it is to end, None where it is not."""
        return self.folder.stop_record()

    def may_start(self) -> bool:
        """Return whether something of it may still have to be started."""
        return self.ended is None and bool(self.folder.spec) and self.stop_record() is None

    def write_stop(
        self, grace_s: float | None, lost: str | None = None, retry_s: float | None = None
    ) -> None:
        """Have its supervisors end it, after `grace_s` by force: they keep the deadline, each by
        its own clock.

        `lost` is why, where nobody asked for it, and `retry_s` is set where its manager declined
        it. Raises OSError.
        """
        until = {"until_monotonic_s": self.until_s(grace_s), "retry_s": retry_s}
        self.folder.write_stop({**records.stop(grace_s, lost), **until})
        if self.folder.spec.get("user") is not None:
            os.chmod(self.folder.path / "stop.json", 0o644)

    def give_up(
        self, why: str, grace_s: float = LOST_GRACE_S, retry_s: float | None = None
    ) -> None:
        """Have all of it end although nobody asked for it. Raises OSError."""
        self.write_stop(grace_s, why, retry_s)

    def until_s(self, grace_s: float | None) -> float | None:
        """Return when it is ended by force on the clock of its nodes, None where these keep the
        time by themselves."""
        return 0.0 if grace_s is None else None

    def tell_again(self) -> bool:
        """Return whether its manager is to be told again what it has not done, which counts as
        told."""
        now_s = time.monotonic()
        if now_s < self.told_s + AGAIN_S:
            return False
        self.told_s = now_s
        return True

    def overdue_s(self) -> float:
        """Return for how long it should have ended; negative before."""
        stop = self.stop_record()
        if stop is None:
            return -float("inf")
        return self.since_s(float(stop["asked_s"])) - float(stop["grace_s"] or 0.0)

    # ----------------------------------------------------------------------------------------------
    # to see it

    def look(self, seen: Seen) -> Observation:
        """Return what is seen of it now; what cannot go on is told to end."""
        try:
            if self.ended is not None:
                return self.ended
            if self.folder.damaged:
                path = self.folder.path / "spec.json"
                return self.unreachable(f"its record {path} is damaged")
            if not self.folder.nodes:
                return self.end(
                    Observation(key=self.key, state=AttemptState.ENDED, reason=NEVER_STARTED)
                )
            return self.examine(seen)
        except OSError as error:
            return self.unreachable(f"its files cannot be read: {error.strerror}")

    @abstractmethod
    def examine(self, seen: Seen) -> Observation:
        """Return what is seen of one that has a sound record and was not seen to end. Raises
        OSError."""

    def unreachable(self, reason: str) -> Observation:
        """Return that nobody can tell."""
        return Observation(key=self.key, state=AttemptState.UNREACHABLE, reason=reason)

    def end(self, seen: Observation) -> Observation:
        """Keep how it ended."""
        self.ended = seen
        return seen

    def end_with(self, status: int | None, reason: str | None) -> Observation:
        """Keep that it ended so, with what its supervisors said that its commands used."""
        seen = self.observed(AttemptState.ENDED)
        retry_s = (self.stop_record() or {}).get("retry_s") if seen.started_s is None else None
        ends, peaks, used = (
            [ending[name] for ending in self._endings.values() if ending.get(name) is not None]
            for name in ("ended_s", "peak_memory_gib", "cpu_s")
        )
        ended = replace(
            seen,
            ended_s=max(ends, default=None),
            exit_status=status,
            reason=reason,
            peak_memory_gib=sum(peaks) if peaks else None,
            cpu_s=sum(used) if used else None,
            retry_s=retry_s,
        )
        return self.end(ended)

    def lost(self) -> str | None:
        """Return why it was ended although nobody had asked for it."""
        return (self.stop_record() or {}).get("lost")

    def told(self) -> tuple[int | None, str | None]:
        """Return exit status and reason, once it has ended on all nodes."""
        lost, failed = self.lost(), self.failed()
        if lost is not None:
            return self.ended_by(lost)
        began = any(ending["status"] is not None for ending in self._endings.values())
        if failed is None and not began and self.first_reason() is None:
            return None, NEVER_STARTED
        return self.by_itself()

    def ended_by(self, lost: str) -> tuple[int | None, str]:
        """Return exit status and reason of one that was given up: it may have saved, or done all,
        in time."""
        statuses = [(self._endings.get(name) or {}).get("status") for name in self.names]
        well = SAVED_AND_STOPPED in statuses or not any(statuses)
        return exit_status(statuses) if well else None, lost

    def by_itself(self) -> tuple[int | None, str | None]:
        """Return exit status and reason of what nobody ended: those of the node that failed
        first."""
        failed = self.failed() or {}
        name, said = failed.get("node"), checked(failed)
        if isinstance(name, str) and name in self._endings:
            first = self._endings[name]
            status = said["status"] if first["status"] is None else first["status"]
            said_reason = said["reason"] if first["status"] is None else None
            words = f"its command ended with exit status {status}"
            return status, self.on(name, first["reason"] or said_reason or words)
        statuses = [ending["status"] for ending in self._endings.values()]
        return exit_status(statuses), self.first_reason()

    def first_reason(self) -> str | None:
        """Return the first reason that a node gives."""
        given = ((name, ending["reason"]) for name, ending in self._endings.items())
        return next((self.on(name, why) for name, why in given if why is not None), None)

    def failed(self) -> Record | None:
        """Return which node failed first, as supervisors say."""
        return records.read(self.folder.path / self.failed_in)

    def on(self, name: str, reason: str) -> str:
        """Return the reason, with the node where there are several."""
        return f"on {name} {reason}" if len(self.names) > 1 else reason

    def observed(self, state: AttemptState) -> Observation:
        """Return the attempt in `state`, with what its supervisors said."""
        said = [self._endings.get(name) or self.began(name) or {} for name in self.names]
        starts = [number(record.get("started_s")) for record in said]
        return Observation(
            key=self.key,
            state=state,
            gpu_ids={name: self._gpu_ids(name) for name in self.names},
            started_s=max((start for start in starts if start is not None), default=None),
            progress=self.folder.progress(),
            output=self.folder.output(),
        )

    def _gpu_ids(self, name: str) -> tuple[str, ...]:
        given = (self.given(name) or {}).get("gpu_ids")
        return tuple(map(str, given)) if isinstance(given, list | tuple) else ()

    def given(self, name: str) -> Record | None:
        """Return the record that has the GPUs which it was given on a node."""
        return self.claim(name)

    def claim(self, name: str) -> Record | None:
        """Return who has come to run it on a node: its supervisor, or the executor to see to it
        that none will."""
        return self.read_once(name, "claim.json")

    def began(self, name: str) -> Record | None:
        """Return what its supervisor said when the command began."""
        return self.read_once(name, "pid.json")

    def read_once(self, name: str, file: str) -> Record | None:
        """Return a file of a node's that does not change once it is there."""
        if (name, file) not in self._records:
            there = records.read(self.folder.path / name / file)
            if there is None:
                return None
            self._records[name, file] = there
        return self._records[name, file]

    def ending(self, name: str) -> Record | None:
        """Return how the command of a node ended, None before."""
        if name not in self._endings:
            ending = self.folder.exit(name)
            if ending is None:
                return None
            self._endings[name] = checked(ending)
        return self._endings[name]

    def look_anew(self, names: Sequence[str]) -> None:
        """Have files be seen that are there: network file systems believe for a while that they are
        not, until something changes beside them."""
        for name in names:
            beside = self.folder.path / name / f".look.{os.getpid()}"
            with suppress(OSError):
                os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with suppress(OSError):
                beside.unlink()

    def take(self, name: str) -> bool:
        """See to it that nothing begins on a node any more; False if it has."""
        claim = {"by": "executor", "at_s": time.time()}
        return records.write_first(self.folder.path / name / "claim.json", claim)

    def end_node(self, name: str, reason: str | None, status: int | None = None) -> AttemptState:
        """Say in its supervisor's stead how a command ended."""
        started_s = (self.began(name) or {}).get("started_s")
        with suppress(OSError):  # it is seen again as it is seen now
            self.folder.write_exit(name, reason, started_s, status)
        if self.ending(name) is None:
            self._endings[name] = checked({"status": status, "reason": reason})
        return AttemptState.ENDED

    def unclaimed(self) -> list[int]:
        """Return the ranks that nothing keeps from being started."""
        if not self.may_start():
            return []
        return [rank for rank, name in enumerate(self.names) if self.claim(name) is None]


class AttemptByNode(FollowedAttempt[Seen]):
    """An attempt of which its manager has something for each node."""

    late = "it did not begin within"
    """What is said of one that waits for too long."""

    def __init__(self, attempts: Path, key: AttemptKey, tag: str = "") -> None:
        """Follow it; by `tag` its manager tells its parts from those of another controller."""
        super().__init__(attempts, key)
        self.tag = tag
        self._since_s: dict[tuple[str, str], float] = {}

    @abstractmethod
    def look_at(self, rank: int, node: Record, seen: Seen) -> AttemptState:
        """Return where it is on one node; it is `ended` there once that has been written down."""

    def may_start(self) -> bool:
        """Return whether something of it may still have to be started."""
        return super().may_start() and self.failed() is None

    def going(self, state: AttemptState, name: str, seen: Seen) -> Observation:
        """Return the attempt that has not ended, and is in `state` for what is seen of the node
        `name`."""
        return self.observed(state)

    def examine(self, seen: Seen) -> Observation:
        """Return what is seen of it: that of the node that is least far."""
        states = [self.look_at(rank, node, seen) for rank, node in enumerate(self.folder.nodes)]
        for state in (AttemptState.UNREACHABLE, AttemptState.STARTING, AttemptState.RUNNING):
            if state in states:
                return self.going(state, self.names[states.index(state)], seen)
        return self.end_with(*self.told())

    def over_at(self, name: str) -> bool:
        """Return whether it has ended on a node, or was kept from beginning there."""
        if self.ending(name) is not None:
            return True
        claim = self.claim(name)
        if claim is None or claim.get("by") != "executor":
            return False
        self.end_node(name, None)
        return True

    def alive_at(self, name: str) -> AttemptState:
        """Return where it is on a node where its supervisor runs."""
        self._since_s.pop((name, "gone"), None)
        return AttemptState.STARTING if self.began(name) is None else AttemptState.RUNNING

    def waiting_at(
        self, name: str, why_never: str | None, waits_for: str, held: bool = False
    ) -> AttemptState:
        """Return where it is on a node where nothing of it has begun: it is taken back where it is
        not wanted any more or never will begin, as soon as its manager has let go of it (`held`)
        there."""
        if self.stop_record() is None and self.failed() is None:
            timeout_s = self.folder.spec["start_timeout_s"]
            if why_never is None and self.waited_s() > timeout_s:
                why_never = f"{self.late} {timeout_s:g} s: {waits_for}"
            if why_never is None:
                return AttemptState.STARTING
            self.give_up(self.on(name, why_never))
        if held or not self.take(name):
            return AttemptState.STARTING  # it has just begun, and will find why it is not to run
        return self.end_node(name, None)

    def lost_at(self, name: str, why: str, now_s: float, fence_s: float = FENCE_S) -> AttemptState:
        """Return where it is on a node where it began, and of which its manager says no more than
        `why` it is over: a supervisor that can read its folder will end it within `fence_s`."""
        if not self.lasts(SETTLE_S, name, "gone", now_s):
            return AttemptState.RUNNING
        if (name, "fenced") not in self._since_s:
            self.look_anew([name])
            if self.ending(name) is not None:
                return AttemptState.ENDED
            stop = self.stop_record()
            if stop is None or (stop["grace_s"] is not None and stop.get("lost") is None):
                self.give_up(self.on(name, why))
        if not self.lasts(fence_s, name, "fenced", now_s):
            return AttemptState.UNREACHABLE
        return self.end_node(name, why)

    def lasts(self, seconds: float, name: str, what: str, now_s: float) -> bool:
        """Return whether `what` has been seen of a node for so long, by the monotonic clock."""
        return now_s - self._since_s.setdefault((name, what), now_s) >= seconds
