"""How much of a node's idle GPUs the jobs of a workload could not use."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """What a job asks of one node: `gpus` whole GPUs, or with `part` below 1 that part of one;
    cores, host memory, and the nodes, as a mask, that can serve it."""

    gpus: int
    part: float
    cpus: int
    memory_gib: float
    nodes: int


@dataclass(frozen=True, slots=True)
class Idle:
    """What is idle on a node: the part left of each GPU that is not full, cores and host memory."""

    gpus: tuple[float, ...]
    cpus: int
    memory_gib: float

    def holds(self, task: Task) -> bool:
        """Return whether the task could run there."""
        enough = sum(left >= task.part for left in self.gpus) >= task.gpus
        return enough and self.cpus >= task.cpus and self.memory_gib >= task.memory_gib

    def less(self, task: Task, left: float | None = None) -> "Idle":
        """Return what is idle once the task runs on the first whole GPUs, or on the first GPU of
        which `left` is left."""
        gpus = list(self.gpus)
        for _ in range(task.gpus):
            gpus.remove(1.0 if left is None else left)
        rest = (1.0 if left is None else left) - task.part
        if task.gpus and rest > 0:
            gpus.append(rest)
        return Idle(tuple(sorted(gpus)), self.cpus - task.cpus, self.memory_gib - task.memory_gib)


def typical(tasks: Counter[Task], share: float) -> tuple[tuple[Task, float], ...]:
    """The most popular tasks that together make up the share of all, each with its probability
    among them."""
    total, found, counted = sum(tasks.values()), [], 0
    for task, count in tasks.most_common():
        if counted >= share * total:
            break
        found.append((task, count))
        counted += count
    return tuple((task, count / counted) for task, count in found)


def fragmentation(idle: Idle, i: int, workload: Iterable[tuple[Task, float]]) -> float:
    """The GPUs idle on node number `i` that the next task of the workload is expected not to be
    able to use.

    For a task that cannot run there, or that takes no GPU, all that is idle; else the parts of GPUs
    too small for it.

    Source: Q. Weng et al., Beware of fragmentation, USENIX ATC'23, section 4.1; pkg/utils/frag.go
    of the public simulator.
    """
    every = sum(idle.gpus)
    if not every:
        return 0.0
    found = 0.0
    for task, probability in workload:
        if not task.gpus or not task.nodes >> i & 1 or not idle.holds(task):
            found += probability * every
        else:
            found += probability * sum(left for left in idle.gpus if left < task.part)
    return found


def expected(nodes: Sequence[tuple[int, Idle]], workload: Sequence[tuple[Task, float]]) -> float:
    """The fragmentation of the cluster."""
    return sum(fragmentation(idle, i, workload) for i, idle in nodes)
