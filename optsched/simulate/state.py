"""Where one job stands in a simulation: exact progress between events, and the segments it leaves behind."""

import math
from dataclasses import replace

from ..instance import Instance, Placement, Running, Suspended
from ..job import Job, Mode
from ..modes import Option
from ..physics import TIME_TOLERANCE_S, hold_to_save_s, lost_s, placed_rate, run_s, setup_s
from ..plan import Segment
from .demand import Demand
from .placement import Need


class Run:
    """One stay on GPUs, from a start to completion or preemption.

    `started_s` begins the stay, `held_from_s` the part of it that is simulated, `segment_start_s` its current
    segment. Work goes on from `work_from_s`, when start-up and restore are over, with `work_s` of reference
    work to do then; `unsaved` has the (seconds, rate) worked since the last checkpoint until then. `stops_s`
    is set once the job is being preempted: then it gives back what it holds.
    """

    __slots__ = (
        "end_s", "held_from_s", "mode", "need", "partner", "placement", "rate", "segment_start_s",
        "started_s", "stops_s", "unsaved", "was_running", "work_from_s", "work_s",
    )

    def __init__(
        self, *, mode: Mode, placement: Placement, need: Need, rate: float, started_s: float,
        segment_start_s: float, work_from_s: float, work_s: float, end_s: float,
        unsaved: tuple[tuple[float, float], ...] = (), was_running: bool = False,
    ) -> None:
        self.mode = mode
        self.placement = placement
        self.need = need
        self.rate = rate
        self.started_s = started_s
        self.held_from_s = self.segment_start_s = segment_start_s
        self.work_from_s = work_from_s
        self.work_s = work_s
        self.end_s = end_s
        self.unsaved = unsaved
        self.was_running = was_running
        self.stops_s: float | None = None
        self.partner: JobState | None = None


class JobState:
    """One job: what is left of it, whether it runs, and how it got there."""

    __slots__ = (
        "attained_gpu_s", "demand", "index", "job", "options", "preemptions", "ran_before", "released", "run",
        "run_number", "segments", "waits_for", "work_s",
    )

    def __init__(
        self, index: int, job: Job, work_s: float, options: tuple[Option, ...], demand: Demand
    ) -> None:
        self.index = index
        self.job = job
        self.work_s = work_s
        self.options = options
        self.demand = demand
        self.run: Run | None = None
        self.run_number = 0
        self.ran_before = False
        self.released = False
        self.waits_for = 0
        self.preemptions = 0
        self.attained_gpu_s = 0.0
        self.segments: list[Segment] = []

    def begin(self, begin_s: float, mode: Mode, placement: Placement, need: Need, rate: float) -> Run:
        """Start on `placement`: set-up first, then work to the end unless preempted."""
        setup = setup_s(self.job, self.ran_before)
        self.run = Run(
            mode=mode, placement=placement, need=need, rate=rate, started_s=begin_s, segment_start_s=begin_s,
            work_from_s=begin_s + setup, work_s=self.work_s,
            end_s=_after(begin_s, setup + run_s(self.job, mode, self.work_s, rate)),
        )
        self.run_number += 1
        self.ran_before = True
        return self.run

    def work_left_s(self, now_s: float) -> float:
        """Reference work still to do."""
        run = self.run
        if run is None or now_s <= run.work_from_s:
            return self.work_s if run is None else run.work_s
        return max(0.0, run.work_s - (now_s - run.work_from_s) * run.rate)

    def stop(self, now_s: float) -> float:
        """Preempt: what was not saved is lost. Returns when the GPUs come free, the checkpoint taken."""
        run = self.run
        assert run is not None
        left_s = self.work_left_s(now_s)
        lost = _lost_work_s(self.job, self._unsaved(now_s))
        self.work_s = left_s + min(lost, max(0.0, self.job.work_s - left_s))
        self.preemptions += 1
        self.run_number += 1
        run.stops_s = run.end_s = now_s + hold_to_save_s(self.job)
        return run.stops_s

    def share(self, instance: Instance, partner: "JobState | None", now_s: float) -> None:
        """Hold the GPUs beside `partner` (None: alone) from now on: a new segment, at another rate."""
        run = self.run
        assert run is not None
        self.close_segment(now_s)
        run.partner = partner
        mode = replace(run.mode, share_with=None if partner is None else partner.job.id)
        if run.stops_s is None:
            run.unsaved = self._unsaved(now_s)
            run.work_s = self.work_left_s(now_s)
            run.rate = placed_rate(instance, self.job, mode, run.placement)
            run.work_from_s = max(now_s, run.work_from_s)
            run.end_s = _after(now_s, run.work_from_s - now_s + run.work_s / run.rate)
            self.run_number += 1
        run.mode = mode
        run.segment_start_s = now_s

    def close_segment(self, end_s: float) -> None:
        """Write down the current segment, if it has any length."""
        run = self.run
        assert run is not None
        if end_s > run.segment_start_s:
            self.segments.append(
                Segment(start_s=run.segment_start_s, end_s=end_s, mode=run.mode, placement=run.placement)
            )

    def reads_as_going_on(self, begin_s: float, mode: Mode, placement: Placement) -> bool:
        """Whether a start would read in a plan as if the last stay had never ended."""
        if not self.segments:
            return False
        last = self.segments[-1]
        return (
            begin_s - last.end_s <= 2 * TIME_TOLERANCE_S and {*last.placement} == {*placement}
            and replace(last.mode, share_with=None, gpu_type=mode.gpu_type) == mode
        )

    def leave(self, end_s: float) -> Run:
        """Give the GPUs back at `end_s`."""
        run = self.run
        assert run is not None
        self.close_segment(end_s)
        self.attained_gpu_s += (end_s - run.held_from_s) * gpus_counted(run.mode)
        self.run = None
        return run


    def entry(self, now_s: float, left_s: float) -> Running | Suspended | None:
        """What an instance of the present says of the job if `left_s` of its work is left; None for one that
        never ran."""
        run, job = self.run, self.job
        if run is None:
            return Suspended(job=job.id, remaining_s=left_s, preemptions=self.preemptions) if self.ran_before else None
        mode, partner = run.mode, run.partner
        if partner is not None and partner.run is not None and partner.run.stops_s is not None:
            mode = replace(mode, share_with=None)
        saved_s = None
        if job.profile.checkpoint_every_s is not None and now_s >= run.work_from_s:
            saved_s = now_s - lost_s(job, math.fsum(seconds for seconds, _ in self._unsaved(now_s)))
        return Running(
            job=job.id, mode=mode, placement=run.placement, started_s=min(run.started_s, now_s),
            remaining_s=left_s or (run.end_s - now_s) * run.rate, setup_s=max(0.0, run.work_from_s - now_s),
            last_checkpoint_s=saved_s, preemptions=self.preemptions,
        )

    def _unsaved(self, now_s: float) -> tuple[tuple[float, float], ...]:
        """(seconds, rate) worked since the last checkpoint or the start of the stay."""
        run = self.run
        assert run is not None
        return *run.unsaved, (max(0.0, now_s - run.work_from_s), run.rate)


def gpus_counted(mode: Mode) -> int:
    """GPUs by which service is measured; a CPU-only job counts as one."""
    return max(1, mode.gpus)


def _lost_work_s(job: Job, unsaved: tuple[tuple[float, float], ...]) -> float:
    """Reference work lost by a preemption: that of the last of the unsaved seconds, each at its rate."""
    lost = lost_s(job, math.fsum(seconds for seconds, _ in unsaved))
    work = 0.0
    for seconds, rate in reversed(unsaved):
        work += min(lost, seconds) * rate
        lost -= min(lost, seconds)
    return work


def _after(start_s: float, length_s: float) -> float:
    """The end of a length of time, later than its start even where floats cannot tell."""
    end_s = start_s + length_s
    return end_s if end_s > start_s else math.nextafter(start_s, math.inf)
