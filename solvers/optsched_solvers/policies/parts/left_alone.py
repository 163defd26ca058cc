"""Running jobs that policies of elastic gangs leave as they are."""

from optsched.driver.world import World

from .gpu_pool import GpuPool
from .reallocation import Grant, Reallocation, held


def is_left_alone(world: World, job_id: str) -> bool:
    """Return whether a running job is none of an elastic policy's business: it shares its GPUs, or
    has none."""
    if job_id not in world.running:
        return False
    hold = world.hold(job_id)
    return hold.partner is not None or not any(slot.gpus for slot in hold.placement)


class ElasticReallocation(Reallocation):
    """Base of the policies that give GPUs to gangs of any size and leave alone who shares them."""

    def stays(self, world: World, job_id: str) -> bool:
        """Return whether a running job keeps its GPU type and count, or is none of this policy's
        business."""
        return is_left_alone(world, job_id) or super().stays(world, job_id)

    def set_apart(
        self, world: World, movable: list[str], pool: GpuPool
    ) -> tuple[dict[str, Grant], list[str]]:
        """Return the grants of jobs that are left alone or use no GPUs, and the other jobs."""
        grants: dict[str, Grant] = {}
        jobs = []
        for job_id in movable:
            options = world.options(job_id)
            if is_left_alone(world, job_id):
                grants[job_id] = options
                pool.hold(job_id, *held(world, job_id))
            elif any(option.mode.gpus for option in options):
                jobs.append(job_id)
            else:
                grants[job_id] = options
        return grants, jobs


class SolvedReallocation(ElasticReallocation):
    """Base of those that solve a program in each round."""

    _rounds = _proven = 0

    def facts(self) -> dict[str, float | str]:
        """Return how many rounds there were, and how many were solved to the optimum."""
        return {"rounds": self._rounds, "proven_rounds": self._proven}

    def solved(self, proven: bool) -> None:
        """Count a round."""
        self._rounds += 1
        self._proven += proven
