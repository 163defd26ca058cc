"""The room of a cluster for one job, counted node by node."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..model import Cluster, Node

FORGIVEN = 1e-6
"""Relative excess of an amount that passes for the rounding of numbers in files."""

Kind = tuple[int, int, float | None, int | None, float | None, tuple[str, ...]]
"""GPU type, GPUs, memory of each, cores, memory and labels of nodes that are alike."""
Counts = tuple[int, ...]
"""GPUs by type."""
Takes = tuple[float, float, int]
"""Memory of each GPU, host memory and cores beside it."""
Labels = Mapping[str, str]
"""Labels of nodes, each "required" or "forbidden"."""


@dataclass(frozen=True, slots=True)
class Spot:
    """So many nodes of one GPU type and in one rack that each hold up to `most` GPUs of a job."""

    gpu_type: int
    rack: str | None
    most: int
    count: int


@dataclass(frozen=True, slots=True)
class Room:
    """The most GPUs of each type that a job could hold on one node, in each rack, and on all
    nodes."""

    on_node: Counts
    in_rack: dict[str, Counts]
    anywhere: Counts

    @property
    def racks(self) -> set[Counts]:
        """Return the racks that differ in what they hold."""
        return set(self.in_rack.values())


class Site:
    """A cluster as the jobs of an instance see it while it is empty."""

    def __init__(self, cluster: Cluster) -> None:
        self.types = cluster.gpu_types
        self.index = {gpu_type: t for t, gpu_type in enumerate(self.types)}
        self.node = cluster.node
        self.resources = cluster.resources
        self.uplink_gbps = cluster.rack_uplink_gbps
        with_gpus = [node for node in cluster.nodes if node.gpus]
        self.gpus = tuple(
            sum(node.gpus for node in with_gpus if node.gpu_type == own) for own in self.types
        )
        self._nodes = Counter((self._kind(node), node.rack) for node in with_gpus)
        self._hosts = {(node.cpus, node.memory_gib, node.labels) for node in cluster.nodes}
        self._rooms: dict[Takes, tuple[Room, set[Counts]]] = {}

    def _kind(self, node: Node) -> Kind:
        return (
            *(self.index[node.gpu_type], node.gpus, node.gpu_memory_gib),
            *(node.cpus, node.memory_gib, node.labels),
        )

    def room(self, takes: Takes) -> tuple[Room, set[Counts]]:
        """Return the room for GPUs that each take so much, up to what passes for rounding and
        whatever the labels of nodes, and the racks that differ."""
        if takes not in self._rooms:
            room = self._room(self.spots(takes, {}, forgiven=FORGIVEN))
            self._rooms[takes] = room, room.racks
        return self._rooms[takes]

    def spots(self, takes: Takes, labels: Labels, *, forgiven: float = 0.0) -> list[Spot]:
        """Return the nodes on which a job could hold GPUs that each take so much, and how many."""
        gpu_memory_gib, memory_gib_per_gpu, cores_per_gpu = takes
        spots = []
        for (kind, rack), count in self._nodes.items():
            t, most, gib, cores, memory_gib, own = kind
            if (gib is not None and gpu_memory_gib > gib) or not _suits(own, labels):
                continue
            if cores is not None and cores_per_gpu:
                most = min(most, cores // cores_per_gpu)
            if memory_gib is not None and memory_gib_per_gpu:
                excess_gib = forgiven * max(1.0, memory_gib)
                most = int(min(most, (memory_gib + excess_gib) / memory_gib_per_gpu + 1e-9))
            spots.append(Spot(t, rack, most, count))
        return spots

    def _room(self, spots: list[Spot]) -> Room:
        on_node, anywhere = [0] * len(self.types), [0] * len(self.types)
        in_rack: dict[str, list[int]] = {}
        for spot in spots:
            t, gpus = spot.gpu_type, spot.most * spot.count
            on_node[t] = max(on_node[t], spot.most)
            anywhere[t] += gpus
            if spot.rack is not None:
                in_rack.setdefault(spot.rack, [0] * len(self.types))[t] += gpus
        return Room(
            tuple(on_node), {rack: tuple(own) for rack, own in in_rack.items()}, tuple(anywhere)
        )

    def has_host(
        self, cores: int, memory_gib: float, labels: Labels, *, forgiven: float = 0.0
    ) -> bool:
        """Return whether some node has so many cores and so much memory; who asks for nothing needs
        no node."""
        return not (cores or memory_gib) or any(
            (have is None or cores <= have)
            and (gib is None or memory_gib <= gib + forgiven * max(1.0, gib))
            and _suits(own, labels)
            for have, gib, own in self._hosts
        )

    def has(self, resources: Mapping[str, float]) -> bool:
        """Return whether the cluster has as much of everything."""
        return all(
            amount <= (have := self.resources.get(name, 0.0)) + FORGIVEN * max(1.0, have)
            for name, amount in resources.items()
        )


def _suits(own: tuple[str, ...], labels: Labels) -> bool:
    """Return whether a node with its own labels is as others say that it must be."""
    return all((label in own) == (wanted == "required") for label, wanted in labels.items())
