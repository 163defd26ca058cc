"""The cluster in virtual time: what a policy may do with it, and what then happens."""

import math
from dataclasses import replace

from ..instance import Instance, Placement, Running
from ..job import Mode
from ..modes import Option
from ..physics import TIME_TOLERANCE_S, placed_rate, unsaved_s
from ..plan import Segment
from .events import Event, Events, Kind
from .state import JobState, Run, gpus_counted
from .view import PolicyFault, View


class World(View):
    """The view, with what a policy may do and the course of events. See `View` for what may be seen."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self.unfinished = len(instance.jobs)
        self._arrived: list[str] = []
        self._released: list[str] = []
        self._wakes: set[float] = set()
        self._followers: dict[str, list[JobState]] = {}
        for state in self._states:
            for before in state.job.after:
                self._followers.setdefault(before, []).append(state)
                state.waits_for += 1
        self._events = Events([
            (instance.release_s(state.job), state.index)
            for state in self._states
            if state.job.id not in instance.running_job
        ])
        self._events.push(self.now_s, Kind.WAKE)
        if instance.cluster.budgets:
            self._set_least_budgets_aside()
        for entry in instance.suspended:
            state = self._state[entry.job]
            state.ran_before, state.preemptions = True, entry.preemptions
            state.attained_gpu_s = _service_of_work(state, self.fastest(entry.job).mode)
        for running in instance.running:
            self._go_on(running)

    # ----------------------------------------------------------------------------- what may be done

    def take_arrived(self) -> list[str]:
        """Jobs that came to wait since this was last asked: newly released, or preempted and saved."""
        found, self._arrived = self._arrived, []
        return found

    def take_released(self) -> list[str]:
        """Jobs that gave back what they held since this was last asked."""
        found, self._released = self._released, []
        return found

    def start(self, job_id: str, option: Option, placement: Placement) -> None:
        """Start a waiting job, or resume one that was preempted. Raises PolicyFault where it cannot be."""
        if job_id not in self.waiting:
            raise PolicyFault(f"job {job_id} cannot start at {self.now_s:g} s: it does not wait")
        state = self._state[job_id]
        need = self.need(job_id, option)
        speed = self._rate(state.job, option, placement)
        if speed <= 0:
            raise PolicyFault(f"job {job_id} cannot start at {self.now_s:g} s: it would make no progress")
        if not self.free.holds(need, placement):
            where = ", ".join(slot.node for slot in placement) or "the cluster"
            raise PolicyFault(f"job {job_id} cannot start on {where} at {self.now_s:g} s: not enough room")
        begin_s = self.now_s
        if state.segments and _reads_as_going_on(state.segments[-1], begin_s, option.mode, placement):
            begin_s += 2 * TIME_TOLERANCE_S  # without a gap a plan would say that it had never stopped
        elif state.ran_before and begin_s == self.instance.now_s and self._was_here(job_id, placement):
            begin_s += 2 * TIME_TOLERANCE_S
        self.free.take(need, placement)
        run = state.begin(begin_s, option.mode, placement, need, speed)
        self._events.push(run.end_s, Kind.ENDED, state.index, state.run_number)
        del self.waiting[job_id]
        self.running[job_id] = state.job

    def preempt(self, job_id: str) -> None:
        """Preempt a running job: it saves, then waits again. Raises PolicyFault where its rules forbid it."""
        if not self.may_preempt(job_id):
            raise PolicyFault(f"job {job_id} may not be preempted at {self.now_s:g} s")
        state = self._state[job_id]
        free_at_s = state.stop(self.now_s)
        del self.running[job_id]
        if free_at_s > self.now_s:
            self.saving[job_id] = state.job
            self._events.push(free_at_s, Kind.SAVED, state.index, state.run_number)
        else:
            self._saved(state)

    def wake_at(self, time_s: float) -> None:
        """Ask for a decision at `time_s` even if nothing happens then. Raises PolicyFault for a time not to
        come."""
        if not time_s > self.now_s:
            raise PolicyFault(f"a policy asked at {self.now_s:g} s to be woken at {time_s:g} s")
        if time_s not in self._wakes:
            self._wakes.add(time_s)
            self._events.push(time_s, Kind.WAKE)

    # ----------------------------------------------------------------------------------- the course

    def advance(self) -> bool:
        """Go to the next instant at which something happens, and let it happen; False when nothing is to
        come."""
        while batch := self._events.pop_instant():
            self.now_s = batch[0][0]
            happened = [self._happens(event) for event in batch]
            if any(happened):
                return True
        return False

    def segments(self, job_id: str) -> tuple[Segment, ...]:
        """What the job has held so far."""
        return tuple(self._state[job_id].segments)

    def _happens(self, event: Event) -> bool:
        _, kind, _, index, run_number = event
        if kind == Kind.WAKE:
            self._wakes.discard(self.now_s)
            return True
        state = self._states[index]
        if kind == Kind.ARRIVED:
            state.released = True
            return self._wait(state)
        if run_number != state.run_number:
            return False  # the stay it belongs to has ended otherwise
        if kind == Kind.ENDED:
            self._ended(state)
        else:
            self._saved(state)
        return True

    def _wait(self, state: JobState) -> bool:
        if not state.released or state.waits_for:
            return False
        self.waiting[state.job.id] = state.job
        self._arrived.append(state.job.id)
        return True

    def _ended(self, state: JobState) -> None:
        del self.running[state.job.id]
        self._release(state, finished=True)
        self.unfinished -= 1
        for follower in self._followers.get(state.job.id, ()):
            follower.waits_for -= 1
            if follower.run is None:
                self._wait(follower)

    def _saved(self, state: JobState) -> None:
        self.saving.pop(state.job.id, None)
        self._release(state, finished=False)
        state.released = True
        self._wait(state)

    def _release(self, state: JobState, *, finished: bool) -> None:
        run = state.leave(self.now_s)
        self.free.give(run.need, run.placement, finished=finished, with_gpus=run.partner is None)
        self._released.append(state.job.id)
        partner = run.partner
        if partner is not None and partner.run is not None:
            partner.run.partner = None
            partner.run_alone(self.instance, self.now_s)
            if partner.run.stops_s is None:
                self._events.push(partner.run.end_s, Kind.ENDED, partner.index, partner.run_number)

    # ----------------------------------------------------------------------------------- beginnings

    def _go_on(self, entry: Running) -> None:
        """Take over a job that runs at the start, with what it holds."""
        now_s = self.now_s
        state = self._state[entry.job]
        partner = self._partner(entry)
        mode = entry.mode if partner is not None else replace(entry.mode, share_with=None)
        speed = placed_rate(self.instance, state.job, mode, entry.placement)
        need = self._demands.need(state.job, mode, "cluster", state.options)
        state.ran_before, state.preemptions = True, entry.preemptions
        state.attained_gpu_s = _service_of_work(state, mode)
        state.run = run = Run(
            mode=mode, placement=entry.placement, need=need, rate=speed, started_s=entry.started_s,
            segment_start_s=now_s, work_from_s=now_s + entry.setup_s, work_s=entry.remaining_s,
            end_s=max(math.nextafter(now_s, math.inf), now_s + entry.setup_s + entry.remaining_s / speed),
            unsaved=((unsaved_s(entry, now_s), speed),), was_running=True,
        )
        if partner is not None:
            run.partner = partner
            if partner.run is not None:
                partner.run.partner = state
        self.free.take(need, entry.placement, with_gpus=partner is None or partner.run is None)
        self.running[entry.job] = state.job
        self._events.push(run.end_s, Kind.ENDED, state.index, state.run_number)

    def _partner(self, entry: Running) -> JobState | None:
        name = entry.mode.share_with
        other = None if name is None else self.instance.running_job.get(name)
        if name is None or other is None or other.mode.share_with != entry.job:
            return None
        return self._state[name]

    def _set_least_budgets_aside(self) -> None:
        """Every job will use the least it needs of each budget; only what is beyond is free to choose
        with."""
        for state in self._states:
            for name, amount in self._demands.least_budgets(state.job, state.options).items():
                self.free.budgets[name] -= amount

    def _was_here(self, job_id: str, placement: Placement) -> bool:
        entry = self.instance.running_job.get(job_id)
        return entry is not None and {*entry.placement} == {*placement}


def _reads_as_going_on(last: Segment, begin_s: float, mode: Mode, placement: Placement) -> bool:
    return (
        begin_s - last.end_s <= 2 * TIME_TOLERANCE_S and {*last.placement} == {*placement}
        and replace(last.mode, share_with=None, gpu_type=mode.gpu_type) == mode
    )


def _service_of_work(state: JobState, mode: Mode) -> float:
    """GPU-seconds that the work done so far took, as if it had all been done in the fastest option."""
    best = state.options[0].rate if state.options else 1.0
    return max(0.0, state.job.work_s - state.work_s) / best * gpus_counted(mode)
