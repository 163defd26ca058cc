"""`optsched account`: who used how many GPU-hours, and what for."""

import csv
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ..duration import human
from .journal import clock_text
from .parts.arguments import flag_option, option
from .parts.controller import Client, asks_controller
from .parts.out import Json, Out, Parts, answers_aloud

if TYPE_CHECKING:
    from rich.table import Table

WASTE = {
    "setup": "set-up",
    "saving": "saving",
    "preempted": "preempted",
    "failed": "failed",
    "lost": "node lost",
    "stopped": "stopped",
}
"""What GPU time is spent on besides work that is kept, and its column."""
SHOWN = 0.01
"""A cause of waste has a column from this share of all GPU-hours on, or 0.05 of them."""
NAMES = ("day", "user", "tenant", "job")
BUDGET = {
    "gpu_h": "budget",
    "used_gpu_h": "used",
    "expected_gpu_h": "of running jobs",
    "left_gpu_h": "left",
}
"""What there is to say of a budget, and its column."""
day_type = click.DateTime(["%Y-%m-%d"])


@click.command("account")
@option("--from DAY", "First day, as 2026-05-01 (UTC; default: all there is).", type=day_type)
@option("--to DAY", "Last day.", type=day_type)
@option("--user NAME", "Only jobs of this user.")
@option("--tenant NAME", "Only jobs of this tenant.")
@option(
    "--by WHAT",
    "What to sum by: user, tenant, day or job, or several with commas between (default: user).",
    default="user",
)
@flag_option("--budgets", "What is left of budgets of GPU-hours, and until when.")
@flag_option("--csv", "Print comma-separated values: the same columns as with --json.", "as_csv")
@answers_aloud
@asks_controller
def command(client: Client, budgets: bool, as_csv: bool, out: Out, **asked: Any) -> int:
    """Report GPU-hours by user, tenant, day or job, and what they were spent on.

    You see what you used yourself; administrators see everybody. Jobs count on the day on which
    they were submitted, GPU-hours on the day on which they were used. What jobs used stays known
    after they have been dropped ([retention] in cluster.toml), but no longer by job.

    \b
    optsched account --from 2026-05-01 --to 2026-05-31
    optsched account --by tenant,day --csv > may.csv
    optsched account --budgets
    """
    if budgets:
        return _budgets(client, as_csv, out, asked)
    days = {f"{end}_day": _day(asked.pop(end)) for end in ("from", "to")}
    answer = client.get("/v1/account", **days, **asked)
    if as_csv and not out.as_json:
        click.echo(_as_csv(list(answer["total"]), answer["rows"]), nl=False)
        return 0
    out.answer(lambda: answer, lambda: _parts(answer, asked["by"].split(",")))
    return 0


def _budgets(client: Client, as_csv: bool, out: Out, asked: Json) -> int:
    if asked["from"] or asked["to"] or asked["by"] != "user":
        raise click.UsageError("--from, --to and --by are not for budgets, which have one period")
    answer = client.get("/v1/budgets")
    for whose in filter(asked.get, ("user", "tenant")):
        answer["rows"] = [row for row in answer["rows"] if row[whose] == asked[whose]]
    if as_csv and not out.as_json:
        click.echo(_as_csv(["user", "tenant", *BUDGET], answer["rows"]), nl=False)
        return 0
    out.answer(lambda: answer, lambda: _budget_parts(answer))
    return 0


def _budget_parts(answer: Json) -> Parts:
    from ..picture.text import hours, table

    if not answer["rows"]:
        yield "there is no such budget (max_gpu_hours in cluster.toml)"
        return
    yield table(
        "user",
        "tenant",
        *BUDGET.values(),
        rows=(
            [row["user"] or "", row["tenant"] or "", *(hours(row[name]) for name in BUDGET)]
            for row in answer["rows"]
        ),
        numeric=tuple(BUDGET.values()),
    )
    until_s = answer["until_s"]
    if until_s is None:
        yield "GPU-hours of all time"
    else:
        per, left = answer["per"], human(until_s - answer["now_s"])
        yield f"GPU-hours a {per}; the next begins on {_utc_day(until_s)} (UTC), in {left}"


def _utc_day(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d}"


def _day(value: datetime | None) -> str | None:
    return None if value is None else f"{value:%Y-%m-%d}"


def _as_csv(columns: list[str], rows: list[Json]) -> str:
    """Return the rows as comma-separated values. A name that a spreadsheet would take for a formula
    gets an apostrophe before it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        names = {name: row[name] or "" for name in NAMES if name in row}
        writer.writerow(
            row
            | {
                name: f"'{own}" if own[:1] in "=+-@\t\r" and own else own
                for name, own in names.items()
            }
        )
    return text.getvalue()


def _parts(answer: Json, by: list[str]) -> Parts:
    if not answer["rows"]:
        yield "nothing was used"
    else:
        yield _table(answer, [name for name in NAMES if name in by])
    if answer["uncounted_before_s"] is not None:
        yield (
            f"jobs dropped that finished before {clock_text(answer['uncounted_before_s'])} are not "
            "counted: an earlier version kept nothing of them"
        )


def _table(answer: Json, by: list[str]) -> "Table":
    from ..picture.facts import percent
    from ..picture.text import hours, table

    total = answer["total"]
    least = min(0.05, SHOWN * total["gpu_h"])
    wastes = [cause for cause in WASTE if total[f"{cause}_gpu_h"] > least]
    cores = ["core-hours"] if total["core_h"] > 0 else []

    def cells(row: Json) -> list[str]:
        held = row["gpu_h"]
        return [
            f"{row['jobs']:,}",
            hours(held),
            percent(row["work_gpu_h"] / held) if held else "-",
            *(hours(row[f"{cause}_gpu_h"]) for cause in wastes),
            *(hours(row["core_h"]) for _ in cores),
            human(3600 * row["waited_h"] / row["jobs"]) if row["jobs"] else "-",
        ]

    rows = [[row[name] or "-" for name in by] + cells(row) for row in answer["rows"]]
    if len(rows) > 1:
        rows.append(["all", *[""] * (len(by) - 1), *cells(total)])
    numeric = ["jobs", "GPU-hours", "kept", *(WASTE[cause] for cause in wastes), *cores]
    numeric.append("mean wait")
    return table(*by, *numeric, rows=rows, numeric=numeric, folded=("job",))
