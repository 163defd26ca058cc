"""What running jobs hold, as columns."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..model.cluster import gpu_caps
from ..model.instance import Instance, Placement, Running
from ..model.job import Job
from ..physics import memory_gib
from .model import Floats, Ints, is_second


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One entry for each node that a running job holds part of: `owner` is the position of the job
    among the running ones. `resources`, `budgets`, `quota` (the tenant, where it has a cap) and
    `gang` (GPUs) are by running job; `classes` numbers the sets of node classes on which they sit,
    `class_of` gives the class of each node. `taken_gpus` and `taken_cpus` are what jobs that are
    being saved hold of each node.
    """

    owner: Ints
    node: Ints
    gpus: Ints
    cpus: Ints
    memory_gib: Floats
    resources: list[Mapping[str, float]]
    budgets: list[Mapping[str, float]]
    quota: list[str | None]
    gang: Floats
    class_of: Ints
    taken_gpus: Ints
    taken_cpus: Ints

    @property
    def node_class(self) -> Ints:
        """The class of each entry's node."""
        return self.class_of[self.node]

    def total(self, amounts: Floats | Ints, where: np.ndarray) -> Floats:
        """The amounts of the entries that `where` picks, by running job."""
        return np.bincount(
            self.owner[where], weights=amounts[where], minlength=len(self.gang)
        ).astype(float)


def held_by(
    instance: Instance,
    class_of: list[int],
    running: Sequence[tuple[Job, Running]],
    blocked: Sequence[Placement],
    guests: Container[int] = (),
) -> Held:
    """Read off running entries. Those numbered in `guests` are on GPUs that others hold."""
    order = instance.cluster.node_order
    caps = gpu_caps(instance.tenants)
    owner: list[int] = []
    node: list[int] = []
    gpus: list[int] = []
    cpus: list[int] = []
    memory: list[float] = []
    for k, (job, entry) in enumerate(running):
        counts = not is_second(entry) and k not in guests  # the GPUs of a pair count once
        has_memory = job.profile.memory_gib_per_gpu or not entry.mode.gpus
        for slot in entry.placement:
            owner.append(k)
            node.append(order[slot.node])
            gpus.append(slot.gpus if counts else 0)
            cpus.append(slot.cpus)
            memory.append(memory_gib(job, entry.mode, slot.gpus) if has_memory else 0.0)
    taken_gpus, taken_cpus = (
        np.zeros(len(order), dtype=np.int64),
        np.zeros(len(order), dtype=np.int64),
    )
    for placement in blocked:
        for slot in placement:
            taken_gpus[order[slot.node]] += slot.gpus
            taken_cpus[order[slot.node]] += slot.cpus
    return Held(
        owner=np.array(owner, dtype=np.int64),
        node=np.array(node, dtype=np.int64),
        gpus=np.array(gpus, dtype=np.int64),
        cpus=np.array(cpus, dtype=np.int64),
        memory_gib=np.array(memory, dtype=float),
        resources=[entry.mode.resources for _, entry in running],
        budgets=[entry.mode.budgets for _, entry in running],
        quota=[job.tenant if job.tenant in caps else None for job, _ in running],
        gang=np.array([entry.mode.gpus for _, entry in running], dtype=float),
        class_of=np.array(class_of, dtype=np.int64),
        taken_gpus=taken_gpus,
        taken_cpus=taken_cpus,
    )
