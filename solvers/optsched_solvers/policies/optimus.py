"""Optimus' allocation of workers by marginal gain."""

from heapq import heapify, heappop, heappush

from optsched.driver import World

from .parts.gang_counts import Allotment
from .parts.gpu_pool import GpuPool
from .parts.reallocation import Grant, Reallocation, ReallocationOptions, types_of

Gain = tuple[float, int]
"""Seconds saved for each GPU, negated; place in order of arrival."""


class Optimus(Reallocation):
    """At each interval every job gets its fewest GPUs, in order of arrival; what is left goes one
    step at a time to the job that saves the most seconds by it for each GPU.

    A step leads from one GPU count of an elastic job to its next and saves remaining work x (1 /
    rate - 1 / next rate), with the rates of the best spread. A job whose next step saves nothing
    takes no more. Rigid jobs have one count, so that they run in order of arrival, with what does
    not fit skipped. A running job whose count has changed is preempted and placed anew. Small gangs
    are placed first; one that finds no place for its count takes the largest smaller one that has a
    place. Of several GPU types a job goes to the one on which its fewest GPUs are fastest, of those
    with as many left; one that runs keeps its type while it can. Jobs that may not be preempted,
    and those with periodic checkpoints before the first of their stay, keep what they have.

    Between two allocations only jobs start that were given GPUs at the last.

    Source: Y. Peng et al., Optimus: An efficient dynamic resource scheduler for deep learning
    clusters, EuroSys 2018, section 4.1, as Pollux's public simulator has it for jobs without
    parameter servers.
    """

    name = "optimus"
    title = "elastic jobs get GPUs one by one where they save the most time, with preemption"

    Options = ReallocationOptions

    def remaining_work_s(self, world: World, job_id: str) -> float:
        """Return the reference work by which a job's gain is measured."""
        return world.remaining_work_s(job_id)

    def allocate(self, world: World, movable: list[str], pool: GpuPool) -> dict[str, Grant]:
        """Return the fewest GPUs for each, then step by step where a step saves most."""
        given = [Allotment(job_id, types_of(world, job_id)) for job_id in movable]
        given = [own for own in given if own.begin(pool)]
        heap = [gain for i, own in enumerate(given) for gain in self._gain(world, i, own)]
        heapify(heap)
        while heap:
            i = heappop(heap)[1]
            if given[i].grow(pool):
                for gain in self._gain(world, i, given[i]):
                    heappush(heap, gain)
        return {own.job_id: own.grant() for own in given}

    def _gain(self, world: World, i: int, own: Allotment) -> list[Gain]:
        """Return what the next step is worth, if it saves anything."""
        before, after = own.rates()
        saved_s = self.remaining_work_s(world, own.job_id) * (1 / before - 1 / after)
        return [(-saved_s / own.next_gpus(), i)] if saved_s > 0 else []
