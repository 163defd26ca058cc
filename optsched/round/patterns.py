"""The demand of an option on the cluster: derived once for each demand, shared by all jobs that ask
for the same."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..frozen import entity
from ..model import Cluster, Job, Node, Window
from ..physics import cpus, memory_gib
from ..physics.capacity import Demand, alike, or_inf
from ..physics.capacity import kind as kind_of
from ..physics.catalogue import Catalogue
from ..physics.modes import Option, demands, room_on
from .deadline import Deadline


@entity
class NodeClass:
    """Nodes that serve the same options. `nodes` are their positions in the cluster, `node` has
    the cores and the memory that each of them has at least, `largest` what any has at most."""

    number: int
    name: str
    node: Node
    largest: Node
    nodes: tuple[int, ...]

    @property
    def bit(self) -> int:
        return 1 << self.number

    @property
    def limits(self) -> tuple[float, float]:
        """Return the cores and the memory of each node."""
        return or_inf(self.node.cpus), or_inf(self.node.memory_gib)

    @property
    def cpus_per_gpu(self) -> float:
        """Return the cores that each node has for each of its GPUs."""
        if self.node.cpus is None:
            return np.inf
        return self.node.cpus / self.node.gpus if self.node.gpus else 0.0


@entity
class Pattern:
    """An option on certain nodes: `classes` is a mask of node classes, of which one node holds it
    all if `together`, else any of their nodes hold parts of it. `shared` is what it takes of the
    rows of the table of capacity that belong to no node.
    """

    option: Option
    classes: int
    together: bool
    cpus: int
    memory_gib: float
    shared: Demand

    @property
    def gpus(self) -> int:
        return self.option.mode.gpus

    @property
    def slot(self) -> int:
        """Return the number of GPUs that must lie on one node; 1 where any will do."""
        return self.gpus if self.together else min(self.gpus, 1)


@dataclass(frozen=True, eq=False)
class Alternatives:
    """The patterns of one demand."""

    patterns: tuple[Pattern, ...]

    @cached_property
    def fastest(self) -> "Alternatives":
        """Return those that differ from no faster one only in taking other cores: where cores
        cannot run short, the others are never better."""
        best: dict[object, Pattern] = {}
        for pattern in self.patterns:
            mode = pattern.option.mode
            key = (
                (mode.gpu_type, mode.gpus, mode.clock_mhz, 0 if mode.gpus else mode.cpus),
                (pattern.option.spread, pattern.classes, pattern.together),
                pattern.memory_gib,
                tuple(pattern.shared),
            )
            if key not in best or pattern.option.rate > best[key].option.rate:
                best[key] = pattern
        chosen = set(best.values())
        return Alternatives(tuple(pattern for pattern in self.patterns if pattern in chosen))

    @cached_property
    def columns(self) -> "Columns":
        """Return the patterns as columns."""
        patterns, number = self.patterns, dict[int, int]()
        mask = [number.setdefault(each.classes, len(number)) for each in patterns]
        gpus = np.array([each.gpus for each in patterns], dtype=np.int64)
        together = np.array([each.together for each in patterns], dtype=bool)
        return Columns(
            gpus=gpus,
            cpus=np.array([each.cpus for each in patterns], dtype=np.int64),
            memory_gib=np.array([each.memory_gib for each in patterns], dtype=float),
            slot=np.where(together, gpus, np.minimum(gpus, 1)),
            together=together,
            in_rack=np.array([each.option.spread == "rack" for each in patterns], dtype=bool),
            rate=np.array([each.option.rate for each in patterns], dtype=float),
            mask=np.array(mask, dtype=np.int64),
            key=tuple(
                (own.classes, own.together, own.gpus, own.cpus, own.memory_gib) for own in patterns
            ),
            masks=list(number),
        )


NOTHING = Alternatives(())
"""The alternatives of jobs that must go on as they are."""


Key = tuple[int, bool, int, int, float]
"""A set of node classes, whether one node holds it all, GPUs, cores and memory."""


@entity
class Columns:
    """Patterns as columns. `mask` numbers the sets of node classes (`masks`), `key` says what a
    pattern takes and where."""

    gpus: NDArray[np.int64]
    cpus: NDArray[np.int64]
    memory_gib: NDArray[np.float64]
    slot: NDArray[np.int64]
    together: NDArray[np.bool_]
    in_rack: NDArray[np.bool_]
    rate: NDArray[np.float64]
    mask: NDArray[np.int64]
    key: tuple[Key, ...]
    masks: list[int]


def columns(alternatives: Sequence[Alternatives], deadline: Deadline) -> Columns:
    """Return the patterns of demands, one after the other, as columns."""
    tables = [NOTHING.columns]
    for own in alternatives:
        deadline.check()
        tables.append(own.columns)
    number: dict[int, int] = {}
    every = [number.setdefault(own, len(number)) for table in tables for own in table.masks]
    sizes = np.array([(len(table.masks), len(table.mask)) for table in tables])
    first = np.repeat(np.cumsum(sizes[:, 0]) - sizes[:, 0], sizes[:, 1])
    mask = first + np.concatenate([table.mask for table in tables])
    return Columns(
        **{
            name: np.concatenate([getattr(table, name) for table in tables])
            for name in ("gpus", "cpus", "memory_gib", "slot", "together", "in_rack", "rate")
        },
        mask=np.array(every, dtype=np.int64)[mask],
        key=tuple(chain.from_iterable(table.key for table in tables)),
        masks=list(number),
    )


MOST_CLASSES = 16
"""With more node classes than so many, nodes that serve the same options are one."""

Needs = frozenset[tuple[int, float]]
"""Cores and memory (GiB) that options take of one node."""


def needs_of(catalogue: Catalogue, jobs: Sequence[Job]) -> Needs | None:
    """Return by what nodes are told apart where they are of too many kinds, else None: one kind
    each."""
    if len(node_classes(catalogue)[0]) <= MOST_CLASSES:
        return None
    known = {
        catalogue.once(("needs", demands(job)), partial(_needs, catalogue, job)) for job in jobs
    }
    return Needs().union(*known)


def _needs(catalogue: Catalogue, job: Job) -> Needs:
    """Return what options take of a node that holds all, and of one that holds a single GPU."""
    return frozenset(
        (cpus(mode, gpus), memory_gib(job, mode, gpus))
        for mode in (option.mode for option in catalogue.options(job))
        for gpus in {mode.gpus, min(mode.gpus, 1)}
    )


def node_classes(
    catalogue: Catalogue, needs: Needs | None = None
) -> tuple[tuple[NodeClass, ...], list[int]]:
    """Return the node classes of a cluster in order of first appearance, and for each node the
    number of its own. With `needs` nodes of different cores or memory are of one class where each
    of these fits all of them or none."""
    return catalogue.once(("node classes", needs), lambda: _node_classes(catalogue.cluster, needs))


def _node_classes(cluster: Cluster, needs: Needs | None) -> tuple[tuple[NodeClass, ...], list[int]]:
    nodes, windows = cluster.nodes, _windows(cluster)
    levels = None if needs is None else [sorted(set(column)) for column in zip(*needs, strict=True)]
    members: dict[object, list[int]] = {}
    for i, node in enumerate(nodes):
        key: object = alike(node)
        if levels is not None:
            fitting = map(_fitting, (node.cpus, node.memory_gib), levels)
            key = kind_of(node), node.gpus, *fitting
        key = key, node.gpu_price_per_h, windows.get(node.name)
        members.setdefault(key, []).append(i)
    groups = [[nodes[i] for i in own] for own in members.values()]
    least, most = ([_extreme(of, group) for group in groups] for of in (min, max))
    class_of = [0] * len(nodes)
    classes = []
    names = _beside_windows([_name(node, least) for node in least], least, windows)
    for (number, own), name in zip(enumerate(members.values()), names, strict=True):
        classes.append(NodeClass(number, name, least[number], most[number], tuple(own)))
        for i in own:
            class_of[i] = number
    return tuple(classes), class_of


def _windows(cluster: Cluster) -> dict[str, tuple[Window, ...]]:
    """Return the windows of each node that has any."""
    windows: dict[str, tuple[Window, ...]] = {}
    for window in cluster.windows:
        for name in window.nodes:
            windows[name] = (*windows.get(name, ()), window)
    return windows


def _beside_windows(
    names: list[str], first: list[Node], windows: Mapping[str, tuple[Window, ...]]
) -> list[str]:
    """Return the names of classes with those of their windows, which stay the same from one time of
    a window to the next; where that tells two not apart, with that of their first node."""
    told = []
    for name, node in zip(names, first, strict=True):
        own = dict.fromkeys(window.name for window in windows.get(node.name, ()))
        told.append(f"{name} with {', '.join(own)}" if own else name)
    many = Counter(told)
    return [
        f"{name} ({node.name})" if many[name] > 1 and node.name in windows else name
        for name, node in zip(told, first, strict=True)
    ]


def _fitting(limit: float | None, needs: Sequence[float]) -> int | None:
    """Return how many of the needs are within a limit."""
    return None if limit is None else bisect_right(needs, limit)


def _extreme(of: Callable[..., Any], nodes: Sequence[Node]) -> Node:
    """Return the first node, with the least or the most cores and memory of all. Either all of
    them have a limit or none."""
    limits = zip(*((node.cpus, node.memory_gib) for node in nodes), strict=True)
    cores, gib = (None if None in amounts else of(amounts) for amounts in limits)
    return replace(nodes[0], cpus=cores, memory_gib=gib)


def _name(node: Node, others: list[Node]) -> str:
    """Return GPU type and size, and what sets the class apart from others of the same type and
    size."""
    name = f"{node.gpu_type or 'GPU'} x {node.gpus}" if node.gpus else "nodes without GPUs"
    twins = [
        other for other in others if (other.gpu_type, other.gpus) == (node.gpu_type, node.gpus)
    ]
    texts = {
        "gpu_memory_gib": f"{node.gpu_memory_gib} GiB GPUs",
        "cpus": f"{node.cpus} cores",
        "memory_gib": f"{node.memory_gib} GiB",
        "gpu_price_per_h": f"price {node.gpu_price_per_h:g}",
    }
    apart = [
        text for field, text in texts.items() if len({getattr(twin, field) for twin in twins}) > 1
    ]
    return f"{name} ({', '.join(apart)})" if apart else name


def alternatives_of(catalogue: Catalogue, job: Job, needs: Needs | None = None) -> Alternatives:
    """Return every way to run `job` on the empty cluster within its tenant's cap, on the node
    classes by `needs`; none where it can never run."""

    key = "alternatives", needs, demands(job), catalogue.capacity.quotas_of(job)
    return catalogue.once(key, lambda: Alternatives(tuple(_patterns(catalogue, job, needs))))


def _patterns(catalogue: Catalogue, job: Job, needs: Needs | None) -> Iterator[Pattern]:
    classes, _ = node_classes(catalogue, needs)
    table = catalogue.capacity
    for option in catalogue.options(job):
        mode = option.mode
        if not table.allows(job, mode):
            continue
        shared = [*table.together(job, mode), *table.used_up(mode)]
        if not option.needs_node:
            yield Pattern(option, 0, False, 0, 0.0, shared)
            continue
        cores, gib = cpus(mode, mode.gpus), memory_gib(job, mode, mode.gpus)
        able = [(each.bit, room) for each in classes if (room := room_on(each.largest, job, mode))]
        if option.spread == "node" and mode.gpus:
            for bit, room in able:
                if room >= mode.gpus:
                    yield Pattern(option, bit, True, cores, gib, shared)
        else:
            mask = sum(bit for bit, _ in able)
            yield Pattern(option, mask, mode.gpus == 0, cores, gib, shared)
