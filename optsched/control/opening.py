"""A controller over a cluster.toml: its folder, lock, journal and executor."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .. import __version__
from ..errors import InputError
from ..executors.opening import check_executor, open_executor
from .clock import SteadyClock
from .controller import Controller
from .events import ControllerStarted, Noted
from .journal import Journal
from .learning import Learning
from .log import BugLog
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
        settings.state.mkdir(parents=True, exist_ok=True, mode=0o711)
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
                controller.bug = BugLog(settings.state / "bugs.log").heard
                learning = Learning(
                    settings.state / "profiles", controller.state, lambda text: controller.record(Noted(text=text))
                )
                controller.learning = learning
                controller.listeners.append(learning.heard)
                controller.record(ControllerStarted(version=__version__, pid=os.getpid()))
                yield controller
            finally:
                journal.close()
        finally:
            executor.close()
    finally:
        os.close(lock)


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
