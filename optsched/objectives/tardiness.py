"""Weighted tardiness."""

from ..model.instance import Instance
from ..model.job import Job
from .costs import Hinge
from .terms import Relaxation, SumOfJobs


class Tardiness(SumOfJobs):
    name = "tardiness"
    unit = "s"
    title = "weighted tardiness: sum w max(0, C - deadline)"
    relaxation = Relaxation.BUSY_TIME
    shape = Hinge

    def scale(self, instance: Instance, job: Job) -> float:
        return job.weight

    def origin_s(self, instance: Instance, job: Job) -> float | None:
        return job.deadline_s


TERM = Tardiness()
