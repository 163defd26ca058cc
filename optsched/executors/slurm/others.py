"""What Slurm has given to others on our nodes: to jobs that are not ours, and to reservations."""

import json
import re
import time
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ...frozen import record
from ..base import NodeStatus
from .client import SlurmClient, understood
from .nodes import gpus, number
from .site import split_nodes

HOLDING = "RUNNING,COMPLETING,SUSPENDED,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT,RESIZING"
Amount = TypeVar("Amount", int, float)
SOON_S = 300.0
"""So long before a reservation begins its nodes take no more jobs, however short these are."""
MIB_PER_GIB = 1024


@record
class Part:
    """A part of a node. `gpus` None: nobody knows, and all may be meant."""

    gpus: int | None = 0
    cpus: int = 0
    memory_mib: int = 0

    def __add__(self, other: "Part") -> "Part":
        both = None if self.gpus is None or other.gpus is None else self.gpus + other.gpus
        return Part(both, self.cpus + other.cpus, self.memory_mib + other.memory_mib)


Parts = Mapping[str, Part]


def together(parts: Iterable[tuple[str, Part]]) -> dict[str, Part]:
    """Return sums by node."""
    sums: dict[str, Part] = {}
    for name, part in parts:
        sums[name] = sums.get(name, Part()) + part
    return sums


@record
class Reservation:
    """Nodes on which others' jobs are not started from `start_s` to `end_s` (Unix times)."""

    name: str
    start_s: float
    end_s: float
    nodes: frozenset[str]

    def says(self, now_s: float) -> str:
        """Return a clause on a node of it."""
        if self.start_s <= now_s:
            return f"is reserved ({self.name})"
        return f"is reserved in {(self.start_s - now_s) / 60:.0f} min ({self.name})"


class Others:
    """Asks for jobs that hold something; what each holds is asked once."""

    def __init__(self, client: SlurmClient) -> None:
        self._client = client
        self._known: dict[tuple[int, str], dict[str, Part]] = {}

    def held(self, names: Container[str], ours: Container[int]) -> dict[str, Part]:
        """Return by node, what is held of the nodes `names` by jobs whose numbers are not among
        `ours`.

        Raises NoAnswerError, RefusedError.
        """
        text = self._client.ask("squeue", "-h", "--all", f"--states={HOLDING}", "-o", "%A|%S|%N")
        there = [line.split("|", 2) for line in text.splitlines()]
        jobs = [
            (int(job), since)
            for job, since, nodes in there
            if int(job) not in ours and any(name in names for name in split_nodes(nodes))
        ]
        if any(job not in self._known for job in jobs):
            new = read_holdings(self._client.ask("squeue", "--json"), {job for job, _ in jobs})
            self._known |= {job: new.get(job[0], {}) for job in jobs if job not in self._known}
        self._known = {job: self._known[job] for job in jobs}
        return together(
            (name, part) for parts in self._known.values() for name, part in parts.items()
        )


@understood("jobs")
def read_holdings(text: str, which: Container[int]) -> dict[int, dict[str, Part]]:
    """Return what jobs hold, by number and node, from the JSON of squeue. Raises NoAnswerError
    where it is something else."""
    entries = [entry for entry in json.loads(text)["jobs"] if int(entry["job_id"]) in which]
    return {int(entry["job_id"]): _holding(entry) for entry in entries}


def _holding(entry: Mapping[str, Any]) -> dict[str, Part]:
    given = entry.get("job_resources") or {}
    if "allocated_nodes" in given:
        listed = given["allocated_nodes"]
    else:
        listed = given.get("nodes", {}).get("allocation")
    by_node = {each.get("nodename") or each.get("name"): each for each in listed or []}
    asked = [entry.get(f"tres_per_{what}") for what in ("node", "job", "task", "socket")]
    unknown = None if "gpu" in str(asked) else 0  # one that completes is listed without
    names = split_nodes(entry["nodes"]) if entry["nodes"] else []
    details = entry.get("gres_detail") or []
    counts = [sum(many for _, many in gpus(detail)) for detail in details]
    return {
        name: _part(counts[i] if i < len(counts) else unknown, by_node.get(name, {}))
        for i, name in enumerate(names)
    }


def _part(gpus: int | None, allocated: Mapping[str, Any]) -> Part:
    """Return what is allocated of a node: of cores a count, or each of them with its state."""
    memory = allocated.get("memory_allocated", (allocated.get("memory") or {}).get("allocated"))
    cpus = allocated.get("cpus")
    count = cpus.get("count") if isinstance(cpus, Mapping) else None
    if count is None:
        sockets = allocated.get("sockets") or {}
        each = [*sockets.values()] if isinstance(sockets, Mapping) else []
        cores = [state for socket in each for state in (socket.get("cores") or {}).values()]
        count = cores.count("allocated")
    return Part(gpus, number(count) or 0, number(memory) or 0)


def ask_reservations(client: SlurmClient, but: str | None) -> list[Reservation]:
    """Return reservations that are in effect or will be, except that named `but`. Raises
    NoAnswerError, RefusedError."""
    text = client.ask("scontrol", "--oneliner", "show", "reservation", unix_times=True)
    reservations = read_reservations(text)
    return [each for each in reservations if each.name != but and each.end_s > time.time()]


def read_reservations(text: str) -> list[Reservation]:
    """Return reservations in what scontrol prints, its times in seconds since the epoch."""
    line = re.compile(
        r"^ReservationName=(\S+) StartTime=(\d+) EndTime=(\d+) .*?\bNodes=(\S+)", re.MULTILINE
    )
    return [
        Reservation(match[1], float(match[2]), float(match[3]), frozenset(split_nodes(match[4])))
        for match in line.finditer(text)
    ]


def without(status: NodeStatus, held: Part, ours: Part) -> NodeStatus:
    """Return the node less what others hold of it, but never less than what `ours` hold already."""
    node = status.node
    if held == Part() or not status.usable:
        return status
    taken = node.gpus if held.gpus is None else min(held.gpus, node.gpus)
    left = max(node.gpus - taken, min(ours.gpus or 0, node.gpus))
    said = f"others hold {node.gpus - left} of its {node.gpus} GPUs" if left < node.gpus else None
    if node.gpus and not left:
        said = "has none of its GPUs left by jobs of others"
        return replace(status, usable=False, reason=said, whole=node)
    less = replace(
        node,
        gpus=left,
        cpus=_left(node.cpus, held.cpus, ours.cpus),
        memory_gib=_left(
            node.memory_gib, held.memory_mib / MIB_PER_GIB, ours.memory_mib / MIB_PER_GIB
        ),
    )
    return replace(status, node=less, reason=said, whole=node)


def _left(there: Amount | None, held: Amount, ours: Amount) -> Amount | None:
    return None if there is None else max(there - held, min(ours, there))


def reserved(status: NodeStatus, reservations: Collection[Reservation], now_s: float) -> NodeStatus:
    """Return the node closed to new jobs where a reservation has it, or will within `SOON_S`."""
    soon = (
        reservation
        for reservation in reservations
        if status.node.name in reservation.nodes and reservation.start_s <= now_s + SOON_S
    )
    first = min(soon, key=lambda reservation: reservation.start_s, default=None)
    if first is None or not status.usable:
        return status
    return replace(status, usable=False, reason=first.says(now_s))
