"""What the Alibaba traces share: fractions of a GPU, names of GPU types, requests of cores and
memory."""

import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ...errors import InputError
from ...frozen import frozen
from ...model import UNMEASURED, Cluster, Job, Locality, Node, Profile, Sharing
from ..tables.table import UNKNOWN, Row

GPU_MEMORY_GIB = {
    "a10": 24.0,
    "p100": 16.0,
    "t4": 16.0,
    "v100": 16.0,
    "v100m16": 16.0,
    "v100m32": 32.0,
}
"""Memory of one GPU by type; `misc` (several old ones), `g1`, `g2` and `g3` (undisclosed) have no
limit."""
MOST_GPUS = 1_000_000
ONE_NODE = Locality(rack=0.0, cluster=0.0)
"""A container cannot be split: its GPUs make progress on one node only."""
ROUNDING = 1e-9
"""Shares of cores are sums of decimals; what exceeds a whole core by less is rounding."""


def gpu_type(text: str) -> str | None:
    """Return the name of a GPU type as nodes and profiles have it; None where there is none."""
    name = text.lower()
    return None if name in UNKNOWN or name == "cpu" else name


def cluster_of_machines(path: Path, machines: Iterator[tuple[Row, str, Node]]) -> Cluster:
    """Return the cluster of a list of machines, with the row and the column that name each. Raises
    InputError."""
    nodes: dict[str, Node] = {}
    for row, column, node in machines:
        if re.fullmatch(r"[\w.-]+", node.name) is None:
            row.refuse("a machine's name of letters, digits, '-', '_' and '.'", column)
        if node.name in nodes:
            row.refuse("each machine once", column)
        nodes[node.name] = node
    if not nodes:
        raise InputError(f"{path}: lists no machine")
    return Cluster(nodes=tuple(nodes.values()))


def machine(name: str, type_: str, gpus: int, cpus: float | None, memory_gib: float | None) -> Node:
    """Return a machine; parts of a core that nobody can be given are left out."""
    kind = gpu_type(type_) if gpus else None
    return Node(
        name=name,
        gpu_type=kind,
        gpus=gpus,
        gpu_memory_gib=GPU_MEMORY_GIB.get(kind or ""),
        cpus=None if cpus is None else int(cpus + ROUNDING),
        memory_gib=memory_gib,
    )


@frozen
class Request:
    """What a job asks for in all: whole GPUs, cores, memory.

    `fraction` is the part of each GPU that it asks for, None where that is all of it. `gpu_types`
    empty is any.
    """

    gpus: int
    cores: float = 0.0
    memory_gib: float = 0.0
    fraction: float | None = None
    gpu_types: tuple[str, ...] = ()
    one_node: bool = False

    @property
    def empty(self) -> bool:
        """Return whether it has neither a GPU nor a core."""
        return not self.gpus and self.cores <= 0


def job(
    request: Request,
    *,
    id: str,
    submit_s: float,
    duration_s: float,
    priority: int = 0,
    user: str = "",
    command: str = "",
) -> Job:
    """Return the job of a request; equal requests share one profile object."""
    return Job(
        id=id,
        submit_s=submit_s,
        duration_s=duration_s,
        priority=priority,
        user=user or None,
        command=command or None,
        gpus=request.gpus,
        cpus=0 if request.gpus else _cores(request.cores),
        memory_gib=0.0 if request.gpus else round(request.memory_gib, 6),
        profile=_profile(request),
    )


@cache
def _profile(request: Request) -> Profile:
    """Return a profile. A fraction of a GPU is the share of time for which the job keeps it busy;
    the rest may serve another job."""
    if not request.gpus:
        return UNMEASURED
    cores = _cores(request.cores / request.gpus)
    return Profile(
        rate=dict.fromkeys(request.gpu_types, 1.0),
        cpus_per_gpu={cores: 1.0} if cores else {},
        memory_gib_per_gpu=round(request.memory_gib / request.gpus, 6),
        locality=ONE_NODE if request.one_node and request.gpus > 1 else None,
        sharing=None if request.fraction is None else Sharing(duty=round(request.fraction, 6)),
    )


def _cores(cores: float) -> int:
    return math.ceil(cores - ROUNDING)
