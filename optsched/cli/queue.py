"""`optsched queue`: jobs that wait, run, or have finished."""

from typing import TYPE_CHECKING, Any

import click

from ..duration import human
from .parts.arguments import count_option, flag_option, json_option
from .parts.controller import all_jobs, asks_controller
from .parts.outputs import print_json
from .parts.table import WIDE, short, show, table, width

if TYPE_CHECKING:
    from rich.table import Table

    from ..control.api.client import Client


@click.command("queue")
@flag_option("--all", "everybody", help="Show jobs of all users (administrators only).")
@flag_option("--finished", help="Show finished jobs, most recent first.")
@count_option(
    "--limit", most=100_000, help="Show at most N jobs (default: 1,000, or 30 finished ones)."
)
@json_option
@asks_controller
def command(
    client: "Client", everybody: bool, finished: bool, limit: int | None, as_json: bool
) -> int:
    """List your jobs: where they are, how long they have waited and run, and why.

    \b
    optsched queue
    optsched queue --all --finished --limit 100
    """
    most = limit or (30 if finished else 1000)
    jobs, total = all_jobs(client, everybody=everybody, finished=finished, most=most)
    if as_json:
        print_json({"jobs": jobs, "total": total})
        return 0
    if not jobs:
        click.echo("no jobs" + (" have finished" if finished else ""))
        return 0
    show(jobs_table(jobs, users=everybody, finished=finished))
    if total > len(jobs):
        click.echo(f"and {total - len(jobs):,} more; --limit shows more")
    return 0


def jobs_table(jobs: list[dict[str, Any]], *, users: bool, finished: bool = False) -> "Table":
    """Return jobs as a person reads them."""
    wide = width() >= WIDE
    times = ["waited", "ran"] if wide else ["waited/ran"]
    left = ["ended with"] if finished else ["progress", "left"] if wide else ["left"]
    found = table(
        "job",
        "status",
        *["user"] * users,
        "GPUs",
        "nodes",
        *times,
        *left,
        "reason",
        numeric=(*times, *left),
        folded=("job", "nodes", "reason"),
    )
    for job in jobs:
        waited, ran = human(job["waited_s"]), human(job["ran_s"]) if job["ran_s"] else "-"
        now = waited if job["status"] in ("waiting", "held") or not job["ran_s"] else ran
        ends = (
            [_ending(job)] if finished else [_progress(job), _left(job)] if wide else [_left(job)]
        )
        found.add_row(
            job["id"],
            job["status"],
            *[job["user"] or "-"] * users,
            gpus_of(job),
            nodes_of(job),
            *([waited, ran] if wide else [now]),
            *ends,
            printable(job["reason"] or ""),
        )
    return found


def printable(text: str) -> str:
    """Without what would move a terminal's cursor: reasons may quote commands of others."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def gpus_of(job: dict[str, Any]) -> str:
    """Return what it holds, or asks for: `2 a100`, `1-8`."""
    runs = job["placement"] and job["status"] not in ("waiting", "held")
    held = sum(slot["gpus"] for slot in job["placement"]) if runs else 0
    if held:
        return f"{held} {job['gpu_type'] or ''}".strip()
    if not job["max_gpus"]:
        return "-"
    least, most = job["min_gpus"], job["max_gpus"]
    return str(most) if least == most else f"{least}-{most}"


def nodes_of(job: dict[str, Any]) -> str:
    """Return where it is, or was."""
    if job["status"] in ("waiting", "held"):
        return "-"
    return short(tuple(slot["node"] for slot in job["placement"]))


def _progress(job: dict[str, Any]) -> str:
    if job["step"] is None:
        return "-"
    total = job["total_steps"]
    return f"{job['step']:,}" if not total else f"{min(1.0, job['step'] / total):.0%}"


def _left(job: dict[str, Any]) -> str:
    if job["remaining_s"] is None:
        return "-"
    return ("~" if job["estimate"] is not None and job["step"] is None else "") + human(
        job["remaining_s"]
    )


def _ending(job: dict[str, Any]) -> str:
    return "-" if job["exit_status"] is None else str(job["exit_status"])
