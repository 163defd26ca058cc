"""Weighted sum of normalised rates."""

from ..model import Instance, Job
from .alone import fastest_s
from .costs import Inverse
from .terms import SumOfJobs


class Throughput(SumOfJobs):
    name = "throughput"
    unit = ""
    title = "minus the sum of normalised rates: sum w fastest run time / (C - submit)"
    shape = Inverse

    def scale(self, instance: Instance, job: Job) -> float:
        return job.weight * fastest_s(instance, job)


TERM = Throughput()
