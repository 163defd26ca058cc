"""Weighted flow time: total weighted completion, counted from submission."""

from .costs import Linear
from .terms import Relaxation, SumOfJobs


class WeightedCompletion(SumOfJobs):
    name = "wct"
    unit = "s"
    title = "weighted completion times, counted from submission: sum w (C - submit)"
    steady = True
    relaxation = Relaxation.BUSY_TIME
    is_priced = True
    shape = Linear


TERM = WeightedCompletion()
