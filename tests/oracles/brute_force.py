"""The exact optimum of a tiny instance by exhaustive search over the plan class.

Why it is exhaustive. Choose which running jobs are preempted now, and for every other job a mode
and a placement: all choices are tried. With these fixed, each node's GPUs, cores and memory, the
cluster's resources and the tenants' quotas are renewable resources, and the objective either does
not depend on time (energy, cost) or is nondecreasing in completion times. So some active schedule
is optimal (no job can start earlier with the others in place). Listing its jobs by start, each
starts at the earliest instant that is not before the start of the one listed before it and at which
its resources are free: were there an earlier one, the job could be moved there, since whatever
starts later already fits beside it. The search tries all such lists. It starts no job before an
earlier entry of its list, so what is free at its start stays free. A branch is cut when even with
every open job done at its earliest completion alone it is no better than the best plan found.

A preempted job that resumes at once where it ran is left out: to continue is no worse, as long as
what is left of its start-up is at most a new start.

Running jobs may share GPUs in pairs: who of the pair is preempted fixes what both hold and until
when (`shared_stays`), so all of the above goes for them too. A plan names nodes, not GPUs; so where
one of a pair is preempted and takes other GPUs of the same nodes while its partner is there, it
does so a moment later, as it would read as going on.

Windows are times in which a job finds nothing free on some nodes, or less of a resource or quota:
each job of a list then starts at the first instant from which all it needs is free to its end.
Whether running jobs may go on in them, which is settled by who is preempted, the verifier says.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, product

from optsched.model.cluster import Tenant
from optsched.model.instance import Instance, Placement, Running, Slot
from optsched.model.job import Job, Mode
from optsched.model.plan import JobPlan, Plan, Segment
from optsched.objectives import JobCost, Objective, Term, Usage
from optsched.physics import (
    TIME_TOLERANCE_S,
    fits_type,
    hold_to_save_s,
    may_preempt,
    memory_gib,
    placed_rate,
    remaining_after_preemption_s,
    run_s,
    setup_s,
)
from optsched.verify import decision_now, verify

from .stays import EPSILON_S, own_stay, shared_stays

Thing = tuple[str, str]
Held = tuple[float, dict[Thing, float]]
"""Until when something is held, and how much of what."""


@dataclass
class Choice:
    """A mode, a placement, the seconds it takes and what it holds of each resource."""

    mode: Mode
    placement: Placement
    length_s: float
    holds: dict[Thing, float]


@dataclass
class Task:
    """A job to plan: from when on it may start, in which ways, and what it holds before, while it
    saves."""

    job: Job
    release_s: float
    choices: list[Choice]
    before: list[Segment] = field(default_factory=list)


@dataclass
class Search:
    """What is planned so far (`segments`), which jobs are preempted in it, and the best plan
    found."""

    instance: Instance
    objective: Objective
    capacity: dict[Thing, float]
    costs: dict[tuple[int, int, str], JobCost | None]
    base: tuple[float, ...] = ()
    best: tuple[float, ...] | None = None  # above `base`, rounded
    values: tuple[float, ...] = ()
    plan: Plan | None = None
    segments: dict[str, list[Segment]] = field(default_factory=dict)
    stopped: frozenset[str] = frozenset()


def optimum(instance: Instance, objective: Objective) -> tuple[tuple[float, ...], Plan] | None:
    """Value of each level and an optimal plan, or None where no plan exists. Budgets are not looked
    at."""
    search = Search(instance, objective, capacities(instance), _job_costs(instance, objective))
    for stopped in preemptions(instance):
        _with_preempted(search, stopped)
    if search.best is None or search.plan is None:
        return None
    return search.values, search.plan


def _job_costs(
    instance: Instance, objective: Objective
) -> dict[tuple[int, int, str], JobCost | None]:
    return {
        (n, k, job.id): term.cost(instance, job)
        for n, level in enumerate(objective.levels)
        for k, (_, term) in enumerate(level)
        if not isinstance(term, Usage)
        for job in instance.jobs
    }


def capacities(instance: Instance) -> dict[Thing, float]:
    """How much there is of each thing that jobs hold."""
    found: dict[Thing, float] = {}
    for node in instance.cluster.nodes:
        found["gpus", node.name] = node.gpus
        if node.cpus is not None:
            found["cores", node.name] = node.cpus
        if node.memory_gib is not None:
            found["memory", node.name] = node.memory_gib
    for name, amount in instance.cluster.resources.items():
        found["resource", name] = amount
    for rack, gbps in instance.cluster.rack_uplink_gbps.items():
        found["uplink", rack] = gbps
    for tenant in instance.tenants:
        if tenant.gpu_quota is not None:
            found["quota", tenant.name] = tenant.gpu_quota + tenant.borrow_gpus
    top = [own for own in instance.tenants if quotas_over(instance, own.name) == [own]]
    if any(own.borrow_gpus for own in top):
        found["all quotas", ""] = sum(own.gpu_quota or 0 for own in top)
    return found


def quotas_over(instance: Instance, name: str | None) -> list[Tenant]:
    """The tenants whose quotas limit the jobs of a tenant."""
    if name is None:
        return []
    own = instance.tenant[name]
    return [own] * (own.gpu_quota is not None) + quotas_over(instance, own.parent)


def holds(instance: Instance, job: Job, mode: Mode, placement: Placement) -> dict[Thing, float]:
    """How much a job holds of each thing."""
    found: dict[Thing, float] = {}
    for slot in placement:
        found["gpus", slot.node] = slot.gpus
        found["cores", slot.node] = slot.cpus
        found["memory", slot.node] = memory_gib(job, mode, slot.gpus)
    for name, amount in mode.resources.items():
        found["resource", name] = amount
    for tenant in quotas_over(instance, job.tenant):
        found["quota", tenant.name] = found["all quotas", ""] = mode.gpus
    racks = [instance.cluster.node[slot.node].rack for slot in placement]
    if len(racks) > 1 and (None in racks or len(set(racks)) > 1):
        found.update(
            {("uplink", rack): job.profile.network_gbps for rack in racks if rack is not None}
        )
    return found


def preemptions(instance: Instance) -> Iterator[frozenset[str]]:
    """Every set of running jobs that may be preempted together, smaller ones first."""
    stoppable = [entry.job for entry in instance.running if may_preempt(instance, entry)]
    for size in range(len(stoppable) + 1):
        for stopped in combinations(stoppable, size):
            yield frozenset(stopped)


def _with_preempted(search: Search, stopped: frozenset[str]) -> None:
    begun = begin(search, stopped)
    if begun is not None:
        tasks, held = begun
        _extend(search, tasks, held, search.instance.now_s, -1)


def begin(search: Search, stopped: frozenset[str]) -> tuple[list[Task], list[Held]] | None:
    """Plan the running jobs that continue (all but `stopped`); what is left to plan, and what is
    held from now on.

    None where a job that must wait for others runs.
    """
    instance = search.instance
    search.segments, search.stopped = {}, stopped
    held: list[Held] = []
    tasks: list[Task] = []
    alone = [entry for entry in instance.running if entry.mode.share_with is None]
    stays = {entry.job: own_stay(instance, entry, stopped) for entry in alone}
    for entry in instance.running:
        other = entry.mode.share_with
        if other is not None and entry.job not in stays:
            both = shared_stays(instance, entry, instance.running_job[other], stopped)
            stays.update(both)
            until_s = max(
                (segments[-1].end_s for segments in both.values() if segments),
                default=instance.now_s,
            )
            held.append((until_s, {("gpus", slot.node): slot.gpus for slot in entry.placement}))
    for job in instance.jobs:
        runs = instance.running_job.get(job.id)
        if runs is not None and stays[job.id]:
            own = holds(instance, job, runs.mode, runs.placement)
            if runs.mode.share_with is not None:
                own = {what: amount for what, amount in own.items() if what[0] != "gpus"}
            held.append((stays[job.id][-1].end_s, own))
        if runs is not None and job.id not in stopped:
            search.segments[job.id] = stays[job.id]
            continue
        ran_before = runs is not None or job.id in instance.suspended_job
        work_s = (
            instance.remaining_s(job)
            if runs is None
            else remaining_after_preemption_s(instance, runs)
        )
        found = list(choices(search, job, work_s, setup_s(job, ran_before)))
        task = Task(job, instance.release_s(job), found)
        if runs is not None:
            task.release_s = instance.now_s + hold_to_save_s(job)
            task.before = stays[job.id]
        tasks.append(task)
    if any(job.after for job in instance.jobs if job.id in search.segments):
        return None
    return tasks, held


def choices(search: Search, job: Job, work_s: float, setup: float) -> Iterator[Choice]:
    """Every mode on every placement that fits the empty cluster and makes progress."""
    for base in _modes(job):
        for placement in _placements(search.instance, job, base):
            mode = _with_power(search.instance, job, base, placement)
            held = holds(search.instance, job, mode, placement)
            if any(
                amount > search.capacity.get(what, math.inf) + EPSILON_S
                for what, amount in held.items()
            ):
                continue
            speed = placed_rate(search.instance, job, mode, placement)
            if speed > 0:
                yield Choice(mode, placement, setup + run_s(job, mode, work_s, speed), held)


def _modes(job: Job) -> Iterator[Mode]:
    """Every mode the verifier accepts, cores and memory as measured; the GPU type is read off the
    nodes."""
    for listed in job.modes:
        names = {**job.resources, **listed.resources}
        resources = {
            name: job.resources.get(name, 0.0) + listed.resources.get(name, 0.0) for name in names
        }
        yield Mode(
            duration_s=listed.duration_s,
            gpu_type=listed.gpu_type,
            gpus=listed.gpus,
            cpus_per_gpu=listed.cpus_per_gpu,
            cpus=listed.cpus,
            resources=resources,
        )
    if job.modes:
        return
    if job.gpus == 0:
        yield Mode(cpus=job.cpus, resources=job.resources)
        return
    counts = (
        [job.gpus]
        if isinstance(job.gpus, int)
        else [
            n
            for n in range(job.gpus.min, job.gpus.max + 1)
            if n in (job.gpus.min, job.gpus.max, 1, 2, 4, 8, 16) or n in job.profile.gpus
        ]
    )
    table = job.profile.cpus_per_gpu
    for gpus in counts:
        for cores, clock_mhz, gib, gpu_gib in product(
            table or (0,),
            (None, *job.profile.clocks),
            (None, *job.profile.memory_rates),
            (None, *job.profile.gpu_memory_rates),
        ):
            yield Mode(
                gpus=gpus,
                cpus_per_gpu=cores,
                clock_mhz=clock_mhz,
                memory_gib_per_gpu=gib,
                gpu_memory_gib=gpu_gib,
                resources=job.resources,
            )


def _with_power(instance: Instance, job: Job, mode: Mode, placement: Placement) -> Mode:
    """Under a power cap a mode that is not listed holds what its GPUs draw."""
    if "power_w" not in instance.cluster.resources or job.modes or not mode.gpus:
        return mode
    watts = (
        job.profile.power_w.get(instance.cluster.node[placement[0].node].gpu_type or "", 0.0)
        * mode.gpus
    )
    if mode.clock_mhz is not None:
        watts *= job.profile.clocks[mode.clock_mhz].power
    if not watts:
        return mode
    total = mode.resources.get("power_w", 0.0) + watts
    return replace(mode, resources={**mode.resources, "power_w": total})


def _placements(instance: Instance, job: Job, mode: Mode) -> Iterator[Placement]:
    nodes = [node for node in instance.cluster.nodes if fits_type(job, mode, node)]
    if mode.gpus == 0:
        if mode.cpus == 0 and job.memory_gib == 0:
            yield ()
            return
        for node in nodes:
            yield (Slot(node=node.name, cpus=mode.cpus),)
        return
    for gpu_type in dict.fromkeys(node.gpu_type for node in nodes):
        alike = [node for node in nodes if node.gpu_type == gpu_type]
        for split in _splits(mode.gpus, [node.gpus for node in alike]):
            yield tuple(
                Slot(node=node.name, gpus=count, cpus=count * mode.cpus_per_gpu)
                for node, count in zip(alike, split, strict=True)
                if count
            )


def _splits(total: int, room: list[int]) -> Iterator[tuple[int, ...]]:
    if not room:
        if total == 0:
            yield ()
        return
    for first in range(min(total, room[0]) + 1):
        for rest in _splits(total - first, room[1:]):
            yield (first, *rest)


def _extend(search: Search, open_: list[Task], held: list[Held], from_s: float, last: int) -> None:
    if search.best is not None and _value(search, open_) >= search.best:
        return
    if not open_:
        _keep(search)
        return
    for task, choice, start_s, position in starts(search, open_, held, from_s, last):
        segment = Segment(
            start_s=start_s,
            end_s=start_s + choice.length_s,
            mode=choice.mode,
            placement=choice.placement,
        )
        search.segments[task.job.id] = [*task.before, segment]
        rest = [other for other in open_ if other is not task]
        _extend(search, rest, [*held, (segment.end_s, choice.holds)], start_s, position)
        del search.segments[task.job.id]


def starts(
    search: Search, open_: list[Task], held: list[Held], from_s: float, last: int
) -> Iterator[tuple[Task, Choice, float, int]]:
    """Every way to start one of the open tasks next: task, choice, earliest start, its position in
    the instance.

    `last` is the position of the job that started last, at `from_s`.
    """
    position = {job.id: j for j, job in enumerate(search.instance.jobs)}
    for task in open_:
        job = task.job
        if any(before not in search.segments for before in job.after):
            continue
        done_s = max(
            (search.segments[before][-1].end_s for before in job.after), default=task.release_s
        )
        earliest_s = max(from_s, task.release_s, done_s)
        for choice in task.choices:
            from_now_s = max(earliest_s, _soonest_s(search, task, choice))
            start_s = first_fit(search, held, choice.holds, from_now_s, job, choice)
            if start_s == from_s and position[job.id] < last:
                continue  # jobs that start together: one list of them is enough
            if _is_back_at_once(search.instance, task, choice, start_s):
                continue
            yield task, choice, start_s, position[job.id]


def _soonest_s(search: Search, task: Task, choice: Choice) -> float:
    """When this choice may start at the earliest: a moment later where it would read as going on
    beside a partner."""
    entry = search.instance.running_job.get(task.job.id)
    other = None if entry is None else entry.mode.share_with
    if entry is None or other is None or not _is_where_it_ran(entry, choice):
        return search.instance.now_s
    saved_s = search.instance.now_s + hold_to_save_s(search.instance.job[other])
    left_s = saved_s if other in search.stopped else search.segments[other][-1].end_s
    is_there = left_s > task.release_s + EPSILON_S
    return task.release_s + 2 * TIME_TOLERANCE_S if is_there else search.instance.now_s


def _is_where_it_ran(entry: Running, choice: Choice) -> bool:
    return choice.placement == entry.placement and choice.mode.size == entry.mode.size


def _is_back_at_once(instance: Instance, task: Task, choice: Choice, start_s: float) -> bool:
    entry = instance.running_job.get(task.job.id)
    return (
        entry is not None
        and start_s <= task.release_s + EPSILON_S
        and _is_where_it_ran(entry, choice)
    )


def first_fit(
    search: Search,
    held: list[Held],
    wanted: dict[Thing, float],
    from_s: float,
    job: Job | None = None,
    choice: Choice | None = None,
) -> float:
    """Earliest instant from `from_s` on at which `wanted` is free; all of `held` has started by
    then. With windows it is free until `choice` of `job` is done."""
    windows = search.instance.cluster.windows if job is not None else ()
    changes = [end_s for end_s, _ in held] + [window.to_s for window in windows]
    for at_s in sorted({from_s, *(change_s for change_s in changes if change_s > from_s)}):
        done_s = at_s + (0.0 if choice is None else choice.length_s)
        met = [w for w in windows if w.from_s < done_s - EPSILON_S and at_s < w.to_s - EPSILON_S]
        if any(
            slot.node in window.nodes
            for window in met
            if job is not None and choice is not None and window.bars(job.tenant, job.user)
            for slot in choice.placement
        ):
            continue
        if all(
            amount
            + sum(taken.get(what, 0.0) for end_s, taken in held if end_s > then_s + EPSILON_S)
            <= _there_is(search, what, then_s) + EPSILON_S
            for then_s in (at_s, *(max(at_s, window.from_s) for window in met))
            for what, amount in wanted.items()
            if amount
        ):
            return at_s
    raise AssertionError("a choice that fits the empty cluster fits once everything has ended")


def _there_is(search: Search, what: Thing, at_s: float) -> float:
    most = search.capacity.get(what, math.inf)
    kind, name = what
    for window in search.instance.cluster.windows:
        lower = {"resource": window.resources, "quota": window.quotas}.get(kind, {})
        if window.from_s <= at_s < window.to_s:
            most = min(most, lower.get(name, math.inf))
    return most


def _value(search: Search, open_: list[Task]) -> tuple[float, ...]:
    """Value of each level with what is planned; every open job ends at its earliest, holding
    nothing.

    Counted from the first such value, so that a long past takes no digits, and to 12 digits, so
    that sums that differ by their rounding tie and the next level decides.
    """
    values = _values(search, open_)
    if not search.base:
        search.base = tuple(value if math.isfinite(value) else 0.0 for value in values)
    return tuple(map(_above, search.base, values))


def _values(search: Search, open_: list[Task]) -> tuple[float, ...]:
    ends = {job_id: segments[-1].end_s for job_id, segments in search.segments.items()}
    for task in open_:
        shortest_s = min((choice.length_s for choice in task.choices), default=math.inf)
        ends[task.job.id] = task.release_s + shortest_s
    return tuple(
        math.fsum(
            weight * _term(search, n, k, term, ends) for k, (weight, term) in enumerate(level)
        )
        for n, level in enumerate(search.objective.levels)
    )


def _above(base: float, value: float) -> float:
    """What a value has above `base`, less the rounding of both."""
    above, step = value - base, 32 * math.ulp(base)
    if base and math.isfinite(above):
        above = round(above / step) * step
    return float(f"{above:.12g}")


def _term(search: Search, n: int, k: int, term: Term, ends: dict[str, float]) -> float:
    instance = search.instance
    if isinstance(term, Usage):
        return math.fsum(
            term.segment_cost(instance, instance.job[job_id], segment)
            for job_id, segments in search.segments.items()
            for segment in segments
        )
    costs = [(search.costs[n, k, job_id], end_s) for job_id, end_s in ends.items()]
    return term.combine([cost.at(end_s) for cost, end_s in costs if cost is not None])


def _keep(search: Search) -> None:
    instance = search.instance
    entries = []
    for job in instance.jobs:
        segments = tuple(search.segments[job.id])
        entries.append(
            JobPlan(id=job.id, decision=decision_now(instance, job, segments), segments=segments)
        )
    plan = Plan(jobs=tuple(entries))
    if instance.cluster.windows and not verify(instance, plan, search.objective).ok:
        return
    search.best, search.values = _value(search, []), _values(search, [])
    search.plan = plan
