"""Where a model counts capacity: each node by itself, or several as one bin where that loses
nothing."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

from optsched.model import Node
from optsched.physics.capacity import kind

from ..scheduling.problem import Problem

Bin = tuple[int, ...]
"""The positions of nodes whose capacities are added up."""


def partitions(problem: Problem) -> list[tuple[tuple[Bin, ...], bool]]:
    """Return partitions of the nodes into bins, from fine to coarse, each with whether a model over
    them is exact.

    The first merges only nodes of one pool: any gang may be split over them at no loss, and neither
    cores nor memory can bind while GPUs are left. As work never moves between GPUs while it runs,
    such jobs fit one by one if they fit in total. The others merge nodes of a kind, then all of one
    GPU type: a relaxation, whose bound holds and whose plans are made to fit afterwards.
    """

    def by(key: Callable[[Node], Hashable]) -> tuple[Bin, ...]:
        groups: dict[Hashable, list[int]] = {}
        for n, node in enumerate(problem.instance.cluster.nodes):
            groups.setdefault(key(node), []).append(n)
        return tuple(map(tuple, groups.values()))

    alike = by(lambda node: (kind(node), node.gpu_price_per_h))
    fine: list[Bin] = []
    for group in alike:
        fine += [group] if problem.is_one_pool({*group}) else [(n,) for n in group]
    return [
        (tuple(fine), True),
        (by(lambda node: replace(node, name="")), False),
        (alike, False),
        (by(lambda node: (node.gpu_type, node.gpus > 0)), False),
    ]


def as_node(members: Iterable[Node]) -> Node:
    """Return one node with all that these have; cores and memory count only where every one of them
    has a limit."""
    nodes = list(members)
    cores, memory = [node.cpus for node in nodes], [node.memory_gib for node in nodes]
    return Node(
        name=nodes[0].name,
        gpus=sum(node.gpus for node in nodes),
        cpus=None if None in cores else sum(filter(None, cores)),
        memory_gib=None if None in memory else sum(filter(None, memory)),
    )
