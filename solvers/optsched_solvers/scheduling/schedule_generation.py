"""The serial schedule generation scheme.

Kolisch, "Serial and parallel resource-constrained project scheduling methods revisited", EJOR 90
(1996): jobs are placed one by one, each at the earliest tick at which all it needs is free for its
whole length.
"""

import heapq
from collections.abc import Container, Mapping, Sequence
from copy import copy

from optsched.physics import TIME_TOLERANCE_S
from optsched.physics.modes import WIDEST_FIRST

from .free_capacity import EPSILON, FAR, FreeCapacity
from .problem import Activity, Choice, Problem, Schedule
from .windows import Dip


def generate(
    problem: Problem,
    priority: Sequence[float],
    preempted: frozenset[int] = frozenset(),
    ways: Mapping[int, tuple[int, ...]] | None = None,
    nodes: Mapping[int, Mapping[int, int]] | None = None,
    not_before: Mapping[int, int] | None = None,
) -> Schedule | None:
    """Generate a schedule serially: lowest `priority` first among jobs whose predecessors are
    placed.

    Running jobs continue unless their index is in `preempted`. `ways` limits a job to some of its
    alternatives, `nodes` to some nodes with at most so many GPUs of each, `not_before` has it wait.
    A job takes the alternative in which it completes first. None where a job fits nowhere or a
    budget runs out.
    """
    made = Partial(problem, preempted)
    ways, nodes, not_before = ways or {}, nodes or {}, not_before or {}
    for j in serial_order(problem, priority, made.found):
        if not made.place_first(j, ways.get(j), nodes.get(j), not_before.get(j, 0)):
            return None
    return made.schedule()


def serial_order(problem: Problem, priority: Sequence[float], placed: Container[int]) -> list[int]:
    """Return the jobs that are not `placed`, lowest `priority` first among those whose predecessors
    come before."""
    waiting_for = {
        activity.index: {i for i in activity.before if i not in placed}
        for activity in problem.activities
        if activity.index not in placed
    }
    followers: dict[int, list[int]] = {}
    for index, before in waiting_for.items():
        for i in before:
            followers.setdefault(i, []).append(index)
    ready = [(priority[index], index) for index, before in waiting_for.items() if not before]
    heapq.heapify(ready)
    order = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(index)
        for follower in followers.get(index, ()):
            waiting_for[follower].discard(index)
            if not waiting_for[follower]:
                heapq.heappush(ready, (priority[follower], follower))
    return order


def replay(problem: Problem, choices: Schedule, *, anywhere: bool = False) -> Schedule | None:
    """Generate the schedule of `choices` anew in the order of their starts: the same alternatives,
    each job on its nodes unless all may be `anywhere`."""
    return generate(
        problem,
        [float(choice.start) for choice in choices],
        preempted_in(problem, choices),
        {j: (choice.alternative,) for j, choice in enumerate(choices)},
        {
            j: dict.fromkeys((node for node, _ in choice.split), FAR)
            for j, choice in enumerate(choices)
            if choice.split and not anywhere
        },
        starts_that_matter(problem, choices),
    )


def preempted_in(problem: Problem, choices: Schedule) -> frozenset[int]:
    """Return the running jobs that choices preempt."""
    return frozenset(
        a.index for a in problem.activities if a.preempts(choices[a.index].alternative)
    )


def starts_that_matter(problem: Problem, choices: Schedule) -> dict[int, int]:
    """Return the starts before which jobs are not to start: none where no job gains by waiting."""
    return {j: choice.start for j, choice in enumerate(choices)} if problem.changes_s else {}


def start_in_order(problem: Problem, choices: Schedule) -> Schedule | None:
    """Return the schedule of every job as in `choices` and on the same nodes, in the order of their
    starts, each as early as it then fits."""
    made = Partial(problem, preempted_in(problem, choices))
    for activity in sorted(problem.in_order, key=lambda a: choices[a.index].start):
        if activity.index not in made.found:
            made.place(activity, made.as_early_as_fits(activity, choices[activity.index]))
    return made.schedule()


class Partial:
    """A schedule in the making: the choices `found` so far and what is free beside them."""

    def __init__(self, problem: Problem, preempted: frozenset[int]) -> None:
        """Hold what running jobs hold from now on: all continue but those `preempted` and those
        that make way for windows."""
        self._problem = problem
        self._capacity = FreeCapacity(problem)
        self._budget = dict(problem.instance.cluster.budgets)
        self.found: dict[int, Choice] = {}
        leaves = {i for i in preempted if problem.activities[i].hold is not None}
        leaves |= {a.index for a in problem.activities if a.makes_way}
        for activity in problem.activities:
            hold = activity.hold
            if hold is not None and activity.index in leaves:
                self._capacity.take(0, hold.up, problem.demands(activity, hold, hold.rooms))
            elif activity.running is not None:
                alone = problem.partner.get(activity.index) in leaves
                self.place(activity, activity.stays(alone=alone))
        for pair in problem.couples():
            self._take_shared_gpus(pair)

    def copy(self) -> "Partial":
        """Return the same schedule so far, to be completed in another way."""
        partial = copy(self)
        partial._capacity = self._capacity.copy()
        partial._budget, partial.found = dict(self._budget), dict(self.found)
        return partial

    def place_first(
        self,
        index: int,
        ways: Sequence[int] | None,
        nodes: Mapping[int, int] | None,
        from_tick: int,
    ) -> bool:
        """Place a job where it completes first; return whether it fits anywhere."""
        activity = self._problem.activities[index]
        every = range(len(activity.alternatives))
        choice = self._first_to_complete(
            activity, every if ways is None else ways, nodes, from_tick
        )
        if choice is not None:
            self.place(activity, choice)
        return choice is not None

    def place(self, activity: Activity, choice: Choice) -> None:
        """Hold what a choice takes."""
        self.found[activity.index] = choice
        chosen = activity.alternatives[choice.alternative]
        demands = self._problem.demands(activity, chosen, choice.split)
        self._capacity.take(choice.start, choice.start + chosen.up, demands)
        for name, need in chosen.mode.budgets.items():
            self._budget[name] -= need

    def schedule(self) -> Schedule | None:
        """Return the schedule; None where it is not complete, or who continues holds more than a
        window leaves."""
        activities = self._problem.activities
        if len(self.found) < len(activities):
            return None
        choices = [self.found[a.index] for a in activities]
        if any(self._is_overdrawn(dip, choices) for dip in self._problem.windows.dips()):
            return None
        return self._problem.with_matching_alternatives(choices)

    def _is_overdrawn(self, dip: Dip, choices: Schedule) -> bool:
        """Return whether running jobs hold more of a resource or quota than a window leaves."""
        problem, held = self._problem, 0.0
        for activity, choice in zip(problem.activities, choices, strict=True):
            chosen = activity.alternatives[choice.alternative]
            kept = chosen if chosen.fixed else activity.hold
            if kept is not None and kept.up > problem.tick.floor(dip.span[0]):
                held += sum(amount for which, amount in kept.shared if which == dip.row)
        capacity = problem.rows[dip.row].capacity
        return held > capacity - dip.amount + EPSILON * max(1.0, capacity)

    def _take_shared_gpus(self, pair: tuple[Activity, Activity]) -> None:
        """Hold the GPUs of a pair until both are done or saved."""
        until = 0
        for activity in pair:
            if activity.index in self.found:
                until = max(until, self._problem.end(activity.index, self.found[activity.index]))
            elif activity.hold is not None:
                until = max(until, activity.hold.up)
        gpu_row, held = self._problem.gpu_row, pair[0].alternatives[0].rooms
        self._capacity.take(0, until, [(gpu_row[node], float(gpus)) for node, gpus in held])

    def _first_to_complete(
        self,
        activity: Activity,
        ways: Sequence[int],
        nodes: Mapping[int, int] | None,
        from_tick: int,
    ) -> Choice | None:
        """Return how a job completes first on `nodes`; None where it fits nowhere."""
        not_before = max(from_tick, self._not_before(activity))
        best: Choice | None = None
        limit = FAR
        for which in sorted(ways, key=lambda i: activity.alternatives[i].up):
            alternative = activity.alternatives[which]
            if alternative.fixed or any(
                need > self._budget[name] + EPSILON
                for name, need in alternative.mode.budgets.items()
            ):
                continue
            if best is not None:
                limit = self._problem.end(activity.index, best) - alternative.up
                if not_before >= limit:
                    continue
            place = self._capacity.earliest(activity, which, not_before, nodes, limit)
            if place is not None and self._returns_beside_partner(activity, Choice(which, *place)):
                later = self._after_saving(activity)
                place = self._capacity.earliest(activity, which, later, nodes, limit)
            if place is not None:
                best = Choice(which, *place)
        return None if best is None else canonical(self._problem, activity, best)

    def as_early_as_fits(self, activity: Activity, wanted: Choice) -> Choice:
        """Return a choice at the earliest tick from which its nodes have room for it."""
        chosen = activity.alternatives[wanted.alternative]
        demands = self._problem.demands(activity, chosen, wanted.split)

        closed = self._capacity.closed(activity, wanted.split)

        def at(not_before: int) -> Choice:
            start = self._capacity.settle(not_before, chosen.up, demands, closed=closed)
            return Choice(wanted.alternative, start, wanted.split)

        waits = wanted.start if self._problem.changes_s else 0
        choice = at(max(self._not_before(activity), waits))
        if self._returns_beside_partner(activity, choice):
            choice = at(self._after_saving(activity))
        return canonical(self._problem, activity, choice)

    def _returns_beside_partner(self, activity: Activity, choice: Choice) -> bool:
        partner = self.found.get(self._problem.partner.get(activity.index, -1))
        return returns_beside_partner(self._problem, activity, choice, partner)

    def _after_saving(self, activity: Activity) -> int:
        """Return the first tick at which a restart is told from the end of the checkpoint."""
        assert activity.hold is not None
        return activity.hold.up + max(1, self._problem.tick.ceil(2 * TIME_TOLERANCE_S))

    def _not_before(self, activity: Activity) -> int:
        """Return the first tick at which a job may start: it is released, those before it are done
        and its checkpoint is saved."""
        ends = (self._problem.end(i, self.found[i]) for i in activity.before)
        saved = 0 if activity.hold is None else activity.hold.up
        return max([activity.release_up, saved, *ends])


def returns_beside_partner(
    problem: Problem, activity: Activity, choice: Choice, partner: Choice | None
) -> bool:
    """Return whether a job comes back to as many GPUs of the same nodes as soon as it has saved,
    while its partner is there.

    `partner` is None for one that is preempted. A plan names nodes, not GPUs, so this would read as
    going on.
    """
    if activity.index not in problem.partner or not activity.preempts(choice.alternative):
        return False
    if not problem.is_back_at_once(activity, choice):
        return False
    assert activity.hold is not None
    other = problem.activities[problem.partner[activity.index]]
    if partner is not None and not other.preempts(partner.alternative):
        return problem.end(other.index, partner) > activity.hold.up
    return other.hold is not None and other.hold.up > activity.hold.up


def canonical(problem: Problem, activity: Activity, choice: Choice) -> Choice:
    """Return the same choice under the fastest alternative whose spread its split satisfies.

    A gang allowed to spread may land on one node, where it runs faster. A job preempted only to go
    on where it was had better continue.
    """
    chosen, hold = activity.alternatives[choice.alternative], activity.hold
    if (
        hold is not None
        and not activity.makes_way
        and activity.index not in problem.partner
        and choice.start <= hold.up
        and choice.split == hold.rooms
        and chosen.mode.size == hold.mode.size
    ):
        return activity.stays(alone=False)
    if chosen.fixed or not choice.split or chosen.spread == "node":
        return choice
    spans = WIDEST_FIRST
    if len(choice.split) > 1:
        racks = {problem.racks[node] for node, _ in choice.split}
        spans = WIDEST_FIRST[:2] if len(racks) == 1 else WIDEST_FIRST[:1]
    best = choice.alternative
    for i, other in enumerate(activity.alternatives):
        if (
            other.seconds < activity.alternatives[best].seconds
            and not other.fixed
            and other.spread in spans
            and other.mode == chosen.mode
        ):
            best = i
    return Choice(best, choice.start, choice.split)
