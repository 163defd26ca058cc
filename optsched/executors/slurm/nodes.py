"""Slurm's nodes, from its JSON: that of 22.05 (single words and plain numbers) and of later
releases (lists, and numbers with `set` and `infinite` beside them)."""

import json
import re
from collections.abc import Mapping
from typing import Any

from ...frozen import record
from ...model import Node
from ..base import NodeStatus
from .client import SlurmClient, understood

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


@record
class SlurmNode:
    """A node, where its peers reach it, and whether it is unusable only because it has not answered
    Slurm of late."""

    status: NodeStatus
    address: str
    silent: bool


def ask_nodes(
    client: SlurmClient, declared: Mapping[str, Node], partition: str | None
) -> list[SlurmNode]:
    """Return nodes of `partition`, or all; of those `declared` only these, if there are any. Raises
    NoAnswerError, RefusedError."""
    version = re.search(r"(\d+)\.(\d+)", client.ask("scontrol", "--version"))
    new = version is not None and (int(version[1]), int(version[2])) >= NODES_IN_SCONTROL
    words = ("scontrol", "show", "nodes", "--json") if new else ("sinfo", "--json")
    return read_nodes(client.ask(*words), declared, partition)


@understood("nodes")
def read_nodes(text: str, declared: Mapping[str, Node], partition: str | None) -> list[SlurmNode]:
    """Return nodes in the JSON of `sinfo` (22.05) or `scontrol show nodes` (later), in Slurm's
    order.

    Of `declared` nodes what Slurm does not know is taken: rack, labels and memory of GPUs. Raises
    NoAnswerError where the text is something else.
    """
    return [
        _node(entry, declared.get(entry["name"]))
        for entry in json.loads(text)["nodes"]
        if (partition is None or partition in entry["partitions"])
        and (not declared or entry["name"] in declared)
    ]


def number(value: Any) -> int | None:
    """Return a number of Slurm's JSON; None where it is not set or infinite."""
    if isinstance(value, dict):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else int(value)


def words(value: Any) -> list[str]:
    """Return one word, or several, in capitals."""
    return [str(word).upper() for word in (value if isinstance(value, list) else [value])]


def gpus(gres: str) -> list[tuple[str | None, int]]:
    """Return types and counts of GPUs in a text as "gpu:a100:4(S:0-1),shard:8"."""
    return [
        (match[1], int(match[2]))
        for match in map(GPU.fullmatch, re.split(r",(?![^(]*\))", gres))
        if match
    ]


def _node(entry: Mapping[str, Any], declared: Node | None) -> SlurmNode:
    kinds = gpus(entry.get("gres") or "")
    gpu_type, count = kinds[0] if kinds else (None, 0)
    memory_mib = number(entry.get("real_memory"))
    known = declared or Node(name=entry["name"])
    node = Node(
        name=entry["name"],
        gpu_type=gpu_type,
        gpus=count,
        gpu_memory_gib=known.gpu_memory_gib,
        cpus=number(entry.get("effective_cpus", entry.get("cpus"))),
        memory_gib=None if memory_mib is None else memory_mib / 1024,
        rack=known.rack,
        labels=known.labels,
    )
    states = words(entry["state"]) + words(entry.get("state_flags") or [])
    bad = [state for state in states[::-1] if state in UNUSABLE]
    said = str(entry.get("reason") or "")
    reason = UNUSABLE[bad[0]] + (f": {said}" if said else "") if bad else None
    if not bad and len(kinds) > 1:
        reason = "has GPUs of several types, which one node cannot have here"
    status = NodeStatus(node=node, usable=reason is None, reason=reason)
    silent = bool(bad) and set(bad) <= SILENT
    return SlurmNode(status, str(entry.get("address") or entry["name"]), silent)
