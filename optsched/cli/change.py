"""Commands that change jobs which were submitted: `optsched cancel`, `hold`, `release`, `requeue`,
`change`, `signal`, `clear`."""

import sys
from typing import Any

import click

from ..errors import InputError
from .parts.arguments import count_option, flag_option, option, time_option
from .parts.controller import Client, asks_controller, chosen_jobs
from .parts.duration import deadline
from .parts.out import Json, Out, answers
from .submit import gpu_count

NOT_ALL, FAULTY = 1, 2
NOT_THERE, NOT_UNDERSTOOD = 404, 422
HANDFUL = 5
"""Of more jobs than these the user of a terminal is asked first."""
DONE = {
    "cancel": "cancelled",
    "hold": "held",
    "release": "released",
    "requeue": "requeued",
    "clear": "cleared",
    "change": "changed",
}


def _each(
    client: Client, change: str, names: tuple[str, ...], out: Out, body: Json | None = None
) -> int:
    """Make a change to each of the jobs, and to the tasks of the arrays, that are named."""
    from ..control.api.client import ApiError

    changed: list[Any] = []
    failed = 0
    for name in names:
        try:
            changed.append(client.post(client.job_path(name, change), body))
            out.say(f"{name} is {DONE[change]}")
        except ApiError as error:
            tasks = _of_array(client, change, name) if error.status == NOT_THERE else []
            if tasks:
                out.say(_counted(tasks, DONE[change]))
                changed += ({"id": task} for task in tasks)
            else:
                failed = max(failed, FAULTY if error.status == NOT_UNDERSTOOD else NOT_ALL)
                click.echo(f"optsched: {error}", err=True)
    out.answer(lambda: changed, tuple)
    return failed


def _of_array(client: Client, change: str, name: str) -> list[str]:
    """Make a change to the tasks of an array, if there is one of that name; return them."""
    from ..control.api.client import ApiError

    if change in ("clear", "change"):
        return []
    try:
        return [*client.post(f"/v1/{change}", {"array": name})["jobs"]]
    except ApiError:
        return []


def _command(change: str, help: str) -> click.Command:
    """Return the command that makes this change to the jobs that are named, or chosen."""

    @click.command(change, help=help)
    @click.argument("jobs", nargs=-1, metavar="[JOB|ARRAY...]")
    @chosen_jobs
    @flag_option("--all", "Choose from jobs of all users (administrators only).", "everybody")
    @flag_option("--yes", f"Do not ask, however many jobs; else asked beyond {HANDFUL}.")
    @answers
    @asks_controller
    def command(
        client: Client,
        jobs: tuple[str, ...],
        chosen: dict[str, str | None],
        everybody: bool,
        yes: bool,
        out: Out,
    ) -> int:
        asked: Json = {name: value for name, value in chosen.items() if value is not None}
        if bool(jobs) == bool(asked):
            raise InputError(
                "name jobs, or choose them by --name, --array, --state, --user or --tenant"
            )
        if jobs:
            return _each(client, change, jobs, out)
        if not yes and sys.stdin.isatty():
            count = client.get("/v1/jobs", all=everybody, limit=1, **asked)["total"]
            if count > HANDFUL:
                click.confirm(f"{change} {count:,} jobs?", abort=True, err=True)
        body = asked | ({"all": True} if everybody else {})
        changed = client.post(f"/v1/{change}", body)["jobs"]
        out.answer(lambda: {"jobs": changed}, lambda: [_counted(changed, DONE[change])])
        return 0

    return command


def _counted(jobs: list[str], done: str) -> str:
    if len(jobs) == 1:
        return f"{jobs[0]} is {done}"
    shown = ", ".join(jobs[:HANDFUL]) + (", ..." if len(jobs) > HANDFUL else "")
    return f"{len(jobs):,} jobs are {done}" + (f": {shown}" if jobs else "")


cancel = _command(
    "cancel",
    "Stop jobs for good: each JOB, or all that are chosen; running jobs may save first."
    "\n\n\b\noptsched cancel train-7\noptsched cancel --name 'sweep-*' --state waiting",
)
hold = _command(
    "hold",
    "Keep jobs from running until they are released: each JOB, or all that are chosen; running "
    "jobs save and stop.",
)
release = _command(
    "release", "Let held jobs run again, from where they saved: each JOB, or all that are chosen."
)


requeue = _command(
    "requeue",
    "Run jobs again from their last checkpoint: each JOB, finished or running, or all that are "
    "chosen; running jobs save and stop first."
    "\n\n\b\noptsched requeue train-7\noptsched requeue --array sweep --state failed,timeout",
)


@click.command("change")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@option("--gpus N|MIN-MAX", "Number of GPUs, or a range; while it waits.", type=gpu_count)
@time_option("--time TIME", "Expected run time; while it waits.", "duration_s")
@option("--begin WHEN", "Start no earlier; while it waits.", "begin_s", type=deadline)
@option("--weight X", "Cost of its waiting.", type=click.FloatRange(0))
@option("--priority N", "Its priority.", type=int)
@option("--deadline WHEN", "Deadline: 2h (from now), 18:00 or a date.", "deadline_s", type=deadline)
@time_option("--time-limit TIME", "Stop it once it has run so long in all.", "limit_s")
@count_option("--retries N", "Restart it up to N times if it fails.", least=0, most=1000)
@answers
@asks_controller
def change(client: Client, jobs: tuple[str, ...], out: Out, **asked: Any) -> int:
    """Change what each JOB asks for; what no option names stays as it is.

    \b
    optsched change train-7 --weight 2 --time-limit 8h
    """
    body = {name: value for name, value in asked.items() if value is not None}
    if not body:
        raise InputError("name what to change, such as --weight 2")
    return _each(client, "change", jobs, out, body)


@click.command("signal")
@click.argument("job")
@click.argument("signal", metavar="SIGNAL")
@answers
@asks_controller
def signal(client: Client, job: str, signal: str, out: Out) -> int:
    """Send SIGNAL, as USR1, to the command of the running JOB, on all its nodes.

    \b
    optsched signal train-7 USR1
    """
    answer = client.post(client.job_path(job, "signal"), {"signal": signal.upper()})
    out.answer(lambda: answer, lambda: [f"{job} gets {signal.upper()}"])
    return 0


@click.command("clear")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@answers
@asks_controller
def clear(client: Client, jobs: tuple[str, ...], out: Out) -> int:
    """Confirm that nothing is left of each JOB's attempt, which is lost or cannot be ended.

    Look on its nodes first: what it held is given to others, and the job runs again unless it was
    cancelled. Only administrators can do this while the attempt may still be running as far as the
    controller can know.
    """
    return _each(client, "clear", jobs, out)
