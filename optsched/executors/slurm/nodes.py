"""Slurm's nodes, from its JSON: that of 22.05 (single words and plain numbers) and of later
releases (lists, and numbers with `set` and `infinite` beside them)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.cluster import Node
from ..base import NoAnswerError, NodeStatus
from .client import SlurmClient

NODES_IN_SCONTROL = (23, 2)
"""The release from which `scontrol` prints JSON, and `sinfo --json` no longer prints nodes."""
UNUSABLE = {
    "DOWN": "is down",
    "DRAIN": "is drained",
    "DRAINING": "is drained",
    "DRAINED": "is drained",
    "FAIL": "is failing",
    "FAILING": "is failing",
    "MAINT": "is under maintenance",
    "MAINTENANCE": "is under maintenance",
    "NOT_RESPONDING": "does not respond",
    "NO_RESPOND": "does not respond",
    "INVALID": "is not as configured",
    "INVAL": "is not as configured",
    "INVALID_REG": "is not as configured",
    "ERROR": "is in error",
    "REBOOT_REQUESTED": "is to be restarted",
    "REBOOT_ISSUED": "is being restarted",
    "UNKNOWN": "is in no known state",
    "FUTURE": "does not exist yet",
    "BLOCKED": "is blocked",
    "POWERING_DOWN": "is being switched off",
}
"""States in which a node takes no jobs, and how that is said."""
SILENT = {"NOT_RESPONDING", "NO_RESPOND", "UNKNOWN"}
GPU = re.compile(r"gpu(?::([^:(,]+))??:(\d+)(?:\([^)]*\))?")


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node, where its peers reach it, and whether it is unusable only because it has not answered
    Slurm of late."""

    status: NodeStatus
    address: str
    silent: bool


def ask_nodes(
    client: SlurmClient, declared: Mapping[str, Node], partition: str | None
) -> list[SlurmNode]:
    """Nodes of `partition`, or all; of those `declared` only these, if there are any. Raises
    NoAnswerError, RefusedError."""
    version = re.search(r"(\d+)\.(\d+)", client.ask("scontrol", "--version"))
    new = version is not None and (int(version[1]), int(version[2])) >= NODES_IN_SCONTROL
    text = (
        client.ask("scontrol", "show", "nodes", "--json") if new else client.ask("sinfo", "--json")
    )
    return read_nodes(text, declared, partition)


def read_nodes(text: str, declared: Mapping[str, Node], partition: str | None) -> list[SlurmNode]:
    """Nodes in the JSON of `sinfo` (22.05) or `scontrol show nodes` (later), in Slurm's order.

    Of `declared` nodes what Slurm does not know is taken: rack, labels and memory of GPUs. Raises
    NoAnswerError where the text is something else.
    """
    try:
        entries = json.loads(text)["nodes"]
        return [
            _node(entry, declared.get(entry["name"]))
            for entry in entries
            if (partition is None or partition in entry["partitions"])
            and (not declared or entry["name"] in declared)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise NoAnswerError(f"Slurm's JSON of its nodes is not understood: {error!r}") from None


def number(value: Any) -> int | None:
    """A number of Slurm's JSON; None where it is not set or infinite."""
    if isinstance(value, dict):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else int(value)


def words(value: Any) -> list[str]:
    """One word, or several, in capitals."""
    return [str(one).upper() for one in (value if isinstance(value, list) else [value])]


def gpus(gres: str) -> list[tuple[str | None, int]]:
    """Types and counts of GPUs in a text as "gpu:a100:4(S:0-1),shard:8"."""
    return [
        (found[1], int(found[2]))
        for found in map(GPU.fullmatch, re.split(r",(?![^(]*\))", gres))
        if found
    ]


def _node(entry: Mapping[str, Any], declared: Node | None) -> SlurmNode:
    kinds = gpus(entry.get("gres") or "")
    memory_mib = number(entry.get("real_memory"))
    node = Node(
        name=entry["name"],
        gpu_type=kinds[0][0] if kinds else None,
        gpus=kinds[0][1] if kinds else 0,
        gpu_memory_gib=None if declared is None else declared.gpu_memory_gib,
        cpus=number(entry.get("effective_cpus", entry.get("cpus"))),
        memory_gib=None if memory_mib is None else memory_mib / 1024,
        rack=None if declared is None else declared.rack,
        labels=() if declared is None else declared.labels,
    )
    states = words(entry["state"]) + words(entry.get("state_flags") or [])
    found = [state for state in states[::-1] if state in UNUSABLE]
    bad = UNUSABLE[found[0]] if found else None
    if bad is not None and (said := str(entry.get("reason") or "")):
        bad = f"{bad}: {said}"
    if bad is None and len(kinds) > 1:
        bad = "has GPUs of several types, which one node cannot have here"
    status = NodeStatus(node=node, usable=bad is None, reason=bad)
    return SlurmNode(
        status, str(entry.get("address") or entry["name"]), bool(found) and set(found) <= SILENT
    )
