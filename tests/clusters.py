"""Small clusters of equal nodes."""

from typing import Any

from optsched import Cluster, Node


def equal_nodes(count: int, **fields: Any) -> tuple[Node, ...]:
    """Return nodes n0, n1 and so on."""
    return tuple(Node(name=f"n{i}", **fields) for i in range(count))


def one_node(name: str = "n", **fields: Any) -> Cluster:
    """Return a cluster of one node."""
    return Cluster(nodes=(Node(name=name, **fields),))
