"""Windows in which nodes are not there: how long a job must be able to stay where it starts."""

from collections.abc import Iterable

from ..model import Job, Mode, Window
from . import TIME_TOLERANCE_S, hold_to_save_s, run_s, setup_s
from .modes import Option

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


def barred_nodes(
    windows: Iterable[Window],
    job: Job,
    options: Iterable[Option],
    now_s: float,
    left_s: float,
    *,
    ran_before: bool,
    preemptions: int,
) -> frozenset[str]:
    """Return the nodes on which a job that started now would meet a window before it could leave,
    whichever of the options it took."""
    near = [window for window in windows if window.bars(job.tenant, job.user)]
    if not near:
        return frozenset()
    least_s = min(
        least_stay_s(
            job, option.mode, option.rate, left_s, ran_before=ran_before, preemptions=preemptions
        )
        for option in options
    )
    until_s = now_s + least_s - TIME_TOLERANCE_S
    return frozenset(
        name
        for window in near
        if window.to_s > now_s and (window.from_s <= now_s or window.from_s < until_s)
        for name in window.nodes
    )
