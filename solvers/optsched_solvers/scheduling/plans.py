"""Schedules as plans, and plans as schedules."""

import math
from collections.abc import Iterator

from optsched.driver import placement_on
from optsched.model import JobPlan, Plan, Segment
from optsched.verify import decision_now

from .problem import Activity, Choice, Problem, Schedule
from .running_pairs import segments as stay_segments
from .running_pairs import stay


def plan_of(problem: Problem, schedule: Schedule) -> Plan:
    """Return the plan of a schedule whose lengths were rounded up."""
    return Plan(
        jobs=tuple(
            _job_plan(problem, activity, choice, schedule)
            for activity, choice in zip(problem.activities, schedule, strict=True)
        )
    )


def _job_plan(problem: Problem, activity: Activity, choice: Choice, schedule: Schedule) -> JobPlan:
    instance, entry, hold = problem.instance, activity.running, activity.hold
    chosen = activity.alternatives[choice.alternative]
    start_s = max(instance.now_s + choice.start * problem.tick.length_s, activity.job.submit_s)
    gpus_on = {instance.cluster.nodes[node].name: gpus for node, gpus in choice.split}
    last = Segment(
        start_s=start_s,
        end_s=start_s + chosen.seconds,
        mode=chosen.mode,
        placement=placement_on(instance.cluster, gpus_on, chosen.mode),
    )
    segments: tuple[Segment, ...] = (last,)
    if activity.index in problem.partner:
        segments = (*_stay(problem, activity, schedule), *(() if chosen.fixed else (last,)))
    elif entry and hold and not chosen.fixed and hold.seconds > 0:
        saving = Segment(
            start_s=instance.now_s,
            end_s=instance.now_s + hold.seconds,
            mode=hold.mode,
            placement=entry.placement,
        )
        segments = (saving, last)
    return JobPlan(
        id=activity.job.id,
        decision=decision_now(instance, activity.job, segments),
        segments=segments,
    )


def _stay(problem: Problem, activity: Activity, schedule: Schedule) -> Iterator[Segment]:
    """Return what is left of the stay of a job on GPUs that it shares: to its end, or for its
    checkpoint."""
    entry, other = problem.pair_of[activity.job.id]
    k = problem.partner[activity.index]
    kept = not activity.preempts(schedule[activity.index].alternative)
    other_kept = not problem.activities[k].preempts(schedule[k].alternative)
    return stay_segments(
        problem.instance, entry, stay(problem.instance, entry, kept, other, other_kept)
    )


def schedule_of(problem: Problem, plan: Plan) -> Schedule | None:
    """Return the schedule of a plan, or None where it is outside the plan class or running jobs
    share GPUs; starts are rounded up to ticks, so on a grid that is not exact jobs may overlap by
    one."""
    if problem.partner:
        return None
    schedule: Schedule = []
    segments_of = {entry.id: entry.segments for entry in plan.jobs}
    for activity in problem.activities:
        choice = _choice(problem, activity, segments_of[activity.job.id])
        if choice is None:
            return None
        schedule.append(choice)
    return schedule


def _choice(problem: Problem, activity: Activity, segments: tuple[Segment, ...]) -> Choice | None:
    """Return the choice of which segments are the plan: one piece, after a checkpoint where the job
    is preempted."""
    now_s, order = problem.instance.now_s, problem.instance.cluster.node_order
    *saving, last = segments
    held_s = [segment.end_s - now_s for segment in saving]
    hold_s = [] if activity.hold is None or not saving else [activity.hold.seconds]
    if len(held_s) != len(hold_s) or not all(map(_is_as_long, held_s, hold_s)):
        return None
    split = tuple((order[slot.node], slot.gpus) for slot in last.placement)
    for which, alternative in enumerate(activity.alternatives):
        same = (
            not saving and alternative.rooms == split
            if alternative.fixed
            else alternative.mode == last.mode
        )
        if same and _is_as_long(alternative.seconds, last.end_s - last.start_s):
            return Choice(which, problem.tick.ceil(last.start_s - now_s), split)
    return None


def _is_as_long(seconds: float, other_s: float) -> bool:
    return math.isclose(seconds, other_s, rel_tol=1e-9, abs_tol=1e-4)
