"""An instance in integers: for every job its alternatives, and the rows of capacity they draw on.

Shared by the solvers that plan the whole horizon. Times are ticks from `now_s`. Each length of time
is kept rounded down (a model over those is a relaxation, see `ticks`) and up (a schedule over those
is feasible).
"""

from functools import cached_property
from graphlib import TopologicalSorter

from optsched.frozen import record
from optsched.model import Instance, Job, Mode, Running
from optsched.objectives import Inverse, Numbers, Objective, SumOfJobs, Usage
from optsched.physics import TIME_TOLERANCE_S, Span, cpus, hold_to_save_s, may_preempt, memory_gib
from optsched.physics.capacity import Capacity
from optsched.physics.catalogue import Catalogue, catalogue_of
from optsched.physics.modes import Option

from .lengths import continue_s, fresh_s
from .running_pairs import pairs, stay
from .ticks import Tick, choose_tick
from .windows import Windows, may_stay

MAX_TICKS = 10**8
"""Resolution of the horizon where times are no multiples of a common tick."""

Split = tuple[tuple[int, int], ...]
"""(node index, GPUs there) of one job; (node index, 0) for a CPU-only job; empty for a job without
node."""


@record
class Alternative:
    """One way to run what is left of a job, in one piece, or to save it.

    `seconds` includes set-up; `down`/`up` are the same in ticks. `rooms` lists the nodes it may use
    with the most GPUs it could hold there; where it is `fixed`, because the job runs already, what
    it has. `shared` are its demands on rows that belong to no node. `alone`: it continues while the
    job that shares its GPUs is preempted.
    """

    mode: Mode
    spread: Span
    seconds: float
    down: int
    up: int
    rooms: Split
    shared: tuple[tuple[int, float], ...]
    fixed: bool = False
    alone: bool = False


@record
class Activity:
    """One job: when it may start (`wait_s` from now, in ticks its `release`), in which ways, after
    whom.

    A running job's first alternative is to continue, unless a window comes before its end; those
    that are not `fixed` are open only where `hold` is set: the checkpoint, for which its nodes stay
    taken if it is preempted now. Of a pair that shares GPUs the first alternative is that both
    continue, an `alone` one that only this job does.
    """

    index: int
    job: Job
    wait_s: float
    release_down: int
    release_up: int
    alternatives: tuple[Alternative, ...]
    before: tuple[int, ...]
    running: Running | None = None
    hold: Alternative | None = None

    @property
    def makes_way(self) -> bool:
        """Return whether a running job has to be preempted, for a window."""
        return self.running is not None and not any(a.fixed for a in self.alternatives)

    @property
    def shortest_s(self) -> float:
        """Return the length of its shortest alternative."""
        return min(alternative.seconds for alternative in self.alternatives)

    def ready_s(self, alternative: int) -> float:
        """Return the seconds from now before which an alternative cannot start."""
        if self.alternatives[alternative].fixed:
            return 0.0
        return self.wait_s if self.hold is None else self.hold.seconds

    def done_s(self, start_s: float) -> float:
        """Return the least seconds from now until it is done, from `start_s` on."""
        return min(
            max(start_s, self.ready_s(i)) + alternative.seconds
            for i, alternative in enumerate(self.alternatives)
        )

    def preempts(self, alternative: int) -> bool:
        """Return whether an alternative preempts the job, which runs now."""
        return self.hold is not None and not self.alternatives[alternative].fixed

    def stays(self, *, alone: bool) -> "Choice":
        """Return the choice to continue a running job, `alone` without the one beside it."""
        which = next(i for i, a in enumerate(self.alternatives) if a.fixed and a.alone == alone)
        return Choice(which, 0, self.alternatives[which].rooms)


@record
class Choice:
    """Where one activity stands in a schedule: alternative, start tick, nodes."""

    alternative: int
    start: int
    split: Split


Schedule = list[Choice]
"""One choice for each activity, by index."""


class Problem:
    """The integer view of one instance under one objective."""

    def __init__(self, instance: Instance, objective: Objective) -> None:
        self.instance = instance
        self.objective = objective
        cluster = instance.cluster
        self.node_types = [node.gpu_type for node in cluster.nodes]
        self.racks: list[str | int] = [
            n if node.rack is None else node.rack for n, node in enumerate(cluster.nodes)
        ]
        """The rack of each node; a node that is in none is as a rack of its own: on it alone a
        gang is within a rack."""
        self.table = Capacity(cluster, instance.tenants)
        self.rows = self.table.rows
        self.gpu_row = self.table.gpus
        self.pair_of = {
            entry.job: (entry, other)
            for a, b in pairs(instance)
            for entry, other in ((a, b), (b, a))
        }
        self._cores_suffice = self._types_with_enough_cores()
        self._drop_rows_that_never_bind()
        self.changes_s = sorted(
            {
                change_s
                for tariff in objective.tariffs(cluster)
                for change_s in tariff.changes_s(instance.now_s)
            }
        )
        """When it starts to matter otherwise what is held, in seconds from now."""
        self.tick, self.windows = self._choose_tick()
        position = instance.position
        self.activities = [self._activity(i, job, position) for i, job in enumerate(instance.jobs)]
        self.partner = {position[a.job]: position[b.job] for a, b in self.pair_of.values()}
        """Index of the activity with which each one that shares GPUs now shares them."""

    def _types_with_enough_cores(self) -> frozenset[str | None]:
        """Return GPU types whose nodes can give every GPU the most cores any job takes, so that
        cores never bind."""
        cluster = self.instance.cluster
        most: dict[str | None, int] = {}
        cpu_only = False
        for job in self.instance.jobs:
            for option in Catalogue.of(cluster).options(job):
                mode = option.mode
                cpu_only = cpu_only or mode.cpus > 0
                most[mode.gpu_type] = max(most.get(mode.gpu_type, 0), mode.cpus_per_gpu)
        for entry in self.instance.running:
            cores = entry.mode.cpus_per_gpu
            if entry.job in self.pair_of:
                cores += self.pair_of[entry.job][1].mode.cpus_per_gpu
            for slot in entry.placement:
                gpu_type = cluster.node[slot.node].gpu_type
                most[gpu_type] = max(most.get(gpu_type, 0), cores)
        return frozenset(
            gpu_type
            for gpu_type, cores in most.items()
            if not cpu_only
            and all(
                node.cpus is None or node.cpus >= cores * node.gpus
                for node in cluster.nodes
                if node.gpu_type == gpu_type
            )
        )

    def _drop_rows_that_never_bind(self) -> None:
        """Forget cores and memory of nodes that have enough of them for anything their GPUs can
        run."""
        jobs, nodes = self.instance.jobs, self.instance.cluster.nodes
        per_gpu = max((job.profile.memory_gib_per_gpu for job in jobs), default=0.0)
        if self.pair_of:
            per_gpu *= 2  # each of a pair takes its own beside the same GPU
        cpu_only = any(
            option.mode.gpus == 0 and option.needs_node
            for job in jobs
            for option in catalogue_of(self.instance).options(job)
        )
        for n, node in enumerate(nodes):
            if node.gpu_type in self._cores_suffice:
                self.table.cores[n] = None
            if (
                not cpu_only
                and node.memory_gib is not None
                and node.memory_gib >= per_gpu * node.gpus
            ):
                self.table.memory[n] = None
        self._memory_suffices = {node.gpu_type for node in nodes} - {
            node.gpu_type for n, node in enumerate(nodes) if self.table.memory[n] is not None
        }

    def _worthwhile(self, job: Job) -> list[Option]:
        """Return the options without those that save cores, or memory, where these never bind."""
        options = catalogue_of(self.instance).options(job)
        fastest: dict[object, float] = {}
        for option in options:
            if option.mode.duration_s is None:
                key = self._scarce(option)
                fastest[key] = max(fastest.get(key, 0.0), option.rate)
        return [
            option
            for option in options
            if option.mode.duration_s is not None or option.rate >= fastest[self._scarce(option)]
        ]

    def _scarce(self, option: Option) -> object:
        """Return what of an option may keep others from something, or is faster or slower there."""
        mode = option.mode
        return (
            (option.spread, mode.gpus, mode.gpu_type, mode.clock_mhz, mode.gpu_memory_gib),
            0 if mode.gpu_type in self._cores_suffice else mode.cpus_per_gpu,
            None if mode.gpu_type in self._memory_suffices else mode.memory_gib_per_gpu,
        )

    @cached_property
    def in_order(self) -> list[Activity]:
        """Return activities, each after its predecessors."""
        before = {activity.index: activity.before for activity in self.activities}
        return [self.activities[i] for i in TopologicalSorter(before).static_order()]

    @cached_property
    def earliest_s(self) -> list[float]:
        """Return the earliest start of each job in seconds from now: its release, or the end of a
        chain of predecessors. One that runs holds its nodes whatever becomes of those."""
        earliest_s = [activity.wait_s for activity in self.activities]
        for activity in self.in_order:
            if activity.running is None:
                ends_s = (self.activities[i].done_s(earliest_s[i]) for i in activity.before)
                earliest_s[activity.index] = max(earliest_s[activity.index], *ends_s, 0.0)
        return earliest_s

    def is_one_pool(self, members: set[int]) -> bool:
        """Return whether these nodes, of one GPU type, need not be told apart.

        They need not be where every gang may be split at no loss (or has one GPU), neither cores
        nor memory of a node can run short, and each window is of all of them or of none: intervals
        on identical GPUs can always be coloured.
        """
        nodes = self.instance.cluster.nodes
        usage = [term for term in self.objective.terms if isinstance(term, Usage)]
        if self.windows.splits(members):
            return False
        return all(term.is_alike(nodes[n] for n in members) for term in usage) and all(
            activity.index not in self.partner
            and self._splits_at_no_loss(activity, alternative, members)
            for activity in self.activities
            for alternative in activity.alternatives
            if not members.isdisjoint(n for n, _ in alternative.rooms)
        )

    def idle_gpus(self, node: int) -> int:
        """Return the GPUs of a node on which no job runs now."""
        name = self.instance.cluster.nodes[node].name
        return self.instance.cluster.nodes[node].gpus - sum(
            slot.gpus
            for entry in self.instance.running
            for slot in entry.placement
            if slot.node == name
        )

    def _splits_at_no_loss(
        self, activity: Activity, alternative: Alternative, members: set[int]
    ) -> bool:
        mode, rooms = alternative.mode, dict(alternative.rooms)
        return (
            mode.gpus > 0
            and (alternative.fixed or mode.gpus == 1 or alternative.spread == "cluster")
            and all(
                (alternative.fixed or rooms.get(n, 0) >= min(node.gpus, mode.gpus))
                and (node.cpus is None or cpus(mode, node.gpus) <= node.cpus)
                and (
                    node.memory_gib is None
                    or memory_gib(activity.job, mode, node.gpus) <= node.memory_gib
                )
                for n in members
                for node in (self.instance.cluster.nodes[n],)
            )
        )

    def _choose_tick(self) -> tuple[Tick, Windows]:
        instance, seconds = self.instance, list(self.changes_s)
        latest_s, total_s = max(self.changes_s, default=0.0), 0.0
        has_rates = any(
            isinstance(term, SumOfJobs) and term.shape is Inverse for term in self.objective.terms
        )
        for job in instance.jobs:
            since_s = instance.now_s - job.submit_s
            seconds.append(abs(since_s) if has_rates else max(0.0, -since_s))
            if job.deadline_s is not None:
                seconds.append(abs(job.deadline_s - instance.now_s))
            ways = self._ways(job)
            seconds.extend(way[1] for way in ways)
            if job.id in instance.running_job:
                seconds.append(hold_to_save_s(job))
            latest_s = max([latest_s, job.submit_s - instance.now_s])
            total_s += max([hold_to_save_s(job) + way[1] for way in ways], default=0.0)
        windows = Windows(instance, latest_s, total_s)
        seconds.extend(windows.instants_s)
        return choose_tick(seconds, MAX_TICKS, windows.reach_s, instance.now_s), windows

    def _ways(self, job: Job) -> list[tuple[Option | None, float]]:
        """Return every way to run what is left of a job with its length in seconds; None is to
        continue, where no window comes before its end."""
        instance = self.instance
        running = instance.running_job.get(job.id)
        ways: list[tuple[Option | None, float]] = []
        if running is not None:
            if job.id in self.pair_of:
                _, other = self.pair_of[job.id]
                ways.append((None, stay(instance, running, True, other, True).seconds))
                if may_preempt(instance, other):
                    ways.append((None, stay(instance, running, True, other, False).seconds))
            elif may_stay(instance, running, seconds := continue_s(instance, job)):
                ways.append((None, seconds))
            if not may_preempt(instance, running):
                return ways
        for option in self._worthwhile(job):
            if self.table.allows(job, option.mode):
                ways.append((option, fresh_s(instance, job, option.mode, option.rate)))
        return ways

    def _activity(self, index: int, job: Job, position: dict[str, int]) -> Activity:
        instance, running = self.instance, self.instance.running_job.get(job.id)
        held: Split = ()
        if running is not None:
            order = instance.cluster.node_order
            held = tuple((order[slot.node], slot.gpus) for slot in running.placement)
        alternatives: list[Alternative] = []
        for option, seconds in self._ways(job):
            if option is not None:
                alternatives.append(self._fresh(job, option, seconds))
            elif running is not None:
                alone = bool(alternatives)
                alternatives.append(
                    self._alternative(job, running.mode, seconds, held, fixed=True, alone=alone)
                )
        hold = None
        if running is not None and not all(alternative.fixed for alternative in alternatives):
            hold = self._alternative(job, running.mode, hold_to_save_s(job), held, fixed=True)
        wait_s = max(0.0, job.submit_s - instance.now_s)
        return Activity(
            index,
            job,
            wait_s,
            self.tick.floor(wait_s),
            self.tick.ceil(wait_s),
            tuple(alternatives),
            tuple(position[name] for name in dict.fromkeys(job.after)),
            running,
            hold,
        )

    def _fresh(self, job: Job, option: Option, seconds: float) -> Alternative:
        mode, order = option.mode, self.instance.cluster.node_order
        need = mode.gpus if option.spread == "node" else min(mode.gpus, 1)
        most = catalogue_of(self.instance).room(job, mode) if option.needs_node else {}
        rooms = tuple((order[name], gpus) for name, gpus in most.items() if gpus >= need)
        return self._alternative(job, mode, seconds, rooms, option.spread)

    def _alternative(
        self,
        job: Job,
        mode: Mode,
        seconds: float,
        rooms: Split,
        spread: Span = "cluster",
        **how: bool,
    ) -> Alternative:
        down, up = self.tick.floor(seconds), self.tick.ceil(seconds)
        shared = tuple(self.table.together(job, mode))
        return Alternative(mode, spread, seconds, down, up, rooms, shared, **how)

    def demands(
        self, activity: Activity, held: Alternative, split: Split
    ) -> list[tuple[int, float]]:
        """Return all (row, amount) that a job holds on `split`, but for GPUs that it shares where
        it runs now, which the pair holds."""
        demand = list(held.shared)
        for node, gpus in split:
            demand.extend(self.table.on_node(activity.job, held.mode, node, gpus))
        if held.fixed and activity.index in self.partner:
            return [(row, amount) for row, amount in demand if row not in self.gpu_row]
        return demand

    def end(self, index: int, choice: Choice) -> int:
        """Return the tick by which an activity is done."""
        return choice.start + self.activities[index].alternatives[choice.alternative].up

    def couples(self) -> list[tuple[Activity, Activity]]:
        """Return the activities that share GPUs now, each pair once."""
        return [(self.activities[i], self.activities[k]) for i, k in self.partner.items() if i < k]

    def with_matching_alternatives(self, schedule: Schedule) -> Schedule:
        """Return the schedule with each pair's alternatives in accord, and no job of one preempted
        to go on where it was.

        Who goes on instead ends no later, and so does its partner.
        """
        matched = list(schedule)
        for pair in self.couples():
            kept = [
                not a.preempts(matched[a.index].alternative)
                or self.is_back_at_once(a, matched[a.index])
                for a in pair
            ]
            for activity, stays in zip(pair, kept, strict=True):
                if stays:
                    matched[activity.index] = activity.stays(alone=not all(kept))
        return matched

    def is_back_at_once(self, activity: Activity, choice: Choice) -> bool:
        """Return whether a preempted job goes on where it ran as soon as it has saved, but for what
        is no time to a plan."""
        hold, mode = activity.hold, activity.alternatives[choice.alternative].mode
        return (
            hold is not None
            and choice.split == hold.rooms
            and mode.size == hold.mode.size
            and ((choice.start - hold.up) * self.tick.length_s <= TIME_TOLERANCE_S)
        )

    # ------------------------------------------------------------------------------- schedules and
    # plans

    def gpu_cost_per_s(self, term: Usage, activity: Activity, mode: Mode, node: int) -> float:
        """Return what one GPU of a node uses in a second."""
        return term.rate(activity.job, mode, self.instance.cluster.nodes[node], 1)

    def usage(
        self,
        term: Usage,
        activity: Activity,
        alternative: int,
        start_s: Numbers,
        split: Split | None = None,
    ) -> Numbers:
        """Return what an alternative on `split` from `start_s` after now on uses, and the
        checkpoint before it; without a split on the cheapest nodes."""
        now_s, tariff = self.instance.now_s, term.tariff(self.instance.cluster)
        chosen, hold = activity.alternatives[alternative], activity.hold
        per_s = self.usage_per_s(term, activity, alternative, split)
        total = per_s * tariff.integral(now_s + start_s, chosen.seconds)
        if hold is not None and activity.preempts(alternative):
            held_per_s = self._on_split(term, activity, hold.mode, hold.rooms)
            total = total + held_per_s * tariff.integral(now_s, hold.seconds)
        return total

    def usage_per_s(
        self, term: Usage, activity: Activity, alternative: int, split: Split | None = None
    ) -> float:
        """Return what an alternative on `split` or on the cheapest nodes uses in a second."""
        chosen = activity.alternatives[alternative]
        if split is None and chosen.fixed:
            split = chosen.rooms
        if split is not None:
            return self._on_split(term, activity, chosen.mode, split)
        return chosen.mode.gpus * min(
            (self.gpu_cost_per_s(term, activity, chosen.mode, node) for node, _ in chosen.rooms),
            default=0.0,
        )

    def _on_split(self, term: Usage, activity: Activity, mode: Mode, split: Split) -> float:
        return sum(gpus * self.gpu_cost_per_s(term, activity, mode, node) for node, gpus in split)

    def end_s(self, activity: Activity, choice: Choice) -> float:
        """Return the completion of a choice in seconds."""
        start_s = self.instance.now_s + choice.start * self.tick.length_s
        return start_s + activity.alternatives[choice.alternative].seconds
