"""Maximum lateness."""

from ..model.instance import Instance
from ..model.job import Job
from .costs import Linear
from .terms import RankOfJobs, Relaxation


class Lateness(RankOfJobs):
    name = "lateness"
    unit = "s"
    title = "largest C - deadline"
    relaxation = Relaxation.DUE_DATES
    shape = Linear

    def scale(self, instance: Instance, job: Job) -> float:
        return 1.0

    def origin_s(self, instance: Instance, job: Job) -> float | None:
        return job.deadline_s


TERM = Lateness()
