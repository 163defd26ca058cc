"""What is held when, while a schedule is put together job by job."""

from optsched.model.instance import Instance
from optsched.model.job import Job, Mode
from optsched.model.plan import Segment
from optsched.physics.catalogue import catalogue_of

from ..scheduling.free_capacity import Row

SAME_INSTANT_S = 1e-6
"""Stretches that overlap by less do not: the rounding of Unix times, well within the verifier's
tolerance."""


class Timeline:
    """What is held of every row of the table of capacity."""

    # Half of what the verifier forgives, so that rounding here never meets its limit.
    SLACK = 5e-7

    def __init__(self, instance: Instance) -> None:
        self._table = catalogue_of(instance).capacity
        self._order = instance.cluster.node_order
        self._now_s = instance.now_s
        self._rows = [Row(row.capacity + row.slack(self.SLACK)) for row in self._table.rows]
        self._ends_s: set[float] = set()

    def hold(self, job: Job, segment: Segment) -> None:
        """Take what `segment` holds."""
        start, end = self._inside(segment.start_s, segment.end_s)
        if end > start:
            for row, amount in self._table.held(job, segment.mode, segment.placement):
                self._rows[row].change(start, end, amount)
            self._ends_s.add(segment.end_s)

    def fits(self, job: Job, segment: Segment) -> bool:
        """Whether everything `segment` holds is free for all of its time."""
        inside = self._inside(segment.start_s, segment.end_s)
        return all(
            self._rows[row].least(*inside) >= need
            for row, need in self._table.held(job, segment.mode, segment.placement)
        )

    def instants(self, earliest_s: float) -> list[float]:
        """`earliest_s`, and each later instant at which something is given back: all starts worth
        trying."""
        return sorted({earliest_s, *(end_s for end_s in self._ends_s if end_s > earliest_s)})

    def free_gpus(self, job: Job, mode: Mode, node: str, start_s: float, end_s: float) -> int:
        """GPUs of `node` that `mode` could take from `start_s` to `end_s`, with cores and memory
        beside them; for a CPU-only mode 1 where it fits, else 0."""
        each = self._table.on_node(job, mode, self._order[node], min(mode.gpus, 1))
        inside = self._inside(start_s, end_s)
        frees = [self._rows[row].least(*inside) // amount for row, amount in each]
        return max(0, int(min([*frees, mode.gpus or 1])))

    def _inside(self, start_s: float, end_s: float) -> tuple[int, int]:
        """Return the nanoseconds after now from start to end, each half of `SAME_INSTANT_S` within
        it: of stretches that only just overlap, the one then ends before the other starts."""
        half_s = SAME_INSTANT_S / 2
        return (
            round((start_s - self._now_s + half_s) * 1e9),
            round((end_s - self._now_s - half_s) * 1e9),
        )
