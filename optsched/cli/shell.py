"""`optsched shell`: a shell beside a running job."""

import os
import pwd
import sys
from typing import Any

import click

from ..errors import InputError
from .parts.arguments import option
from .parts.controller import Client, asks_controller

TERMINAL = ("TERM", "COLORTERM", "LINES", "COLUMNS")
"""Variables of this terminal that the shell gets besides those of the job."""


@click.command("shell", context_settings={"allow_interspersed_args": False})
@option("--node NODE", "On this node of the job (default: its first).")
@click.argument("job")
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@asks_controller
def command(client: Client, node: str | None, job: str, words: tuple[str, ...]) -> int:
    """Start a shell, or COMMAND, beside the running JOB: on one of its nodes, in its directory,
    with its variables, and with its GPUs visible. It runs as the job's user and holds nothing.

    \b
    optsched shell train-7
    optsched shell --node gpu-3 train-7 -- nvidia-smi
    """
    terminal = os.isatty(0) and sys.stdout.isatty()
    beside = client.get(client.job_path(job, "shell"), terminal=terminal, node=node)
    enter = beside["enter"]
    argv = [*enter, *(words[words[:1] == ("--",) :] or beside["argv"])]
    environment = _environment(beside)
    _become(beside["uid"])
    try:
        if not enter:
            os.chdir(beside["directory"])
        os.dup2(sys.stdout.fileno(), 1)  # commands keep it for themselves: see `own_stdout`
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        raise InputError(f"{error.filename or argv[0]}: {error.strerror}") from None


def _environment(beside: dict[str, Any]) -> dict[str, str]:
    """Return what the process gets that is started here: one which enters a job elsewhere has our
    own variables, but for those of a job in which we are, and none of root's as somebody else."""
    own = {name: os.environ[name] for name in TERMINAL if name in os.environ}
    if beside["enter"] and beside["uid"] in (None, os.geteuid()):
        own = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
    elif beside["enter"]:
        user = _user(beside["uid"])
        own |= {"PATH": os.environ.get("PATH", os.defpath), "HOME": user.pw_dir}
        own |= {"USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell}
    return {**own, **beside["environment"]}


def _become(uid: int | None) -> None:
    """Be the user of the job. Raises InputError where that is somebody else."""
    if uid in (None, os.geteuid()):
        return
    user = _user(uid)
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def _user(uid: int) -> pwd.struct_passwd:
    """Return the user whom root is to be. Raises InputError for others."""
    if os.geteuid() != 0:
        raise InputError(
            f"the job runs as user {uid}; only that user, or root, starts a shell there"
        )
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise InputError(f"user {uid} does not exist on this host") from None
