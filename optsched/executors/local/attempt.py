"""One attempt as the executor knows it: its supervisors, and what its files say by now."""

import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..attempts.attempt import AttemptByNode
from ..attempts.folder import RESTARTED, SUPERVISOR_KILLED
from ..base import AttemptKey, AttemptState, Record
from ..supervision import processes, records

KILL_NOW, LOOK = signal.SIGQUIT, signal.SIGUSR2
"""What supervisors understand."""
SHIM = str(Path(records.__file__).with_name("shim.py"))
NO_SUPERVISOR = "its supervisor could not start"


class Attempt(AttemptByNode[None]):
    """An attempt that is a supervisor of this host for each of its nodes."""

    failed_in = "failed.json"

    def __init__(self, attempts: Path, key: AttemptKey, boot: str) -> None:
        super().__init__(attempts, key)
        self.boot = boot
        self._pidfds: dict[str, int] = {}

    # ----------------------------------------------------------------------------------------------
    # what it holds

    def own(self, what: str) -> list[Any]:
        """Return GPU ids (`gpu_ids`) or cores (`cores`) that are its own until it has ended."""
        return [item for node in self.held() for item in node[what] or ()]

    def pidfds(self) -> list[int]:
        """Return descriptors that become readable when a supervisor ends."""
        return list(self._pidfds.values())

    def close(self) -> None:
        """Let go of the descriptors."""
        for descriptor in self._pidfds.values():
            os.close(descriptor)
        self._pidfds.clear()

    # ----------------------------------------------------------------------------------------------
    # to act

    def spawn(self) -> list[int]:
        """Start a supervisor for each node that never had one, unless it is to end; their process
        ids, to be reaped."""
        made: list[int] = []
        if not self.may_start() or self.folder.spec["boot"] != self.boot:
            return made
        for node in self.folder.nodes:
            name = node["name"]
            if name in self._pidfds or self.began(name) or self.ending(name):
                continue
            try:
                pid = _spawn_shim(str(self.folder.path / name), self.folder.output_folder(node))
            except OSError as error:
                self._fail(name, f"{NO_SUPERVISOR}: {error.strerror}")
                break
            made.append(pid)
            with suppress(OSError):  # without a descriptor it is found by its files
                self._pidfds[name] = os.pidfd_open(pid)
        return made

    def _fail(self, name: str, reason: str) -> None:
        """Say that nothing runs on a node any more, and have the rest of the gang end."""
        self.end_node(name, reason)
        with suppress(OSError):
            records.write_first(self.folder.path / self.failed_in, {"node": name, "status": None})
        self.signal(LOOK)

    def supervisors(self) -> list[int]:
        """Return the process ids of supervisors that run."""
        began = [self.began(node["name"]) for node in self.folder.nodes]
        ours = [_shim(begun) for begun in began if begun is not None and begun["boot"] == self.boot]
        return [shim[0] for shim in ours if processes.alive(shim)]

    def signal(self, number: int) -> None:
        """Send a signal to each supervisor that runs."""
        for node in self.folder.nodes:
            begun = self.began(node["name"])
            if begun is not None and begun["boot"] == self.boot:
                processes.send(_shim(begun), number)

    # ----------------------------------------------------------------------------------------------
    # to see

    def until_s(self, grace_s: float | None) -> float | None:
        """Return when it is ended by force: its supervisors have the clock of this host."""
        return 0.0 if grace_s is None else time.monotonic() + grace_s

    def given(self, name: str) -> Record | None:
        """Return the record that has the GPUs which it was given."""
        return next(node for node in self.folder.nodes if node["name"] == name)

    def look_at(self, rank: int, node: Record, seen: None) -> AttemptState:
        """Return where it is on one node, by its supervisor."""
        name, gone = node["name"], False
        if name in self._endings:
            return AttemptState.ENDED
        descriptor = self._pidfds.get(name)
        if descriptor is not None:
            if not _readable(descriptor):
                return self.alive_at(name)
            os.close(self._pidfds.pop(name))
            gone = True
        if self.ending(name):
            return AttemptState.ENDED
        begun = self.began(name)
        if begun is not None and begun["boot"] == self.boot:
            adopted = processes.open_pidfd(_shim(begun))
            if adopted is not None:
                self._pidfds[name] = adopted
                return self.alive_at(name)
        if self.ending(name):  # its supervisor is seen gone: now none will be written any more
            return AttemptState.ENDED
        with self.folder.locked(name) as alone:
            if not alone:  # one that does not say yet who it is
                return AttemptState.STARTING
            return self._look_unsupervised(node, begun, gone)

    def _look_unsupervised(self, node: Record, begun: Record | None, gone: bool) -> AttemptState:
        """Return the state where no supervisor is there, none said how it ended, and none can come
        while we look."""
        name = node["name"]
        if self.folder.spec["boot"] != self.boot:
            self.end_node(name, RESTARTED)
        elif begun is not None:
            if not self.folder.kill_leftovers(node, _shim(begun)):
                return AttemptState.RUNNING
            self._fail(name, SUPERVISOR_KILLED)
        elif self.stop_record() is not None or self.failed() is not None:
            self.end_node(name, None)
        elif gone:
            self._fail(name, f"{NO_SUPERVISOR}; its standard error may say why")
        else:
            return (
                AttemptState.STARTING
            )  # whoever was to start it was stopped before: start it again, or kill it
        return AttemptState.ENDED


def _shim(begun: Record) -> processes.Identity:
    pid, start = begun["shim"]
    return int(pid), int(start)


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _spawn_shim(folder: str, output: str) -> int:
    log = (os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-S", "-E", SHIM, folder],
        {"PATH": os.defpath},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, f"{output}/stderr", *log),
            (os.POSIX_SPAWN_DUP2, 2, 1),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[
            number
            for number in signal.valid_signals()
            if number not in (signal.SIGKILL, signal.SIGSTOP)
        ],
    )
