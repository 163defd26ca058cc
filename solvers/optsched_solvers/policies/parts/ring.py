"""How long a step of a ring-all-reduce job takes, by its workers and by the slowest link of the
ring."""

from dataclasses import dataclass

from optsched.model.job import Elastic, Job
from optsched.physics import Span, locality_rate

SPANS: tuple[Span, ...] = ("node", "rack", "cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Seconds of computing in a step, the gradient in Gbit, and the bandwidth of the slowest link
    by how far the ring is spread; None where exchanging the gradient costs nothing.

    A step is what does one second of reference work at the reference count of workers on one node.
    """

    compute_s: float
    gbit: float
    gbps: dict[Span, float | None]

    def step_s(self, workers: int, spread: Span, crowding: float = 1.0) -> float:
        """compute + 2 m (w - 1) / (w B): each worker sends and receives the gradient twice but for
        its own part.

        `crowding` is by how much what all take of the slowest link exceeds its capacity, at least
        1.
        """
        gbps = self.gbps[spread]
        if gbps is None or workers < 2:
            return self.compute_s
        return self.compute_s + 2 * self.gbit * (workers - 1) / (workers * gbps / crowding)


def ring_of(job: Job) -> Ring:
    """The model that agrees with the job's profile at its reference count, the requested or largest
    one.

    Over racks, alone, a step takes 1 / locality.cluster and is busy with the uplinks for the share
    `network_duty`, at `network_gbps` on average: so computing takes the rest of it, the gradient is
    what is sent, and the bandwidth what is sent by the time it takes. Within a rack and a node a
    step takes as much less as `locality` says. Without `network_gbps` only the difference between
    spans is exchange.
    """
    profile = job.profile
    workers = job.gpus.max if isinstance(job.gpus, Elastic) else job.gpus
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
