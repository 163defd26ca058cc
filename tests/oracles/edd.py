"""1 || Lmax: Jackson, Scheduling a production line to minimize maximum tardiness, 1955."""


def largest_lateness(processing: list[float], due: list[float]) -> float:
    """Least largest lateness on one machine, all jobs there from 0: earliest due date first."""
    now, worst = 0.0, float("-inf")
    for j in sorted(range(len(due)), key=lambda j: due[j]):
        now += processing[j]
        worst = max(worst, now - due[j])
    return worst
