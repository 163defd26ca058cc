"""What limits changes of elastic jobs: how fast they may grow, and what restarts have cost them."""

from collections.abc import Iterable

from optsched.driver import World


class Growth:
    """The most GPUs that each job has had when this was last noted."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def note(self, world: World, jobs: Iterable[str]) -> None:
        """Look at what the jobs hold, and forget all others."""
        most = {}
        for job_id in jobs:
            placement = world.placement(job_id) if job_id in world.running else ()
            most[job_id] = max(self._most.get(job_id, 0), sum(slot.gpus for slot in placement))
        self._most = most

    def limit(self, job_id: str, fewest: int) -> int:
        """Return the most GPUs for a job that cannot run on less than `fewest`."""
        return max(2 * self._most.get(job_id, 0), fewest)


def restart_factor(world: World, job_id: str, delay_s: float) -> float:
    """Return max(age - restarts x delay, 0) / (age + delay), with the seconds since submission as
    age.

    Source: A. Qiao et al., Pollux, OSDI'21, section 4.2.1; S. Jayaram Subramanya et al., Sia,
    SOSP'23, section 3.3.
    """
    age_s = world.now_s - world.job(job_id).submit_s
    entry = world.entry(job_id)
    restarts = (
        0 if entry is None else entry.preemptions - (job_id in world.waiting)
    )  # that start is still to come
    return max(age_s - restarts * delay_s, 0.0) / (age_s + delay_s) if age_s + delay_s > 0 else 1.0
