"""What an option takes of the cluster: derived once for each demand, shared by all jobs that ask
for the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..model.cluster import Cluster, Node
from ..model.job import Job
from ..physics import capacity
from ..physics.catalogue import Catalogue
from ..physics.modes import Option, demands, room_on


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
    pattern takes and where. `hungry`: some pattern takes more cores for each GPU than a node that
    it may use has for each of its own.
    """

    gpus: NDArray[np.int64]
    cpus: NDArray[np.int64]
    memory_gib: NDArray[np.float64]
    slot: NDArray[np.int64]
    together: NDArray[np.bool_]
    in_rack: NDArray[np.bool_]
    rate: NDArray[np.float64]
    mask: NDArray[np.int64]
    key: tuple[tuple[int, bool, int, int, float], ...]
    hungry: bool
    masks: list[int]


def columns(cluster: Cluster, own: tuple[Pattern, ...]) -> Columns:
    """The patterns of one demand as columns, made once."""
    catalogue = Catalogue.of(cluster)
    known: dict[int, tuple[tuple[Pattern, ...], Columns]] = catalogue.once("columns", dict)
    if id(own) not in known:
        known[id(own)] = own, _columns(cluster, own)  # `own` kept for its id
    return known[id(own)][1]


def _columns(cluster: Cluster, own: tuple[Pattern, ...]) -> Columns:
    number: dict[int, int] = Catalogue.of(cluster).once("class sets", dict)
    masks: list[int] = Catalogue.of(cluster).once("class set list", list)
    for one in own:
        if number.setdefault(one.classes, len(masks)) == len(masks):
            masks.append(one.classes)
    least: dict[int, float] = Catalogue.of(cluster).once("least cores by set", dict)
    for one in own:
        if one.classes not in least:
            least[one.classes] = _least_cores(cluster, one.classes)
    return Columns(
        gpus=np.array([one.gpus for one in own], dtype=np.int64),
        cpus=np.array([one.cpus for one in own], dtype=np.int64),
        memory_gib=np.array([one.memory_gib for one in own], dtype=float),
        slot=np.array([one.slot for one in own], dtype=np.int64),
        together=np.array([one.together for one in own], dtype=bool),
        in_rack=np.array([one.option.spread == "rack" for one in own], dtype=bool),
        rate=np.array([one.option.rate for one in own], dtype=float),
        mask=np.array([number[one.classes] for one in own], dtype=np.int64),
        key=tuple(
            (number[one.classes], one.together, one.gpus, one.cpus, one.memory_gib) for one in own
        ),
        hungry=any(one.cpus > least[one.classes] * one.gpus + 1e-9 for one in own),
        masks=masks,
    )


def _least_cores(cluster: Cluster, mask: int) -> float:
    """The fewest cores that a node of a set of classes has for each of its GPUs."""
    return min(
        (
            np.inf
            if one.node.cpus is None
            else one.node.cpus / one.node.gpus
            if one.node.gpus
            else 0.0
            for one in node_classes(cluster)[0]
            if one.bit & mask
        ),
        default=np.inf,
    )


def joined(cluster: Cluster, parts: Sequence[Columns]) -> Columns:
    """The columns of several demands one after the other."""
    parts = parts or [_columns(cluster, ())]
    return Columns(
        gpus=np.concatenate([one.gpus for one in parts]),
        cpus=np.concatenate([one.cpus for one in parts]),
        memory_gib=np.concatenate([one.memory_gib for one in parts]),
        slot=np.concatenate([one.slot for one in parts]),
        together=np.concatenate([one.together for one in parts]),
        in_rack=np.concatenate([one.in_rack for one in parts]),
        rate=np.concatenate([one.rate for one in parts]),
        mask=np.concatenate([one.mask for one in parts]),
        key=tuple(key for one in parts for key in one.key),
        hungry=any(one.hungry for one in parts),
        masks=parts[0].masks,
    )


def without_fewer_cores(cluster: Cluster, own: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    """The patterns of one demand less those that differ from a faster one only in taking other
    cores: where cores cannot run short, they are never better. Made once."""
    known: dict[int, tuple[tuple[Pattern, ...], tuple[Pattern, ...]]] = Catalogue.of(cluster).once(
        "fastest cores", dict
    )
    if id(own) not in known:
        best: dict[object, Pattern] = {}
        for one in own:
            mode = one.option.mode
            key = (
                mode.gpu_type,
                mode.gpus,
                mode.cpus if not mode.gpus else 0,
                mode.clock_mhz,
                one.option.spread,
                one.classes,
                one.together,
                one.memory_gib,
                tuple(sorted(mode.resources.items())),
                tuple(sorted(mode.budgets.items())),
            )
            if key not in best or one.option.rate > best[key].option.rate:
                best[key] = one
        kept = {id(one) for one in best.values()}
        known[id(own)] = own, tuple(one for one in own if id(one) in kept)
    return known[id(own)][1]


def node_classes(cluster: Cluster) -> tuple[tuple[NodeClass, ...], list[int]]:
    """The node classes of a cluster in order of first appearance, and for each node the number of
    its own."""
    return Catalogue.of(cluster).once("node classes", lambda: _node_classes(cluster))


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


def patterns(cluster: Cluster, caps: Mapping[str, int], job: Job) -> tuple[Pattern, ...]:
    """Every way to run `job` on the empty cluster within its tenant's cap; empty where it can never
    run. `caps` are `cluster.gpu_caps`."""
    catalogue = Catalogue.of(cluster)
    every = catalogue.options(job)
    quota = job.tenant if job.tenant in caps else None
    cap = caps[quota] if quota is not None else None
    key = "patterns", demands(job), quota, cap
    return catalogue.once(key, lambda: _patterns(cluster, job, every, quota, cap))


def _patterns(
    cluster: Cluster, job: Job, every: tuple[Option, ...], quota: str | None, cap: int | None
) -> tuple[Pattern, ...]:
    classes, _ = node_classes(cluster)
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
