"""What is known of the length of a job is right but for a random factor."""

import math
from collections.abc import Sequence
from hashlib import blake2b
from statistics import NormalDist

from ..model import Completed, Job

NORMAL = NormalDist()


class Noisy:
    """A job is believed to be its own work times a log-normal factor with median 1 and standard
    deviation `sigma` of the logarithm.

    The factor depends on the seed and the job's id only. Attempts that will fail are not foreseen.
    """

    def __init__(self, sigma: float, seed: int = 0) -> None:
        self.name = f"noisy:{sigma:g}"
        self._sigma = sigma
        self._seed = seed

    def remember(self, past: Sequence[Completed]) -> None:
        """Learn nothing."""

    def work_s(self, job: Job, now_s: float) -> float:
        """Return the work times the job's factor."""
        return job.work_s * math.exp(self._sigma * NORMAL.inv_cdf(self._level(job.id)))

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        """Learn nothing."""

    def _level(self, job_id: str) -> float:
        """Return a level, uniform in (0, 1)."""
        digest = blake2b(f"{self._seed} {job_id}".encode(), digest_size=8).digest()
        return ((int.from_bytes(digest) >> 12) + 0.5) / 2**52
