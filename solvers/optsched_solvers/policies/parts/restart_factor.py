"""By how much a change of what a job holds is discounted, for what the job has lost to restarts."""

from optsched.driver.world import World


def restart_factor(world: World, job_id: str, delay_s: float) -> float:
    """max(age - restarts x delay, 0) / (age + delay), with the seconds since submission as age.

    Source: A. Qiao et al., Pollux, OSDI'21, section 4.2.1; S. Jayaram Subramanya et al., Sia,
    SOSP'23, section 3.3.
    """
    age_s = world.now_s - world.job(job_id).submit_s
    entry = world.entry(job_id)
    restarts = (
        0 if entry is None else entry.preemptions - (job_id in world.waiting)
    )  # that start is still to come
    return max(age_s - restarts * delay_s, 0.0) / (age_s + delay_s) if age_s + delay_s > 0 else 1.0
