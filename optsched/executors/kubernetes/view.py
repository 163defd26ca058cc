"""What Kubernetes says by now, asked no more often than need be."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...frozen import frozen
from ...model import Node
from ..base import AttemptKey
from .api import KubernetesApi
from .nodes import KubernetesNode, held_by_others, read_nodes, with_room_for
from .pods import TAG, key_of
from .site import Site

if TYPE_CHECKING:
    from .attempt import KubernetesAttempt

NODES_EVERY = 5
"""Looks at pods for one at the nodes."""
SHARE = 0.1
"""Of the time at most goes into listing nodes and all pods, which are many on a big cluster."""
SOONEST_S = 0.1
"""Pods are listed no more often than this, however many changes there are."""


@frozen
class Seen:
    """What Kubernetes said: our pods by name at `at_s` of the monotonic clock, nodes not long
    before."""

    at_s: float
    nodes: Mapping[str, KubernetesNode]
    pods: Mapping[str, Mapping[str, Any]]


class View:
    """Our pods, and the nodes with what others leave of them."""

    def __init__(
        self, api: KubernetesApi, site: Site, tag: str, declared: Mapping[str, Node]
    ) -> None:
        self._api, self._site, self._tag, self._declared = api, site, tag, declared
        self.changed = False  # a pod is known to have changed
        self._seen: Seen | None = None
        self._nodes: dict[str, KubernetesNode] = {}
        self._nodes_due_s = -float("inf")

    def seen(
        self, attempts: "Mapping[AttemptKey, KubernetesAttempt]", known_changes: bool = True
    ) -> Seen:
        """Return what is seen, at most `poll_s` old, and no older than `known_changes` unless these
        do not matter; the pods of those `attempts` that have not ended are no others'. Raises
        NoAnswerError."""
        now_s = time.monotonic()
        age_s = float("inf") if self._seen is None else now_s - self._seen.at_s
        news = known_changes and self.changed and age_s >= SOONEST_S
        if self._seen is None or news or age_s >= self._site.poll_s:
            self.changed = False
            listed, _ = self._api.pods(f"{TAG}={self._tag}")
            if now_s >= self._nodes_due_s:
                self._look_at_nodes(attempts)
            pods = {str(pod["metadata"]["name"]): pod for pod in listed}
            self._seen = Seen(at_s=now_s, nodes=self._nodes, pods=pods)
        return self._seen

    def _look_at_nodes(self, attempts: "Mapping[AttemptKey, KubernetesAttempt]") -> None:
        began_s = time.monotonic()
        listed = self._api.nodes(self._site.node_selector)
        everybody = self._api.bound_pods()
        live = {key for key, attempt in attempts.items() if attempt.ended is None}
        ours = {pod["metadata"]["uid"] for pod in everybody if key_of(pod, self._tag) in live}
        nodes = read_nodes(listed, held_by_others(everybody, ours), self._site, self._declared)
        used = {what: Counter[str]() for what in ("gpus", "cpus", "memory_gib")}
        for attempt in attempts.values():
            for node in attempt.held():
                for what, of_nodes in used.items():
                    of_nodes[node["name"]] += node[what]
        self._nodes = {
            name: with_room_for(node, *(of_nodes[name] for of_nodes in used.values()))
            for name, node in nodes.items()
        }
        ended_s = time.monotonic()
        self._nodes_due_s = ended_s + max(
            NODES_EVERY * self._site.poll_s, (ended_s - began_s) / SHARE
        )
