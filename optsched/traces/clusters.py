"""The clusters of traces that come without a list of machines: nodes from `v100=288,p100=96`."""

import math

from ..errors import InputError
from ..model.cluster import Cluster, Node

GPU_MEMORY_GIB = {
    "a100": 80.0,
    "a10": 24.0,
    "h100": 80.0,
    "k80": 12.0,
    "p100": 16.0,
    "t4": 16.0,
    "rtx": 11.0,
    "v100": 32.0,
}
"""Memory of one GPU by type, of the common variant; a type not listed has no limit in the
instance."""
NODES_PER_RACK = 8
MAX_GPUS = 1_000_000


def cluster_of(
    specification: str, gpus_per_node: int, *, cpus_per_gpu: int | None = None
) -> Cluster:
    """Nodes of `gpus_per_node` GPUs for `v100=288,p100=96` (GPUs by type; the last node of a type
    may be smaller).

    Racks hold eight nodes of one type. The first type is the reference. Raises InputError saying
    what is wrong.
    """
    expected = "expected GPUs by type, as v100=288,p100=96"
    nodes: list[Node] = []
    for part in specification.split(","):
        gpu_type, equals, count = (text.strip() for text in part.partition("="))
        if (
            not gpu_type
            or not equals
            or not (count.isascii() and count.isdecimal())
            or int(count) < 1
        ):
            raise InputError(
                f"cluster {specification!r}: {part.strip()!r} is no GPU type and count; {expected}"
            )
        if int(count) > MAX_GPUS or any(node.gpu_type == gpu_type for node in nodes):
            raise InputError(
                f"cluster {specification!r}: {gpu_type} appears twice or has over {MAX_GPUS} "
                f"GPUs; {expected}"
            )
        for i in range(math.ceil(int(count) / gpus_per_node)):
            gpus = min(gpus_per_node, int(count) - i * gpus_per_node)
            nodes.append(
                Node(
                    name=f"{gpu_type}-{i}",
                    gpu_type=gpu_type,
                    gpus=gpus,
                    gpu_memory_gib=GPU_MEMORY_GIB.get(gpu_type),
                    cpus=None if cpus_per_gpu is None else cpus_per_gpu * gpus,
                    rack=f"{gpu_type}-r{i // NODES_PER_RACK}",
                )
            )
    return Cluster(nodes=tuple(nodes), reference_gpu=nodes[0].gpu_type)
