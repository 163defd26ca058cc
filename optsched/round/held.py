"""Holdings of running jobs, as columns, and what these leave of the nodes."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..frozen import entity
from ..model import Cluster, Instance, Job, Mode, Placement, Running
from ..physics import memory_gib
from ..physics.capacity import Domains
from ..physics.catalogue import catalogue_of
from ..physics.contention import planned_uplinks_gbps
from .model import Bools, Floats, Ints, Kind, is_second
from .plan import JobRound

SLACK = 1e-7
"""Relative excess of a fractional amount that is taken for rounding."""

Part = tuple[int, int, int, float]
"""(node, GPUs, cores, memory in GiB) of one job on one node."""


@entity
class Hold:
    """The holding of a running job, or an option on such GPUs, as `parts` of nodes. `partner` is
    the position of an active job, `goes_on` the decision that a running job goes on as it is,
    `numbers` the parts one after the other.

    KEEP: go on at `rate`. BESIDE: start on the GPUs of the running job `partner`, which goes on at
    `partner_rate`. ALONE: of two that share GPUs the second one stays (the first is `partner`, and
    leaves).
    """

    kind: Kind
    mode: Mode
    placement: Placement
    rate: float
    parts: tuple[Part, ...]
    partner: int = -1
    partner_rate: float = 0.0
    goes_on: JobRound | None = None
    numbers: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", _numbers(self.parts))


@dataclass(frozen=True, eq=False, kw_only=True)
class Held:
    """One entry for each node that a hold has part of: `owner` is the number of the hold, of which
    the first `running` are running jobs. `job` is the position of the active job of each hold,
    `gang` its GPUs.

    `class_of` gives the class of each node, `rack` its rack (-1 without), `racks` the nodes of
    each, `domains` what is left of racks before anything is placed, `tied` the holds, by number, of
    jobs to which it may matter who else is where. Jobs that are being saved, and those `around`,
    have `taken` so much of each node; the `room` is what they leave, inf where there is no limit.
    """

    holds: tuple[Hold, ...]
    job: list[int]
    running: int
    owner: Ints
    node: Ints
    gpus: Ints
    cpus: Ints
    memory_gib: Floats
    gang: Floats
    class_of: Ints
    rack: list[int]
    racks: list[list[int]]
    domains: Domains
    tied: list[int]
    room_gpus: Ints
    room_cpus: Floats
    room_memory_gib: Floats
    taken_gpus: Ints
    taken_cpus: Ints
    taken_gib: Floats
    around: Sequence[tuple[Job, Running]]

    @property
    def node_class(self) -> Ints:
        """Return the class of each entry's node."""
        return self.class_of[self.node]

    def total(self, amounts: Floats | Ints, where: Bools | Ints) -> Floats:
        """Return the amounts of the entries that `where` picks, by hold."""
        return np.bincount(
            self.owner[where], weights=amounts[where], minlength=len(self.gang)
        ).astype(float)

    def on_nodes(self, amounts: Floats | Ints) -> Floats:
        """Return what running jobs have of each node together."""
        runs = self.owner < self.running
        return np.bincount(
            self.node[runs], weights=amounts[runs], minlength=len(self.class_of)
        ).astype(float)


def held_by(
    instance: Instance,
    holds: Sequence[tuple[int, Hold]],
    running: int,
    class_of: list[int],
    minds: Bools,
    blocked: Sequence[Placement],
    around: Sequence[tuple[Job, Running]] = (),
) -> Held:
    """Return the holds of active jobs, by their positions, as columns; what jobs that are being
    saved (`blocked`) and those `around` hold is taken off the room. To jobs that it `minds` it may
    matter who else is where."""
    nodes, order = instance.cluster.nodes, instance.cluster.node_order
    empty = catalogue_of(instance).once("empty nodes", lambda: _Empty.of(instance.cluster))
    taken = [(order[slot.node], slot.gpus, slot.cpus, 0.0) for slot in chain.from_iterable(blocked)]
    domains = _empty(instance)
    for job, entry in around:
        own = parts_of(instance.cluster, job, entry.mode, entry.placement, is_second(entry))
        domains.take(domains.ties(job), [n for n, *_ in own])
        taken += own
    every = tuple(hold for _, hold in holds)
    parts = [hold.parts for hold in every]
    node, gpus, cpus, memory = _columns(b"".join([hold.numbers for hold in every]))
    at, *amounts = _columns(_numbers(taken))
    taken_gpus, taken_cpus, taken_gib = (
        np.bincount(at, weights=amount, minlength=len(nodes)).astype(amount.dtype)
        for amount in amounts
    )
    jobs = [j for j, _ in holds]
    return Held(
        holds=every,
        job=jobs,
        running=running,
        owner=np.repeat(np.arange(len(every)), np.array([*map(len, parts)], dtype=np.int64)),
        node=node,
        gpus=gpus,
        cpus=cpus,
        memory_gib=memory,
        gang=np.array([hold.mode.gpus for hold in every], dtype=float),
        class_of=np.array(class_of, dtype=np.int64),
        rack=empty.rack,
        racks=empty.racks,
        domains=domains,
        tied=np.flatnonzero(minds[np.array(jobs, dtype=np.int64)]).tolist(),
        around=around,
        room_gpus=empty.gpus - taken_gpus,
        room_cpus=empty.cpus - taken_cpus,
        room_memory_gib=empty.memory_gib - taken_gib,
        taken_gpus=taken_gpus,
        taken_cpus=taken_cpus,
        taken_gib=taken_gib,
    )


@entity
class _Empty:
    """The nodes of a cluster with nothing on them, as columns (see `Held`)."""

    rack: list[int]
    racks: list[list[int]]
    gpus: Ints
    cpus: Floats
    memory_gib: Floats

    @classmethod
    def of(cls, cluster: Cluster) -> "_Empty":
        """Return those of a cluster."""
        nodes = cluster.nodes
        racks: dict[str, list[int]] = {}
        for n, each in enumerate(nodes):
            if each.rack is not None:
                racks.setdefault(each.rack, []).append(n)
        number: dict[str | None, int] = {name: i for i, name in enumerate(racks)}
        return cls(
            rack=[number.get(each.rack, -1) for each in nodes],
            racks=list(racks.values()),
            gpus=np.array([each.gpus for each in nodes], dtype=np.int64),
            cpus=_limits([each.cpus for each in nodes]),
            memory_gib=_limits([each.memory_gib for each in nodes]),
        )


def _empty(instance: Instance) -> Domains:
    """Return the racks with nothing in them, derived once where uplinks are the cluster's own."""
    cluster, uplinks_gbps = instance.cluster, planned_uplinks_gbps(instance)
    if uplinks_gbps is not cluster.rack_uplink_gbps:
        return Domains(cluster, uplinks_gbps, SLACK)
    empty = catalogue_of(instance).once("racks", lambda: Domains(cluster, uplinks_gbps, SLACK))
    return empty.copy()


def parts_of(
    cluster: Cluster, job: Job, mode: Mode, placement: Placement, second: bool
) -> tuple[Part, ...]:
    """Return what a job has of each node; the GPUs of a pair count once, with the first of it."""
    order = cluster.node_order
    return tuple(
        (order[slot.node], 0 if second else slot.gpus, slot.cpus, memory_gib(job, mode, slot.gpus))
        for slot in placement
    )


def _numbers(parts: Iterable[Part]) -> bytes:
    return array("d", chain.from_iterable(parts)).tobytes()


def _columns(numbers: bytes) -> list[NDArray[Any]]:
    kinds = (np.int64, np.int64, np.int64, np.float64)
    columns = np.frombuffer(numbers).reshape(-1, 4).T
    return [column.astype(kind) for column, kind in zip(columns, kinds, strict=True)]


def _limits(amounts: Sequence[float | None]) -> NDArray[Any]:
    return np.array([np.inf if amount is None else amount for amount in amounts])
