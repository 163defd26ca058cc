"""One virtual machine that serves all jobs preemptively, the one with the least left first."""

import math
from heapq import heappop, heappush

ROUNDING_S = 1e-6


class VirtualMachine:
    """Preemptive shortest remaining processing time on one machine with arrivals (Schrage,
    Operations Research 16, 1968). O(log n) for each arrival and completion."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._left: list[tuple[float, int, str]] = []
        self._arrived = 0

    def add(self, job_id: str, work_s: float) -> None:
        """A job arrives now with so much work."""
        heappush(self._left, (work_s, self._arrived, job_id))
        self._arrived += 1

    def advance(self, to_s: float) -> list[str]:
        """Let the time pass; the jobs that the machine completes until then, in order."""
        done = []
        while self._left:
            work_s, arrived, job_id = self._left[0]
            if work_s > to_s - self._now_s + ROUNDING_S:
                heappop(self._left)
                heappush(self._left, (work_s - (to_s - self._now_s), arrived, job_id))
                break
            heappop(self._left)
            self._now_s += work_s
            done.append(job_id)
        self._now_s = max(self._now_s, to_s)
        return done

    def next_s(self) -> float:
        """Return when the machine completes a job if nobody else arrives; infinite when it is
        idle."""
        return self._now_s + self._left[0][0] if self._left else math.inf

    def first(self) -> str | None:
        """Take the job with the least left off the machine; None where it is idle."""
        return heappop(self._left)[2] if self._left else None
