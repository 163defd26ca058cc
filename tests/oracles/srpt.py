"""1 | r, pmtn | sum C: Schrage, Operations Research 16, 1968."""


def total_completion(processing: list[float], releases: list[float]) -> float:
    """Least sum of completion times on one machine with preemption: shortest remaining time
    first."""
    left = list(processing)
    open_ = set(range(len(left)))
    now, total = min(releases, default=0.0), 0.0
    while open_:
        here = [j for j in open_ if releases[j] <= now]
        later = [releases[j] for j in open_ if releases[j] > now]
        if not here:
            now = min(later)
            continue
        j = min(here, key=lambda j: (left[j], j))
        step = min([left[j]] + [release - now for release in later])
        now += step
        left[j] -= step
        if left[j] <= 1e-12:
            open_.remove(j)
            total += now
    return total
