"""Weighted squared flow times: a compromise between their mean and their maximum (Bansal and Pruhs,
Server scheduling in the Lp norm, STOC 2003)."""

from .costs import Square
from .terms import Relaxation, SumOfJobs


class SquaredFlow(SumOfJobs):
    name = "flow2"
    unit = "s2"
    title = "weighted squared flow times: sum w (C - submit)^2, for shorter tails"
    relaxation = Relaxation.BUSY_TIME
    shape = Square


TERM = SquaredFlow()
