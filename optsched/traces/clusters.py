"""The clusters of traces that come without a list of machines: nodes from `v100=288,p100=96`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InputError
from ..model import Cluster, Node

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


def sizes(gpus: int, gpus_per_node: int) -> list[int]:
    """Return the GPUs of the nodes that have so many together; the last may be smaller."""
    return [min(gpus_per_node, gpus - first) for first in range(0, gpus, gpus_per_node)]


def alike(
    stem: str, gpus: Sequence[int], cpus_per_gpu: int | None = None, **each: Any
) -> list[Node]:
    """Return nodes of these sizes, in racks of eight, that have all else in common."""
    return [
        Node(
            name=f"{stem}-{i}",
            gpus=here,
            cpus=None if cpus_per_gpu is None else cpus_per_gpu * here,
            rack=f"{stem}-r{i // NODES_PER_RACK}",
            **each,
        )
        for i, here in enumerate(gpus)
    ]


def with_each(cluster: Cluster, **fields: Callable[[Node], Any]) -> Cluster:
    """Return the cluster with these fields of each node, told of the node."""
    return replace(
        cluster,
        nodes=tuple(
            replace(node, **{name: value(node) for name, value in fields.items()})
            for node in cluster.nodes
        ),
    )


def cluster_of(specification: str, gpus_per_node: int) -> Cluster:
    """Return nodes of `gpus_per_node` GPUs for `v100=288,p100=96` (GPUs by type; the last node of a
    type may be smaller).

    Racks hold eight nodes of one type. The first type is the reference. Raises InputError saying
    what is wrong.
    """
    expected = "expected GPUs by type, as v100=288,p100=96"
    gpus: dict[str, int] = {}
    for part in specification.split(","):
        gpu_type, _, count = (text.strip() for text in part.partition("="))
        if not gpu_type or not (count.isascii() and count.isdecimal()) or int(count) < 1:
            raise InputError(
                f"cluster {specification!r}: {part.strip()!r} is no GPU type and count; {expected}"
            )
        if int(count) > MAX_GPUS or gpu_type in gpus:
            raise InputError(
                f"cluster {specification!r}: {gpu_type} appears twice or has over {MAX_GPUS} "
                f"GPUs; {expected}"
            )
        gpus[gpu_type] = int(count)
    nodes = [
        node
        for gpu_type, count in gpus.items()
        for node in alike(
            gpu_type,
            sizes(count, gpus_per_node),
            gpu_type=gpu_type,
            gpu_memory_gib=GPU_MEMORY_GIB.get(gpu_type),
        )
    ]
    return Cluster(nodes=tuple(nodes), reference_gpu=next(iter(gpus)))


def with_prices(cluster: Cluster, text: str) -> Cluster:
    """Return the cluster whose GPUs cost so much an hour, by type as `v100=2.48,k80=0.45`; types
    that are not listed keep their price. Raises InputError saying what is wrong."""
    prices: dict[str | None, float] = {}
    for part in text.split(","):
        gpu_type, _, price = (word.strip() for word in part.partition("="))
        if gpu_type not in cluster.gpu_types:
            raise InputError(f"--prices {text}: the cluster has no GPUs of type {gpu_type!r}")
        try:
            prices[gpu_type] = float(price)
        except ValueError:
            prices[gpu_type] = math.nan
        if not 0 <= prices[gpu_type] < math.inf:
            raise InputError(f"--prices {text}: {price!r} is not a price; write v100=2.48,k80=0.45")
    return with_each(
        cluster, gpu_price_per_h=lambda node: prices.get(node.gpu_type, node.gpu_price_per_h)
    )


def own_or(given: str | None, gpus_per_node: int | None) -> Cluster | None:
    """Return the cluster that a user names, None for the trace's own machines. Raises InputError
    where their size is named."""
    if given is not None:
        return cluster_of(given, gpus_per_node or 8)
    if gpus_per_node is not None:
        raise InputError(
            "--gpus-per-node goes with --cluster; the trace's own machines have their sizes"
        )
    return None
