"""DL2's reward, maximised exactly one slot ahead."""

from typing import Annotated

from optsched.driver import World
from optsched.model import Running
from optsched.physics import hold_to_save_s, setup_s
from optsched.plugins.options import PositiveDuration, declared_options

from .parts.configuration_choice import Configuration, choose
from .parts.gang_counts import GangCounts, by_type
from .parts.gpu_pool import GpuPool, Rows
from .parts.reallocation import Grant, Reallocation, ReallocationOptions, held

TIE = 1e-6
"""Reward by which going on as it is, and running at all, win where nothing else tells two choices
apart."""


class Dl2Myopic(Reallocation):
    """At each slot the GPU counts that maximise DL2's reward of that slot: the sum over jobs of
    what they will have run in it by all they ever run.

    A job that gets other GPUs than it holds spends the seconds of saving, start-up and restore out
    of its slot; one that ends in the slot runs no more than it has left. Rigid jobs get their gang
    or nothing. Rates are those of the best spread; a gang that finds no place for its count takes
    the largest smaller one that has a place.
    """

    name = "dl2-myopic"
    title = "GPU counts with the highest reward of DL2 in the next slot, an exact knapsack"

    @declared_options
    class Options(ReallocationOptions):
        interval_s: Annotated[PositiveDuration, "Length of a slot."] = 1200.0

    def allocate(self, world: World, movable: list[str], pool: GpuPool) -> dict[str, Grant]:
        """Return the counts of the highest reward, within the GPUs of each type and the quotas."""
        rows = Rows(world, movable, pool)
        ways: list[list[tuple[Configuration, Grant]]] = []
        for j, job_id in enumerate(movable):
            own: list[tuple[Configuration, Grant]] = [(Configuration(0.0), ())]
            for counts in by_type(world.options(job_id)):
                for step in range(len(counts.options)):
                    gpus = counts.gpus(step)
                    use = rows.use(j, counts.gpu_type, gpus)
                    cost = -self.reward(world, job_id, counts, step)
                    own.append((Configuration(cost, tuple(use)), counts.down_from(step)))
            ways.append(own)
        chosen = choose([[way for way, _ in own] for own in ways], rows.room).chosen
        return {
            job_id: own[i][1] for job_id, own, i in zip(movable, ways, chosen, strict=True) if i
        }

    def reward(self, world: World, job_id: str, counts: GangCounts, step: int) -> float:
        """Return what the job adds to the reward of the slot with that count: work it does in it by
        its whole work."""
        job, entry = world.job(job_id), world.entry(job_id)
        lost_s, tie = setup_s(job, entry is not None), TIE
        if job_id in world.running and isinstance(entry, Running):
            gpus = counts.gpus(step)
            if held(world, job_id) == (counts.gpu_type if gpus else None, gpus):
                lost_s, tie = entry.setup_s, 2 * TIE
            else:
                lost_s += hold_to_save_s(job)
        work_s = counts.rate(step) * max(0.0, self.interval_s - lost_s)
        return min(work_s, world.remaining_work_s(job_id)) / world.believed_work_s(job_id) + tie
