"""What rounds know of each job whatever else there is, kept from one round to the next: few jobs
change in between."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from ..model import Instance, Job, Running, first_come
from ..physics import hold_to_save_s, is_elastic, may_always_preempt, placed_rate, setup_s
from ..physics.catalogue import Catalogue
from .deadline import Deadline
from .held import Hold, parts_of
from .model import Floats, Kind, is_second
from .patterns import Alternatives, Needs, alternatives_of
from .plan import JobRound, going_on

KEPT_ROUNDS = 64
"""A job is forgotten after so many rounds without it, or twice as many."""
TRAITS = 10
"""Numbers that are known of a job (see `_traits`)."""


@dataclass(slots=True, eq=False)
class Known:
    """A job, what it could do on the empty cluster with node classes by `needs`, its `traits` as
    bytes, and its `order` among equal jobs. `can_run` says that it could do anything. `hold` is
    what it held when it ran last, `waits` that it goes on waiting, `stamp` that of the last round
    with it, `number` where it was among the jobs that were numbered last."""

    job: Job
    needs: Needs | None
    alternatives: Alternatives
    order: tuple[float, str]
    traits: bytes
    can_run: bool
    waits: JobRound
    hold: Hold | None = None
    stamp: object = None
    number: int = -1

    def holding(self, instance: Instance, entry: Running) -> Hold:
        """Return what the running job holds."""
        hold, mode = self.hold, entry.mode
        if hold is None or mode is not hold.mode or entry.placement is not hold.placement:
            parts = parts_of(instance.cluster, self.job, mode, entry.placement, is_second(entry))
            rate = placed_rate(instance, self.job, mode, entry.placement)
            goes_on = going_on(entry) if mode.share_with is None else None
            hold = Hold(Kind.KEEP, mode, entry.placement, rate, parts, goes_on=goes_on)
            # beside another job the rate depends on that one too
            self.hold = None if mode.share_with is not None or mode.shared_gpus else hold
        return hold


def traits_of(every: Iterable[Known]) -> Floats:
    """Return the traits of jobs, each as a column (see `_traits`)."""
    rows = np.frombuffer(b"".join([known.traits for known in every]))
    return rows.reshape(-1, TRAITS).T.copy()


class Book:
    """The jobs of the last rounds on a cluster, by id, and in the order of equal jobs those of the
    last one."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._before: dict[str, Known] = {}
        self._last: list[Known] = []
        self._stamp = object()
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
        last, before, stamp = self._last, self._stamp, object()
        self._last, self._stamp = [], object()  # as it stays where there is no time for all
        new: list[Known] = []
        own, wanted = self._known, self._needs
        for job in jobs:
            known = own.get(job.id)
            if known is None or known.job is not job or known.needs is not wanted:
                deadline.check()
                known = own[job.id] = self._renewed(catalogue, job)
            if known.stamp is not before:
                new.append(known)
            known.stamp = stamp
        # most are in order since the last round, so that sorting takes one pass
        every = [known for known in last if known.stamp is stamp] + new
        every.sort(key=attrgetter("order"))
        self._last, self._stamp = every, stamp
        return every

    def positions(self, every: Sequence[Known], names: Iterable[str]) -> list[int]:
        """Return where the jobs of these names are in `every`, -1 where they are not."""
        for number, known in enumerate(every):
            known.number = number
        count, found = len(every), []
        for own in map(self._known.get, names):
            at = -1 if own is None else own.number
            found.append(at if 0 <= at < count and every[at] is own else -1)
        return found

    def _renewed(self, catalogue: Catalogue, job: Job) -> Known:
        known = self._known.get(job.id) or self._before.get(job.id)
        if known is not None and known.needs is self._needs and known.job == job:
            known.job = job
            return known
        alternatives = alternatives_of(catalogue, job, self._needs)
        return Known(
            job,
            self._needs,
            alternatives,
            first_come(job),
            _traits(job, among_uplinks=bool(catalogue.cluster.rack_uplink_gbps)),
            bool(alternatives.patterns),
            JobRound(id=job.id, decision="wait"),
        )


def _traits(job: Job, *, among_uplinks: bool) -> bytes:
    """Return as numbers what follows from a job alone: its work, the seconds of a start, those of
    one after it ran before, those for which it holds its GPUs when preempted, its weight, whether
    it may choose its size, whether no rule of its own ever forbids its preemption, whether it
    saves its state while it runs, whether it can share GPUs, and whether it can matter who else is
    where it is."""
    begins_s, comes_back_s, save_s = setup_s(job, False), setup_s(job, True), hold_to_save_s(job)
    leaves, saves = may_always_preempt(job), job.profile.checkpoint_every_s is not None
    shares = job.profile.sharing is not None
    crosses = among_uplinks and job.profile.network_gbps > 0
    minds = bool(crosses or job.labels or job.affinity or job.anti_affinity)
    does = is_elastic(job), leaves, saves, shares, minds
    numbers = job.work_s, begins_s, comes_back_s, save_s, job.weight, *does
    return array("d", numbers).tobytes()
