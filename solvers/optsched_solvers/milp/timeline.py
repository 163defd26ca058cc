"""What is held when, while a schedule is put together job by job."""

from collections.abc import Iterator

from optsched.model.instance import Instance
from optsched.model.job import Job, Mode
from optsched.model.plan import Segment
from optsched.physics.catalogue import catalogue_of

SAME_INSTANT_S = 1e-6
"""Stretches that overlap by less do not: the rounding of Unix times, well within the verifier's
tolerance."""


class Track:
    """One capacity and the stretches of time in which amounts of it are held."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
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
    """What is held of every row of the table of capacity."""

    # Half of what the verifier forgives, so that rounding here never meets its limit.
    SLACK = 5e-7

    def __init__(self, instance: Instance) -> None:
        self._table = catalogue_of(instance).capacity
        self._order = instance.cluster.node_order
        self._tracks = [Track(row.capacity + row.slack(self.SLACK)) for row in self._table.rows]

    def hold(self, job: Job, segment: Segment) -> None:
        """Take what `segment` holds."""
        for row, amount in self._table.held(job, segment.mode, segment.placement):
            self._tracks[row].hold(segment.start_s, segment.end_s, amount)

    def fits(self, job: Job, segment: Segment) -> bool:
        """Whether everything `segment` holds is free for all of its time."""
        return all(
            self._tracks[row].free(segment.start_s, segment.end_s) >= need
            for row, need in self._table.held(job, segment.mode, segment.placement)
        )

    def instants(self, earliest_s: float) -> list[float]:
        """`earliest_s`, and each later instant at which something is given back: all starts worth
        trying."""
        ends = (end for track in self._tracks for end in track.ends() if end > earliest_s)
        return sorted({earliest_s, *ends})

    def free_gpus(self, job: Job, mode: Mode, node: str, start_s: float, end_s: float) -> int:
        """GPUs of `node` that `mode` could take from `start_s` to `end_s`, with cores and memory
        beside them; for a CPU-only mode 1 where it fits, else 0."""
        each = self._table.on_node(job, mode, self._order[node], min(mode.gpus, 1))
        frees = [self._tracks[row].free(start_s, end_s) // amount for row, amount in each]
        return max(0, int(min([*frees, mode.gpus or 1])))
