"""Holdings of running jobs, as columns, and what these leave of the nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..frozen import record
from ..model.instance import Instance, Placement, Running, Slot
from ..model.job import Job, Mode
from ..physics import memory_gib
from ..physics.capacity import Domains
from ..physics.contention import planned_uplinks_gbps
from .model import Bools, Floats, Ints, Kind, is_second

SLACK = 1e-7
"""Relative excess of a fractional amount that is taken for rounding."""

Part = tuple[int, int, int, float]
"""(node, GPUs, cores, memory in GiB) of one job on one node."""


@record
class Hold:
    """The holding of a running job, or an option on such GPUs. `job` and `partner` are positions of
    active jobs.

    KEEP: go on at `rate`. BESIDE: start on the GPUs of the running job `partner`, which goes on at
    `partner_rate`. ALONE: of two that share GPUs the second one stays (the first is `partner`, and
    leaves). `is_second` says that the GPUs count with the partner.
    """

    job: int
    kind: Kind
    mode: Mode
    placement: Placement
    rate: float
    is_second: bool
    partner: int = -1
    partner_rate: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Held:
    """One entry for each node that a hold has part of: `owner` is the number of the hold, of which
    the first `running` are running jobs. `gang` is the GPUs of each hold.

    `class_of` gives the class of each node, `rack` its rack (-1 without), `racks` the nodes of
    each, `domains` what is left of racks before anything is placed. Jobs that are being saved, and
    those `around`, have `taken` so much of each node; the `room` is what they leave, inf where
    there is no limit.
    """

    holds: tuple[Hold, ...]
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

    @cached_property
    def parts(self) -> list[list[Part]]:
        """Return the entries of each hold."""
        parts: list[list[Part]] = [[] for _ in self.holds]
        columns = (self.owner, self.node, self.gpus, self.cpus, self.memory_gib)
        for owner, *part in zip(*(column.tolist() for column in columns), strict=True):
            parts[owner].append(tuple(part))
        return parts

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
    jobs: Sequence[Job],
    holds: Sequence[Hold],
    running: int,
    class_of: list[int],
    blocked: Sequence[Placement],
    around: Sequence[tuple[Job, Running]] = (),
) -> Held:
    """Return the holds of active `jobs` as columns; what jobs that are being saved (`blocked`) and
    those `around` hold is taken off the room."""
    nodes, order = instance.cluster.nodes, instance.cluster.node_order
    entries = [
        (k, order[slot.node], *_part(jobs[hold.job], hold.mode, slot, hold.is_second))
        for k, hold in enumerate(holds)
        for slot in hold.placement
    ]
    taken = [
        (0, order[slot.node], slot.gpus, slot.cpus, 0.0) for slot in chain.from_iterable(blocked)
    ]
    domains = Domains(instance.cluster, planned_uplinks_gbps(instance), SLACK)
    for job, entry in around:
        domains.take(domains.ties(job), [order[slot.node] for slot in entry.placement])
        taken += [
            (0, order[slot.node], *_part(job, entry.mode, slot, is_second(entry)))
            for slot in entry.placement
        ]
    owner, node, gpus, cpus, memory = _columns(entries)
    _, at, *amounts = _columns(taken)
    taken_gpus, taken_cpus, taken_gib = (
        np.bincount(at, weights=amount, minlength=len(nodes)).astype(amount.dtype)
        for amount in amounts
    )
    racks: dict[str | None, list[int]] = {}
    for n, each in enumerate(nodes):
        if each.rack is not None:
            racks.setdefault(each.rack, []).append(n)
    number = {name: i for i, name in enumerate(racks)}
    return Held(
        holds=tuple(holds),
        running=running,
        owner=owner,
        node=node,
        gpus=gpus,
        cpus=cpus,
        memory_gib=memory,
        gang=np.array([hold.mode.gpus for hold in holds], dtype=float),
        class_of=np.array(class_of, dtype=np.int64),
        rack=[number.get(each.rack, -1) for each in nodes],
        racks=list(racks.values()),
        domains=domains,
        around=around,
        room_gpus=np.array([each.gpus for each in nodes], dtype=np.int64) - taken_gpus,
        room_cpus=_limits([each.cpus for each in nodes]) - taken_cpus,
        room_memory_gib=_limits([each.memory_gib for each in nodes]) - taken_gib,
        taken_gpus=taken_gpus,
        taken_cpus=taken_cpus,
        taken_gib=taken_gib,
    )


def _part(job: Job, mode: Mode, slot: Slot, second: bool) -> tuple[int, int, float]:
    """Return GPUs, cores and memory of a job on one node; the GPUs of a pair count once."""
    return 0 if second else slot.gpus, slot.cpus, memory_gib(job, mode, slot.gpus)


def _columns(entries: Sequence[tuple[int, int, int, int, float]]) -> list[NDArray[Any]]:
    columns = zip(*entries, strict=True) if entries else ((),) * 5
    kinds = (np.int64, np.int64, np.int64, np.int64, np.float64)
    return [np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)]


def _limits(amounts: Sequence[float | None]) -> NDArray[Any]:
    return np.array([np.inf if amount is None else amount for amount in amounts])
