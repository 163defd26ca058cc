"""One attempt as its executor follows it, from what is in its folder."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..base import SAVED_AND_STOPPED, AttemptKey, AttemptState, Observation
from ..supervision import records
from .ending import checked, exit_status, observed, with_ending
from .folder import NEVER_STARTED, AttemptFolder

Seen = TypeVar("Seen")
"""What the manager says, by which an attempt is looked at."""
LOST_GRACE_S = 5.0
"""So long may save what is left of an attempt that cannot go on."""


class FollowedAttempt(ABC, Generic[Seen]):
    """Cheap to look at again and again: what does not change any more is read once."""

    def __init__(self, attempts: Path, key: AttemptKey) -> None:
        self.key = key
        self.folder = AttemptFolder(attempts, key)
        self.ended: Observation | None = None
        self._claims: dict[str, dict[str, Any]] = {}
        self._begun: dict[str, dict[str, Any]] = {}
        self._endings: dict[str, dict[str, Any]] = {}

    @property
    def names(self) -> list[str]:
        """Its nodes, by rank."""
        return [node["name"] for node in self.folder.nodes]

    @property
    def made_s(self) -> float:
        """When it was to be started, Unix time."""
        return time.time() if self.folder.spec is None else float(self.folder.spec["made_s"])

    # ----------------------------------------------------------------------------------------------
    # to end it

    def stop_record(self) -> dict[str, Any] | None:
        """Return that it is to end, None where it is not."""
        return self.folder.stop_record()

    def may_start(self) -> bool:
        """Return whether something of it may still have to be started."""
        return self.ended is None and self.folder.spec is not None and self.stop_record() is None

    def write_stop(
        self,
        grace_s: float | None,
        overdue: str | None = None,
        lost: str | None = None,
        retry_s: float | None = None,
    ) -> None:
        """Have its supervisors end it, after `grace_s` by force: they keep the deadline, each by
        its own clock.

        `lost` is why, where nobody asked for it, and `retry_s` is set where its manager declined
        it. Raises OSError.
        """
        record = {
            "asked_s": time.time(),
            "grace_s": grace_s,
            "until_monotonic_s": self.until_s(grace_s),
            "overdue": overdue,
            "lost": lost,
            "retry_s": retry_s,
        }
        self.folder.write_stop(record)
        if self.folder.spec is not None and self.folder.spec["user"] is not None:
            os.chmod(self.folder.path / "stop.json", 0o644)

    def give_up(
        self, why: str, grace_s: float = LOST_GRACE_S, retry_s: float | None = None
    ) -> None:
        """Have all of it end although nobody asked for it. Raises OSError."""
        self.write_stop(grace_s, lost=why, retry_s=retry_s)

    def until_s(self, grace_s: float | None) -> float | None:
        """Return when it is ended by force on the clock of its nodes, None where these keep the
        time by themselves."""
        return 0.0 if grace_s is None else None

    def overdue_s(self) -> float:
        """For how long it should have ended; negative before."""
        stop = self.stop_record()
        if stop is None:
            return -float("inf")
        return float(time.time() - stop["asked_s"] - (stop["grace_s"] or 0.0))

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

    def end_with(
        self, status: int | None, reason: str | None, retry_s: float | None = None
    ) -> Observation:
        """Keep that it ended so, with what its supervisors said."""
        common = replace(self.observed(AttemptState.ENDED), retry_s=retry_s)
        return self.end(with_ending(common, self._endings, status, reason))

    def ended_by(self, lost: str) -> tuple[int | None, str]:
        """Return exit status and reason of one that was given up: it may have saved, or done all,
        in time."""
        statuses = [(self._endings.get(name) or {}).get("status") for name in self.names]
        well = SAVED_AND_STOPPED in statuses or not any(statuses)
        return exit_status(statuses) if well else None, lost

    def observed(self, state: AttemptState) -> Observation:
        """Return the attempt in `state`, with what its supervisors said."""
        for name in self.names:
            self.began(name)
        given = {name: self.given(name) or {} for name in self.names}
        return observed(self.folder, state, self._begun, self._endings, given)

    def given(self, name: str) -> dict[str, Any] | None:
        """Return the record that has the GPUs which it was given on a node."""
        return self.claim(name)

    def claim(self, name: str) -> dict[str, Any] | None:
        """Return who has come to run it on a node: its supervisor, or the executor to see to it
        that none will."""
        return self._read_once(self._claims, name, "claim.json")

    def began(self, name: str) -> dict[str, Any] | None:
        """Return what its supervisor said when the command began."""
        return self._read_once(self._begun, name, "pid.json")

    def _read_once(
        self, known: dict[str, dict[str, Any]], name: str, file: str
    ) -> dict[str, Any] | None:
        if name not in known:
            found = records.read(str(self.folder.path / name / file))
            if found is None:
                return None
            known[name] = found
        return known[name]

    def ending(self, name: str) -> dict[str, Any] | None:
        """Return how the command of a node ended, None before."""
        if name not in self._endings:
            found = self.folder.exit(name)
            if found is None:
                return None
            self._endings[name] = checked(found)
        return self._endings[name]

    def missing(self) -> list[str]:
        """Return the nodes that do not say how their command ended."""
        return [name for name in self.names if self.ending(name) is None]

    def look_anew(self, names: Sequence[str]) -> None:
        """Have files be seen that are there: network file systems believe for a while that they are
        not, until something changes beside them."""
        for name in names:
            beside = self.folder.path / name / f".look.{os.getpid()}"
            with suppress(OSError):
                beside.touch()
                beside.unlink()

    def take(self, name: str, reason: str | None = None) -> bool:
        """See to it that nothing begins on a node any more; False if it has."""
        claim = {"by": "executor", "reason": reason, "at_s": time.time()}
        return records.write_first(str(self.folder.path / name / "claim.json"), claim)

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

    def __init__(self, attempts: Path, key: AttemptKey) -> None:
        super().__init__(attempts, key)
        self._since_s: dict[tuple[str, str], float] = {}

    @abstractmethod
    def look_at(self, rank: int, node: dict[str, Any], seen: Seen) -> AttemptState:
        """Return where it is on one node; it is `ended` there once that has been written down."""

    @abstractmethod
    def told(self) -> tuple[int | None, str | None]:
        """Return exit status and reason, once it has ended on all nodes."""

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
        self.end_node(name, claim.get("reason"))
        return True

    def alive_at(self, name: str) -> AttemptState:
        """Return where it is on a node where its supervisor runs."""
        return AttemptState.STARTING if self.began(name) is None else AttemptState.RUNNING

    def lasts(self, seconds: float, name: str, what: str, now_s: float | None = None) -> bool:
        """Return whether `what` has been seen of a node for so long, by the monotonic clock."""
        now_s = time.monotonic() if now_s is None else now_s
        return now_s - self._since_s.setdefault((name, what), now_s) >= seconds
