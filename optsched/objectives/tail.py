"""A quantile of flow times."""

from dataclasses import dataclass

from .costs import Linear
from .terms import RankOfJobs, Relaxation


@dataclass(frozen=True)
class Tail(RankOfJobs):
    name = "tail"
    unit = "s"
    title = "quantile of C - submit; tail:0.9 for another than 0.99"
    relaxation = Relaxation.DUE_DATES
    shape = Linear
    quantile: float = 0.99


TERM = Tail()
