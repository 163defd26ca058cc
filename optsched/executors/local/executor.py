"""Jobs as processes of this host, which go on whatever becomes of the controller."""

import os
import select
import socket
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...model import Slot
from ..attempts.executor import AttemptExecutor, rank_of
from ..attempts.folder import AttemptFolder
from ..base import AttemptKey, Beside, NodeStatus, Order, Record, RefusedError
from ..orders import check, everybodys_environment, recorded, recorded_node
from ..supervision import cgroups, processes, records
from .attempt import KILL_NOW, LOOK, Attempt
from .driver import Driver, Gpu
from .gpus import LocalNode, Share, free, shares, stranger_on


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
        self._out: dict[str, dict[str, str]] = {}
        known = records.read(folder / "gpus.json") or {}
        try:
            self._shares = shares(nodes, self._driver, known)
            super().__init__(folder, poll_s=0.0)
        except InputError:
            self._driver.close()
            raise
        # Those that an executor before it in this process started are ours to reap.
        self._children = [
            pid for attempt in self._attempts.values() for pid in attempt.supervisors()
        ]
        self._real: dict[str, tuple[str, ...]] = {
            name: share.gpu_ids for name, share in self._shares.items() if not share.local.emulate
        }
        if any(self._real.values()):
            with suppress(OSError):  # then a GPU that is gone at the next start is missed there
                records.write(folder / "gpus.json", self._real)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def inventory(self) -> tuple[NodeStatus, ...]:
        """Return all nodes as declared. Out are real GPUs that the driver no longer lists, or that
        a process uses which no job on them started."""
        listed, silent = self._driver.look() if any(self._real.values()) else ((), None)
        if silent is None:
            with self._lock:
                self._out = _out(self._real, listed, self._held("gpu_ids"))
        statuses = []
        for name, share in self._shares.items():
            ids, out = self._real.get(name, ()), self._out.get(name, {})
            reason = silent if ids else None
            if reason is None and out:
                reason = "; ".join(dict.fromkeys(out.values()))
            usable = not ids or (silent is None and len(out) < len(ids))
            statuses.append(
                NodeStatus(node=share.local.node, usable=usable, reason=reason, out=tuple(out))
            )
        return tuple(statuses)

    def follow(self, key: AttemptKey) -> Attempt:
        """Return what follows an attempt from its folder."""
        return Attempt(self._attempts_folder, key, self._boot)

    def specification(self, order: Order, folder: AttemptFolder) -> Record:
        """Return the record of an attempt to be started. Raises RefusedError."""
        check(order)
        others = list(self._attempts.values())
        for other in others:
            other.look(None)  # what has just ended holds nothing any more
        environment, port = everybodys_environment(order, folder.progress_path), None
        if len(order.nodes) > 1:
            port = _free_port({other.folder.spec["port"] for other in others if other.held()})
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return {
            **recorded(order),
            "boot": self._boot,
            "port": port,
            "environment": environment,
            "nodes": [self._node(order, rank, folder.path) for rank in range(len(order.nodes))],
        }

    def _node(self, order: Order, rank: int, folder: Path) -> Record:
        slot, key = order.placement[rank], order.key
        share = self._shares.get(slot.node)
        if share is None:
            raise RefusedError(f"node {slot.node} is not one of this executor")
        gpu_ids, cores = self._gpu_ids(slot, share), None
        if share.cores is not None and slot.cpus:
            cores = free(share.cores, self._held("cores"), slot.cpus)
            if cores is None:
                raise RefusedError(f"node {slot.node} has fewer than {slot.cpus} cores free")
        common, below = recorded_node(order, rank), f"{key.job}/{key.number}/{slot.node}"
        return {
            **common,
            "gpu_ids": gpu_ids,
            "cores": cores,
            "environment": {**common["environment"], "CUDA_VISIBLE_DEVICES": ",".join(gpu_ids)},
            "cgroups": cgroups.below(self._groups, key.job, f"{folder}/{slot.node}"),
            "output": None if self._outputs is None else str(self._outputs / below),
        }

    def _gpu_ids(self, slot: Slot, share: Share) -> tuple[str, ...]:
        held = self._held("gpu_ids").union(*self._out.values())
        gpu_ids = free(share.gpu_ids, held, slot.gpus)
        if gpu_ids is None:
            left, there = len({*share.gpu_ids} - held), len(share.gpu_ids)
            raise RefusedError(
                f"node {slot.node} has {left} of its {there} GPUs free, not {slot.gpus}"
            )
        return gpu_ids

    def _held(self, what: str) -> set[Any]:
        return {item for attempt in self._attempts.values() for item in attempt.own(what)}

    def submit(self, attempt: Attempt, fresh: bool) -> None:
        """Start a supervisor for each node that never had one."""
        self._children += attempt.spawn()

    def refresh(self) -> None:
        """Take in the supervisors that have ended."""
        self._reap()

    def hasten(self, attempt: Attempt) -> None:
        """Have its supervisors look at once."""
        attempt.signal(LOOK)

    def shell(self, key: AttemptKey, terminal: bool, node: str | None = None) -> Beside:
        """Return how to start a shell beside a command of an attempt. Raises RefusedError."""
        with self._lock:
            attempt = self.going(key)
            if attempt is None:
                raise RefusedError(f"{key} does not run")
            spec, rank = attempt.folder.spec, rank_of(attempt.names, node)
            environment = {**spec["environment"], **spec["nodes"][rank]["environment"]}
            return Beside(
                argv=(environment.get("SHELL", "/bin/sh"),),
                environment=environment,
                directory=spec["directory"],
                user=attempt.uid,
            )

    def signal(self, key: AttemptKey, number: int) -> None:
        """Send a signal to the commands of an attempt, at once. Raises RefusedError,
        NoAnswerError."""
        with self._lock:
            super().signal(key, number)
            self._attempts[key].signal(LOOK)

    def kill(self, key: AttemptKey) -> None:
        """Send SIGKILL to all of an attempt, even where that cannot be recorded."""
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


def _out(
    real: Mapping[str, Sequence[str]], listed: Sequence[Gpu], held: Set[str]
) -> dict[str, dict[str, str]]:
    """Return the GPUs of each node that nobody can be given, with a clause that says why."""
    there = {gpu.id: gpu for gpu in listed}
    out: dict[str, dict[str, str]] = {}
    for name, ids in real.items():
        gone = ", ".join(gpu for gpu in ids if gpu not in there)
        out[name] = {}
        for gpu in ids:
            if gpu not in there:
                out[name][gpu] = f"the driver no longer lists {gone}"
            elif gpu not in held and (stranger := stranger_on(there[gpu])) is not None:
                out[name][gpu] = f"{gpu} is used by process {stranger}, which no job on it started"
    return out


def _free_port(held: Set[int]) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in held:
            return port
