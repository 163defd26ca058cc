"""Where a model counts capacity: each node by itself, or several as one bin where that loses
nothing."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Instance
from optsched.model.job import Job, Mode
from optsched.physics import locality_rate
from optsched.physics.capacity import kind
from optsched.physics.catalogue import catalogue_of

Key = Hashable


@dataclass(frozen=True, slots=True)
class Bin:
    """Nodes whose capacities are added up. None for cores or memory means that these never bind."""

    name: str
    nodes: tuple[str, ...]
    gpus: int
    cpus: int | None
    memory_gib: float | None

    def as_node(self) -> Node:
        """One node with all that they have."""
        return Node(name=self.name, gpus=self.gpus, cpus=self.cpus, memory_gib=self.memory_gib)


def partitions(instance: Instance) -> list[tuple[tuple[Bin, ...], bool]]:
    """Ways to part the nodes into bins, from fine to coarse, each with whether a model over them is
    exact.

    The first merges only nodes whose GPUs are interchangeable for every job: any gang may be split
    over them at no loss, and neither cores nor memory can bind while GPUs are left. As work never
    moves between GPUs while it runs, such jobs fit one by one if they fit in total. The others
    merge nodes of a kind, then all of one GPU type: a relaxation, whose bound holds and whose plans
    are made to fit afterwards.
    """
    cluster = instance.cluster
    merged: dict[Key, list[Node]] = {}
    for node in cluster.nodes:
        key = (kind(node), node.gpu_price_per_h)
        merged.setdefault(key, []).append(node)
    fine: list[Bin] = []
    for group in merged.values():
        if len(group) > 1 and _interchangeable(instance, group):
            fine.append(_merge(group))
        else:
            fine.extend(_merge([node]) for node in group)
    return [
        (tuple(fine), True),
        (_by(cluster, lambda n: replace(n, name="")), False),
        (_by(cluster, lambda n: (kind(n), n.gpu_price_per_h)), False),
        (_by(cluster, lambda n: (n.gpu_type, n.gpus > 0)), False),
    ]


def _by(cluster: Cluster, key: Callable[[Node], Key]) -> tuple[Bin, ...]:
    groups: dict[Key, list[Node]] = {}
    for node in cluster.nodes:
        groups.setdefault(key(node), []).append(node)
    return tuple(_merge(group) for group in groups.values())


def _merge(nodes: list[Node]) -> Bin:
    """One bin of these nodes; cores and memory are counted only where every node has a number."""
    cores = [node.cpus for node in nodes if node.cpus is not None]
    memory = [node.memory_gib for node in nodes if node.memory_gib is not None]
    return Bin(
        name=nodes[0].name if len(nodes) == 1 else f"{nodes[0].name}..{nodes[-1].name}",
        nodes=tuple(node.name for node in nodes),
        gpus=sum(node.gpus for node in nodes),
        cpus=sum(cores) if len(cores) == len(nodes) else None,
        memory_gib=sum(memory) if len(memory) == len(nodes) else None,
    )


def _interchangeable(instance: Instance, group: list[Node]) -> bool:
    gpu_type = group[0].gpu_type
    if not group[0].gpus:
        return False
    names = {node.name for node in group}
    for job in instance.jobs:
        modes = [option.mode for option in catalogue_of(instance).options(job)]
        entry = instance.running_job.get(job.id)
        if entry is not None and any(slot.node in names for slot in entry.placement):
            modes.append(entry.mode)
        for mode in modes:
            if mode.gpus == 0:
                if not _unlimited(group) and (mode.cpus or job.memory_gib):
                    return False
            elif mode.gpu_type in (None, gpu_type) and not _never_binds(job, mode, group):
                return False
    return True


def _unlimited(group: list[Node]) -> bool:
    return all(node.cpus is None and node.memory_gib is None for node in group)


def _never_binds(job: Job, mode: Mode, group: list[Node]) -> bool:
    if (
        mode.gpus > 1
        and len({locality_rate(job.profile, span) for span in ("node", "rack", "cluster")}) > 1
    ):
        return False
    return all(
        (node.cpus is None or mode.cpus_per_gpu * node.gpus <= node.cpus)
        and (
            node.memory_gib is None or job.profile.memory_gib_per_gpu * node.gpus <= node.memory_gib
        )
        for node in group
    )
