"""From an order to a Slurm job: what is written down before, and the words and the script that
sbatch gets."""

import hashlib
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...model import Node, Slot
from ..attempts.folder import AttemptFolder
from ..base import Entry, Order, Record
from ..orders import check, check_places, everybodys_environment, recorded, recorded_node
from .nodes import SlurmNode
from .others import MIB_PER_GIB

AGENT = str(Path(__file__).with_name("agent.py"))
TOGETHER_S = 120.0
"""So long Slurm may take to start the last job of a gang after the first."""


def specification(order: Order, known: Mapping[str, SlurmNode], folder: AttemptFolder) -> Record:
    """Return the record of an attempt to be started. Raises RefusedError."""
    check(order)
    check_places(order, {name: node.status for name, node in known.items()}, {})
    environment = everybodys_environment(order, folder.progress_path)
    if len(order.placement) > 1:
        environment["MASTER_ADDR"] = known[order.placement[0].node].address
    places = [(slot, known[slot.node].status.node) for slot in order.placement]
    counts = list(dict.fromkeys(slot.gpus for slot in order.placement))
    nodes = [
        _node(order, rank, slot, counts.index(slot.gpus), node)
        for rank, (slot, node) in enumerate(places)
    ]
    return {
        **recorded(order),
        "environment": environment,
        "start_timeout_s": TOGETHER_S,
        "nodes": nodes,
    }


def _node(order: Order, rank: int, slot: Slot, part: int, node: Node) -> Record:
    memory_gib = order.memory_gib[rank] if order.memory_gib else 0
    return {
        **recorded_node(order, rank),
        "part": part,
        "cpus": _share(slot.cpus, slot, node, node.cpus),
        "memory_mib": _share(math.ceil(memory_gib * MIB_PER_GIB), slot, node, _mib(node)),
    }


def _mib(node: Node) -> int | None:
    return None if node.memory_gib is None else int(node.memory_gib * MIB_PER_GIB)


def _share(asked: int, slot: Slot, node: Node, there: int | None) -> int:
    """Return what is asked for; where that is nothing, as much of what is there as of its GPUs, for
    Slurm would else give it one core and all of the memory."""
    if asked or there is None:
        return max(1, asked)
    part = slot.gpus / node.gpus if slot.gpus else max(1, slot.cpus) / (node.cpus or 1)
    return max(1, int(there * part))


def parts(nodes: Sequence[Record]) -> list[list[Record]]:
    """Return nodes by job: Slurm gives a job the same number of GPUs on each of its nodes, so that
    a gang which has different numbers is several jobs. Their agents wait for each other."""
    numbers = sorted({node.get("part", 0) for node in nodes})
    return [[node for node in nodes if node.get("part", 0) == part] for part in numbers]


def words(spec: Entry, folder: AttemptFolder, part: int, more: Sequence[str]) -> list[str]:
    """Return what sbatch is called with for a part of it. `more` goes before it."""
    nodes = parts(spec["nodes"])[part]
    asked = [
        *more,
        "--parsable",
        "--no-requeue",
        f"--comment={spec['key']}",
        f"--job-name={job_name(folder, part)}",
        "--dependency=singleton",
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={_cpus(nodes)}",
        f"--mem={max(node['memory_mib'] for node in nodes)}M",
        f"--nodelist={','.join(node['name'] for node in nodes)}",
        f"--chdir={folder.path}",
        f"--output={folder.path / nodes[0]['name'] / 'slurm.out'}",
        "--open-mode=append",
        "--input=/dev/null",
        "--export=ALL",
        "--propagate=NONE",
    ]
    if nodes[0]["gpus"]:
        asked.append(f"--gres=gpu:{nodes[0]['gpus']}")
    if spec["user"] is not None:
        asked += [f"--uid={spec['user']['uid']}", f"--gid={spec['user']['gid']}"]
    return asked


def _cpus(nodes: Sequence[Entry]) -> int:
    return max(int(node["cpus"]) for node in nodes)


def job_name(folder: AttemptFolder, part: int) -> str:
    """Return the name of the job of a part: no two of one name and user run at once
    (`--dependency=singleton`), so that of a job which was submitted twice because an answer was
    lost only one can ever run."""
    place = hashlib.sha256(str(folder.path).encode()).hexdigest()[:8]
    return f"{folder.key.job}.{folder.key.number}-{place}{f'-{part}' if part else ''}"


def script(spec: Entry, folder: AttemptFolder, part: int, python: str | None) -> str:
    """Return what the job of a part runs: an agent on each node. A single one is the batch script
    itself, which can be signalled alone."""
    agent = shlex.join([python or sys.executable, "-S", "-E", AGENT, str(folder.path)])
    nodes = parts(spec["nodes"])[part]
    if len(nodes) == 1:
        return f"#!/bin/sh\nexec {agent}\n"
    return (
        "#!/bin/sh\ntrap '' USR2\n"
        f"srun --nodes={len(nodes)} --ntasks={len(nodes)} --ntasks-per-node=1 "
        f"--cpus-per-task={_cpus(nodes)} --input=none --mpi=none --kill-on-bad-exit=0 --wait=0 "
        f"{agent}\n"
    )
