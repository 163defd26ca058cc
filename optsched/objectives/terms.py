"""Objectives. There are three kinds, which readers tell apart by an exhaustive `match`.

`SumOfJobs` and `RankOfJobs` combine one cost for each job, a function of its completion (`costs`);
`Usage` adds up what segments use. An objective is a class derived from one of them in a file of
its own, with one `TERM`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Literal, assert_never

from ..errors import InputError
from ..model import Cluster, Instance, Job, Mode, Node, Plan, Segment
from ..physics import power_w
from .costs import JobCost, Numbers
from .tariff import Tariff

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Relaxation(Enum):
    """The preemptive machine that bounds an objective better than each job alone does."""

    NONE = "none"
    BUSY_TIME = "least weighted sum of completions"
    LAST_END = "least last completion"
    DUE_DATES = "least largest lateness, where no job is left out of the quantile"


@dataclass(frozen=True)
class _Base:
    """`quantile` is that of job costs for a `RankOfJobs`, 1 for their maximum. Of jobs of at least
    `priority` the costs count, of all where it is None."""

    name: ClassVar[str]
    unit: ClassVar[str]
    title: ClassVar[str]
    quantile: float = 1.0
    priority: int | None = None


class _OfJobs(_Base):
    """A combination of `shape(scale, origin_s)` over the jobs that count: those of some scale that
    have a deadline, where it counts from that.

    `steady`: the order of jobs by urgency does not change while nothing happens. `is_priced`:
    prices on GPU time bound it, with a certificate. `relative`: costs are ratios of times.
    """

    shape: ClassVar[type[JobCost]]
    origin: ClassVar[Literal["submission", "deadline", "now"]] = "submission"
    relaxation: ClassVar[Relaxation] = Relaxation.NONE
    steady: ClassVar[bool] = False
    relative: ClassVar[bool] = False
    is_priced: ClassVar[bool] = False

    def scale(self, instance: Instance, job: Job) -> float:
        """Return the factor of the job's cost."""
        return 1.0

    def combine(self, costs: Sequence[float]) -> float:
        """Return the value that job costs make together, 0 without any."""
        raise NotImplementedError

    def cost(self, instance: Instance, job: Job) -> JobCost | None:
        """Return the cost of a job; None where it does not count."""
        (origin_s,), scale = self._origins_s(instance, (job,)), self._scale(instance, job)
        return None if origin_s is None or not scale else self.shape(scale, origin_s)

    def costs(self, instance: Instance, jobs: Sequence[Job]) -> "tuple[NDArray[np.int64], JobCost]":
        """Return the positions of the jobs that count, and their costs as arrays."""
        import numpy as np

        of = self.scale if self.priority is None else self._scale
        scale = np.array([of(instance, job) for job in jobs], np.float64)
        origin = np.array(self._origins_s(instance, jobs), np.float64)
        which = np.flatnonzero((scale > 0) & ~np.isnan(origin))
        return which, self.shape(scale[which], origin[which])

    def _scale(self, instance: Instance, job: Job) -> float:
        counts = self.priority is None or job.priority >= self.priority
        return self.scale(instance, job) if counts else 0.0

    def _origins_s(self, instance: Instance, jobs: Sequence[Job]) -> Sequence[float | None]:
        match self.origin:
            case "submission":
                return [job.submit_s for job in jobs]
            case "deadline":
                return [job.deadline_s for job in jobs]
            case "now":
                return [instance.now_s] * len(jobs)
            case _:
                assert_never(self.origin)

    def changes(self, cluster: Cluster) -> bool:
        """Return whether the round values jobs in another order while nothing happens."""
        return not self.steady

    def value(self, instance: Instance, plan: Plan) -> float:
        """Return the value in a plan that completes every job."""
        ends = ((self.cost(instance, instance.job[entry.id]), entry) for entry in plan.jobs)
        return self.combine([cost.at(entry.completion_s) for cost, entry in ends if cost])


class SumOfJobs(_OfJobs):
    def scale(self, instance: Instance, job: Job) -> float:
        return job.weight

    def combine(self, costs: Sequence[float]) -> float:
        return math.fsum(costs)


class RankOfJobs(_OfJobs):
    """The q-quantile of n job costs is the ceil(q n)-th smallest; the 1-quantile is the maximum."""

    def rank(self, jobs: int) -> int:
        """Return how many of `jobs` jobs must lie at or below the quantile."""
        return max(1, math.ceil(self.quantile * jobs - 1e-9))

    def combine(self, costs: Sequence[float]) -> float:
        return sorted(costs)[self.rank(len(costs)) - 1] if costs else 0.0


class Usage(_Base):
    """The power of GPUs (in W) or their cost (in price per hour), divided by `per`, times what a
    unit costs at the time: the field of the cluster that `over_time` names; without one always 1.
    """

    meter: ClassVar[Literal["power", "price"]]
    per: ClassVar[float]
    over_time: ClassVar[Literal["carbon_g_per_kwh", "energy_price_per_kwh"] | None] = None

    def combine(self, costs: Sequence[float]) -> float:
        """Return the value that what jobs use makes together."""
        return math.fsum(costs)

    def tariff(self, cluster: Cluster) -> Tariff:
        """Return what a unit costs over time. Raises InputError where the cluster does not say."""
        if self.over_time is None:
            return Tariff()
        rates = getattr(cluster, self.over_time)
        if rates is None:
            raise InputError(
                f"objective {self.name} needs cluster.{self.over_time}, a number or "
                "[[instant, number], ...]"
            )
        return Tariff.of(rates)

    def changes(self, cluster: Cluster) -> bool:
        """Return whether it matters when something is held."""
        return not self.tariff(cluster).is_constant

    def per_s(self, power_w: Numbers, price_per_h: Numbers) -> Numbers:
        """Return the units a second that a power or a price stands for."""
        match self.meter:
            case "power":
                return power_w / self.per
            case "price":
                return price_per_h / self.per
            case _:
                assert_never(self.meter)

    def rate(self, job: Job, mode: Mode, node: Node, gpus: int) -> float:
        """Return the units a second that so many GPUs of a node take."""
        watts = power_w(job, mode, node.gpu_type, gpus)
        return float(self.per_s(watts, node.gpu_price_per_h * gpus))

    def is_alike(self, nodes: Iterable[Node]) -> bool:
        """Return whether a GPU uses as much on each of `nodes`, which have GPUs of one type."""
        return len({self.per_s(0.0, node.gpu_price_per_h) for node in nodes}) <= 1

    def segment_cost(self, instance: Instance, job: Job, segment: Segment) -> float:
        """Return the cost of one segment."""
        node = instance.cluster.node
        rate = sum(
            self.rate(job, segment.mode, node[slot.node], slot.gpus) for slot in segment.placement
        )
        tariff = self.tariff(instance.cluster)
        cost: float = rate * tariff.integral(segment.start_s, segment.end_s - segment.start_s)
        return cost

    def value(self, instance: Instance, plan: Plan) -> float:
        """Return the value in a plan that completes every job."""
        return math.fsum(
            self.segment_cost(instance, instance.job[entry.id], segment)
            for entry in plan.jobs
            for segment in entry.segments
        )


Term = SumOfJobs | RankOfJobs | Usage
