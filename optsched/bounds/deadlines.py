"""When every job must be done where the largest cost is to stay within a value."""

import math

from ..model.instance import Instance
from ..objectives import Linear, RankOfJobs
from .market import Market
from .terms import chains


class Deadlines:
    """For an objective that is the largest of job costs linear in completion: due dates in seconds
    after now."""

    def __init__(self, instance: Instance, market: Market, term: RankOfJobs) -> None:
        assert term.shape is Linear
        costs = [term.cost(instance, job) for job in instance.jobs]
        self._origin_s = [
            math.inf if cost is None else cost.origin_s - instance.now_s for cost in costs
        ]
        self._per_s = [1.0 if cost is None else cost.scale for cost in costs]
        self._alone_s = [one.alone_s for one in market.buyers]
        self._before = chains(instance)[::-1]

    def at(self, value: float) -> list[float]:
        """Return the latest completion of each job that keeps its cost at most `value`, and in time
        for those after it."""
        due = [
            origin + value / per_s
            for origin, per_s in zip(self._origin_s, self._per_s, strict=True)
        ]
        for j, earlier in self._before:
            for i in earlier:
                due[i] = min(due[i], due[j] - self._alone_s[j])
        return due
