"""Tables over many instances: what each method proves and takes, and how a number goes with a
parameter."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .design import Across, Scalar
from .optima import CONTRADICTS, is_reached
from .results import Result
from .table import COLUMNS, Column, level, markdown, mean, number, parameter_names

ALL = "all instances"


@dataclass(frozen=True, slots=True)
class Summary:
    """Runs of a method with given parameters (without the seed and what the instance is made with)
    over a group of instances; gaps are fractions, times processor seconds of the runs that did not
    fail. Of the runs, `known` have an instance whose optimum is known, and `reached` found it;
    `wrong` are the reasons of those that contradict it."""

    group: str
    method: str
    parameters: tuple[tuple[str, Scalar], ...]
    runs: int
    failed: int
    proved: int
    gaps: tuple[float, ...]
    seconds: tuple[float, ...]
    known: int = 0
    reached: int = 0
    wrong: tuple[str, ...] = ()


def summaries(results: Sequence[Result]) -> list[Summary]:
    """Return a summary of each method over each group of instances; in a study of `solve`, those of
    no group together where they are several."""
    alone = {
        result.run.instance
        for result in results
        if result.run.group is None and result.run.command.startswith("solve")
    }
    members: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for result in results:
        if result.run.group is not None or len(alone) > 1:
            rest = tuple(pair for pair in result.run.parameters if pair[0] != "seed")
            members[result.run.group or ALL, result.run.method, rest].append(result)
    found = []
    for (group, method, rest), runs in members.items():
        done = [result for result in runs if result.answer is not None]
        gaps = [gap for result in done if (gap := level("gap")(result)) is not None]
        found.append(
            Summary(
                group,
                method,
                rest,
                len(runs),
                len(runs) - len(done),
                sum(map(is_proved, done)),
                tuple(gaps),
                tuple(result.cpu_s for result in done),
                sum(result.run.optimum is not None for result in runs),
                sum(map(is_reached, done)),
                tuple(
                    f"{result.run.instance}: {result.reason}"
                    for result in runs
                    if (result.reason or "").startswith(CONTRADICTS)
                ),
            )
        )
    return found


def is_proved(result: Result) -> bool:
    """Return whether the run says that its plan is optimal."""
    answer = result.answer or {}
    levels = answer.get("levels") or [answer.get("objective")]
    states = [one.get("status") for one in levels if isinstance(one, dict) and "status" in one]
    return (
        all(state == "optimal" for state in states) if states else answer.get("status") == "optimal"
    )


def summary_table(here: Sequence[Summary]) -> tuple[list[str], list[list[str]], int]:
    """Return the summaries of one group: heads, lines of cells, and how many columns are words."""
    extra = parameter_names(summary.parameters for summary in here)
    optima = any(summary.known for summary in here)
    heads = [
        "method",
        *extra,
        "runs",
        "failed",
        "proved optimal",
        *(["known optimum found"] if optima else []),
        "gap %: mean",
        "median",
        "max",
        "CPU s: median",
        "worst",
    ]
    lines = []
    for summary in here:
        own = dict(summary.parameters)
        lines.append(
            [
                summary.method,
                *(str(own.get(name, "")) for name in extra),
                f"{summary.runs:,}",
                f"{summary.failed:,}",
                f"{summary.proved:,} ({100 * summary.proved / summary.runs:.1f} %)",
                *([f"{summary.reached:,} of {summary.known:,}"] if optima else []),
                *_spread(summary.gaps, 100.0, 2, ("mean", "median", "max")),
                *_spread(summary.seconds, 1.0, 1, ("median", "max")),
            ]
        )
    return heads, lines, 1 + len(extra)


def summary_markdown(found: Sequence[Summary]) -> str:
    """Return the summaries as a table a group; below it the runs that contradict a known
    optimum."""
    parts = []
    for group in dict.fromkeys(summary.group for summary in found):
        here = [summary for summary in found if summary.group == group]
        heads, lines, words = summary_table(here)
        parts += markdown(group, heads, [[f"`{name}`", *rest] for name, *rest in lines], words)
        wrong = [
            f"- **Error**: `{summary.method}`, {said}" for summary in here for said in summary.wrong
        ]
        parts += [*wrong, ""] if wrong else []
    return "\n".join(parts)


def across_markdown(results: Sequence[Result], across: Across) -> str:
    """Return a table for each instance: a row a method (and the other parameters), a column for
    each value of the parameter, the best of each column in bold; means over seeds, "failed" where a
    run failed."""
    column = next(one for one in COLUMNS if one.name == across.column)
    lines = []
    for instance in dict.fromkeys(result.run.group or result.run.instance for result in results):
        cells: dict[tuple[str, tuple[tuple[str, Scalar], ...]], dict[Scalar, list[Result]]] = {}
        for result in results:
            given = dict(result.run.parameters)
            if (result.run.group or result.run.instance) == instance and across.parameter in given:
                rest = tuple(
                    (name, value)
                    for name, value in given.items()
                    if name not in ("seed", across.parameter)
                )
                row = cells.setdefault((result.run.method, rest), {})
                row.setdefault(given[across.parameter], []).append(result)
        if not cells:
            continue
        heads = list(dict.fromkeys(value for row in cells.values() for value in row))
        extra = parameter_names(rest for _, rest in cells)
        means = {
            key: {head: mean(column, row.get(head, [])) for head in heads}
            for key, row in cells.items()
        }
        unit = f", {column.unit}" if column.unit else ""
        table = []
        for (method, rest), row in cells.items():
            shown = [f"`{method}`", *(str(dict(rest).get(name, "")) for name in extra)]
            for head in heads:
                peers = [means[key][head] for key in cells if key[1] == rest]
                shown.append(_cell(means[method, rest][head], peers, column, row.get(head, [])))
            table.append(shown)
        title = f"{instance}: {column.name}{unit} by {across.parameter}"
        lines += markdown(title, ["method", *extra, *map(str, heads)], table, 1 + len(extra))
    return "\n".join(lines)


def _cell(
    value: float | None, peers: Sequence[float | None], column: Column, runs: Sequence[Result]
) -> str:
    if value is None:
        return "failed" if any(result.answer is None for result in runs) else "-"
    text = number(value, column.digits)
    best = min(peer for peer in peers if peer is not None)
    return f"**{text}**" if number(best, column.digits) == text else text


def _spread(values: Sequence[float], factor: float, digits: int, which: Sequence[str]) -> list[str]:
    if not values:
        return ["-"] * len(which)
    said = {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "max": max(values),
    }
    return [number(factor * said[one], digits) for one in which]
