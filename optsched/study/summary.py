"""Tables over many instances: what each method proves and takes, and how a number goes with a
parameter."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..frozen import record
from .design import Across, Scalar, Settings
from .optima import CONTRADICTS, is_reached
from .results import Result
from .table import COLUMNS, Column, interval_of, level, markdown, number, parameter_names

ALL = "all instances"


@record
class Summary:
    """Runs of a method with given parameters (without the seed and what the instance is made with)
    over a group of instances; gaps are fractions, times processor seconds of the runs that did not
    fail. Of the runs, `known` have an instance whose optimum is known, and `reached` found it;
    `wrong` are the reasons of those that contradict it."""

    group: str
    method: str
    parameters: Settings
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
    members: dict[tuple[str, str, Settings], list[Result]] = defaultdict(list)
    for result in results:
        if result.run.group is not None or len(alone) > 1:
            members[result.run.group or ALL, result.run.method, result.run.settings].append(result)
    return [_summary(*key, runs) for key, runs in members.items()]


def _summary(group: str, method: str, parameters: Settings, runs: Sequence[Result]) -> Summary:
    done = [result for result in runs if not result.failed]
    return Summary(
        group,
        method,
        parameters,
        runs=len(runs),
        failed=len(runs) - len(done),
        proved=sum(map(is_proved, done)),
        gaps=tuple(gap for gap in map(level("gap"), done) if gap is not None),
        seconds=tuple(result.cpu_s for result in done),
        known=sum(result.run.optimum is not None for result in runs),
        reached=sum(map(is_reached, done)),
        wrong=tuple(
            f"{result.run.instance}: {result.reason}"
            for result in runs
            if (result.reason or "").startswith(CONTRADICTS)
        ),
    )


def is_proved(result: Result) -> bool:
    """Return whether the run says that its plan is optimal."""
    answer = result.answer or {}
    levels = answer.get("levels") or [answer.get("objective")]
    states = [part.get("status") for part in levels if isinstance(part, dict) and "status" in part]
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


def summary_markdown(summed: Sequence[Summary]) -> str:
    """Return the summaries as a table a group; below it the runs that contradict a known
    optimum."""
    parts = []
    for group in dict.fromkeys(summary.group for summary in summed):
        here = [summary for summary in summed if summary.group == group]
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
    column = next(column for column in COLUMNS if column.name == across.column)
    lines = []
    for place, rows in _by_place(results, across.parameter).items():
        heads = list(dict.fromkeys(value for row in rows.values() for value in row))
        extra = parameter_names(rest for _, rest in rows)
        cells = {
            key: [_cell(column, row.get(head, ())) for head in heads] for key, row in rows.items()
        }
        table_lines = [
            [
                f"`{method}`",
                *(str(dict(rest).get(name, "")) for name in extra),
                *_best_in_bold(column, own, [cells[peer] for peer in cells if peer[1] == rest]),
            ]
            for (method, rest), own in cells.items()
        ]
        unit = f", {column.unit}" if column.unit else ""
        title = f"{place}: {column.name}{unit} by {across.parameter}"
        lines += markdown(title, ["method", *extra, *map(str, heads)], table_lines, 1 + len(extra))
    return "\n".join(lines)


def _by_place(
    results: Sequence[Result], parameter: str
) -> dict[str, dict[tuple[str, Settings], dict[Scalar, list[Result]]]]:
    """Return runs by group or instance, then method and other parameters, then the value of one."""
    places: dict[str, dict[tuple[str, Settings], dict[Scalar, list[Result]]]] = {}
    for result in results:
        run, given = result.run, dict(result.run.settings)
        if parameter in given:
            value = given.pop(parameter)
            rows = places.setdefault(run.group or run.instance, {})
            row = rows.setdefault((run.method, tuple(given.items())), {})
            row.setdefault(value, []).append(result)
    return places


def _cell(column: Column, runs: Sequence[Result]) -> float | str:
    """Return the mean over runs, or why there is none."""
    interval = interval_of(column.of, runs)
    if interval is not None:
        return interval.mean
    return "failed" if any(result.failed for result in runs) else "-"


def _best_in_bold(
    column: Column, own: Sequence[float | str], peers: Sequence[Sequence[float | str]]
) -> Iterator[str]:
    """Yield the cells of a row as text, the least of those of `peers` below each other in bold."""
    for cell, those in zip(own, zip(*peers, strict=True), strict=True):
        if isinstance(cell, str):
            yield cell
            continue
        text = number(cell, column.digits)
        best = min(value for value in those if not isinstance(value, str))
        yield f"**{text}**" if number(best, column.digits) == text else text


def _spread(values: Sequence[float], factor: float, digits: int, which: Sequence[str]) -> list[str]:
    if not values:
        return ["-"] * len(which)
    said = {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "max": max(values),
    }
    return [number(factor * said[name], digits) for name in which]
