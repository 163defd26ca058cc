"""Where one job stands in a simulation: exact progress between events, attempt by attempt."""

import math
from dataclasses import replace
from enum import IntEnum

from ..model import Instance, Job, Mode, Placement, Running, Suspended
from ..physics import (
    TIME_TOLERANCE_S,
    hold_to_save_s,
    is_one_stay,
    lost_s,
    placed_rate,
    run_s,
    setup_s,
)
from ..physics.modes import Option
from .demand import Demand
from .layout import Need

UNSAVED_WORK = tuple[tuple[float, float], ...]
"""(seconds, rate) worked since the last checkpoint or the start of the stay."""


class Ending(IntEnum):
    """Why a row ends."""

    COMPLETED = 0
    PREEMPTED = 1
    """Its last `checkpoint_s` are spent saving."""
    FAILED = 2
    """The attempt failed: an entry of `Instance.failures`."""
    NODE_LOST = 3
    """An entry of `Instance.outages`."""
    GOES_ON = 4
    """Only the sharing partner changes, or cores in place; the job's next row follows at once."""
    OUT_OF_MEMORY = 5
    """Its GPUs do not have the memory for it and the job beside which it was started."""


COMPLETED, PREEMPTED, FAILED, NODE_LOST, GOES_ON, OUT_OF_MEMORY = Ending
"""Looked up once: Python takes several times as long to find a member as to compare it."""


class Run:
    """One stay on GPUs, from a start to its end.

    `started_s` begins the stay, `held_from_s` the part of it that is simulated, `row_s` its current
    row of the record. Work goes on from `work_from_s`, when start-up and restore are over, with
    `work_s` of reference work of this attempt to do then; `unsaved` has the (seconds, rate) worked
    since the last checkpoint until then. `stopped_s` and `stops_s` are set once the job is being
    preempted: when it was, and when it gives back what it holds; `left_s` is what was left of the
    attempt when it stopped working. `base` is the mode without the sharing partner; `overlaps` are
    the jobs with which it shares some of its GPUs, and how many. `dies_s` is
    when the job runs out of GPU memory if it has not completed and its partner is still there.
    `rate` is `full_rate`, that on channels of its own, divided by the `slowdown` on those it
    shares; it may change within a row, which begins with `row_work_s` of the attempt to do, and at
    `ready_s` the set-up is over.
    """

    __slots__ = (
        "base",
        "dies_s",
        "end_s",
        "full_rate",
        "held_from_s",
        "left_s",
        "mode",
        "need",
        "overlaps",
        "partner",
        "placement",
        "rate",
        "ready_s",
        "row_s",
        "row_work_s",
        "slowdown",
        "started_s",
        "stopped_s",
        "stops_s",
        "unsaved",
        "was_running",
        "work_from_s",
        "work_s",
    )

    def __init__(
        self,
        mode: Mode,
        placement: Placement,
        need: Need,
        rate: float,
        started_s: float,
        row_s: float,
        work_from_s: float,
        work_s: float,
        end_s: float,
        unsaved: UNSAVED_WORK = (),
        was_running: bool = False,
    ) -> None:
        self.mode = self.base = mode
        self.placement = placement
        self.need = need
        self.rate = self.full_rate = rate
        self.slowdown = 1.0
        self.started_s = started_s
        self.held_from_s = self.row_s = row_s
        self.work_from_s = self.ready_s = work_from_s
        self.work_s = self.row_work_s = work_s
        self.end_s = end_s
        self.unsaved = unsaved
        self.was_running = was_running
        self.left_s = 0.0
        self.stopped_s: float | None = None
        self.stops_s: float | None = None
        self.dies_s: float | None = None
        self.partner: JobState | None = None
        self.overlaps: dict[JobState, int] = {}

    def own_gpus(self) -> dict[str, int]:
        """Return the GPUs of each node that the job shares with nobody."""
        if self.partner is not None:
            return {}
        own = {slot.node: slot.gpus for slot in self.placement}
        for other, gpus in self.overlaps.items():
            assert other.run is not None
            own[one_of_them(self, other.run)] -= gpus
        return own

    @property
    def ends_s(self) -> float:
        """Return when the stay ends by itself."""
        return self.end_s if self.dies_s is None else min(self.end_s, self.dies_s)


def one_of_them(a: Run, b: Run) -> str:
    """Return the node on which two jobs overlap, the only one of one of them."""
    return (a if len(a.placement) == 1 else b).placement[0].node


class JobState:
    """One job: what is left of it, whether it runs, and how it got there.

    The work of an attempt is `attempt_s`, of which `work_s` is left when no run says otherwise;
    `failures` are the (work, kept) of the attempts that fail, `attempt` says how many have.
    `past_s` is the work of earlier attempts, `rest_s` that of later ones, `kept_s` what counts of
    the earlier ones. `believed_s` is how much work the job is believed to be, None where that is
    known. `waited_s` are its waits that are over; of one that waits, `waits_from_s` is since when.
    """

    __slots__ = (
        "attained_gpu_s",
        "attempt",
        "attempt_s",
        "believed_s",
        "demand",
        "failures",
        "index",
        "job",
        "kept_s",
        "left_at",
        "options",
        "past_s",
        "preemptions",
        "ran_before",
        "rank",
        "released",
        "rest_s",
        "run",
        "run_number",
        "waited_s",
        "waits_for",
        "waits_from_s",
        "work_s",
    )

    def __init__(
        self, index: int, job: Job, work_s: float, options: tuple[Option, ...], demand: Demand
    ) -> None:
        self.index = self.rank = index
        self.job = job
        self.work_s = work_s
        self.attempt_s = job.work_s
        self.failures: tuple[tuple[float, float], ...] = ()
        self.attempt = 0
        self.past_s = self.rest_s = self.kept_s = 0.0
        self.believed_s: float | None = None
        self.options = options
        self.demand = demand
        self.run: Run | None = None
        self.run_number = 0
        self.ran_before = False
        self.released = False
        self.waits_for = 0
        self.preemptions = 0
        self.attained_gpu_s = 0.0
        self.waited_s = 0.0
        self.waits_from_s = job.submit_s
        self.left_at: tuple[float, Mode, Placement] | None = None

    def will_fail(self, attempts: list[tuple[float, float]]) -> None:
        """Let the job's first attempts do so much work each, keep so much of it, and fail."""
        self.failures = tuple(attempts)
        last_s = self.job.work_s - math.fsum(kept_s for _, kept_s in attempts)
        self.rest_s = math.fsum(work_s for work_s, _ in attempts[1:]) + last_s
        self.attempt_s = self.work_s = attempts[0][0]

    def next_attempt(self) -> float:
        """Note that the attempt has failed at the end of its work. Return how much of that counts
        for nothing."""
        work_s, kept_s = self.failures[self.attempt]
        self.attempt += 1
        self.past_s += work_s
        self.kept_s += kept_s
        if self.attempt < len(self.failures):
            self.attempt_s = self.failures[self.attempt][0]
            self.rest_s -= self.attempt_s
        else:
            self.attempt_s = self.job.work_s - self.kept_s
            self.rest_s = 0.0
        self.work_s = self.attempt_s
        return work_s - kept_s

    def begin(
        self,
        begin_s: float,
        mode: Mode,
        placement: Placement,
        need: Need,
        rate: float,
        slowdown: float = 1.0,
        fetch_s: float = 0.0,
    ) -> Run:
        """Start on `placement`: set-up first, with `fetch_s` for the model, then work to the end
        unless preempted."""
        full_rate = rate
        if slowdown > 1.0:
            rate /= slowdown
        setup = setup_s(self.job, self.ran_before) + fetch_s
        work_s = self.work_s
        length_s = setup + (
            work_s / rate if mode.duration_s is None else run_s(self.job, mode, work_s, rate)
        )
        end_s = begin_s + length_s
        if not end_s > begin_s:
            end_s = math.nextafter(begin_s, math.inf)
        self.run = run = Run(
            mode, placement, need, rate, begin_s, begin_s, begin_s + setup, work_s, end_s
        )
        if slowdown > 1.0:
            run.full_rate, run.slowdown = full_rate, slowdown
        self.run_number += 1
        self.ran_before = True
        return run

    def attempt_left_s(self, now_s: float) -> float:
        """Return the reference work of this attempt still to do."""
        run = self.run
        if run is None or run.stopped_s is not None:
            return self.work_s
        if now_s <= run.work_from_s:
            return run.work_s
        left_s = run.work_s - (now_s - run.work_from_s) * run.rate
        return left_s if left_s > 0.0 else 0.0

    def done_s(self, now_s: float) -> float:
        """Return the reference work done so far, with that of failed attempts."""
        return self.past_s + self.attempt_s - self.attempt_left_s(now_s)

    def remaining_s(self, now_s: float) -> float:
        """Return the reference work that the job is believed to have left; exact where nothing else
        is believed.

        A job that has outrun its belief is believed to be twice as long, as often as it takes.
        """
        left_s = self.attempt_left_s(now_s)
        if self.believed_s is None:
            return left_s + self.rest_s
        done_s = self.done_s(now_s)
        while self.believed_s <= done_s * (1 + 1e-9):
            self.believed_s *= 2
        return self.believed_s - done_s

    def stop(self, now_s: float) -> float:
        """Preempt: what was not saved is lost. Return when the GPUs come free, the checkpoint
        taken."""
        run = self.run
        assert run is not None
        run.left_s = self.attempt_left_s(now_s)
        self.work_s = run.left_s + self.loses_s(now_s)
        self.preemptions += 1
        self.run_number += 1
        run.stopped_s = now_s
        run.stops_s = run.end_s = now_s + hold_to_save_s(self.job)
        return run.stops_s

    def loses_s(self, now_s: float) -> float:
        """Return the reference work that preempting the job now would lose, if it runs."""
        saves = self.job.profile.checkpoint_every_s is None
        if saves or self.run is None or self.run.stopped_s is not None:
            return 0.0
        return self._lost_s(now_s, self.attempt_left_s(now_s))

    def crash(self, now_s: float) -> None:
        """Lose the node, and with it what no checkpoint holds."""
        run = self.run
        assert run is not None
        if run.stopped_s is None:
            run.left_s = left_s = self.attempt_left_s(now_s)
            self.work_s = left_s + self._lost_s(now_s, left_s)
        else:  # the checkpoint is lost half way
            self.work_s = run.left_s + self._lost_s(run.stopped_s, run.left_s)
        self.run_number += 1

    def _lost_s(self, now_s: float, left_s: float) -> float:
        """Return the reference work that a stop without a checkpoint on demand loses."""
        unsaved = self.unsaved(now_s)
        if self.job.profile.checkpoint_every_s is not None:
            lost = _lost_work_s(self.job, unsaved)
        else:
            lost = math.fsum(seconds * rate for seconds, rate in unsaved)
        return min(lost, max(0.0, self.attempt_s - left_s))

    def share(self, instance: Instance, partner: "JobState | None", now_s: float) -> None:
        """Hold the GPUs beside `partner` (None: alone) from now on, at another rate; the row has
        been written."""
        run = self.run
        assert run is not None
        now_s = max(now_s, run.row_s)  # a start may be a hair's breadth in the future
        run.partner = partner
        if partner is None:
            run.dies_s = None
        mode = replace(run.base, share_with=None if partner is None else partner.job.id)
        if run.overlaps:
            shared = {other.job.id: gpus for other, gpus in run.overlaps.items()}
            mode = replace(mode, shared_gpus=shared)
        if run.stops_s is None:
            run.full_rate = placed_rate(instance, self.job, mode, run.placement)
            self._change_rate(run, now_s)
            run.row_work_s = run.work_s
        run.mode = mode
        run.row_s = now_s

    def change_cores(
        self,
        instance: Instance,
        mode: Mode,
        placement: Placement,
        need: Need,
        slowdown: float,
        now_s: float,
    ) -> None:
        """Go on with other cores from now on, at another rate; the row has been written."""
        run = self.run
        assert run is not None
        run.base, run.placement, run.need, run.slowdown = mode, placement, need, slowdown
        self.share(instance, run.partner, now_s)

    def slow_down(self, slowdown: float, now_s: float) -> None:
        """Go on working, by so much slower than on channels of its own."""
        run = self.run
        assert run is not None
        run.slowdown = slowdown
        self._change_rate(run, now_s)

    def _change_rate(self, run: Run, now_s: float) -> None:
        run.unsaved = unsaved = self.unsaved(now_s)
        if (
            len(unsaved) > 1 and self.job.profile.checkpoint_every_s is None
        ):  # it is lost as a whole, or not at all
            seconds = math.fsum(part for part, _ in unsaved)
            run.unsaved = ((seconds, math.fsum(part * rate for part, rate in unsaved) / seconds),)
        run.work_s = self.attempt_left_s(now_s)
        run.rate = run.full_rate / run.slowdown
        run.work_from_s = max(now_s, run.work_from_s)
        run.end_s = _after(now_s, run.work_from_s - now_s + run.work_s / run.rate)
        self.run_number += 1

    def reads_as_going_on(self, begin_s: float, mode: Mode, placement: Placement) -> bool:
        """Return whether a start would read in a plan as if the last stay had never ended."""
        if self.left_at is None:
            return False
        end_s, last_mode, last_placement = self.left_at
        if begin_s - end_s > 2 * TIME_TOLERANCE_S:
            return False
        if self.job.cores_in_place:
            return is_one_stay(self.job, last_mode, last_placement, mode, placement)
        return {*last_placement} == {*placement} and (
            replace(last_mode, gpu_type=mode.gpu_type) == mode
        )

    def leave(self, end_s: float) -> Run:
        """Give the GPUs back at `end_s`."""
        run = self.run
        assert run is not None
        self.attained_gpu_s += (end_s - run.held_from_s) * gpus_counted(run.mode)
        if end_s > run.held_from_s:
            self.left_at = end_s, run.base, run.placement
        self.run = None
        return run

    def entry(self, now_s: float, left_s: float) -> Running | Suspended | None:
        """Return what an instance of the present says of the job if `left_s` of its work is left;
        None for one that never ran."""
        run, job = self.run, self.job
        if run is None:
            return (
                Suspended(job=job.id, remaining_s=left_s, preemptions=self.preemptions)
                if self.ran_before
                else None
            )
        mode, partner = run.mode, run.partner
        if partner is not None and partner.run is not None and partner.run.stops_s is not None:
            mode = run.base
        saved_s = None
        if job.profile.checkpoint_every_s is not None and now_s >= run.work_from_s:
            saved_s = now_s - lost_s(job, math.fsum(seconds for seconds, _ in self.unsaved(now_s)))
        return Running(
            job=job.id,
            mode=mode,
            placement=run.placement,
            started_s=min(run.started_s, now_s),
            remaining_s=left_s or (run.end_s - now_s) * run.rate,
            setup_s=max(0.0, run.work_from_s - now_s),
            last_checkpoint_s=saved_s,
            preemptions=self.preemptions,
        )

    def unsaved(self, now_s: float) -> UNSAVED_WORK:
        run = self.run
        assert run is not None
        seconds = now_s - run.work_from_s
        return (*run.unsaved, (seconds, run.rate)) if seconds > 0 else run.unsaved


def gpus_counted(mode: Mode) -> int:
    """Return the GPUs by which service is measured; a CPU-only job counts as one."""
    return mode.gpus or 1


def _lost_work_s(job: Job, unsaved: UNSAVED_WORK) -> float:
    """Return the reference work lost by a preemption: that of the last of the unsaved seconds, each
    at its rate."""
    lost = lost_s(job, math.fsum(seconds for seconds, _ in unsaved))
    work = 0.0
    for seconds, rate in reversed(unsaved):
        work += min(lost, seconds) * rate
        lost -= min(lost, seconds)
    return work


def _after(start_s: float, length_s: float) -> float:
    """Return the end of a length of time, later than its start even where floats cannot tell."""
    end_s = start_s + length_s
    return end_s if end_s > start_s else math.nextafter(start_s, math.inf)
