"""Running jobs that policies of elastic gangs leave as they are."""

from optsched.driver.world import World


def is_left_alone(world: World, job_id: str) -> bool:
    """Whether a running job is none of an elastic policy's business: it shares its GPUs, or has
    none."""
    if job_id not in world.running:
        return False
    hold = world.hold(job_id)
    return hold.partner is not None or not any(slot.gpus for slot in hold.placement)
