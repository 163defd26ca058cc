"""Jobs as processes of this host, which go on whatever becomes of the controller."""

import os
import select
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ...errors import InputError
from ..base import KEY, AttemptKey, NoAnswerError, NodeStatus, Observation, Order, RefusedError
from . import cgroups, processes, records
from .attempt import KILL_NOW, LOOK, Attempt
from .attempt_folder import keys
from .driver import Driver
from .gpus import LocalNode, shares
from .spec import Held, specification
from .taking import take


class LocalExecutor:
    """Runs attempts below `folder`, on nodes that are all this host."""

    name = "local"
    title = "processes of this host"

    def __init__(
        self, folder: Path, nodes: Sequence[LocalNode], outputs: Path | None = None
    ) -> None:
        """Take `folder` and the attempts that go on there; what they print is kept below `outputs`,
        or there too.

        Raises InputError where the nodes cannot be had or another process has the folder.
        """
        self._outputs = outputs
        self._driver = Driver()
        self._out: dict[str, tuple[str, ...]] = {}
        known = records.read(str(folder / "gpus.json")) or {}
        try:
            self._shares = shares(nodes, self._driver, known)
            self._attempts_folder, self._mode, self._lock_fd = take(folder)
        except InputError:
            self._driver.close()
            raise
        self._real = {
            name: share.gpu_ids for name, share in self._shares.items() if not share.local.emulate
        }
        if any(self._real.values()):
            with suppress(OSError):  # then a GPU that is gone at the next start is missed there
                records.write(
                    str(folder / "gpus.json"), {name: list(ids) for name, ids in self._real.items()}
                )
        self._lock = threading.RLock()
        self._boot = processes.boot_id()
        self._groups = cgroups.parents()
        self._children: list[int] = []
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        found = keys(self._attempts_folder)
        self._attempts = {key: Attempt(self._attempts_folder, key, self._boot) for key in found}

    def inventory(self) -> tuple[NodeStatus, ...]:
        """All nodes as declared; of one whose real GPUs the driver no longer lists these are
        out."""
        listed, silent = self._driver.look() if any(self._real.values()) else ((), None)
        there = {gpu.id for gpu in listed}
        found = []
        for name, share in self._shares.items():
            ids = self._real.get(name, ())
            out = (
                tuple(gpu for gpu in ids if gpu not in there)
                if silent is None
                else self._out.get(name, ())
            )
            reason = silent if ids else None
            if reason is None and ids and len(out) == len(ids):
                reason = f"the driver no longer lists {', '.join(out)}"
            self._out[name] = out
            found.append(
                NodeStatus(node=share.local.node, usable=reason is None, reason=reason, out=out)
            )
        return tuple(found)

    def start(self, order: Order) -> None:
        """Start an attempt; nothing if one of this key was ever started or killed. Raises
        RefusedError."""
        if not KEY.fullmatch(str(order.key)):
            raise RefusedError(f"{str(order.key)!r} is no name of an attempt")
        with self._lock:
            attempt = self._attempts.get(order.key)
            if attempt is None:
                attempt = self._record(order)
            self._children += attempt.spawn()

    def _record(self, order: Order) -> Attempt:
        attempt = Attempt(self._attempts_folder, order.key, self._boot)
        others = list(self._attempts.values())
        for other in others:
            other.look()  # what has just ended holds nothing any more
        beside = None if order.beside is None else self._attempts.get(order.beside)
        if order.beside is not None and (beside is None or beside.ended is not None):
            raise RefusedError(f"{order.beside}, on whose GPUs it is to run, does not run")
        held = Held(
            gpu_ids={gpu for other in others for gpu in other.held("gpu_ids")}.union(
                *self._out.values()
            ),
            cores={core for other in others for core in other.held("cores")},
            ports={
                other.folder.spec["port"]
                for other in others
                if other.ended is None and other.folder.spec
            },
            beside=None
            if beside is None
            else {node["name"]: tuple(node["gpu_ids"]) for node in beside.folder.nodes},
        )
        spec = specification(
            order, self._shares, held, self._groups, attempt.folder, self._boot, self._outputs
        )
        try:
            attempt.folder.prepare(spec, self._mode)
        except OSError as error:
            raise RefusedError(
                f"its record cannot be written below {self._attempts_folder}: {error.strerror}"
            ) from error
        self._attempts[order.key] = attempt
        return attempt

    def checkpoint_stop(self, key: AttemptKey, grace_s: float) -> None:
        """Send SIGTERM to the attempt's process groups, and SIGKILL to all that is left after
        `grace_s`.

        Its supervisors keep the deadline, not this process. Raises NoAnswerError where it cannot be
        recorded.
        """
        with self._lock:
            attempt = self._attempts.get(key)
            if (
                attempt is None
                or attempt.ended is not None
                or attempt.folder.stop_record() is not None
            ):
                return
            overdue = f"did not stop within the {grace_s:g} s it was given, and was killed"
            self._write_stop(attempt, grace_s, overdue)
            attempt.signal(LOOK)

    def kill(self, key: AttemptKey) -> None:
        """SIGKILL to all of the attempt; one that was never started never will be. Raises
        NoAnswerError."""
        if not KEY.fullmatch(str(key)):
            raise InputError(f"{str(key)!r} is no name of an attempt")
        with self._lock:
            attempt = self._attempts.get(key) or Attempt(self._attempts_folder, key, self._boot)
            if attempt.ended is not None:
                return
            try:
                self._write_stop(attempt, None, None)
            finally:
                attempt.signal(KILL_NOW)
            self._attempts[key] = attempt

    def _write_stop(self, attempt: Attempt, grace_s: float | None, overdue: str | None) -> None:
        until_s = 0.0 if grace_s is None else time.monotonic() + grace_s
        record = {
            "asked_s": time.time(),
            "grace_s": grace_s,
            "until_monotonic_s": until_s,
            "overdue": overdue,
        }
        try:
            attempt.folder.write_stop(record, self._mode)
        except OSError as error:
            raise NoAnswerError(
                f"that {attempt.key} is to stop cannot be recorded: {error.strerror}"
            ) from error

    def observe(self) -> tuple[Observation, ...]:
        """All attempts that were started or killed and are not forgotten."""
        with self._lock:
            seen = tuple([attempt.look() for attempt in self._attempts.values()])
            self._reap()
            return seen

    def changes(self, timeout_s: float) -> None:
        """Wait until a supervisor ends, `wake` is called, or time is up: then `observe` may see
        something new."""
        with self._lock:
            watched = [
                descriptor for attempt in self._attempts.values() for descriptor in attempt.pidfds()
            ]
        poll = select.poll()
        for descriptor in (self._woken, *watched):
            poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, timeout_s) * 1000)
        with suppress(BlockingIOError):
            os.eventfd_read(self._woken)

    def wake(self) -> None:
        """End `changes` in another thread, or the next one."""
        os.eventfd_write(self._woken, 1)

    def forget(self, key: AttemptKey) -> None:
        """Remove what is kept of an attempt that has ended, except what it printed. Raises
        NoAnswerError if it has not."""
        with self._lock:
            attempt = self._attempts.get(key)
            if attempt is None:
                return
            if attempt.look().state != "ended":
                raise NoAnswerError(f"{key} has not ended")
            attempt.folder.remove(outputs=False)
            del self._attempts[key]

    def close(self) -> None:
        """Let go of the folder; attempts go on."""
        with self._lock:
            for attempt in self._attempts.values():
                attempt.close()
            self._reap()
            self._driver.close()
            for descriptor in (self._lock_fd, self._woken):
                os.close(descriptor)
            self._attempts.clear()

    def _reap(self) -> None:
        left = []
        for pid in self._children:
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    left.append(pid)
        self._children = left
