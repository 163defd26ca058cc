"""What is packed: nodes with GPUs, cores and memory, and jobs that ask for part of a GPU, for whole
GPUs, or none."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..frozen import record
from ..model import Elastic, Instance, Job, Node

WHOLE = 1_000_000
"""A GPU in the unit in which parts of it are counted."""
KIB_PER_GIB = 1 << 20
ENDLESS = 1 << 50
"""Cores or memory of a node that does not model them."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """What a job asks for: `cpus` cores, `memory_kib`, and either `gpus` whole GPUs or, with
    `part`, so many millionths of one. `gpu_types` are those it may use, none meaning any;
    `gpu_memory_gib` is what each of its GPUs must have."""

    cpus: int
    memory_kib: int
    gpus: int
    part: int = 0
    gpu_types: tuple[str, ...] = ()
    gpu_memory_gib: float = 0.0

    @property
    def gpu_units(self) -> int:
        """Return the millionths of GPUs in all."""
        return self.part or self.gpus * WHOLE

    def allows(self, node: "Node | NodeClass") -> bool:
        """Tell whether a node's GPUs are of a type and size that the job may use."""
        if not self.gpus:
            return True
        if self.gpu_types and node.gpu_type not in self.gpu_types:
            return False
        return node.gpu_memory_gib is None or self.gpu_memory_gib <= node.gpu_memory_gib


@record
class NodeClass:
    """Nodes that are alike; cores and memory None where they are not modelled."""

    gpu_type: str | None
    gpus: int
    cpus: int | None
    memory_kib: int | None
    gpu_memory_gib: float | None

    @staticmethod
    def of(node: Node) -> "NodeClass":
        """Return the class of a node."""
        memory_kib = None if node.memory_gib is None else _kib(node.memory_gib)
        return NodeClass(node.gpu_type, node.gpus, node.cpus, memory_kib, node.gpu_memory_gib)

    def takes(self, request: Request) -> bool:
        """Tell whether an empty node of the class could run the job."""
        return (
            request.gpus <= self.gpus
            and (self.cpus is None or request.cpus <= self.cpus)
            and (self.memory_kib is None or request.memory_kib <= self.memory_kib)
            and request.allows(self)
        )


class Asks(NamedTuple):
    """What each kind of request asks for, one entry a kind; `whole` GPUs or `parts` of one."""

    cpus: Array
    memory_kib: Array
    whole: Array
    parts: Array
    units: Array


@dataclass(frozen=True)
class Problem:
    """The nodes, the kinds of requests, and the jobs as kinds. Jobs are in the order of their
    names, as are `kinds`."""

    nodes: tuple[Node, ...]
    requests: tuple[Request, ...]
    names: tuple[str, ...]
    kinds: Array

    @cached_property
    def gpu_units(self) -> int:
        """Return all GPUs, in millionths."""
        return WHOLE * sum(node.gpus for node in self.nodes)

    @cached_property
    def asks(self) -> Asks:
        """Return the requests as arrays."""
        rows = [
            (
                request.cpus,
                request.memory_kib,
                0 if request.part else request.gpus,
                request.part,
                request.gpu_units,
            )
            for request in self.requests
        ]
        return Asks(*np.array(rows, dtype=np.int64).T.copy())

    @property
    def job_units(self) -> Array:
        """Return millionths of GPUs that each job asks for."""
        units: Array = self.asks.units[self.kinds]
        return units

    @cached_property
    def shares(self) -> Array:
        """Return the share of each kind among the jobs."""
        shares: Array = np.bincount(self.kinds, minlength=len(self.requests)) / len(self.kinds)
        return shares


def problem(instance: Instance) -> Problem:
    """Return what an instance asks to be packed, its times left aside.

    Raises InputError for one without jobs or GPUs, and for jobs with several ways to run.
    """
    nodes = instance.cluster.nodes
    if not sum(node.gpus for node in nodes):
        raise InputError(f"instance {instance.name}: has no GPU to allocate; name nodes with gpus")
    jobs = sorted(instance.jobs, key=lambda job: job.id)
    asked = [request_of(job) for job in jobs]
    if not any(request.gpus for request in asked):
        raise InputError(
            f"instance {instance.name}: no job asks for a GPU; there is nothing to allocate"
        )
    requests = tuple(sorted(set(asked)))
    position = {request: i for i, request in enumerate(requests)}
    return Problem(
        nodes=nodes,
        requests=requests,
        names=tuple(job.id for job in jobs),
        kinds=np.array([position[request] for request in asked], dtype=np.int64),
    )


def request_of(job: Job) -> Request:
    """Return what a job asks for: of several core counts the smallest with the best rate. Raises
    InputError for a job that lists modes, is elastic, or asks for a part of a GPU and for GPU
    memory."""
    if job.modes:
        raise InputError(
            f"job {job.id}: lists modes; pack needs one request, gpus and duration_s without modes"
        )
    if isinstance(job.gpus, Elastic):
        raise InputError(f"job {job.id}: is elastic; pack needs one number of gpus")
    if job.resources or job.budgets:
        raise InputError(
            f"job {job.id}: uses resources or budgets of the cluster; pack knows only nodes"
        )
    if not job.gpus:
        return Request(cpus=job.cpus, memory_kib=_kib(job.memory_gib), gpus=0)
    profile = job.profile
    duty = profile.sharing.duty if profile.sharing is not None and job.gpus == 1 else None
    part = 0 if duty is None or duty >= 1 else max(1, round(duty * WHOLE))
    if part and profile.gpu_memory_gib:
        raise InputError(
            f"job {job.id}: asks for a part of a GPU and for GPU memory; pack counts parts by "
            "profile.sharing.duty only"
        )
    table = profile.cpus_per_gpu
    cores = min((count for count in table if table[count] == max(table.values())), default=0)
    return Request(
        cpus=cores * job.gpus,
        memory_kib=_kib(profile.memory_gib_per_gpu * job.gpus),
        gpus=job.gpus,
        part=part,
        gpu_types=tuple(sorted(name for name, rate in profile.rate.items() if rate > 0)),
        gpu_memory_gib=profile.gpu_memory_gib,
    )


def _kib(gib: float) -> int:
    return round(gib * KIB_PER_GIB)
