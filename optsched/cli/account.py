"""`optsched account`: who used how many GPU-hours, and what for."""

import csv
import io
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..duration import human
from .journal import clock_text
from .parts.arguments import flag_option, option
from .parts.controller import Client, asks_controller
from .parts.out import Out, Parts, answers_aloud

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
@flag_option("--csv", "Print comma-separated values: the same columns as with --json.", "as_csv")
@answers_aloud
@asks_controller
def command(client: Client, as_csv: bool, out: Out, **asked: Any) -> int:
    """Report GPU-hours by user, tenant, day or job, and what they were spent on.

    You see what you used yourself; administrators see everybody. Jobs count on the day on which
    they were submitted, GPU-hours on the day on which they were used. What jobs used stays known
    after they have been dropped ([retention] in cluster.toml), but no longer by job.

    \b
    optsched account --from 2026-05-01 --to 2026-05-31
    optsched account --by tenant,day --csv > may.csv
    """
    days = {f"{end}_day": _day(asked.pop(end)) for end in ("from", "to")}
    answer = client.get("/v1/account", **days, **asked)
    if as_csv and not out.as_json:
        click.echo(_as_csv(answer), nl=False)
        return 0
    out.answer(lambda: answer, lambda: _parts(answer, asked["by"].split(",")))
    return 0


def _day(value: datetime | None) -> str | None:
    return None if value is None else f"{value:%Y-%m-%d}"


def _as_csv(answer: dict[str, Any]) -> str:
    """Return the rows as comma-separated values. A name that a spreadsheet would take for a formula
    gets an apostrophe before it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(answer["total"]), lineterminator="\n")
    writer.writeheader()
    for row in answer["rows"]:
        names = {name: row[name] or "" for name in ("day", "user", "tenant", "job")}
        writer.writerow(
            row
            | {
                name: f"'{own}" if own[:1] in "=+-@\t\r" and own else own
                for name, own in names.items()
            }
        )
    return text.getvalue()


def _parts(answer: dict[str, Any], by: list[str]) -> Parts:
    if not answer["rows"]:
        yield "nothing was used"
    else:
        yield _table(answer, [name for name in ("day", "user", "tenant", "job") if name in by])
    if answer["uncounted_before_s"] is not None:
        yield (
            f"jobs dropped that finished before {clock_text(answer['uncounted_before_s'])} are not "
            "counted: an earlier version kept nothing of them"
        )


def _table(answer: dict[str, Any], by: list[str]) -> "Table":
    from ..picture.facts import percent
    from ..picture.text import table

    total = answer["total"]
    wastes = [cause for cause in WASTE if total[f"{cause}_gpu_h"] >= 0.05]
    cores = ["core-hours"] if total["core_h"] >= 0.05 else []

    def cells(row: dict[str, Any]) -> list[str]:
        hours = row["gpu_h"]
        return [
            f"{row['jobs']:,}",
            f"{hours:,.1f}",
            percent(row["work_gpu_h"] / hours) if hours else "-",
            *(f"{row[f'{cause}_gpu_h']:,.1f}" for cause in wastes),
            *(f"{row['core_h']:,.1f}" for _ in cores),
            human(3600 * row["waited_h"] / row["jobs"]) if row["jobs"] else "-",
        ]

    rows = [[row[name] or "-" for name in by] + cells(row) for row in answer["rows"]]
    if len(rows) > 1:
        rows.append(["all", *[""] * (len(by) - 1), *cells(total)])
    numeric = ["jobs", "GPU-hours", "kept", *(WASTE[cause] for cause in wastes), *cores]
    numeric.append("mean wait")
    return table(*by, *numeric, rows=rows, numeric=numeric, folded=("job",))
