"""What a reader wants to know of a plan: one line a job, and totals."""

from itertools import pairwise

from ..frozen import record
from ..model import Decision, Instance, JobPlan, Plan, Segment
from ..objectives import LATE_TOLERANCE_S, parse
from ..physics import gpus_by_type, hold_to_save_s
from .chart import Chart, is_preempted_now, leaves


@record
class JobFacts:
    """One job in a plan; times in seconds from now.

    `start_s` is when it holds GPUs to work: 0 for one that continues, the return of one that is
    preempted. `waiting_s` is the time without resources until completion, from submission (from now
    for a job that runs or was suspended); `jct_s` is completion minus submission; `preempted`
    counts preemptions in this plan.
    """

    id: str
    decision: Decision
    start_s: float
    end_s: float
    gpus: int
    gpu_type: str | None
    nodes: tuple[str, ...]
    waiting_s: float
    jct_s: float
    preempted: int
    late_s: float


@record
class Totals:
    """Averages and sums over a plan. `gpu_use` is GPU-seconds held over capacity until the last
    completion; `overhead_gpu_s` the part of it spent on start-up, restore and checkpoint."""

    mean_jct_s: float
    last_s: float
    gpu_use: float | None
    overhead_gpu_s: float
    preemptions: int
    late: int


def job_facts(instance: Instance, entry: JobPlan) -> JobFacts:
    """Return the facts of one job of a verified plan."""
    job, segments = instance.job[entry.id], entry.segments
    begun = entry.id in instance.running_job or entry.id in instance.suspended_job
    free_s = [instance.now_s if begun else job.submit_s, *(segment.end_s for segment in segments)]
    stops = sum(
        leaves(job, entry, s) and segments[s].stopped_by is None for s in range(len(segments))
    )
    now = is_preempted_now(instance, entry)
    # A job that saves before it leaves has a segment for that, and starts again in the next.
    saves = now and hold_to_save_s(job) > 0 and len(segments) > 1
    last = segments[-1]
    late_s = 0.0 if job.deadline_s is None else entry.completion_s - job.deadline_s
    return JobFacts(
        id=entry.id,
        decision=entry.decision,
        start_s=segments[saves].start_s - instance.now_s,
        end_s=entry.completion_s - instance.now_s,
        gpus=last.mode.gpus,
        gpu_type=type_names(instance, last),
        nodes=tuple(slot.node for slot in last.placement),
        waiting_s=sum(
            max(0.0, segment.start_s - s) for segment, s in zip(segments, free_s, strict=False)
        ),
        jct_s=entry.completion_s - job.submit_s,
        preempted=stops or int(now),
        late_s=late_s if late_s > LATE_TOLERANCE_S else 0.0,
    )


def type_names(instance: Instance, segment: Segment) -> str | None:
    """Return the GPU type of a segment, as `a100+v100` where there are several; None without GPUs
    or a name."""
    held = gpus_by_type(instance.cluster, segment.placement)
    return "+".join(name or "GPU" for name in held) if len(held) > 1 else next(iter(held), None)


def totals(instance: Instance, plan: Plan, chart: Chart) -> Totals:
    """Return totals of a verified plan; `chart` is its layout."""
    facts = [job_facts(instance, entry) for entry in plan.jobs]
    held_s = {
        series.name: sum(
            value * (after - at)
            for (at, after), value in zip(pairwise(series.times_s), series.values, strict=False)
        )
        for series in chart.use
    }
    capacity_s = chart.total_gpus * chart.end_s
    return Totals(
        mean_jct_s=sum(job.jct_s for job in facts) / max(1, len(facts)),
        last_s=max((job.end_s for job in facts), default=0.0),
        gpu_use=sum(held_s.values()) / capacity_s if capacity_s else None,
        overhead_gpu_s=sum(area for name, area in held_s.items() if name != "at work"),
        preemptions=sum(job.preempted for job in facts),
        late=len(chart.late),
    )


def level_unit(name: str) -> str:
    """Return the unit of one level of an objective, named as in a solution; empty where its terms
    differ in unit."""
    units = {term.unit for level in parse(name).levels for _, term in level}
    return units.pop() if len(units) == 1 else ""


HUGE = 1e21
"""From here on a number is written with an exponent."""


def quantity(value: float | None, unit: str) -> str:
    """Return a number as people read it: thousands separated, at most four significant decimals."""
    if value is None:
        return "none"
    rounded = f"{value:,.0f}" if 1000 <= abs(value) < HUGE else f"{value:,.4g}"
    return f"{rounded} {unit}".strip()


ROUNDING = 1e-6
"""A share below this is the rounding of two equal numbers."""


def percent(share: float | None) -> str:
    """Return 0.0123 as `1.23 %`; an exact zero is `0 %`."""
    if share is None:
        return "unknown"
    if abs(share) < ROUNDING:
        return "0 %"
    if share < 0.0001:
        return "below 0.01 %"
    return f"{100 * share:,.0f} %" if 1 <= share < HUGE else f"{100 * share:.3g} %"
