"""What fits an empty cluster, answered from its distinct nodes and racks instead of from each
node."""

from collections import Counter
from dataclasses import dataclass

from ..model.cluster import POWER_CAP, Cluster, Node
from ..model.job import Job
from ..physics import Span

Types = tuple[int, ...]
"""GPU types by their position in `Shape.types`."""
TOLERANCE = 1e-6
"""Relative excess of an amount that the verifier takes for rounding."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Nodes that are alike: what one of them holds."""

    gpus: int
    gpu_memory_gib: float | None
    cpus: int | None
    memory_gib: float | None

    def most_gpus(self, job: Job, cpus_per_gpu: int) -> int:
        """GPUs of this node that `job` could hold with so many cores beside each."""
        if self.gpu_memory_gib is not None and job.profile.gpu_memory_gib > self.gpu_memory_gib:
            return 0
        most = self.gpus
        if self.cpus is not None and cpus_per_gpu:
            most = min(most, self.cpus // cpus_per_gpu)
        if self.memory_gib is not None and job.profile.memory_gib_per_gpu:
            room_gib = self.memory_gib + TOLERANCE * max(1.0, self.memory_gib)
            most = int(min(most, room_gib / job.profile.memory_gib_per_gpu + 1e-9))
        return most


def _kind(node: Node) -> _Kind:
    return _Kind(node.gpus, node.gpu_memory_gib, node.cpus, node.memory_gib)


class Shape:
    """A cluster by its distinct nodes: GPU types in order, GPUs of each, and the largest gangs that
    fit."""

    def __init__(self, cluster: Cluster) -> None:
        self.types = cluster.gpu_types
        self.index = {gpu_type: t for t, gpu_type in enumerate(self.types)}
        self.capacity = [0] * len(self.types)
        everywhere: list[Counter[_Kind]] = [Counter() for _ in self.types]
        by_rack: dict[str, Counter[tuple[int, _Kind]]] = {}
        for node in cluster.nodes:
            if node.gpus == 0:
                continue
            t = self.index[node.gpu_type]
            self.capacity[t] += node.gpus
            everywhere[t][_kind(node)] += 1
            if node.rack is not None:
                by_rack.setdefault(node.rack, Counter())[t, _kind(node)] += 1
        self._everywhere = everywhere
        self._racks = tuple(dict.fromkeys(frozenset(kinds.items()) for kinds in by_rack.values()))
        self._hosts = tuple(dict.fromkeys((node.cpus, node.memory_gib) for node in cluster.nodes))
        self.has_power_cap = POWER_CAP in cluster.resources
        self.has_all_cores = bool(cluster.nodes) and all(
            node.cpus is not None for node in cluster.nodes
        )
        self.cores = sum(node.cpus or 0 for node in cluster.nodes)

    def most_gpus(self, job: Job, types: Types, spread: Span, cpus_per_gpu: int) -> int:
        """GPUs of the largest gang of `job` that fits nodes of `types` within `spread`."""
        if spread == "node":
            every = (kind for t in types for kind in self._everywhere[t])
            return max((kind.most_gpus(job, cpus_per_gpu) for kind in every), default=0)
        if spread == "cluster":
            return sum(
                count * kind.most_gpus(job, cpus_per_gpu)
                for t in types
                for kind, count in self._everywhere[t].items()
            )
        return max(
            (
                sum(
                    count * kind.most_gpus(job, cpus_per_gpu)
                    for (t, kind), count in rack
                    if t in types
                )
                for rack in self._racks
            ),
            default=0,
        )

    def has_host(self, cpus: int, memory_gib: float) -> bool:
        """Return whether some node holds a CPU-only mode; one that asks for nothing needs no
        node."""
        if cpus == 0 and memory_gib == 0:
            return True
        return any(
            (have is None or cpus <= have)
            and (room is None or memory_gib <= room + TOLERANCE * max(1.0, room))
            for have, room in self._hosts
        )
