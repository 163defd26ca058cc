"""`optsched shell`: a shell beside a running job."""

import os
import pwd
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

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
    argv = [*beside["enter"], *(words[words[:1] == ("--",) :] or beside["argv"])]
    start = partial(_start, beside, argv)
    if terminal and beside["uid"] not in (None, os.geteuid()):
        return _relayed(start)
    os.dup2(sys.stdout.fileno(), 1)  # commands keep it for themselves: see `own_stdout`
    return start()


def _start(beside: dict[str, Any], argv: list[str]) -> NoReturn:
    """Become the shell. Raises InputError where that cannot be."""
    environment = _environment(beside)
    _become(beside["uid"])
    try:
        if not beside["enter"]:
            os.chdir(beside["directory"])
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        raise InputError(f"{error.filename or argv[0]}: {error.strerror}") from None


def _relayed(start: Callable[[], NoReturn]) -> int:
    """Have a process `start` on a terminal of its own, which is copied to ours; return its exit
    status. On ours a user's process could type what root's own shell runs next (TIOCSTI)."""
    import fcntl
    import pty
    import signal
    import termios
    import tty

    from ..executors.supervision.processes import shell_status

    child, terminal = pty.fork()
    if child == 0:
        start()

    def resize(*_: object) -> None:
        size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)

    resize()
    signal.signal(signal.SIGWINCH, resize)
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        _copy(terminal, sys.stdout.fileno())
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        os.close(terminal)
    return shell_status(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _copy(terminal: int, shown: int) -> None:
    """Pass on what is typed and what is printed, until nobody prints any more."""
    import select

    heard = [0, terminal]
    while True:
        for ready in select.select(heard, (), ())[0]:
            try:
                text = os.read(ready, 1 << 16)
            except OSError:  # so a terminal says that nobody has it open
                text = b""
            if not text and ready == terminal:
                return
            if not text:
                heard.remove(0)
            while text:
                text = text[os.write(shown if ready == terminal else terminal, text) :]


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
