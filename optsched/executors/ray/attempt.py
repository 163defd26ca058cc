"""One attempt as the executor knows it: what its files and Ray say by now."""

from collections.abc import Mapping
from dataclasses import replace

from ...frozen import frozen
from ..attempts.attempt import SETTLE_S, AttemptByNode
from ..base import AttemptState, Entry, Observation, Record
from .nodes import RayNode
from .server import last_line
from .spec import submission_id

LIVE = ("PENDING", "RUNNING")
"""Ray's words for jobs that have not ended."""
STARTED_ANEW = "its Ray node was started anew"


@frozen
class Seen:
    """What Ray said at `at_s` of the monotonic clock."""

    at_s: float
    nodes: Mapping[str, RayNode]
    jobs: Mapping[str, Entry]


class RayAttempt(AttemptByNode[Seen]):
    """An attempt that is a Ray job on each of its nodes."""

    late = "Ray did not start it within"
    failed_in = "failed.json"

    def claimed(self) -> list[int]:
        """Return ranks whose processes run as far as is known."""
        return [
            rank
            for rank, name in enumerate(self.names)
            if (self.claim(name) or {}).get("by") == "ray" and self.ending(name) is None
        ]

    def going(self, state: AttemptState, name: str, seen: Seen) -> Observation:
        """Return the attempt, with why a part of it cannot be reached."""
        if state is not AttemptState.UNREACHABLE:
            return self.observed(state)
        return replace(self.observed(state), reason=self.lost() or "Ray has lost a part of it")

    def look_at(self, rank: int, node: Record, seen: Seen) -> AttemptState:
        """Return where it is on one node, by its Ray job."""
        name = node["name"]
        if self.over_at(name):
            return AttemptState.ENDED
        job = seen.jobs.get(submission_id(self.key, rank, self.tag))
        live = job is not None and job.get("status") in LIVE
        if self.claim(name) is not None:
            why = _why_lost(node, job, seen)
            return self.alive_at(name) if live else self.lost_at(name, why, seen.at_s)
        over = job is not None and not live and self.lasts(SETTLE_S, name, "gone", seen.at_s)
        why_never = f"Ray could not start it: {said(job) or 'it does not say why'}"
        return self.waiting_at(name, why_never if over else None, _why_waits(node, job, seen))

    def given(self, name: str) -> Record | None:
        """Return the record that has the GPUs which Ray gave it on a node."""
        return self.read_once(name, "ready.json")


def said(job: Entry | None) -> str:
    """Return the last thing that Ray says about a job."""
    return last_line(str((job or {}).get("message") or "").splitlines())


def _why_waits(node: Entry, job: Entry | None, seen: Seen) -> str:
    there = seen.nodes.get(node["name"])
    if there is not None and there.status.reason is not None:
        return there.status.reason
    if there is not None and there.ray_id != node["ray_id"]:
        return STARTED_ANEW
    if job is None:
        return "Ray does not know it"
    return "its GPUs or cores there are not free, or its worker does not start"


def _why_lost(node: Entry, job: Entry | None, seen: Seen) -> str:
    there = seen.nodes.get(node["name"])
    if there is None or there.ray_id is None:
        return (there.status.reason if there is not None else None) or "its Ray node is gone"
    if there.ray_id != node["ray_id"]:
        return STARTED_ANEW
    if job is None:
        return "Ray no longer knows it, as after its head was started anew"
    return f"Ray says that it ended ({str(job.get('status')).lower()}) but not how: {said(job) or 'without a word'}"  # noqa: E501
