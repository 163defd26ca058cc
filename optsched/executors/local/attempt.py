"""One attempt as the executor knows it: its supervisors, and what its files say by now."""

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..base import SAVED_AND_STOPPED, AttemptKey, AttemptState, Observation
from . import processes, records
from .attempt_folder import NEVER_STARTED, RESTARTED, SUPERVISOR_KILLED, AttemptFolder

KILL_NOW, LOOK = signal.SIGQUIT, signal.SIGUSR2
"""What supervisors understand."""
SHIM = str(Path(__file__).with_name("shim.py"))
NO_SUPERVISOR = "its supervisor could not start"
Ending = dict[str, Any]


class Attempt:
    """Follows one attempt from its files; cheap to ask again and again."""

    def __init__(self, attempts: Path, key: AttemptKey, boot: str) -> None:
        self.key, self.boot = key, boot
        self.folder = AttemptFolder(attempts, key)
        self.ended: Observation | None = None
        self._pidfds: dict[str, int] = {}
        self._begun: dict[str, dict[str, Any]] = {}
        self._endings: dict[str, Ending] = {}

    # ----------------------------------------------------------------------------------------------
    # what it holds

    def held(self, what: str) -> list[Any]:
        """GPU ids (`gpu_ids`) or cores (`cores`) that are its own until it has ended."""
        if self.ended is not None:
            return []
        return [one for node in self.folder.nodes for one in node[what] or ()]

    def pidfds(self) -> list[int]:
        """Descriptors that become readable when a supervisor ends."""
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
        spec = self.folder.spec
        if self.ended is not None or spec is None or spec["boot"] != self.boot:
            return made
        if self.folder.stop_record() is not None or self.folder.failed() is not None:
            return made
        for node in self.folder.nodes:
            name = node["name"]
            if (
                name in self._pidfds
                or self.folder.pid(name) is not None
                or self.folder.exit(name) is not None
            ):
                continue
            try:
                pid = _spawn_shim(str(self.folder.path / name), self.folder.output_folder(node))
            except OSError as error:
                self._end(name, f"{NO_SUPERVISOR}: {error.strerror}", None)
                self._fail_gang(name)
                break
            made.append(pid)
            with suppress(OSError):  # without a descriptor it is found by its files
                self._pidfds[name] = os.pidfd_open(pid)
        return made

    def _fail_gang(self, name: str) -> None:
        with suppress(OSError):
            records.write_first(
                str(self.folder.path / "failed.json"), {"node": name, "status": None}
            )
        self.signal(LOOK)

    def signal(self, number: int) -> None:
        """Send a signal to each supervisor that runs."""
        for node in self.folder.nodes:
            begun = self._begun.get(node["name"]) or self.folder.pid(node["name"])
            if begun is not None and begun["boot"] == self.boot:
                processes.send(_shim(begun), number)

    # ----------------------------------------------------------------------------------------------
    # to see

    def look(self) -> Observation:
        """What is seen of it now."""
        try:
            return self.ended or self._look()
        except OSError as error:
            reason = f"its files cannot be read: {error.strerror}"
            return Observation(key=self.key, state=AttemptState.UNREACHABLE, reason=reason)

    def _look(self) -> Observation:
        if self.folder.damaged:
            reason = f"its record {self.folder.path / 'spec.json'} is damaged"
            return Observation(key=self.key, state=AttemptState.UNREACHABLE, reason=reason)
        if not self.folder.nodes:
            self.ended = Observation(key=self.key, state=AttemptState.ENDED, reason=NEVER_STARTED)
            return self.ended
        states = [self._look_at(node) for node in self.folder.nodes]
        if all(state is AttemptState.ENDED for state in states):
            self.ended = self._summary(AttemptState.ENDED)
            return self.ended
        starting = AttemptState.STARTING in states
        return self._summary(AttemptState.STARTING if starting else AttemptState.RUNNING)

    def _look_at(self, node: dict[str, Any]) -> AttemptState:
        name, gone = node["name"], False
        if name in self._endings:
            return AttemptState.ENDED
        descriptor = self._pidfds.get(name)
        if descriptor is not None:
            if not _readable(descriptor):
                return self._seen_alive(name)
            os.close(self._pidfds.pop(name))
            gone = True
        if self._seen_ended(name):
            return AttemptState.ENDED
        begun = self._begun.get(name) or self.folder.pid(name)
        if begun is not None and begun["boot"] == self.boot:
            adopted = processes.open_pidfd(_shim(begun))
            if adopted is not None:
                self._pidfds[name] = adopted
                return self._seen_alive(name)
        if self._seen_ended(name):  # its supervisor is seen gone: now none will be written any more
            return AttemptState.ENDED
        with self.folder.locked(name) as alone:
            if not alone:  # one that does not say yet who it is
                return AttemptState.STARTING
            return self._look_unsupervised(node, begun, gone)

    def _seen_ended(self, name: str) -> bool:
        ending = self.folder.exit(name)
        if ending is not None:
            self._endings[name] = ending
        return ending is not None

    def _seen_alive(self, name: str) -> AttemptState:
        if name not in self._begun:
            begun = self.folder.pid(name)
            if begun is None:
                return AttemptState.STARTING
            self._begun[name] = begun
        return AttemptState.RUNNING

    def _look_unsupervised(
        self, node: dict[str, Any], begun: dict[str, Any] | None, gone: bool
    ) -> AttemptState:
        """No supervisor is there, none said how it ended, and none can come while we look."""
        name = node["name"]
        spec = self.folder.spec or {}
        if spec["boot"] != self.boot:
            self._end(name, RESTARTED, begun)
        elif begun is not None:
            if not self.folder.kill_leftovers(node, _shim(begun)):
                return AttemptState.RUNNING
            self._end(name, SUPERVISOR_KILLED, begun)
            self._fail_gang(name)
        elif self.folder.stop_record() is not None or self.folder.failed() is not None:
            self._end(name, None if gone or len(self.folder.nodes) > 1 else NEVER_STARTED, None)
        elif gone:
            self._end(name, f"{NO_SUPERVISOR}; its standard error may say why", None)
            self._fail_gang(name)
        else:
            return (
                AttemptState.STARTING
            )  # whoever was to start it was stopped before: start it again, or kill it
        return AttemptState.ENDED

    def _end(self, name: str, reason: str | None, begun: dict[str, Any] | None) -> Ending:
        started_s = None if begun is None else begun["started_s"]
        with suppress(OSError):  # it is seen again as it is seen now
            self.folder.write_exit(name, reason, started_s)
        self._endings[name] = self.folder.exit(name) or {
            "status": None,
            "reason": reason,
            "started_s": started_s,
        }
        return self._endings[name]

    def _summary(self, state: AttemptState) -> Observation:
        nodes = self.folder.nodes
        records_of = [
            self._endings.get(node["name"]) or self._begun.get(node["name"]) or {} for node in nodes
        ]
        starts = [record.get("started_s") for record in records_of]
        common = Observation(
            key=self.key,
            state=state,
            gpu_ids={node["name"]: tuple(node["gpu_ids"]) for node in nodes},
            started_s=max((start for start in starts if start is not None), default=None),
            progress=self.folder.progress(),
            output=self.folder.output(),
        )
        return common if state is not AttemptState.ENDED else self._with_ending(common)

    def _with_ending(self, common: Observation) -> Observation:
        endings = {node["name"]: self._endings[node["name"]] for node in self.folder.nodes}
        failed = self.folder.failed()
        status = exit_status([ending["status"] for ending in endings.values()])
        reasons = [
            (name, ending["reason"])
            for name, ending in endings.items()
            if ending["reason"] is not None
        ]
        if failed is not None:
            name, status = failed["node"], failed["status"]
            reasons = [
                (name, endings[name]["reason"] or f"its command ended with exit status {status}")
            ]
        told = (
            None
            if not reasons
            else f"on {reasons[0][0]} {reasons[0][1]}"
            if len(endings) > 1
            else reasons[0][1]
        )
        ends = [
            ending["ended_s"] for ending in endings.values() if ending.get("ended_s") is not None
        ]
        used = [ending for ending in endings.values() if ending.get("cpu_s") is not None]
        return Observation(
            key=common.key,
            state=AttemptState.ENDED,
            gpu_ids=common.gpu_ids,
            started_s=common.started_s,
            ended_s=max(ends, default=None),
            exit_status=status,
            reason=told,
            progress=common.progress,
            output=common.output,
            peak_memory_gib=sum(ending["peak_memory_gib"] for ending in used) if used else None,
            cpu_s=sum(ending["cpu_s"] for ending in used) if used else None,
        )


def exit_status(statuses: list[int | None]) -> int | None:
    """That of a gang nothing of which failed by itself: saved if one command saved, else the first
    not 0, else 0."""
    if SAVED_AND_STOPPED in statuses:
        return SAVED_AND_STOPPED
    return next((status for status in statuses if status != 0), 0)


def _shim(begun: dict[str, Any]) -> processes.Identity:
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
