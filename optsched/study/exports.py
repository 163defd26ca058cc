"""The results of a study for other programs: a long table, and a summary with a JSON Schema."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from ..files.columns import Columns, columns_parquet
from .design import Scalar, Study
from .intervals import Interval
from .results import Result
from .table import COLUMNS, parameter_names, rows
from .verdicts import Finding, Verdict


def long_table(results: Sequence[Result]) -> Columns:
    """Return a line for each number of each run that did not fail, by column: where it is from, the
    parameters, the name of the number with its unit, and its value."""
    names = parameter_names(result.run.parameters for result in results)
    lines = [line for result in results for line in _long_lines(result, names)]
    heads = ["instance", "group", "method", *names, "metric", "value"]
    columns = zip(*lines, strict=True) if lines else ((),) * len(heads)
    return {head: [*column] for head, column in zip(heads, columns, strict=True)}


def _long_lines(result: Result, names: Sequence[str]) -> Iterator[list[Any]]:
    run = result.run
    given = dict(run.parameters)
    for column in COLUMNS:
        value = column.of(result)
        if value is not None:
            yield [
                run.instance,
                run.group or "",
                run.method,
                *(given.get(name) for name in names),
                column.key,
                value,
            ]


def long_parquet(table: Columns) -> bytes | None:
    """Return the long table as Parquet, all but its values as text; None without a library for
    it."""
    texts = [name for name in table if name != "value"]
    as_text = {
        name: [None if cell is None else str(cell) for cell in table[name]] for name in texts
    }
    return columns_parquet({**as_text, "value": table["value"]}, texts)


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Number(Part):
    """A mean over `seeds` runs with its 95 % interval; no interval of a single run."""

    mean: float
    low: float | None = None
    high: float | None = None
    seeds: int


class Line(Part):
    """A method over an instance with given parameters; `metrics` by name, units in the names;
    `failed` are the reasons of runs that failed."""

    instance: str
    group: str | None
    method: str
    parameters: dict[str, Scalar]
    runs: int
    failed: list[str]
    metrics: dict[str, Number]


class Held(Part):
    """A claim held against the runs: relative changes by instance, and the verdict."""

    method: str
    against: str
    metric: str
    published: float | Literal["more", "less"]
    seen: dict[str, Number]
    verdict: Verdict
    why: str


class StudySummary(Part):
    """What a study found: summary.json."""

    format: Literal["optsched-study-summary/1"] = "optsched-study-summary/1"
    name: str
    title: str
    command: str
    rows: list[Line]
    claims: list[Held]


def summary(
    study: Study, command: str, results: Sequence[Result], found: Sequence[Finding]
) -> StudySummary:
    """Return what a study found, made by the command line `command`."""
    keys = {column.name: column.key for column in COLUMNS}
    return StudySummary(
        name=study.name,
        title=study.title,
        command=command,
        rows=[
            Line(
                instance=row.instance,
                group=row.group,
                method=row.method,
                parameters=dict(row.parameters),
                runs=row.runs,
                failed=[*row.failed],
                metrics={
                    column.key: _number(mean)
                    for column, mean in zip(COLUMNS, row.means, strict=True)
                    if mean is not None and math.isfinite(mean.mean)
                },
            )
            for row in rows(results)
        ],
        claims=[
            Held(
                method=finding.claim.method,
                against=finding.claim.against,
                metric=keys[finding.claim.column],
                published=finding.claim.published,
                seen={case: _number(change) for case, change in finding.changes.items()},
                verdict=finding.verdict,
                why=finding.why,
            )
            for finding in found
        ],
    )


def _number(mean: Interval) -> Number:
    if mean.half is None or not math.isfinite(mean.half):
        return Number(mean=mean.mean, seeds=len(mean.values))
    return Number(mean=mean.mean, low=mean.low, high=mean.high, seeds=len(mean.values))
