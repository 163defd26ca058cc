"""From choices on a time grid to a plan in exact seconds: a serial schedule on real nodes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from optsched.driver.mixed import placement_on
from optsched.model.instance import Instance, Placement
from optsched.model.job import Job
from optsched.model.plan import JobPlan, Plan, Segment
from optsched.physics import TIME_TOLERANCE_S, hold_to_save_s, placed_rate
from optsched.physics.catalogue import catalogue_of
from optsched.physics.modes import Option
from optsched.verify import decision_now

from ..scheduling.lengths import continue_s, fresh_s
from .timeline import Timeline

Part = tuple[tuple[str, ...], int]
"""Nodes, and how many GPUs of a gang are taken among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How one job runs; when follows from the order of `order_key`, ties in the order given.

    A running job that is not `preempted` continues as it is, and needs no option. Where `placement`
    is None the nodes are chosen when the job starts: among those of `parts`, or any that fit the
    option's spread.
    """

    job_id: str
    order_key: tuple[float, ...] = (0.0,)
    option: Option | None = None
    placement: Placement | None = None
    parts: tuple[Part, ...] | None = None
    preempted: bool = False


def realise(instance: Instance, choices: Iterable[Choice]) -> Plan | None:
    """The plan in which each job, in order, starts at the earliest instant at which it fits until
    it is done.

    Running jobs that continue, and the checkpoints of those that are preempted, come first; a job
    is taken after its predecessors. If jobs that start together on the grid fit together there, no
    job starts later than on the grid. None where a choice cannot be carried out, or where running
    jobs share GPUs.
    """
    if any(entry.mode.share_with is not None for entry in instance.running):
        return None
    ordered = sorted(choices, key=lambda choice: choice.order_key)
    timeline = Timeline(instance)
    done: dict[str, tuple[Segment, ...]] = {}
    for choice in ordered:
        if choice.job_id in instance.running_job:
            done[choice.job_id] = (_now(instance, timeline, choice),)
    waiting = {
        choice.job_id: choice
        for choice in ordered
        if choice.preempted or choice.job_id not in instance.running_job
    }
    while waiting:
        ready = next(
            (job_id for job_id in waiting if waiting.keys().isdisjoint(instance.job[job_id].after)),
            None,
        )
        if ready is None:
            return None
        segments = _start(instance, timeline, waiting.pop(ready), done)
        if segments is None:
            return None
        done[ready] = segments
    if any(job.id not in done for job in instance.jobs):
        return None
    return Plan(
        jobs=tuple(
            JobPlan(
                id=job.id, decision=decision_now(instance, job, done[job.id]), segments=done[job.id]
            )
            for job in instance.jobs
        )
    )


def _now(instance: Instance, timeline: Timeline, choice: Choice) -> Segment:
    """What a running job holds from now on: until it is done, or while it is saved."""
    job, entry = instance.job[choice.job_id], instance.running_job[choice.job_id]
    length_s = hold_to_save_s(job) if choice.preempted else continue_s(instance, job)
    segment = Segment(
        start_s=instance.now_s,
        end_s=instance.now_s + length_s,
        mode=entry.mode,
        placement=entry.placement,
    )
    timeline.hold(job, segment)
    return segment


def _start(
    instance: Instance, timeline: Timeline, choice: Choice, done: dict[str, tuple[Segment, ...]]
) -> tuple[Segment, ...] | None:
    """Segments of a job that starts afresh as early as it fits."""
    job = instance.job[choice.job_id]
    assert choice.option is not None
    mode = choice.option.mode
    saved = done.get(job.id, ())
    earliest_s = max(
        instance.release_s(job),
        *(segment.end_s for segment in saved),
        *(done[before][-1].end_s for before in job.after),
        instance.now_s,
    )
    for start_s in timeline.instants(earliest_s):
        for placement, length_s in _placements(instance, timeline, choice, job, start_s):
            segment = Segment(
                start_s=start_s, end_s=start_s + length_s, mode=mode, placement=placement
            )
            if timeline.fits(job, segment):
                continued = _is_continuation(instance, job, segment)
                if continued is not None:
                    segment, saved = continued, ()
                timeline.hold(job, segment)
                return (*(s for s in saved if s.end_s > s.start_s), segment)
    return None


def _is_continuation(instance: Instance, job: Job, segment: Segment) -> Segment | None:
    """A job that is resumed at once where it was has in truth continued: that segment, or None."""
    entry = instance.running_job.get(job.id)
    if entry is None or segment.start_s > instance.now_s + hold_to_save_s(job) + TIME_TOLERANCE_S:
        return None
    if entry.mode.size != segment.mode.size or entry.placement != segment.placement:
        return None
    return Segment(
        start_s=instance.now_s,
        end_s=instance.now_s + continue_s(instance, job),
        mode=entry.mode,
        placement=entry.placement,
    )


def _placements(
    instance: Instance, timeline: Timeline, choice: Choice, job: Job, start_s: float
) -> Iterator[tuple[Placement, float]]:
    """Placements to try at `start_s`, with the run time on each."""
    assert choice.option is not None
    mode = choice.option.mode
    if choice.placement is not None or not choice.option.needs_node:
        found: Iterable[Placement] = (choice.placement or (),)
    else:
        found = _chosen_now(instance, timeline, choice, job, start_s)
    for placement in found:
        speed = placed_rate(instance, job, mode, placement)
        if speed > 0:
            yield placement, fresh_s(instance, job, mode, speed)


def _chosen_now(
    instance: Instance, timeline: Timeline, choice: Choice, job: Job, start_s: float
) -> Iterator[Placement]:
    """Best fit among the nodes free from `start_s` on: one node, else a rack, else as few nodes as
    can be."""
    option = choice.option
    assert option is not None
    mode = option.mode
    parts = choice.parts
    if parts is None:
        node = instance.cluster.node
        fitting = catalogue_of(instance).room(job, mode)
        of_type = (
            name for name in fitting if not mode.gpus or node[name].gpu_type == mode.gpu_type
        )
        parts = ((tuple(of_type), mode.gpus),)
    # The length is not known before the nodes are: the option's own rate is its guaranteed one.
    until_s = start_s + fresh_s(instance, job, mode, option.rate)
    free = {
        name: min(timeline.free_gpus(job, mode, name, start_s, until_s), max(mode.gpus, 1))
        for names, _ in parts
        for name in names
    }
    order = instance.cluster.node_order
    if len(parts) > 1:
        taken: dict[str, int] = {}
        for names, count in parts:
            filled = _fill(count, names, free, order)
            if filled is None:
                return
            taken.update(filled)
        yield placement_on(instance.cluster, taken, mode)
        return
    names, count = parts[0]
    groups: list[tuple[str, ...]] = [
        (name,) for name in sorted(names, key=lambda n: (free[n], order[n]))
    ]
    if option.spread != "node" and mode.gpus > 1:
        racks: dict[str, list[str]] = {}
        for name in names:
            rack = instance.cluster.node[name].rack
            if rack is not None:
                racks.setdefault(rack, []).append(name)
        groups += sorted(
            map(tuple, racks.values()), key=lambda rack: sum(free[name] for name in rack)
        )
        if option.spread == "cluster":
            groups.append(names)
    for group in groups:
        filled = _fill(count, group, free, order)
        if filled is not None:
            yield placement_on(instance.cluster, filled, mode)


def _fill(
    count: int, names: tuple[str, ...], free: dict[str, int], order: dict[str, int]
) -> dict[str, int] | None:
    """Take `count` GPUs (or a place for a CPU-only job) on as few of these nodes as possible."""
    need = max(count, 1)
    if sum(free[name] for name in names) < need:
        return None
    enough = [name for name in names if free[name] >= need]
    if enough:
        return {min(enough, key=lambda name: (free[name], order[name])): count}
    taken = {}
    for name in sorted(names, key=lambda name: (-free[name], order[name])):
        taken[name] = min(free[name], need)
        need -= taken[name]
        if not need:
            return taken
    return None
