"""Apathetic Future Share: GPUs go to the shorter or the longer of two jobs by what it gains."""

from optsched.driver import World

from .parts.gang_counts import Allotment, GangCounts
from .parts.gpu_pool import GpuPool
from .parts.reallocation import ElasticReallocation, Grant, ReallocationOptions, types_of


class Share(Allotment):
    """What a job of `work_s` has been given so far.

    `left_s` is the time that it then still needs; `gain` and `loss` are the gain of its next step
    for each GPU relative to the rate before and after it.
    """

    def __init__(self, job_id: str, work_s: float, types: list[GangCounts]) -> None:
        super().__init__(job_id, types)
        self.work_s = work_s
        self.grows = False
        self.left_s = self.gain = self.loss = 0.0
        self.first_s = work_s / max(counts.rate(0) for counts in types) if types else 0.0

    def measure(self) -> None:
        """Compute what the next step would bring."""
        before, after = self.rates()
        self.left_s = self.work_s / before
        self.grows = after > before
        if self.grows:
            gpus = self.next_gpus()
            self.gain, self.loss = (after - before) / before / gpus, (after - before) / after / gpus


def first(shares: list[Share]) -> Share:
    """Return who gets the next step: each is compared with the best of those before it."""
    best = shares[0]
    for share in shares[1:]:
        if share.left_s < best.left_s:
            if share.gain > best.loss:
                best = share
        elif not best.gain > share.loss:
            best = share
    return best


class Afs(ElasticReallocation):
    """At each interval all GPUs are given out step by step, each to the job that comes out of
    comparing one after the other: of a shorter job with rate p and a longer one with rate q the
    shorter gets the step if (p' - p) / p > (q' - q) / q', else the longer, p' and q' being the
    rates one step on.

    Shorter is who would be done first with what it has been given so far. Jobs without GPUs come
    before those that have some, in the order in which they would be done with their fewest. Gains
    are for each GPU of a step. A job whose next step is not faster takes no more; one that finds no
    GPUs for its step leaves the comparison. Of several GPU types a job goes to the one on which its
    fewest GPUs are fastest, of those with as many left; one that runs keeps its type while it can.

    The paper decides at arrivals and completions; here it is at each interval.

    Source: C. Hwang et al., Elastic resource sharing for distributed deep learning, NSDI'21,
    section 4 (AFS-L).
    """

    name = "afs"
    title = (
        "elastic jobs get GPUs one by one by comparing the shorter job's gain with the longer one's"
    )

    Options = ReallocationOptions

    def allocate(self, world: World, movable: list[str], pool: GpuPool) -> dict[str, Grant]:
        """Grant everybody's first step in the order of length, then step by step to whoever the
        comparison names."""
        grants, jobs = self.set_apart(world, movable, pool)
        shares = []
        for job_id in jobs:
            work_s = world.remaining_work_s(job_id)
            shares.append(Share(job_id, work_s, types_of(world, job_id)))
        for share in sorted(shares, key=lambda share: share.first_s):  # stable: earlier jobs first
            if share.begin(pool):
                share.measure()
        growing = [share for share in shares if share.grows]
        while growing:
            top = first(growing)
            if top.grow(pool):
                top.measure()
            else:  # one that finds no GPUs for its step leaves the comparison
                top.grows = False
            if not top.grows:
                growing.remove(top)
        return grants | {share.job_id: share.grant() for share in shares if share.counts}
