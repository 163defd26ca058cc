"""The cluster that a policy drives on real nodes: jobs follow what is seen of them."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from ..driver import Ending, World
from ..driver.blocked import Amounts, amounts
from ..driver.snapshot import Snapshot
from ..driver.state import JobState, Run
from ..model import Instance, Job, Mode, Placement, Running, Suspended, first_come
from ..physics import TIME_TOLERANCE_S
from ..physics.modes import Option
from .journal.events import Claim
from .journal.state import Attempt, LiveJob, State
from .present import asked_s

Entry = TypeVar("Entry", Running, Suspended)
SAME = 1e-6
"""A job whose work or set-up left differs by less (in seconds, or relative to its work) from what
was foreseen goes on as foreseen."""
KEPT = 10_000
"""Of so many finished jobs, arrivals and releases a policy may still ask."""
ASIDE = ("weight", "duration_s", "submit_s", "preemptible", "min_run_s", "max_preemptions")
"""Fields that may change without another demand."""


class LiveWorld(World):
    """A world whose jobs start and stop when an executor says so.

    What a policy commands is `started` and `stopped` until the next `follow`; meanwhile it sees
    the cluster as if it had been done. No job shares GPUs with another.
    """

    shares_gpus = changes_cores = run_times_hold = False

    def __init__(self, instance: Instance, state: State) -> None:
        self._live = state
        self._taken: dict[str, tuple[int, int]] = {}
        self._finished: dict[str, None] = {}
        self.started: dict[str, Claim] = {}
        self.stopped: set[str] = set()
        self._present = Snapshot(instance)
        self._launched: list[str] = []
        super().__init__(instance)
        self._next_index = len(instance.jobs)

    def next_wake_s(self, after_s: float) -> float:
        """Return when the policy wants to decide again even if nothing happens; infinite for
        never."""
        return min((time_s for time_s in self._wakes if time_s > after_s), default=math.inf)

    def has_left(self, job_id: str) -> bool:
        """Return whether a job was preempted and holds nothing any more, or is to start
        elsewhere."""
        return job_id in self.stopped and job_id not in self.saving

    def waited_s(self, job_id: str) -> float:
        """Return how long the job has waited in all, by the journal."""
        return self._live.waited_s(self._live.jobs[job_id], self.now_s)

    def seen(self, jobs: Iterable[str]) -> Snapshot | None:
        """Return the present as it was given, with work left as foreseen where that differs by
        rounding; None where a policy has made it another."""
        present = self._present.instance
        if (
            self.stopped
            or self.running.keys() != present.running_job.keys()
            or not all(name in present.job for name in jobs)
        ):
            return None
        instance = replace(
            present,
            running=tuple(self._foreseen(entry) for entry in present.running),
            suspended=tuple(self._foreseen(entry) for entry in present.suspended),
        )
        return replace(self._present, instance=instance)

    def _foreseen(self, entry: Entry) -> Entry:
        left_s = self.remaining_work_s(entry.job)
        return replace(entry, remaining_s=left_s) if 0 < left_s != entry.remaining_s else entry

    def start_claimed(self) -> list[str]:
        """Start and return the jobs whose claims have come free, with those that have been launched
        on theirs already."""
        return [*self._launched, *super().start_claimed()]

    def held_by_others(self) -> Amounts:
        """Return what is held by others than the jobs that are known here."""
        return {name: [*taken] for name, taken in self._taken.items()}

    def preempt(self, job_id: str) -> None:
        """Preempt a running job; one that is only about to start does not."""
        super().preempt(job_id)
        self.started.pop(job_id, None)
        self.stopped.add(job_id)

    def start(self, job_id: str, option: Option, placement: Placement) -> None:
        """Start a waiting job, and note where."""
        super().start(job_id, option, placement)
        self.started[job_id] = Claim(job=job_id, mode=option.mode, placement=placement)

    def _expect_to_leave(self, state: JobState, time_s: float) -> None:
        self._expect_wake(time_s)

    def _expect_wake(self, time_s: float) -> None:
        self._wakes.add(time_s if time_s > self.now_s else math.nextafter(self.now_s, math.inf))

    # ----------------------------------------------------------------------------- what is seen

    def follow(
        self, instance: Instance, blocked: Sequence[Placement], closed: Collection[str]
    ) -> None:
        """Take in the present: what waits and runs (`instance`), what of it is not there to be
        given away, and the nodes that take no jobs."""
        self.now_s = instance.now_s
        self.free.set_time(self.now_s)
        self.instance = replace(instance, now_s=self.instance.now_s)
        self._present = Snapshot(instance, blocked=tuple(blocked))
        self._wakes = {time_s for time_s in self._wakes if time_s > self.now_s}
        self.started, self.stopped = {}, set()
        del self._arrived[:-KEPT], self._released[:-KEPT]  # of a policy that does not ask for them
        state = self._live
        ours, self._launched = self.claims, []
        self.claims = {name: ours[name] for name in ours if name in state.claims}
        for name in [name for name in ours if name not in self.claims]:  # its place is its own now
            for slot in ours[name][1]:
                self.free.let_go(slot.node, *self._taken.pop(slot.node, (0, 0)))
        self.protected = reserved(state)
        self.paused.intersection_update(state.open)
        for name in [*self.running, *self.saving]:
            self._look_at_holder(self._state[name], instance.running_job.get(name))
        for job in sorted(instance.jobs, key=first_come):
            self._look_at(job, instance, claimed=job.id in ours)
        self._wait_for_claims()
        for name in [*self.waiting]:
            if (
                name not in instance.job
                and name not in self.claims
                and not self._comes_back(state.open.get(name))
            ):
                del self.waiting[name]
                self.paused.add(name)
        self._seize(instance, blocked)
        self._lose(closed)
        if self.cluster.windows:
            self._keep_windows()

    def _look_at(self, job: Job, instance: Instance, *, claimed: bool) -> None:
        """See whether a job waits, has started (`claimed`: on what it waited for), or goes on."""
        known = self._known(job, instance.remaining_s(job))
        entry = instance.running_job.get(job.id)
        if entry is None:
            self._waits(known, instance)
        elif known.run is not None:
            self._goes_on(known, entry)
        else:
            self.waiting.pop(job.id, None)
            self._go_on(entry)
            if claimed:  # it is as if it started at this very instant
                assert known.run is not None
                known.run.was_running = False
                self._launched.append(job.id)

    def _lose(self, closed: Collection[str]) -> None:
        """Note which nodes take no jobs, and which do so again."""
        for name in [name for name in self.lost if name not in closed]:
            del self.lost[name]
            self._released.append(name)
        self.lost |= dict.fromkeys(name for name in closed if name not in self.lost)

    def _wait_for_claims(self) -> None:
        """Have jobs that move wait for their places as soon as they have saved."""
        for name in self.claims:
            state, live = self._state[name], self._live.open.get(name)
            if state.run is None and live is not None and live.live is None:
                state.work_s, state.preemptions = live.left_s, live.preemptions
                if name not in self.waiting:
                    state.ran_before = state.released = True
                    self._wait(state)

    def _saves_s(self, state: JobState) -> float:
        """Return when a running job must be asked to save, the way of the request included."""
        saves_s = super()._saves_s(state) - asked_s(len(self.running) + len(self.saving))
        return max(self.now_s, saves_s, self.preemptible_at_s(state.job.id))

    def _keep_windows(self) -> None:
        """Ask those to save who must now, for windows ahead, and see to it that it is looked again
        when that changes."""
        for window in self.cluster.windows:
            times_s = [window.to_s]
            if window.lowers:
                times_s += [window.from_s - self.free.layout.notice_s, window.from_s]
            for time_s in times_s:
                if time_s > self.now_s:
                    self._expect_wake(time_s)
        for name in [*self.running]:
            self._make_way(self._state[name])
        self._make_room()

    def _known(self, job: Job, left_s: float) -> JobState:
        """Return the state of a job, with what is now believed of it."""
        state = self._state.get(job.id)
        if state is None:
            state = self._add(self._next_index, job, left_s)
            self._next_index += 1
            return state
        if job is not state.job:
            before = state.job
            state.job = job
            if replace(before, **{name: getattr(job, name) for name in ASIDE}) != job:
                state.options, state.demand = self._demands.of(job)
            for jobs in (self.waiting, self.running, self.saving):
                if job.id in jobs:
                    jobs[job.id] = job
        state.attempt_s = job.work_s
        return state

    def _look_at_holder(self, state: JobState, entry: Running | None) -> None:
        """See whether a job still holds what it is known to hold."""
        run, name = state.run, state.job.id
        assert run is not None
        if name in self.running:
            if entry is not None and _same(run, entry.mode, entry.placement):
                return
            claim = self._live.claims.get(name)
            if claim is not None and _same(run, claim.mode, claim.placement):
                return
        job = self._live.open.get(name)
        attempt = None if job is None else job.live
        if entry is None and attempt is not None and attempt.placement == run.placement:
            self._leaves(state, attempt)
        else:
            self.running.pop(name, None)
            self.saving.pop(name, None)
            done = self._live.jobs.get(name)
            completed = done is not None and done.finished == "completed"
            self._release(state, Ending.COMPLETED if completed else Ending.FAILED)
            if done is None or done.finished is not None:
                self._forget_later(state)

    def _leaves(self, state: JobState, attempt: Attempt) -> None:
        """Note that the job is being stopped, or that nobody can tell of it: it holds what it does
        until then."""
        run, name = state.run, state.job.id
        assert run is not None
        if name in self.running:
            run.left_s = state.attempt_left_s(self.now_s)
            run.stopped_s = self.now_s
            del self.running[name]
            self.saving[name] = state.job
            run.stops_s = math.inf
        if attempt.stop_s is not None:
            ends_s = attempt.stop_s + attempt.grace_s
            run.stops_s = max(self.now_s, min(run.stops_s or math.inf, ends_s))

    def _comes_back(self, job: LiveJob | None) -> bool:
        """Return whether a job that is being stopped waits as soon as it has ended."""
        return (
            job is not None
            and job.live is not None
            and job.live.leaving
            and job.held is None
            and job.cancelled is None
        )

    def _waits(self, state: JobState, instance: Instance) -> None:
        name, left_s = state.job.id, instance.remaining_s(state.job)
        if abs(left_s - state.work_s) > SAME * max(1.0, state.job.work_s):
            state.work_s = left_s
        suspended = instance.suspended_job.get(name)
        state.ran_before = suspended is not None
        if suspended is not None:
            state.preemptions = suspended.preemptions
        self._set_stay(state)
        if name not in self.waiting and state.run is None and state.options:
            state.released = True
            self._wait(state)

    def _goes_on(self, state: JobState, entry: Running) -> None:
        run = state.run
        assert run is not None
        state.preemptions = entry.preemptions
        if abs(run.started_s - entry.started_s) > TIME_TOLERANCE_S:
            run.started_s = entry.started_s
        left_s, setup_s = state.attempt_left_s(self.now_s), max(0.0, run.work_from_s - self.now_s)
        if (
            abs(left_s - entry.remaining_s) > SAME * max(1.0, state.job.work_s)
            or abs(setup_s - entry.setup_s) > SAME
        ):
            run.unsaved = state.unsaved(self.now_s)
            run.work_s, run.work_from_s = entry.remaining_s, self.now_s + entry.setup_s
            run.end_s = run.work_from_s + entry.remaining_s / run.rate

    def _seize(self, instance: Instance, blocked: Sequence[Placement]) -> None:
        """Take out of reach what is held by others than the jobs that are known here."""
        held = amounts((*blocked, *(entry.placement for entry in instance.running)))
        for node in instance.cluster.nodes:
            gpus, cpus = self._taken.pop(node.name, (0, 0))
            own = self.free.gpus_on(node.name) + gpus, self.free.cpus_on(node.name) + cpus
            others = held.get(node.name, [0, 0])
            want = max(0, own[0] - (node.gpus - others[0])), cpus
            if node.cpus is not None:
                want = want[0], max(0, own[1] - (node.cpus - others[1]))
            if want != (gpus, cpus):
                self.free.let_go(node.name, gpus, cpus)
                seized = self.free.seize(node.name, *want)
                if seized[0] < gpus or seized[1] < cpus:
                    self._released.append(node.name)
                gpus, cpus = seized
            if gpus or cpus:
                self._taken[node.name] = gpus, cpus

    def _forget_later(self, state: JobState) -> None:
        self._finished[state.job.id] = None
        if len(self._finished) > KEPT:
            name = next(iter(self._finished))
            del self._finished[name], self._states[self._state.pop(name).index]


def reserved(state: State) -> set[str]:
    """Return the jobs that have started, or are to start, on the place that was kept for them."""
    return {claim.job for claim in state.claims.values() if claim.reserved} | {
        attempt.key.job
        for attempt in state.live_attempts()
        if attempt.reserved and not attempt.leaving
    }


def _same(run: Run, mode: Mode, placement: Placement) -> bool:
    return run.mode.size == mode.size and {*run.placement} == {*placement}
