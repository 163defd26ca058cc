"""The cluster that a policy drives: what it may do with it, and what that means for its jobs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..estimates import Estimates
from ..model import Instance, Mode, Placement, Running, Slot
from ..physics import (
    TIME_TOLERANCE_S,
    beyond_gpu_memory,
    hold_to_save_s,
    placed_rate,
    runs_out_of_memory_s,
    unsaved_s,
    with_cores,
)
from ..physics.modes import Option
from ..physics.windows import leaves_saved
from .blocked import Amounts
from .layout import Need
from .sharing import sharing_placement
from .state import COMPLETED, GOES_ON, NODE_LOST, PREEMPTED, Ending, JobState, Run, gpus_counted
from .view import ClusterView, PolicyError

if TYPE_CHECKING:
    from .snapshot import Snapshot


class World(ClusterView):
    """What a policy is given: the view, with what it may do.

    In virtual time (`simulate.virtual.VirtualWorld`) what is begun takes its course; on real nodes
    (`control.live_world.LiveWorld`) jobs follow what is seen of them. By itself a world stands
    still.

    `claims` are places of jobs that wait until those who are being saved there have left;
    `protected` are the jobs that have started on the place that was kept for them (see
    `reservation`), `paused` those that were on hold at some time, which is no waiting.
    """

    def __init__(self, instance: Instance, estimates: Estimates | None = None) -> None:
        super().__init__(instance, estimates)
        self._arrived: list[str] = []
        self._released: list[str] = []
        self._wakes: set[float] = set()
        self.claims: dict[str, tuple[Option, Placement]] = {}
        self.protected: set[str] = set()
        self.paused: set[str] = set()
        self._open()
        if self.instance.cluster.budgets:
            self._set_least_budgets_aside()
        for entry in self.instance.suspended:
            state = self._state[entry.job]
            state.ran_before, state.preemptions = True, entry.preemptions
            if state.options:
                state.attained_gpu_s = _service_of_work(state, state.options[0].mode)
        for running in sorted(self.instance.running, key=lambda held: self._state[held.job].rank):
            self._go_on(running)

    def _open(self) -> None:
        """Make ready to take over what runs."""

    def _expect_end(self, state: JobState) -> None:
        """Note that a stay will end by itself when it is now known to."""

    def _expect_saved(self, state: JobState, time_s: float) -> None:
        """Note that a job that is being preempted gives back what it holds at `time_s`."""

    def _expect_wake(self, time_s: float) -> None:
        """Note that a decision is asked for."""

    def _expect_to_leave(self, state: JobState, time_s: float) -> None:
        """Note that a job must save at `time_s` to have left before a window."""

    def _close_row(self, state: JobState, ending: Ending) -> None:
        """Write down what a job did since it last began, changed its partner, or stopped."""

    # ----------------------------------------------------------------------------- what may be done

    def take_arrived(self) -> list[str]:
        """Return the jobs that came to wait since this was last asked: newly released, or preempted
        and saved."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def has_arrived(self, job_id: str) -> bool:
        """Return whether `take_arrived` would name the job."""
        return job_id in self._arrived

    def take_released(self) -> list[str]:
        """Return the jobs that gave back what they held since this was last asked, and nodes that
        came back."""
        released, self._released = self._released, []
        return released

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

    def claim(self, job_id: str, option: Option, placement: Placement) -> None:
        """Promise a job the place of jobs that are being preempted; `start_claimed` starts it."""
        self.claims[job_id] = option, placement

    def start_claimed(self) -> list[str]:
        """Start and return the jobs whose claims have come free; drop the claims that will not."""
        saving = {slot.node for job_id in self.saving for slot in self.hold(job_id).placement}
        started = []
        for job_id, (option, placement) in [*self.claims.items()]:
            if job_id not in self.waiting:
                continue  # it moves, and is still being saved
            if self.free.holds(self.need(job_id, option), placement):
                self.start(job_id, option, placement)
                started.append(job_id)
            elif any(slot.node in saving for slot in placement):
                continue
            # else what it lacks (a budget, a licence) will not come with its place
            del self.claims[job_id]
        return started

    def seen(self, jobs: Iterable[str]) -> "Snapshot | None":
        """Return the present with these waiting jobs, where it is known already as an instance."""
        return None

    def held_by_others(self) -> Amounts:
        """Return the GPUs and cores by node that are held by none of the jobs here."""
        return {}

    def start_sharing(
        self, job_id: str, option: Option, partner_id: str, *, heedless: bool = False
    ) -> None:
        """Start or resume a waiting job on the very GPUs of a running one that does not share yet.

        Both then run at the rate of such pairs; the partner goes on without a set-up, and whichever
        leaves first leaves the other alone. The job takes its own cores and host memory. With
        `heedless` it is started even where the GPUs do not have the memory of both: it then runs
        out of memory when its set-up is over, has gained nothing and waits again, unless its
        partner leaves before. Raises PolicyError where `may_share` is false.
        """
        reason = self._why_not_share(job_id, option, partner_id, heedless)
        if reason is not None:
            raise PolicyError(
                f"job {job_id} cannot start beside {partner_id} at {self.now_s:g} s: {reason}"
            )
        state, partner = self._state[job_id], self._state[partner_id]
        assert partner.run is not None
        placement = sharing_placement(option, partner.run.placement)
        mode = replace(option.mode, share_with=partner_id)
        need = self.need(job_id, option)
        self.free.take(need, placement, with_gpus=False)
        speed = placed_rate(self.instance, state.job, mode, placement)
        begin_s = max(self.now_s, partner.run.row_s)
        dies_s = None
        if (
            heedless
            and beyond_gpu_memory(
                self.cluster, state.job, mode, partner.job, partner.run.mode, placement
            )
            is not None
        ):
            dies_s = begin_s + runs_out_of_memory_s(state.job, state.ran_before)
        self._begin(state, begin_s, mode, placement, need, speed, dies_s).partner = partner
        self._share(partner, state)

    def start_overlapping(
        self, job_id: str, option: Option, node: str, partners: Mapping[str, int]
    ) -> None:
        """Start or resume a waiting job on one node, on so many GPUs of each of some running jobs
        and else on free ones. Each gang then runs at the rate of the slowest of its GPUs. Raises
        PolicyError where `may_overlap` is false."""
        reason = self._why_not_overlap(job_id, option, node, partners)
        if reason is not None:
            raise PolicyError(f"job {job_id} cannot start on {node} at {self.now_s:g} s: {reason}")
        if (whole := self._same_gpus(option, node, partners)) is not None:
            self.start_sharing(job_id, option, whole)
            return
        state = self._state[job_id]
        others = {self._state[name]: gpus for name, gpus in partners.items()}
        placement = with_cores((Slot(node=node, gpus=option.mode.gpus),), option.mode)
        mode = replace(option.mode, shared_gpus=dict(partners))
        need = self.need(job_id, option)
        self.free.take(need, placement, with_gpus=False)
        self.free.seize(node, option.mode.gpus - sum(partners.values()), 0)
        speed = placed_rate(self.instance, state.job, mode, placement)
        self._begin(state, self.now_s, mode, placement, need, speed).overlaps = others
        for partner, gpus in others.items():
            assert partner.run is not None
            partner.run.overlaps[state] = gpus
            self._share(partner, None)

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
            loads = self._channels.loads(state.job, mode, placement)
            slower = self._channels.join(state.index, loads)
            slowdown = self._channels.slowdown(state.index, state.job.profile)
            run = state.begin(begin_s, mode, placement, need, speed, slowdown, fetch_s)
        if mode.share_with is not None or mode.shared_gpus:
            run.base, run.dies_s = mode.unshared, dies_s
        self._expect_end(state)
        if need.ties is not None and self.free.domains.opens(need.ties):
            self._released.append(state.job.id)
            self._expect_wake(self.now_s)
        job = state.job
        state.waited_s += self.now_s - state.waits_from_s
        del self.waiting[job.id]
        self.running[job.id] = job
        if self.cluster.windows:
            self._watch(state)
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
                self._expect_end(state)

    def _share(self, state: JobState, partner: JobState | None) -> None:
        """Put the job beside `partner`, or alone, from now on."""
        self._close_row(state, GOES_ON)
        state.share(self.instance, partner, self.now_s)
        assert state.run is not None
        if state.run.stops_s is None:
            self._expect_end(state)

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
            self._expect_saved(state, free_at_s)
        else:
            self._saved(state)

    def change_cores(self, job_id: str, option: Option) -> None:
        """Let a running job go on in place with the cores of `option`, without a new start. Raises
        PolicyError where `may_change_cores` is false."""
        if not self.may_change_cores(job_id, option):
            raise PolicyError(f"job {job_id} may not change its cores at {self.now_s:g} s")
        state = self._state[job_id]
        run = state.run
        assert run is not None
        self._close_row(state, GOES_ON)
        held, placement = run.placement, with_cores(run.placement, option.mode)
        self.free.change_cores(held, placement)
        crowd: dict[int, None] = {}
        slowdown = run.slowdown
        if self._channels is not None:
            loads = self._channels.loads(state.job, option.mode, placement)
            crowd = self._channels.leave(state.index) | self._channels.join(state.index, loads)
            crowd.pop(state.index, None)
            slowdown = self._channels.slowdown(state.index, state.job.profile)
        need = self.need(job_id, option)
        state.change_cores(self.instance, option.mode, placement, need, slowdown, self.now_s)
        self._expect_end(state)
        if any(new.cpus < old.cpus for old, new in zip(held, placement, strict=True)):
            self._released.append(job_id)
        if crowd:
            self._slow_down(crowd)

    def wake_at(self, time_s: float) -> None:
        """Ask for a decision at `time_s` even if nothing happens then. Raises PolicyError for a
        time not to come."""
        if not time_s > self.now_s:
            raise PolicyError(f"a policy asked at {self.now_s:g} s to be woken at {time_s:g} s")
        if time_s not in self._wakes:
            self._wakes.add(time_s)
            self._expect_wake(time_s)

    # --------------------------------------------------------------------------------- windows

    def _saves_s(self, state: JobState) -> float:
        """Return when a running job must begin to save to have left before a window; infinite where
        it need not, or cannot."""
        assert state.run is not None
        leaves_s = self.makes_way_s(state.job.id, state.run.placement)
        if leaves_s == math.inf:
            return math.inf
        saves_s = leaves_s - hold_to_save_s(state.job)
        return max(self.now_s, saves_s, self.preemptible_at_s(state.job.id))

    def _watch(self, state: JobState) -> None:
        """See to it that a job that has begun leaves before a window."""
        if (time_s := self._saves_s(state)) < math.inf:
            self._expect_to_leave(state, time_s)

    def _make_way(self, state: JobState) -> None:
        """Preempt a running job that must save now to have left before a window, unless it is sure
        to be done by then."""
        run = state.run
        if run is None or state.job.id not in self.running:
            return
        saves_s = self._saves_s(state)
        sure = self.run_times_hold and self.knows_run_times and self._channels is None
        if sure and run.ends_s <= saves_s + hold_to_save_s(state.job) + TIME_TOLERANCE_S:
            return
        if saves_s > self.now_s + TIME_TOLERANCE_S:
            self._watch(state)
        elif self.may_preempt(state.job.id):
            self.preempt(state.job.id)

    def _make_room(self) -> None:
        """Preempt jobs, those of the lowest priority and of them the last to come first, until the
        others fit what windows leave of resources and quotas when those begin that must save
        now."""
        layout = self.free.layout
        for window in self.cluster.windows:
            if not window.from_s - layout.notice_s <= self.now_s < window.to_s:
                continue
            for row, _ in layout.table.left_in(window):
                self._fit_into(row, max(self.now_s, window.from_s))

    def _fit_into(self, row: int, time_s: float) -> None:
        layout = self.free.layout
        limit = layout.table.rows[row].capacity + layout.slack[row]
        limit -= layout.dip(row, time_s, math.nextafter(time_s, math.inf))
        drawn: dict[str, float] = {}
        for job_id in self.running:
            run = self._state[job_id].run
            sure = self.run_times_hold and self.knows_run_times and self._channels is None
            if run is not None and not (sure and run.ends_s <= time_s + TIME_TOLERANCE_S):
                amount = dict(run.need.shared).get(row, 0.0)
                if amount:
                    drawn[job_id] = amount
        above = math.fsum(drawn.values()) - limit
        order = sorted(drawn, key=lambda job_id: (-self.job(job_id).priority, self.order(job_id)))
        for job_id in reversed(order):
            state = self._state[job_id]
            if above <= 0:
                return
            if not leaves_saved(state.job, state.preemptions):
                continue
            if self.may_preempt(job_id):
                self.preempt(job_id)
                above -= drawn[job_id]
            elif self.now_s < (later_s := self.preemptible_at_s(job_id)) < math.inf:
                self._expect_to_leave(state, later_s)

    # ------------------------------------------------------------------------- what happens to jobs

    def _wait(self, state: JobState) -> bool:
        if not state.released or state.waits_for:
            return False
        if self.cluster.windows:
            self._set_stay(state)
        job = state.job
        self.waiting[job.id] = job
        self._arrived.append(job.id)
        if state.ran_before or job.after:  # else it waits since it was submitted
            state.waits_from_s = self.now_s
        return True

    def _saved(self, state: JobState) -> None:
        self.saving.pop(state.job.id, None)
        self._release(state, PREEMPTED)
        state.released = True
        self._wait(state)

    def _release(self, state: JobState, ending: Ending) -> None:
        self._close_row(state, ending)
        self._give_back(state, ending)

    def _give_back(self, state: JobState, ending: Ending) -> None:
        assert state.run is not None
        own = state.run.own_gpus() if state.run.overlaps else {}
        run = state.leave(self.now_s)
        alone = run.partner is None and not run.overlaps
        self.free.give(run.need, run.placement, finished=ending is COMPLETED, with_gpus=alone)
        for node, gpus in own.items():
            self.free.let_go(node, gpus, 0)
        self._released.append(state.job.id)
        if self._channels is not None and (faster := self._channels.leave(state.index)):
            self._slow_down(faster)
        if alone:
            return
        for other in run.overlaps:
            assert other.run is not None
            del other.run.overlaps[state]
            if other.job.id in self.running or other.job.id in self.saving:
                self._share(other, None)
        if run.partner is None or run.partner.run is None:
            return
        if ending is NODE_LOST:
            run.partner.run.partner = None  # it is lost too, and will give back the GPUs of both
        else:
            self._share(run.partner, None)

    def _go_on(self, entry: Running) -> None:
        """Take over a job that runs at the start, with what it holds."""
        now_s = self.now_s
        state = self._state[entry.job]
        partner = self._partner(entry)
        mode = entry.mode if partner is not None else entry.mode.unshared
        speed = placed_rate(self.instance, state.job, mode, entry.placement)
        need = self._demands.need(state.job, mode, "cluster", state.options)
        state.ran_before, state.preemptions = True, entry.preemptions
        state.attained_gpu_s = _service_of_work(state, mode)
        state.run = run = Run(
            mode.unshared,
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
        self._expect_end(state)
        if self.cluster.windows:
            self._set_stay(state)
            self._watch(state)
        if self._channels is not None:
            loads = self._channels.loads(state.job, mode, entry.placement)
            crowd = self._channels.join(state.index, loads)
            self._slow_down({**crowd, state.index: None})

    def _partner(self, entry: Running) -> JobState | None:
        name = entry.mode.share_with
        other = None if name is None else self.instance.running_job.get(name)
        if name is None or other is None or other.mode.share_with != entry.job:
            return None
        return self._state[name]

    def _set_least_budgets_aside(self) -> None:
        """Set aside the least of each budget that every job will use; only what is beyond is free
        to choose with."""
        for job in self.instance.jobs:
            for row, amount in self.least_budgets(job.id).items():
                self.free.left[row] -= amount


def _service_of_work(state: JobState, mode: Mode) -> float:
    """Return the GPU-seconds that the work done so far took, as if it had all been done in the
    fastest option."""
    best = state.options[0].rate if state.options else 1.0
    return max(0.0, state.job.work_s - state.work_s) / best * gpus_counted(mode)
