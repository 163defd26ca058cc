"""The cluster in virtual time: what then happens."""

import math
from dataclasses import replace

from ..driver import Ending, World
from ..driver.shares import MOST_WEIGHT, DecayedUse, account_of, factors
from ..driver.state import COMPLETED, FAILED, GOES_ON, NODE_LOST, OUT_OF_MEMORY, JobState
from ..model import Use
from .events import Event, Events, Kind, first_round_s
from .record import Rows

ARRIVED, ENDED, SAVED = Kind.ARRIVED, Kind.ENDED, Kind.SAVED
"""Looked up once: they are compared for every event."""
FEW = 1000
"""So many events to come, and as many again as meant something when this was last looked at, may
mean nothing any more."""


class VirtualWorld(World):
    """A world with the course of events, and the record of it."""

    def _open(self) -> None:
        instance = self.instance
        self.unfinished = len(instance.jobs)
        self.rows = Rows(instance.cluster)
        self._crowd = FEW
        self._followers: dict[str, list[JobState]] = {}
        for state in self._states.values():
            for before in state.job.after:
                self._followers.setdefault(before, []).append(state)
                state.waits_for += 1
        now_s, runs = self.now_s, instance.running_job
        self._events = Events(
            [
                (max(state.job.submit_s, now_s), state.rank, state.index)
                for state in self._states.values()
                if state.job.id not in runs
            ]
        )
        self._events.push(now_s, Kind.WAKE)
        self._expect_incidents()
        if self.estimates is not None and instance.past:
            self.estimates.remember(instance.past)
        shares = instance.shares
        self._charged = 0
        self._use = None if shares is None else DecayedUse(shares.half_life_s, shares.used, now_s)

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
        for i, window in enumerate(self.cluster.windows):
            if window.to_s > self.now_s:
                self._events.push(window.to_s, Kind.WINDOW_OVER, i)
            if window.lowers and window.to_s > self.now_s:
                notice_s = window.from_s - self.free.layout.notice_s
                for time_s in {max(self.now_s, notice_s), max(self.now_s, window.from_s)}:
                    self._events.push(time_s, Kind.WINDOW_AHEAD, i)

    def _expect_end(self, state: JobState) -> None:
        assert state.run is not None
        events = self._events
        to_come = events.push(state.run.ends_s, ENDED, state.index, state.run_number)
        if to_come > self._crowd:
            events.drop(self._is_over)
            self._crowd = 2 * len(events) + FEW

    def _is_over(self, event: Event) -> bool:
        """Return whether an event was to end a stay that has ended otherwise."""
        _, kind, _, index, run_number = event
        return kind is ENDED and run_number != self._states[index].run_number

    def _expect_saved(self, state: JobState, time_s: float) -> None:
        self._events.push(time_s, Kind.SAVED, state.index, state.run_number)

    def _expect_to_leave(self, state: JobState, time_s: float) -> None:
        self._events.push(time_s, Kind.TO_LEAVE, state.index)

    def _expect_wake(self, time_s: float) -> None:
        self._events.push(time_s, Kind.WAKE)

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
        self.now_s = self.free.now_s = time_s

    def used(self) -> tuple[Use, ...]:
        """Return the decayed use of all accounts now; nothing where the instance has no shares."""
        if self._use is None:
            return ()
        jobs = self.instance.jobs
        for job, gpus, begin_s, end_s in self.rows.held_since(self._charged):
            self._use.hold(account_of(jobs[job]), gpus, begin_s, end_s)
            self._charged += 1
        holders = (self._state[job_id] for job_id in (*self.running, *self.saving))
        return self._use.at(
            self.now_s,
            (
                (account_of(state.job), state.run.mode.gpus, state.run.row_s)
                for state in holders
                if state.run is not None
            ),
        )

    def weigh(self) -> None:
        """Give jobs the weight that the use of their tenants and users says; the instance has
        shares."""
        assert self.instance.shares is not None
        here = (self.waiting, self.running, self.saving)
        shares = replace(self.instance.shares, used=self.used())
        accounts = {account_of(job) for jobs in here for job in jobs.values()}
        by_account = factors(self.instance.tenants, shares, self.cluster.total_gpus, accounts)
        for jobs in here:
            for name, job in jobs.items():
                state, factor = self._state[name], by_account[account_of(job)]
                own = self.instance.job[name].weight
                weight = min(MOST_WEIGHT, own * factor)
                if weight != job.weight:
                    state.job = jobs[name] = replace(job, weight=weight)

    def _happen(self, batch: list[Event]) -> bool:
        """Let all events of one instant happen; return whether any of them still meant
        something."""
        self.now_s = self.free.now_s = batch[0][0]
        if len(batch) == 1:
            return self._happens(batch[0])
        happened = False
        for event in batch:
            if self._happens(event):
                happened = True
        return happened

    def _happens(self, event: Event) -> bool:
        _, kind, _, index, run_number = event
        if kind is ARRIVED:
            state = self._states[index]
            state.released = True
            if self.estimates is not None:
                state.believed_s = self.estimates.work_s(state.job, self.now_s)
            return self._wait(state)
        if kind is ENDED:
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
        elif kind is SAVED:
            state = self._states[index]
            if run_number != state.run_number:
                return False
            self._saved(state)
        elif kind == Kind.TO_LEAVE:
            self._make_way(self._states[index])
            self._make_room()
        elif kind == Kind.WINDOW_OVER:
            self.free.set_time(self.now_s)
            self._released.extend(self.cluster.windows[index].nodes or self.free.layout.names)
        elif kind == Kind.WINDOW_AHEAD:
            self.free.set_time(self.now_s)
            self._make_room()
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

    def _ended(self, state: JobState) -> None:
        del self.running[state.job.id]
        self._release(state, COMPLETED)
        self.unfinished -= 1
        if self.estimates is not None:
            self.estimates.completed(state.job, state.past_s + state.attempt_s, self.now_s)
        for follower in self._followers.get(state.job.id, ()):
            follower.waits_for -= 1
            if follower.run is None:
                self._wait(follower)

    def _failed(self, state: JobState) -> None:
        """Note that an attempt has failed; the job waits for the next one."""
        self._break_off(state, FAILED)
        self._wait(state)

    def _out_of_memory(self, state: JobState) -> None:
        """Note that the GPUs do not have the memory that a job needs beside its partner; it waits
        as it did before the start."""
        self._break_off(state, OUT_OF_MEMORY)
        state.released = True
        self._wait(state)

    def _break_off(self, state: JobState, ending: Ending) -> None:
        del self.running[state.job.id]
        state.run_number += 1
        self._release(state, ending)

    def _lose(self, node: str) -> None:
        """Lose a node, with all that runs or saves there."""
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
            self._close_row(state, NODE_LOST)
        for state in hit:
            self._give_back(state, NODE_LOST)
            state.released = True
            self._wait(state)
        self.free.lose(node)
        if self._caches is not None:
            self._caches.clear(node)
        self.lost[node] = None

    def _close_row(self, state: JobState, ending: Ending) -> None:
        """Write down the current row, if it has any length."""
        run, end_s = state.run, self.now_s
        assert run is not None
        start_s = run.row_s
        lost_s = 0.0
        if ending is COMPLETED:
            left_s = 0.0
        elif ending is FAILED:
            left_s, lost_s = 0.0, state.next_attempt()
        elif ending is OUT_OF_MEMORY:
            left_s = state.attempt_left_s(end_s)
            lost_s = state.work_s - left_s
        elif run.stopped_s is None and ending is GOES_ON:
            left_s = state.attempt_left_s(end_s)
        else:
            left_s = run.left_s
            if ending is not GOES_ON:
                lost_s = state.work_s - left_s
        if not end_s > start_s:
            if ending is not GOES_ON:
                self.rows.amend(state.index, end_s, lost_s, ending)
            return
        stopped_s = end_s if run.stopped_s is None else max(run.stopped_s, start_s)
        overhead_s = end_s - stopped_s
        if run.ready_s > start_s:
            overhead_s += min(run.ready_s, stopped_s) - start_s
        partner = -1 if run.partner is None else run.partner.index
        self.rows.add(
            state.index,
            start_s,
            end_s,
            run.mode if run.mode.shared_gpus else run.base,
            run.placement,
            partner,
            overhead_s,
            run.row_work_s - left_s,
            lost_s,
            ending,
        )
        if run.stopped_s is not None:
            run.work_s = run.row_work_s = left_s
