"""An independent check of a packing: plain loops over the instance's own jobs and nodes, nothing of
the engine.

Every arrival is replayed. A job that was placed must be on a node of a type it may use, with enough
cores, memory and GPUs left; one that failed must have fitted nowhere at that moment.
"""

from collections.abc import Sequence
from fractions import Fraction

from ..model import Instance, Job, Node

Placement = tuple[str, str | None, tuple[int, ...]]
"""A job's id, its node (None where it failed), and the GPUs of the node that it sits on."""


def violations(instance: Instance, placements: Sequence[Placement]) -> list[str]:
    """Return what is wrong with a packing, in the order of arrival; empty where nothing is."""
    jobs = {job.id: job for job in instance.jobs}
    nodes = {node.name: node for node in instance.cluster.nodes}
    left = {name: [Fraction(1)] * node.gpus for name, node in nodes.items()}
    cpus = {name: node.cpus for name, node in nodes.items()}
    memory = {name: _kib(node.memory_gib) for name, node in nodes.items()}
    wrong = []
    refused: dict[str, set[str]] = {}
    for position, (id_, where, gpus) in enumerate(placements):
        who = f"arrival {position + 1}, job {id_}"
        if id_ not in jobs:
            wrong.append(f"{who}: is not a job of the instance")
            continue
        job = jobs[id_]
        if where is None:
            known = refused.setdefault(_ask(job), set())
            for name, node in nodes.items():
                if name in known:
                    continue
                if _fits(job, node, left[name], cpus[name], memory[name]):
                    wrong.append(f"{who}: failed, but fitted on {name}")
                    break
                known.add(name)  # nothing ever leaves: what did not fit once never does
            continue
        if where not in nodes:
            wrong.append(f"{who}: is on {where}, which is not a node")
            continue
        fault = _fault(job, nodes[where], left[where], cpus[where], memory[where], gpus)
        if fault:
            wrong.append(f"{who}, on {where}: {fault}")
            continue
        part = _part(job)
        for gpu in gpus:
            left[where][gpu] -= part
        own_cpus, own_memory = _demand(job)
        if cpus[where] is not None:
            cpus[where] -= own_cpus  # type: ignore[operator]
        if memory[where] is not None:
            memory[where] -= own_memory  # type: ignore[operator]
    return wrong


def _ask(job: Job) -> str:
    return repr(
        (
            _demand(job),
            job.gpus,
            _part(job),
            sorted(job.profile.rate.items()),
            job.profile.gpu_memory_gib,
        )
    )


def _part(job: Job) -> Fraction:
    """Return the part of each of its GPUs that a job takes."""
    sharing = job.profile.sharing
    if job.gpus == 1 and sharing is not None and sharing.duty is not None:
        return min(Fraction(1), Fraction(round(sharing.duty * 1_000_000), 1_000_000))
    return Fraction(1)


def _demand(job: Job) -> tuple[int, int]:
    """Return the cores and KiB."""
    if job.gpus == 0:
        return job.cpus, _kib(job.memory_gib) or 0
    assert isinstance(job.gpus, int)
    table = job.profile.cpus_per_gpu
    fastest = [count for count in table if table[count] == max(table.values())]
    return min(fastest, default=0) * job.gpus, _kib(job.profile.memory_gib_per_gpu * job.gpus) or 0


def _kib(gib: float | None) -> int | None:
    return None if gib is None else round(gib * 1024 * 1024)


def _may_use(job: Job, node: Node) -> bool:
    if job.gpus == 0:
        return True
    rate = job.profile.rate
    if any(value > 0 for value in rate.values()) and not rate.get(node.gpu_type or "", 0) > 0:
        return False
    return node.gpu_memory_gib is None or job.profile.gpu_memory_gib <= node.gpu_memory_gib


def _fits(job: Job, node: Node, left: list[Fraction], cpus: int | None, memory: int | None) -> bool:
    own_cpus, own_memory = _demand(job)
    if not _may_use(job, node) or (cpus is not None and own_cpus > cpus):
        return False
    if memory is not None and own_memory > memory:
        return False
    part = _part(job)
    assert isinstance(job.gpus, int)
    return sum(rest >= part for rest in left) >= job.gpus


def _fault(
    job: Job,
    node: Node,
    left: list[Fraction],
    cpus: int | None,
    memory: int | None,
    gpus: tuple[int, ...],
) -> str:
    """Return why a job cannot sit on these GPUs of a node now; empty where it can."""
    own_cpus, own_memory = _demand(job)
    if not _may_use(job, node):
        return f"may not use GPUs of type {node.gpu_type}"
    if cpus is not None and own_cpus > cpus:
        return f"takes {own_cpus} cores, {cpus} are left"
    if memory is not None and own_memory > memory:
        return f"takes {own_memory} KiB of memory, {memory} are left"
    if len(gpus) != job.gpus or len(set(gpus)) != len(gpus):
        return f"sits on {len(set(gpus))} GPUs, asks for {job.gpus}"
    part = _part(job)
    for gpu in gpus:
        if not 0 <= gpu < node.gpus:
            return f"sits on GPU {gpu}, the node has {node.gpus}"
        if left[gpu] < part:
            return f"takes {float(part):g} of GPU {gpu}, {float(left[gpu]):g} is left"
    return ""
