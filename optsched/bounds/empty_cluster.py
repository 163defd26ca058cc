"""The largest gangs that fit an empty cluster, up to what the verifier takes for rounding."""

from ..model import Instance, Job, Mode, Node
from ..physics import Span, gpu_memory_gib, memory_gib_per_gpu
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

    def most_gpus(self, job: Job, t: int, types: Types, spread: Span, mode: Mode) -> int:
        """Return the GPUs of the largest gang of `job` that has one of type `t`, all of `types`,
        and fits within `spread`, with what `mode` takes for each GPU."""
        takes = mode.cpus_per_gpu, memory_gib_per_gpu(job, mode), gpu_memory_gib(job, mode)
        key = t, types, takes
        if key not in self._most:
            room = [
                (shape, _most_gpus(shape.node, *takes))
                for own in types
                for shape in self._shapes[own]
            ]
            has_it = (
                shape for shape, most in room if most and shape.node.gpu_type == self.types[t]
            )
            racks = {rack for shape in has_it for rack in shape.racks}
            self._most[key] = most_within(room, among=racks)
        return self._most[key][spread]

    def has_host(self, cpus: int, memory_gib: float) -> bool:
        """Return whether some node holds a CPU-only mode; one that asks for nothing needs no
        node."""
        return (cpus == 0 and memory_gib == 0) or any(
            cpus <= or_inf(node.cpus) and memory_gib <= forgiven(or_inf(node.memory_gib))
            for node in self._hosts
        )


def _most_gpus(node: Node, cpus_per_gpu: int, gib_per_gpu: float, of_each_gib: float) -> int:
    """Return the GPUs of a node that a job could hold with so many cores and so much memory beside
    each, and so much of each."""
    if of_each_gib > or_inf(node.gpu_memory_gib):
        return 0
    memory_gib = forgiven(or_inf(node.memory_gib))
    return gpus_that_fit(node.gpus, or_inf(node.cpus), memory_gib, cpus_per_gpu, gib_per_gpu)
