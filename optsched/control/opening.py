"""A controller over a cluster.toml: its folder, lock, journal and executor."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import __version__
from ..errors import InputError
from ..executors.opening import open_executor
from ..executors.supervision import records
from ..plugins import registry
from .clock import SteadyClock
from .controller import Controller
from .journal.disk import check_journal_disk
from .journal.events import ControllerStarted, Noted
from .journal.journal import Journal
from .journal.log import BugLog
from .learning import Learning
from .notices import Notices
from .settings import Settings

LOCK_S = 2.0
"""A process that is being spawned holds copies of its parent's locks for a moment."""


@contextmanager
def opened(settings: Settings) -> Iterator[Controller]:
    """Yield the controller of `settings.state`, alone there until it is left; what it started goes
    on after that.

    Raises InputError where the folder cannot be used or another controller has it, JournalError
    where the journal is damaged.
    """
    registry.executor(settings.executor)  # an unknown one is refused before anything is written
    check_journal_disk(settings.state)
    fresh, controller = not settings.state.exists(), None
    with alone(settings.state):
        _close_to_others(settings.attempts, "checkpoints", 0o711)
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
                    settings.state / "profiles",
                    controller.state,
                    lambda text: controller.record(Noted(text=text)),
                    settings.runs,
                )
                controller.learning = learning
                controller.listeners.append(learning.heard)
                controller.on_reload.append(learning.reload)
                controller.notices = notices = Notices(settings, controller.state)
                controller.listeners.append(notices.heard)
                controller.on_reload.append(notices.reload)
                journal.keep_room()
                controller.record(ControllerStarted(version=__version__, pid=os.getpid()))
                yield controller
            finally:
                journal.close()
                if controller is not None and controller.notices is not None:
                    controller.notices.close()
        finally:
            (executor if controller is None else controller.executor).close()


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Keep other controllers from the folder `state`, which is made where it is not there.

    Raises InputError where it cannot be used or a controller has it.
    """
    _check_owner(state)
    _close_to_others(state, "profiles", 0o700)
    try:
        lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(state, error) from None
    try:
        try:
            is_ours = records.lock(lock, LOCK_S)
        except OSError as error:
            raise _unusable(state, error) from None
        if not is_ours:
            raise InputError(f"{state}: another controller runs on it; stop that one first")
        yield
    finally:
        os.close(lock)


def _close_to_others(folder: Path, name: str, mode: int) -> None:
    """Make `folder`, in which nobody else sees names, and the folder `name` in it with its mode.

    Users of jobs pass through the shared folder, its `attempts` and `checkpoints` to what is theirs
    there. What an earlier version left open is closed. Raises InputError.
    """
    try:
        fresh = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True, mode=0o711)
        about = folder.stat()
        if fresh or (about.st_mode & 0o066 and about.st_uid == os.geteuid()):
            folder.chmod(0o711 if fresh else stat.S_IMODE(about.st_mode) & 0o711)
        (folder / name).mkdir(exist_ok=True, mode=mode)
        (folder / name).chmod(mode)
    except OSError as error:
        raise _unusable(folder, error) from None


def _check_owner(folder: Path) -> None:
    """Raise InputError where another user owns `folder`, which need not exist, and the controller
    is root's: the journal says what is run as whom, and its owner could put another one there."""
    try:
        owner = folder.stat().st_uid
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(folder, error) from None
    if os.geteuid() == 0 and owner != 0:
        raise InputError(
            f"state: {folder} belongs to user {owner}, who could put another journal there, by "
            f"which root runs what that says; name a folder of root's, or run: chown root {folder}"
        )


def _unusable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"{folder}: cannot be used: {error.strerror}; name a folder that can be written"
    )
