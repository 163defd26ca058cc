"""Finish-time fairness (Mahajan et al., Themis, NSDI 2020)."""

from ..model import Instance, Job
from .alone import isolated_s
from .costs import Linear
from .terms import RankOfJobs


class FinishTimeFairness(RankOfJobs):
    name = "ftf"
    unit = ""
    title = "largest finish-time fairness: (C - submit) / time with 1/n of the cluster"
    relative = True
    is_priced = True
    shape = Linear

    def scale(self, instance: Instance, job: Job) -> float:
        return 1.0 / isolated_s(instance, job)


TERM = FinishTimeFairness()
