"""Weighted flow time: total weighted completion, counted from submission."""

from ..model.instance import Instance
from ..model.job import Job
from .costs import Linear
from .terms import Relaxation, SumOfJobs


class WeightedCompletion(SumOfJobs):
    name = "wct"
    unit = "s"
    title = "weighted completion times, counted from submission: sum w (C - submit)"
    since_submission = True
    steady = True
    relaxation = Relaxation.BUSY_TIME
    is_priced = True
    shape = Linear

    def scale(self, instance: Instance, job: Job) -> float:
        return job.weight


TERM = WeightedCompletion()
