"""Weighted squared flow times, whose order is that of their l2 norm: between the mean and the
longest (Bansal and Pruhs, Server scheduling in the Lp norm, STOC 2003)."""

from .costs import Square
from .terms import Relaxation, SumOfJobs


class SquaredFlow(SumOfJobs):
    name = "flow2"
    unit = "s2"
    title = "weighted squared flow times: sum w (C - submit)^2, for shorter tails"
    relaxation = Relaxation.BUSY_TIME
    shape = Square


TERM = SquaredFlow()
