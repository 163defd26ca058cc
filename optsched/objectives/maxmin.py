"""Max-min fairness of normalised rates."""

from ..model import Instance, Job
from .alone import fastest_s
from .costs import Inverse
from .terms import RankOfJobs


class MaxMin(RankOfJobs):
    name = "maxmin"
    unit = ""
    title = "minus the smallest normalised rate: fastest run time / (C - submit)"
    relative = True
    shape = Inverse

    def scale(self, instance: Instance, job: Job) -> float:
        return fastest_s(instance, job)


TERM = MaxMin()
