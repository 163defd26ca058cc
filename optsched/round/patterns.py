"""The demand of an option on the cluster: derived once for each demand, shared by all jobs that ask
for the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..model.cluster import Cluster, Node
from ..model.job import Job
from ..physics.capacity import Demand, alike
from ..physics.catalogue import Catalogue
from ..physics.modes import Option, demands, room_on
from .deadline import Deadline


@dataclass(frozen=True, slots=True, eq=False)
class NodeClass:
    """Nodes that differ only in name and rack. `nodes` are their positions in the cluster."""

    number: int
    name: str
    node: Node
    nodes: tuple[int, ...]

    @property
    def bit(self) -> int:
        return 1 << self.number

    @property
    def cpus_per_gpu(self) -> float:
        """Return the cores that a node has for each of its GPUs."""
        if self.node.cpus is None:
            return np.inf
        return self.node.cpus / self.node.gpus if self.node.gpus else 0.0


@dataclass(frozen=True, slots=True, eq=False)
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


NOTHING = Alternatives(())
"""The alternatives of jobs that must go on as they are."""


Key = tuple[int, bool, int, int, float]
"""The number of a set of node classes, whether one node holds it all, GPUs, cores and memory."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
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
    number: dict[int, int] = {}
    key: list[Key] = []
    for own in alternatives:
        deadline.check()
        for each in own.patterns:
            mask_number = number.setdefault(each.classes, len(number))
            key.append((mask_number, each.together, each.gpus, each.cpus, each.memory_gib))
    options = [pattern.option for own in alternatives for pattern in own.patterns]
    mask, together, gpus, cpus, memory_gib = (
        np.array(column, dtype=kind)
        for column, kind in zip(
            zip(*key, strict=True) if key else ((),) * 5,
            (np.int64, bool, np.int64, np.int64, float),
            strict=True,
        )
    )
    return Columns(
        gpus=gpus,
        cpus=cpus,
        memory_gib=memory_gib,
        slot=np.where(together, gpus, np.minimum(gpus, 1)),
        together=together,
        in_rack=np.array([option.spread == "rack" for option in options], dtype=bool),
        rate=np.array([option.rate for option in options], dtype=float),
        mask=mask,
        key=tuple(key),
        masks=list(number),
    )


def node_classes(catalogue: Catalogue) -> tuple[tuple[NodeClass, ...], list[int]]:
    """Return the node classes of a cluster in order of first appearance, and for each node the
    number of its own."""
    return catalogue.once("node classes", lambda: _node_classes(catalogue.cluster))


def _node_classes(cluster: Cluster) -> tuple[tuple[NodeClass, ...], list[int]]:
    members: dict[object, list[int]] = {}
    for i, node in enumerate(cluster.nodes):
        key = (alike(node), node.gpu_price_per_h)
        members.setdefault(key, []).append(i)
    firsts = [cluster.nodes[own[0]] for own in members.values()]
    class_of = [0] * len(cluster.nodes)
    classes = []
    for number, (node, own) in enumerate(zip(firsts, members.values(), strict=True)):
        classes.append(NodeClass(number, _name(node, firsts), node, tuple(own)))
        for i in own:
            class_of[i] = number
    return tuple(classes), class_of


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


def alternatives_of(catalogue: Catalogue, job: Job) -> Alternatives:
    """Return every way to run `job` on the empty cluster within its tenant's cap; none where it can
    never run."""

    def of_demand() -> Alternatives:
        quota = job.tenant if job.tenant in catalogue.capacity.quotas else None
        key = "alternatives", demands(job), quota
        return catalogue.once(key, lambda: Alternatives(tuple(_patterns(catalogue, job))))

    return catalogue.once(("alternatives of", job), of_demand)


def _patterns(catalogue: Catalogue, job: Job) -> Iterator[Pattern]:
    classes, _ = node_classes(catalogue)
    table = catalogue.capacity
    for option in catalogue.options(job):
        mode = option.mode
        if not table.allows(job, mode):
            continue
        shared = [*table.together(job, mode), *table.used_up(mode)]
        if not option.needs_node:
            yield Pattern(option, 0, False, 0, 0.0, shared)
            continue
        cpus = mode.cpus_per_gpu * mode.gpus if mode.gpus else mode.cpus
        memory_gib = job.profile.memory_gib_per_gpu * mode.gpus if mode.gpus else job.memory_gib
        able = [(kind.bit, room) for kind in classes if (room := room_on(kind.node, job, mode))]
        if option.spread == "node" and mode.gpus:
            for bit, room in able:
                if room >= mode.gpus:
                    yield Pattern(option, bit, True, cpus, memory_gib, shared)
        else:
            mask = sum(bit for bit, _ in able)
            yield Pattern(option, mask, mode.gpus == 0, cpus, memory_gib, shared)
