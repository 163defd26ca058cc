"""A round as text: what it is worth, what each capacity costs, and what is decided of each job."""

from typing import TYPE_CHECKING

from ..duration import human
from ..model import Decision, Instance
from ..physics.catalogue import catalogue_of
from ..physics.unschedulable import why_never
from .facts import quantity
from .text import (
    MOST_JOBS,
    aligned,
    counted,
    gap_text,
    gpus_text,
    headline,
    remarks,
    short,
    solver_line,
    table,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ..round.plan import RoundSolution

CHANGES_FIRST: tuple[Decision, ...] = (
    "preempt",
    "migrate",
    "resize",
    "start",
    "resume",
    "continue",
    "wait",
)
STATUS = {
    "optimal": "optimal: no round of this instance is worth more",
    "feasible": "feasible: a checked round, not proven best",
}
TIERED = "optimal: no priority could have more of what those above it leave"
MOST_PRICES, MOST_NEVER = 20, 5


def round_parts(instance: Instance, solution: "RoundSolution") -> "list[str | Table]":
    """Return the whole round."""
    parts: list[str | Table] = [headline(instance), *aligned(_facts(instance, solution))]
    if solution.prices:
        parts += ["", _prices(solution)]
        more = len(solution.prices) - MOST_PRICES
        if more > 0:
            cost = sum(row.price > 0 for row in solution.prices)
            parts.append(
                f"and {more:,} more, {cost:,} of all cost something; -o and --json show all"
            )
    if solution.jobs:
        parts += ["", _jobs(solution)]
        more = len(solution.jobs) - MOST_JOBS
        if more > 0:
            parts.append(f"and {more:,} more; -o and --json show all")
    return parts


def _facts(instance: Instance, solution: "RoundSolution") -> list[tuple[str, str]]:
    between = "is given on at once" if solution.refill else "stays idle until then"
    is_optimal = solution.status == "optimal"
    rows = [
        ("status", TIERED if solution.tiers and is_optimal else STATUS[solution.status]),
        ("value", f"{quantity(solution.value, '')} ({solution.objective}; more is better)"),
        ("bound", quantity(solution.bound, "")),
        ("gap", gap_text(solution.gap, solution.status)),
        ("proved by", solution.bound_source),
        ("solver", solver_line(solution.solver, solution.seed, solution.wall_s)),
        ("round", f"{human(solution.round_s)}, what comes free {between}"),
    ]
    rows += [
        (
            f"priority {tier.priority}" + ", borrowed" * tier.borrows,
            f"{tier.jobs:,} job{'s' * (tier.jobs != 1)}, value {quantity(tier.value, '')}, "
            f"bound {quantity(tier.bound, '')}, gap {gap_text(tier.gap, solution.status)}",
        )
        for tier in solution.tiers
    ]
    rows += remarks(solution.fallback, solution.notes)
    if solution.jobs:
        rows.append(("now", counted((entry.decision for entry in solution.jobs), CHANGES_FIRST)))
    later = len(instance.jobs) - len(solution.jobs) - len(solution.never)
    if later:
        rows.append(("later", f"{later:,} not released yet, or waiting for other jobs or a window"))
    for job in solution.never[:MOST_NEVER]:
        reason = why_never(catalogue_of(instance), instance.job[job])
        rows.append(("never", f"{job}: {reason}"))
    if len(solution.never) > MOST_NEVER:
        rows.append(("never", f"and {len(solution.never) - MOST_NEVER:,} more"))
    return rows


def _prices(solution: "RoundSolution") -> "Table":
    """Return what each capacity costs, those that cost something first."""
    numeric = ("there is", "used", "price of one")
    rows: list[tuple[str, ...]] = []
    for row in sorted(solution.prices, key=lambda row: row.price <= 0)[:MOST_PRICES]:
        price = quantity(row.price, "") if row.price > 0 else "-"
        rows.append((row.name, quantity(row.capacity, ""), quantity(row.used, ""), price))
    return table("capacity", *numeric, rows=rows, numeric=numeric)


def _jobs(solution: "RoundSolution") -> "Table":
    """Return the first jobs, those for which something changes before the others."""
    rows: list[tuple[str, ...]] = []
    by_change = sorted(solution.jobs, key=lambda entry: CHANGES_FIRST.index(entry.decision))
    for entry in by_change[:MOST_JOBS]:
        gpus = "-" if entry.mode is None else gpus_text(entry.mode.gpus, entry.mode.gpu_type)
        nodes = short([slot.node for slot in entry.placement])
        rows.append((entry.id, entry.decision, gpus, nodes))
    return table("job", "now", "GPUs", "nodes", rows=rows, folded=("job", "nodes"))
