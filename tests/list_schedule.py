"""Verified plans for tests of what is done with plans: first come first served, nothing clever."""

from optsched import Instance, JobPlan, Plan, Segment, Slot, Solution
from optsched.files import instance_hash
from optsched.model.job import Mode
from optsched.model.plan import Level
from optsched.objectives import parse
from optsched.physics import (
    hold_to_save_s,
    memory_gib,
    placed_rate,
    remaining_after_preemption_s,
    setup_s,
    span,
)
from optsched.physics.catalogue import catalogue_of
from optsched.verify import decision_now
from tests.verified import checked

SPANS = ("node", "rack", "cluster")


def list_schedule(
    instance: Instance, preempted: tuple[str, ...] = (), order: tuple[str, ...] = ()
) -> Plan:
    """Running jobs go on (or, if `preempted`, save and wait); then jobs in `order` and in file
    order, each at the first instant at which one of its modes fits."""
    segments: dict[str, list[Segment]] = {job.id: [] for job in instance.jobs}
    for entry in instance.running:
        job = instance.job[entry.job]
        if entry.job in preempted:
            length_s = hold_to_save_s(job)
        else:
            length_s = entry.setup_s + entry.remaining_s / placed_rate(
                instance, job, entry.mode, entry.placement
            )
        if length_s > 0:
            segments[job.id].append(
                Segment(
                    start_s=instance.now_s,
                    end_s=instance.now_s + length_s,
                    mode=entry.mode,
                    placement=entry.placement,
                )
            )
    waiting = [*order, *(job.id for job in instance.jobs if job.id not in order)]
    waiting = [name for name in waiting if name not in instance.running_job or name in preempted]
    while waiting:
        name = next(name for name in waiting if not set(instance.job[name].after) & set(waiting))
        waiting.remove(name)
        segments[name].append(_first_fit(instance, name, segments))
    jobs = tuple(
        JobPlan(
            id=job.id,
            decision=decision_now(instance, job, tuple(segments[job.id])),
            segments=tuple(segments[job.id]),
        )
        for job in instance.jobs
    )
    return Plan(jobs=jobs)


def _first_fit(instance: Instance, name: str, segments: dict[str, list[Segment]]) -> Segment:
    job = instance.job[name]
    entry = instance.running_job.get(name)
    ran_before = entry is not None or name in instance.suspended_job
    work_s = remaining_after_preemption_s(instance, entry) if entry else instance.remaining_s(job)
    earliest_s = max(
        [
            instance.release_s(job),
            *(segments[before][-1].end_s for before in job.after),
            *(segment.end_s for segment in segments[name]),
        ]
    )
    ends = sorted(
        {
            segment.end_s
            for parts in segments.values()
            for segment in parts
            if segment.end_s > earliest_s
        }
    )
    for start_s in [earliest_s, *ends]:
        for option in catalogue_of(instance).options(job):
            end_s = start_s + setup_s(job, ran_before) + option.run_s(job, work_s)
            busy = [
                (instance.job[other], segment)
                for other, parts in segments.items()
                for segment in parts
                if segment.start_s < end_s and segment.end_s > start_s
            ]
            if any(
                sum(segment.mode.resources.get(key, 0.0) for _, segment in busy) + amount
                > instance.cluster.resources[key]
                for key, amount in option.mode.resources.items()
            ):
                continue
            placement = _place(instance, job, option.mode, busy) if option.needs_node else ()
            if placement is None:
                continue
            if SPANS.index(span(instance.cluster, placement)) > SPANS.index(option.spread):
                continue
            end_s = (
                start_s
                + setup_s(job, ran_before)
                + option.run_s(job, work_s)
                * (option.rate / placed_rate(instance, job, option.mode, placement))
            )
            return Segment(start_s=start_s, end_s=end_s, mode=option.mode, placement=placement)
    raise AssertionError(f"job {name} fits nowhere")


def _place(instance, job, mode: Mode, busy) -> tuple[Slot, ...] | None:
    """Slots on the nodes that hold most of the gang, or None where it does not fit beside what is
    `busy`."""
    free = {}
    for node in instance.cluster.nodes:
        if mode.gpus and node.gpu_type != mode.gpu_type:
            continue
        held = [
            (other, slot)
            for other, segment in busy
            for slot in segment.placement
            if slot.node == node.name
        ]
        cores = 10**6 if node.cpus is None else node.cpus - sum(slot.cpus for _, slot in held)
        memory = (
            1e9
            if node.memory_gib is None
            else node.memory_gib
            - sum(memory_gib(other, Mode(gpus=slot.gpus), slot.gpus) for other, slot in held)
        )
        if mode.gpus == 0:
            if cores >= mode.cpus and memory >= job.memory_gib:
                return (Slot(node=node.name, cpus=mode.cpus),)
            continue
        room = node.gpus - sum(slot.gpus for _, slot in held)
        if mode.cpus_per_gpu:
            room = min(room, cores // mode.cpus_per_gpu)
        if job.profile.memory_gib_per_gpu:
            room = min(room, int(memory / job.profile.memory_gib_per_gpu))
        if room > 0:
            free[node.name] = room
    fitting = [name for name, room in free.items() if room >= mode.gpus]
    names = (
        [min(fitting, key=lambda name: free[name])]
        if fitting
        else sorted(free, key=lambda name: -free[name])
    )
    need, taken = mode.gpus, {}
    for name in names:
        taken[name] = min(need, free[name])
        need -= taken[name]
        if not need:
            break
    if need or not mode.gpus:
        return None
    return tuple(
        Slot(node=node.name, gpus=taken[node.name], cpus=taken[node.name] * mode.cpus_per_gpu)
        for node in instance.cluster.nodes
        if taken.get(node.name)
    )


def solution_of(
    instance: Instance, plan: Plan | None = None, objective: str = "wct", **fields
) -> Solution:
    """A solution that holds `plan` (a list schedule by default), which must pass the verifier."""
    plan = plan or list_schedule(instance)
    wanted = parse(objective)
    levels = tuple(
        Level(name=name, value=value, bound=value * 0.9)
        for name, value in zip(objective.split(","), checked(instance, plan, wanted), strict=True)
    )
    found = {
        "solver": "list",
        "seed": 0,
        "status": "feasible",
        "bound_source": "nine tenths",
        "wall_s": 0.01,
    } | fields
    return Solution(
        instance_name=instance.name,
        instance_hash=instance_hash(instance),
        objective=wanted.name,
        levels=levels,
        plan=plan,
        **found,
    )
