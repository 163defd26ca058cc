"""What Pollux decides on at one moment, and the objective by which it judges an allocation."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LEAST_SPEEDUP = 1e-3
"""Added to every speedup, so that a job without GPUs has one."""

Parts = tuple[tuple[int, int], ...]
"""What a job gets: (node, GPUs) in the order of the nodes, each a position in `State.nodes`; empty
for nothing."""
Size = tuple[int, int]
"""GPU type, as a position, and GPU count."""


class Free(NamedTuple):
    """A node with the GPUs that can be given out on it."""

    gpu_type: int
    gpus: int


class Candidate(NamedTuple):
    """A job: its scaled speedup by size on one node (`alone`) and over several (`spread`), what it
    holds `now` with the speedup there, and the restart factor by which anything else counts."""

    alone: dict[Size, float]
    spread: dict[Size, float]
    now: Parts
    now_value: float
    factor: float


class State(NamedTuple):
    """The nodes and the jobs that may be moved."""

    nodes: tuple[Free, ...]
    jobs: tuple[Candidate, ...]

    def by_type(self, combine: Callable[[list[int]], int]) -> dict[int, int]:
        """Return the GPUs of the nodes of each type, combined (`max`, `sum`)."""
        gpus: dict[int, list[int]] = {}
        for node in self.nodes:
            gpus.setdefault(node.gpu_type, []).append(node.gpus)
        return {gpu_type: combine(counts) for gpu_type, counts in gpus.items()}

    def cost(self, job: Candidate, parts: Parts) -> float:
        """Return what the objective sums over the jobs: the inverse of the speedup."""
        if not parts:
            return 1 / LEAST_SPEEDUP
        if parts == job.now:
            return cost_of(job.now_value)
        size = self.nodes[parts[0][0]].gpu_type, sum(gpus for _, gpus in parts)
        return cost_of(job.factor * (job.alone if len(parts) == 1 else job.spread).get(size, 0.0))

    def total(self, given: Sequence[Parts]) -> float:
        """Return the sum of the jobs' costs."""
        return sum(self.cost(job, parts) for job, parts in zip(self.jobs, given, strict=True))

    def is_sound(self, given: Sequence[Parts]) -> bool:
        """Return whether every gang is on GPUs of one type, no node gives more than it has, and
        none hosts two gangs that are spread over several nodes."""
        used, hosts = Counter[int](), Counter[int]()
        for parts in given:
            used.update(dict(parts))
            if len(parts) > 1:
                hosts.update(node for node, _ in parts)
            if len({self.nodes[node].gpu_type for node, _ in parts}) > 1:
                return False
        within = all(gpus <= self.nodes[node].gpus for node, gpus in used.items())
        return within and all(count == 1 for count in hosts.values())


class Best(NamedTuple):
    """An allocation, and whether it is proven that none is better."""

    given: tuple[Parts, ...]
    proven: bool


@dataclass(slots=True)
class Ways:
    """What a job may get: sizes with their cost, on one node and over several, without those that a
    smaller one of the same kind beats; `keep` is the cost of what it holds now."""

    alone: dict[Size, float] = field(default_factory=dict)
    spread: dict[Size, float] = field(default_factory=dict)
    keep: float | None = None


def cost_of(value: float) -> float:
    """Return the cost of a scaled speedup."""
    return 1 / (value + LEAST_SPEEDUP)
