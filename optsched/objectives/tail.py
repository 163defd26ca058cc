"""A quantile of flow times."""

from dataclasses import dataclass

from ..model.instance import Instance
from ..model.job import Job
from .costs import Linear
from .terms import RankOfJobs, Relaxation


@dataclass(frozen=True)
class Tail(RankOfJobs):
    name = "tail"
    unit = "s"
    title = "quantile of C - submit; tail:0.9 for another than 0.99"
    since_submission = True
    relaxation = Relaxation.DUE_DATES
    shape = Linear
    quantile: float = 0.99

    def scale(self, instance: Instance, job: Job) -> float:
        return 1.0


TERM = Tail()
