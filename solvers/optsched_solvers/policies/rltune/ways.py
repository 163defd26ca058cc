"""Ways to place a gang on the fewest nodes, or on one more, and what each does to fragmentation and
balance."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

Counts = tuple[tuple[int, int], ...]
"""(free GPUs, nodes with so many), the most free first; nodes without a free GPU are left out."""
Pattern = tuple[tuple[int, int], ...]
"""(free GPUs, GPUs taken), one pair a node."""
Assignment = tuple[tuple[int, int], ...]
"""(node, GPUs taken), in the order of the nodes."""


class Shape(NamedTuple):
    """A way on nodes that are alike, before it is known which: its effect on those with free GPUs.

    `frag` is the change of the number of nodes with some but not all GPUs free, `waste` that of the
    GPUs in use on them, `balance` that of the variance of the nodes' utilisation (lower is more
    even).
    """

    pattern: Pattern
    frag: int
    waste: int
    balance: float

    @property
    def effect(self) -> tuple[float, ...]:
        """Return what is best for fragmentation where it is lowest."""
        return self.frag, self.waste, self.balance


class Way(NamedTuple):
    """A shape on the first nodes of each kind."""

    assignment: Assignment
    shape: Shape

    @property
    def size(self) -> tuple[int, list[int]]:
        """Return the number of nodes, then the nodes: which of two equal ways comes first."""
        return len(self.assignment), [node for node, _ in self.assignment]


Tiers = tuple[tuple[Shape, ...], tuple[Shape, ...]]
"""On as few nodes as can be, and on one more."""


@lru_cache(maxsize=1 << 15)
def shapes(counts: Counts, gpus: int, per_node: int) -> Tiers:
    """Return all shapes of a gang on nodes of `per_node` GPUs: those on as few nodes as its size
    allows (tier 1), and those on one more that do not raise the number of fragmented nodes (tier 2;
    a single GPU has none).

    Source: find_gpu_assignments of RLTune's public allocation_score.py.
    """
    fewest = -(-gpus // per_node)
    most = min(fewest + (gpus > 1), sum(nodes for _, nodes in counts))
    first: list[Shape] = []
    second: list[Shape] = []
    for pattern in _patterns(counts, 0, gpus, most):
        shape = _shape(counts, pattern, per_node)
        if len(pattern) == fewest:
            first.append(shape)
        elif len(pattern) == fewest + 1 and shape.frag <= 0:
            second.append(shape)
    return tuple(first), tuple(second)


def _patterns(counts: Counts, i: int, left: int, most: int) -> Iterator[Pattern]:
    """Return nodes taken whole from the roomiest kinds on, the last kind in every split."""
    if left == 0:
        yield ()
        return
    if i == len(counts) or most * counts[i][0] < left:
        return
    free, nodes = counts[i]
    yield from _patterns(counts, i + 1, left, most)
    for used in range(1, min(nodes, most, left) + 1):
        taken = min(used * free, left)
        for parts in _splits(taken, used, free):
            for rest in _patterns(counts, i + 1, left - taken, most - used):
                yield (*((free, part) for part in parts), *rest)


def _splits(total: int, parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Yield `total` in so many parts of at least 1 and at most `largest`, each no larger than the
    one before."""
    if parts == 0:
        if total == 0:
            yield ()
        return
    for part in range(min(largest, total - parts + 1), -(-total // parts) - 1, -1):
        for rest in _splits(total - part, parts - 1, part):
            yield (part, *rest)


def _shape(counts: Counts, pattern: Pattern, per_node: int) -> Shape:
    frag = waste = 0
    for free, taken in pattern:
        after = free - taken
        frag += (0 < after < per_node) - (0 < free < per_node)
        waste += (per_node - after if 0 < after < per_node else 0) - (
            per_node - free if 0 < free < per_node else 0
        )
    nodes = sum(count for _, count in counts)
    if nodes <= 1:
        return Shape(pattern, frag, waste, 0.0)
    used = sum(count * (per_node - free) for free, count in counts)
    more = sum(taken for _, taken in pattern)
    squares = sum(
        (per_node - free + taken) ** 2 - (per_node - free) ** 2 for free, taken in pattern
    )
    variance = nodes * squares - (
        (used + more) ** 2 - used**2
    )  # times (nodes x per_node) squared, in whole numbers
    return Shape(pattern, frag, waste, variance / (nodes * per_node) ** 2)


def on_nodes(shape: Shape, free: dict[int, list[int]]) -> Way:
    """Return the shape on the first nodes of each kind; `free` has the nodes by free GPUs, in
    order."""
    used: dict[int, int] = {}
    slots = []
    for kind, taken in shape.pattern:
        slots.append((free[kind][used.get(kind, 0)], taken))
        used[kind] = used.get(kind, 0) + 1
    return Way(tuple(sorted(slots)), shape)


def best_ways(first: list[Way], second: list[Way]) -> list[Way]:
    """Return the best of each tier for fragmentation and for load balance, at most four, without
    repetition."""
    best: dict[Assignment, Way] = {}
    for tier in (first, second):
        if tier:
            for way in (
                min(tier, key=lambda way: (way.shape.effect, way.size)),
                min(tier, key=lambda way: (way.shape.balance, way.shape.effect, way.size)),
            ):
                best.setdefault(way.assignment, way)
    return list(best.values())


ALPHA, BETA, GAMMA = 1.0, 0.3, 0.5
"""Weights of fragmented nodes, imbalance, and nodes on which the next job fits."""


def cost(free: Mapping[int, int], assignment: Assignment, per_node: int, next_gpus: int) -> float:
    """Return what the program makes of a way; `free` are the nodes with free GPUs before it."""
    after = dict(free)
    for node, taken in assignment:
        after[node] -= taken
    fragmented = sum(0 < left < per_node for left in after.values())
    fits_next = sum(left >= next_gpus for left in after.values())
    return (
        ALPHA * fragmented + BETA * (max(after.values()) - min(after.values())) - GAMMA * fits_next
    )


def choose(
    free: Mapping[int, int], ways: Sequence[Assignment], per_node: int, next_gpus: int
) -> list[int]:
    """Return the ways by cost, the best first; of equal ones the first."""
    return sorted(range(len(ways)), key=lambda w: (cost(free, ways[w], per_node, next_gpus), w))
