"""Ray's nodes as this project's: found by a label, checked against what the file declares."""

from collections.abc import Iterable, Sequence

from ...frozen import frozen
from ...model import Node
from ..base import Entry, NodeStatus, because, inner
from ..orders import names_folder

GIB = 1 << 30
ACCELERATOR = "ray.io/accelerator-type"
"""The label in which Ray says what its GPUs are."""


@frozen
class RayNode:
    """One node by the name its label gives it: `ray_id` and `address` are None unless exactly one
    is alive."""

    status: NodeStatus
    ray_id: str | None = None
    address: str | None = None


def found_nodes(
    listed: Iterable[Entry], label: str, declared: Sequence[Node]
) -> dict[str, RayNode]:
    """Return nodes by name, in the order of `declared`; without any declared, all that carry
    `label`, by name.

    A declared node is usable if exactly one node of Ray that is alive carries its name and has the
    GPUs and cores declared.
    """
    by_name: dict[str, list[Entry]] = {}
    for each in listed:
        name = inner(each, "labels").get(label)
        if isinstance(name, str):
            by_name.setdefault(name, []).append(each)
    wanted = {node.name: node for node in declared}
    nodes = {}
    for name in wanted or sorted(by_name):
        if not names_folder(name):
            continue
        entries = by_name.get(name, [])
        alive = [each for each in entries if each.get("state") == "ALIVE"]
        node = wanted.get(name) or _described(name, (alive or entries)[-1])
        reason = _why_not(node, alive, entries, label)
        only = alive[0] if len(alive) == 1 else {}
        nodes[name] = RayNode(
            status=NodeStatus(node=node, usable=reason is None, reason=reason),
            ray_id=only.get("node_id"),
            address=only.get("node_ip"),
        )
    return nodes


def _described(name: str, each: Entry) -> Node:
    resources = inner(each, "resources_total")
    gpu_type = inner(each, "labels").get(ACCELERATOR)
    gpus = int(resources.get("GPU", 0))
    memory = resources.get("memory")
    return Node(
        name=name,
        gpu_type=gpu_type if gpus else None,
        gpus=gpus,
        cpus=int(resources.get("CPU", 0)),
        memory_gib=None if memory is None else memory / GIB,
    )


def _why_not(
    node: Node, alive: Sequence[Entry], entries: Sequence[Entry], label: str
) -> str | None:
    if len(alive) > 1:
        return f"{len(alive)} nodes of Ray have the label {label}={node.name}; give each its own"
    if not entries:
        return f"no node of Ray has the label {label}={node.name}"
    if not alive:
        return f"its Ray node is dead{because(entries[-1].get('state_message'))}"
    resources = inner(alive[0], "resources_total")
    for what, kind, wanted in (("GPU", "GPUs", node.gpus), ("CPU", "cores", node.cpus or 0)):
        if resources.get(what, 0) < wanted:
            return f"Ray knows {resources.get(what, 0):g} {kind} of it, {wanted} are declared"
    return None
