"""An executor and a clock in virtual time, which lose answers and nodes as a test says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from optsched import Node
from optsched.executors.base import (
    SAVED_AND_STOPPED,
    AttemptKey,
    AttemptState,
    DeclinedError,
    NoAnswerError,
    NodeStatus,
    Observation,
    Order,
    Progress,
    RefusedError,
)


class VirtualClock:
    def __init__(self, now_s: float = 1000.0) -> None:
        self.at_s = now_s
        self.jumps: list[float] = []

    def now_s(self) -> float:
        return self.at_s

    def steady_s(self, wall_s: float) -> float:
        return min(self.at_s, wall_s)

    def jump_s(self) -> float | None:
        return self.jumps.pop() if self.jumps else None


@dataclass
class Process:
    """What is there of an attempt: it ends by itself at `ends_s`, and `saves_s` after it was asked
    to."""

    order: Order | None
    begun_s: float
    ends_s: float
    asked_s: float | None = None
    grace_s: float = 0.0
    ended_s: float | None = None
    status: int | None = None
    reason: str | None = None


@dataclass
class VirtualExecutor:
    """Commands of the form ("work", SECONDS, SAVES_S, STATUS): they run so long in all their
    attempts together, and need so long to save (never, where it is negative)."""

    nodes: tuple[Node, ...]
    clock: VirtualClock
    name: str = "virtual"
    title: str = "in virtual time"
    processes: dict[AttemptKey, Process] = field(default_factory=dict)
    done_s: dict[str, float] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    silent: bool = False
    deaf: bool = False
    refuses: bool = False
    reports: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """What commands say of themselves, by job."""
    reason: str | None = None
    """What is said of every attempt that ends."""
    strangers: dict[AttemptKey, dict[str, int]] = field(default_factory=dict)
    """Attempts that nobody here started, and how many GPUs of which nodes they hold."""
    hidden: set[AttemptKey] = field(default_factory=set)
    """Attempts of which nothing is seen."""
    unreachable: set[AttemptKey] = field(default_factory=set)
    """Attempts nobody can tell of."""
    declines_s: float | None = None
    forgotten: set[AttemptKey] = field(default_factory=set)
    begun: list[AttemptKey] = field(default_factory=list)
    signals: list[tuple[AttemptKey, int]] = field(default_factory=list)

    def _answer(self) -> None:
        if self.silent:
            raise NoAnswerError("the network is down")

    def inventory(self) -> tuple[NodeStatus, ...]:
        self._answer()
        return tuple(
            NodeStatus(
                node=node,
                usable=node.name not in self.down | self.drained,
                reason="it is down" if node.name in self.down else None,
            )
            for node in self.nodes
        )

    def start(self, order: Order) -> None:
        self._answer()
        if order.key in self.processes or order.key in self.forgotten:
            return
        if self.declines_s is not None:
            raise DeclinedError("a limit is reached", self.declines_s)
        if self.refuses:
            raise RefusedError("no more processes here")
        self.check(order)
        seconds = float(order.argv[1]) - self.done_s.get(order.key.job, 0.0)
        self.processes[order.key] = Process(order, self.clock.at_s, self.clock.at_s + seconds)
        self.begun.append(order.key)
        if self.deaf:
            raise NoAnswerError("the answer was lost")

    def check(self, order: Order) -> None:
        """What must never happen: two attempts of a job at once, more than there is of a node."""
        held: dict[str, list[int]] = {}
        for key, process in self.processes.items():
            if process.ended_s is None and process.order is not None:
                assert key.job != order.key.job, f"{key} and {order.key} at once"
                for slot in process.order.placement:
                    held.setdefault(slot.node, []).append(slot.gpus)
        for stranger in self.strangers.values():
            for name, gpus in stranger.items():
                held.setdefault(name, []).append(gpus)
        by_name = {node.name: node for node in self.nodes}
        for slot in order.placement:
            assert slot.node not in self.down | self.drained
            gpus = sum(held.get(slot.node, [])) + slot.gpus
            assert not slot.gpus or gpus <= by_name[slot.node].gpus

    def stranger(self, node: str, gpus: int) -> None:
        """Somebody else takes GPUs that are free, as far as there are any."""
        held = sum(
            slot.gpus
            for process in self.processes.values()
            if process.ended_s is None and process.order is not None
            for slot in process.order.placement
            if slot.node == node
        ) + sum(held.get(node, 0) for held in self.strangers.values())
        there = sum(one.gpus for one in self.nodes if one.name == node)
        if (gpus := min(gpus, there - held)) > 0:
            self.strangers[AttemptKey(f"stranger-{len(self.strangers)}", 1)] = {node: gpus}

    def checkpoint_stop(self, key: AttemptKey, grace_s: float) -> None:
        self._answer()
        process = self.processes.get(key)
        if process is not None and process.asked_s is None:
            process.asked_s, process.grace_s = self.clock.at_s, grace_s

    def signal(self, key: AttemptKey, number: int) -> None:
        self._answer()
        if key not in self.processes or self.processes[key].ended_s is not None:
            raise RefusedError(f"{key} does not run")
        self.signals.append((key, number))

    def kill(self, key: AttemptKey) -> None:
        self._answer()
        if key in self.unreachable:
            raise NoAnswerError("it cannot be reached")
        process = self.processes.setdefault(key, Process(None, self.clock.at_s, self.clock.at_s))
        if process.ended_s is None:
            process.ended_s = self.clock.at_s
            process.status = -9 if process.order is not None else None
            process.reason = None if process.order is not None else "was never started"

    def pass_time(self) -> None:
        """Let happen what happens until now."""
        now_s = self.clock.at_s
        for key, process in self.processes.items():
            if process.ended_s is not None or process.order is None:
                continue
            lost = any(slot.node in self.down for slot in process.order.placement)
            saves_s = float(process.order.argv[2])
            if lost:
                process.ended_s, process.reason = now_s, "the host was restarted"
            elif process.ends_s <= now_s and (
                process.asked_s is None or process.ends_s <= process.asked_s
            ):
                process.ended_s, process.status = process.ends_s, int(process.order.argv[3])
                if process.status == 0:
                    self.done_s[key.job] = float(process.order.argv[1])
            elif (
                process.asked_s is not None and saves_s >= 0 and process.asked_s + saves_s <= now_s
            ):
                process.ended_s, process.status = process.asked_s + saves_s, SAVED_AND_STOPPED
                self.done_s[key.job] = self.done_s.get(key.job, 0.0) + max(
                    0.0, process.asked_s - process.begun_s
                )
            elif process.asked_s is not None and process.asked_s + process.grace_s <= now_s:
                process.ended_s, process.status = process.asked_s + process.grace_s, -9

    def observe(self) -> tuple[Observation, ...]:
        self._answer()
        self.pass_time()
        own = tuple(
            Observation(
                key=key,
                state=AttemptState.UNREACHABLE
                if key in self.unreachable
                else AttemptState.RUNNING
                if process.ended_s is None
                else AttemptState.ENDED,
                started_s=process.begun_s if process.order is not None else None,
                ended_s=process.ended_s,
                exit_status=process.status,
                reason=process.reason or self.reason,
                progress=Progress.reported(self.reports.get(key.job, {})),
            )
            for key, process in self.processes.items()
            if key not in self.forgotten | self.hidden
        )
        return own + tuple(
            Observation(
                key=key,
                state=AttemptState.RUNNING,
                gpu_ids={node: tuple(str(i) for i in range(gpus)) for node, gpus in held.items()},
            )
            for key, held in self.strangers.items()
        )

    def forget(self, key: AttemptKey) -> None:
        self._answer()
        assert self.processes[key].ended_s is not None
        self.forgotten.add(key)

    def changes(self, timeout_s: float) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to let go of."""
