"""The largest gangs that fit an empty cluster, up to what the verifier takes for rounding."""

from ..model.cluster import Node
from ..model.instance import Instance
from ..model.job import Job
from ..physics import Span
from ..physics.capacity import gpus_that_fit, or_inf
from ..physics.catalogue import Catalogue, catalogue_of, most_within

Types = tuple[int, ...]
"""GPU types by their position in `EmptyCluster.types`."""
TOLERANCE = 1e-6
"""Relative excess of an amount that the verifier takes for rounding."""


def forgiven(capacity: float) -> float:
    """Return the most of a fractional amount that the verifier takes for a capacity."""
    return capacity + TOLERANCE * max(1.0, capacity)


class EmptyCluster:
    """A cluster by the shapes of its nodes: GPU types in order, GPUs of each, and the largest gangs
    that fit."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.cluster = catalogue.cluster
        self.types = self.cluster.gpu_types
        self.index = {gpu_type: t for t, gpu_type in enumerate(self.types)}
        self._hosts = [shape.node for shape in catalogue.shapes]
        self._shapes = [
            [own for own in catalogue.shapes if own.node.gpus and own.node.gpu_type == gpu_type]
            for gpu_type in self.types
        ]
        self.capacity = [
            sum(shape.node.gpus * shape.count for shape in shapes) for shapes in self._shapes
        ]
        self._most: dict[object, dict[Span, int]] = {}

    @staticmethod
    def of(instance: Instance) -> "EmptyCluster":
        """Return the cluster of an instance, which all that share its catalogue share."""
        catalogue = catalogue_of(instance)
        return catalogue.once("empty cluster", lambda: EmptyCluster(catalogue))

    def most_gpus(self, job: Job, types: Types, spread: Span, cpus_per_gpu: int) -> int:
        """Return the GPUs of the largest gang of `job` that fits nodes of `types` within
        `spread`."""
        profile = job.profile
        key = types, cpus_per_gpu, profile.gpu_memory_gib, profile.memory_gib_per_gpu
        if key not in self._most:
            shapes = (shape for t in types for shape in self._shapes[t])
            self._most[key] = most_within(
                [(shape, _most_gpus(shape.node, job, cpus_per_gpu)) for shape in shapes]
            )
        return self._most[key][spread]

    def has_host(self, cpus: int, memory_gib: float) -> bool:
        """Return whether some node holds a CPU-only mode; one that asks for nothing needs no
        node."""
        return (cpus == 0 and memory_gib == 0) or any(
            cpus <= or_inf(node.cpus) and memory_gib <= forgiven(or_inf(node.memory_gib))
            for node in self._hosts
        )


def _most_gpus(node: Node, job: Job, cpus_per_gpu: int) -> int:
    """Return the GPUs of a node that `job` could hold with so many cores beside each."""
    if job.profile.gpu_memory_gib > or_inf(node.gpu_memory_gib):
        return 0
    memory_gib, per_gpu = forgiven(or_inf(node.memory_gib)), job.profile.memory_gib_per_gpu
    return gpus_that_fit(node.gpus, or_inf(node.cpus), memory_gib, cpus_per_gpu, per_gpu)
