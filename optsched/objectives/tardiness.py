"""Weighted tardiness."""

from .costs import Hinge
from .terms import Relaxation, SumOfJobs


class Tardiness(SumOfJobs):
    name = "tardiness"
    unit = "s"
    title = "weighted tardiness: sum w max(0, C - deadline)"
    relaxation = Relaxation.BUSY_TIME
    origin = "deadline"
    shape = Hinge


TERM = Tardiness()
