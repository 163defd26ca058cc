"""The machines of a model's cluster, scaled to any number of GPUs."""

from ....model import Cluster, Node
from ...clusters import NODES_PER_RACK
from .model import Model, NodeKind


def scaled(model: Model, gpus: int) -> Cluster:
    """Return a cluster of `gpus` GPUs with the model's kinds of nodes in its proportions.

    Whole nodes but for the last of one kind, which may be smaller; racks hold eight nodes of one
    kind. Kinds that a small cluster has no room for are left out, machines without GPUs come in
    proportion.
    """
    exact = [kind.count * gpus / model.gpus for kind in model.nodes]
    counts = [int(count) for count in exact]
    with_gpus = [i for i, kind in enumerate(model.nodes) if kind.gpus]
    missing = gpus - sum(counts[i] * model.nodes[i].gpus for i in with_gpus)
    for i in sorted(with_gpus, key=lambda i: (counts[i] - exact[i]) * model.nodes[i].gpus):
        if counts[i] < exact[i] and missing >= model.nodes[i].gpus:
            counts[i] += 1
            missing -= model.nodes[i].gpus
    smaller: dict[int, int] = {}
    while missing > 0:
        i = max(with_gpus, key=lambda i: (exact[i] - counts[i]) * model.nodes[i].gpus)
        counts[i] += 1
        missing -= model.nodes[i].gpus
        smaller = {i: model.nodes[i].gpus + min(0, missing)}
    nodes = tuple(
        node
        for i, (kind, count) in enumerate(zip(model.nodes, counts, strict=True))
        for node in _nodes(i, kind, count, last=smaller.get(i, kind.gpus))
    )
    return Cluster(nodes=nodes, reference_gpu=model.reference_gpu)


def _nodes(number: int, kind: NodeKind, count: int, last: int) -> list[Node]:
    """Return nodes of one kind; the last of them has `last` GPUs, and cores and memory in
    proportion."""
    stem = f"{kind.gpu_type or 'cpu'}-{chr(ord('a') + number)}"
    sizes = [kind.gpus] * (count - 1) + [last] * min(count, 1)
    shares = [size / kind.gpus if kind.gpus else 1.0 for size in sizes]
    return [
        Node(
            name=f"{stem}-{i}",
            gpu_type=kind.gpu_type,
            gpus=size,
            gpu_memory_gib=kind.gpu_memory_gib,
            cpus=None if kind.cpus is None else int(kind.cpus * share),
            memory_gib=None if kind.memory_gib is None else kind.memory_gib * share,
            rack=f"{stem}-r{i // NODES_PER_RACK}",
        )
        for i, (size, share) in enumerate(zip(sizes, shares, strict=True))
    ]
