"""The time of a step of ring-all-reduce by its workers and the slowest link of the ring, and the
workers of each ring for one slot."""

from collections.abc import Mapping, Sequence

from optsched.frozen import frozen
from optsched.model import Job, most_gpus
from optsched.physics import Span, locality_rate

from .configuration_choice import Configuration, choose

SPANS: tuple[Span, ...] = ("node", "rack", "cluster")


@frozen
class Ring:
    """Seconds of computing in a step, the gradient in Gbit, and the bandwidth of the slowest link
    by how far the ring is spread; None where exchanging the gradient costs nothing.

    A step is what does one second of reference work at the reference count of workers on one node.
    """

    compute_s: float
    gbit: float
    gbps: dict[Span, float | None]

    def step_s(self, workers: int, spread: Span, crowding: float = 1.0) -> float:
        """Return compute + 2 m (w - 1) / (w B): each worker sends and receives the gradient twice
        but for its own part.

        `crowding` is by how much what all take of the slowest link exceeds its capacity, at least
        1.
        """
        gbps = self.gbps[spread]
        if gbps is None or workers < 2:
            return self.compute_s
        return self.compute_s + 2 * self.gbit * (workers - 1) / (workers * gbps / crowding)


def ring_of(job: Job) -> Ring:
    """Return the model that agrees with the job's profile at its reference count, the requested or
    largest one.

    Over racks, alone, a step takes 1 / locality.cluster and is busy with the uplinks for the share
    `network_duty`, at `network_gbps` on average: so computing takes the rest of it, the gradient is
    what is sent, and the bandwidth what is sent by the time it takes. Within a rack and a node a
    step takes as much less as `locality` says. Without `network_gbps` only the difference between
    spans is exchange.
    """
    profile = job.profile
    workers = most_gpus(job)
    rates = {spread: locality_rate(profile, spread) for spread in SPANS}
    step_s = {spread: 1.0 / rate for spread, rate in rates.items() if rate > 0}
    fastest_s = min(step_s.values(), default=1.0)
    compute_s = fastest_s
    if profile.network_gbps and "cluster" in step_s:
        compute_s = min(fastest_s, (1 - profile.network_duty) * step_s["cluster"])
    if workers < 2:
        return Ring(compute_s=fastest_s, gbit=0.0, gbps=dict.fromkeys(SPANS))
    around = (workers - 1) / workers
    gbit = (
        profile.network_gbps * step_s.get("cluster", 1.0) / (2 * around)
        if profile.network_gbps
        else 1.0
    )
    gbps: dict[Span, float | None] = {}
    for spread in SPANS:
        exchange_s = step_s.get(spread, fastest_s) - compute_s
        gbps[spread] = 2 * gbit * around / exchange_s if exchange_s > 0 else None
    return Ring(compute_s=compute_s, gbit=gbit, gbps=gbps)


Choice = tuple[str | None, int, float]
"""GPU type, workers, gain of utility."""


def most_utility(
    choices: Sequence[Sequence[Choice]], gpus: Mapping[str | None, int]
) -> list[int | None]:
    """Return at most one choice for each job, with the largest sum of gains within the GPUs of each
    type."""
    row = {gpu_type: k for k, gpu_type in enumerate(gpus)}
    jobs = [
        [
            Configuration(0.0),
            *(Configuration(-gain, ((row[kind], workers),)) for kind, workers, gain in choice),
        ]
        for choice in choices
    ]
    return [i - 1 if i else None for i in choose(jobs, [*gpus.values()]).chosen]
