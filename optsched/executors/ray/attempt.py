"""One attempt as the executor knows it: what its files and Ray say by now."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..attempts.attempt import AttemptByNode
from ..attempts.ending import of_the_first
from ..attempts.folder import NEVER_STARTED
from ..base import AttemptKey, AttemptState, Observation
from ..supervision import records
from .nodes import RayNode
from .spec import submission_id

SETTLE_S = 4.0
"""So long after Ray says that a job has ended its record may still be on its way through a shared
file system."""
FENCE_S = 12.0
"""So long after `failed.json` is there no supervisor that still reads it has anything running: a
second until it looks, five for the command, two and a half for what that leaves behind."""
LIVE = ("PENDING", "RUNNING")
"""Ray's words for jobs that have not ended."""
SAID_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What Ray said at `at_s` of the monotonic clock."""

    at_s: float
    nodes: Mapping[str, RayNode]
    jobs: Mapping[str, Mapping[str, Any]]


class RayAttempt(AttemptByNode[Seen]):
    """An attempt that is a Ray job on each of its nodes."""

    def __init__(self, attempts: Path, key: AttemptKey, tag: str) -> None:
        super().__init__(attempts, key)
        self.tag = tag
        self._ready: dict[str, dict[str, Any]] = {}

    def gpus(self) -> dict[str, int]:
        """GPUs that it holds, by node, until it has ended."""
        return (
            {}
            if self.ended is not None
            else {node["name"]: node["gpus"] for node in self.folder.nodes}
        )

    def may_start(self) -> bool:
        """Return whether something of it may still have to be started."""
        return super().may_start() and self.folder.failed() is None

    def claimed(self) -> list[int]:
        """Ranks whose processes run as far as is known."""
        return [
            rank
            for rank, node in enumerate(self.folder.nodes)
            if (self.claim(node["name"]) or {}).get("by") == "ray"
            and self.ending(node["name"]) is None
        ]

    def fail(self, name: str, reason: str) -> None:
        """Say that the attempt fails for want of this node; all of it ends. Raises OSError."""
        record = {"node": name, "status": None, "reason": reason}
        records.write_first(str(self.folder.path / "failed.json"), record)

    def told(self) -> tuple[int | None, str | None]:
        """Return exit status and reason."""
        return of_the_first(self.folder, self._endings)

    def going(self, state: AttemptState, name: str, seen: Seen) -> Observation:
        """Return the attempt, with why a part of it cannot be reached."""
        if state is not AttemptState.UNREACHABLE:
            return self.observed(state)
        lost = (self.folder.failed() or {}).get("reason") or "Ray has lost a part of it"
        return replace(self.observed(state), reason=lost)

    def look_at(self, rank: int, node: dict[str, Any], seen: Seen) -> AttemptState:
        """Return where it is on one node, by its Ray job."""
        name = node["name"]
        if self.over_at(name):
            return AttemptState.ENDED
        job = seen.jobs.get(submission_id(self.key, rank, self.tag))
        if self.claim(name) is None:
            return self._look_at_waiting(node, job, seen)
        if job is None or job.get("status") not in LIVE:
            return self._look_at_lost(node, job, seen)
        self._since_s.pop((name, "gone"), None)
        return self.alive_at(name)

    def _look_at_waiting(
        self, node: Mapping[str, Any], job: Mapping[str, Any] | None, seen: Seen
    ) -> AttemptState:
        """Ray has not run it yet: it is taken back where it is not wanted any more or where Ray
        never will."""
        name, spec = node["name"], self.folder.spec or {}
        reason = None
        failed = self.folder.failed()
        if self.folder.stop_record() is not None:
            reason = NEVER_STARTED if len(self.folder.nodes) == 1 else None
        elif failed is None:
            if job is not None and job.get("status") not in LIVE:
                if not self.lasts(SETTLE_S, name, "gone", seen.at_s):
                    return AttemptState.STARTING
                reason = f"Ray could not start it: {said(job) or 'it does not say why'}"
            elif time.time() - spec["made_s"] > spec["start_timeout_s"]:
                reason = f"Ray did not start it within {spec['start_timeout_s']:g} s: {_why_waits(node, job, seen)}"  # noqa: E501
            else:
                return AttemptState.STARTING
            self.fail(name, reason)
        if not self.take(name, reason):
            return (
                AttemptState.STARTING
            )  # Ray has just begun it, which will find why it is not to run
        return self.end_node(name, reason)

    def _look_at_lost(
        self, node: Mapping[str, Any], job: Mapping[str, Any] | None, seen: Seen
    ) -> AttemptState:
        """It began, and Ray has it no more, although nothing says how it ended."""
        name = node["name"]
        if not self.lasts(SETTLE_S, name, "gone", seen.at_s):
            return AttemptState.RUNNING
        if (name, "fenced") not in self._since_s:
            self.fail(name, _why_lost(node, job, seen))
        if not self.lasts(FENCE_S, name, "fenced"):
            return AttemptState.UNREACHABLE
        return self.end_node(name, _why_lost(node, job, seen))

    def given(self, name: str) -> dict[str, Any] | None:
        """Return the record that has the GPUs which Ray gave it on a node."""
        return self._read_once(self._ready, name, "ready.json")


def said(job: Mapping[str, Any]) -> str:
    """The last thing that Ray says about a job."""
    lines = [
        line.strip() for line in str(job.get("message") or "").splitlines() if len(line.strip()) > 1
    ]
    return lines[-1][:SAID_CHARACTERS] if lines else ""


def _why_waits(node: Mapping[str, Any], job: Mapping[str, Any] | None, seen: Seen) -> str:
    found = seen.nodes.get(node["name"])
    if found is not None and found.status.reason is not None:
        return found.status.reason
    if found is not None and found.ray_id != node["ray_id"]:
        return "its Ray node was started anew"
    if job is None:
        return "Ray does not know it"
    return "its GPUs or cores there are not free, or its worker does not start"


def _why_lost(node: Mapping[str, Any], job: Mapping[str, Any] | None, seen: Seen) -> str:
    found = seen.nodes.get(node["name"])
    if found is None or found.ray_id is None:
        return (found.status.reason if found is not None else None) or "its Ray node is gone"
    if found.ray_id != node["ray_id"]:
        return "its Ray node was started anew"
    if job is None:
        return "Ray no longer knows it, as after its head was started anew"
    return f"Ray says that it ended ({str(job.get('status')).lower()}) but not how: {said(job) or 'without a word'}"  # noqa: E501
