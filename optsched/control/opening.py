"""A controller over a cluster.toml: its folder, lock, journal and executor."""

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import __version__
from ..errors import InputError
from ..executors.opening import check_executor, open_executor
from .clock import SteadyClock
from .controller import Controller
from .events import ControllerStarted, Noted
from .journal import Journal
from .learning import Learning
from .settings import Settings

LOCK_S = 2.0
"""A process that is being spawned holds copies of its parent's locks for a moment."""


@contextmanager
def opened(settings: Settings) -> Iterator[Controller]:
    """The controller of `settings.state`, alone there until it is left; what it started goes on after that.

    Raises InputError where the folder cannot be used or another controller has it, JournalFault where the journal is
    damaged.
    """
    check_executor(settings.executor)  # before anything is written
    fresh = not settings.state.exists()
    try:
        _close_to_others(settings.state)
        lock = os.open(settings.state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(
            f"{settings.state}: cannot be used: {error.strerror}; name a folder that can be written as state"
        ) from None
    if not _locked(lock):
        os.close(lock)
        raise InputError(f"{settings.state}: another controller runs on it; stop that one first")
    try:
        try:
            executor = open_executor(settings)
        except InputError:
            if fresh:
                shutil.rmtree(settings.state, ignore_errors=True)
            raise
        try:
            journal = Journal(settings.state / "journal")
            try:
                controller = Controller(settings, executor, journal, SteadyClock(journal.last_s()))
                learning = Learning(
                    settings.state / "profiles", controller.state, lambda text: controller.record(Noted(text=text))
                )
                controller.learning = learning
                controller.listeners.append(learning.heard)
                journal.keep_room()
                controller.record(ControllerStarted(version=__version__, pid=os.getpid()))
                yield controller
            finally:
                journal.close()
        finally:
            executor.close()
    finally:
        os.close(lock)


def _close_to_others(state: Path) -> None:
    """Make the state folder, and let nobody else read it or what is the controller's alone in it.

    Users of jobs pass through `state`, `attempts` and `checkpoints` to what is theirs there, without seeing names. What
    an earlier version left open is closed. Raises OSError.
    """
    fresh = not state.exists()
    state.mkdir(parents=True, exist_ok=True, mode=0o711)
    about = state.stat()
    if fresh or (about.st_mode & 0o066 and about.st_uid == os.geteuid()):
        state.chmod(0o711 if fresh else stat.S_IMODE(about.st_mode) & 0o711)
    for name, mode in (("checkpoints", 0o711), ("profiles", 0o700)):
        (state / name).mkdir(exist_ok=True, mode=mode)
        (state / name).chmod(mode)


def _locked(descriptor: int) -> bool:
    until_s = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > until_s:
                return False
            time.sleep(0.05)
