"""A solution as text: what it is worth, what is decided now, and when each job runs."""

from typing import TYPE_CHECKING

from ..duration import human
from ..model import Decision, Instance, Plan, Solution
from .chart import chart
from .facts import job_facts, level_unit, percent, totals
from .text import (
    MOST_JOBS,
    WIDE,
    WIDTH,
    aligned,
    counted,
    gap_text,
    gpus_text,
    headline,
    remarks,
    short,
    solver_line,
    table,
    with_length,
)

if TYPE_CHECKING:
    from rich.table import Table

DECISIONS: tuple[Decision, ...] = (
    "continue",
    "start",
    "resume",
    "migrate",
    "resize",
    "preempt",
    "wait",
)
STATUS = {
    "optimal": "optimal: no plan of this instance is better",
    "feasible": "feasible: a checked plan, not proven best",
    "infeasible": "infeasible: no plan exists",
    "unknown": "unknown: no plan found in the time given",
}


def solution_parts(
    instance: Instance, solution: Solution, width: int = WIDTH
) -> "list[str | Table]":
    """Return the whole answer, to be shown on so many columns."""
    parts: list[str | Table] = [headline(instance), *aligned(_facts(instance, solution))]
    if solution.plan is not None:
        parts += ["", _jobs(instance, solution.plan, width >= WIDE)]
        more = len(solution.plan.jobs) - MOST_JOBS
        if more > 0:
            parts.append(f"and {more:,} more; -o and --gantt show all")
    return parts


def _facts(instance: Instance, solution: Solution) -> list[tuple[str, str]]:
    rows = [("status", STATUS[solution.status])]
    for level in solution.levels:
        unit = level_unit(level.name)
        rows += [
            (level.name, with_length(level.value, unit)),
            ("bound", with_length(level.bound, unit)),
            ("gap", gap_text(level.gap, solution.status)),
        ]
    if solution.bound_source:
        rows.append(("proved by", solution.bound_source))
    rows.append(("solver", solver_line(solution.solver, solution.seed, solution.wall_s)))
    rows += remarks(solution.fallback, solution.notes)
    if solution.plan is not None and solution.plan.jobs:
        rows += _totals(instance, solution.plan)
    return rows


def _totals(instance: Instance, plan: Plan) -> list[tuple[str, str]]:
    sums = totals(instance, plan, chart(instance, plan))
    use = "" if sums.gpu_use is None else f", GPUs held {percent(sums.gpu_use)} of the time"
    last = f"last done in {human(sums.last_s)}{use}"
    rows = [("jobs", f"mean completion time {human(sums.mean_jct_s)}, {last}")]
    if sums.late:
        deadlines = sum(job.deadline_s is not None for job in instance.jobs)
        rows.append(("late", f"{sums.late} of {deadlines} deadlines missed"))
    return [*rows, ("now", counted((entry.decision for entry in plan.jobs), DECISIONS))]


def _jobs(instance: Instance, plan: Plan, wide: bool) -> "Table":
    """Return the first jobs by start; how often each is preempted where there is room for it."""
    heads = ["job", "now", "starts", "ends", "GPUs", "nodes", "waiting"] + ["preempted"] * wide
    numeric = ("starts", "ends", "waiting", "preempted")
    facts = [job_facts(instance, entry) for entry in plan.jobs]
    rows = (
        (
            job.id,
            job.decision,
            human(job.start_s),
            human(job.end_s) + (f" (late {human(job.late_s)})" if job.late_s else ""),
            gpus_text(job.gpus, job.gpu_type),
            short(job.nodes),
            human(job.waiting_s),
            *[str(job.preempted or "-")] * wide,
        )
        for job in sorted(facts, key=lambda job: job.start_s)[:MOST_JOBS]
    )
    return table(*heads, rows=rows, numeric=numeric, folded=("job", "nodes"))
