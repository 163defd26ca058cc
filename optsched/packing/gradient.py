"""What rules share that place a job where some loss of the nodes grows least."""

from abc import abstractmethod
from collections import defaultdict

import numpy as np

from .engine import Room, Rule
from .problem import WHOLE, Array, Problem

POPULARITY = 0.95
"""Typical jobs are the most frequent requests that together make up this share, as published for
FGD."""
LEAST = -(1 << 59)
Ask = tuple[int, int, int, tuple[str, ...]]
"""Cores, GPUs, part of one, GPU types."""


class Gradient(Rule):
    """A loss of a node as it is (cores, what is left of its GPUs), in expectation over typical
    jobs; scores are what becomes of the differences. States that come again are scored once."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        typical = typical_requests(problem)
        self.typical_shares = np.array(list(typical.values()))
        asked = [(cpus, gpus, part or (WHOLE if gpus else 0)) for cpus, gpus, part, _ in typical]
        self.typical_cpus, self.typical_gpus, self.typical_each = np.array(asked, np.int64).T.copy()
        self.types = [node.gpu_type for node in problem.nodes]
        self.access = {
            name: np.array([not types or name in types for *_, types in typical])
            for name in dict.fromkeys(self.types)
        }
        self.shapes = [(node.gpu_type, node.gpu_memory_gib) for node in problem.nodes]
        # Kinds that differ in memory only are scored alike.
        alike = [
            (request.cpus, request.part, 0 if request.part else request.gpus)
            for request in problem.requests
        ]
        self.groups = list(dict.fromkeys(alike))
        self.group = np.array([self.groups.index(ask) for ask in alike])
        self.known: dict[tuple[object, ...], tuple[Array, dict[int, int]]] = {}

    @abstractmethod
    def loss(self, cpus: Array, left: Array, gpu_type: str | None) -> Array:
        """Return GPU units lost on nodes with `cpus` cores and `left` of each GPU (rows)."""

    @abstractmethod
    def points(self, growth: Array) -> Array:
        """Return scores, whole numbers, for the growth of the loss."""

    def fragments(self, cpus: Array, left: Array, gpu_type: str | None) -> Array:
        """Return the measure of FGD: what is left of GPUs that are too small for a typical job, and
        all that is left of a node where it does not fit, in the mean over typical jobs."""
        each = self.typical_each
        large = left[:, :, None] >= each  # node, GPU, typical job
        fits = (
            (large.sum(axis=1) >= self.typical_gpus)
            & (cpus[:, None] >= self.typical_cpus)
            & (each > 0)
            & self.access[gpu_type]
        )
        small = (left[:, :, None] * ~large).sum(axis=1)
        small = np.where(fits, small, left.sum(axis=1)[:, None])
        lost: Array = (small * self.typical_shares).sum(axis=1)
        return lost

    def scores(self, node: int, room: Room) -> Array:
        return self._seen(node, room)[0]

    def gpu_for(self, kind: int, node: int, room: Room) -> int:
        return room.gpus[node].index(self._seen(node, room)[1][int(self.group[kind])])

    def _seen(self, node: int, room: Room) -> tuple[Array, dict[int, int]]:
        left = sorted(room.gpus[node])
        key = (self.shapes[node], room.cpus[node], *left)
        if key not in self.known:
            self.known[key] = self._scored(room, node, left)
        return self.known[key]

    def _scored(self, room: Room, node: int, left: list[int]) -> tuple[Array, dict[int, int]]:
        """Return scores of all kinds, and what is left of the GPU that each part would take, by
        groups of kinds."""
        scores, taken = np.full(len(self.groups), LEAST), dict[int, int]()
        after, cpus, whose = [], [], []
        # A node with more memory in the same state serves more kinds, so that memory is not looked
        # at here.
        for group in np.unique(self.group[room.fitting(node, memory=False)]):
            asked_cpus, part, gpus = self.groups[group]
            rests = sorted({rest for rest in left if rest >= part}) if part else [0]
            for rest in rests:
                at = left.index(rest) if part else len(left) - gpus
                after.append(
                    [*left[:at], rest - part, *left[at + 1 :]]
                    if part
                    else [*left[:at], *([0] * gpus)]
                )
                cpus.append(room.cpus[node] - asked_cpus)
                whose.append((int(group), rest))
        if not left:
            scores[:] = 0
        elif whose:
            states = np.array([left, *after], dtype=np.int64)
            lost = self.loss(
                np.array([room.cpus[node], *cpus], dtype=np.int64), states, self.types[node]
            )
            for (group, rest), points in zip(whose, self.points(lost[1:] - lost[0]), strict=True):
                if group not in taken or points > scores[group]:
                    scores[group], taken[group] = points, rest
        return scores[self.group], taken


def typical_requests(problem: Problem) -> dict[Ask, float]:
    """Return the most frequent requests, which together make up POPULARITY of the jobs, with their
    shares of these."""
    counted: defaultdict[Ask, float] = defaultdict(float)
    for kind, share in enumerate(problem.shares):
        request = problem.requests[kind]
        counted[request.cpus, request.gpus, request.part, request.gpu_types] += float(share)
    chosen: dict[Ask, float] = {}
    for ask, share in sorted(counted.items(), key=lambda item: (-item[1], item[0])):
        if sum(chosen.values()) >= POPULARITY:
            break
        chosen[ask] = share
    total = sum(chosen.values())
    return {ask: share / total for ask, share in chosen.items()}
