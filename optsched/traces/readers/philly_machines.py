"""The machines of Microsoft's Philly cluster: its published list, or those its job log names.

The list tells of each machine the number of its GPUs and the memory of each of them, 12 or 24 GB,
and no type. The types here are those with public measurements that come nearest:

- 12 GB, two a machine: `k80`. A K80 board has two GPUs of 12 GB, and Azure rented K80s in just such
pairs. - 24 GB, eight a machine: `p100`. No GPU of 2017 with public measurements has 24 GB; the
Tesla P40 has, which
  Microsoft ran in those years, and is of the P100's generation and near its speed in single
  precision. The memory stays 24 GiB.

The list contradicts the job log, which has 8 GPUs in use on machines listed with two
(github.com/msr-fiddle/philly-traces, issue 8). The list revised from the GPU utilization log, which
tells no memory, is read too; without a memory the type is `p100`.

Racks are not published: nodes have none.
"""

from collections.abc import Mapping
from pathlib import Path

from ...errors import InputError
from ...model import Cluster, Node
from ..imported import found_beside
from ..tables.table import Table

NAMES = ("cluster_machine_list", "cluster_machine_list.csv")
SMALL, LARGE = "k80", "p100"
SMALL_GIB, LARGE_GIB = 12.0, 24.0
LISTED = (SMALL, 321, 2, SMALL_GIB), (LARGE, 231, 8, LARGE_GIB)
"""Machines of each kind in the published list, with their GPUs: 642 and 1,848, 2,490 in all."""
COLUMNS, MEMORY = ("machineId", "number of GPUs"), "single GPU mem"


def beside(path: Path) -> Path | None:
    """Return the machine list in the folder of a job log, if it is there."""
    return next(filter(None, (found_beside(name, path.parent) for name in NAMES)), None)


def listed(path: Path) -> Cluster:
    """Return the cluster of a machine list; machines without GPUs are left out. Raises
    InputError."""
    nodes: dict[str, Node] = {}
    for row in Table(path, COLUMNS, [MEMORY]).rows():
        name, gpus = row.named(COLUMNS[0]), row.whole(COLUMNS[1])
        gib = None
        if row[MEMORY]:
            gib = row.number(MEMORY, "GB", least=SMALL_GIB / 1000, suffix="GB")
        if name in nodes:
            row.refuse("each machine once", COLUMNS[0])
        if gpus:
            nodes[name] = _node(name, gpus, gib)
    return _cluster(nodes, str(path))


def named(gpus: Mapping[str, set[str]], source: str) -> Cluster:
    """Return the cluster of the machines in a job log, each with the GPUs that the log names
    there."""
    return _cluster(
        {name: _node(name, len(gpus[name]), None) for name in sorted(gpus, key=_by_number)}, source
    )


def published() -> Cluster:
    """Return machines as many as the published list has of each kind, 552 with 2,490 GPUs."""
    nodes = [
        _node(f"{kind}-{i}", gpus, gib) for kind, count, gpus, gib in LISTED for i in range(count)
    ]
    return Cluster(nodes=tuple(nodes), reference_gpu=LARGE)


def _node(name: str, gpus: int, gib: float | None) -> Node:
    small = gib is not None and gib < (SMALL_GIB + LARGE_GIB) / 2
    return Node(name=name, gpu_type=SMALL if small else LARGE, gpus=gpus, gpu_memory_gib=gib)


def _cluster(nodes: Mapping[str, Node], source: str) -> Cluster:
    if not nodes:
        raise InputError(f"{source}: names no machine with GPUs; expected lines as m31,8, 24GB")
    types = [node.gpu_type for node in nodes.values()]
    return Cluster(nodes=tuple(nodes.values()), reference_gpu=LARGE if LARGE in types else SMALL)


def _by_number(name: str) -> tuple[int, str]:
    """Return a key that puts m9 before m10."""
    digits = name.lstrip("m")
    return (int(digits), name) if digits.isdecimal() else (-1, name)
