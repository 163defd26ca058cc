"""All that a round needs to know of each active job, as columns."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress, starmap

import numpy as np

from ..model import Instance, Job, Running
from ..physics import (
    TIME_TOLERANCE_S,
    hold_to_save_s,
    is_elastic,
    lost_s,
    may_preempt,
    remaining_after_preemption_s,
    setup_s,
    unsaved_s,
    uplinks,
)
from ..physics.catalogue import catalogue_of
from ..physics.contention import planned_uplinks_gbps
from .deadline import Deadline
from .held import SLACK, Hold
from .known import Book, Known, traits_of
from .model import Bools, is_second
from .patterns import NOTHING, Alternatives, needs_of, node_classes
from .windows import Openings

LOOKS_EVERY = 64
"""After so many jobs the clock is looked at."""
SETTLE, ELASTIC_SETTLE = 10.0, 2.0
"""A job that was preempted before is left alone until it has run this many times what a preemption
costs it; less long where its size may change, as each job that comes or ends changes all sizes."""


def preemption_s(job: Job) -> float:
    """Return what a preemption costs a job that has run before, at most."""
    most_lost_s = job.profile.checkpoint_every_s or 0.0
    return hold_to_save_s(job) + setup_s(job, ran_before=True) + most_lost_s


def settle_s(job: Job) -> float:
    """Return for how long a job that was preempted before is left alone at most once it is back."""
    return (ELASTIC_SETTLE if is_elastic(job) else SETTLE) * preemption_s(job)


class Facts:
    """The active `jobs` in the order of the instance, and the `alternatives` of each on the node
    `classes`; `never` are those that could run but for what they ask, and `waits` says of each job
    that it goes on waiting.

    `kept` are the positions of the running ones, `holds` what these have. `save_s` is how long a
    preempted job holds its GPUs, `load_s` start-up (and restore, for one that ran before), `lost_s`
    the productive seconds and `lost_work_s` the reference work that a preemption would lose,
    `setup_left_s` start-up still to go, `rate` the present rate, `peace_s` how long a job that was
    preempted before has run since (infinite for others), `cost_s` what a preemption costs in all.
    `weight` is that of the job, `elastic` says that it may choose how many GPUs it takes, `must`
    that it must be kept, `shares` that it can share GPUs, `minds` that it may matter who else is
    where it is, `depth` how far below the others it is that gives way to them, 0 for these (see
    `build`); `openings` are the windows to come.
    """

    def __init__(
        self,
        instance: Instance,
        keep: Collection[str],
        deadline: Deadline,
        give_way: Mapping[str, int],
        around: Sequence[tuple[Job, Running]],
    ) -> None:
        """Read an instance; `keep` are running jobs that must be kept for reasons of their own,
        `give_way` those that do to all others, with how far they are below them; jobs `around` go
        on."""
        self.instance, self.deadline, self._give_way = instance, deadline, give_way
        self.running: list[Running | None]
        self.alternatives: list[Alternatives]
        self.never: list[Job]
        self._known: list[Known]
        self._find_active(keep, around)
        self.jobs = [known.job for known in self._known]
        self.waits = tuple([known.waits for known in self._known])
        count = len(self.jobs)
        runs = np.fromiter((entry is not None for entry in self.running), dtype=bool, count=count)
        self.kept = np.flatnonzero(runs)
        self.save_s, self.lost_s, self.lost_work_s, self.setup_left_s = np.zeros((4, count))
        self.rate = np.ones(count)
        self.peace_s = np.full(count, np.inf)
        self.must = np.zeros(count, dtype=bool)
        self.depth = np.zeros(count, dtype=np.int64)
        if give_way:
            self.depth[:] = [give_way.get(job.id, 0) for job in self.jobs]
        traits = traits_of(self._known)
        self.remaining_s, self.load_s, reload_s, save_s, self.weight = traits[:5]
        self.elastic, may_leave, saves, self.shares, self.minds = traits[5:] != 0
        self.load_s[self.kept] = reload_s[self.kept]
        waited = self._book.positions(self._known, [entry.job for entry in instance.suspended])
        for j, entry in zip(waited, instance.suspended, strict=True):
            if j >= 0 and not runs[j]:
                self.load_s[j], self.remaining_s[j] = reload_s[j], entry.remaining_s
        self.save_s[self.kept] = save_s[self.kept]
        self.holds: list[Hold] = []
        self._read_running(keep, may_leave, saves)
        self.cost_s = self.save_s + self.load_s + self.lost_s
        settle = np.where(self.elastic, ELASTIC_SETTLE, SETTLE)
        unsettled = self.peace_s < settle * self.cost_s - TIME_TOLERANCE_S
        ends_first = self.setup_left_s + self.remaining_s / self.rate <= self.save_s
        self.must[self.kept] |= (unsettled | ends_first)[self.kept]
        self._keep_hosts()
        if self.must.any():
            self._let_go(around, keep)
            self._let_go(around, ())

    @cached_property
    def position(self) -> dict[str, int]:
        """Return the position of each job, by id."""
        return {job.id: j for j, job in enumerate(self.jobs)}

    @cached_property
    def paired(self) -> list[int]:
        """Return the positions of running jobs that share their GPUs with another one."""
        holds = zip(self.kept.tolist(), self.holds, strict=True)
        return [j for j, hold in holds if hold.mode.share_with is not None]

    def _keep_hosts(self) -> None:
        """Keep the first of two that share GPUs, who is host to the second, where that must be."""
        for j in self.kept[self.must[self.kept]].tolist():
            entry = self.entry(j)
            if is_second(entry) and entry.mode.share_with in self.position:
                self.must[self.position[entry.mode.share_with]] = True

    def _let_go(self, around: Sequence[tuple[Job, Running]], keep: Collection[str]) -> None:
        """Let jobs go that may be preempted and are not among `keep`, where all that must be kept
        take more than there is of what nodes share."""
        instance, table = self.instance, catalogue_of(self.instance).capacity
        racks = planned_uplinks_gbps(instance)
        if not (table.shared or racks):
            return

        def takes(job: Job, entry: Running) -> list[tuple[int | str, float]]:
            crossed = uplinks(instance.cluster, job, entry.placement).items() if racks else ()
            return [*table.together(job, entry.mode), *table.used_up(entry.mode), *crossed]

        def most(what: int | str) -> float:
            if isinstance(what, str):
                return racks[what] + SLACK * max(1.0, racks[what])
            return table.rows[what].capacity + table.rows[what].slack(SLACK)

        musts = self.kept[self.must[self.kept]].tolist()
        own = {j: takes(self.jobs[j], self.entry(j)) for j in musts}
        held: dict[int | str, float] = defaultdict(float)
        for what, amount in chain(*own.values(), *starmap(takes, around)):
            held[what] += amount
        over = {what for what, amount in held.items() if amount > most(what)}
        for j, amounts in own.items():
            if self.jobs[j].id not in keep and any(what in over for what, _ in amounts):
                self.must[j] = not may_preempt(instance, self.entry(j))
        self._keep_hosts()

    def _find_active(self, keep: Collection[str], around: Sequence[tuple[Job, Running]]) -> None:
        """Find the jobs that run or could start, and what they could do."""
        instance, deadline = self.instance, self.deadline
        catalogue, now_s = catalogue_of(instance), instance.now_s
        deadline.check()
        needs = needs_of(catalogue, instance.jobs)
        self.classes, self.class_of = node_classes(catalogue, needs)
        self.openings = openings = Openings(instance, self.classes, around)
        deadline.check()
        running = instance.running_job
        active = [
            job
            for job in instance.jobs
            if (job.submit_s <= now_s and not job.after) or job.id in running
        ]
        self._book = book = catalogue.once("book of rounds", Book)
        every = book.look_up(catalogue, active, needs, deadline)
        able = [known.can_run or known.job.id in running for known in every]
        self.never = [known.job for known, is_able in zip(every, able, strict=True) if not is_able]
        self._known = [*compress(every, able)]
        self.running = [None] * len(self._known)
        positions = book.positions(self._known, running)
        for j, entry in zip(positions, running.values(), strict=True):
            self.running[j] = entry
        self.alternatives = [known.alternatives for known in self._known]
        stays = {*keep, *self._give_way}
        if stays or openings.any:
            self._narrow(stays, openings)

    def _narrow(self, stays: Collection[str], openings: Openings) -> None:
        """Leave running jobs that stay no alternative, and all jobs those that no window closes."""
        for j, (known, entry) in enumerate(zip(self._known, self.running, strict=True)):
            if entry is not None and entry.job in stays:
                self.alternatives[j] = NOTHING
            if openings.any:
                self.alternatives[j] = openings.open(known.job, self.alternatives[j])
        # wherever a job without any could start now a window comes too soon
        able = [
            entry is not None or bool(own.patterns)
            for entry, own in zip(self.running, self.alternatives, strict=True)
        ]
        self._known = [*compress(self._known, able)]
        self.running = [*compress(self.running, able)]
        self.alternatives = [*compress(self.alternatives, able)]

    def _read_running(self, keep: Collection[str], may_leave: Bools, saves: Bools) -> None:
        """Read what running jobs have done and what preempting them would cost; who `may_leave` has
        no rule against it, and who `saves` loses what came after."""
        instance, now_s, kept = self.instance, self.instance.now_s, self.kept
        entries = [entry for entry in self.running if entry is not None]
        every = compress(self._known, self.running)
        for turn, (known, entry) in enumerate(zip(every, entries, strict=True)):
            if turn % LOOKS_EVERY == 0:
                self.deadline.check()
            self.holds.append(known.holding(instance, entry))
        self.remaining_s[kept] = [entry.remaining_s for entry in entries]
        self.setup_left_s[kept] = [entry.setup_s for entry in entries]
        self.rate[kept] = [hold.rate for hold in self.holds]
        for j in kept[saves[kept]].tolist():
            entry = self.entry(j)
            self.lost_s[j] = lost_s(self.jobs[j], unsaved_s(entry, now_s))
            left_s = remaining_after_preemption_s(instance, entry)
            self.lost_work_s[j] = left_s - entry.remaining_s
        returned = np.array([entry.preemptions > 0 for entry in entries], dtype=bool)
        peaceful = kept[returned & (self.depth[kept] == 0)]
        self.peace_s[peaceful] = [now_s - self.entry(j).started_s for j in peaceful.tolist()]
        fixed = np.array([not self.alternatives[j].patterns for j in kept.tolist()], dtype=bool)
        self.must[kept] = fixed & (self.depth[kept] == 0)
        if keep:
            self.must[kept] |= np.array([entry.job in keep for entry in entries], dtype=bool)
        for j in kept[~may_leave[kept] & ~self.must[kept]].tolist():
            self.must[j] = not may_preempt(instance, self.entry(j))

    def entry(self, j: int) -> Running:
        """Return what running job `j` holds."""
        entry = self.running[j]
        assert entry is not None
        return entry
