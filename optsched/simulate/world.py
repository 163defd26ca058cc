"""The cluster in virtual time: what a policy may do with it, and what then happens."""

import math
from dataclasses import replace

from ..estimates import Estimates
from ..model.instance import Instance, Placement, Running
from ..model.job import Mode
from ..physics import (
    TIME_TOLERANCE_S,
    beyond_gpu_memory,
    placed_rate,
    runs_out_of_memory_s,
    unsaved_s,
)
from ..physics.contention import channel_loads
from ..physics.modes import Option
from .beside import placement_beside
from .events import Event, Events, Kind, first_round_s
from .layout import Need
from .record import Ending, Rows
from .state import JobState, Run, gpus_counted
from .view import PolicyError, View

ARRIVED, ENDED = Kind.ARRIVED, Kind.ENDED
"""Looked up once: they are compared for every event."""


class World(View):
    """The view, with what a policy may do and the course of events. See `View` for what may be
    seen."""

    def __init__(self, instance: Instance, estimates: Estimates | None = None) -> None:
        super().__init__(instance, estimates)
        self.unfinished = len(instance.jobs)
        self.rows = Rows(instance.cluster)
        self._arrived: list[str] = []
        self._released: list[str] = []
        self._wakes: set[float] = set()
        self._followers: dict[str, list[JobState]] = {}
        for state in self._states:
            for before in state.job.after:
                self._followers.setdefault(before, []).append(state)
                state.waits_for += 1
        now_s, runs = self.now_s, instance.running_job
        self._events = Events(
            [
                (max(state.job.submit_s, now_s), state.rank, state.index)
                for state in self._states
                if state.job.id not in runs
            ]
        )
        self._events.push(now_s, Kind.WAKE)
        if instance.cluster.budgets:
            self._set_least_budgets_aside()
        self._expect_incidents()
        for entry in instance.suspended:
            state = self._state[entry.job]
            state.ran_before, state.preemptions = True, entry.preemptions
            state.attained_gpu_s = _service_of_work(state, self.fastest(entry.job).mode)
        for running in sorted(instance.running, key=lambda one: self._state[one.job].rank):
            self._go_on(running)

    def _expect_incidents(self) -> None:
        attempts: dict[str, list[tuple[float, float]]] = {}
        for failure in self.instance.failures:
            attempts.setdefault(failure.job, []).append((failure.work_s, failure.kept_s))
        for job_id, failing in attempts.items():
            self._state[job_id].will_fail(failing)
        for outage in self.instance.outages:
            i = self.free.layout.order[outage.node]
            self._events.push(outage.start_s, Kind.NODE_LOST, i)
            self._events.push(outage.end_s, Kind.NODE_BACK, i)

    # ----------------------------------------------------------------------------- what may be done

    def take_arrived(self) -> list[str]:
        """Jobs that came to wait since this was last asked: newly released, or preempted and
        saved."""
        found, self._arrived = self._arrived, []
        return found

    def has_arrived(self, job_id: str) -> bool:
        """Whether `take_arrived` would name the job."""
        return job_id in self._arrived

    def take_released(self) -> list[str]:
        """Jobs that gave back what they held since this was last asked, and nodes that came
        back."""
        found, self._released = self._released, []
        return found

    def start(self, job_id: str, option: Option, placement: Placement) -> None:
        """Start a waiting job, or resume one that was preempted. Raises PolicyError where it cannot
        be."""
        if job_id not in self.waiting:
            raise PolicyError(f"job {job_id} cannot start at {self.now_s:g} s: it does not wait")
        state = self._state[job_id]
        fitted = self._just_fitted(job_id, option, placement)
        need = fitted or self.need(job_id, option)
        speed = self._rate(state.job, option, placement)
        if speed <= 0:
            raise PolicyError(
                f"job {job_id} cannot start at {self.now_s:g} s: it would make no progress"
            )
        if fitted is None and not self.free.holds(need, placement):
            where = ", ".join(slot.node for slot in placement) or "the cluster"
            raise PolicyError(
                f"job {job_id} cannot start on {where} at {self.now_s:g} s: not enough room"
            )
        begin_s = self.now_s
        if state.ran_before and self.seems_to_stay(state, option.mode, placement):
            begin_s += 2 * TIME_TOLERANCE_S  # a plan tells a new start from going on by the pause
        if self._caches is not None and state.job.profile.fetch_s:
            begin_s = self._caches.begin_s(placement, begin_s)
        self.free.take(need, placement)
        self._begin(state, begin_s, option.mode, placement, need, speed)

    def start_beside(
        self, job_id: str, option: Option, partner_id: str, *, heedless: bool = False
    ) -> None:
        """Start or resume a waiting job on the very GPUs of a running one that does not share yet.

        Both then run at the rate of such pairs; the partner goes on without a set-up, and whichever
        leaves first leaves the other alone. The job takes its own cores and host memory. With
        `heedless` it is started even where the GPUs do not have the memory of both: it then runs
        out of memory when its set-up is over, has gained nothing and waits again, unless its
        partner leaves before. Raises PolicyError where `may_share` is false.
        """
        reason = self._why_not_beside(job_id, option, partner_id, heedless)
        if reason is not None:
            raise PolicyError(
                f"job {job_id} cannot start beside {partner_id} at {self.now_s:g} s: {reason}"
            )
        state, partner = self._state[job_id], self._state[partner_id]
        assert partner.run is not None
        placement = placement_beside(option, partner.run.placement)
        mode = replace(option.mode, share_with=partner_id)
        need = self.need(job_id, option)
        self.free.take(need, placement, with_gpus=False)
        speed = placed_rate(self.instance, state.job, mode, placement)
        begin_s = max(self.now_s, partner.run.row_s)
        dies_s = None
        if (
            heedless
            and beyond_gpu_memory(self.cluster, state.job, partner.job, placement) is not None
        ):
            dies_s = begin_s + runs_out_of_memory_s(state.job, state.ran_before)
        self._begin(state, begin_s, mode, placement, need, speed, dies_s).partner = partner
        self._share(partner, state)

    def _begin(
        self,
        state: JobState,
        begin_s: float,
        mode: Mode,
        placement: Placement,
        need: Need,
        speed: float,
        dies_s: float | None = None,
    ) -> Run:
        fetch_s = 0.0
        if self._caches is not None:
            fetch_s = self._caches.fetch_s(state.job, placement, begin_s)
            self._caches.start(state.index, state.job, placement, begin_s)
        slower: dict[int, None] | None = None
        if self._channels is None:
            run = state.begin(begin_s, mode, placement, need, speed, fetch_s=fetch_s)
        else:
            slower = self._channels.join(
                state.index, channel_loads(self.cluster, state.job, mode, placement)
            )
            slowdown = self._channels.slowdown(state.index, state.job.profile)
            run = state.begin(begin_s, mode, placement, need, speed, slowdown, fetch_s)
        ends_s = run.end_s
        if mode.share_with is not None:
            run.base, run.dies_s = replace(mode, share_with=None), dies_s
            ends_s = run.ends_s
        self._events.push(ends_s, ENDED, state.index, state.run_number)
        if need.ties is not None and self.free.domains.opens(need.ties):
            self._released.append(state.job.id)
            self._events.push(self.now_s, Kind.WAKE)
        job = state.job
        state.waited_s += self.now_s - state.waits_from_s
        del self.waiting[job.id]
        self.running[job.id] = job
        if slower:
            self._slow_down(slower)
        return run

    def _slow_down(self, crowd: dict[int, None]) -> None:
        """Let those work on at another rate for whom their channels have become more crowded, or
        less."""
        assert self._channels is not None
        for index in crowd:
            state = self._states[index]
            run = state.run
            if run is None or state.job.id not in self.running or run.ends_s <= self.now_s:
                continue  # it saves, is lost, or ends at this very instant
            slowdown = self._channels.slowdown(index, state.job.profile)
            if slowdown != run.slowdown:
                state.slow_down(slowdown, self.now_s)
                self._events.push(run.ends_s, Kind.ENDED, index, state.run_number)

    def _share(self, state: JobState, partner: JobState | None) -> None:
        """From now on beside `partner`, or alone."""
        self._close_row(state, Ending.GOES_ON)
        state.share(self.instance, partner, self.now_s)
        assert state.run is not None
        if state.run.stops_s is None:
            self._events.push(state.run.ends_s, Kind.ENDED, state.index, state.run_number)

    def preempt(self, job_id: str) -> None:
        """Preempt a running job: it saves, then waits again. Raises PolicyError where its rules
        forbid it."""
        if not self.may_preempt(job_id):
            raise PolicyError(f"job {job_id} may not be preempted at {self.now_s:g} s")
        state = self._state[job_id]
        free_at_s = state.stop(self.now_s)
        del self.running[job_id]
        if free_at_s > self.now_s:
            self.saving[job_id] = state.job
            self._events.push(free_at_s, Kind.SAVED, state.index, state.run_number)
        else:
            self._saved(state)

    def wake_at(self, time_s: float) -> None:
        """Ask for a decision at `time_s` even if nothing happens then. Raises PolicyError for a
        time not to come."""
        if not time_s > self.now_s:
            raise PolicyError(f"a policy asked at {self.now_s:g} s to be woken at {time_s:g} s")
        if time_s not in self._wakes:
            self._wakes.add(time_s)
            self._events.push(time_s, Kind.WAKE)

    # ----------------------------------------------------------------------------------- the course

    def advance(self, round_s: float | None = None, *, not_before_s: float = -math.inf) -> bool:
        """Go to the next instant at which something happens, and let it happen; False when nothing
        is to come. With `round_s` go on to the first round then or later, else if need be to
        `not_before_s`, letting happen what comes until it."""
        while batch := self._events.pop_instant():
            if self._happen(batch):
                if round_s is not None:
                    self.go_on_to(first_round_s(self.instance.now_s, round_s, self.now_s))
                elif self.now_s < not_before_s:
                    self.go_on_to(not_before_s)
                return True
        return False

    def go_on_to(self, time_s: float) -> None:
        """Let happen what comes until `time_s`."""
        while self._events.next_s() <= time_s:
            self._happen(self._events.pop_instant())
        self.now_s = time_s

    def _happen(self, batch: list[Event]) -> bool:
        """Let all events of one instant happen; whether any of them still meant something."""
        self.now_s = batch[0][0]
        if len(batch) == 1:
            return self._happens(batch[0])
        happened = False
        for event in batch:
            if self._happens(event):
                happened = True
        return happened

    def _happens(self, event: Event) -> bool:
        _, kind, _, index, run_number = event
        if kind == ARRIVED:
            state = self._states[index]
            state.released = True
            if self.estimates is not None:
                state.believed_s = self.estimates.work_s(state.job, self.now_s)
            return self._wait(state)
        if kind == ENDED:
            state = self._states[index]
            if run_number != state.run_number:
                return False  # the stay it belongs to has ended otherwise
            assert state.run is not None
            if state.run.dies_s is not None and state.run.end_s > self.now_s:
                self._out_of_memory(state)
            elif state.attempt < len(state.failures):
                self._failed(state)
            else:
                self._ended(state)
        elif kind == Kind.SAVED:
            state = self._states[index]
            if run_number != state.run_number:
                return False
            self._saved(state)
        elif kind == Kind.NODE_LOST:
            self._lose(self.free.layout.names[index])
        elif kind == Kind.NODE_BACK:
            name = self.free.layout.names[index]
            self.free.regain(name)
            del self.lost[name]
            self._released.append(name)
        else:
            self._wakes.discard(self.now_s)
        return True

    def _wait(self, state: JobState) -> bool:
        if not state.released or state.waits_for:
            return False
        self.waiting[state.job.id] = state.job
        self._arrived.append(state.job.id)
        if state.ran_before or state.job.after:  # else it waits since it was submitted
            state.waits_from_s = self.now_s
        return True

    def _ended(self, state: JobState) -> None:
        del self.running[state.job.id]
        self._release(state, Ending.COMPLETED)
        self.unfinished -= 1
        if self.estimates is not None:
            self.estimates.completed(state.job, state.past_s + state.attempt_s, self.now_s)
        for follower in self._followers.get(state.job.id, ()):
            follower.waits_for -= 1
            if follower.run is None:
                self._wait(follower)

    def _failed(self, state: JobState) -> None:
        """An attempt has failed; the job waits for the next one."""
        del self.running[state.job.id]
        state.run_number += 1
        self._release(state, Ending.FAILED)
        self._wait(state)

    def _out_of_memory(self, state: JobState) -> None:
        """The GPUs do not have the memory that a job needs beside its partner; it waits as it did
        before the start."""
        del self.running[state.job.id]
        state.run_number += 1
        self._release(state, Ending.OUT_OF_MEMORY)
        state.released = True
        self._wait(state)

    def _saved(self, state: JobState) -> None:
        self.saving.pop(state.job.id, None)
        self._release(state, Ending.PREEMPTED)
        state.released = True
        self._wait(state)

    def _lose(self, node: str) -> None:
        """A node is lost, with all that runs or saves there."""
        hit = [
            self._state[job_id]
            for job_id in (*self.running, *self.saving)
            if any(slot.node == node for slot in self.hold(job_id).placement)
        ]
        for state in hit:
            self.running.pop(state.job.id, None)
            self.saving.pop(state.job.id, None)
            state.crash(self.now_s)
        for state in hit:
            self._close_row(state, Ending.NODE_LOST)
        for state in hit:
            self._give_back(state, Ending.NODE_LOST)
            state.released = True
            self._wait(state)
        self.free.lose(node)
        if self._caches is not None:
            self._caches.clear(node)
        self.lost[node] = None

    def _release(self, state: JobState, ending: Ending) -> None:
        self._close_row(state, ending)
        self._give_back(state, ending)

    def _give_back(self, state: JobState, ending: Ending) -> None:
        run = state.leave(self.now_s)
        self.free.give(
            run.need,
            run.placement,
            finished=ending == Ending.COMPLETED,
            with_gpus=run.partner is None,
        )
        self._released.append(state.job.id)
        if self._channels is not None and (faster := self._channels.leave(state.index)):
            self._slow_down(faster)
        if run.partner is None or run.partner.run is None:
            return
        if ending == Ending.NODE_LOST:
            run.partner.run.partner = None  # it is lost too, and will give back the GPUs of both
        else:
            self._share(run.partner, None)

    def _close_row(self, state: JobState, ending: Ending) -> None:
        """Write down the current row, if it has any length."""
        run, end_s = state.run, self.now_s
        assert run is not None
        start_s = run.row_s
        lost_s = 0.0
        if ending == Ending.COMPLETED:
            left_s = 0.0
        elif ending == Ending.FAILED:
            left_s, lost_s = 0.0, state.next_attempt()
        elif ending == Ending.OUT_OF_MEMORY:
            left_s = state.attempt_left_s(end_s)
            lost_s = state.work_s - left_s
        elif run.stopped_s is None and ending == Ending.GOES_ON:
            left_s = state.attempt_left_s(end_s)
        else:
            left_s = run.left_s
            if ending != Ending.GOES_ON:
                lost_s = state.work_s - left_s
        if not end_s > start_s:
            if ending != Ending.GOES_ON:
                self.rows.amend(state.index, end_s, lost_s, ending)
            return
        stopped_s = end_s if run.stopped_s is None else max(run.stopped_s, start_s)
        overhead_s = end_s - stopped_s + max(0.0, min(run.ready_s, stopped_s) - start_s)
        partner = -1 if run.partner is None else run.partner.index
        self.rows.add(
            state.index,
            start_s,
            end_s,
            run.base,
            run.placement,
            partner,
            overhead_s,
            run.row_work_s - left_s,
            lost_s,
            ending,
        )
        if run.stopped_s is not None:
            run.work_s = run.row_work_s = left_s

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
            replace(mode, share_with=None),
            entry.placement,
            need,
            speed,
            entry.started_s,
            now_s,
            now_s + entry.setup_s,
            entry.remaining_s,
            max(math.nextafter(now_s, math.inf), now_s + entry.setup_s + entry.remaining_s / speed),
            unsaved=((unsaved_s(entry, now_s), speed),),
            was_running=True,
        )
        run.mode = mode
        if self.estimates is not None:
            state.believed_s = self.estimates.work_s(state.job, now_s)
        if partner is not None:
            run.partner = partner
            if partner.run is not None:
                partner.run.partner = state
        self.free.take(need, entry.placement, with_gpus=partner is None or partner.run is None)
        self.running[entry.job] = state.job
        self._events.push(run.end_s, Kind.ENDED, state.index, state.run_number)
        if self._channels is not None:
            crowd = self._channels.join(
                state.index, channel_loads(self.cluster, state.job, mode, entry.placement)
            )
            self._slow_down({**crowd, state.index: None})

    def _partner(self, entry: Running) -> JobState | None:
        name = entry.mode.share_with
        other = None if name is None else self.instance.running_job.get(name)
        if name is None or other is None or other.mode.share_with != entry.job:
            return None
        return self._state[name]

    def _set_least_budgets_aside(self) -> None:
        """Every job will use the least it needs of each budget; only what is beyond is free to
        choose with."""
        for job in self.instance.jobs:
            for row, amount in self.least_budgets(job.id).items():
                self.free.left[row] -= amount


def _service_of_work(state: JobState, mode: Mode) -> float:
    """GPU-seconds that the work done so far took, as if it had all been done in the fastest
    option."""
    best = state.options[0].rate if state.options else 1.0
    return max(0.0, state.job.work_s - state.work_s) / best * gpus_counted(mode)
