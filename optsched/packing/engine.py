"""Jobs arrive one by one, each is placed at once on a node that can take it, and stays."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import field

import numpy as np

from ..frozen import record
from .problem import ENDLESS, WHOLE, Array, NodeClass, Problem

IMPOSSIBLE = -(1 << 60)


class Room:
    """What is left on each node, and which kinds of jobs fit where."""

    def __init__(self, problem: Problem) -> None:
        self.asks = problem.asks
        classes = [NodeClass.of(node) for node in problem.nodes]
        self.cpus = [ENDLESS if node.cpus is None else node.cpus for node in classes]
        self.memory = [ENDLESS if node.memory_kib is None else node.memory_kib for node in classes]
        self.gpus = [[WHOLE] * node.gpus for node in classes]
        allowed = {
            kind: np.array([request.allows(kind) for request in problem.requests])
            for kind in set(classes)
        }
        self.allowed = [allowed[node] for node in classes]

    def fitting(self, node: int, *, memory: bool = True) -> Array:
        """Tell which kinds fit on a node now; without `memory` were it to have enough of that."""
        gpus, asks = self.gpus[node], self.asks
        fitting: Array = (
            self.allowed[node]
            & (asks.cpus <= self.cpus[node])
            & (asks.memory_kib <= (self.memory[node] if memory else ENDLESS))
            & (asks.whole <= gpus.count(WHOLE))
            & (asks.parts <= max(gpus, default=0))
        )
        return fitting

    def take(self, kind: int, node: int, gpus: tuple[int, ...]) -> None:
        """Place a job of a kind on a node and these of its GPUs."""
        self.cpus[node] -= int(self.asks.cpus[kind])
        self.memory[node] -= int(self.asks.memory_kib[kind])
        for gpu in gpus:
            self.gpus[node][gpu] -= int(self.asks.parts[kind]) or WHOLE


class Rule(ABC):
    """Where a job goes. A rule sees what is left on the nodes and knows the shares of kinds among
    all jobs, but not what arrives later."""

    chooses_at_random = False
    """All nodes that can take a job are equally good, and one is drawn."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.asks = problem.asks

    @abstractmethod
    def scores(self, node: int, room: Room) -> Array:
        """Return how much each kind of job likes a node as it is now; larger is better, whole
        numbers."""

    def gpu_for(self, kind: int, node: int, room: Room) -> int:
        """Return the GPU of a node for a job that asks for a part of one: the fullest that can take
        it."""
        left, part = room.gpus[node], int(self.asks.parts[kind])
        return min(
            (gpu for gpu in range(len(left)) if left[gpu] >= part), key=lambda gpu: (left[gpu], gpu)
        )

    def arrived(self, kind: int, room: Room) -> Iterable[int]:
        """Hear of every arrival before it is placed; return the nodes whose scores are to be
        computed anew."""
        return ()

    def placed(self, kind: int, node: int, room: Room) -> None:  # noqa: B027 (most need not know)
        """Hear of every placement, once the room is taken and before the node is scored anew."""


@record
class Packing:
    """What became of each arrival: `node` -1 where it failed. `units` are GPUs allocated after each
    arrival and `arrived_units` those asked for until then, in millionths; `decision_s` is the time
    each decision took."""

    order: Array
    node: Array
    gpus: list[tuple[int, ...]]
    units: Array
    arrived_units: Array
    decision_s: Array = field(repr=False)


def pack(problem: Problem, order: Array, rule: Rule, seed: int) -> Packing:
    """Let the jobs arrive in `order` and place each by the rule. Of nodes with equal scores the
    first in a random order of all nodes is taken, as in the published experiment."""
    random = np.random.default_rng([seed, 1])
    rank = random.permutation(len(problem.nodes))
    room, asks = Room(problem), problem.asks
    nodes = len(problem.nodes)
    scores = np.empty((len(problem.requests), nodes), dtype=np.int64)

    def score(node: int) -> None:
        fitting = room.fitting(node)
        scores[:, node] = (
            np.where(fitting, rule.scores(node, room), IMPOSSIBLE) if fitting.any() else IMPOSSIBLE
        )

    for node in range(nodes):
        score(node)
    where = np.full(len(order), -1, dtype=np.int64)
    taken: list[tuple[int, ...]] = []
    units = np.zeros(len(order), dtype=np.int64)
    asked = np.zeros(len(order), dtype=np.int64)
    decision_s = np.zeros(len(order))
    held = came = 0
    for i, job in enumerate(order):
        kind = int(problem.kinds[job])
        started_s = time.perf_counter()
        for node in rule.arrived(kind, room):
            score(node)
        row = scores[kind]
        best = row.max()
        gpus: tuple[int, ...] = ()
        if best > IMPOSSIBLE:
            if rule.chooses_at_random:
                able = np.flatnonzero(row > IMPOSSIBLE)
                node = int(able[random.integers(len(able))])
            else:
                node = int(rank[np.argmax(row[rank])])
            left = room.gpus[node]
            if asks.parts[kind]:
                gpus = (rule.gpu_for(kind, node, room),)
            elif asks.whole[kind]:
                gpus = tuple(gpu for gpu, rest in enumerate(left) if rest == WHOLE)[
                    : int(asks.whole[kind])
                ]
            room.take(kind, node, gpus)
            rule.placed(kind, node, room)
            score(node)
            where[i] = node
            held += int(asks.units[kind])
        decision_s[i] = time.perf_counter() - started_s
        came += int(asks.units[kind])
        taken.append(gpus)
        units[i], asked[i] = held, came
    return Packing(
        order=order, node=where, gpus=taken, units=units, arrived_units=asked, decision_s=decision_s
    )


def allocated_at(packing: Packing, total_units: int, percent: int) -> float | None:
    """Return GPUs allocated, in per cent of all, when `percent` of them have been asked for: the
    mean over the arrivals at which the demand rounds to that, as published; None where there is no
    such arrival."""
    here = np.rint(packing.arrived_units / total_units * 100) == percent
    return float(packing.units[here].mean() / total_units * 100) if here.any() else None
