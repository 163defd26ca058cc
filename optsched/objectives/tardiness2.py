"""Weighted squared tardiness: one job that is very late counts more than many that are a little."""

from ..model.instance import Instance
from ..model.job import Job
from .costs import Square
from .terms import Relaxation, SumOfJobs


class SquaredTardiness(SumOfJobs):
    name = "tardiness2"
    unit = "s2"
    title = "weighted squared tardiness: sum w max(0, C - deadline)^2"
    relaxation = Relaxation.BUSY_TIME
    shape = Square

    def scale(self, instance: Instance, job: Job) -> float:
        return job.weight

    def origin_s(self, instance: Instance, job: Job) -> float | None:
        return job.deadline_s


TERM = SquaredTardiness()
