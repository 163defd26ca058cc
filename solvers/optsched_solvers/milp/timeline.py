"""What is held when, while a schedule is put together job by job."""

from collections.abc import Iterator

from optsched.model.instance import Instance
from optsched.model.job import Job, Mode
from optsched.model.plan import Segment
from optsched.physics import cpus, memory_gib

SAME_INSTANT_S = 1e-6
"""Stretches that overlap by less do not: the rounding of Unix times, well within the verifier's
tolerance."""


class Track:
    """One capacity and the stretches of time in which amounts of it are held; `slack` is relative
    to it."""

    def __init__(self, capacity: float, slack: float = 0.0) -> None:
        self.capacity = capacity + slack * max(1.0, capacity)
        self._held: list[tuple[float, float, float]] = []

    def hold(self, start_s: float, end_s: float, amount: float) -> None:
        """Hold `amount` from `start_s` to `end_s`."""
        if amount and end_s > start_s:
            self._held.append((start_s, end_s, amount))

    def free(self, start_s: float, end_s: float) -> float:
        """The least that is free at any instant between the two."""
        here = [
            (max(a, start_s), b, amount)
            for a, b, amount in self._held
            if a < end_s - SAME_INSTANT_S and b > start_s + SAME_INSTANT_S
        ]
        peak = 0.0
        for at, _, _ in here:
            peak = max(peak, sum(amount for a, b, amount in here if a <= at + SAME_INSTANT_S < b))
        return self.capacity - peak

    def ends(self) -> Iterator[float]:
        """Instants at which something is given back."""
        return (end for _, end, _ in self._held)


class Timeline:
    """GPUs, cores and memory of every node, cluster resources, tenants' quotas."""

    # Half of what the verifier forgives, so that rounding here never meets its limit.
    SLACK = 5e-7

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        nodes = instance.cluster.nodes
        self.gpus = {node.name: Track(node.gpus) for node in nodes}
        self.cores = {node.name: Track(node.cpus) for node in nodes if node.cpus is not None}
        self.memory = {
            node.name: Track(node.memory_gib, self.SLACK)
            for node in nodes
            if node.memory_gib is not None
        }
        self.resources = {
            name: Track(amount, self.SLACK) for name, amount in instance.cluster.resources.items()
        }
        self.quotas = {name: Track(gpus) for name, gpus in instance.gpu_cap.items()}
        self.pool = None if instance.quota_pool is None else Track(instance.quota_pool)

    def hold(self, job: Job, segment: Segment) -> None:
        """Take what `segment` holds."""
        for track, amount in self._demands(job, segment):
            track.hold(segment.start_s, segment.end_s, amount)

    def fits(self, job: Job, segment: Segment) -> bool:
        """Whether everything `segment` holds is free for all of its time."""
        return all(
            track.free(segment.start_s, segment.end_s) >= need
            for track, need in self._demands(job, segment)
        )

    def instants(self, earliest_s: float) -> list[float]:
        """`earliest_s`, and each later instant at which something is given back: all starts worth
        trying."""
        tracks = (
            *self.gpus.values(),
            *self.cores.values(),
            *self.memory.values(),
            *self.resources.values(),
            *self.quotas.values(),
        )
        return sorted(
            {earliest_s, *(end for track in tracks for end in track.ends() if end > earliest_s)}
        )

    def free_gpus(self, job: Job, mode: Mode, node: str, start_s: float, end_s: float) -> int:
        """GPUs of `node` that `mode` could take from `start_s` to `end_s`, with cores and memory
        beside them; for a CPU-only mode 1 where it fits, else 0."""
        limits = [self.gpus[node].free(start_s, end_s)] if mode.gpus else [1.0]
        cores, memory = self.cores.get(node), self.memory.get(node)
        for track, each in ((cores, cpus(mode, 1)), (memory, memory_gib(job, mode, 1))):
            if track is not None and each:
                limits.append(track.free(start_s, end_s) // each)
        return max(0, int(min(limits)))

    def _demands(self, job: Job, segment: Segment) -> Iterator[tuple[Track, float]]:
        mode = segment.mode
        for slot in segment.placement:
            yield self.gpus[slot.node], slot.gpus
            if slot.node in self.cores:
                yield self.cores[slot.node], slot.cpus
            if slot.node in self.memory:
                yield self.memory[slot.node], memory_gib(job, mode, slot.gpus)
        for name, amount in mode.resources.items():
            if amount:
                yield self.resources.get(name, Track(0.0)), amount
        if job.tenant in self.quotas:
            yield self.quotas[job.tenant], mode.gpus
            if self.pool is not None:
                yield self.pool, mode.gpus
