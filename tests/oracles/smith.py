"""1 || sum w C: Smith, Various optimizers for single-stage production, 1956."""


def weighted_completion(processing: list[float], weights: list[float]) -> float:
    """Least sum of weight x completion time on one machine, all jobs there from 0: largest w / p
    first."""
    jobs = zip(processing, weights, strict=True)
    ratios = [length / weight if weight else float("inf") for length, weight in jobs]
    now, total = 0.0, 0.0
    for j in sorted(range(len(ratios)), key=lambda j: ratios[j]):
        now += processing[j]
        total += weights[j] * now
    return total
