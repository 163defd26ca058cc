"""One attempt as the executor knows it: what its files say, and what Kubernetes says of its pods
and their nodes."""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..attempts.attempt import AttemptByNode
from ..attempts.ending import by_itself, failed_by_user
from ..attempts.folder import NEVER_STARTED
from ..base import AttemptKey, AttemptState, Observation
from ..supervision import records
from . import phases
from .nodes import KubernetesNode
from .pods import pod_name
from .view import Seen

SETTLE_S = 4.0
"""So long after a pod's end its supervisor's words may still be on their way through a shared file
system."""
FENCE_S = 15.0
"""So long after it was told to end is there no supervisor that still reads its folder has anything
running: a second until it looks, its grace, two and a half for what the command leaves behind."""
HOPELESS_S = 20.0
"""So long a container may fail to begin before it is no longer waited for."""
OVERTIME_S = 30.0
"""So long after its time a pod on a node that is not ready is no longer waited for."""
OUT_OF_MEMORY = "its container ran out of memory"


class KubernetesAttempt(AttemptByNode[Seen]):
    """An attempt that is a pod on each of its nodes."""

    def __init__(self, attempts: Path, key: AttemptKey, tag: str) -> None:
        super().__init__(attempts, key)
        self.tag = tag
        self.over = False  # nothing of it runs, but Kubernetes still has it
        self.soon = (
            False  # its files will tell more in a moment, and no change of a pod will say so
        )
        self.asked_s = -float("inf")  # when Kubernetes was last asked to delete its pods

    def pod_names(self) -> list[str]:
        """Of its nodes' pods, by rank."""
        return [pod_name(self.key, rank, self.tag) for rank in range(len(self.folder.nodes))]

    def held(self) -> list[dict[str, Any]]:
        """Its nodes with what it holds of each, until it has ended."""
        return [] if self.ended is not None else self.folder.nodes

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

    def told(self) -> tuple[int | None, str | None]:
        """Return exit status and reason."""
        endings, lost = self._endings, self._lost()
        if lost is not None:
            return self.ended_by(lost)
        failed = failed_by_user(self.folder)
        silent = all(
            ending["started_s"] is None and ending["status"] is None for ending in endings.values()
        )
        if silent and (failed is None or failed.get("node") not in endings):
            reasons = [one["reason"] for one in endings.values() if one["reason"] is not None]
            return None, reasons[0] if reasons else NEVER_STARTED
        return by_itself(self.folder, endings, failed)

    def _lost(self) -> str | None:
        """Why it was ended although nobody had asked for it."""
        told = self.folder.progress_path.with_name("told.json")
        lost = (self.stop_record() or records.read(str(told)) or {}).get("lost")
        return lost[:1000] if isinstance(lost, str) else None

    def look_at(self, rank: int, node: dict[str, Any], seen: Seen) -> AttemptState:
        """Return where it is on one node, by its pod."""
        name, pod = node["name"], seen.pods.get(self.pod_names()[rank])
        host = seen.nodes.get(name)
        ready = host is not None and host.ready
        claim = self.claim(name)
        if self.ending(name) is not None:
            return self._look_at_ended(name, pod, ready, seen)
        if claim is not None and claim.get("by") != "pod":
            return self.end_node(name, claim.get("reason"))
        if pod is not None and phases.stopped(pod):
            state = self._look_at_stopped(name, pod, claim, seen)
            return (
                self._look_at_ended(name, pod, ready, seen)
                if state is AttemptState.ENDED
                else state
            )
        lost = self._given_up(pod, host)
        if claim is None:
            return self._look_at_waiting(name, pod, lost, seen)
        if pod is None or lost is not None:
            return self._look_at_lost(name, lost or "its pod is gone from Kubernetes", seen)
        self._since_s.pop((name, "gone"), None)
        if not ready:
            return AttemptState.UNREACHABLE
        if phases.leaving(pod) and self.stop_record() is None:
            reason = phases.removed_by(pod) or "its pod was deleted by somebody else"
            self.give_up(reason, (self.folder.spec or {})["grace_s"])
        return self.alive_at(name)

    def _look_at_ended(
        self, name: str, pod: Mapping[str, Any] | None, ready: bool, seen: Seen
    ) -> AttemptState:
        """Its supervisor has ended; its pod may have its GPUs for a while yet."""
        if phases.final(pod) or not ready:
            return AttemptState.ENDED
        self.over = self.over or self.lasts(SETTLE_S, name, "over", seen.at_s)
        return AttemptState.RUNNING

    def _given_up(self, pod: Mapping[str, Any] | None, node: KubernetesNode | None) -> str | None:
        """Why what runs on a node is lost, None while it is not."""
        if node is None:
            return "its node is gone"
        if node.lost is not None:
            return node.lost
        if pod is not None and not node.ready and phases.overdue_s(pod) > OVERTIME_S:
            return f"its node {node.status.reason}, and did not end its pod in time"
        return None

    def _look_at_waiting(
        self, name: str, pod: Mapping[str, Any] | None, lost: str | None, seen: Seen
    ) -> AttemptState:
        """Nothing of it has begun there: it is taken back where it is not wanted any more or never
        will begin."""
        spec, reason = self.folder.spec or {}, None
        if self.stop_record() is None:
            if lost is not None:
                reason = lost
            elif pod is not None and phases.leaving(pod):
                reason = (
                    phases.removed_by(pod) or "its pod was deleted by somebody else before it began"
                )
            elif pod is not None and self._is_hopeless(name, pod, seen):
                reason = phases.hopeless(pod)
            elif time.time() - spec["made_s"] > spec["start_timeout_s"]:
                reason = f"it did not begin within {spec['start_timeout_s']:g} s: {phases.waits_for(pod)}"  # noqa: E501
            if reason is None:
                return AttemptState.STARTING
            self.give_up(reason)
        if pod is not None and lost is None:
            return AttemptState.STARTING  # until its pod is gone, which holds GPUs
        if not self.take(name):
            return AttemptState.STARTING  # it has just begun, and will find why it is not to run
        return self.end_node(name, None)

    def _is_hopeless(self, name: str, pod: Mapping[str, Any], seen: Seen) -> bool:
        """Registries and nodes have their moments: only what stays so will not pass."""
        if phases.hopeless(pod) is None:
            self._since_s.pop((name, "hopeless"), None)
            return False
        return phases.hopeless(pod, for_good=True) is not None or self.lasts(
            HOPELESS_S, name, "hopeless", seen.at_s
        )

    def _look_at_stopped(
        self, name: str, pod: Mapping[str, Any], claim: Mapping[str, Any] | None, seen: Seen
    ) -> AttemptState:
        """Kubernetes says that it has ended, and its supervisor does not say how."""
        if (claim is not None or phases.ran(pod)) and not self.lasts(
            SETTLE_S, name, "gone", seen.at_s
        ):
            return AttemptState.STARTING if claim is None else AttemptState.RUNNING
        self.look_anew([name])
        if self.ending(name) is not None:
            return AttemptState.ENDED
        stop = self.stop_record()
        if claim is None:
            if not self.take(name):
                return AttemptState.STARTING
            if stop is None:
                self.give_up(phases.how_it_ended(pod))
            return self.end_node(name, None)
        if phases.out_of_memory(pod):
            limit_gib = next(one["memory_gib"] for one in self.folder.nodes if one["name"] == name)
            reason = (
                f"its memory limit of {limit_gib:g} GiB was exceeded"
                if limit_gib
                else OUT_OF_MEMORY
            )
            failed = {"node": name, "status": -9, "reason": reason}
            with suppress(OSError):
                records.write_first(str(self.folder.progress_path.with_name("failed.json")), failed)
            return self.end_node(name, reason, status=-9)
        reason = phases.how_it_ended(pod)
        if stop is None:
            self.give_up(reason)
        return self.end_node(name, reason)

    def _look_at_lost(self, name: str, reason: str, seen: Seen) -> AttemptState:
        """It began, and nobody knows whether it still runs: a supervisor that can read its folder
        will end it."""
        if not self.lasts(SETTLE_S, name, "gone", seen.at_s):
            return AttemptState.RUNNING
        if (name, "fenced") not in self._since_s:
            self.look_anew([name])
            stop = self.stop_record()
            if stop is None or (stop["grace_s"] is not None and stop["lost"] is None):
                self.give_up(reason)
        if not self.lasts(FENCE_S, name, "fenced", seen.at_s):
            return AttemptState.UNREACHABLE
        return self.end_node(name, reason)

    def _why_silent(self, name: str, seen: Seen) -> str:
        stop = self.stop_record()
        if stop is not None and stop["lost"] is not None:
            return f"on {name}: {stop['lost']}" if len(self.folder.nodes) > 1 else str(stop["lost"])
        node = seen.nodes.get(name)
        return f"its node {name} {'is gone' if node is None else node.status.reason or 'does not answer'}"  # noqa: E501
