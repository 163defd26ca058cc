"""1 || sum U: Moore, Management Science 15, 1968."""

import heapq


def late_jobs(processing: list[float], due: list[float]) -> int:
    """Fewest late jobs on one machine: by due date, and drop the longest job so far whenever one is
    late."""
    now, late = 0.0, 0
    kept: list[float] = []
    for j in sorted(range(len(due)), key=lambda j: due[j]):
        heapq.heappush(kept, -processing[j])
        now += processing[j]
        if now > due[j]:
            now += heapq.heappop(kept)
            late += 1
    return late
