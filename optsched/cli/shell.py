"""`optsched shell`: a shell beside a running job."""

import os
import pwd
import sys
from typing import Any

import click

from ..errors import InputError
from .parts.controller import Client, asks_controller

TERMINAL = ("TERM", "COLORTERM", "LINES", "COLUMNS")
"""Variables of this terminal that the shell gets besides those of the job."""


@click.command("shell", context_settings={"allow_interspersed_args": False})
@click.argument("job")
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@asks_controller
def command(client: Client, job: str, words: tuple[str, ...]) -> int:
    """Start a shell, or COMMAND, beside the running JOB: in its directory, with its variables, and
    with its GPUs visible. It runs as the job's user, holds nothing, and is not ended with the job.

    \b
    optsched shell train-7
    optsched shell train-7 -- nvidia-smi
    """
    beside = client.get(client.job_path(job, "shell"))
    argv = [*(words[words[:1] == ("--",) :] or beside["argv"])]
    _become(beside["uid"])
    try:
        os.chdir(beside["directory"])
        os.dup2(sys.stdout.fileno(), 1)  # commands keep it for themselves: see `own_stdout`
        os.execvpe(argv[0], argv, _environment(beside))
    except OSError as error:
        raise InputError(f"{error.filename or argv[0]}: {error.strerror}") from None


def _environment(beside: dict[str, Any]) -> dict[str, str]:
    own = {name: os.environ[name] for name in TERMINAL if name in os.environ}
    return {**own, **beside["environment"]}


def _become(uid: int) -> None:
    """Be the user of the job. Raises InputError where that is somebody else."""
    if os.geteuid() == uid:
        return
    if os.geteuid() != 0:
        raise InputError(
            f"the job runs as user {uid}; only that user, or root, starts a shell there"
        )
    user = pwd.getpwuid(uid)
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(uid)
