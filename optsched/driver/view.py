"""What a policy may see of the cluster in virtual time."""

import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from ..errors import OptschedError
from ..estimates import Estimates, Ranks
from ..model import Instance, Job, Mode, Placement, Profile, Running, Suspended, first_come
from ..physics import (
    TIME_TOLERANCE_S,
    gpus_by_type,
    hold_to_save_s,
    is_one_stay,
    placed_rate,
    run_s,
    setup_s,
    with_cores,
)
from ..physics.contention import may_contend
from ..physics.model_caches import model_caches
from ..physics.modes import Option
from ..physics.windows import least_stay_s, leaves_saved
from .borrowing import rank_of
from .contention import Channels
from .demand import Demand, Demands
from .layout import Layout, Need
from .placement import Room
from .sharing import why_not_overlap, why_not_share
from .state import JobState, Run, gpus_counted

Fit = tuple[Option, Placement]
"""How a job could start, and where."""
WORK_TOLERANCE = 1e-9
"""Share of a job's work that counts as rounding."""


class PolicyError(OptschedError):
    """A policy asked for what cannot be; the message says what and when."""


class Hold(NamedTuple):
    """What a running or saving job holds; `partner` is the job that shares its GPUs."""

    need: Need
    placement: Placement
    partner: str | None


LEAST_RANK_S = 1e-3
"""No job is nearer to its completion, so that what it is worth stays finite."""


class ClusterView:
    """State of a simulation between events.

    `waiting` are the jobs that could start, in the order in which they came to wait: released,
    their predecessors done, not running. `running` are those that hold GPUs and will go on,
    `saving` those that are being preempted and still hold theirs. `free` is what nobody holds; a
    policy tries things in copies of it. `borrowing` are the jobs that were found to borrow when
    this was last asked (see `borrowing.borrowers`).
    """

    shares_gpus: bool = True
    changes_cores: bool = True
    """Whether jobs can change their cores in place."""
    run_times_hold: bool = True
    """Whether jobs run as long as is foreseen, where nothing slows them down."""

    def __init__(self, instance: Instance, estimates: Estimates | None = None) -> None:
        self.instance = instance
        self.estimates = estimates
        self.cluster = instance.cluster
        self.now_s = instance.now_s
        self.waiting: dict[str, Job] = {}
        self.running: dict[str, Job] = {}
        self.saving: dict[str, Job] = {}
        self.lost: dict[str, None] = {}
        self.borrowing: Set[str] = frozenset()
        layout = Layout(instance.cluster, instance.tenants)
        self.free = Room(layout)
        self.free.set_time(self.now_s)
        self._demands = Demands(instance, layout)
        self._states: dict[int, JobState] = {}
        self._state: dict[str, JobState] = {}
        for index, job in enumerate(instance.jobs):
            self._add(index, job, instance.remaining_s(job))
        for rank, job in enumerate(sorted(instance.jobs, key=first_come)):
            self._state[job.id].rank = rank
        self._fitted: tuple[str, Option, Placement, int, Need] | None = None
        self._caches = model_caches(instance)
        self._channels = Channels(instance.cluster) if may_contend(instance) else None

    def _add(self, index: int, job: Job, left_s: float) -> JobState:
        state = JobState(index, job, left_s, *self._demands.of(job))
        self._states[index] = self._state[job.id] = state
        self.free.layout.notice_s = max(self.free.layout.notice_s, hold_to_save_s(job))
        return state

    @property
    def knows_run_times(self) -> bool:
        """Return whether what is believed of run times is true."""
        return self.estimates is None

    def is_active(self, job_id: str) -> bool:
        """Return whether the job waits, runs or is being saved."""
        return job_id in self.waiting or job_id in self.running or job_id in self.saving

    def knows(self, name: str) -> bool:
        """Return whether that is a job of this world, though it may be done, and not a node."""
        return name in self._state

    def job(self, job_id: str) -> Job:
        """Return the job as it was submitted. A policy asks `remaining_work_s` for its length,
        never the job."""
        return self._state[job_id].job

    def profile(self, job_id: str) -> Profile:
        """Return the profile of a job."""
        return self.job(job_id).profile

    def rank(self, job_id: str) -> int:
        """Return the priority of a job, below that of all others if it borrows."""
        priority = self._state[job_id].job.priority
        return rank_of(priority, borrows=True) if job_id in self.borrowing else priority

    def order(self, job_id: str) -> tuple[float, int]:
        """Return the sort key of arrival: submission, then the place in the order of
        `first_come`."""
        state = self._state[job_id]
        return state.job.submit_s, state.rank

    def remaining_work_s(self, job_id: str) -> float:
        """Return the reference work that a policy believes a job has left; the only thing it may
        know of it. Exact without estimates, and then with all attempts that will fail."""
        return self._state[job_id].remaining_s(self.now_s)

    @property
    def ranks_jobs(self) -> bool:
        """Return whether more is known of uncertain lengths than one belief for each."""
        return isinstance(self.estimates, Ranks)

    def rank_work_s(self, job_id: str) -> float:
        """Return the reference work to expect for each completion of a job, were it served as long
        as is best (its Gittins rank): what it has left, unless `ranks_jobs`."""
        state = self._state[job_id]
        if not isinstance(self.estimates, Ranks):
            return state.remaining_s(self.now_s)
        return max(LEAST_RANK_S, self.estimates.rank_s(state.job, state.done_s(self.now_s)))

    def believed_work_s(self, job_id: str) -> float:
        """Return the reference work that a policy believes the whole job to be, with what it has
        lost to failures."""
        state = self._state[job_id]
        if state.believed_s is not None:
            state.remaining_s(
                self.now_s
            )  # a job that has outrun its belief is believed to be longer
            return state.believed_s
        return state.past_s + state.attempt_s + state.rest_s if state.failures else state.job.work_s

    def belief_rises_s(self, job_id: str) -> float:
        """Return when a running job, should it not have ended by then, is believed to be longer
        than it is now; infinite where beliefs are exact. Until then what is believed to be left
        falls as the job works."""
        state = self._state[job_id]
        run = state.run
        if state.believed_s is None or run is None or run.stops_s is not None:
            return math.inf
        return max(self.now_s, run.work_from_s) + state.remaining_s(self.now_s) / run.rate

    def entry(self, job_id: str, left_s: float | None = None) -> Running | Suspended | None:
        """Return what an instance whose `now_s` is the present says of a job that runs, or that ran
        before and waits; None for one that never ran. `left_s` stands for what it is believed to
        have left."""
        if left_s is None:
            left_s = self.remaining_work_s(job_id)
        return self._state[job_id].entry(self.now_s, left_s)

    def options(self, job_id: str) -> tuple[Option, ...]:
        """Return ways to run the job that could ever fit, the fastest first."""
        return self._state[job_id].options

    def demand(self, job_id: str) -> Demand:
        """Return what the job asks for; jobs of one demand fit at the same instants."""
        return self._state[job_id].demand

    def fastest(self, job_id: str) -> Option:
        """Return the fastest option. Raises PolicyError for a job that fits nowhere."""
        state = self._state[job_id]
        if not state.options:
            raise PolicyError(
                f"job {job_id} fits nowhere within its tenant's quota and the budgets"
            )
        return state.options[0]

    def fastest_finish_s(self, job_id: str) -> float:
        """Return the seconds from now to completion in the fastest option, with the start-up and
        restore still to pay."""
        state = self._state[job_id]
        run = state.run
        if run is None or run.stops_s is not None:
            setup = setup_s(state.job, state.ran_before)
        else:
            setup = max(0.0, run.work_from_s - self.now_s)
        best = state.options[0].rate if state.options or run is None else run.rate
        return setup + state.remaining_s(self.now_s) / best

    def service_left_gpu_s(self, job_id: str) -> float:
        """Return the GPU-seconds to completion in the fastest option, start-up and restore
        included."""
        return self.service_gpus(job_id) * self.fastest_finish_s(job_id)

    def service_gpus(self, job_id: str) -> int:
        """Return the GPUs by which the service still to give is measured: those of the fastest
        option; at least one, so that CPU-only jobs count."""
        state = self._state[job_id]
        running = state.run is not None and not state.options
        return self.held_gpus(job_id) if running else gpus_counted(self.fastest(job_id).mode)

    def fewest_gpus(self, job_id: str) -> int:
        """Return the GPUs of the option that takes the fewest."""
        return self._state[job_id].demand.least_gpus

    def held_gpus(self, job_id: str) -> int:
        """Return the GPUs by which the service that a running or saving job is getting is measured;
        at least one."""
        return gpus_counted(self._held(job_id).mode)

    def waited_s(self, job_id: str) -> float:
        """Return how long the job has waited in all, not for others to complete; what it waited
        before it last ran before `Instance.now_s` is not known and does not count."""
        state = self._state[job_id]
        return state.waited_s + (self.now_s - state.waits_from_s if job_id in self.waiting else 0.0)

    def attained_gpu_s(self, job_id: str) -> float:
        """Return the GPU-seconds the job has held so far, overheads included. What it held before
        `Instance.now_s` is taken from the work it has done."""
        state = self._state[job_id]
        if state.run is None:
            return state.attained_gpu_s
        held_s = max(0.0, self.now_s - state.run.held_from_s)
        return state.attained_gpu_s + held_s * gpus_counted(state.run.mode)

    def expected_run_s(self, job_id: str, option: Option, placement: Placement) -> float:
        """Return the seconds that a waiting job would hold `placement`, start-up, restore and fetch
        included, if shared channels stayed as crowded as they would be now."""
        state = self._state[job_id]
        speed = self._rate(state.job, option, placement)
        if self._channels is not None:
            speed /= self.slowdown_on(job_id, option, placement)
        return (
            setup_s(state.job, state.ran_before)
            + self.fetch_s(job_id, placement)
            + run_s(state.job, option.mode, self.remaining_work_s(job_id), speed)
        )

    @property
    def fetches_models(self) -> bool:
        """Return whether some job fetches a model where it is not cached."""
        return self._caches is not None

    def fetch_s(self, job_id: str, placement: Placement) -> float:
        """Return the seconds for which a job started now on `placement` would fetch its model."""
        return (
            0.0
            if self._caches is None
            else self._caches.fetch_s(self._state[job_id].job, placement, self.now_s)
        )

    def evicted_by(self, job_id: str, node: str) -> list[str]:
        """Return the models (`profile.name`) that would leave the cache of `node` if the job
        started there now."""
        return (
            []
            if self._caches is None
            else self._caches.evicted_by(self._state[job_id].job, node, self.now_s)
        )

    def expected_release_s(self, job_id: str) -> float:
        """Return when a running or saving job is expected to give back what it holds: because it
        is done, or for a window."""
        run = self._held(job_id)
        if run.stops_s is not None:
            return run.stops_s
        return min(self.expected_end_s(job_id), self.makes_way_s(job_id, run.placement))

    def expected_end_s(self, job_id: str) -> float:
        """Return when a running job is expected to be done if it is left alone."""
        run = self._held(job_id)
        return max(self.now_s, run.work_from_s) + self.remaining_work_s(job_id) / run.rate

    @property
    def holders(self) -> tuple[str, ...]:
        """Return the jobs that hold something: they run, or are being saved."""
        return (*self.running, *self.saving)

    @property
    def foresees_ends(self) -> bool:
        """Return whether nothing to come changes how long a started job takes: no window, no
        channel on which jobs slow each other down, no model that may have to be fetched."""
        return (
            self._channels is None
            and self._caches is None
            and all(window.to_s <= self.now_s for window in self.cluster.windows)
        )

    @property
    def idle(self) -> bool:
        """Return whether nothing runs or is being saved."""
        return not (self.running or self.saving)

    def makes_way_s(self, job_id: str, placement: Placement) -> float:
        """Return when a job that runs on `placement` has saved and left it for a window; infinite
        where none comes, or it cannot save."""
        state = self._state[job_id]
        if not (self.cluster.windows and leaves_saved(state.job, state.preemptions)):
            return math.inf
        return max(self.now_s, self.window_s(job_id, placement))

    def window_s(self, job_id: str, placement: Placement) -> float:
        """Return from when on the job may not be on the nodes of `placement`, since the last window
        that has begun if it is not over; infinite if no window comes."""
        return next((from_s for from_s, _ in self._windows_on(job_id, placement)), math.inf)

    def through_windows_s(self, job_id: str, placement: Placement, end_s: float) -> float:
        """Return about when a job is done that would be by `end_s`, if it makes way for the windows
        on `placement` and comes back after each."""
        for from_s, to_s in self._windows_on(job_id, placement):
            if from_s < end_s:
                end_s += to_s - max(from_s, self.now_s)
        return end_s

    def quota_limits(self) -> dict[str | None, int]:
        """Return the most GPUs that each quota allows now, windows considered."""
        table = self.free.layout.table
        left = table.left_at(self.now_s)
        rows = table.quotas.items()
        return {of: int(left.get(row, table.rows[row].capacity)) for of, row in rows}

    def _windows_on(self, job_id: str, placement: Placement) -> Iterator[tuple[float, float]]:
        """Yield from when to when the job may not be on the nodes of `placement`, of what is not
        over."""
        layout = self.free.layout
        held = sum(layout.bit[layout.order[slot.node]] for slot in placement)
        for from_s, to_s, nodes in layout.windows(self._state[job_id].job):
            if nodes & held and to_s > self.now_s:
                yield from_s, to_s

    def _stay_s(self, state: JobState, option: Option) -> float:
        """Return how long a job must be able to stay where it starts."""
        return least_stay_s(
            state.job,
            option.mode,
            option.rate,
            self.remaining_work_s(state.job.id),
            ran_before=state.ran_before,
            preemptions=state.preemptions,
        )

    def _set_stay(self, state: JobState) -> None:
        """Say in the demand of a job how long it must be able to stay where it starts, as windows
        ask for it."""
        stays_s = tuple(self._stay_s(state, option) for option in state.options)
        state.demand = self._demands.staying(state.job, stays_s)

    def uplink_load_gbps(self, rack: str) -> float:
        """Return what running and saving jobs take now of the uplink of a rack that has a limit."""
        if self._channels is not None and self.cluster.uplinks == "shared":
            return self._channels.gbps(("uplink", rack))
        return self.free.domains.gbps[rack]

    def memory_load_gbps(self, node: str) -> float:
        """Return what running and saving jobs take now of the memory bandwidth of a node that has a
        limit."""
        return 0.0 if self._channels is None else self._channels.gbps(("memory", node))

    def uplink_users(self, rack: str) -> list[str]:
        """Return the running and saving jobs that are on the shared uplink of a rack; none where
        uplinks are reserved."""
        if self._channels is None:
            return []
        return [self._states[index].job.id for index in self._channels.users(("uplink", rack))]

    def running_mode(self, job_id: str) -> Mode:
        """Return the mode of a running or saving job, with its sharing partner."""
        return self._held(job_id).mode

    def rate_now(self, job_id: str) -> float:
        """Return the reference work per second of a running job, once it has set up, beside those
        that hold things now."""
        return self._held(job_id).rate

    def works_from_s(self, job_id: str) -> float:
        """Return when a running job has set up; now where it has."""
        return max(self.now_s, self._held(job_id).work_from_s)

    def slowdown(self, job_id: str) -> float:
        """Return by how much others on its shared channels slow a running job down now; 1 where
        they do not."""
        return self._held(job_id).slowdown

    def slowdown_on(self, job_id: str, option: Option, placement: Placement) -> float:
        """Return by how much a waiting job would be slowed down if it started there now."""
        if self._channels is None:
            return 1.0
        job = self._state[job_id].job
        loads = self._channels.loads(job, option.mode, placement)
        return self._channels.slowdown_with(job.profile, loads, loads)

    def slowed_by(self, job_id: str, option: Option, placement: Placement) -> dict[str, float]:
        """Return how many times as long as now each running job would take that a start of a
        waiting job there slowed down."""
        slowdowns: dict[str, float] = {}
        if self._channels is None:
            return slowdowns
        loads = self._channels.loads(self._state[job_id].job, option.mode, placement)
        for index in {index: None for channel in loads for index in self._channels.users(channel)}:
            state = self._states[index]
            if state.run is not None and state.job.id in self.running:
                profile, own = state.job.profile, self._channels.on(index)
                times = self._channels.slowdown_with(profile, own, loads) / self._channels.slowdown(
                    index, profile
                )
                if times > 1.0:
                    slowdowns[state.job.id] = times
        return slowdowns

    def hold(self, job_id: str) -> Hold:
        """Return what a running or saving job holds."""
        run = self._held(job_id)
        return Hold(run.need, run.placement, None if run.partner is None else run.partner.job.id)

    def placement(self, job_id: str) -> Placement:
        """Return where a running or saving job holds what it does."""
        return self.hold(job_id).placement

    def fit(self, job_id: str, room: Room | None = None) -> Fit | None:
        """Return the fastest option that fits `room` (default: what is free now), and the best-fit
        place for it."""
        state = self._state[job_id]
        if room is None:
            room = self.free
        fit = state.demand.fit(room)
        if fit is None:
            return None
        i, placement = fit
        return (
            self._note_fit(state, i, placement)
            if room is self.free
            else (state.options[i], placement)
        )

    def fit_option(self, job_id: str, i: int) -> Fit | None:
        """Return the best-fit place for the option at this position in what is free now."""
        state = self._state[job_id]
        placement = self.free.place(state.demand.needs[i])
        return None if placement is None else self._note_fit(state, i, placement)

    def _note_fit(self, state: JobState, i: int, placement: Placement) -> Fit:
        """Return the fit, which `start` then need not check again."""
        option = state.options[i]
        self._fitted = state.job.id, option, placement, self.free.changes, state.demand.needs[i]
        return option, placement

    def need(self, job_id: str, option: Option) -> Need:
        """Return what the job takes under `option`."""
        state = self._state[job_id]
        for own, need in zip(state.options, state.demand.needs):  # noqa: B905 (as many of both)
            if own is option:
                return need
        need = self._demands.need(state.job, option.mode, option.spread, state.options)
        if not self.cluster.windows:
            return need
        windows = self.free.layout.windows(state.job)
        return replace(need, windows=windows, stay_s=self._stay_s(state, option))

    def take(self, room: Room, job_id: str, fit: Fit) -> None:
        """Take from a room what the job takes of it there."""
        room.take(self.need(job_id, fit[0]), fit[1])

    def may_share(
        self, job_id: str, option: Option, partner_id: str, *, heedless: bool = False
    ) -> bool:
        """Return whether a waiting job may start now under `option` on the very GPUs of a running
        one; `heedless` of whether their memory holds both."""
        return self._why_not_share(job_id, option, partner_id, heedless) is None

    def _why_not_share(
        self, job_id: str, option: Option, partner_id: str, heedless: bool
    ) -> str | None:
        if not self.shares_gpus:
            return "jobs do not share GPUs on live nodes"
        if job_id not in self.waiting:
            return "it does not wait"
        if partner_id not in self.running:
            return f"{partner_id} does not run"
        run = self._state[partner_id].run
        if run is not None and self._caches is not None:
            at_s = max(self.now_s, run.row_s)
            if self._caches.begin_s(run.placement, at_s) > at_s:
                return "another job has only just started there"
        return why_not_share(
            self, self._state[job_id], option, self._state[partner_id], heedless=heedless
        )

    def own_gpus(self, job_id: str) -> dict[str, int]:
        """Return the GPUs of each node that a running job shares with nobody."""
        return self._held(job_id).own_gpus()

    def may_overlap(
        self, job_id: str, option: Option, node: str, partners: Mapping[str, int]
    ) -> bool:
        """Return whether a waiting job may start now under `option` on one node, on so many GPUs of
        each of some running jobs, which share them with nobody yet, and else on free ones."""
        return self._why_not_overlap(job_id, option, node, partners) is None

    def _why_not_overlap(
        self, job_id: str, option: Option, node: str, partners: Mapping[str, int]
    ) -> str | None:
        if not self.shares_gpus:
            return "jobs do not share GPUs on live nodes"
        if job_id not in self.waiting or not partners.keys() <= self.running.keys():
            return "it does not wait, or the others do not run"
        if (whole := self._same_gpus(option, node, partners)) is not None:
            return self._why_not_share(job_id, option, whole, heedless=False)
        others = {self._state[name]: gpus for name, gpus in partners.items()}
        return why_not_overlap(self, self._state[job_id], option, node, others)

    def _same_gpus(self, option: Option, node: str, partners: Mapping[str, int]) -> str | None:
        """Return the job whose very GPUs these are, if they are those of one."""
        [first, *others] = partners or [None]
        if first is None or others or partners[first] != option.mode.gpus:
            return None
        run = self._held(first)
        held = [(slot.node, slot.gpus) for slot in run.placement]
        return first if held == [(node, option.mode.gpus)] and not run.overlaps else None

    def _just_fitted(self, job_id: str, option: Option, placement: Placement) -> Need | None:
        """Return what the job takes, if `fit` has just said of all this that it is free."""
        if self._fitted is None:
            return None
        job, way, place, changes, need = self._fitted
        same = place is placement and way is option and changes == self.free.changes
        return need if same and job == job_id else None

    def least_budgets(self, job_id: str) -> dict[int, float]:
        """Return the least that the job uses of each budget, by row; `free` has set it aside for
        every unfinished job."""
        state = self._state[job_id]
        return self._demands.least_budgets(state.job, state.options)

    def preemptible_at_s(self, job_id: str) -> float:
        """Return from when on a running job may be preempted; infinite if never in this stay.

        Not before its minimum run and its set-up are over, and not when it is about to end.
        """
        state = self._state[job_id]
        run, job = state.run, state.job
        if (
            run is None
            or run.stops_s is not None
            or run.dies_s is not None
            or not job.preemptible
            or not state.options
            or (job.max_preemptions is not None and state.preemptions >= job.max_preemptions)
        ):
            return math.inf
        rounding_s = 2 * (TIME_TOLERANCE_S * run.rate + WORK_TOLERANCE * job.work_s)
        if state.attempt_left_s(self.now_s) <= rounding_s:
            return math.inf
        ran_enough_s = run.started_s + job.min_run_s
        at_start = run.was_running and self.now_s == self.instance.now_s
        if at_start and ran_enough_s <= self.now_s + TIME_TOLERANCE_S:
            return self.now_s  # then even during its set-up
        return max(ran_enough_s, run.work_from_s)

    def came_back_s(self, job_id: str) -> float:
        """Return since when a running job runs that was preempted before; -infinity for others."""
        state = self._state[job_id]
        return state.run.started_s if state.run and state.preemptions else -math.inf

    def may_preempt(self, job_id: str) -> bool:
        """Return whether a running job may be preempted now."""
        run = self._state[job_id].run
        if run is None or not (run.held_from_s < self.now_s or run.was_running):
            return False
        return self.preemptible_at_s(job_id) <= self.now_s + TIME_TOLERANCE_S

    def may_change_cores(self, job_id: str, option: Option) -> bool:
        """Return whether a running job may go on in place with the cores of `option`, as it now
        differs in nothing else and those cores are free."""
        state = self._state[job_id]
        job, run, mode = state.job, state.run, option.mode
        if not (self.changes_cores and job.cores_in_place and job_id in self.running):
            return False
        assert run is not None
        types = {*gpus_by_type(self.cluster, run.placement)}
        if (
            run.dies_s is not None
            or mode == replace(run.base, gpu_type=mode.gpu_type)
            or replace(run.base, gpu_type=mode.gpu_type).without_cores != mode.without_cores
            or types - {mode.gpu_type}
            or placed_rate(self.instance, job, mode, run.placement) <= 0
        ):
            return False
        if self.cluster.windows and not leaves_saved(job, state.preemptions):
            return False
        return self.free.has_cores(run.placement, with_cores(run.placement, mode))

    def seems_to_stay(self, state: JobState, mode: Mode, placement: Placement) -> bool:
        """Return whether a job that starts now without a pause would seem, in a plan, never to have
        stopped."""
        if state.reads_as_going_on(self.now_s, mode, placement):
            return True
        at_start = state.ran_before and self.now_s == self.instance.now_s
        entry = self.instance.running_job.get(state.job.id) if at_start else None
        if entry is None:
            return False
        mode = mode if state.job.cores_in_place else entry.mode
        return is_one_stay(state.job, entry.mode, entry.placement, mode, placement)

    def _held(self, job_id: str) -> Run:
        run = self._state[job_id].run
        if run is None:
            raise PolicyError(f"job {job_id} holds nothing at {self.now_s:g} s")
        return run

    def _rate(self, job: Job, option: Option, placement: Placement) -> float:
        if job.profile.locality is None or (len(placement) <= 1 and option.spread == "node"):
            return option.rate
        return placed_rate(self.instance, job, option.mode, placement)
