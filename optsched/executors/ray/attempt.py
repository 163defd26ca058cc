"""One attempt as the executor knows it: what its files and Ray say by now."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..base import AttemptKey, AttemptState, Observation
from ..local import records
from ..local.attempt import exit_status
from ..local.attempt_folder import NEVER_STARTED, AttemptFolder
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


class RayAttempt:
    """Follows one attempt; cheap to ask again and again."""

    def __init__(self, attempts: Path, key: AttemptKey, tag: str) -> None:
        self.key, self.tag = key, tag
        self.folder = AttemptFolder(attempts, key)
        self.ended: Observation | None = None
        self._endings: dict[str, dict[str, Any]] = {}
        self._gone_s: dict[str, float] = {}
        self._fenced_s: dict[str, float] = {}

    def gpus(self) -> dict[str, int]:
        """GPUs that it holds, by node, until it has ended."""
        return (
            {}
            if self.ended is not None
            else {node["name"]: node["gpus"] for node in self.folder.nodes}
        )

    def unclaimed(self) -> list[int]:
        """Ranks that nothing keeps from being submitted."""
        if (
            self.ended is not None
            or self.folder.stop_record() is not None
            or self.folder.failed() is not None
        ):
            return []
        return [
            rank for rank, node in enumerate(self.folder.nodes) if self._claim(node["name"]) is None
        ]

    def claimed(self) -> list[int]:
        """Ranks whose processes run as far as is known."""
        return [
            rank
            for rank, node in enumerate(self.folder.nodes)
            if (self._claim(node["name"]) or {}).get("by") == "ray"
            and self.folder.exit(node["name"]) is None
        ]

    def fail(self, name: str, reason: str) -> None:
        """Say that the attempt fails for want of this node; all of it ends. Raises OSError."""
        record = {"node": name, "status": None, "reason": reason}
        records.write_first(str(self.folder.path / "failed.json"), record)

    def look(self, seen: Seen) -> Observation:
        """What is seen of it now."""
        try:
            return self.ended or self._look(seen)
        except OSError as error:
            return self._unreachable(f"its files cannot be read: {error.strerror}")

    def _unreachable(self, reason: str) -> Observation:
        return Observation(key=self.key, state=AttemptState.UNREACHABLE, reason=reason)

    def _look(self, seen: Seen) -> Observation:
        if self.folder.damaged:
            return self._unreachable(f"its record {self.folder.path / 'spec.json'} is damaged")
        if not self.folder.nodes:
            self.ended = Observation(key=self.key, state=AttemptState.ENDED, reason=NEVER_STARTED)
            return self.ended
        states = [self._look_at(rank, node, seen) for rank, node in enumerate(self.folder.nodes)]
        if all(state is AttemptState.ENDED for state in states):
            self.ended = self._with_ending(self._common(AttemptState.ENDED))
            return self.ended
        for state in (AttemptState.UNREACHABLE, AttemptState.STARTING):
            if state in states:
                found = self._common(state)
                lost = (self.folder.failed() or {}).get("reason") or "Ray has lost a part of it"
                return replace(found, reason=lost) if state is AttemptState.UNREACHABLE else found
        return self._common(AttemptState.RUNNING)

    def _look_at(self, rank: int, node: Mapping[str, Any], seen: Seen) -> AttemptState:
        name = node["name"]
        if name in self._endings or self._seen_ended(name):
            return AttemptState.ENDED
        job = seen.jobs.get(submission_id(self.key, rank, self.tag))
        claim = self._claim(name)
        if claim is None:
            return self._look_at_waiting(node, job, seen)
        if claim["by"] != "ray":
            return self._end(name, claim.get("reason"))
        if job is None or job.get("status") not in LIVE:
            return self._look_at_lost(node, job, seen)
        self._gone_s.pop(name, None)
        return AttemptState.RUNNING if self.folder.pid(name) is not None else AttemptState.STARTING

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
                if not self._gone_for(SETTLE_S, name, seen):
                    return AttemptState.STARTING
                reason = f"Ray could not start it: {said(job) or 'it does not say why'}"
            elif time.time() - spec["made_s"] > spec["start_timeout_s"]:
                reason = f"Ray did not start it within {spec['start_timeout_s']:g} s: {_why_waits(node, job, seen)}"  # noqa: E501
            else:
                return AttemptState.STARTING
            self.fail(name, reason)
        claim = {"by": "executor", "reason": reason, "at_s": time.time()}
        if not records.write_first(str(self.folder.path / name / "claim.json"), claim):
            return (
                AttemptState.STARTING
            )  # Ray has just begun it, which will find why it is not to run
        return self._end(name, reason)

    def _look_at_lost(
        self, node: Mapping[str, Any], job: Mapping[str, Any] | None, seen: Seen
    ) -> AttemptState:
        """It began, and Ray has it no more, although nothing says how it ended."""
        name = node["name"]
        if not self._gone_for(SETTLE_S, name, seen):
            return AttemptState.RUNNING
        if name not in self._fenced_s:
            self.fail(name, _why_lost(node, job, seen))
            self._fenced_s[name] = time.monotonic()
        if time.monotonic() - self._fenced_s[name] < FENCE_S:
            return AttemptState.UNREACHABLE
        return self._end(name, _why_lost(node, job, seen))

    def _gone_for(self, seconds: float, name: str, seen: Seen) -> bool:
        return seen.at_s - self._gone_s.setdefault(name, seen.at_s) >= seconds

    def _claim(self, name: str) -> dict[str, Any] | None:
        return records.read(str(self.folder.path / name / "claim.json"))

    def _seen_ended(self, name: str) -> bool:
        ending = self.folder.exit(name)
        if ending is not None:
            self._endings[name] = ending
        return ending is not None

    def _end(self, name: str, reason: str | None) -> AttemptState:
        began = self.folder.pid(name) or {}
        with suppress(OSError):  # it is seen again as it is seen now
            self.folder.write_exit(name, reason, began.get("started_s"))
        self._endings[name] = self.folder.exit(name) or {"status": None, "reason": reason}
        return AttemptState.ENDED

    def _common(self, state: AttemptState) -> Observation:
        names = [node["name"] for node in self.folder.nodes]
        ready = {name: records.read(str(self.folder.path / name / "ready.json")) for name in names}
        begun = [self._endings.get(name) or self.folder.pid(name) or {} for name in names]
        starts = [record["started_s"] for record in begun if record.get("started_s") is not None]
        return Observation(
            key=self.key,
            state=state,
            gpu_ids={
                name: tuple(found["gpu_ids"]) for name, found in ready.items() if found is not None
            },
            started_s=max(starts, default=None),
            progress=self.folder.progress(),
            output=self.folder.output(),
        )

    def _with_ending(self, common: Observation) -> Observation:
        endings = {node["name"]: self._endings[node["name"]] for node in self.folder.nodes}
        status = exit_status([ending["status"] for ending in endings.values()])
        reasons = [
            (name, ending["reason"])
            for name, ending in endings.items()
            if ending["reason"] is not None
        ]
        failed = self.folder.failed()
        if failed is not None:
            name, status = failed["node"], failed["status"]
            by_itself = f"its command ended with exit status {status}"
            reasons = [(name, failed.get("reason") or endings[name]["reason"] or by_itself)]
        told = (
            None
            if not reasons
            else f"on {reasons[0][0]} {reasons[0][1]}"
            if len(endings) > 1
            else reasons[0][1]
        )
        ends = [
            ending["ended_s"] for ending in endings.values() if ending.get("ended_s") is not None
        ]
        used = [ending for ending in endings.values() if ending.get("cpu_s") is not None]
        return replace(
            common,
            ended_s=max(ends, default=None),
            exit_status=status,
            reason=told,
            peak_memory_gib=sum(ending["peak_memory_gib"] for ending in used) if used else None,
            cpu_s=sum(ending["cpu_s"] for ending in used) if used else None,
        )


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
