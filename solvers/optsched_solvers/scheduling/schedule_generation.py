"""The serial schedule generation scheme.

Kolisch, "Serial and parallel resource-constrained project scheduling methods revisited", EJOR 90
(1996): jobs are placed one by one, each at the earliest tick at which all it needs is free for its
whole length.
"""

import heapq
from collections.abc import Container, Mapping, Sequence

from optsched.physics import TIME_TOLERANCE_S

from .free_capacity import EPSILON, FAR, FreeCapacity
from .problem import Activity, Alternative, Choice, Problem, Schedule


def generate(
    problem: Problem,
    priority: Sequence[float],
    preempted: frozenset[int] = frozenset(),
    ways: Mapping[int, tuple[int, ...]] | None = None,
    nodes: Mapping[int, Mapping[int, int]] | None = None,
    not_before: Mapping[int, int] | None = None,
) -> Schedule | None:
    """Serial schedule generation: lowest `priority` first among jobs whose predecessors are placed.

    Running jobs continue unless their index is in `preempted`. `ways` limits a job to some of its
    alternatives, `nodes` to some nodes with at most so many GPUs of each, `not_before` has it wait.
    A job takes the alternative in which it completes first. None where a job fits nowhere or a
    budget runs out.
    """
    capacity = FreeCapacity(problem)
    found = place_running(problem, capacity, preempted)
    budget = dict(problem.instance.cluster.budgets)
    for index, running in found.items():
        _spend(budget, problem.activities[index].alternatives[running.alternative])
    waiting_for = {
        activity.index: {i for i in activity.before if i not in found}
        for activity in problem.activities
        if activity.index not in found
    }
    followers: dict[int, list[int]] = {}
    for index, before in waiting_for.items():
        for i in before:
            followers.setdefault(i, []).append(index)
    ready = [(priority[index], index) for index, before in waiting_for.items() if not before]
    heapq.heapify(ready)
    while ready:
        _, index = heapq.heappop(ready)
        activity = problem.activities[index]
        from_tick = not_before.get(index, 0) if not_before else 0
        choice = _first_to_complete(
            problem, capacity, activity, found, budget, ways, nodes, from_tick
        )
        if choice is None:
            return None
        found[index] = choice
        capacity.place(activity, choice)
        _spend(budget, activity.alternatives[choice.alternative])
        for follower in followers.get(index, ()):
            waiting_for[follower].discard(index)
            if not waiting_for[follower]:
                heapq.heappush(ready, (priority[follower], follower))
    if len(found) < len(problem.activities):
        return None
    schedule = [found[activity.index] for activity in problem.activities]
    return problem.with_matching_alternatives(schedule) if problem.partner else schedule


def replay(
    problem: Problem, choices: Mapping[int, Choice], anywhere: Container[int] = ()
) -> Schedule | None:
    """Generate the schedule of `choices` anew in the order of their starts: the same alternatives,
    each job on its nodes if it is not one that may be `anywhere`."""
    return generate(
        problem,
        [float(choices[a.index].start) for a in problem.activities],
        preempted_in(problem, choices),
        {j: (choice.alternative,) for j, choice in choices.items()},
        {
            j: dict.fromkeys((node for node, _ in choice.split), FAR)
            for j, choice in choices.items()
            if choice.split and j not in anywhere
        },
        starts_that_matter(problem, choices),
    )


def preempted_in(problem: Problem, choices: Mapping[int, Choice]) -> frozenset[int]:
    """Return the running jobs that choices preempt."""
    return frozenset(
        a.index for a in problem.activities if a.preempts(choices[a.index].alternative)
    )


def starts_that_matter(problem: Problem, choices: Mapping[int, Choice]) -> dict[int, int]:
    """Return the starts before which jobs are not to start: none where no job gains by waiting."""
    return {j: choice.start for j, choice in choices.items()} if problem.changes_s else {}


def place_running(
    problem: Problem, capacity: FreeCapacity, preempted: frozenset[int]
) -> dict[int, Choice]:
    """Hold what running jobs hold from now on; the choices of those that continue, all but
    `preempted`."""
    found: dict[int, Choice] = {}
    for activity in problem.activities:
        if activity.running is None:
            continue
        if activity.index in preempted and activity.hold is not None:
            capacity.preempt(activity)
        else:
            which = _way_to_continue(problem, activity, preempted)
            split = activity.alternatives[which].fixed
            assert split is not None
            found[activity.index] = Choice(which, 0, split)
            capacity.place(activity, found[activity.index])
    for pair in problem.couples() if problem.partner else ():
        _take_shared_gpus(problem, capacity, pair, found)
    return found


def start_in_order(
    problem: Problem, choices: Mapping[int, Choice], preempted: frozenset[int]
) -> Schedule:
    """Every job as in `choices` and on the same nodes, in the order of their starts, each as early
    as it then fits."""
    capacity = FreeCapacity(problem)
    found = place_running(problem, capacity, preempted)
    for activity in sorted(problem.activities, key=lambda a: (choices[a.index].start, a.index)):
        if activity.index in found:
            continue
        wanted = choices[activity.index]
        chosen = activity.alternatives[wanted.alternative]
        not_before = _not_before(problem, activity, found)
        if problem.changes_s:
            not_before = max(not_before, wanted.start)
        demands = problem.demands(activity, chosen.mode, wanted.split, chosen.shared)
        choice = Choice(
            wanted.alternative, capacity.settle(not_before, chosen.up, demands), wanted.split
        )
        partner = found.get(problem.partner.get(activity.index, -1))
        if returns_beside_partner(problem, activity, choice, partner):
            later = capacity.settle(_after_saving(problem, activity), chosen.up, demands)
            choice = Choice(wanted.alternative, later, wanted.split)
        found[activity.index] = canonical(problem, activity, choice)
        capacity.take(choice.start, choice.start + chosen.up, demands)
    return problem.with_matching_alternatives(
        [found[activity.index] for activity in problem.activities]
    )


def _way_to_continue(problem: Problem, activity: Activity, preempted: frozenset[int]) -> int:
    """The alternative in which a running job continues, given who is preempted."""
    partner = problem.partner.get(activity.index)
    if partner is None or partner not in preempted or problem.activities[partner].hold is None:
        return 0
    return next(i for i, alternative in enumerate(activity.alternatives) if alternative.alone)


def _take_shared_gpus(
    problem: Problem,
    capacity: FreeCapacity,
    pair: tuple[Activity, Activity],
    found: Mapping[int, Choice],
) -> None:
    """Hold the GPUs of a pair until both are done or saved; `found` has those that continue."""
    until = 0
    for activity in pair:
        if activity.index in found:
            until = max(until, activity.alternatives[found[activity.index].alternative].up)
        elif activity.hold is not None:
            until = max(until, activity.hold.up)
    split = pair[0].alternatives[0].fixed
    assert split is not None
    capacity.take(0, until, [(problem.gpu_row[node], float(gpus)) for node, gpus in split])


def _first_to_complete(
    problem: Problem,
    capacity: FreeCapacity,
    activity: Activity,
    found: dict[int, Choice],
    budget: dict[str, float],
    ways: Mapping[int, tuple[int, ...]] | None,
    nodes: Mapping[int, Mapping[int, int]] | None,
    from_tick: int,
) -> Choice | None:
    index = activity.index
    not_before = max(from_tick, _not_before(problem, activity, found))
    best: tuple[int, Choice] | None = None
    for which in ways[index] if ways and index in ways else range(len(activity.alternatives)):
        alternative = activity.alternatives[which]
        if alternative.fixed is not None or not _affordable(budget, alternative):
            continue
        limit = None if best is None else best[0] - alternative.up
        if limit is not None and not_before >= limit:
            continue
        allowed = nodes.get(index) if nodes else None
        place = capacity.earliest(activity, which, not_before, allowed, limit)
        if place is not None and index in problem.partner:
            partner = found.get(problem.partner[index])
            if returns_beside_partner(problem, activity, Choice(which, *place), partner):
                place = capacity.earliest(
                    activity, which, _after_saving(problem, activity), allowed, limit
                )
        if place is not None:
            best = (place[0] + alternative.up, Choice(which, place[0], place[1]))
    return None if best is None else canonical(problem, activity, best[1])


def returns_beside_partner(
    problem: Problem, activity: Activity, choice: Choice, partner: Choice | None
) -> bool:
    """Whether a job comes back to as many GPUs of the same nodes as soon as it has saved, while its
    partner is there.

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
        return _end(problem, other.index, partner) > activity.hold.up
    return other.hold is not None and other.hold.up > activity.hold.up


def _after_saving(problem: Problem, activity: Activity) -> int:
    """First tick at which a restart is told from the end of the checkpoint."""
    assert activity.hold is not None
    return activity.hold.up + max(1, problem.tick.ceil(2 * TIME_TOLERANCE_S))


def _not_before(problem: Problem, activity: Activity, found: Mapping[int, Choice]) -> int:
    """Return the first tick at which a job may start: it is released, those before it are done and
    its checkpoint is saved."""
    ends = (_end(problem, i, found[i]) for i in activity.before)
    saved = 0 if activity.hold is None else activity.hold.up
    return max([activity.release_up, saved, *ends])


def _end(problem: Problem, index: int, choice: Choice) -> int:
    return choice.start + problem.activities[index].alternatives[choice.alternative].up


def _affordable(budget: dict[str, float], alternative: Alternative) -> bool:
    return all(need <= budget[name] + EPSILON for name, need in alternative.mode.budgets.items())


def _spend(budget: dict[str, float], alternative: Alternative) -> None:
    for name, need in alternative.mode.budgets.items():
        budget[name] -= need


def canonical(problem: Problem, activity: Activity, choice: Choice) -> Choice:
    """The same choice under the fastest alternative whose spread its split satisfies.

    A gang allowed to spread may land on one node, where it runs faster. A job preempted only to go
    on where it was had better continue.
    """
    chosen = activity.alternatives[choice.alternative]
    if (
        activity.hold is not None
        and activity.index not in problem.partner
        and (
            choice.start <= activity.hold.up
            and choice.split == activity.hold.split
            and chosen.mode.size == activity.hold.mode.size
        )
    ):
        return Choice(0, 0, activity.hold.split)
    if chosen.fixed is not None or not choice.split or chosen.spread == "node":
        return choice
    racks = {problem.instance.cluster.nodes[node].rack for node, _ in choice.split}
    spans = {"cluster"}
    if len(choice.split) == 1:
        spans |= {"rack", "node"}
    elif len(racks) == 1 and None not in racks:
        spans.add("rack")
    best = choice.alternative
    for i, other in enumerate(activity.alternatives):
        if (
            other.fixed is None
            and other.mode == chosen.mode
            and other.spread in spans
            and (other.seconds < activity.alternatives[best].seconds)
        ):
            best = i
    return Choice(best, choice.start, choice.split)
