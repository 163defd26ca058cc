"""What would become of the present jobs if something were otherwise: simulated on a copy of the
live cluster."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from ...driver import Ending
from ...duration import human
from ...errors import InputError
from ...files import check_instance
from ...frozen import frozen, record
from ...model import Instance, Job, Node, Running, Suspended
from ...objectives import parse
from ...physics import lost_s, placed_rate, unsaved_s
from ...physics.catalogue import catalogue_of
from ...physics.unschedulable import why_never
from ...plugins import registry
from ..round_driver import NamedPolicy
from .future import Outlook, drop_orphans

ROUNDS = NamedPolicy("optsched", {})
OF_THE_CLOCK = ("budget", "gap", "moves")
"""Options of policy optsched that are for rounds in real time."""
HYPOTHETICAL = "what-if"
"""Name of a job that is only asked about."""
FEW_JOBS, PACE = 100, "0.1"
"""With more jobs the policy is asked at longer intervals (see `spaced`), and rounds are decided at
ever longer ones, of this share of the time simulated by then (the option `pace` of policy
optsched)."""
ROUGH = 0.01
"""Means of two such courses that differ by a smaller share are taken for equal."""
LIMITS = (
    "no more jobs come, every job runs as long as it is believed to, nothing fails, and rounds are "
    "decided as policy optsched does, or by the policy that drives the nodes"
)


@frozen
class Change:
    """What is to be otherwise: `gpus` more of `gpu_type` (None: of the largest nodes), no
    preemption, a job less, a node less, a job more. All that is given holds at once; nothing given
    asks only how it will go. `job` is the job asked about."""

    job: str | None = None
    gpus: int = 0
    gpu_type: str | None = None
    no_preemption: bool = False
    without: str | None = None
    down: str | None = None
    submit: Job | None = None

    @property
    def changes(self) -> bool:
        """Tell whether anything is to be otherwise."""
        return bool(self.gpus or self.no_preemption or self.without or self.down or self.submit)


@frozen
class Course:
    """How it goes with `jobs` jobs. `start_s` and `end_s` by job, in seconds from now (a start of 0
    or less: it runs now); of those that are not in it nothing was seen in the `reached_s` that were
    looked at, or they can never run (`never`). `complete`: all jobs ended in that time; `in_time`
    false: it is no longer for want of time. `gpu_use` is the share of all GPU-seconds held in that
    time, up to the end of the last job; None where that is no time. `mean_jct_s` is the mean of
    completion less submission over the jobs that complete in all courses of an answer."""

    complete: bool
    in_time: bool
    reached_s: float
    jobs: int
    start_s: dict[str, float]
    end_s: dict[str, float]
    preemptions: int
    gpus: int
    gpu_use: float | None
    never: dict[str, str]
    mean_jct_s: float | None = None


@frozen
class Answer:
    """The course as things are, and with the change where there is one; both as far as the shorter
    one was looked at. `jobs` complete in both; `rough`: as there are many jobs, differences between
    the means of less than `ROUGH` of them mean nothing."""

    change: Change
    before: Course
    after: Course | None
    jobs: int
    rough: bool
    notes: tuple[str, ...]


@record
class Seen:
    """What a simulation saw of `jobs` jobs on `gpus` GPUs in `reached_s`, infinite where that was
    all: (job, begin, end, GPUs, how it ended) of each stay, times in seconds from now. `added` is
    the name of the job that was added."""

    jobs: int
    gpus: int
    reached_s: float
    in_time: bool
    stays: list[tuple[str, float, float, int, int]]
    never: dict[str, str]
    added: str | None = None


def refuse(ahead: Outlook, change: Change) -> None:
    """Raise InputError for what names something that is not there."""
    instance, job = ahead.instance, change.job
    if change.gpus < 0:
        raise InputError(f"{change.gpus} more GPUs: to take GPUs away name a node that is down")
    if change.gpu_type is not None and not change.gpus:
        raise InputError("a GPU type goes with a number of GPUs, as --gpus 8 --type a100")
    if change.gpus and not _alike(instance, change.gpu_type):
        types = [kind or "GPUs of no named type" for kind in instance.cluster.gpu_types]
        have = ", ".join(types) or "none"
        raise InputError(f"no node has GPUs of type {change.gpu_type!r}; there are: {have}")
    if change.without is not None and change.without not in instance.job:
        raise InputError(
            f"job {change.without!r} neither waits nor runs, so all is as if it were not there"
        )
    if change.down is not None and change.down not in instance.cluster.node:
        raise InputError(
            f"node {change.down!r} is not there, or nothing runs on it and it takes no jobs already"
        )
    if change.down is not None and len(instance.cluster.nodes) == 1 and not change.gpus:
        raise InputError(f"without {change.down} there is no node left")
    if job is not None and change.submit is None and job not in instance.job:
        reason = ahead.left_out.get(job)
        raise InputError(
            f"job {job}: {reason}" if reason else f"job {job!r} neither waits nor runs"
        )


def courses_of(change: Change) -> list[Change]:
    """Return what is to be otherwise in each course that an answer needs."""
    return [Change(), change] if change.changes else [change]


def seen_of(
    ahead: Outlook, change: Change, objective: str, policy: NamedPolicy, time_limit_s: float
) -> Seen:
    """Return what a simulation of the present jobs with the change sees; without one only until the
    job that is asked about has ended."""
    until_s = time.monotonic() + time_limit_s
    instance, added = changed_instance(ahead.instance, change)
    stop_at = None if change.changes else change.job
    policy = _in_virtual_time(policy, instance)
    return replace(_simulated(instance, policy, objective, until_s, stop_at), added=added)


def compared(ahead: Outlook, change: Change, seen: list[Seen], policy: NamedPolicy) -> Answer:
    """Return the answer that what was seen of the courses of a change gives."""
    reached_s = min(own.reached_s for own in seen)
    courses = [_read(own, reached_s) for own in seen]
    both = [name for name in ahead.submit_s if all(name in course.end_s for course in courses)]

    def with_mean(course: Course) -> Course:
        now_s = ahead.instance.now_s
        jct_s = [course.end_s[name] + now_s - ahead.submit_s[name] for name in both]
        return replace(course, mean_jct_s=fmean(jct_s) if jct_s else None)

    before, *others = map(with_mean, courses)
    notes = [*ahead.notes]
    if not all(own.in_time for own in seen):
        far = f"the next {human(reached_s)}" if reached_s >= 1 else "the present"
        notes.append(f"the time was up: only {far} was looked at")
    rough = policy.name == ROUNDS.name and any(_is_rough(own.jobs) for own in seen)
    if rough:
        notes.append(
            "the farther ahead, the rougher: of so many jobs rounds are decided at ever longer "
            "intervals"
        )
    return Answer(
        change=replace(change, job=seen[-1].added or change.job),
        before=before,
        after=others[0] if others else None,
        jobs=len(both),
        rough=rough,
        notes=tuple(notes),
    )


def changed_instance(instance: Instance, change: Change) -> tuple[Instance, str | None]:
    """Return the instance with the change, and the name of the job that was added. Raises
    InputError where that is not a sound instance."""
    added = None
    if change.gpus:
        added_nodes = _more_nodes(instance, change.gpus, change.gpu_type)
        instance = _on(instance, (*instance.cluster.nodes, *added_nodes))
    if change.without is not None:
        instance = instance.only(instance.job.keys() - {change.without})
    if change.down is not None:
        instance = _down(instance, change.down)
    if change.submit is not None:
        added = HYPOTHETICAL
        while added in instance.job:
            added += "-"
        job = replace(change.submit, id=added, submit_s=instance.now_s)
        instance = replace(instance, jobs=(*instance.jobs, job))
    if change.no_preemption:
        instance = replace(
            instance, jobs=tuple(replace(job, preemptible=False) for job in instance.jobs)
        )
    check_instance(able(instance)[0])
    return instance, added


def _on(instance: Instance, nodes: tuple[Node, ...]) -> Instance:
    return replace(instance, cluster=replace(instance.cluster, nodes=nodes))


def _more_nodes(instance: Instance, gpus: int, gpu_type: str | None) -> Iterator[Node]:
    """Yield nodes like the largest there are; the last one smaller where that does not come out
    even."""
    nodes = _alike(instance, gpu_type)
    like = max(nodes, key=lambda node: node.gpus)
    for number, left in enumerate(range(gpus, 0, -like.gpus), 1):
        count = min(left, like.gpus)
        share = count / like.gpus
        yield replace(
            like,
            name=f"added-{number}",
            gpus=count,
            cpus=None if like.cpus is None else math.floor(like.cpus * share),
            memory_gib=None if like.memory_gib is None else like.memory_gib * share,
        )


def _alike(instance: Instance, gpu_type: str | None) -> list[Node]:
    """Return the nodes with GPUs of a type, None: of any."""
    return [
        node for node in instance.cluster.nodes if node.gpus and gpu_type in (None, node.gpu_type)
    ]


def _down(instance: Instance, name: str) -> Instance:
    """Return the instance without a node: what ran on it lost the work since it last saved, or
    since it began, and waits again."""
    hit = [run for run in instance.running if any(slot.node == name for slot in run.placement)]
    back = (
        Suspended(
            job=run.job, remaining_s=_after_crash_s(instance, run), preemptions=run.preemptions
        )
        for run in hit
    )
    return replace(
        _on(instance, tuple(node for node in instance.cluster.nodes if node.name != name)),
        suspended=(*instance.suspended, *back),
        running=tuple(run for run in instance.running if run not in hit),
    )


def _after_crash_s(instance: Instance, entry: Running) -> float:
    job = instance.job[entry.job]
    undone_s = unsaved_s(entry, instance.now_s)
    if job.profile.checkpoint_every_s is not None:
        undone_s = lost_s(job, undone_s)
    work_s = undone_s * placed_rate(instance, job, entry.mode, entry.placement)
    return min(job.work_s, entry.remaining_s + work_s)


def able(instance: Instance) -> tuple[Instance, dict[str, str]]:
    """Return the instance without the jobs that can never run and those after them, and why each
    is not in it."""
    never: dict[str, str] = {}
    jobs = {}
    for job in instance.jobs:
        waits = job.id not in instance.running_job
        reason = why_never(catalogue_of(instance), job) if waits else None
        if reason is None:
            jobs[job.id] = job
        else:
            never[job.id] = reason
    drop_orphans(jobs, never)
    return instance.only(jobs.keys()) if never else instance, never


def _is_rough(jobs: int) -> bool:
    return jobs > FEW_JOBS


def _in_virtual_time(policy: NamedPolicy, instance: Instance) -> NamedPolicy:
    """Return the policy without limits on its wall clock, and coarser where there are many jobs."""
    if policy.name != ROUNDS.name:
        return policy
    options = {name: value for name, value in policy.options.items() if name not in OF_THE_CLOCK}
    return NamedPolicy(
        policy.name, options | ({"pace": PACE} if _is_rough(len(instance.jobs)) else {})
    )


def _simulated(
    instance: Instance, named: NamedPolicy, objective: str, until_s: float, stop_at: str | None
) -> Seen:
    """Simulate; with `stop_at` only until that job has ended."""
    from ...forecast.course import spaced
    from ...simulate.run import Simulation

    instance, never = able(instance)
    policy = registry.policy(named.name, parse(objective), named.options)
    rough = named.name == ROUNDS.name and _is_rough(len(instance.jobs))
    simulation = Simulation(instance, policy, **spaced(instance) if rough else {})
    world = simulation.world
    rows, place = (world.rows, instance.position.get(stop_at or "", -1))
    read, late = 0, False

    def enough() -> bool:
        nonlocal read, late
        late = time.monotonic() > until_s
        new = rows.since(read)
        read += len(new)
        return late or bool(((new["job"] == place) & (new["ending"] == Ending.COMPLETED)).any())

    complete = simulation.run(until=enough)
    record, now_s = simulation.record(), instance.now_s
    columns = (record.job, record.start_s, record.end_s, record.gpus, record.ending)
    stays = [
        (instance.jobs[j].id, begin_s - now_s, end_s - now_s, gpus, ending)
        for j, begin_s, end_s, gpus, ending in zip(*(col.tolist() for col in columns), strict=True)
    ]
    for name in world.holders:
        entry = world.entry(name)
        assert isinstance(entry, Running)
        stays.append(
            (name, max(0.0, entry.started_s - now_s), math.inf, entry.mode.gpus, Ending.GOES_ON)
        )
    reached_s = math.inf if complete else world.now_s - now_s
    return Seen(
        jobs=len(instance.jobs),
        gpus=instance.cluster.total_gpus,
        reached_s=reached_s,
        in_time=not late or complete,
        stays=stays,
        never=never,
    )


def _read(seen: Seen, reached_s: float) -> Course:
    """Return what happened in the first `reached_s`."""
    start_s: dict[str, float] = {}
    end_s: dict[str, float] = {}
    held_s, preemptions = 0.0, 0
    for name, begin_s, finish_s, gpus, ending in seen.stays:
        if begin_s > reached_s:
            continue
        start_s[name] = min(start_s.get(name, math.inf), begin_s)
        held_s += gpus * (min(finish_s, reached_s) - max(begin_s, 0.0))
        if finish_s <= reached_s:
            preemptions += ending == Ending.PREEMPTED
            if ending == Ending.COMPLETED:
                end_s[name] = finish_s
    complete = len(end_s) == seen.jobs
    last_s = max(end_s.values(), default=0.0) if complete else reached_s
    use = held_s / (seen.gpus * last_s) if seen.gpus and last_s > 0 else None
    return Course(
        complete=complete,
        in_time=seen.in_time,
        reached_s=last_s,
        jobs=seen.jobs,
        start_s=start_s,
        end_s=end_s,
        preemptions=preemptions,
        gpus=seen.gpus,
        gpu_use=use,
        never=seen.never,
    )
