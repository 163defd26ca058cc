"""Lucid's indolent packing: pairs by sharing scores, in the order of estimated GPU time."""

from statistics import fmean

from optsched.driver import World
from optsched.model import Profile
from optsched.physics import sharing_rate

from .parts.pair_sharing import PairPolicy

TINY_RATE, MEDIUM_RATE = 0.95, 0.85
"""Mean rates beside others from which on a job is tiny (score 0) or medium (score 1)."""
CAPACITY = 2
"""The most that the sharing scores of a pair may add up to."""
LONGEST = 2.0
"""A job joins no partner of less than its own estimated GPU time divided by this."""


def sharing_score(profile: Profile) -> int:
    """Return 0 for a job that hardly feels others on its GPUs (tiny), 1 for one that does (medium),
    2 for one that is hurt (jumbo): by its mean measured rate, or that beside its like."""
    measured = [] if profile.sharing is None else list(profile.sharing.partners.values())
    rate = fmean(measured) if measured else sharing_rate(profile, profile)
    return 0 if rate >= TINY_RATE else 1 if rate >= MEDIUM_RATE else CAPACITY


class LucidStyle(PairPolicy):
    """Least estimated GPU time first, without preemption; what does not fit is skipped.

    While the waiting jobs ask for more GPUs than are free, a job joins the first running one on one
    node that has as many GPUs to itself, if the memory holds both, their sharing scores add up to
    no more than 2 and its own GPU time is at most twice that of the other. Else it takes free GPUs.

    Scores and GPU times are known here from the start, where the original profiles each job for a
    while on nodes of their own, and a forecast of arrivals says whether to pack.
    """

    name = "lucid-style"
    title = "least estimated GPU time first; under load pairs whose sharing scores allow it"

    def __init__(self) -> None:
        super().__init__()
        self._crowded = False

    def rank(self, world: World, job_id: str) -> float:
        """Return the GPU-seconds that the whole job is believed to take."""
        return world.believed_work_s(job_id) * world.service_gpus(job_id)

    def decide(self, world: World) -> None:
        """Start who waits, in order, in pairs where there are too few GPUs for all."""
        self._crowded = _asks_for_more(world)
        super().decide(world)

    def _start(self, world: World, job_id: str) -> bool:
        """Start beside a running job, else on free GPUs."""
        return (self._crowded and self._pair(world, job_id)) or super()._start(world, job_id)

    def _pair(self, world: World, job_id: str) -> bool:
        sizes = dict.fromkeys(option.mode.gpus for option in world.options(job_id))
        return any(
            self._suits(world, job_id, partner) and self._join(world, job_id, partner)
            for gpus in sizes
            for partner in self._singles.of(gpus)
        )

    def _suits(self, world: World, job_id: str, partner: str) -> bool:
        own, other = world.profile(job_id), world.profile(partner)
        return (
            len(world.placement(partner)) == 1
            and sharing_score(own) + sharing_score(other) <= CAPACITY
            and self.rank(world, job_id) <= LONGEST * self.rank(world, partner)
        )


def _asks_for_more(world: World) -> bool:
    """Return whether the waiting jobs ask for more GPUs than are free."""
    free = sum(world.free.pool_gpus)
    for job_id in world.waiting:
        free -= world.fewest_gpus(job_id)
        if free < 0:
            return True
    return False
