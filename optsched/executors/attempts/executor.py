"""What executors have in common that keep each attempt in a folder which all nodes see: what is
recorded before anything is done, what is done once only, and how an attempt is told to end."""

import os
import shlex
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...errors import InputError
from ..base import (
    KEY,
    AttemptKey,
    AttemptState,
    Beside,
    NoAnswerError,
    NodeStatus,
    Observation,
    Order,
    RefusedError,
)
from ..supervision import processes, records
from .attempt import FollowedAttempt
from .folder import AttemptFolder, folder_mode, keys

Attempt = TypeVar("Attempt", bound=FollowedAttempt[Any])


class AttemptExecutor(ABC, Generic[Attempt]):
    """An executor over the folders of its attempts.

    A subclass says how an attempt is described (`specification`) and submitted (`submit`), and what
    its manager says (`refresh`, which keeps it as `_seen`); it may tell nodes sooner than they
    would find out (`hasten`) and tidy up behind an attempt (`see_to`). All of these are called with
    the lock held. What an attempt is to do is on disk before anybody is told, so that whatever is
    interrupted can be done again.
    """

    name: str
    title: str
    gives_records = False
    """Whether supervisors run as the user of the job, and are given what they read and write."""
    _seen: Any = None

    def __init__(self, folder: Path, poll_s: float) -> None:
        """Take `folder` and the attempts that go on there. Raises InputError where another process
        has it, or it cannot be used."""
        self.poll_s = poll_s
        self._attempts_folder, self._lock_fd = take(folder)
        self._lock = threading.RLock()
        self._woken = threading.Event()
        try:
            self.prepare(folder.absolute())
            self._attempts = {key: self.follow(key) for key in keys(self._attempts_folder)}
        except OSError as error:
            os.close(self._lock_fd)
            raise unusable(folder, error) from error
        except InputError:
            os.close(self._lock_fd)
            raise

    # ----------------------------------------------------------------------------------------------
    # what a subclass says

    def prepare(self, folder: Path) -> None:
        """Put below the `folder` what nodes need. Raises OSError, InputError."""

    @abstractmethod
    def follow(self, key: AttemptKey) -> Attempt:
        """Return what follows an attempt from its folder."""

    @abstractmethod
    def specification(self, order: Order, folder: AttemptFolder) -> dict[str, Any]:
        """Return the record of an attempt to be started. Raises RefusedError, NoAnswerError."""

    @abstractmethod
    def submit(self, attempt: Attempt, fresh: bool) -> None:
        """Have what is missing of an attempt started that is not to end; unless it is `fresh` some
        of it may have been started before. Raises RefusedError, NoAnswerError."""

    def used_gpus(self) -> Counter[str]:
        """Return the GPUs that attempts hold which have not ended, by node."""
        used = Counter[str]()
        for attempt in self._attempts.values():
            used.update({node["name"]: node["gpus"] for node in attempt.held()})
        return used

    @abstractmethod
    def refresh(self) -> None:
        """Ask the manager, unless what it said is young. Raises NoAnswerError."""

    def look(self, attempt: Attempt) -> Observation:
        """Return what is seen of an attempt, by what the manager said last."""
        return attempt.look(self._seen)

    def hasten(self, attempt: Attempt) -> None:
        """Tell the supervisors of an attempt that it is to end, which they would find by
        themselves."""

    def see_to(self, attempt: Attempt, seen: Observation) -> None:
        """Do what follows of what has just been seen."""

    def enter(self, attempt: Attempt, rank: int, inside: Sequence[str], terminal: bool) -> Beside:
        """Return how to start a shell on one node of an attempt: `inside` are the words before a
        command there that give it the attempt's directory and variables. Raises RefusedError."""
        name, uid = attempt.names[rank], attempt.uid
        raise RefusedError(
            f"the executor {self.name} has no way into its nodes; log in to {name} as user {uid} "
            f"and run: {shlex.join(inside)} bash"
        )

    def beside_program(self) -> tuple[str, Path]:
        """Return the Python of the nodes, and where they have the file `beside.py`."""
        return sys.executable, Path(processes.__file__).with_name("beside.py")

    # ----------------------------------------------------------------------------------------------
    # what the controller asks

    def inventory(self) -> tuple[NodeStatus, ...]:
        """Return all nodes, in a fixed order: those of what the manager says, unless a subclass
        knows better. Raises NoAnswerError."""
        with self._lock:
            self.refresh()
            return tuple(node.status for node in self._seen.nodes.values())

    def start(self, order: Order) -> None:
        """Start an attempt; nothing if it was ever started or killed. Raises RefusedError,
        NoAnswerError."""
        if not KEY.fullmatch(str(order.key)):
            raise RefusedError(f"{str(order.key)!r} is not the name of an attempt")
        with self._lock:
            attempt = self._attempts.get(order.key)
            if attempt is None:
                self.submit(self._record(order), fresh=True)
            elif attempt.may_start():
                self.submit(attempt, fresh=False)

    def _record(self, order: Order) -> Attempt:
        attempt = self.follow(order.key)
        spec = self.specification(order, attempt.folder)
        try:
            attempt.folder.prepare(spec)
            if self.gives_records and spec["user"] is not None:
                attempt.folder.give(spec["user"])
        except OSError as error:
            attempt.remove(outputs=True)
            raise RefusedError(
                f"its record cannot be written below {self._attempts_folder}: {error.strerror}"
            ) from error
        self._attempts[order.key] = attempt
        return attempt

    def drop(self, attempt: Attempt) -> None:
        """Forget an attempt nothing of which was started."""
        attempt.remove(outputs=True)
        del self._attempts[attempt.key]

    def going(self, key: AttemptKey) -> Attempt | None:
        """Return an attempt that is known and has not ended."""
        attempt = self._attempts.get(key)
        return None if attempt is None or attempt.ended is not None else attempt

    def checkpoint_stop(self, key: AttemptKey, grace_s: float) -> None:
        """Have the supervisors of an attempt send SIGTERM, and SIGKILL to all that is left after
        `grace_s`.

        They keep the deadline, whether or not this process and the manager still answer. Raises
        NoAnswerError where it cannot be recorded.
        """
        with self._lock:
            attempt = self.going(key)
            if attempt is None or attempt.stop_record() is not None:
                return
            self._write_stop(attempt, grace_s)
            self.hasten(attempt)

    def signal(self, key: AttemptKey, number: int) -> None:
        """Have the supervisors of an attempt send a signal to its commands. Raises RefusedError,
        NoAnswerError."""
        with self._lock:
            attempt = self.going(key)
            if attempt is None:
                raise RefusedError(f"{key} does not run")
            try:
                attempt.folder.write_signal(number)
            except OSError as error:
                raise NoAnswerError(f"a signal cannot be recorded: {error.strerror}") from error

    def shell(self, key: AttemptKey, terminal: bool, node: str | None = None) -> Beside:
        """Return how to start a shell on a node of an attempt, None for the first. Raises
        RefusedError."""
        with self._lock:
            attempt = self.going(key)
            if attempt is None or not attempt.folder.nodes:
                raise RefusedError(f"{key} does not run")
            python, program = self.beside_program()
            rank = rank_of(attempt.names, node)
            marks = processes.marks(str(attempt.folder.path), attempt.names[rank])
            directory = str(attempt.folder.spec["directory"])
            inside = (python, "-S", "-E", str(program), directory, *marks, "--")
            return self.enter(attempt, rank, inside, terminal)

    def kill(self, key: AttemptKey) -> None:
        """Send SIGKILL to all of an attempt; one that was never started never will be. Raises
        NoAnswerError."""
        if not KEY.fullmatch(str(key)):
            raise InputError(f"{str(key)!r} is not the name of an attempt")
        with self._lock:
            attempt = self._attempts.get(key) or self.follow(key)
            if attempt.ended is not None:
                return
            stop = attempt.stop_record()
            if stop is None or stop["grace_s"] is not None:
                self._write_stop(attempt)
            self._attempts[key] = attempt
            self.hasten(attempt)

    def _write_stop(self, attempt: Attempt, grace_s: float | None = None) -> None:
        try:
            attempt.write_stop(grace_s)
        except OSError as error:
            raise NoAnswerError(
                f"that {attempt.key} is to stop cannot be recorded: {error.strerror}"
            ) from error

    def observe(self) -> tuple[Observation, ...]:
        """Return all attempts that were started or killed and are not forgotten. Raises
        NoAnswerError."""
        with self._lock:
            self.refresh()
            observations = []
            for attempt in list(self._attempts.values()):
                observations.append(self.look(attempt))
                self.see_to(attempt, observations[-1])
            return tuple(observations)

    def forget(self, key: AttemptKey) -> None:
        """Remove what is kept of an attempt that has ended, except what it printed. Raises
        NoAnswerError if it has not."""
        with self._lock:
            attempt = self._attempts.get(key)
            if attempt is None:
                return
            if attempt.ended is None:
                self.refresh()
            if self.look(attempt).state is not AttemptState.ENDED:
                raise NoAnswerError(f"{key} has not ended")
            attempt.remove(outputs=False)
            del self._attempts[key]

    def changes(self, timeout_s: float) -> None:
        """Wait until it is time to ask again, or `wake` is called."""
        self._woken.wait(max(0.0, min(timeout_s, self.poll_s)))
        self._woken.clear()

    def wake(self) -> None:
        """End `changes` in another thread, or the next one."""
        self._woken.set()

    def close(self) -> None:
        """Let go of the folder; attempts go on."""
        with self._lock:
            os.close(self._lock_fd)
            self._attempts.clear()
        self.wake()


def rank_of(names: Sequence[str], node: str | None) -> int:
    """Return the place of a node among those of an attempt, 0 for none. Raises RefusedError."""
    if node is not None and node not in names:
        raise RefusedError(f"it runs on {', '.join(names)}, not on {node}")
    return 0 if node is None else names.index(node)


def take(folder: Path) -> tuple[Path, int]:
    """Take `folder/attempts`, made where it is not there; whoever lets go of it closes the
    descriptor that is returned too. NFS tells other hosts of locks on files, not on folders.

    Raises InputError where it cannot be used or another process has it.
    """
    attempts, lock_fd, flags = folder.absolute() / "attempts", None, os.O_RDWR | os.O_CREAT
    try:
        attempts.mkdir(parents=True, exist_ok=True, mode=folder_mode())
        attempts.chmod(folder_mode())  # whatever the umask was
        lock_fd = os.open(f"{attempts}.lock", flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        taken = records.lock(lock_fd)
    except OSError as error:
        if lock_fd is not None:
            os.close(lock_fd)
        raise unusable(folder, error) from error
    if not taken:
        os.close(lock_fd)
        raise InputError(
            f"{folder} is in use by another controller; stop that or name another folder"
        )
    return attempts, lock_fd


def unusable(folder: Path, error: OSError) -> InputError:
    """Return that `folder` cannot be used."""
    return InputError(
        f"{folder} cannot be used: {error.strerror}; name a folder that can be written"
    )
