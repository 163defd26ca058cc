"""The machines of a model's cluster, scaled to any number of GPUs."""

from ...cluster import Cluster, Node
from ..clusters import NODES_PER_RACK
from .model import Model, NodeKind


def scaled(model: Model, gpus: int) -> Cluster:
    """A cluster with the model's kinds of nodes in its proportions and about `gpus` GPUs.

    Whole nodes, at least one; racks hold eight nodes of one kind. Kinds that a small cluster has no room for are left
    out, machines without GPUs come in proportion.
    """
    exact = [kind.count * gpus / model.gpus for kind in model.nodes]
    counts = [int(count) for count in exact]
    with_gpus = [i for i, kind in enumerate(model.nodes) if kind.gpus]
    missing = gpus - sum(counts[i] * model.nodes[i].gpus for i in with_gpus)
    for i in sorted(with_gpus, key=lambda i: (counts[i] - exact[i]) * model.nodes[i].gpus):
        if counts[i] < exact[i] and missing >= model.nodes[i].gpus / 2:
            counts[i] += 1
            missing -= model.nodes[i].gpus
    if not any(counts[i] for i in with_gpus):
        counts[max(with_gpus, key=lambda i: exact[i] * model.nodes[i].gpus)] = 1
    nodes = tuple(
        node for i, (kind, count) in enumerate(zip(model.nodes, counts, strict=True)) for node in _nodes(i, kind, count)
    )
    return Cluster(nodes=nodes, reference_gpu=model.reference_gpu)


def _nodes(number: int, kind: NodeKind, count: int) -> list[Node]:
    stem = f"{kind.gpu_type or 'cpu'}-{chr(ord('a') + number)}"
    return [
        Node(name=f"{stem}-{i}", gpu_type=kind.gpu_type, gpus=kind.gpus, gpu_memory_gib=kind.gpu_memory_gib,
             cpus=kind.cpus, memory_gib=kind.memory_gib, rack=f"{stem}-r{i // NODES_PER_RACK}")
        for i in range(count)
    ]
