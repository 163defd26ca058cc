"""HadarE: Hadar, with copies of jobs on what would stay idle."""

from optsched.driver import World
from optsched.driver.mixed import mixed_option
from optsched.model import Elastic, Job
from optsched.physics import gang_sizes

from ..parts.gang_placement import first_gpus
from .places import Way, with_gpus
from .rounds import LATER, Hadar, Round, Share


class HadarE(Hadar):
    """Hadar for the smallest count of each elastic job; then, in the same order, copies of these on
    all GPUs left.

    A job with copies is an elastic one: each count beyond its smallest is so many GPUs more, on any
    nodes and types, as long as it ends earlier by it. Where its copies work on their own and only
    join their progress now and then, its profile says `mixing` "sum", so that the rate is that of
    all its GPUs, each at the pace of its type; what joining costs is in its rates by GPU count
    (`profile.gpus`). Otherwise all go at the pace of the slowest. Copies are given up at the next
    round where others want their GPUs. Rigid jobs cannot be copied.
    """

    name = "hadare"
    title = "hadar, with copies of elastic jobs on GPUs of any type that would stay idle"

    def share_out(self, world: World, now: Round, order: list[str]) -> None:
        """Give every job its smallest count by payoff, then copies in the same order."""
        for job_id in order:
            if not self._shrinks(world, now, job_id):
                self.take_best(world, now, job_id)
        for job_id in order:
            if job_id in now.shares and _may_grow(world.job(job_id)):
                self._grow(world, now, job_id)

    def ways(self, world: World, now: Round, job_id: str) -> tuple[Way, ...]:
        """Return the ways of the smallest count."""
        ways = super().ways(world, now, job_id)
        if not _may_grow(world.job(job_id)):
            return ways
        fewest = min(way.gpus for way in ways)
        return tuple(way for way in ways if way.gpus == fewest)

    def _shrinks(self, world: World, now: Round, job_id: str) -> bool:
        """Keep the place of the smallest count among the GPUs that a running job holds, if it has
        copies."""
        job = world.job(job_id)
        if job_id not in world.running or not isinstance(job.gpus, Elastic) or not _may_grow(job):
            return False
        placement = world.placement(job_id)
        gpus_on = first_gpus(job.gpus.min, ((slot.node, slot.gpus) for slot in placement))
        if gpus_on is None or sum(slot.gpus for slot in placement) == job.gpus.min:
            return False
        option, place = mixed_option(world, job_id, world.options(job_id)[0], gpus_on)
        if not now.room.holds(world.need(job_id, option), place):
            return False
        done_s = world.expected_run_s(job_id, option, place)
        self.take(
            world, now, job_id, Share(option, place, self.utility.of(world, job_id, done_s), done_s)
        )
        return True

    def _grow(self, world: World, now: Round, job_id: str) -> None:
        """Add copies while the job ends earlier by them."""
        share = now.shares.pop(job_id)
        now.room.give(share.need(world, job_id), share.placement, finished=False)
        now.shelves.changed(share.placement)
        best = self._keeping(world, now, job_id)
        if best is None or best.done_s * LATER > share.done_s:
            best = share
        job = world.job(job_id)
        ways = {
            way.gpus: way for way in reversed(super().ways(world, now, job_id))
        }  # of one count the fastest
        for gpus in sorted(gang_sizes(job), reverse=True):
            way = ways.get(gpus) or with_gpus(next(iter(ways.values())), gpus)
            for larger, _ in self.places(world, now, job_id, way, free=True):
                if larger.done_s * LATER < best.done_s:
                    best = larger
        self.take(world, now, job_id, best)


def _may_grow(job: Job) -> bool:
    return isinstance(job.gpus, Elastic) and not job.modes and job.gpus.min < job.gpus.max
