"""Due dates: when every job must be done where the largest cost is to stay within a value."""

import numpy as np

from ..model import Instance
from ..objectives import Linear, RankOfJobs
from .market import Market
from .terms import chains


class Deadlines:
    """For an objective that is the largest of job costs linear in completion: due dates in seconds
    after now."""

    def __init__(self, instance: Instance, market: Market, term: RankOfJobs) -> None:
        assert term.shape is Linear
        self._counted, cost = term.costs(instance, instance.jobs)
        self._origin_s, self._scale = cost.origin_s - instance.now_s, cost.scale
        self._alone_s = [buyer.alone_s for buyer in market.buyers]
        self._before = chains(instance)[::-1]

    def at(self, value: float) -> list[float]:
        """Return the latest completion of each job that keeps its cost at most `value`, and in time
        for those after it."""
        latest_s = np.full(len(self._alone_s), np.inf)
        latest_s[self._counted] = self._origin_s + value / self._scale
        due_s: list[float] = latest_s.tolist()
        for j, earlier in self._before:
            for i in earlier:
                due_s[i] = min(due_s[i], due_s[j] - self._alone_s[j])
        return due_s
