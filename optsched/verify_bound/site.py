"""The room of a cluster for one job, counted node by node."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..model.cluster import Cluster, Node

FORGIVEN = 1e-6
"""Relative excess of an amount that passes for the rounding of numbers in files."""

Kind = tuple[int, int, float | None, int | None, float | None]
"""GPU type, GPUs, memory of each, cores and memory of nodes that are alike."""
Counts = tuple[int, ...]
"""GPUs by type."""


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
        self._hosts = {(node.cpus, node.memory_gib) for node in cluster.nodes}
        self._rooms: dict[tuple[float, float, int, bool], tuple[Room, set[Counts]]] = {}

    def _kind(self, node: Node) -> Kind:
        return self.index[node.gpu_type], node.gpus, node.gpu_memory_gib, node.cpus, node.memory_gib

    def room(
        self,
        gpu_memory_gib: float,
        memory_gib_per_gpu: float,
        cores_per_gpu: int,
        *,
        forgiving: bool = True,
    ) -> tuple[Room, set[Counts]]:
        """Return the room for GPUs that each need so much, and the racks that differ; with
        `forgiving` up to what passes for rounding."""
        key = gpu_memory_gib, memory_gib_per_gpu, cores_per_gpu, forgiving
        if key not in self._rooms:
            room = self._count(*key)
            self._rooms[key] = room, room.racks
        return self._rooms[key]

    def _count(
        self, gpu_memory_gib: float, memory_gib_per_gpu: float, cores_per_gpu: int, forgiving: bool
    ) -> Room:
        on_node, anywhere = [0] * len(self.types), [0] * len(self.types)
        in_rack: dict[str, list[int]] = {}
        for (kind, rack), count in self._nodes.items():
            t, most, gib, cores, memory_gib = kind
            if gib is not None and gpu_memory_gib > gib:
                continue
            if cores is not None and cores_per_gpu:
                most = min(most, cores // cores_per_gpu)
            if memory_gib is not None and memory_gib_per_gpu:
                excess_gib = FORGIVEN * max(1.0, memory_gib) if forgiving else 0.0
                most = int(min(most, (memory_gib + excess_gib) / memory_gib_per_gpu + 1e-9))
            on_node[t] = max(on_node[t], most)
            anywhere[t] += most * count
            if rack is not None:
                in_rack.setdefault(rack, [0] * len(self.types))[t] += most * count
        return Room(
            tuple(on_node), {rack: tuple(own) for rack, own in in_rack.items()}, tuple(anywhere)
        )

    def has_host(self, cores: int, memory_gib: float, *, forgiving: bool = True) -> bool:
        """Return whether some node has so many cores and so much memory; who asks for nothing needs
        no node."""
        excess = FORGIVEN if forgiving else 0.0
        return not (cores or memory_gib) or any(
            (have is None or cores <= have)
            and (gib is None or memory_gib <= gib + excess * max(1.0, gib))
            for have, gib in self._hosts
        )

    def has(self, resources: Mapping[str, float]) -> bool:
        """Return whether the cluster has as much of everything."""
        return all(
            amount <= (have := self.resources.get(name, 0.0)) + FORGIVEN * max(1.0, have)
            for name, amount in resources.items()
        )
