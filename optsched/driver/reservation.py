"""A place kept for who has waited long enough: who is entitled to one, where and when it comes
free, and who may start there until then. One rule for simulated policies and for live rounds."""

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import replace
from heapq import heappop, heappush
from itertools import accumulate

from ..frozen import record
from ..model import Placement, Slot
from ..physics import TIME_TOLERANCE_S, swap_s
from ..physics.modes import Option
from .outlook import Outlook
from .placement import Room
from .world import World

GANG_PATIENCE_S = 600.0
"""A gang waits this long, or as long as it runs if that is longer, before a place is kept for
it..."""
GANG_BACKLOGS = 8.0
"""... and, where places were kept for too many others already, so many times as long as all GPUs
together need for what was there when it came."""
DRAINED = 0.001
"""Places are kept before that while the GPU time that they wait for their jobs is at most this
share of all: where everybody waits, draining for each gang would make all wait longer."""
DRAINED_EARLY = 0.02
"""That share where early places are kept: for gangs as soon as jobs come that might pass them..."""
DRAIN_RUNS, DRAIN_S = 0.25, 600.0
"""... and, before they have waited as long as they run, only if the place waits for at most this
share of that, or this long..."""
SMALLER = 2 / 3
"""... and only if at least this share of the GPU time that others have asked for is for smaller
jobs: where more of it goes to gangs, they pass each other, and draining makes all wait longer."""
FORGOTTEN_S = 7 * 86400.0
"""What jobs have asked for counts half once it would keep all GPUs busy for longer than this."""
RECOUNT = 0.1
"""What is there is summed up anew when the number of jobs has changed by this share."""
PATIENCE_S, PATIENCE_RUNS = 7 * 86400.0, 20.0
"""Others wait this and so many times their run time: on single GPUs whatever ends makes room."""

NEARLY_FREE = 0.02
"""Preempting costs next to nothing where saving and restoring take less than this share of what
jobs have left: all that are here, where early places are kept and run times are known, else those
that run. A gang that could take its GPUs so needs no place..."""
LONG_RUNS, MOST_RUNS = 20.0, 8.0
"""... until it has waited so many times as long as it runs, or its least patience. Where it costs
more, and early places are kept, it needs none before it has waited as long as it runs for each GPU
that those hold on average who would make room, at most `MOST_RUNS` times: it is soon worth more
than few large jobs, and perhaps never more than many small ones. Who starts on a place holds off
others."""

SHARE = 1 / 8
"""Who started on a reservation, and is not preempted, holds no more of all GPUs than this, or is
the only one."""

Claimed = tuple[Placement, float]
"""What is promised to a job that does not hold it yet, and until when that job will hold it."""


def patience_s(gpus: int, run_s: float, backlog_s: float = 0.0) -> float:
    """Return how long a job that needs `gpus` at least and runs for `run_s` waits before a place is
    kept for it, where all GPUs together need `backlog_s` for the jobs that are here."""
    if gpus <= 1:
        return PATIENCE_S + PATIENCE_RUNS * run_s
    return max(GANG_PATIENCE_S, run_s) + GANG_BACKLOGS * backlog_s


def swaps_matter(world: World, jobs: Collection[str], nearly_free: float = NEARLY_FREE) -> bool:
    """Return whether saving and restoring these jobs would take more than this share of what they
    have left."""
    return sum(map(swap_s, map(world.job, jobs))) > nearly_free * sum(
        map(world.fastest_finish_s, jobs)
    )


def too_much(held: int, gpus: int, total: int) -> bool:
    """Return whether jobs that started on reservations hold so many GPUs that none is made for one
    that needs `gpus`."""
    return held > 0 and held + gpus > SHARE * total


@record
class Reservation:
    """`job` is to start by `option` on `placement`, which those who hold it now are believed to
    leave by `due_s`. Until then others start there only if they are believed to have left by then;
    after that nobody else does, and who is still there is preempted if that may be. One that is
    `early` is handed over (see `Reservations`)."""

    job: str
    option: Option
    placement: Placement
    due_s: float
    early: bool = False


def earliest(world: World, job_id: str, claimed: Iterable[Claimed] = ()) -> Reservation | None:
    """Return the earliest place of a waiting job if running jobs are left alone: they are released
    in the order of their expected end until it fits. None where it never does.

    Who saves or runs on a node of which something is `claimed` leaves it, for this, when the claim
    does; a node that is lost gives no place.
    """
    nodes = (world.cluster.node[name] for name in world.lost)
    lost = (
        ((Slot(node=node.name, gpus=node.gpus, cpus=node.cpus or 0),), math.inf) for node in nodes
    )
    outlook = Outlook(world)
    over = {window.to_s for window in world.cluster.windows if window.to_s > world.now_s}
    until_s: dict[str, float] = {}
    ends: list[tuple[float, str, tuple[str, int, int] | None]]
    ends = [(time_s, "", ("", 0, 0)) for time_s in over]
    for placement, end_s in (*claimed, *lost):
        for slot in placement:
            until_s[slot.node] = max(end_s, until_s.get(slot.node, 0.0))
            ends.append(
                (end_s, "", (slot.node, *outlook.room.seize(slot.node, slot.gpus, slot.cpus)))
            )
    for holder in world.holders:
        end_s = world.expected_release_s(holder)
        if until_s:
            end_s = max([end_s, *(until_s.get(slot.node, 0.0) for slot in world.placement(holder))])
        ends.append((end_s, holder, None))
    ends.sort(key=lambda end: end[:2])
    fit, due_s = world.fit(job_id, outlook.room), world.now_s
    for i, (end_s, holder, seized) in enumerate(ends):
        if fit is not None or end_s == math.inf:
            break
        outlook.room.now_s = end_s
        if seized is None:
            outlook.release(holder, finished=holder in world.running)
        elif seized[0]:
            outlook.room.let_go(*seized)
        if i + 1 < len(ends) and ends[i + 1][0] == end_s:
            continue
        fit, due_s = world.fit(job_id, outlook.room), end_s
    return None if fit is None else Reservation(job_id, fit[0], fit[1], due_s)


def _preempts_below(world: World, job_id: str) -> float:
    """Return the rank below which running jobs may be preempted for this one."""
    own = world.rank(job_id)
    preempts = world.cluster.preempts.get(world.job(job_id).priority, "any")
    return {"any": own + 1, "lower": own, "never": -math.inf}[preempts]


def are_sure(world: World) -> bool:
    """Return whether jobs run for as long as is believed."""
    return world.run_times_hold and world.knows_run_times


class _Preemption:
    """Tells who could preempt its way in, `by_price` where that costs something. What it takes is
    found out once for each moment."""

    def __init__(self, by_price: bool) -> None:
        self._by_price = by_price
        self._at_s = math.nan
        self._is_free = False
        self._rooms: dict[float, tuple[Room, list[int]]] = {}

    def is_free(self, world: World) -> bool:
        """Return whether preempting costs next to nothing."""
        if world.now_s != self._at_s:
            self._at_s, self._rooms = world.now_s, {}
            others = world.waiting if self._by_price and are_sure(world) else ()
            self._is_free = not swaps_matter(world, (*world.running, *others))
        return self._is_free

    def patient_runs(self, world: World, job_id: str) -> float:
        """Return for how many times its run time a waiting job needs no place as it would fit if
        all who may be preempted for it were: `LONG_RUNS` where preempting costs next to nothing,
        else, `by_price`, the GPUs that one of them holds on average, at most `MOST_RUNS`. 0 where
        it would not fit, or it costs nothing and run times are only believed, so that its turn may
        never come."""
        if not (are_sure(world) if self.is_free(world) else self._by_price):
            return 0.0
        below = _preempts_below(world, job_id)
        if below not in self._rooms:
            able = (name for name in world.running if world.rank(name) < below)
            gone = [name for name in able if world.preemptible_at_s(name) < math.inf]
            held = sorted(map(world.held_gpus, gone), reverse=True)
            self._rooms[below] = Outlook(world, gone).room, [*accumulate(held, initial=0)]
        room, freed = self._rooms[below]
        if world.fit(job_id, room) is None:
            return 0.0
        if self._is_free:
            return LONG_RUNS
        return min(MOST_RUNS, _gpus_each(world.fewest_gpus(job_id), freed))


def _gpus_each(gpus: int, freed: list[int]) -> float:
    """Return how many GPUs each holds on average who makes room for a gang, where `freed` are those
    that come free by the first of them, none first: the largest go first."""
    gone = bisect_left(freed, gpus, hi=len(freed) - 1)
    return freed[gone] / gone if gone else gpus


def _meets_window(world: World, kept: Reservation) -> bool:
    """Return whether a window has come between a job and the place that is kept for it."""
    need, room = world.need(kept.job, kept.option), world.free
    if not need.windows or world.now_s < kept.due_s:
        return False
    return any(not room.able(need) >> room.layout.order[slot.node] & 1 for slot in kept.placement)


class _Ripening:
    """Waiting jobs by when their patience is over. A job that could preempt its way in stays
    patient until it has waited long (see `_Preemption.patient_runs`); whether it still could is
    checked again each time its wait has doubled."""

    def __init__(self, preemption: _Preemption) -> None:
        self._preemption = preemption
        self._ripens: list[tuple[float, float, str, float]] = []
        self._ripe: list[tuple[float, str]] = []

    def add(self, world: World, job_id: str, wait_s: float) -> None:
        """Add a job whose patience is over once it has waited so long in all."""
        ripe_s = _ripe_s(world, job_id, wait_s)
        heappush(self._ripens, (ripe_s, world.job(job_id).submit_s, job_id, wait_s))

    def ripe(self, world: World) -> list[str]:
        """Return the waiting jobs whose patience is over, in the order of submission."""
        while self._ripens and self._ripens[0][0] <= world.now_s:
            _, submit_s, job_id, wait_s = heappop(self._ripens)
            if job_id not in world.waiting:
                continue
            if job_id in world.paused and _ripe_s(world, job_id, wait_s) > world.now_s:
                self.add(world, job_id, wait_s)
            elif (longer_s := self._stays_patient_s(world, job_id)) is not None:
                self.add(world, job_id, longer_s)
            else:
                heappush(self._ripe, (submit_s, job_id))
        while self._ripe and self._ripe[0][1] not in world.waiting:
            heappop(self._ripe)
        return [job_id for _, job_id in sorted(self._ripe) if job_id in world.waiting]

    def _stays_patient_s(self, world: World, job_id: str) -> float | None:
        """Return how long in all a job waits until it is looked at again; None where it needs a
        place now."""
        waited_s = world.waited_s(job_id)
        ran_s = world.attained_gpu_s(job_id) / max(1, world.fewest_gpus(job_id))
        run_s = max(GANG_PATIENCE_S, ran_s + world.fastest_finish_s(job_id))
        long_s = run_s * self._preemption.patient_runs(world, job_id)
        if _ripe_s(world, job_id, long_s) <= world.now_s + TIME_TOLERANCE_S:
            return None
        return min(max(2 * waited_s, GANG_PATIENCE_S), long_s)


def _ripe_s(world: World, job_id: str, wait_s: float) -> float:
    """Return when a waiting job has waited so long in all if it waits on."""
    return world.now_s + wait_s - world.waited_s(job_id)


def _waits_little(world: World, job_id: str) -> bool:
    """Return whether a job has not waited as long yet as it runs, or its least patience."""
    patient_s = patience_s(world.fewest_gpus(job_id), world.fastest_finish_s(job_id))
    return world.waited_s(job_id) < patient_s


def _work_s(world: World, job_id: str) -> float:
    """Return how long all GPUs together need for a job."""
    if not world.options(job_id):
        return 0.0
    return world.service_left_gpu_s(job_id) / max(1, world.cluster.total_gpus)


def _worth(world: World, job_id: str) -> float:
    """Return the weight per GPU and second of what a job has left."""
    if not world.options(job_id):
        return 0.0
    gpu_s = world.service_left_gpu_s(job_id)
    return world.job(job_id).weight / max(gpu_s, TIME_TOLERANCE_S)


class Reservations:
    """At most one reservation at a time: of the jobs whose patience is over for those of the
    highest priority, and of these for the one that was submitted first.

    It is kept until its job starts, there or elsewhere, a node of it is lost, or the patience of a
    job of a higher priority is over; so, among jobs of no higher priority, it is due after a finite
    time, and two jobs never wait for each other. What starts by it is protected
    (`World.protected`): nobody of its priority evicts it.

    With `early` one is kept for a gang before its patience is over, once jobs have been submitted
    after it, if it is due soon (`DRAIN_RUNS`). Such a place ends for a job whose patience is over,
    is looked for anew once it is overdue, as run times may only be believed, and is handed over to
    a job that needs at least as many GPUs, is worth more per GPU and second, and can start as soon;
    who starts by it is protected against smaller jobs only.
    """

    def __init__(self, *, early: bool = False) -> None:
        self.current: Reservation | None = None
        self._keeps_early = early
        self._new: list[tuple[str, float]] = []
        self._preemption = _Preemption(by_price=early)
        self._late, self._early = _Ripening(self._preemption), _Ripening(self._preemption)
        self._paid_s = self._submitted_s = -math.inf
        self._counted, self._backlog = 0, 0.0
        self._asked_s: dict[int, float] = {}
        self._began_early: set[str] = set()
        self._believed_s: dict[str, float] = {}
        self._nowhere: dict[str, tuple[str, ...]] = {}

    def arrived(self, world: World, job_id: str) -> None:
        """Note that a job has come to wait."""
        self._new.append((job_id, self.backlog_s(world)))
        submit_s = world.job(job_id).submit_s
        if submit_s > world.instance.now_s:
            self._submitted_s = max(self._submitted_s, submit_s)
        if world.entry(job_id) is None:
            self._ask(world.fewest_gpus(job_id), _work_s(world, job_id))
        if job_id not in world.claims:  # who only moves stays protected
            world.protected.discard(job_id)
            self._began_early.discard(job_id)

    def _ask(self, gpus: int, work_s: float) -> None:
        """Count how long all GPUs together need for a new job; the past counts half once it is more
        than `FORGOTTEN_S`."""
        self._asked_s[gpus] = self._asked_s.get(gpus, 0.0) + work_s
        if math.fsum(self._asked_s.values()) > FORGOTTEN_S:
            self._asked_s = {gpus: work_s / 2 for gpus, work_s in self._asked_s.items()}

    def _look_at_new(self, world: World) -> list[str]:
        """See when the patience of those ends that did not start as soon as they came, and return
        them."""
        new = {job_id: backlog_s for job_id, backlog_s in self._new if job_id in world.waiting}
        self._new.clear()
        for job_id, backlog_s in new.items():
            gpus, run_s = world.fewest_gpus(job_id), world.fastest_finish_s(job_id)
            self._late.add(world, job_id, patience_s(gpus, run_s, backlog_s))
            if gpus > 1 or not self._keeps_early:
                wait_s = 0.0 if self._keeps_early else patience_s(gpus, run_s)
                self._early.add(world, job_id, wait_s)
        return [*new]

    def backlog_s(self, world: World) -> float:
        """Return how long all GPUs together need for the jobs that are here, within `RECOUNT`."""
        jobs = len(world.waiting) + len(world.running)
        if abs(jobs - self._counted) > RECOUNT * self._counted:
            here = (*world.waiting, *world.running)
            self._counted = jobs
            self._backlog = math.fsum(_work_s(world, job_id) for job_id in here)
        return self._backlog

    def _is_passed(self, world: World, job_id: str) -> bool:
        """Return whether jobs have been submitted after this one, and most of what others ask for
        is for smaller ones."""
        if world.job(job_id).submit_s >= self._submitted_s:
            return False
        gpus = world.fewest_gpus(job_id)
        smaller_s = math.fsum(work_s for g, work_s in self._asked_s.items() if g < gpus)
        others_s = math.fsum(self._asked_s.values()) - _work_s(world, job_id)
        return smaller_s >= SMALLER * others_s

    def renew(
        self, world: World, *, but: Iterable[str] = (), claimed: Iterable[Claimed] = ()
    ) -> bool:
        """Keep the reservation there is, or make one for who is entitled, but for those who have a
        place already; return whether it changed."""
        new, before, claimed = self._look_at_new(world), self.current, tuple(claimed)
        if before is None:
            return self._make(world, but, claimed)
        stands = (
            before.job in world.waiting
            and before.job not in but
            and not self._is_outranked(world, before, but)
        )
        if (
            stands
            and not (world.lost and any(slot.node in world.lost for slot in before.placement))
            and not _meets_window(world, before)
            and not (before.early and self._is_overdue(world, before))
        ):
            return before.early and self._hand_over(world, before, {*new} - {*but}, claimed)
        self.current = None
        if stands and (elsewhere := earliest(world, before.job, claimed)) is not None:
            self.current = replace(elsewhere, early=before.early)
        else:
            self._make(world, but, claimed)
        return True

    def _is_overdue(self, world: World, kept: Reservation) -> bool:
        """Return whether a place should have been free by now, or somebody of a higher priority has
        taken it at the instant itself."""
        if abs(world.now_s - kept.due_s) > TIME_TOLERANCE_S:
            return world.now_s > kept.due_s
        own, nodes = world.rank(kept.job), {slot.node for slot in kept.placement}
        return any(
            world.rank(name) > own and nodes & {slot.node for slot in world.placement(name)}
            for name in world.running
        )

    def _make(self, world: World, but: Iterable[str], claimed: tuple[Claimed, ...]) -> bool:
        """Make a reservation for the first who is entitled and can have one; return whether there
        is one."""
        entitled = self.entitled(world)
        if not entitled:
            return False
        lost, early = tuple(world.lost), self._keeps_early
        late = {*self._late.ripe(world)} if early else set[str]()
        for job_id in entitled:
            if job_id in but or self._nowhere.get(job_id) == lost:
                continue
            if self._takes_too_much(world, job_id):
                break
            kept = earliest(world, job_id, claimed)
            if kept is not None:
                self.current = kept
                if early and job_id not in late:
                    drained_s = max(DRAIN_RUNS * world.fastest_finish_s(job_id), DRAIN_S)
                    if _waits_little(world, job_id) and kept.due_s - world.now_s > drained_s:
                        self.current = None
                        continue
                    self.current = kept = replace(kept, early=True)
                    self._hand_over(world, kept, {*world.waiting} - {*but}, claimed)
                self._pay(world, self.current)
                return True
            if all(world.expected_release_s(job) < math.inf for job in world.holders):
                self._nowhere[job_id] = lost
        return False

    def _hand_over(
        self, world: World, kept: Reservation, to: Collection[str], claimed: Iterable[Claimed]
    ) -> bool:
        """Give an early place to the first of these that comes before its job, takes as much, and
        can start as soon; return whether one does."""
        least, own = world.fewest_gpus(kept.job), world.rank(kept.job)
        worth = {job_id: _worth(world, job_id) for job_id in (kept.job, *to)}
        before = (
            job_id
            for job_id in to
            if world.fewest_gpus(job_id) >= least
            and world.rank(job_id) >= own
            and worth[job_id] > worth[kept.job]
        )
        for job_id in sorted(before, key=lambda name: (-worth[name], *world.order(name))):
            found = earliest(world, job_id, claimed)
            if found is not None and found.due_s <= kept.due_s + TIME_TOLERANCE_S:
                self.current = replace(found, early=True)
                return True
        return False

    def entitled(self, world: World) -> list[str]:
        """Return the waiting jobs for whom a place may be kept now, by priority and submission."""
        late = self._late.ripe(world)
        if world.now_s < self._paid_s:
            ripe = late
        elif self._keeps_early:
            overdue = {*late}
            early = (job_id for job_id in self._early.ripe(world) if job_id not in overdue)
            ripe = [*late, *(job_id for job_id in early if self._is_passed(world, job_id))]
        else:
            ripe = self._early.ripe(world)
        return sorted(ripe, key=lambda job_id: -world.rank(job_id))

    def _is_outranked(self, world: World, kept: Reservation, but: Iterable[str]) -> bool:
        """Return whether a place is to be kept for a job of a higher priority or, where this one is
        early, for one whose patience is over."""
        own, lost = world.rank(kept.job), tuple(world.lost)
        if kept.early and any(
            world.rank(name) >= own and name not in but and self._nowhere.get(name) != lost
            for name in self._late.ripe(world)
        ):
            return True
        if all(world.rank(name) <= own for name in world.waiting):
            return False
        return any(world.rank(name) > own for name in {*self.entitled(world)} - {*but})

    def _pay(self, world: World, kept: Reservation) -> None:
        """Let time pass until the GPU time that the place waits for its job is its share of all."""
        gpus = sum(slot.gpus for slot in kept.placement)
        waits_s = max(0.0, kept.due_s - world.now_s) * gpus / max(1, world.cluster.total_gpus)
        share = DRAINED_EARLY if self._keeps_early else DRAINED
        self._paid_s = max(self._paid_s, world.now_s) + waits_s / share

    def _takes_too_much(self, world: World, job_id: str) -> bool:
        """Return whether no place is kept for the job before others that started on theirs are
        done."""
        own = world.rank(job_id)
        held = sum(
            world.held_gpus(job)
            for job in world.protected
            if job in world.running and world.rank(job) >= own and self._is_protected(world, job)
        )
        return too_much(held, world.fewest_gpus(job_id), world.cluster.total_gpus)

    def began(self, world: World) -> None:
        """Note that the job with the reservation has started, or claims its place."""
        assert self.current is not None
        job_id = self.current.job
        world.protected.add(job_id)
        known = self._believed_s.items()
        self._believed_s = {name: work_s for name, work_s in known if world.is_active(name)}
        self._believed_s[job_id] = world.believed_work_s(job_id)
        self._began_early &= self._believed_s.keys()  # else both grow for ever in a controller
        if self.current.early:
            self._began_early.add(job_id)

    def protects(self, world: World, running: str, waiting: str) -> bool:
        """Return whether one has started on its reservation and is evicted for none but a higher
        priority than its own or, if the place was early, a job that is as large."""
        if not self._is_protected(world, running) or world.rank(waiting) > world.rank(running):
            return False
        smaller = world.fewest_gpus(waiting) < world.fewest_gpus(running)
        return smaller or running not in self._began_early

    def pinned(self, world: World) -> set[str]:
        """Return the running jobs that no round preempts: those that are protected, but for whom
        somebody waits that is worth more and may evict them."""
        return {
            job_id
            for job_id in world.protected.intersection(world.running)
            if self._is_protected(world, job_id)
            and (
                job_id not in self._began_early
                or all(
                    self.protects(world, job_id, other)
                    or _worth(world, other) <= _worth(world, job_id)
                    for other in world.waiting
                )
            )
        }

    def _is_protected(self, world: World, running: str) -> bool:
        """Return whether one has started on its reservation and, unless preempting costs next to
        nothing, has not outrun what it was believed to be then."""
        if running not in world.protected:
            return False
        believed_s = self._believed_s.get(running, math.inf)
        return world.believed_work_s(running) <= believed_s or self._preemption.is_free(world)

    def place(self, world: World) -> tuple[Option, Placement] | None:
        """Return where the job with the reservation can start now: where that is, or wherever else
        there is room."""
        kept = self.current
        if kept is None or kept.job not in world.waiting:
            return None
        if world.free.holds(world.need(kept.job, kept.option), kept.placement):
            return kept.option, kept.placement
        return world.fit(kept.job)

    def overstaying(self, world: World, pinned: Collection[str] = ()) -> list[str]:
        """Return whom to preempt so that the job with the reservation can start there now that it
        is due: jobs that were believed to have left by then, but for `pinned` and those that it may
        not preempt. Empty where nobody has to, where that is not enough, and for an early place
        before its job has waited as long as it runs."""
        kept = self.current
        if kept is None or world.now_s < kept.due_s - TIME_TOLERANCE_S:
            return []
        if kept.early and _waits_little(world, kept.job):
            return []
        below, nodes = _preempts_below(world, kept.job), {slot.node for slot in kept.placement}
        able = (
            job_id
            for job_id in world.running
            if any(slot.node in nodes for slot in world.placement(job_id))
            and not (job_id in pinned or self.protects(world, job_id, kept.job))
            and world.rank(job_id) < below
            and world.may_preempt(job_id)
        )
        outlook, need = Outlook(world), world.need(kept.job, kept.option)

        def fits() -> bool:
            return outlook.room.holds(need, kept.placement)

        if fits():
            return []
        released, enough = outlook.release_until(fits, able)
        return outlook.only_needed(fits, released) if enough else []

    def fit(
        self, world: World, job_id: str, room: Room | None = None
    ) -> tuple[Option, Placement] | None:
        """Fit as `World.fit` does, without what is kept for another job of no lower priority,
        unless this one is believed to have left by then."""
        fit, kept = world.fit(job_id, room), self.current
        if fit is None or kept is None or kept.job == job_id:
            return fit
        if world.rank(job_id) > world.rank(kept.job):
            return fit
        if world.now_s + world.expected_run_s(job_id, *fit) <= kept.due_s + TIME_TOLERANCE_S:
            return fit
        room = world.free if room is None else room
        aside = room.set_aside(world.need(kept.job, kept.option), kept.placement)
        fit = world.fit(job_id, room)
        room.take_back(aside)
        return fit
