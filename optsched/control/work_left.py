"""How much reference work a job has to do yet, from what its attempt reports or else from the time
it has run."""

from ..executors.base import Progress
from ..physics import lost_s
from .journal.state import Attempt
from .submission import Submission

FEWEST_STEPS = 3
"""So many steps make a measured pace."""
OVERRUN = 0.2
"""A job that has done more than it was believed to have is taken to need this share of what it has
done again."""


def work_left_s(
    submission: Submission,
    attempt: Attempt,
    progress: Progress | None,
    now_s: float,
    *,
    saved: bool | None = None,
) -> float:
    """Return the reference work (seconds at rate 1) to do at `now_s`, Unix time.

    `saved` None: the attempt goes on, and all it has done counts. True: it has saved and stopped.
    False: it was ended otherwise, and only what its checkpoints hold counts.

    Where the command reports its steps and how many there are, what is left are the steps to do at
    the pace measured; else the time it has run, its set-up excepted, counts at the rate of its
    mode.
    """
    total = None if progress is None else progress.total_steps or submission.total_steps
    if progress is not None and total:
        return _by_steps(attempt, progress, total, saved, now_s)
    began_s = attempt.started_s
    if began_s is None:
        return attempt.work_s
    productive_s = max(0.0, now_s - began_s - attempt.setup_s)
    if saved is False:
        job = submission.job
        if job.profile.checkpoint_every_s is None:
            return attempt.work_s
        productive_s -= lost_s(job, productive_s)
    done_s = productive_s * attempt.rate
    return max(attempt.work_s - done_s, OVERRUN * done_s)


def _by_steps(
    attempt: Attempt, progress: Progress, total: int, saved: bool | None, now_s: float
) -> float:
    steps = progress.step
    if saved is not None and (saved is False or progress.saved_step is not None):
        steps = progress.first_step if progress.saved_step is None else progress.saved_step
    to_do = max(0, total - steps)
    measured = progress.step - progress.first_step
    if (
        measured >= FEWEST_STEPS
        and progress.began_s is not None
        and progress.at_s > progress.began_s
    ):
        took_s = progress.at_s - progress.began_s
        if attempt.started_s is not None:  # else told by a clock that has jumped
            took_s = min(took_s, max(0.0, now_s - attempt.started_s))
        return to_do * took_s / measured * attempt.rate
    if total > progress.first_step:
        return attempt.work_s * to_do / (total - progress.first_step)
    return attempt.work_s
