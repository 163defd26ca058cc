"""P | pmtn | Cmax: McNaughton, Scheduling with deadlines and loss functions, 1959."""


def makespan(processing: list[float], machines: int) -> float:
    """Least makespan on identical machines with preemption: the mean load or the longest job."""
    return max(sum(processing) / machines, max(processing, default=0.0))
