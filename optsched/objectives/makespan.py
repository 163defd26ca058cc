"""The last completion."""

from .costs import Linear
from .terms import RankOfJobs, Relaxation


class Makespan(RankOfJobs):
    name = "makespan"
    unit = "s"
    title = "last completion, counted from now"
    steady = True
    relaxation = Relaxation.LAST_END
    is_priced = True
    origin = "now"
    shape = Linear


TERM = Makespan()
