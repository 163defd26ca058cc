"""The cluster in virtual time: what a policy may see of it, and what it may do."""

import math
from dataclasses import dataclass, replace

from ..errors import OptschedError
from ..instance import Instance, Placement, Running
from ..job import Job, Mode
from ..modes import Option
from ..physics import TIME_TOLERANCE_S, placed_rate, rate, run_s, setup_s, span, unsaved_s
from ..plan import Segment
from .demand import Demand, Demands
from .events import Event, Events, Kind
from .placement import Layout, Need, Room
from .state import JobState, Run, gpus_counted


WORK_TOLERANCE = 1e-9
"""Share of a job's work that counts as rounding."""


class PolicyFault(OptschedError):
    """A policy asked for what cannot be; the message says what and when."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What a running or saving job holds; `partner` is the job that shares its GPUs."""

    need: Need
    placement: Placement
    partner: str | None


class World:
    """State of a simulation between events.

    `waiting` are the jobs that could start, in the order in which they came to wait: released, their predecessors
    done, not running. `running` are those that hold GPUs and will go on, `saving` those that are being preempted
    and still hold theirs. `free` is what nobody holds; a policy tries things in copies of it.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.cluster = instance.cluster
        self.now_s = instance.now_s
        self.waiting: dict[str, Job] = {}
        self.running: dict[str, Job] = {}
        self.saving: dict[str, Job] = {}
        layout = Layout(instance.cluster)
        self.free = Room(layout, instance.cluster, instance.tenants)
        self.unfinished = len(instance.jobs)
        self._demands = Demands(instance, layout)
        self._arrived: list[str] = []
        self._released: list[str] = []
        self._wakes: set[float] = set()
        self._states: list[JobState] = []
        for index, job in enumerate(instance.jobs):
            self._states.append(JobState(index, job, instance.remaining_s(job), *self._demands.of(job)))
        self._state = {state.job.id: state for state in self._states}
        self._followers: dict[str, list[JobState]] = {}
        arrivals = []
        for state in self._states:
            for before in state.job.after:
                self._followers.setdefault(before, []).append(state)
                state.waits_for += 1
            if state.job.id not in instance.running_job:
                arrivals.append((instance.release_s(state.job), state.index))
        self._events = Events(arrivals)
        self._events.push(self.now_s, Kind.WAKE)
        if instance.cluster.budgets:
            self._set_least_budgets_aside()
        for entry in instance.suspended:
            state = self._state[entry.job]
            state.ran_before, state.preemptions = True, entry.preemptions
            state.attained_gpu_s = self._service_of_work(state, self.fastest(entry.job).mode)
        for running in instance.running:
            self._go_on(running)

    # ------------------------------------------------------------------------------------------ what may be seen

    def job(self, job_id: str) -> Job:
        """The job as it was submitted. A policy asks `remaining_work_s` for its length, never the job."""
        return self._state[job_id].job

    def order(self, job_id: str) -> tuple[float, int]:
        """Sort key of arrival: submission, then the position in the instance."""
        state = self._state[job_id]
        return state.job.submit_s, state.index

    def remaining_work_s(self, job_id: str) -> float:
        """Reference work that a policy believes a job has left; the only thing it may know of it. Exact here."""
        return self._state[job_id].work_left_s(self.now_s)

    def options(self, job_id: str) -> tuple[Option, ...]:
        """Ways to run the job that could ever fit, the fastest first."""
        return self._state[job_id].options

    def demand(self, job_id: str) -> Demand:
        """What the job asks for; jobs of one demand fit at the same instants."""
        return self._state[job_id].demand

    def fastest(self, job_id: str) -> Option:
        """The fastest option. Raises PolicyFault for a job that fits nowhere."""
        state = self._state[job_id]
        if not state.options:
            raise PolicyFault(f"job {job_id} fits nowhere on the cluster within its tenant's quota and the budgets")
        return state.options[0]

    def fastest_finish_s(self, job_id: str) -> float:
        """Seconds from now to completion in the fastest option, with the start-up and restore still to pay."""
        state = self._state[job_id]
        run = state.run
        if run is None or run.stops_s is not None:
            setup = setup_s(state.job, state.ran_before)
        else:
            setup = max(0.0, run.work_from_s - self.now_s)
        best = state.options[0].rate if state.options or run is None else run.rate
        return setup + self.remaining_work_s(job_id) / best

    def service_gpus(self, job_id: str) -> int:
        """GPUs by which the service still to give is measured: those of the fastest option; at least one, so that
        CPU-only jobs count."""
        state = self._state[job_id]
        return gpus_counted(self.fastest(job_id).mode if state.options or state.run is None else state.run.mode)

    def held_gpus(self, job_id: str) -> int:
        """GPUs by which the service that a running or saving job is getting is measured; at least one."""
        return gpus_counted(self._held(job_id).mode)

    def attained_gpu_s(self, job_id: str) -> float:
        """GPU-seconds the job has held so far, overheads included. What it held before `Instance.now_s` is taken
        from the work it has done."""
        state = self._state[job_id]
        if state.run is None:
            return state.attained_gpu_s
        held_s = max(0.0, self.now_s - state.run.held_from_s)
        return state.attained_gpu_s + held_s * gpus_counted(state.run.mode)

    def expected_run_s(self, job_id: str, option: Option, placement: Placement) -> float:
        """Seconds that a waiting job would hold `placement`, start-up and restore included."""
        state = self._state[job_id]
        speed = self._rate(state.job, option, placement)
        return setup_s(state.job, state.ran_before) + run_s(
            state.job, option.mode, self.remaining_work_s(job_id), speed
        )

    def expected_release_s(self, job_id: str) -> float:
        """When a running or saving job is expected to give back what it holds."""
        run = self._held(job_id)
        if run.stops_s is not None:
            return run.stops_s
        return max(self.now_s, run.work_from_s) + self.remaining_work_s(job_id) / run.rate

    def hold(self, job_id: str) -> Hold:
        """What a running or saving job holds."""
        run = self._held(job_id)
        return Hold(run.need, run.placement, None if run.partner is None else run.partner.job.id)

    def fit(self, job_id: str, room: Room | None = None) -> tuple[Option, Placement] | None:
        """The fastest option that fits `room` (default: what is free now), and the best-fit place for it."""
        state = self._state[job_id]
        found = state.demand.fit(self.free if room is None else room)
        return None if found is None else (state.options[found[0]], found[1])

    def need(self, job_id: str, option: Option) -> Need:
        """What the job takes under `option`."""
        state = self._state[job_id]
        for own, need in zip(state.options, state.demand.needs, strict=True):
            if own is option:
                return need
        return self._demands.need(state.job, option.mode, option.spread, state.options)

    def take_arrived(self) -> list[str]:
        """Jobs that came to wait since this was last asked: newly released, or preempted and saved."""
        found, self._arrived = self._arrived, []
        return found

    def take_released(self) -> list[str]:
        """Jobs that gave back what they held since this was last asked."""
        found, self._released = self._released, []
        return found

    def preemptible_at_s(self, job_id: str) -> float:
        """From when on a running job may be preempted; infinite if never in this stay.

        Not before its minimum run and its set-up are over, and not when it is about to end.
        """
        state = self._state[job_id]
        run, job = state.run, state.job
        if (
            run is None or run.stops_s is not None or not job.preemptible or not state.options
            or (job.max_preemptions is not None and state.preemptions >= job.max_preemptions)
            or state.work_left_s(self.now_s) <= 2 * (TIME_TOLERANCE_S * run.rate + WORK_TOLERANCE * job.work_s)
        ):
            return math.inf
        rested_s = run.started_s + job.min_run_s
        if run.was_running and self.now_s == self.instance.now_s and rested_s <= self.now_s + TIME_TOLERANCE_S:
            return self.now_s
        return max(rested_s, run.work_from_s)

    def may_preempt(self, job_id: str) -> bool:
        """Whether a running job may be preempted now."""
        run = self._state[job_id].run
        if run is None or not (run.held_from_s < self.now_s or run.was_running):
            return False
        return self.preemptible_at_s(job_id) <= self.now_s + TIME_TOLERANCE_S

    # ------------------------------------------------------------------------------------------ what may be done

    def start(self, job_id: str, option: Option, placement: Placement) -> None:
        """Start a waiting job, or resume one that was preempted. Raises PolicyFault where it cannot be."""
        if job_id not in self.waiting:
            raise PolicyFault(f"job {job_id} cannot start at {self.now_s:g} s: it does not wait")
        state = self._state[job_id]
        need = self.need(job_id, option)
        speed = self._rate(state.job, option, placement)
        if speed <= 0:
            raise PolicyFault(f"job {job_id} cannot start at {self.now_s:g} s: it would make no progress there")
        if not self.free.holds(need, placement):
            where = ", ".join(slot.node for slot in placement) or "the cluster"
            raise PolicyFault(f"job {job_id} cannot start on {where} at {self.now_s:g} s: there is not enough room")
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
        """Ask for a decision at `time_s` even if nothing happens then. Raises PolicyFault for a time not to come."""
        if not time_s > self.now_s:
            raise PolicyFault(f"a policy asked at {self.now_s:g} s to be woken at {time_s:g} s")
        if time_s not in self._wakes:
            self._wakes.add(time_s)
            self._events.push(time_s, Kind.WAKE)

    # ---------------------------------------------------------------------------------------------- the course

    def advance(self) -> bool:
        """Go to the next instant at which something happens, and let it happen; False when nothing is to come."""
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

    # ------------------------------------------------------------------------------------------------ beginnings

    def _go_on(self, entry: Running) -> None:
        """Take over a job that runs at the start, with what it holds."""
        now_s = self.now_s
        state = self._state[entry.job]
        partner = self._partner(entry)
        mode = entry.mode if partner is not None else replace(entry.mode, share_with=None)
        speed = placed_rate(self.instance, state.job, mode, entry.placement)
        need = self._demands.need(state.job, mode, "cluster", state.options)
        state.ran_before, state.preemptions = True, entry.preemptions
        state.attained_gpu_s = self._service_of_work(state, mode)
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

    def _service_of_work(self, state: JobState, mode: Mode) -> float:
        best = state.options[0].rate if state.options else 1.0
        return max(0.0, state.job.work_s - state.work_s) / best * gpus_counted(mode)

    def _set_least_budgets_aside(self) -> None:
        """Every job will use the least it needs of each budget; only what is beyond is free to choose with."""
        for state in self._states:
            for name, amount in self._demands.least_budgets(state.job, state.options).items():
                self.free.budgets[name] -= amount

    def _held(self, job_id: str) -> Run:
        run = self._state[job_id].run
        if run is None:
            raise PolicyFault(f"job {job_id} holds nothing at {self.now_s:g} s")
        return run

    def _rate(self, job: Job, option: Option, placement: Placement) -> float:
        if len(placement) <= 1 and option.spread == "node":
            return option.rate
        return rate(job, option.mode, option.mode.gpu_type, span(self.cluster, placement))

    def _was_here(self, job_id: str, placement: Placement) -> bool:
        entry = self.instance.running_job.get(job_id)
        return entry is not None and {*entry.placement} == {*placement}


def _reads_as_going_on(last: Segment, begin_s: float, mode: Mode, placement: Placement) -> bool:
    return (
        begin_s - last.end_s <= 2 * TIME_TOLERANCE_S and {*last.placement} == {*placement}
        and replace(last.mode, share_with=None, gpu_type=mode.gpu_type) == mode
    )
