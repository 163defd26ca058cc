"""`optsched queue`: jobs that wait, run, or have finished."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from ..duration import human
from ..picture.text import WIDE, short, table
from .parts.arguments import count_option, flag_option, option
from .parts.controller import Client, all_jobs, asks_controller, chosen_jobs
from .parts.out import Json, Out, Parts, answers_aloud, width

if TYPE_CHECKING:
    from rich.table import Table

SHOWN, SHOWN_FINISHED = 1000, 30
"""Jobs shown where nobody says how many."""


def column_names(value: str) -> tuple[str, ...]:
    """Read `--columns`."""
    names = tuple(value.split(","))
    for name in names:
        if name not in COLUMNS:
            known = ", ".join(COLUMNS)
            raise click.BadParameter(f"{name!r} is not a column; choose from {known}")
    return tuple(dict.fromkeys(names))


@click.command("queue")
@chosen_jobs
@flag_option("--all", "Show jobs of all users (administrators only).", "everybody")
@flag_option("--finished", "Show finished jobs, most recent first.")
@option(
    "--sort KEY",
    "Order: submitted, started, finished, name, user, tenant, status, gpus, waited, ran, left, "
    "starts, ends, weight or priority, with a dash before it the largest first.",
)
@option("--columns NAMES", "Columns to show, with commas between.", type=column_names)
@count_option(
    "--limit N", "Show at most N jobs (default: 1,000, or 30 finished ones).", most=10_000_000
)
@answers_aloud
@asks_controller
def command(
    client: Client,
    chosen: dict[str, str | None],
    everybody: bool,
    finished: bool,
    sort: str | None,
    columns: tuple[str, ...] | None,
    limit: int | None,
    out: Out,
) -> int:
    """List your jobs: where they are, how long they have waited and run, and why.

    \b
    optsched queue
    optsched queue --all --finished --limit 100
    optsched queue --name 'sweep-*' --state waiting --sort -waited
    optsched queue --tenant vision --columns job,user,gpus,started
    """
    most = limit or (SHOWN_FINISHED if finished else SHOWN)
    jobs, total = all_jobs(client, most=most, all=everybody, finished=finished, sort=sort, **chosen)

    def parts() -> Parts:
        if not jobs:
            which = " that you asked for" if any(chosen.values()) else ""
            yield f"no jobs{which}" + (" have finished" if finished else "")
            return
        users = everybody or chosen["user"] is not None or chosen["tenant"] is not None
        yield jobs_table(jobs, columns or usual_columns(users=users, finished=finished))
        if total > len(jobs):
            yield f"and {total - len(jobs):,} more; --limit shows more"

    out.answer(lambda: {"jobs": jobs, "total": total}, parts)
    return 0


class Column(NamedTuple):
    """A column of the queue: its head, and what it shows of a job."""

    head: str
    text: Callable[[Json], str]
    numeric: bool = False
    folded: bool = False


def usual_columns(*, users: bool, finished: bool = False) -> tuple[str, ...]:
    """Return the columns that there is room for."""
    wide = width() >= WIDE
    times = ("waited", "ran") if wide else ("waited/ran",)
    starts = () if finished else ("starts", "starts90") if wide else ("starts",)
    ends = ("ended",) if finished else ("progress", "left") if wide else ("left",)
    return ("job", "status", *["user"] * users, "gpus", "nodes", *times, *starts, *ends, "reason")


def jobs_table(jobs: list[Json], names: Sequence[str]) -> "Table":
    """Return jobs as a person reads them, in the columns of these names."""
    columns = [COLUMNS[name] for name in names]
    return table(
        *[column.head for column in columns],
        rows=([column.text(job) for column in columns] for job in jobs),
        numeric=[column.head for column in columns if column.numeric],
        folded=[column.head for column in columns if column.folded],
    )


def gpus_of(job: Json) -> str:
    """Return what it holds, or asks for: `2 a100`, `1-8`."""
    runs = job["placement"] and job["status"] not in ("waiting", "held")
    held = sum(slot["gpus"] for slot in job["placement"]) if runs else 0
    if held:
        return f"{held} {job['gpu_type'] or ''}".strip()
    if not job["max_gpus"]:
        return "-"
    least, most = job["min_gpus"], job["max_gpus"]
    return str(most) if least == most else f"{least}-{most}"


def nodes_of(job: Json) -> str:
    """Return where it is, or was."""
    if job["status"] in ("waiting", "held"):
        return "-"
    return short(tuple(slot["node"] for slot in job["placement"]))


def _progress(job: Json) -> str:
    if job["step"] is None:
        return "-"
    total = job["total_steps"]
    return f"{job['step']:,}" if not total else f"{min(1.0, job['step'] / total):.0%}"


def _left(job: Json) -> str:
    if job["remaining_s"] is None:
        return "-"
    sure = job["estimate"] is None or job["step"] is not None
    return ("" if sure else "~") + human(job["remaining_s"])


def _ran(job: Json) -> str:
    return human(job["ran_s"]) if job["ran_s"] else "-"


def _waited_or_ran(job: Json) -> str:
    waits = job["status"] in ("waiting", "held") or not job["ran_s"]
    return human(job["waited_s"]) if waits else _ran(job)


def _field(name: str) -> Callable[[Json], str]:
    """Return what shows a field as it is."""
    return lambda job: "-" if job[name] is None else f"{job[name]}"


def _instant(name: str) -> Callable[[Json], str]:
    """Return what shows a Unix time as a date."""
    return lambda job: (
        "-" if job[name] is None else f"{datetime.fromtimestamp(job[name]):%Y-%m-%d %H:%M:%S}"
    )


def _ahead(name: str) -> Callable[[Json], str]:
    """Return what shows how far ahead an expected Unix time is; nothing of what has happened."""

    def text(job: Json) -> str:
        over = job["finished_s"] is not None or (name.startswith("start") and job["started_s"])
        waits = job["status"] in ("waiting", "held")
        if job[name] is None or (over and not waits):
            return "-"
        now_s = job["submit_s"] + job["waited_s"] + job["ran_s"]
        return f"~{human(max(0.0, job[name] - now_s))}"

    return text


number = partial(Column, numeric=True)
COLUMNS = {
    "job": Column("job", lambda job: job["id"], folded=True),
    "status": Column("status", lambda job: job["status"]),
    "user": Column("user", _field("user")),
    "tenant": Column("tenant", _field("tenant")),
    "gpus": Column("GPUs", gpus_of),
    "nodes": Column("nodes", nodes_of, folded=True),
    "waited": number("waited", lambda job: human(job["waited_s"])),
    "ran": number("ran", _ran),
    "waited/ran": number("waited/ran", _waited_or_ran),
    "starts": number("starts in", _ahead("start_p50_s")),
    "starts90": number("90 %", _ahead("start_p90_s")),
    "ends": number("ends in", _ahead("end_p50_s")),
    "ends90": number("ends, 90 %", _ahead("end_p90_s")),
    "progress": number("progress", _progress),
    "left": number("left", _left),
    "ended": number("ended with", _field("exit_status")),
    "weight": number("weight", lambda job: f"{job['weight']:g}"),
    "priority": number("priority", _field("priority")),
    "submitted": Column("submitted", _instant("submit_s")),
    "started": Column("started", _instant("started_s")),
    "finished": Column("finished", _instant("finished_s")),
    "begin": Column("begin", _instant("begin_s")),
    "limit": number("limit", lambda job: "-" if job["limit_s"] is None else human(job["limit_s"])),
    "array": Column("array", _field("array")),
    "index": number("index", _field("index")),
    "deadline": Column("deadline", _instant("deadline_s")),
    "after": Column("after", lambda job: ",".join(job["after"]) or "-", folded=True),
    "attempts": number("attempts", _field("attempts")),
    "preemptions": number("preemptions", _field("preemptions")),
    "failures": number("failures", _field("failures")),
    "command": Column("command", _field("command"), folded=True),
    "reason": Column("reason", lambda job: job["reason"] or "", folded=True),
}
"""All there are, in the order in which help names them."""
