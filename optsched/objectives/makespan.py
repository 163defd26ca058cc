"""The last completion."""

from ..model.instance import Instance
from ..model.job import Job
from .costs import Linear
from .terms import RankOfJobs, Relaxation


class Makespan(RankOfJobs):
    name = "makespan"
    unit = "s"
    title = "last completion, counted from now"
    steady = True
    relaxation = Relaxation.LAST_END
    is_priced = True
    shape = Linear

    def scale(self, instance: Instance, job: Job) -> float:
        return 1.0

    def origin_s(self, instance: Instance, job: Job) -> float | None:
        return instance.now_s


TERM = Makespan()
