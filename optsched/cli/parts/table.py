"""Tables for people: what a solution is worth, what is decided now, and when each job runs."""

import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from ...duration import human
from ...model.instance import Instance
from ...model.plan import Decision, Solution
from ...picture.chart import chart
from ...picture.facts import ROUNDING, job_facts, level_unit, percent, quantity, totals

if TYPE_CHECKING:
    from rich.table import Table

PIPE_WIDTH = 150
"""Columns where stdout is no terminal: tables are not folded to the 80 that would be assumed."""
WIDE = 100
"""Columns from which on every column is shown."""
MOST_JOBS = 30
DECISIONS: tuple[Decision, ...] = (
    "continue",
    "start",
    "resume",
    "migrate",
    "resize",
    "preempt",
    "wait",
)


def width() -> int:
    """Columns there are."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH


def show(*parts: "str | Table") -> None:
    """Lines and tables on standard output; colours and the real width on a terminal only."""
    from rich.console import Console

    out = Console(file=sys.stdout, width=width(), highlight=False, markup=False, emoji=False)
    # Rich exits by itself when a pipe is closed, so it does not get to write.
    with out.capture() as captured:
        for part in parts:
            out.print(part, soft_wrap=isinstance(part, str))
    click.echo(captured.get(), nl=False)


def table(*heads: str, numeric: tuple[str, ...] = (), folded: tuple[str, ...] = ()) -> "Table":
    """An empty table; columns named in `numeric` are aligned to the right. Where the terminal is
    narrow, those in `folded` are folded, or all without any."""
    from rich import box
    from rich.table import Table

    found = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        header_style="bold",
        padding=(0, 1, 0, 0),
    )
    for head in heads:
        found.add_column(
            head,
            justify="right" if head in numeric else "left",
            overflow="fold",
            no_wrap=bool(folded) and head not in folded,
        )
    return found


def print_solution(instance: Instance, solution: Solution) -> None:
    """The whole answer as a person reads it."""
    parts: list[str | Table] = [*summary(instance, solution)]
    if solution.plan is not None:
        parts += ["", jobs_table(instance, solution)]
        more = len(solution.plan.jobs) - MOST_JOBS
        if more > 0:
            parts.append(f"and {more:,} more; -o and --gantt show all")
    show(*parts)


def gap_text(gap: float | None, status: str) -> str:
    """A gap in words; one that is open is none, however small beside a large value."""
    if status == "optimal":
        return percent(0.0)
    return percent(max(gap, ROUNDING) if gap else gap)


def summary(instance: Instance, solution: Solution) -> list[str]:
    """Name and value of everything but the jobs, one a line."""
    rows: list[tuple[str, str]] = [("status", STATUS[solution.status])]
    for level in solution.levels:
        unit = level_unit(level.name)
        rows.append((level.name, with_length(level.value, unit)))
        rows.append(("bound", with_length(level.bound, unit)))
        rows.append(("gap", gap_text(level.gap, solution.status)))
    if solution.bound_source:
        rows.append(("proved by", solution.bound_source))
    wall = "" if solution.wall_s is None else f", in {human(solution.wall_s)}"
    rows.append(("solver", f"{solution.solver}, seed {solution.seed}{wall}"))
    if solution.fallback:
        rows.append(("fallback", solution.fallback))
    rows.extend(("note", note) for note in solution.notes)
    if solution.plan is not None and solution.plan.jobs:
        sums = totals(instance, solution.plan, chart(instance, solution.plan))
        use = "" if sums.gpu_use is None else f", GPUs held {percent(sums.gpu_use)} of the time"
        rows.append(
            (
                "jobs",
                f"mean completion time {human(sums.mean_jct_s)}, last done in "
                f"{human(sums.last_s)}{use}",
            )
        )
        if sums.late:
            rows.append(
                (
                    "late",
                    f"{sums.late} of {sum(job.deadline_s is not None for job in instance.jobs)} "
                    "deadlines "
                    "missed",
                )
            )
        counts = Counter(entry.decision for entry in solution.plan.jobs)
        rows.append(
            ("now", ", ".join(f"{counts[name]:,} {name}" for name in DECISIONS if counts[name]))
        )
    wide = max(len(name) for name, _ in rows) + 2
    return [
        f"{instance.name}: {len(instance.jobs):,} jobs, {instance.cluster.total_gpus:,} GPUs on "
        f"{len(instance.cluster.nodes):,} nodes, {len(instance.running):,} running now",
        *(f"  {name:<{wide}}{text}" for name, text in rows),
    ]


STATUS = {
    "optimal": "optimal: no plan of this instance is better",
    "feasible": "feasible: a checked plan, not proven best",
    "infeasible": "infeasible: no plan exists",
    "unknown": "unknown: no plan found in the time given",
}


def with_length(value: float | None, unit: str) -> str:
    """A value with its unit, and as hours and minutes beside it where it is seconds."""
    text = quantity(value, unit)
    return (
        f"{text} ({human(value)})"
        if unit == "s" and value is not None and abs(value) >= 60
        else text
    )


def jobs_table(instance: Instance, solution: Solution) -> "Table":
    """The first jobs by start; how often each is preempted where there is room for it."""
    assert solution.plan is not None
    wide = width() >= WIDE
    heads = ["job", "now", "starts", "ends", "GPUs", "nodes", "waiting"] + ["preempted"] * wide
    found = table(
        *heads, numeric=("starts", "ends", "waiting", "preempted"), folded=("job", "nodes")
    )
    facts = [job_facts(instance, entry) for entry in solution.plan.jobs]
    for one in sorted(facts, key=lambda one: one.start_s)[:MOST_JOBS]:
        late = f" (late {human(one.late_s)})" if one.late_s else ""
        gpus = f"{one.gpus} {one.gpu_type or ''}".strip() if one.gpus else "-"
        row = [
            one.id,
            one.decision,
            human(one.start_s),
            human(one.end_s) + late,
            gpus,
            short(one.nodes),
        ]
        found.add_row(*row, human(one.waiting_s), *[str(one.preempted or "-")] * wide)
    return found


def short(nodes: tuple[str, ...]) -> str:
    """The first few names."""
    return (
        ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        if nodes
        else "-"
    )
