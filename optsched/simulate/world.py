"""The cluster in virtual time: what a policy may do with it, and what then happens."""

import math
from dataclasses import replace

from ..instance import Instance, Placement, Running
from ..job import Mode
from ..modes import Option
from ..physics import TIME_TOLERANCE_S, placed_rate, unsaved_s
from ..plan import Segment
from .beside import placement_beside
from .events import Event, Events, Kind, first_round_s
from .placement import Need
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
        if self.seems_to_stay(state, option.mode, placement):
            begin_s += 2 * TIME_TOLERANCE_S  # a plan tells a new start from going on by the pause
        self.free.take(need, placement)
        self._begin(state, begin_s, option.mode, placement, need, speed)

    def start_beside(self, job_id: str, option: Option, partner_id: str) -> None:
        """Start or resume a waiting job on the very GPUs of a running one that does not share yet.

        Both then run at the rate of such pairs; the partner goes on without a set-up, and whichever leaves first
        leaves the other alone. The job takes its own cores and host memory. Raises PolicyFault where `may_share`
        is false.
        """
        reason = self._why_not_beside(job_id, option, partner_id)
        if reason is not None:
            raise PolicyFault(f"job {job_id} cannot start beside {partner_id} at {self.now_s:g} s: {reason}")
        state, partner = self._state[job_id], self._state[partner_id]
        assert partner.run is not None
        placement = placement_beside(option, partner.run.placement)
        mode = replace(option.mode, share_with=partner_id)
        need = self.need(job_id, option)
        self.free.take(need, placement, with_gpus=False)
        speed = placed_rate(self.instance, state.job, mode, placement)
        self._begin(state, self.now_s, mode, placement, need, speed).partner = partner
        self._share(partner, state)

    def _begin(
        self, state: JobState, begin_s: float, mode: Mode, placement: Placement, need: Need, speed: float
    ) -> Run:
        run = state.begin(begin_s, mode, placement, need, speed)
        self._events.push(run.end_s, Kind.ENDED, state.index, state.run_number)
        del self.waiting[state.job.id]
        self.running[state.job.id] = state.job
        return run

    def _share(self, state: JobState, partner: JobState | None) -> None:
        """From now on beside `partner`, or alone."""
        state.share(self.instance, partner, self.now_s)
        assert state.run is not None
        if state.run.stops_s is None:
            self._events.push(state.run.end_s, Kind.ENDED, state.index, state.run_number)

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

    def advance(self, round_s: float | None = None) -> bool:
        """Go to the next instant at which something happens, and let it happen; False when nothing is to
        come. With `round_s` go on to the first round then or later, letting happen what comes until it."""
        while batch := self._events.pop_instant():
            if self._happen(batch):
                if round_s is not None:
                    self._go_on_to_round(round_s)
                return True
        return False

    def segments(self, job_id: str) -> tuple[Segment, ...]:
        """What the job has held so far."""
        return tuple(self._state[job_id].segments)

    def _go_on_to_round(self, round_s: float) -> None:
        at_s = first_round_s(self.instance.now_s, round_s, self.now_s)
        while self._events.next_s() <= at_s:
            self._happen(self._events.pop_instant())
        self.now_s = at_s

    def _happen(self, batch: list[Event]) -> bool:
        """Let all events of one instant happen; whether any of them still meant something."""
        self.now_s = batch[0][0]
        return any([self._happens(event) for event in batch])

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
        if run.partner is not None:
            self._share(run.partner, None)

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
        for job in self.instance.jobs:
            for name, amount in self.least_budgets(job.id).items():
                self.free.budgets[name] -= amount


def _service_of_work(state: JobState, mode: Mode) -> float:
    """GPU-seconds that the work done so far took, as if it had all been done in the fastest option."""
    best = state.options[0].rate if state.options else 1.0
    return max(0.0, state.job.work_s - state.work_s) / best * gpus_counted(mode)
