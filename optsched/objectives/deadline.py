"""Weighted number of late jobs."""

from .costs import Step
from .terms import SumOfJobs


class MissedDeadlines(SumOfJobs):
    name = "deadline"
    unit = ""
    title = "weight of the jobs that miss their deadline"
    origin = "deadline"
    shape = Step


TERM = MissedDeadlines()
