"""The table of a study: one row a run, or one for all seeds of a method over an instance."""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..plugins.registry import listed
from .design import Method, arguments
from .optima import optimum_of
from .results import Result

H = 3600.0


@dataclass(frozen=True, slots=True)
class Column:
    """A number taken from what a run printed, in `unit`; None where the run does not say."""

    name: str
    unit: str
    digits: int
    value: Callable[[Result], float | None]

    def of(self, result: Result) -> float | None:
        """Return the number of a run; None where it failed."""
        return None if result.answer is None else self.value(result)


def at(*path: str, over: float = 1.0) -> Callable[[Result], float | None]:
    def value(result: Result) -> float | None:
        found: Any = result.answer
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return (
            found / over if isinstance(found, int | float) and not isinstance(found, bool) else None
        )

    return value


def level(name: str) -> Callable[[Result], float | None]:
    def value(result: Result) -> float | None:
        answer = result.answer or {}
        levels = answer.get("levels") or [answer.get("objective")]
        found = levels[0].get(name) if isinstance(levels[0], dict) else None
        return float(found) if found is not None else None

    return value


def _lost_gpu_h(result: Result) -> float | None:
    """GPU-hours that were held without counting: overheads of every restart, and work that was
    lost."""
    found = (result.answer or {}).get("gpu_h")
    if not found:
        return None
    return float(found["held"] - found["work"] - found["first_starts"])


def _percent(value: Callable[[Result], float | None]) -> Callable[[Result], float | None]:
    def scaled(result: Result) -> float | None:
        found = value(result)
        return None if found is None else 100 * found

    return scaled


COLUMNS = (
    Column("mean JCT", "h", 2, at("jct_s", "mean", over=H)),
    Column("p99 JCT", "h", 1, at("jct_s", "p99", over=H)),
    Column("makespan", "h", 1, at("makespan_s", over=H)),
    Column("worst fairness", "", 2, at("finish_time_fairness", "max")),
    Column("mean fairness", "", 2, at("finish_time_fairness", "mean")),
    Column("preemptions", "", 0, at("preemptions")),
    Column("out of memory", "", 0, at("out_of_memory")),
    Column("lost GPU time", "h", 1, _lost_gpu_h),
    Column("GPUs held", "%", 1, _percent(at("use", "gpus"))),
    Column("energy", "kWh", 0, at("energy_kwh", "total")),
    Column("decision, mean", "ms", 2, at("decision_wall_s", "mean", over=1e-3)),
    Column("decision, p99", "ms", 2, at("decision_wall_s", "p99", over=1e-3)),
    Column("GPUs allocated", "%", 2, at("allocated_percent")),
    Column("no rule exceeds", "%", 2, at("bound_percent")),
    Column("short of that", "%", 2, at("gap_percent")),
    Column("value", "", 4, level("value")),
    Column("bound", "", 4, level("bound")),
    Column("optimum", "", 4, optimum_of),
    Column("gap", "%", 1, _percent(level("gap"))),
    Column("run", "s", 1, lambda result: result.cpu_s),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A method over an instance with given parameters (without the seed): the mean of each column
    over the seeds, and the reasons of the runs that failed."""

    instance: str
    method: str
    parameters: tuple[tuple[str, Any], ...]
    means: tuple[float | None, ...]
    runs: int
    failed: tuple[str, ...]
    group: str | None = None


def rows(results: Sequence[Result]) -> list[Row]:
    """Return rows in the order of the results, all seeds of one put together."""
    groups: dict[tuple[Any, ...], list[Result]] = defaultdict(list)
    for result in results:
        rest = tuple(pair for pair in result.run.parameters if pair[0] != "seed")
        groups[result.run.instance, result.run.method, rest].append(result)
    found = []
    for (instance, method, rest), members in groups.items():
        done = [one for one in members if one.answer is not None]
        found.append(
            Row(
                instance,
                method,
                rest,
                tuple(mean(column, done) for column in COLUMNS),
                len(members),
                tuple(dict.fromkeys(one.reason or "" for one in members if one.answer is None)),
                members[0].run.group,
            )
        )
    return found


def mean(column: Column, results: Sequence[Result]) -> float | None:
    """Return the mean of a column; None where a run failed or does not say."""
    values = [column.of(result) for result in results]
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def used_columns(found: Sequence[Row]) -> list[int]:
    """Positions of the columns that say anything: some row has a value, and not all are 0. The
    value of the objective and its bound are left out where completion times are there; the gap
    stays."""
    used = [i for i in range(len(COLUMNS)) if any(row.means[i] for row in found)]
    simulated = any(COLUMNS[i].name == "mean JCT" for i in used)
    return [i for i in used if not (simulated and COLUMNS[i].name in ("value", "bound"))]


@dataclass(frozen=True, slots=True)
class InstanceTable:
    """The methods over an instance: a line has the row, its words (method and parameters) and its
    numbers, which mean nothing where the row failed."""

    instance: str
    parameters: list[str]
    columns: list[Column]
    lines: list[tuple[Row, list[str], list[str]]]

    @property
    def words(self) -> int:
        """Return how many columns come before the numbers."""
        return 1 + len(self.parameters)

    @property
    def heads(self) -> list[str]:
        """Return the head of each column, with its unit."""
        return ["method", *self.parameters, *map(_head, self.columns)]


def instance_tables(found: Sequence[Row]) -> list[InstanceTable]:
    """Return a table for each instance, methods as rows, with the columns that say anything."""
    tables = []
    for instance in dict.fromkeys(row.instance for row in found):
        here = [row for row in found if row.instance == instance]
        shown = used_columns(here)
        extra = parameter_names(row.parameters for row in here)
        lines = [
            (
                row,
                [row.method, *(str(dict(row.parameters).get(name, "")) for name in extra)],
                [number(row.means[i], COLUMNS[i].digits) for i in shown],
            )
            for row in here
        ]
        tables.append(InstanceTable(instance, extra, [COLUMNS[i] for i in shown], lines))
    return tables


def as_markdown(found: Sequence[Row], methods: Sequence[Method]) -> str:
    """Return a table for each instance of no group, methods as rows; then what was published of a
    method, what is seen here against the method it names, and its note."""
    lines: list[str] = []
    for table in instance_tables([row for row in found if row.group is None]):
        cells_of = []
        for row, (method, *given), numbers in table.lines:
            if row.failed:
                runs = f" ({row.runs} runs)" if row.runs > 1 else ""
                numbers = [f"failed: {'; '.join(row.failed)}{runs}", *[""] * (len(numbers) - 1)]
            cells_of.append([f"`{method}`", *given, *numbers])
        lines += markdown(table.instance, table.heads, cells_of, table.words)
    remarks = [line for method in methods if (line := _remark(found, method))]
    return "\n".join([*lines, *(["### Published and seen", "", *remarks, ""] if remarks else [])])


def parameter_names(several: Iterable[Sequence[tuple[str, Any]]]) -> list[str]:
    """Return the names of all parameters, in order of appearance."""
    return list(dict.fromkeys(name for parameters in several for name, _ in parameters))


def markdown(
    title: str, heads: Sequence[str], lines: Sequence[Sequence[str]], words: int
) -> list[str]:
    """Return the lines of a table; all columns after the first `words` are numbers."""
    rule = "---|" * words + "--:|" * (len(heads) - words)
    table = [f"| {' | '.join(cells)} |" for cells in lines]
    return [f"### {title}", "", f"| {' | '.join(heads)} |", f"|{rule}", *table, ""]


def _remark(found: Sequence[Row], method: Method) -> str | None:
    """Return what was published of a policy, what is seen here, and why they differ."""
    if method.note is None and method.against is None:
        return None
    parts = []
    published = published_of(method)
    if published:
        parts.append(f"published: {published}.")
    if method.against is not None:
        parts.append(
            f"Mean JCT here against `{method.against}`: "
            f"{', '.join(_changes(found, method)) or 'no run'}."
        )
    if method.note is not None:
        parts.append(method.note)
    return f"- `{method.name}`: {' '.join(parts)}"


def _changes(found: Sequence[Row], method: Method) -> list[str]:
    other = {
        (row.instance, row.parameters): row.means[0]
        for row in found
        if row.method == method.against
    }
    changes = []
    for row in found:
        base = other.get((row.instance, row.parameters))
        if row.method == method.name and base and row.means[0] is not None:
            changes.append(f"{row.instance} {100 * (row.means[0] / base - 1):+.1f} %")
    return changes


def published_of(method: Method) -> str | None:
    """Return the headline result of the policy that a method simulates."""
    words = arguments(method.command)
    if "--policy" not in words[:-1]:
        return None
    name = words[words.index("--policy") + 1]
    return next(
        (one.source.published for one in listed("policies") if one.name == name and one.source),
        None,
    )


def as_csv(results: Sequence[Result]) -> str:
    """Return one line a run, all columns."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = list(dict.fromkeys(name for result in results for name, _ in result.run.parameters))
    writer.writerow(["instance", "method", *names, *map(_head, COLUMNS), "failed"])
    for result in results:
        own = dict(result.run.parameters)
        values = [column.of(result) for column in COLUMNS]
        writer.writerow(
            [
                result.run.instance,
                result.run.method,
                *(own.get(name, "") for name in names),
                *values,
                result.reason or "",
            ]
        )
    return out.getvalue()


def _head(column: Column) -> str:
    return f"{column.name} {column.unit}".strip()


def number(value: float | None, digits: int) -> str:
    """Return a value as people read it; "-" for none."""
    return "-" if value is None else f"{round(value, digits) + 0.0:,.{digits}f}"  # no -0.0
