"""`optsched queue`: jobs that wait, run, or have finished."""

from typing import TYPE_CHECKING, Any

import click

from ..duration import human
from ..picture.text import WIDE, short, table
from .parts.arguments import count_option, flag_option
from .parts.controller import Client, all_jobs, asks_controller
from .parts.out import Out, Parts, answers_aloud, width

if TYPE_CHECKING:
    from rich.table import Table


@click.command("queue")
@flag_option("--all", "Show jobs of all users (administrators only).", "everybody")
@flag_option("--finished", "Show finished jobs, most recent first.")
@count_option(
    "--limit N", "Show at most N jobs (default: 1,000, or 30 finished ones).", most=100_000
)
@answers_aloud
@asks_controller
def command(client: Client, everybody: bool, finished: bool, limit: int | None, out: Out) -> int:
    """List your jobs: where they are, how long they have waited and run, and why.

    \b
    optsched queue
    optsched queue --all --finished --limit 100
    """
    most = limit or (30 if finished else 1000)
    jobs, total = all_jobs(client, everybody=everybody, finished=finished, most=most)

    def parts() -> Parts:
        if not jobs:
            yield "no jobs" + (" have finished" if finished else "")
            return
        yield jobs_table(jobs, users=everybody, finished=finished)
        if total > len(jobs):
            yield f"and {total - len(jobs):,} more; --limit shows more"

    out.answer(lambda: {"jobs": jobs, "total": total}, parts)
    return 0


def jobs_table(jobs: list[dict[str, Any]], *, users: bool, finished: bool = False) -> "Table":
    """Return jobs as a person reads them."""
    wide = width() >= WIDE

    def times(job: dict[str, Any]) -> list[str]:
        waited, ran = human(job["waited_s"]), human(job["ran_s"]) if job["ran_s"] else "-"
        if wide:
            return [waited, ran]
        return [waited if job["status"] in ("waiting", "held") or not job["ran_s"] else ran]

    def ends(job: dict[str, Any]) -> list[str]:
        if finished:
            return ["-" if job["exit_status"] is None else str(job["exit_status"])]
        return [_progress(job), _left(job)] if wide else [_left(job)]

    numeric = ["waited", "ran"] if wide else ["waited/ran"]
    numeric += ["ended with"] if finished else ["progress", "left"] if wide else ["left"]
    return table(
        "job",
        "status",
        *["user"] * users,
        "GPUs",
        "nodes",
        *numeric,
        "reason",
        rows=(
            (
                job["id"],
                job["status"],
                *[job["user"] or "-"] * users,
                gpus_of(job),
                nodes_of(job),
                *times(job),
                *ends(job),
                printable(job["reason"] or ""),
            )
            for job in jobs
        ),
        numeric=numeric,
        folded=("job", "nodes", "reason"),
    )


def printable(text: str) -> str:
    """Return a text without what would move a terminal's cursor: reasons may quote commands of
    others."""
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
    sure = job["estimate"] is None or job["step"] is not None
    return ("" if sure else "~") + human(job["remaining_s"])
