"""Weighted number of late jobs."""

from ..model.instance import Instance
from ..model.job import Job
from .costs import Step
from .terms import SumOfJobs


class MissedDeadlines(SumOfJobs):
    name = "deadline"
    unit = ""
    title = "weight of the jobs that miss their deadline"
    shape = Step

    def scale(self, instance: Instance, job: Job) -> float:
        return job.weight

    def origin_s(self, instance: Instance, job: Job) -> float | None:
        return job.deadline_s


TERM = MissedDeadlines()
