"""Local search over priority lists: each list is decoded to real nodes by serial schedule
generation.

Every neighbour shifts all that follows. Accepted by simulated annealing (Kirkpatrick et al.,
Science 220, 1983) with a temperature that falls with the budget: for one level of the objective
after the other, among lists that are no worse in the levels before.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate

import numpy as np

from optsched.engine.incumbent import is_better
from optsched.plugins.solver import SILENT

from . import beside, free_times
from .free_times import FreeTimes
from .lists import Decoder, List, by_type, list_of, tiers
from .progress import Progress

TEMPERATURE, WARMER = 0.01, 0.04
"""First temperature, relative to what can be changed of the value, by job; and where lists are
decoded by free times, so that there are many."""
EXCHANGES = 10
"""How often searches in several processes compare what they have."""
KEPT_TO_TYPES, REWARMED = 5, 0.25
"""Exchanges before the end after which each job is kept to one GPU type, where lists are decoded by
free times: lists of which only one type changes are decoded there alone, so that there are more.
Annealing begins anew then, at this share of the warmth."""
FREED = 0.3
"""How often a job that is to be kept to another GPU type is kept to none."""
PREEMPTING = 0.1
"""Share of the neighbours in which other running jobs are preempted, where any may be: each is
decoded from the beginning."""
BOLD_WARMTH, BOLD_PREEMPTING = 0.32, 0.4
"""Both for a bold search by free times: preempting one job more asks for another order of the
others, which a cold search never finds."""
LARGER = 0.75
"""A job is moved as often as its GPUs to this power: gangs decide what room is left for others."""
STEPS = 64
"""Most steps of a walk between looks at the budget."""
NEAR = 0.8
"""Share of the moves in a list that are over a distance drawn evenly by its logarithm; all others
go anywhere."""


class _Standing:
    """How the jobs that may be moved, `listed` by rising index, stand in a list."""

    def __init__(self, code: List, listed: list[int], often: list[float]) -> None:
        self.priority, self.preempted, self.listed = code.priority, code.preempted, listed
        self.chances = [*accumulate([often[j] for j in listed])]
        self._priorities = np.array(code.priority)[listed]

    @cached_property
    def order(self) -> list[int]:
        """Return the jobs in the order of the list."""
        return [self.listed[k] for k in np.argsort(self._priorities, kind="stable").tolist()]

    def around(self, j: int, many: int) -> list[int]:
        """Return so many jobs that are nearest to one in the list."""
        apart = np.abs(self._priorities - self.priority[j])
        nearest = np.argsort(apart, kind="stable")[1 : many + 1]
        return [self.listed[k] for k in nearest.tolist()]

    def near(self, j: int, share: float, after: bool) -> int:
        """Return the job some places before or after one, by a `share` of the greatest distance's
        logarithm."""
        order = self.order
        at = bisect_left(order, self.priority[j], key=self.priority.__getitem__)
        places = int(len(order) ** share)
        return order[min(max(at + (places if after else -places), 0), len(order) - 1)]


class ListSearch:
    """Improves a priority list, the GPU types jobs are kept to, and which running jobs are
    preempted; those in `pinned` (by index) never are."""

    def __init__(
        self,
        progress: Progress,
        start: List | None,
        pinned: Collection[int] = (),
        *,
        quick: bool = False,
        bold: bool = False,
        work_per_job: float = free_times.WORK_PER_JOB,
    ) -> None:
        """Start from a list, or that of the best schedule so far; `quick` decodes by free times
        where that applies, for so much counted work a job, and is `bold` where there is time for
        many lists of few jobs."""
        assert progress.schedule is not None
        self.problem, self.progress, self.budget = progress.problem, progress, progress.budget
        self.list = start or list_of(self.problem, progress.schedule)
        self.rng = random.Random(self.budget.seed + 1)
        self.level = 0
        self.values = (math.inf,) * len(self.problem.objective.levels)
        self.decoder: Decoder | FreeTimes = (
            FreeTimes(self.problem, self.budget, work_per_job)
            if quick and free_times.applies(self.problem)
            else Decoder(self.problem, self.budget)
        )
        fast = isinstance(self.decoder, FreeTimes)
        self._bold = bold and fast
        self._warmth = BOLD_WARMTH if self._bold else WARMER if fast else TEMPERATURE
        self._preempting = BOLD_PREEMPTING if self._bold else PREEMPTING
        self.copies = beside.most(self.budget.workers) if quick else 0
        self._is_shared: Callable[[], bool] = lambda: False
        self._freed = FREED
        activities = self.problem.activities
        self._tiers = tiers(self.problem)
        self._preemptible = [
            a.index for a in activities if a.hold is not None and a.index not in pinned
        ]
        self._types = [
            sorted({o.mode.gpu_type or "" for o in a.alternatives if not o.fixed and o.mode.gpus})
            for a in activities
        ]
        self._often = [max(1, *(o.mode.gpus for o in a.alternatives)) ** LARGER for a in activities]
        self._best = self.list
        self._standing: _Standing | None = None
        self._movable: list[int] = []
        self._decode_and_keep(self.list, 0.0)
        if (walks := self._set_out()) is not None:
            walks.walk_on(0, 0.0, 0.0, 0.0)  # compiles it

    @property
    def was_compiled(self) -> bool:
        """Return whether the decoder had to be compiled in this process."""
        return isinstance(self.decoder, FreeTimes) and self.decoder.was_compiled

    def run(self, until: float, is_shared: Callable[[], bool] = lambda: False) -> None:
        """Search until `until` of the budget is left: for each level whose value is not proved, as
        long as it has jobs to move. While it `is_shared` one of the processes does something else.
        """
        self._is_shared = is_shared
        levels = [level for level in range(len(self.values)) if not self._is_closed(level)]
        jobs = [len(self._jobs_of(level)) for level in levels]
        for k, level in enumerate(levels):
            self.level = level
            if k:
                self.list = self._best
                self.values = (math.inf,) * len(self.values)
                self._decode_and_keep(self.list, 0.0)
            left = self.budget.fraction_left()
            share = jobs[k] / max(1, sum(jobs[k:]))
            self._run_level(max(until, left - max(0.0, left - until) * share))  # never below

    def _jobs_of(self, level: int) -> list[int]:
        """Return the jobs that count in a level and in none of a higher tier."""
        tier = self.problem.objective.tier_of_level(level)
        return [j for j, own in enumerate(self._tiers) if own == tier]

    def _is_closed(self, level: int) -> bool:
        yardstick, bound = (
            self.progress.evaluator.yardsticks[level],
            self.progress.proved.get(level),
        )
        return yardstick.is_closed(self.progress.values[level], bound)

    def _run_level(self, until: float) -> None:
        begun = self.budget.fraction_left()
        tier = self.problem.objective.tier_of_level(self.level)
        self._in_tier, self._standing = self._jobs_of(self.level), None
        self._movable = [j for j in self._preemptible if self._tiers[j] >= tier]
        can_start = any(self.problem.activities[j].running is None for j in self._in_tier)
        if not (can_start or self._movable or self.problem.changes_s):
            return

        def left_after(exchanges: int) -> float:
            return until + (begun - until) * exchanges / EXCHANGES

        several = any(len(types) > 1 for types in self._types)
        keeps = several and not self._bold and isinstance(self.decoder, FreeTimes)
        kept = KEPT_TO_TYPES if keeps else 0
        spans = (EXCHANGES, kept, 1.0), (kept, 0, REWARMED)
        self._freed = FREED
        for high, low, warmth in spans if keeps else spans[:1]:
            if high < EXCHANGES:
                self._keep_to_types()
            span = left_after(high), left_after(low)
            anneal = partial(self._anneal, span=span, warmth=warmth * self._warmth)
            for n in reversed(range(low, high)):
                if self._is_closed(self.level):
                    return
                copies = self.copies - self._is_shared()
                if copies > 0:
                    self._with_copies(copies, anneal, left_after(n))
                else:
                    anneal(left_after(n))

    def _anneal(self, stop: float, span: tuple[float, float], warmth: float) -> None:
        """Search until `stop` of the budget is left, ever more coldly from the first to the last of
        a span."""
        first, last = span
        certain = self.progress.evaluator.yardsticks[self.level].certain
        walks = self._set_out()
        while (left := self.budget.fraction_left()) > stop:
            cool = warmth * max(0.0, (left - last) / max(first - last, 1e-9)) ** 2
            cool /= len(self._types)
            if walks is not None:
                self._walk_on(walks, stop, certain, cool)
            else:
                changeable = max(0.0, self.values[self.level] - certain)
                self._decode_and_keep(self._neighbour(), changeable * cool)
        if walks is not None:
            arrived = walks.arrive()
            self.list, self.values = arrived.code, arrived.values(self.progress.evaluator)

    def _set_out(self) -> FreeTimes | None:
        """Begin a walk by compiled code, where that applies; return what walks."""
        decoder = self.decoder
        if len(self.values) > 1 or not isinstance(decoder, FreeTimes):
            return None
        if decoder.kept is None:  # the first list has no schedule
            return None
        activities = self.problem.activities
        choices = [
            [by_type(activities[j], name or None) for name in types]
            for j, types in enumerate(self._types)
        ]
        shares = self._preempting, NEAR, self._freed
        best, seed = self.progress.values[self.level], self.rng.getrandbits(64)
        decoder.set_out(choices, self._often, self._movable, shares, best, seed)
        return decoder

    def _walk_on(self, walks: FreeTimes, stop: float, certain: float, cool: float) -> None:
        """Take some steps of a walk; offer what is better than the best schedule so far."""
        if walks.walk_on(STEPS, self.budget.work_at(stop), certain, cool):
            found = walks.arrive()
            self.values = found.values(self.progress.evaluator)
            if self.progress.is_improved_by(self.values) and self.progress.offer(found.schedule):
                self._best = found.code

    def _keep_to_types(self) -> None:
        """Keep each job to the GPU type that it has, and to one from now on."""
        if (kept := self.decoder.kept) is not None:
            self._freed = 0.0
            ways = list_of(self.problem, kept.schedule).ways
            self._decode_and_keep(replace(self.list, ways=ways), 0.0)

    def _with_copies(self, copies: int, anneal: Callable[[float], None], stop: float) -> None:
        """Anneal here and in so many copies of the process, and go on from the best list of all."""

        def apart(number: int) -> tuple[List, List]:
            self.rng = random.Random(f"{self.budget.seed} {number} {stop}")
            self.progress.report = SILENT
            anneal(stop)
            return self._best, self.list

        with ExitStack() as on_end:
            there = [
                on_end.enter_context(beside.Beside(partial(apart, number)))
                for number in range(copies)
            ]
            anneal(stop)
            for answer in filter(None, [copy.result() for copy in there]):
                for code in answer:
                    self._decode_and_keep(code, 0.0)

    def _neighbour(self) -> List:
        if self.problem.changes_s and self.rng.random() < 0.5:
            return self._waiting()
        standing = self._standing_of(self.list)
        listed = standing.listed
        if self._movable and (not listed or self.rng.random() < self._preempting):
            return self._other_preemptions()
        if not listed:
            return self.list
        j = self.rng.choices(listed, cum_weights=standing.chances)[0]
        if len(self._types[j]) > 1 and self.rng.random() < 0.2:
            return self._retyped(self.list, j)
        if self.rng.random() < 0.6:
            return self._moved(self.list, j, standing)
        return replace(self.list, priority=self._swapped(j, standing))

    def _standing_of(self, code: List) -> _Standing:
        """Return how the jobs that may be moved stand in a list, as long as it is the same."""
        known = self._standing
        if known and known.priority is code.priority and known.preempted is code.preempted:
            return known
        activities, preempted = self.problem.activities, code.preempted
        if known and known.preempted is preempted:
            listed = known.listed
        else:
            tier = self._in_tier
            listed = [j for j in tier if activities[j].running is None or j in preempted]
        self._standing = _Standing(code, listed, self._often)
        return self._standing

    def _decode_and_keep(self, candidate: List, temperature: float) -> None:
        worse = -temperature * math.log(1.0 - self.rng.random())
        limit = self.values[0] + worse if len(self.values) == 1 else math.inf
        decoded = self.decoder.decode(candidate, limit)
        if decoded is None:
            return
        values = decoded.values(self.progress.evaluator)
        if self._is_taken(values, worse):
            self.list, self.values = candidate, values
            self.decoder.keep()
        if self.progress.is_improved_by(values) and self.progress.offer(decoded.schedule):
            self._best = candidate

    def _is_taken(self, values: tuple[float, ...], worse: float) -> bool:
        """Return whether a list is taken that may be `worse` by so much on the level that is being
        searched."""
        k, yardsticks = self.level, self.progress.evaluator.yardsticks
        if is_better(values[:k], self.values[:k], yardsticks[:k]):
            return True
        if is_better(self.values[:k], values[:k], yardsticks[:k]):
            return False
        return values[k] <= self.values[k] + worse

    def _waiting(self) -> List:
        """Make one job wait until it would start or end with a change of what use costs, or no
        more."""
        problem = self.problem
        activity = self.rng.choice(problem.activities)
        change_s = self.rng.choice(problem.changes_s)
        start_s = self.rng.choice((0.0, change_s, change_s - activity.shortest_s))
        waits = {**self.list.waits, activity.index: problem.tick.ceil(start_s)}
        return replace(self.list, waits=waits)

    def _other_preemptions(self) -> List:
        """Preempt one job more or one less, or one in another's place; who leaves comes back
        anywhere in the list: where it stood while it ran says nothing of when."""
        preempted, j = self.list.preempted, self.rng.choice(self._movable)
        changed = {j}
        if self.rng.random() < 0.4:
            other = self.rng.choice(self._movable)
            if (other in preempted) != (j in preempted):
                changed.add(other)
        listed = self._standing_of(self.list).listed
        code = replace(self.list, preempted=preempted ^ changed)
        for leaves in sorted(changed - preempted):
            standing = _Standing(code, listed, self._often)
            code = self._moved(self._retyped(code, leaves), leaves, standing, anywhere=True)
        return code

    def _moved(self, code: List, j: int, standing: _Standing, *, anywhere: bool = False) -> List:
        """Move one job just before or after another, mostly near it if not `anywhere`, at times to
        another GPU type."""
        if listed := standing.listed:
            priority = list(code.priority)
            near = not anywhere and self.rng.random() < NEAR
            beside = self._near(j, standing) if near else self.rng.choice(listed)
            priority[j] = priority[beside] + self.rng.choice((-1, 1)) * self.rng.random() * 1e-3
            code = replace(code, priority=priority)
        return self._retyped(code, j) if self.rng.random() < 0.3 else code

    def _near(self, j: int, standing: _Standing) -> int:
        """Return a job some places before or after another in the list."""
        share = self.rng.random()
        return standing.near(j, share, after=self.rng.choice((False, True)))

    def _swapped(self, j: int, standing: _Standing) -> list[float]:
        """Swap a job and one that is near it in the list."""
        priority = list(self.list.priority)
        if near := standing.around(j, 11):
            other = self.rng.choice(near)
            priority[j], priority[other] = priority[other], priority[j]
        return priority

    def _retyped(self, code: List, j: int) -> List:
        """Keep one job to another GPU type, or to none."""
        types, ways = self._types[j], dict(code.ways)
        if len(types) < 2 or self.rng.random() < self._freed:
            ways.pop(j, None)
        else:
            ways[j] = by_type(self.problem.activities[j], self.rng.choice(types) or None)
        return replace(code, ways=ways)
