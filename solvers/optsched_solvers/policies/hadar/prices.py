"""What a GPU costs in a round, and what it is worth to a job to be done at some time."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from optsched.driver.world import World
from optsched.physics import gpu_type_rate
from optsched.physics.modes import Option


@dataclass(frozen=True, slots=True)
class Prices:
    """The lowest and the highest price of a GPU of each type; types that nobody can use cost
    nothing."""

    low: dict[str | None, float]
    high: dict[str | None, float]
    known: dict[tuple[str | None, int, int], float] = field(default_factory=dict)

    def of(self, gpu_type: str | None, held: int, gpus: int) -> float:
        """The price of one GPU of a node that has `gpus`, of which `held` are given away:
        low (high / low)^(held / gpus)."""
        key = gpu_type, held, gpus
        if key not in self.known:
            low = self.low.get(gpu_type, 0.0)
            self.known[key] = low * (self.high[gpu_type] / low) ** (held / gpus) if low > 0 else 0.0
        return self.known[key]


@dataclass(frozen=True, slots=True)
class Utility:
    """What it is worth that a job is done: its weight divided by the time from its submission to
    its completion, in hours; with `relative` times its run time at its fastest, so that a job that
    never waits is worth its weight."""

    relative: bool

    def of(self, world: World, job_id: str, seconds: float) -> float:
        """The utility of a job that is done in `seconds` from now."""
        job = world.job(job_id)
        hours = max(world.now_s - job.submit_s + seconds, 1e-6) / 3600.0
        if not self.relative:
            return job.weight / hours
        return (
            job.weight * world.believed_work_s(job_id) / world.fastest(job_id).rate / 3600.0 / hours
        )


def rate_on(world: World, job_id: str, option: Option, gpu_type: str | None) -> float:
    """The rate of an option were it on GPUs of another type; 0 where the job cannot use them."""
    job = world.job(job_id)
    if option.mode.gpu_type == gpu_type:
        return option.rate
    if job.modes:
        return 0.0
    return (
        option.rate
        * gpu_type_rate(job.profile, gpu_type)
        / gpu_type_rate(job.profile, option.mode.gpu_type)
    )


def best_rate(world: World, job_id: str) -> float:
    """The rate of the fastest option, or of the same on a faster type that has too few GPUs for the
    gang."""
    option = world.fastest(job_id)
    if not option.mode.gpus:
        return option.rate
    return max(rate_on(world, job_id, option, gpu_type) for gpu_type in world.cluster.gpu_types)


def prices(world: World, jobs: Iterable[str], eta: float, utility: Utility) -> Prices:
    """Prices by what the jobs that want GPUs gain from each.

    The highest price of a type is the largest utility of a job for each of its GPUs if it ran there
    at once, the lowest the least of a job that ran there after all others, divided by 4 eta: an
    empty node is cheap enough for all, a full one too dear for any.
    """
    cluster = world.cluster
    wanted = [
        job_id
        for job_id in jobs
        if world.job(job_id).weight > 0 and world.fastest(job_id).mode.gpus
    ]
    best = {job_id: world.fastest(job_id) for job_id in wanted}
    queued_s = sum(
        option.mode.gpus * world.remaining_work_s(job_id) / option.rate
        for job_id, option in best.items()
    ) / max(1, cluster.total_gpus)
    low: dict[str | None, float] = {}
    high: dict[str | None, float] = {}
    for job_id, option in best.items():
        fewest = max(1, min(one.mode.gpus for one in world.options(job_id)))
        for gpu_type in cluster.gpu_types:
            speed = rate_on(world, job_id, option, gpu_type)
            if speed > 0:
                run_s = world.remaining_work_s(job_id) / speed
                soon = utility.of(world, job_id, run_s) / fewest
                late = utility.of(world, job_id, queued_s + run_s) / option.mode.gpus / (4.0 * eta)
                high[gpu_type] = max(high.get(gpu_type, 0.0), soon)
                low[gpu_type] = min(low.get(gpu_type, late), late)
    return Prices(low, high)
