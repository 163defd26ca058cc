"""The Gittins index of a job by the GPU service that completed jobs took."""

import math
from bisect import bisect_right
from itertools import accumulate


class ServiceDistribution:
    """Empirical distribution of the GPU service of jobs."""

    def __init__(self, services_gpu_s: list[float]) -> None:
        self._sorted = sorted(services_gpu_s)
        self._sums = [0.0, *accumulate(self._sorted)]

    def index(self, attained_gpu_s: float, step_gpu_s: float) -> float:
        """P(S - a <= step | S > a) / E[min(S - a, step) | S > a] of a job that has had a: how
        likely it is to complete for each GPU-second that it gets. 0 where no job took longer than
        a, or none ends within the step."""
        first = bisect_right(self._sorted, attained_gpu_s)
        beyond = bisect_right(self._sorted, attained_gpu_s + step_gpu_s)
        if first == len(self._sorted) or beyond == first:
            return 0.0
        spent = self._sums[beyond] - self._sums[first] - (beyond - first) * attained_gpu_s
        spent += (len(self._sorted) - beyond) * step_gpu_s
        return (beyond - first) / spent if spent > 0 else math.inf
