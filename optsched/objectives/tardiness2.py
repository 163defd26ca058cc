"""Weighted squared tardiness: one job that is very late counts more than many that are a little."""

from .costs import Square
from .terms import Relaxation, SumOfJobs


class SquaredTardiness(SumOfJobs):
    name = "tardiness2"
    unit = "s2"
    title = "weighted squared tardiness: sum w max(0, C - deadline)^2"
    relaxation = Relaxation.BUSY_TIME
    origin = "deadline"
    shape = Square


TERM = SquaredTardiness()
