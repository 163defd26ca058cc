"""CrossoverScheduler: one job computes while the other communicates."""

from typing import NamedTuple

from optsched.driver import World

from .parts.pair_sharing import (
    PairPolicy,
    duty,
    fits_memory,
    heaviest_matching,
    kind_of,
    way_beside,
)

MOST_MATCHED = 32
"""So many waiting and so many running jobs are matched at once; exact matching takes time cubic in
them."""
LEAST_GAIN = 1.0 + 1e-9
"""A pair must do more than its jobs in turn."""


class Iteration(NamedTuple):
    """Seconds of computation on the GPUs and of communication in one iteration of a job."""

    compute_s: float
    communicate_s: float

    @property
    def alone_s(self) -> float:
        return self.compute_s + self.communicate_s


def period_s(first: Iteration, second: Iteration) -> float:
    """Return seconds in which two jobs that take turns on their GPUs do one iteration each: both
    computations, or the longer iteration where the other's computation fits into its
    communication."""
    return max(first.compute_s + second.compute_s, first.alone_s, second.alone_s)


def gain(first: Iteration, second: Iteration) -> float:
    """Return how many times as much two jobs do together as in turn."""
    return (first.alone_s + second.alone_s) / period_s(first, second)


class Crossover(PairPolicy):
    """First in, first out, with what does not fit skipped; waiting jobs without free GPUs join
    running ones in the pairs that gain most together.

    A pair gains (iteration + iteration) / period, the period being that of taking turns on the
    GPUs; pairs that gain nothing, or whose memory the GPUs do not hold, are left out. A
    maximum-weight matching by gain beyond 1 chooses the pairs, among the first waiting jobs and the
    first running ones of each number of GPUs.
    """

    name = "crossover"
    title = (
        "pairs whose communication hides under each other's computation, by maximum-weight matching"
    )

    def __init__(self) -> None:
        super().__init__()
        self._hopeless: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def decide(self, world: World) -> None:
        """Free GPUs in order of arrival, then pairs."""
        super().decide(world)
        for gpus in self._singles.sizes():
            while self._pair(world, gpus):
                pass

    def _pair(self, world: World, gpus: int) -> bool:
        """Start the best pairs among the first jobs; return whether there were any."""
        partners = [
            (name, iteration)
            for name in self._singles.of(gpus)
            if (iteration := _iteration(world, name)) is not None
        ][:MOST_MATCHED]
        if not partners:
            return False
        waiting = [
            (name, iteration)
            for name in self._queue.first(len(partners))
            if (iteration := _iteration(world, name)) is not None
            and any(option.mode.gpus == gpus for option in world.options(name))
        ][:MOST_MATCHED]
        names = tuple(name for name, _ in waiting), tuple(name for name, _ in partners)
        if self._hopeless.get(gpus) == names:
            return False
        gaining = {
            (job_id, partner): weight - 1
            for job_id, own in waiting
            for partner, other in partners
            if (weight := gain(own, other)) > LEAST_GAIN and fits_memory(world, job_id, partner)
        }
        if not gaining:
            self._hopeless[gpus] = names
        weights = {
            edge: weight for edge, weight in gaining.items() if way_beside(world, *edge) is not None
        }
        started = False
        for job_id, partner in heaviest_matching(weights):
            # those before it may have taken the cores beside the partner
            if self._join(world, job_id, partner):
                self._queue.remove(job_id, kind_of(world, job_id))
                started = True
        return started


def _iteration(world: World, job_id: str) -> Iteration | None:
    """Return the job's iteration, in units of its length."""
    compute = duty(world, job_id)
    return None if compute is None else Iteration(compute, 1 - compute)
