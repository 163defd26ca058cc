"""Local search over priority lists: each list is decoded to real nodes by serial schedule
generation.

Every neighbour shifts all that follows. Accepted by simulated annealing (Kirkpatrick et al.,
Science 220, 1983) with a temperature that falls with the budget.
"""

import math
import random
from dataclasses import replace

from .direct import Progress
from .lists import Decoder, List, by_type, list_of

TEMPERATURE = 2e-4
"""First temperature, relative to what can be changed of the value."""


class ListSearch:
    """Improves a priority list and the GPU types jobs are kept to."""

    def __init__(self, progress: Progress, start: List | None) -> None:
        assert progress.schedule is not None
        self.problem, self.progress, self.budget = progress.problem, progress, progress.budget
        self.list = start or list_of(self.problem, progress.schedule)
        self.rng = random.Random(self.budget.seed + 1)
        self.value = math.inf
        self.decoder = Decoder(self.problem, self.budget)
        self._decode_and_keep(self.list, 0.0)

    def run(self, until: float) -> None:
        """Search until `until` of the budget is left."""
        begun = self.budget.fraction_left()
        certain = self.progress.evaluator.yardsticks[0].certain
        while (left := self.budget.fraction_left()) > until:
            cool = max(0.0, (left - until) / max(begun - until, 1e-9)) ** 2
            self._step(max(0.0, self.value - certain) * TEMPERATURE * cool)

    def _step(self, temperature: float) -> None:
        if self.problem.changes_s and self.rng.random() < 0.5:
            self._decode_and_keep(self._waiting(), temperature)
            return
        draw = self.rng.random()
        if draw < 0.5:
            neighbour = replace(self.list, priority=self._moved())
        elif draw < 0.8:
            neighbour = replace(self.list, priority=self._swapped())
        else:
            neighbour = self._other_way()
        self._decode_and_keep(neighbour, temperature)

    def _decode_and_keep(self, candidate: List, temperature: float) -> None:
        decoded = self.decoder.decode(candidate)
        if decoded is None:
            return
        values = self.progress.evaluator.values(decoded.schedule)
        worse = values[0] - self.value
        if worse <= 0 or (temperature > 0 and self.rng.random() < math.exp(-worse / temperature)):
            self.list, self.value, self.decoder.kept = candidate, values[0], decoded
        self.progress.offer(decoded.schedule)

    def _waiting(self) -> List:
        """Make one job wait until it would start or end with a change of what use costs, or no
        more."""
        problem = self.problem
        activity = self.rng.choice(problem.activities)
        change_s = self.rng.choice(problem.changes_s)
        start_s = self.rng.choice((0.0, change_s, change_s - activity.shortest_s))
        waits = {**self.list.waits, activity.index: problem.tick.ceil(start_s)}
        return replace(self.list, waits=waits)

    def _moved(self) -> list[float]:
        """Move one job just before or after another."""
        priority = list(self.list.priority)
        i, j = self.rng.randrange(len(priority)), self.rng.randrange(len(priority))
        priority[i] = priority[j] + self.rng.choice((-1, 1)) * self.rng.random() * 1e-3
        return priority

    def _swapped(self) -> list[float]:
        """Swap two jobs that are near each other in the list."""
        priority = list(self.list.priority)
        i = self.rng.randrange(len(priority))
        near = sorted(range(len(priority)), key=lambda k: (abs(priority[k] - priority[i]), k))[1:12]
        if near:
            j = self.rng.choice(near)
            priority[i], priority[j] = priority[j], priority[i]
        return priority

    def _other_way(self) -> List:
        """Return the list with one job kept to another GPU type, to none, or a running one
        preempted or left to continue."""
        activity = self.problem.activities[self.rng.randrange(len(self.list.priority))]
        j = activity.index
        if activity.hold is not None and self.rng.random() < 0.5:
            return replace(self.list, preempted=self.list.preempted ^ {j})
        types = sorted(
            {a.mode.gpu_type or "" for a in activity.alternatives if not a.fixed and a.mode.gpus}
        )
        ways = dict(self.list.ways)
        if len(types) < 2 or self.rng.random() < 0.3:
            ways.pop(j, None)
        else:
            ways[j] = by_type(activity, self.rng.choice(types) or None)
        return replace(self.list, ways=ways)
