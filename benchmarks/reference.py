"""What compares across machines: how many functions some work calls, and, less well, its time
relative to that of a reference loop in the same process."""

import cProfile
import math
import time
from collections.abc import Callable
from heapq import heappop, heappush

EVENTS = 200_000


def kernel_us() -> float:
    """Microseconds for one push and half a pop of a heap, the best of three."""
    best = math.inf
    for _ in range(3):
        start_s = time.process_time()
        heap: list[tuple[int, int]] = []
        for i in range(EVENTS):
            heappush(heap, (i * 7919 % 100_003, i))
            if i & 1:
                heappop(heap)
        best = min(best, time.process_time() - start_s)
    return best / EVENTS * 1e6


def calls(work: Callable[..., object], *arguments: object) -> int:
    """Return how many functions `work` calls, Python's and built-in ones, however busy the machine
    is. What happens within one call of numpy or of a solver counts once."""
    profile = cProfile.Profile()
    profile.runcall(work, *arguments)
    return sum(entry.callcount for entry in profile.getstats())
