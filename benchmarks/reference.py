"""A reference loop: times relative to its time, in the same process, compare across machines."""

import math
import time
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
