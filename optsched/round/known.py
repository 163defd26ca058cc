"""What rounds know of each job whatever else there is, kept from one round to the next: few jobs
change in between."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from ..model.instance import Instance, Running
from ..model.job import Job, first_come
from ..physics import hold_to_save_s, is_elastic, placed_rate, setup_s
from ..physics.catalogue import Catalogue
from .deadline import Deadline
from .held import Hold, parts_of
from .model import Kind, is_second
from .patterns import Alternatives, Needs, alternatives_of

KEPT_ROUNDS = 64
"""A job is forgotten after so many rounds without it, or twice as many."""


@dataclass(slots=True, eq=False)
class Known:
    """A job, what it could do on the empty cluster with node classes by `needs`, and what follows
    from it alone: `order` is that among equal jobs, `load_s` the seconds of a start,
    `reload_s` of one after it ran before, `save_s` how long it holds its GPUs when preempted.
    `is_elastic` says that it may choose its size, `hold` is what it held when it ran last."""

    job: Job
    needs: Needs | None
    alternatives: Alternatives
    order: tuple[float, str]
    work_s: float
    load_s: float
    reload_s: float
    save_s: float
    is_elastic: bool
    hold: Hold | None = None

    def holding(self, instance: Instance, entry: Running) -> Hold:
        """Return what the running job holds."""
        hold, mode = self.hold, entry.mode
        if hold is None or mode is not hold.mode or entry.placement is not hold.placement:
            parts = parts_of(instance.cluster, self.job, mode, entry.placement, is_second(entry))
            rate = placed_rate(instance, self.job, mode, entry.placement)
            hold = Hold(Kind.KEEP, mode, entry.placement, rate, parts)
            # beside another job the rate depends on that one too
            self.hold = None if mode.share_with is not None or mode.shared_gpus else hold
        return hold


class Book:
    """The jobs of the last rounds on a cluster, by id."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._before: dict[str, Known] = {}
        self._needs: Needs | None = None
        self._rounds = 0

    def look_up(
        self, catalogue: Catalogue, jobs: Iterable[Job], needs: Needs | None, deadline: Deadline
    ) -> list[Known]:
        """Return what is known of these jobs, in the order of equal jobs."""
        self._rounds += 1
        if self._rounds % KEPT_ROUNDS == 0:
            self._before, self._known = self._known, {}
        if needs != self._needs:
            self._needs = needs
        every: list[Known] = []
        own = self._known
        for job in jobs:
            known = own.get(job.id)
            if known is None or known.job is not job or known.needs is not self._needs:
                deadline.check()
                known = own[job.id] = self._renewed(catalogue, job)
            every.append(known)
        every.sort(key=attrgetter("order"))
        return every

    def _renewed(self, catalogue: Catalogue, job: Job) -> Known:
        known = self._known.get(job.id) or self._before.get(job.id)
        if known is not None and known.needs is self._needs and known.job == job:
            known.job = job
            return known
        return Known(
            job,
            self._needs,
            alternatives_of(catalogue, job, self._needs),
            first_come(job),
            job.work_s,
            setup_s(job, False),
            setup_s(job, True),
            hold_to_save_s(job),
            is_elastic(job),
        )
