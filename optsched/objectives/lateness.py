"""Maximum lateness."""

from .costs import Linear
from .terms import RankOfJobs, Relaxation


class Lateness(RankOfJobs):
    name = "lateness"
    unit = "s"
    title = "largest C - deadline"
    relaxation = Relaxation.DUE_DATES
    origin = "deadline"
    shape = Linear


TERM = Lateness()
