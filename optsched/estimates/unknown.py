"""Nothing is known of how long jobs are, but for what they have done so far."""

from collections.abc import Sequence

from ..model import Completed, Job

FIRST_GUESS_S = 600.0
"""What a job is believed to be where nothing is known: ten minutes of reference work."""


class Unknown:
    """Every job is believed to be ten minutes of work, then twice that, and so on as it outruns
    each belief. Who submitted what is not looked at either."""

    name = "none"

    def remember(self, past: Sequence[Completed]) -> None:
        """Learn nothing."""

    def work_s(self, job: Job, now_s: float) -> float:
        """Return the same work for all jobs."""
        return FIRST_GUESS_S

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        """Learn nothing."""
