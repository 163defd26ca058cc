"""What Slurm has given to others on our nodes: to jobs that are not ours, and to reservations."""

import json
import re
import time
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from ...errors import InputError
from ...frozen import record
from ...model import FOR_EVER_S, Window
from ..base import Entry, NoAnswerError, NodeStatus, in_one_line, inner
from .client import SlurmClient, understood
from .nodes import gpus, number
from .site import split_nodes

HOLDING = "RUNNING,COMPLETING,SUSPENDED,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT,RESIZING"
Amount = TypeVar("Amount", int, float)
STARTING_S = 3.0
"""So long Slurm may take to start a job."""
SHORTEST_S = 60.0 + STARTING_S
"""So long before a reservation begins Slurm starts nothing on its nodes: time limits are whole
minutes."""
MOST_NAME = 40
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
    """Nodes on which others' jobs are not started from `start_s` to `end_s` (Unix times). One that
    `floats` stays as far ahead as it is: it bars long jobs, and never begins."""

    name: str
    start_s: float
    end_s: float
    nodes: frozenset[str]
    floats: bool = False

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
        with understood("jobs"):
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


def _holding(entry: Entry) -> dict[str, Part]:
    given = inner(entry, "job_resources")
    if "allocated_nodes" in given:
        listed = given["allocated_nodes"]
    else:
        listed = given.get("nodes", {}).get("allocation")
    by_node = {each.get("nodename") or each.get("name"): each for each in listed or []}
    asked = [entry.get(f"tres_per_{what}") for what in ("node", "job", "task", "socket")]
    unknown = None if "gpu" in str(asked) else 0  # one that completes is listed without
    names = split_nodes(entry["nodes"]) if entry["nodes"] else []
    details = inner(entry, "gres_detail")
    counts = [sum(many for _, many in gpus(detail)) for detail in details]
    return {
        name: _part(counts[i] if i < len(counts) else unknown, by_node.get(name, {}))
        for i, name in enumerate(names)
    }


def _part(gpus: int | None, allocated: Entry) -> Part:
    """Return what is allocated of a node: of cores a count, or each of them with its state."""
    memory = allocated.get("memory_allocated", inner(allocated, "memory").get("allocated"))
    cpus = allocated.get("cpus")
    count = cpus.get("count") if isinstance(cpus, Mapping) else None
    if count is None:
        sockets = inner(allocated, "sockets")
        each = [*sockets.values()] if isinstance(sockets, Mapping) else []
        cores = [state for socket in each for state in inner(socket, "cores").values()]
        count = cores.count("allocated")
    return Part(gpus, number(count) or 0, number(memory) or 0)


def ask_reservations(client: SlurmClient, but: str | None) -> list[Reservation]:
    """Return reservations that are in effect or will be, except that named `but`. Raises
    NoAnswerError, RefusedError."""
    text = client.ask("scontrol", "--oneliner", "show", "reservation", unix_times=True)
    reservations = read_reservations(text)
    return [each for each in reservations if each.name != but and each.end_s > time.time()]


LINE = re.compile(
    r"^ReservationName=((?:.|\n)+?) StartTime=(\S+) EndTime=(\S+) Duration=.*?\bNodes=(\S*)(.*)",
    re.MULTILINE,
)
"""A reservation in one line, which all releases print; its name may hold any character."""


def read_reservations(text: str) -> list[Reservation]:
    """Return reservations in what scontrol prints, its times in seconds since the epoch: one
    without a time has begun, or has no end. Raises NoAnswerError where it is something else."""
    matches = [*LINE.finditer(text)]
    if len(matches) < len(re.findall("^ReservationName=", text, re.MULTILINE)):
        raise NoAnswerError("scontrol's list of reservations is not understood")
    return [
        Reservation(
            match[1],
            _instant_s(match[2], 0.0),
            _instant_s(match[3], FOR_EVER_S),
            _names(match[4]),
            floats="TIME_FLOAT" in match[5],
        )
        for match in matches
    ]


def _instant_s(text: str, unknown_s: float) -> float:
    return min(float(text), FOR_EVER_S) if text.isdecimal() else unknown_s


def _names(hosts: str) -> frozenset[str]:
    try:
        return frozenset(split_nodes(hosts or "(null)"))
    except (ValueError, InputError) as error:
        raise NoAnswerError(f"scontrol's list of reservations is not understood: {error}") from None


def windows_of(
    reservations: Iterable[Reservation], nodes: Iterable[str], early_s: float
) -> tuple[Window, ...]:
    """Return the reservations of `nodes` as windows for all, which begin so much earlier."""
    there = [*nodes]
    windows = (
        Window(
            name=f"Slurm's {in_one_line(each.name, MOST_NAME) or 'reservation'}",
            nodes=tuple(name for name in there if name in each.nodes),
            from_s=max(0.0, each.start_s - early_s),
            to_s=each.end_s,
        )
        for each in reservations
        if not each.floats and each.start_s < each.end_s
    )
    return tuple(sorted((w for w in windows if w.nodes), key=lambda w: (w.from_s, w.name, w.nodes)))


def minutes_before(
    reservations: Iterable[Reservation], nodes: Collection[str], now_s: float
) -> int | None:
    """Return the longest time limit with which Slurm starts a job on `nodes` now; None for any."""
    starts_s = [
        each.start_s
        for each in reservations
        if now_s < each.end_s and not each.nodes.isdisjoint(nodes)
    ]
    return max(0, int(min(starts_s) - STARTING_S - now_s) // 60) if starts_s else None


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
    """Return the node closed to new jobs where a reservation has it, or will within
    `SHORTEST_S`."""
    soon = (
        reservation
        for reservation in reservations
        if status.node.name in reservation.nodes
        and reservation.start_s <= now_s + SHORTEST_S
        and now_s < reservation.end_s
    )
    first = min(soon, key=lambda reservation: reservation.start_s, default=None)
    if first is None or not status.usable:
        return status
    return replace(status, usable=False, reason=first.says(now_s))
