"""P || sum C: Conway, Maxwell and Miller, Theory of Scheduling, 1967."""


def total_completion(processing: list[float], machines: int) -> float:
    """Least sum of completion times on identical machines: shortest first, one machine after the
    other."""
    free = [0.0] * machines
    total = 0.0
    for k, length in enumerate(sorted(processing)):
        free[k % machines] += length
        total += free[k % machines]
    return total
