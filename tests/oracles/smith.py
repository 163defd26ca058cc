"""1 || sum w C: Smith, Various optimizers for single-stage production, 1956."""


def weighted_completion(processing: list[float], weights: list[float]) -> float:
    """Least sum of weight x completion time on one machine, all jobs there from 0: largest w / p first."""
    order = sorted(range(len(processing)), key=lambda j: processing[j] / weights[j] if weights[j] else float("inf"))
    now, total = 0.0, 0.0
    for j in order:
        now += processing[j]
        total += weights[j] * now
    return total
