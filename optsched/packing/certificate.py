"""What prices prove about packing, by plain arithmetic: it imports no solver, and any prices give a
valid bound.

Let a GPU, a core, a KiB of memory and the room for a part of a GPU have a price on each class of
nodes, not below 0. All GPUs, cores and memory of the cluster are worth a sum. A job that is placed
pays for what it takes, and brings what it allocates; no job gains more than its allocation less the
cheapest price at which it could be had. So what is allocated is at most the worth of the cluster
plus all gains, if the parts on a GPU never cost more than the GPU: where some pattern does, the GPU
is given its price here. (Weak duality of the program in `bound`.)
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..frozen import record
from ..model import Node
from .problem import WHOLE, NodeClass, Request

GRID = 1000
"""Parts are cut down to thousandths of a GPU when patterns are sought: more patterns fit, so that
the bound holds."""


@record
class ClassPrices:
    """Prices on one class of nodes, in GPUs: of a GPU, a core, a KiB, and the room for a part (by
    its millionths)."""

    per_gpu: float
    per_cpu: float
    per_kib: float
    per_part: dict[int, float]


def node_classes(nodes: Sequence[Node]) -> dict[NodeClass, int]:
    """Return the classes of nodes, and how many nodes are in each."""
    return dict(Counter(map(NodeClass.of, nodes)))


def certified_units(
    nodes: Sequence[Node],
    requests: Sequence[Request],
    counts: Mapping[int, int],
    prices: Sequence[ClassPrices],
) -> float:
    """Return millionths of GPUs that no rule exceeds for `counts` jobs of each kind, as far as
    these prices prove it; one set of prices for each class, in the order of `node_classes`. Raises
    ValueError for a price below 0 or a missing one."""
    classes = node_classes(nodes)
    if len(prices) != len(classes):
        raise ValueError(f"{len(prices)} sets of prices for {len(classes)} classes of nodes")
    worth = 0.0
    per_gpu = []
    for (node_class, count), own in zip(classes.items(), prices, strict=True):
        if not all(
            price >= 0 for price in (own.per_gpu, own.per_cpu, own.per_kib, *own.per_part.values())
        ):
            raise ValueError("a price is below 0 or not a number")
        gpu = max(own.per_gpu, best_pattern(own.per_part)[0])
        per_gpu.append(gpu)
        if (node_class.cpus is None and own.per_cpu) or (
            node_class.memory_kib is None and own.per_kib
        ):
            raise ValueError("a price on cores or memory that a node does not model")
        worth += count * (
            node_class.gpus * gpu
            + (node_class.cpus or 0) * own.per_cpu
            + (node_class.memory_kib or 0) * own.per_kib
        )
    gains = 0.0
    for kind, jobs in counts.items():
        request = requests[kind]
        costs = []
        for node_class, own, gpu in zip(classes, prices, per_gpu, strict=True):
            if request.gpus and node_class.takes(request):
                room = own.per_part.get(request.part, 0.0) if request.part else request.gpus * gpu
                costs.append(room + request.cpus * own.per_cpu + request.memory_kib * own.per_kib)
        if costs:
            gains += jobs * max(0.0, request.gpu_units / WHOLE - min(costs))
    everything = sum(jobs * requests[kind].gpu_units for kind, jobs in counts.items())
    return min(
        (worth + gains) * WHOLE, float(everything), float(WHOLE * sum(node.gpus for node in nodes))
    )


def best_pattern(per_part: Mapping[int, float]) -> tuple[float, dict[int, int]]:
    """Return the most that the parts on one GPU can cost, and how many of each those are."""
    worth, pattern = room_worth(per_part)
    return worth[GRID], pattern


def room_worth(per_part: Mapping[int, float]) -> tuple[list[float], dict[int, int]]:
    """Return the most that parts cost which fit together into each thousandth of a GPU, and those
    of a whole GPU."""
    best, last = [0.0] * (GRID + 1), [0] * (GRID + 1)
    sizes = [
        (size_on_grid(part), part, price) for part, price in sorted(per_part.items()) if price > 0
    ]
    for room in range(1, GRID + 1):
        best[room] = best[room - 1]
        for size, part, price in sizes:
            if size <= room and best[room - size] + price > best[room]:
                best[room], last[room] = best[room - size] + price, part
    pattern: Counter[int] = Counter()
    room = GRID
    while room:
        if last[room]:
            pattern[last[room]] += 1
            room -= size_on_grid(last[room])
        else:
            room -= 1
    return best, dict(pattern)


def size_on_grid(part: int) -> int:
    """Return a part in thousandths of a GPU, rounded down, at least one."""
    return max(1, part * GRID // WHOLE)
