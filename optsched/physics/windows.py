"""Windows in which nodes are not there: how long a job must be able to stay where it starts."""

from ..model.job import Job, Mode
from . import hold_to_save_s, run_s, setup_s

SHORTEST_STAY_S = 1.0
"""No job is started for less, unless it is done by then."""


def leaves_saved(job: Job, preemptions: int) -> bool:
    """Return whether a job can save and make way for a window, after so many preemptions."""
    every_s = job.profile.checkpoint_every_s
    is_worn = job.max_preemptions is not None and preemptions >= job.max_preemptions
    return job.preemptible and not is_worn and (every_s is None or every_s < job.work_s)


def least_stay_s(
    job: Job, mode: Mode, rate: float, left_s: float, *, ran_before: bool, preemptions: int
) -> float:
    """Return how long a job with `left_s` of work must be able to stay where it starts.

    That is until it is done, or, if it can save, so long that it works as long as starting and
    saving take, with one checkpoint at least.
    """
    load_s = setup_s(job, ran_before) + job.profile.fetch_s
    whole_s = load_s + run_s(job, mode, left_s, rate)
    if not leaves_saved(job, preemptions):
        return whole_s
    save_s, every_s = hold_to_save_s(job), job.profile.checkpoint_every_s or 0.0
    least_s = max(job.min_run_s + save_s, 2 * (load_s + save_s), load_s + every_s)
    return min(whole_s, max(SHORTEST_STAY_S, least_s))
