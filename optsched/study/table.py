"""The table of a study: one row a run, or one for all seeds of a method over an instance."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..files import csv_text
from ..frozen import record
from ..picture.text_simulation import lost_gpu_h
from ..plugins.registry import listed
from .design import Method, Settings, arguments
from .intervals import Interval, mean_interval
from .optima import optimum_of
from .results import Result

H = 3600.0


@record
class Column:
    """A number taken from what a run printed, in `unit`; None where the run does not say. `best` is
    whether the least or the largest is best, None where neither is."""

    name: str
    unit: str
    digits: int
    value: Callable[[Result], float | None]
    best: Callable[[Iterable[float]], float] | None = min

    @property
    def key(self) -> str:
        """Return the name of the number in files, its unit in it."""
        unit = {"%": "percent"}.get(self.unit, self.unit.lower())
        words = re.sub(r"[^a-z0-9]+", "_", self.name.lower())
        return f"{words}_{unit}" if unit else words

    def of(self, result: Result) -> float | None:
        """Return the number of a run; None where it failed."""
        return None if result.failed else self.value(result)


Value = Callable[[Result], float | None]


def at(*path: str, times: float = 1.0, over: float = 1.0) -> Value:
    """Return what reads the number at a path of an answer."""

    def value(result: Result) -> float | None:
        part: Any = result.answer
        for name in path:
            part = part.get(name) if isinstance(part, dict) else None
        if isinstance(part, bool) or not isinstance(part, int | float):
            return None
        return times * part / over

    return value


def level(name: str, times: float = 1.0) -> Value:
    """Return what reads a number of the first level of the objective."""

    def value(result: Result) -> float | None:
        answer = result.answer or {}
        first = (answer.get("levels") or [answer.get("objective")])[0]
        number = first.get(name) if isinstance(first, dict) else None
        return None if number is None else times * float(number)

    return value


def _gpu_price(result: Result) -> float | None:
    """Return the price of the GPU-hours held, where the objective has it as a level."""
    levels = (result.answer or {}).get("levels") or ()
    return next((entry["value"] for entry in levels if entry["name"] == "cost"), None)


def _deadlines_missed(result: Result) -> float | None:
    """Return the per cent of the jobs with a deadline that missed it."""
    answer = result.answer or {}
    due = answer.get("deadlines")
    return 100.0 * answer["deadlines_missed"] / due if due else None


def _lost_gpu_h(result: Result) -> float | None:
    """Return the GPU-hours that were held without counting: overheads of every restart, and work
    that was lost."""
    answer = result.answer or {}
    return lost_gpu_h(answer) if answer.get("gpu_h") else None


COLUMNS = (
    Column("mean JCT", "h", 2, at("jct_s", "mean", over=H)),
    Column("p99 JCT", "h", 1, at("jct_s", "p99", over=H)),
    Column("mean wait", "h", 2, at("waiting_s", "mean", over=H)),
    Column("makespan", "h", 1, at("makespan_s", over=H)),
    Column("workflow latency", "s", 2, at("workflow_s", "mean")),
    Column("p99 workflow latency", "s", 2, at("workflow_s", "p99")),
    Column("worst fairness", "", 2, at("finish_time_fairness", "max")),
    Column("mean fairness", "", 2, at("finish_time_fairness", "mean")),
    Column("preemptions", "", 0, at("preemptions"), None),
    Column("out of memory", "", 0, at("out_of_memory")),
    Column("lost GPU time", "h", 1, _lost_gpu_h),
    Column("GPUs held", "%", 1, at("use", "gpus", times=100), None),
    Column("communication", "%", 1, at("communication_overhead", times=100)),
    Column("top-1 accuracy", "%", 1, at("policy_facts", "top1_accuracy", times=100), max),
    Column("GPU utilisation", "%", 1, at("gpu_utilisation", times=100), max),
    Column("utility", "%", 2, at("utility", times=100), max),
    Column("wait of CPU jobs", "h", 2, at("waiting_cpu_jobs_s", "mean", over=H)),
    Column("nodes powered", "h", 0, at("policy_facts", "powered_node_h")),
    Column("use of powered nodes", "%", 1, at("policy_facts", "powered_use", times=100), max),
    Column("energy", "kWh", 0, at("energy_kwh", "total")),
    Column("price of GPUs", "", 0, _gpu_price),
    Column("deadlines missed", "%", 1, _deadlines_missed),
    Column("price of energy", "", 2, at("energy_cost")),
    Column("CO2", "kg", 1, at("carbon_g", over=1000.0)),
    Column("decision, mean", "ms", 2, at("decision_wall_s", "mean", over=1e-3), None),
    Column("decision, p99", "ms", 2, at("decision_wall_s", "p99", over=1e-3), None),
    Column("GPUs allocated", "%", 2, at("allocated_percent"), max),
    Column("no rule exceeds", "%", 2, at("bound_percent"), None),
    Column("short of that", "%", 2, at("gap_percent")),
    Column("value", "", 4, level("value")),
    Column("bound", "", 4, level("bound"), None),
    Column("optimum", "", 4, optimum_of, None),
    Column("gap", "%", 1, level("gap", times=100)),
    Column("run", "s", 1, lambda result: result.cpu_s, None),
)


@record
class Row:
    """A method over an instance with given parameters (without the seed): the mean of each column
    over the seeds with its interval, None where a run does not say, and the reasons of the runs
    that failed."""

    instance: str
    method: str
    parameters: Settings
    means: tuple[Interval | None, ...]
    runs: int
    failed: tuple[str, ...]
    group: str | None = None


def by_seed(results: Sequence[Result]) -> dict[tuple[str, str, Settings], list[Result]]:
    """Return all seeds of a run together, by instance, method and the other parameters."""
    groups: dict[tuple[str, str, Settings], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.run.instance, result.run.method, result.run.settings].append(result)
    return groups


def rows(results: Sequence[Result]) -> list[Row]:
    """Return rows in the order of the results, all seeds of one put together."""
    rows = []
    for key, members in by_seed(results).items():
        done = [result for result in members if not result.failed]
        means = tuple(interval_of(column.value, done) for column in COLUMNS)
        failed = dict.fromkeys(result.reason or "" for result in members if result.failed)
        rows.append(Row(*key, means, len(members), tuple(failed), members[0].run.group))
    return rows


def interval_of(value: Value, results: Sequence[Result]) -> Interval | None:
    """Return the mean of a number with its interval; None where a run does not say."""
    values = [value(result) for result in results]
    known = [number for number in values if number is not None]
    return mean_interval(known) if known and len(known) == len(values) else None


def used_columns(table_rows: Sequence[Row]) -> list[int]:
    """Return positions of the columns that say anything: some row has a value, and not all are 0.
    The value of the objective and its bound are left out where each row that has them tells
    completion times; the gap stays."""
    used = [
        i
        for i in range(len(COLUMNS))
        if any((mean := row.means[i]) is not None and mean.mean for row in table_rows)
    ]
    names = [column.name for column in COLUMNS]
    jct, value, bound = map(names.index, ("mean JCT", "value", "bound"))
    planned = any(
        row.means[jct] is None and (row.means[value] is not None or row.means[bound] is not None)
        for row in table_rows
    )
    return [i for i in used if planned or i not in (value, bound)]


@record
class Cell:
    """A mean as people read it, with half its interval; `best` where no method is clearly
    better."""

    mean: str
    half: str | None = None
    best: bool = False

    @property
    def text(self) -> str:
        return f"{self.mean} ± {self.half}" if self.half else self.mean


@record
class InstanceTable:
    """The methods over an instance: a line has the row, its words (method and parameters) and its
    numbers, which mean nothing where the row failed."""

    instance: str
    parameters: list[str]
    columns: list[Column]
    lines: list[tuple[Row, list[str], list[Cell]]]

    @property
    def words(self) -> int:
        """Return how many columns come before the numbers."""
        return 1 + len(self.parameters)

    @property
    def heads(self) -> list[str]:
        """Return the head of each column, with its unit."""
        return ["method", *self.parameters, *map(_head, self.columns)]


def instance_tables(table_rows: Sequence[Row]) -> list[InstanceTable]:
    """Return a table for each instance, methods as rows, with the columns that say anything."""
    tables = []
    for instance in dict.fromkeys(row.instance for row in table_rows):
        here = [row for row in table_rows if row.instance == instance]
        shown = used_columns(here)
        extra = parameter_names(row.parameters for row in here)
        by_column = [_cells(COLUMNS[i], [row.means[i] for row in here]) for i in shown]
        lines = [
            (
                row,
                [row.method, *(str(dict(row.parameters).get(name, "")) for name in extra)],
                [cells[k] for cells in by_column],
            )
            for k, row in enumerate(here)
        ]
        tables.append(InstanceTable(instance, extra, [COLUMNS[i] for i in shown], lines))
    return tables


def _cells(column: Column, means: Sequence[Interval | None]) -> list[Cell]:
    """Return a column of a table. The best is that with the best mean, and all whose difference to
    it may be 0; nothing is the best of one, or of equals."""
    known = [mean for mean in means if mean is not None]
    best = None
    if column.best is not None and len({number(mean.mean, column.digits) for mean in known}) > 1:
        best_mean = column.best(mean.mean for mean in known)
        best = next(mean for mean in known if mean.mean == best_mean)
    return [
        Cell("-")
        if mean is None
        else Cell(
            number(mean.mean, column.digits),
            number(mean.half, column.digits) if mean.half else None,
            best is not None and best.level_with(mean),
        )
        for mean in means
    ]


def as_markdown(table_rows: Sequence[Row], methods: Sequence[Method]) -> str:
    """Return a table for each instance of no group, methods as rows; then what was published of a
    method, what is seen here against the method it names, and its note."""
    lines: list[str] = []
    for table in instance_tables([row for row in table_rows if row.group is None]):
        cells_of = []
        for row, (method, *given), cells in table.lines:
            numbers = [f"**{cell.text}**" if cell.best else cell.text for cell in cells]
            if row.failed:
                runs = f" ({row.runs} runs)" if row.runs > 1 else ""
                numbers = [f"failed: {'; '.join(row.failed)}{runs}", *[""] * (len(numbers) - 1)]
            cells_of.append([f"`{method}`", *given, *numbers])
        lines += markdown(table.instance, table.heads, cells_of, table.words)
    remarks = [line for method in methods if (line := _remark(table_rows, method))]
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


def _remark(table_rows: Sequence[Row], method: Method) -> str | None:
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
            f"{', '.join(_changes(table_rows, method)) or 'no run'}."
        )
    if method.note is not None:
        parts.append(method.note)
    return f"- `{method.name}`: {' '.join(parts)}"


def _changes(table_rows: Sequence[Row], method: Method) -> list[str]:
    other = {
        (row.instance, row.parameters): row.means[0]
        for row in table_rows
        if row.method == method.against
    }
    changes = []
    for row in table_rows:
        base = other.get((row.instance, row.parameters))
        mean = row.means[0]
        if row.method == method.name and base and base.mean and mean is not None:
            changes.append(f"{row.instance} {100 * (mean.mean / base.mean - 1):+.1f} %")
    return changes


def published_of(method: Method) -> str | None:
    """Return the headline result of the policy that a method simulates."""
    words = arguments(method.command)
    if "--policy" not in words[:-1]:
        return None
    name = words[words.index("--policy") + 1]
    return next(
        (
            policy.source.published
            for policy in listed("policies")
            if policy.name == name and policy.source
        ),
        None,
    )


def as_csv(results: Sequence[Result]) -> str:
    """Return one line a run, all columns, units in their names."""
    names = parameter_names(result.run.parameters for result in results)
    heads = ["instance", "method", *names, *(column.key for column in COLUMNS), "failed"]
    lines = [
        [
            result.run.instance,
            result.run.method,
            *(dict(result.run.parameters).get(name, "") for name in names),
            *(column.of(result) for column in COLUMNS),
            result.reason or "",
        ]
        for result in results
    ]
    return csv_text([heads, *lines])


def _head(column: Column) -> str:
    return f"{column.name} {column.unit}".strip()


def number(value: float | None, digits: int) -> str:
    """Return a value as people read it; "-" for none."""
    return "-" if value is None else f"{round(value, digits) + 0.0:,.{digits}f}"  # no -0.0
