"""Jobs as processes of this host, which go on whatever becomes of the controller."""

import os
import select
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..attempts.executor import AttemptExecutor
from ..attempts.folder import AttemptFolder
from ..base import AttemptKey, NodeStatus, Order, RefusedError
from ..supervision import cgroups, processes, records
from .attempt import KILL_NOW, LOOK, Attempt
from .driver import Driver
from .gpus import LocalNode, shares
from .spec import Held, specification


class LocalExecutor(AttemptExecutor[Attempt]):
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
        self._boot = processes.boot_id()
        self._groups = cgroups.parents()
        self._children: list[int] = []
        self._driver = Driver()
        self._out: dict[str, tuple[str, ...]] = {}
        known = records.read(str(folder / "gpus.json")) or {}
        try:
            self._shares = shares(nodes, self._driver, known)
            super().__init__(folder, poll_s=0.0)
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
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

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

    def follow(self, key: AttemptKey) -> Attempt:
        """Return what follows an attempt from its folder."""
        return Attempt(self._attempts_folder, key, self._boot)

    def specification(self, order: Order, folder: AttemptFolder) -> dict[str, Any]:
        """Return the record of an attempt to be started. Raises RefusedError."""
        others = list(self._attempts.values())
        for other in others:
            other.look(None)  # what has just ended holds nothing any more
        beside = None if order.beside is None else self._attempts.get(order.beside)
        if order.beside is not None and (beside is None or beside.ended is not None):
            raise RefusedError(f"{order.beside}, on whose GPUs it is to run, does not run")
        held = Held(
            gpu_ids={gpu for other in others for gpu in other.own("gpu_ids")}.union(
                *self._out.values()
            ),
            cores={core for other in others for core in other.own("cores")},
            ports={
                other.folder.spec["port"]
                for other in others
                if other.ended is None and other.folder.spec
            },
            beside=None
            if beside is None
            else {node["name"]: tuple(node["gpu_ids"]) for node in beside.folder.nodes},
        )
        return specification(
            order, self._shares, held, self._groups, folder, self._boot, self._outputs
        )

    def submit(self, attempt: Attempt, fresh: bool) -> None:
        """Start a supervisor for each node that never had one."""
        self._children += attempt.spawn()

    def refresh(self) -> None:
        """Take in the supervisors that have ended."""
        self._reap()

    def hasten(self, attempt: Attempt) -> None:
        """Have its supervisors look at once."""
        attempt.signal(LOOK)

    def kill(self, key: AttemptKey) -> None:
        """SIGKILL to all of an attempt, even where that cannot be recorded."""
        with self._lock:
            attempt = self._attempts.get(key)
            try:
                super().kill(key)
            finally:
                if attempt is not None and attempt.ended is None:
                    attempt.signal(KILL_NOW)

    def changes(self, timeout_s: float) -> None:
        """Wait until a supervisor ends, `wake` is called, or time is up: then `observe` may see
        something new."""
        with self._lock:
            watched = [
                descriptor for attempt in self._attempts.values() for descriptor in attempt.pidfds()
            ]
        poll = select.poll()
        for descriptor in (self._bell, *watched):
            poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, timeout_s) * 1000)
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)

    def wake(self) -> None:
        """End `changes` in another thread, or the next one."""
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """Let go of the folder; attempts go on."""
        with self._lock:
            for attempt in self._attempts.values():
                attempt.close()
            self._reap()
            self._driver.close()
            super().close()
            os.close(self._bell)

    def _reap(self) -> None:
        left = []
        for pid in self._children:
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    left.append(pid)
        self._children = left
