"""Nodes of Kubernetes as this project's: what they have and others do not hold, and whether they
take pods."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from ...frozen import frozen
from ...model import Node
from ..base import Entry, NodeStatus, because, inner
from .site import Site

GIB = 1 << 30
FINAL = ("Succeeded", "Failed")
"""Phases of pods that hold nothing any more."""
UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?"
)
SUFFIXES: dict[str | None, float] = {
    None: 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    **{prefix: 1e3 ** (i + 1) for i, prefix in enumerate("kMGTPE")},
    **{f"{prefix}i": float(1024 ** (i + 1)) for i, prefix in enumerate("KMGTPE")},
}
PRODUCTS = (".product", ".product-name", ".family")
"""What labels that say of which type GPUs are add to the name of their resource."""


@frozen
class KubernetesNode:
    """A node: `ready` while its kubelet says so; `lost` says why Kubernetes has given up what runs
    there."""

    status: NodeStatus
    ready: bool
    lost: str | None


def read_nodes(
    listed: Iterable[Entry],
    held: Mapping[str, Mapping[str, float]],
    site: Site,
    declared: Mapping[str, Node],
) -> dict[str, KubernetesNode]:
    """Return nodes by name, sorted; of those `declared` only these, if there are any.

    A node has what Kubernetes may give to pods there (`allocatable`), less what others hold. Of
    declared nodes the type and memory of GPUs and the rack go before what labels say.
    """
    entries = {str(entry["metadata"]["name"]): entry for entry in listed}
    nodes = {
        name: _node(entries[name], held.get(name, {}), site, declared.get(name))
        for name in sorted(entries)
        if not declared or name in declared
    }
    for name, node in declared.items():
        if name not in nodes:
            reason = "Kubernetes has no node of this name"
            status = NodeStatus(node=node, usable=False, reason=reason)
            nodes[name] = KubernetesNode(status=status, ready=False, lost="its node is gone")
    return nodes


def held_by_others(pods: Iterable[Entry], ours: Collection[str]) -> dict[str, dict[str, float]]:
    """Return what `pods` ask of the nodes they are bound to, by node and resource, except those
    whose uids are `ours`."""
    held: dict[str, dict[str, float]] = {}
    for pod in pods:
        name = pod["spec"].get("nodeName")
        if (
            name
            and inner(pod, "status").get("phase") not in FINAL
            and pod["metadata"]["uid"] not in ours
        ):
            of_node = held.setdefault(name, {})
            for what, amount in requests(pod["spec"]).items():
                of_node[what] = of_node.get(what, 0.0) + amount
    return held


def with_room_for(there: KubernetesNode, gpus: int, cpus: int, memory_gib: float) -> KubernetesNode:
    """Return the node with no less than our own attempts hold there; not usable where it has less
    than that now, as when a GPU has broken or the kubelet has just begun."""
    node = there.status.node
    if gpus > node.gpus:
        why = f"has only {node.gpus} GPUs left of the {gpus} that its jobs hold"
    elif cpus > (node.cpus or cpus) or memory_gib > (node.memory_gib or memory_gib):
        why = "has less cores or memory left than its jobs hold"
    else:
        return there
    more = replace(
        node,
        gpus=max(gpus, node.gpus),
        cpus=None if node.cpus is None else max(cpus, node.cpus),
        memory_gib=None if node.memory_gib is None else max(memory_gib, node.memory_gib),
    )
    reason = there.status.reason or why
    return replace(there, status=NodeStatus(node=more, usable=False, reason=reason))


@lru_cache(maxsize=4096)
def quantity(text: str) -> float:
    """Return a Kubernetes quantity, as `500m`, `4Gi` or `1e3`, in units (API conventions,
    "Quantity"). Raises ValueError."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    return float(match[1]) * SUFFIXES[match[2]]


def requests(spec: Entry) -> dict[str, float]:
    """Return what a pod asks of its node: its containers together, or an init container where that
    asks for more."""
    first = inner(spec, "initContainers")
    staying = [container for container in first if container.get("restartPolicy") == "Always"]
    total: defaultdict[str, float] = defaultdict(float)
    for container in (*inner(spec, "containers"), *staying):
        for what, amount in _asked(container).items():
            total[what] += amount
    for container in first:
        for what, amount in _asked(container).items() if container not in staying else ():
            total[what] = max(total[what], amount)
    for what, text in inner(spec, "overhead").items():
        total[what] += quantity(str(text))
    return dict(total)


def _asked(container: Entry) -> dict[str, float]:
    resources = inner(container, "resources")
    texts = {**inner(resources, "limits"), **inner(resources, "requests")}
    return {what: quantity(str(text)) for what, text in texts.items()}


def tolerated(taint: Entry, tolerations: Iterable[Entry]) -> bool:
    """Return whether one of the tolerations matches a taint (Kubernetes documentation, "Taints and
    Tolerations")."""
    return any(
        each.get("effect") in (None, "", taint.get("effect"))
        and (
            each.get("key") in (None, "", taint["key"])
            if each.get("operator") == "Exists"
            else each.get("key") == taint["key"]
            and (each.get("value") or "") == (taint.get("value") or "")
        )
        for each in tolerations
    )


def _node(
    each: Entry, held: Mapping[str, float], site: Site, declared: Node | None
) -> KubernetesNode:
    status, spec = inner(each, "status"), inner(each, "spec")
    node = _described(each, held, site)
    if declared is not None:
        node = replace(
            node,
            gpu_type=declared.gpu_type or node.gpu_type,
            rack=declared.rack or node.rack,
            labels=declared.labels,
            gpu_memory_gib=declared.gpu_memory_gib or node.gpu_memory_gib,
        )
    conditions = {each.get("type"): each for each in inner(status, "conditions")}
    condition = conditions.get("Ready", {})
    ready = condition.get("status") == "True"
    reason = _why_not(node.name, spec, condition, site)
    lost = not ready and any(map(_given_up, inner(spec, "taints")))
    return KubernetesNode(
        status=NodeStatus(node=node, usable=reason is None, reason=reason),
        ready=ready,
        lost="its node does not answer any more" if lost else None,
    )


def _described(each: Entry, held: Mapping[str, float], site: Site) -> Node:
    """Return what a node has and others do not hold, and what its labels say of it."""
    labels, status = inner(each, "metadata", "labels"), inner(each, "status")
    texts = status.get("allocatable") or inner(status, "capacity")
    there = {
        what: quantity(str(texts[what])) for what in (site.gpu, "cpu", "memory") if what in texts
    }
    left = {what: max(0.0, amount - held.get(what, 0.0)) for what, amount in there.items()}
    has_gpus = there.get(site.gpu, 0.0) > 0
    gpu_type = next((labels[site.gpu + end] for end in PRODUCTS if site.gpu + end in labels), None)
    memory_mib = str(labels.get(f"{site.gpu}.memory", ""))
    return Node(
        name=each["metadata"]["name"],
        gpu_type=gpu_type if has_gpus else None,
        gpus=int(left.get(site.gpu, 0)),
        gpu_memory_gib=int(memory_mib) / 1024 if has_gpus and memory_mib.isdecimal() else None,
        cpus=int(left["cpu"] + 1e-9) if "cpu" in left else None,
        memory_gib=left["memory"] / GIB if "memory" in left else None,
        rack=labels.get(site.rack_label),
    )


def _given_up(taint: Entry) -> bool:
    return taint["key"] == OUT_OF_SERVICE or (
        taint["key"] == UNREACHABLE and taint.get("effect") == "NoExecute"
    )


def _why_not(name: str, spec: Entry, ready: Entry, site: Site) -> str | None:
    if name.endswith(".json") or name == "progress":
        return "its name cannot be that of a folder here"
    if ready.get("status") != "True":
        what = "is not ready" if ready.get("status") == "False" else "does not answer"
        return what + because(ready.get("message"))
    if spec.get("unschedulable"):
        return "is cordoned"
    for taint in inner(spec, "taints"):
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerated(
            taint, site.tolerations
        ):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"has the taint {taint['key']}{value}:{taint['effect']}"
    return None
