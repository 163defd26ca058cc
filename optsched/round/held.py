"""What running jobs hold, as columns, and what that leaves of the nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from ..model.instance import Instance, Placement, Running
from ..model.job import Job, Mode
from ..physics import memory_gib
from ..physics.capacity import Domains
from ..physics.contention import planned_uplinks_gbps
from .model import Bools, Floats, Ints, Kind, is_second

SLACK = 1e-7
"""Relative excess of a fractional amount that is taken for rounding."""

Part = tuple[int, int, int, float]
"""(node, GPUs, cores, memory in GiB) of one job on one node."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What a running job holds, or an option on such GPUs. `job` and `partner` are positions of
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
        """The class of each entry's node."""
        return self.class_of[self.node]

    @cached_property
    def parts(self) -> list[list[Part]]:
        """The entries of each hold."""
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
    inf = float("inf")
    entries: list[tuple[int, int, int, int, float]] = []
    for k, hold in enumerate(holds):
        job, mode = jobs[hold.job], hold.mode
        has_memory = job.profile.memory_gib_per_gpu or not mode.gpus
        for slot in hold.placement:
            gpus = 0 if hold.is_second else slot.gpus  # the GPUs of a pair count once
            gib = memory_gib(job, mode, slot.gpus) if has_memory else 0.0
            entries.append((k, order[slot.node], gpus, slot.cpus, gib))
    owner, node, gpus_, cpus, memory = zip(*entries, strict=True) if entries else ((),) * 5
    taken_gpus, taken_cpus, taken_gib = [0] * len(nodes), [0] * len(nodes), [0.0] * len(nodes)
    for slot in chain.from_iterable(blocked):
        taken_gpus[order[slot.node]] += slot.gpus
        taken_cpus[order[slot.node]] += slot.cpus
    domains = Domains(instance.cluster, planned_uplinks_gbps(instance), SLACK)
    for job, entry in around:
        on = [order[slot.node] for slot in entry.placement]
        domains.take(domains.ties(job), on)
        for n, slot in zip(on, entry.placement, strict=True):
            taken_gpus[n] += 0 if is_second(entry) else slot.gpus
            taken_cpus[n] += slot.cpus
            taken_gib[n] += memory_gib(job, entry.mode, slot.gpus)
    names = dict.fromkeys(node.rack for node in nodes if node.rack is not None)
    number = {name: i for i, name in enumerate(names)}
    rack = [-1 if node.rack is None else number[node.rack] for node in nodes]
    racks: list[list[int]] = [[] for _ in number]
    for n, place in enumerate(rack):
        if place >= 0:
            racks[place].append(n)
    return Held(
        holds=tuple(holds),
        running=running,
        owner=np.array(owner, dtype=np.int64),
        node=np.array(node, dtype=np.int64),
        gpus=np.array(gpus_, dtype=np.int64),
        cpus=np.array(cpus, dtype=np.int64),
        memory_gib=np.array(memory, dtype=float),
        gang=np.array([hold.mode.gpus for hold in holds], dtype=float),
        class_of=np.array(class_of, dtype=np.int64),
        rack=rack,
        racks=racks,
        domains=domains,
        around=around,
        room_gpus=np.array([node.gpus for node in nodes], dtype=np.int64) - np.array(taken_gpus),
        room_cpus=np.array([inf if node.cpus is None else node.cpus for node in nodes])
        - np.array(taken_cpus),
        room_memory_gib=np.array(
            [inf if node.memory_gib is None else node.memory_gib for node in nodes]
        )
        - np.array(taken_gib),
        taken_gpus=np.array(taken_gpus),
        taken_cpus=np.array(taken_cpus),
        taken_gib=np.array(taken_gib),
    )
