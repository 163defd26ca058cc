"""One attempt as the executor knows it: what its files say, and what Kubernetes says of its pods
and their nodes."""

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..attempts.attempt import SETTLE_S, AttemptByNode
from ..base import AttemptKey, AttemptState, Entry, Observation
from ..supervision import records
from . import phases
from .nodes import KubernetesNode
from .pods import pod_name
from .view import Seen

HOPELESS_S = 20.0
"""So long a container may fail to begin before it is no longer waited for."""
OVERTIME_S = 30.0
"""So long after its time a pod on a node that is not ready is no longer waited for."""
OUT_OF_MEMORY = "its container ran out of memory"


class KubernetesAttempt(AttemptByNode[Seen]):
    """An attempt that is a pod on each of its nodes."""

    def __init__(self, attempts: Path, key: AttemptKey, tag: str) -> None:
        super().__init__(attempts, key, tag)
        self._due_s: dict[str, float] = {}
        self.over = False  # nothing of it runs, but Kubernetes still has it
        self.soon = (
            False  # its files will tell more in a moment, and no change of a pod will say so
        )

    def pod_names(self) -> list[str]:
        """Return the names of its nodes' pods, by rank."""
        return [pod_name(self.key, rank, self.tag) for rank in range(len(self.folder.nodes))]

    # ----------------------------------------------------------------------------------------------
    # --- to see it

    def going(self, state: AttemptState, name: str, seen: Seen) -> Observation:
        """Return the attempt, or that nobody can tell."""
        pods = [seen.pods.get(pod) for pod in self.pod_names()]
        self.soon = state is AttemptState.STARTING and all(
            pod is not None and phases.ran(pod) for pod in pods
        )
        if state is AttemptState.UNREACHABLE:
            return self.unreachable(self._why_silent(name, seen))
        return self.observed(state)

    def lost(self) -> str | None:
        """Return why it was ended although nobody had asked for it."""
        told = self.folder.progress_path.with_name("told.json")
        lost = (self.stop_record() or records.read(told) or {}).get("lost")
        return lost[:1000] if isinstance(lost, str) else None

    def look_at(self, rank: int, node: dict[str, Any], seen: Seen) -> AttemptState:
        """Return where it is on one node, by its pod."""
        name, pod = node["name"], seen.pods.get(self.pod_names()[rank])
        host = seen.nodes.get(name)
        ready = host is not None and host.ready
        if self.ending(name) is not None:
            return self._look_at_ended(name, pod, ready, seen)
        if self.over_at(name):
            return AttemptState.ENDED
        claimed = self.claim(name) is not None
        if pod is not None and phases.stopped(pod):
            state = self._look_at_stopped(node, pod, claimed, seen)
            return (
                self._look_at_ended(name, pod, ready, seen)
                if state is AttemptState.ENDED
                else state
            )
        lost = self._given_up(pod, host, seen.at_s)
        if not claimed:
            why_never = lost or self._why_never(name, pod, seen)
            held = pod is not None and lost is None  # it has the GPUs until it is gone
            return self.waiting_at(name, why_never, phases.waits_for(pod), held)
        if pod is None or lost is not None:
            return self.lost_at(name, lost or "its pod is gone from Kubernetes", seen.at_s)
        state = self.alive_at(name)
        if not ready:
            return AttemptState.UNREACHABLE
        if phases.leaving(pod) and self.stop_record() is None:
            reason = phases.removed_by(pod) or "its pod was deleted by somebody else"
            self.give_up(reason, self.folder.spec["grace_s"])
        return state

    def _look_at_ended(self, name: str, pod: Entry | None, ready: bool, seen: Seen) -> AttemptState:
        """Return the state of one whose supervisor has ended; its pod may have its GPUs for a while
        yet."""
        if phases.final(pod) or not ready:
            return AttemptState.ENDED
        self.over = self.over or self.lasts(SETTLE_S, name, "over", seen.at_s)
        return AttemptState.RUNNING

    def _given_up(self, pod: Entry | None, node: KubernetesNode | None, at_s: float) -> str | None:
        """Return why what runs on a node is lost, None while it is not."""
        if node is None:
            return "its node is gone"
        if node.lost is not None:
            return node.lost
        if pod is not None and not node.ready and self._overdue_s(pod, at_s) > OVERTIME_S:
            return f"its node {node.status.reason}, and did not end its pod in time"
        return None

    def _overdue_s(self, pod: Entry, at_s: float) -> float:
        """Return for how long a pod should have ended; what the host's clock has jumped by since it
        was deleted does not count."""
        if not phases.leaving(pod):
            return -math.inf
        told = pod["metadata"]["deletionTimestamp"]
        return at_s - self._due_s.setdefault(told, at_s - phases.overdue_s(pod))

    def _why_never(self, name: str, pod: Entry | None, seen: Seen) -> str | None:
        """Return why nothing will begin in a pod in which nothing has; None while it may."""
        if pod is None:
            return None
        if phases.leaving(pod):
            return phases.removed_by(pod) or "its pod was deleted by somebody else before it began"
        return phases.hopeless(pod) if self._is_hopeless(name, pod, seen) else None

    def _is_hopeless(self, name: str, pod: Entry, seen: Seen) -> bool:
        """Return whether it will not pass: registries and nodes have their moments, only what stays
        so counts."""
        if phases.hopeless(pod) is None:
            self._since_s.pop((name, "hopeless"), None)
            return False
        return phases.hopeless(pod, for_good=True) is not None or self.lasts(
            HOPELESS_S, name, "hopeless", seen.at_s
        )

    def _look_at_stopped(self, node: Entry, pod: Entry, claimed: bool, seen: Seen) -> AttemptState:
        """Return the state of one that has ended, as Kubernetes says, and its supervisor does not
        say how."""
        name = node["name"]
        ran = claimed or phases.ran(pod)
        if ran and not self.lasts(SETTLE_S, name, "gone", seen.at_s):
            return AttemptState.RUNNING if claimed else AttemptState.STARTING
        self.look_anew([name])
        if self.ending(name) is not None:
            return AttemptState.ENDED
        if not claimed and not self.take(name):
            return AttemptState.STARTING
        if claimed and phases.out_of_memory(pod):
            limit_gib = node["memory_gib"]
            exceeded = f"its memory limit of {limit_gib:g} GiB was exceeded"
            reason = exceeded if limit_gib else OUT_OF_MEMORY
            failed = {"node": name, "status": -9, "reason": reason}
            with suppress(OSError):
                records.write_first(self.folder.path / self.failed_in, failed)
            return self.end_node(name, reason, status=-9)
        reason = phases.how_it_ended(pod)
        if self.stop_record() is None:
            self.give_up(self.on(name, reason))
        return self.end_node(name, reason if claimed else None)

    def _why_silent(self, name: str, seen: Seen) -> str:
        lost = (self.stop_record() or {}).get("lost")
        if lost is not None:
            return str(lost)
        node = seen.nodes.get(name)
        why = "is gone" if node is None else node.status.reason or "does not answer"
        return f"its node {name} {why}"
