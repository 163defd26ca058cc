"""What an option takes of the cluster: derived once for each demand, shared by all jobs that ask
for the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..model.cluster import Cluster, Node
from ..model.job import Job
from ..physics import capacity
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
        """Cores that a node has for each of its GPUs."""
        if self.node.cpus is None:
            return np.inf
        return self.node.cpus / self.node.gpus if self.node.gpus else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """An option on certain nodes: `classes` is a mask of node classes, of which one node holds it
    all if `together`, else any of their nodes hold parts of it. `quota` is the tenant whose GPU
    quota counts, if any.
    """

    option: Option
    classes: int
    together: bool
    cpus: int
    memory_gib: float
    quota: str | None

    @property
    def gpus(self) -> int:
        return self.option.mode.gpus

    @property
    def slot(self) -> int:
        """GPUs that must lie on one node; 1 where any will do."""
        return self.gpus if self.together else min(self.gpus, 1)


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
    key: tuple[tuple[int, bool, int, int, float], ...]
    masks: list[int]


def columns(demands: Sequence[tuple[Pattern, ...]], deadline: Deadline) -> Columns:
    """Return the patterns of demands, one after the other, as columns."""
    number: dict[int, int] = {}
    key: list[tuple[int, bool, int, int, float]] = []
    for own in demands:
        deadline.check()
        for one in own:
            mask_number = number.setdefault(one.classes, len(number))
            key.append((mask_number, one.together, one.gpus, one.cpus, one.memory_gib))
    patterns = [pattern for own in demands for pattern in own]
    mask, together, gpus, cpus, memory_gib = zip(*key, strict=True) if key else ((),) * 5
    return Columns(
        gpus=np.array(gpus, dtype=np.int64),
        cpus=np.array(cpus, dtype=np.int64),
        memory_gib=np.array(memory_gib, dtype=float),
        slot=np.array([one.slot for one in patterns], dtype=np.int64),
        together=np.array(together, dtype=bool),
        in_rack=np.array([one.option.spread == "rack" for one in patterns], dtype=bool),
        rate=np.array([one.option.rate for one in patterns], dtype=float),
        mask=np.array(mask, dtype=np.int64),
        key=tuple(key),
        masks=list(number),
    )


def without_fewer_cores(own: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    """Return the patterns of one demand less those that differ from a faster one only in taking
    other cores: where cores cannot run short, they are never better."""
    best: dict[object, int] = {}
    for i, pattern in enumerate(own):
        mode = pattern.option.mode
        key = (
            replace(mode, duration_s=None, cpus_per_gpu=0, cpus=0 if mode.gpus else mode.cpus),
            pattern.option.spread,
            pattern.classes,
            pattern.together,
            pattern.memory_gib,
        )
        if key not in best or pattern.option.rate > own[best[key]].option.rate:
            best[key] = i
    return tuple(own[i] for i in sorted(best.values()))


def node_classes(catalogue: Catalogue) -> tuple[tuple[NodeClass, ...], list[int]]:
    """The node classes of a cluster in order of first appearance, and for each node the number of
    its own."""
    return catalogue.once("node classes", lambda: _node_classes(catalogue.cluster))


def _node_classes(cluster: Cluster) -> tuple[tuple[NodeClass, ...], list[int]]:
    alike: dict[object, list[int]] = {}
    for i, node in enumerate(cluster.nodes):
        key = (capacity.alike(node), node.gpu_price_per_h)
        alike.setdefault(key, []).append(i)
    firsts = [cluster.nodes[members[0]] for members in alike.values()]
    classes = tuple(
        NodeClass(number, _name(node, firsts), node, tuple(members))
        for number, (node, members) in enumerate(zip(firsts, alike.values(), strict=True))
    )
    class_of = [0] * len(cluster.nodes)
    for one in classes:
        for i in one.nodes:
            class_of[i] = one.number
    return classes, class_of


def _name(node: Node, others: list[Node]) -> str:
    """GPU type and size, and what sets the class apart from others of the same type and size."""
    name = f"{node.gpu_type or 'GPU'} x {node.gpus}" if node.gpus else "nodes without GPUs"
    twins = [
        other for other in others if (other.gpu_type, other.gpus) == (node.gpu_type, node.gpus)
    ]
    apart = [
        text
        for values, text in (
            ({twin.gpu_memory_gib for twin in twins}, f"{node.gpu_memory_gib} GiB GPUs"),
            ({twin.cpus for twin in twins}, f"{node.cpus} cores"),
            ({twin.memory_gib for twin in twins}, f"{node.memory_gib} GiB"),
            ({twin.gpu_price_per_h for twin in twins}, f"price {node.gpu_price_per_h:g}"),
        )
        if len(values) > 1
    ]
    return f"{name} ({', '.join(apart)})" if apart else name


def patterns(catalogue: Catalogue, caps: Mapping[str, int], job: Job) -> tuple[Pattern, ...]:
    """Every way to run `job` on the empty cluster within its tenant's cap; empty where it can never
    run. `caps` are `cluster.gpu_caps`."""
    every = catalogue.options(job)
    quota = job.tenant if job.tenant in caps else None
    cap = caps[quota] if quota is not None else None
    key = "patterns", demands(job), quota, cap
    return catalogue.once(key, lambda: _patterns(catalogue, job, every, quota, cap))


def _patterns(
    catalogue: Catalogue, job: Job, every: tuple[Option, ...], quota: str | None, cap: int | None
) -> tuple[Pattern, ...]:
    cluster, classes = catalogue.cluster, node_classes(catalogue)[0]
    found = []
    for option in every:
        mode = option.mode
        if (
            (cap is not None and mode.gpus > cap)
            or (
                mode.resources
                and any(
                    amount > cluster.resources.get(name, 0.0)
                    for name, amount in mode.resources.items()
                )
            )
            or (
                mode.budgets
                and any(
                    amount > cluster.budgets.get(name, 0.0) for name, amount in mode.budgets.items()
                )
            )
        ):
            continue
        cpus = mode.cpus_per_gpu * mode.gpus if mode.gpus else mode.cpus
        memory_gib = job.profile.memory_gib_per_gpu * mode.gpus if mode.gpus else job.memory_gib
        if not option.needs_node:
            found.append(Pattern(option, 0, False, 0, 0.0, quota))
        elif option.spread == "node" and mode.gpus:
            found.extend(
                Pattern(option, one.bit, True, cpus, memory_gib, quota)
                for one in classes
                if one.node.gpu_type == mode.gpu_type and room_on(one.node, job, mode) >= mode.gpus
            )
        else:
            mask = sum(
                one.bit
                for one in classes
                if (not mode.gpus or one.node.gpu_type == mode.gpu_type)
                and room_on(one.node, job, mode)
            )
            found.append(Pattern(option, mask, mode.gpus == 0, cpus, memory_gib, quota))
    return tuple(found)
