"""Schedules as plans, and plans as schedules."""

import math
from collections.abc import Iterator

from optsched.driver.mixed import placement_on
from optsched.model.plan import JobPlan, Plan, Segment
from optsched.verify import decision_now

from .problem import Activity, Choice, Problem, Schedule, Split
from .running_pairs import segments as stay_segments
from .running_pairs import stay


def plan_of(problem: Problem, schedule: Schedule) -> Plan:
    """The plan of a schedule whose lengths were rounded up."""
    return Plan(
        jobs=tuple(
            _job_plan(problem, activity, choice, schedule)
            for activity, choice in zip(problem.activities, schedule, strict=True)
        )
    )


def _job_plan(problem: Problem, activity: Activity, choice: Choice, schedule: Schedule) -> JobPlan:
    now_s = problem.instance.now_s
    chosen = activity.alternatives[choice.alternative]
    start_s = max(now_s + choice.start * problem.tick.length_s, activity.job.submit_s)
    last = Segment(
        start_s=start_s,
        end_s=start_s + chosen.seconds,
        mode=chosen.mode,
        placement=placement_on(
            problem.instance.cluster,
            {problem.instance.cluster.nodes[node].name: gpus for node, gpus in choice.split},
            chosen.mode,
        ),
    )
    segments: tuple[Segment, ...] = (last,)
    if activity.index in problem.partner:
        segments = (
            (*_stay(problem, activity, schedule), *segments)
            if not chosen.fixed
            else (*_stay(problem, activity, schedule),)
        )
    elif activity.hold is not None and choice.alternative > 0 and activity.hold.seconds > 0:
        hold = activity.hold
        assert activity.running is not None
        segments = (
            Segment(
                start_s=now_s,
                end_s=now_s + hold.seconds,
                mode=hold.mode,
                placement=activity.running.placement,
            ),
            last,
        )
    return JobPlan(
        id=activity.job.id,
        decision=decision_now(problem.instance, activity.job, segments),
        segments=segments,
    )


def _stay(problem: Problem, activity: Activity, schedule: Schedule) -> Iterator[Segment]:
    """What is left of the stay of a job on GPUs that it shares: to its end, or for its
    checkpoint."""
    entry, other = problem.pair_of[activity.job.id]
    k = problem.partner[activity.index]
    kept = not activity.preempts(schedule[activity.index].alternative)
    other_kept = not problem.activities[k].preempts(schedule[k].alternative)
    return stay_segments(
        problem.instance, entry, stay(problem.instance, entry, kept, other, other_kept)
    )


def schedule_of(problem: Problem, plan: Plan) -> Schedule | None:
    """The schedule of a plan, or None where it is outside the plan class or running jobs share
    GPUs; starts are rounded up to ticks, so on a grid that is not exact jobs may overlap by one."""
    if problem.partner:
        return None
    found: Schedule = []
    order = problem.instance.cluster.node_order
    now_s = problem.instance.now_s
    entries = {entry.id: entry for entry in plan.jobs}
    for activity in problem.activities:
        segments = entries[activity.job.id].segments
        last = segments[-1]
        split: Split = tuple((order[slot.node], slot.gpus) for slot in last.placement)
        if len(segments) != (
            2
            if activity.running is not None and _is_saved_first(problem, activity, segments)
            else 1
        ):
            return None
        which = _which(activity, last, split, len(segments) == 2)
        if which is None:
            return None
        found.append(Choice(which, problem.tick.ceil(last.start_s - now_s), split))
    return found


def _is_saved_first(problem: Problem, activity: Activity, segments: tuple[Segment, ...]) -> bool:
    return (
        len(segments) == 2
        and activity.hold is not None
        and math.isclose(
            segments[0].end_s - problem.instance.now_s, activity.hold.seconds, abs_tol=1e-4
        )
    )


def _which(activity: Activity, segment: Segment, split: Split, preempted: bool) -> int | None:
    length_s = segment.end_s - segment.start_s
    for i, alternative in enumerate(activity.alternatives):
        if alternative.fixed:
            if (
                not preempted
                and alternative.rooms == split
                and math.isclose(alternative.seconds, length_s, rel_tol=1e-9, abs_tol=1e-4)
            ):
                return i
            continue
        mode = segment.mode
        same = (
            alternative.mode.gpu_type == mode.gpu_type or not mode.gpus,
            alternative.mode.gpus == mode.gpus,
            alternative.mode.cpus_per_gpu == mode.cpus_per_gpu,
            alternative.mode.clock_mhz == mode.clock_mhz,
        )
        if (
            all(same)
            and alternative.mode.duration_s == mode.duration_s
            and (
                alternative.mode.resources == mode.resources
                and alternative.mode.budgets == mode.budgets
            )
            and math.isclose(alternative.seconds, length_s, rel_tol=1e-9, abs_tol=1e-4)
        ):
            return i
    return None
