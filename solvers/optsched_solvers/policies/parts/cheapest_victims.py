"""The cheapest set of running jobs on whose GPUs a waiting one fits, exactly for what GPUs alone
decide."""

import math
from dataclasses import dataclass
from typing import Any

from optsched.driver.layout import Need
from optsched.driver.outlook import Outlook
from optsched.driver.world import World

from .counted_cpsat import solved

EFFORT = 0.5
"""Deterministic time for the choice over several nodes, about as many seconds; then the best set
found is taken."""
SCALE = 1000
"""Whole units of a second in the model over several nodes."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that could be preempted: it pauses for `pause_s` and takes `load_s` to come back.
    `delayed` is false for one whose delay does not count."""

    job: str
    pause_s: float
    load_s: float
    delayed: bool

    @property
    def costs(self) -> bool:
        """Whether a preemption takes any time at all."""
        return self.pause_s + self.load_s > 0


def fewest(world: World, job_id: str, soon: Outlook, victims: list[Victim]) -> int:
    """No set with which the job fits has fewer members; at least one."""
    missing = min(need.gpus - soon.room.pool_gpus[need.pool] for need in world.demand(job_id).needs)
    return max(
        1, _count([(victim, world.hold(victim.job).need.gpus) for victim in victims], missing)
    )


def _count(here: list[tuple[Victim, int]], missing: int) -> int:
    """As many members as it takes if the largest go first."""
    count = 0
    for gpus in sorted((gpus for _, gpus in here), reverse=True):
        if missing <= 0:
            break
        count += 1
        missing -= gpus
    return count


def at_least_s(count: int, victims: list[Victim], finish_s: float) -> float:
    """No set of `count` or more of the victims costs less."""
    if not all(victim.delayed for victim in victims):
        return 0.0
    pause_s = min(victim.pause_s for victim in victims)
    return pause_s + count * (pause_s + finish_s + min(victim.load_s for victim in victims))


def cost_s(chosen: list[str], victims: list[Victim], finish_s: float) -> float:
    """The longest pause, and what all of them who count lose: that pause, `finish_s`, and their
    loading."""
    among = set(chosen)
    members = [victim for victim in victims if victim.job in among]
    pause_s = max(victim.pause_s for victim in members)
    return pause_s + sum(pause_s + finish_s + victim.load_s for victim in members if victim.delayed)


def cheapest(
    world: World, job_id: str, soon: Outlook, victims: list[Victim], finish_s: float
) -> list[str] | None:
    """The set with which the job fits and whose pause + sum of (pause + finish_s + load) is
    smallest; of equals the one whose members come first in `victims`. They are released in `soon`
    then.

    None where GPUs alone do not say who must go (cores, memory, quotas, other resources).
    """
    least_s = at_least_s(fewest(world, job_id, soon, victims), victims, finish_s)
    for option in world.options(job_id):
        need = world.need(job_id, option)
        if not need.gpus:
            continue
        found = _on_one_node(world, soon, need, victims, finish_s)
        if need.spread != "node" and (found is None or cost_s(found, victims, finish_s) > least_s):
            found = _on_several(world, soon, need, victims, finish_s) or found
        if found is None:
            continue
        for one in found:
            soon.release(one)
        if world.fit(job_id, soon.room) is not None:
            return found
        for one in found:
            soon.put_back(one)
    return None


def _on_one_node(
    world: World, soon: Outlook, need: Need, victims: list[Victim], finish_s: float
) -> list[str] | None:
    """The best set of the best node; None where no node can be cleared so far."""
    on: dict[str, list[tuple[Victim, int]]] = {}
    for victim in victims:
        hold = world.hold(victim.job)
        if hold.partner is None:  # else its GPUs stay taken
            for slot in hold.placement:
                if slot.gpus and need.nodes >> world.cluster.node_order[slot.node] & 1:
                    on.setdefault(slot.node, []).append((victim, slot.gpus))
    best: tuple[float, int, list[str]] | None = None
    place = {victim.job: i for i, victim in enumerate(victims)}
    for node, here in on.items():
        missing = need.gpus - soon.room.gpus_on(node)
        if missing <= 0 or sum(gpus for _, gpus in here) < missing:
            continue
        if (
            best is not None
            and at_least_s(_count(here, missing), [one for one, _ in here], finish_s) > best[0]
        ):
            continue
        cost, jobs = _cover(here, missing, finish_s)
        entry = cost, min(place[job] for job in jobs), jobs
        if best is None or entry[:2] < best[:2]:
            best = entry
    return None if best is None else best[2]


def _cover(
    here: list[tuple[Victim, int]], missing: int, finish_s: float
) -> tuple[float, list[str]]:
    """The cheapest of the jobs that together hold `missing` GPUs or more: a knapsack for each
    longest pause."""
    best: tuple[float, list[str]] = (math.inf, [])
    for pause_s in sorted({victim.pause_s for victim, _ in here}):
        costs: list[tuple[float, list[str]]] = [
            (pause_s, []),
            *((math.inf, []) for _ in range(missing)),
        ]
        for victim, gpus in here:
            if victim.pause_s > pause_s:
                continue
            own_s = pause_s + finish_s + victim.load_s if victim.delayed else 0.0
            for count in range(missing, 0, -1):
                before_s, jobs = costs[max(0, count - gpus)]
                if before_s + own_s < costs[count][0]:
                    costs[count] = before_s + own_s, [*jobs, victim.job]
        if costs[missing][0] < best[0]:
            best = costs[missing]
    return best


def _on_several(
    world: World, soon: Outlook, need: Need, victims: list[Victim], finish_s: float
) -> list[str] | None:
    """The best set for a gang over nodes of one rack or of all, by CP-SAT with one worker."""
    from ortools.sat.python import cp_model

    nodes = [node for i, node in enumerate(world.cluster.nodes) if need.nodes >> i & 1]
    model = cp_model.CpModel()
    goes = {
        victim.job: model.new_bool_var("")
        for victim in victims
        if world.hold(victim.job).partner is None
    }
    freed: dict[str, list[Any]] = {node.name: [] for node in nodes}
    for job, var in goes.items():
        for slot in world.hold(job).placement:
            if slot.gpus and slot.node in freed:
                freed[slot.node].append(slot.gpus * var)
    taken = {}
    for node in nodes:
        taken[node.name] = model.new_int_var(0, min(node.gpus, need.gpus), "")
        model.add(taken[node.name] <= soon.room.gpus_on(node.name) + sum(freed[node.name]))
    model.add(sum(taken.values()) == need.gpus)
    if need.spread == "rack":
        names = dict.fromkeys(node.rack for node in nodes if node.rack is not None)
        racks = {rack: model.new_bool_var("") for rack in names}
        model.add_exactly_one(racks.values())
        for node in nodes:
            model.add(
                taken[node.name] <= (need.gpus * racks[node.rack] if node.rack is not None else 0)
            )
    delayed = [victim for victim in victims if victim.delayed and victim.job in goes]
    longest = max((round(victim.pause_s * SCALE) for victim in victims), default=0)
    pause, count = model.new_int_var(0, longest, ""), model.new_int_var(0, len(delayed), "")
    model.add(count == sum(goes[victim.job] for victim in delayed))
    for victim in victims:
        if victim.job in goes and victim.pause_s:
            model.add(pause >= round(victim.pause_s * SCALE) * goes[victim.job])
    pauses = 0
    if longest:
        pauses = model.new_int_var(0, longest * len(delayed), "")
        model.add_multiplication_equality(pauses, [pause, count])
    model.minimize(
        pause
        + pauses
        + sum(round((finish_s + victim.load_s) * SCALE) * goes[victim.job] for victim in delayed)
    )
    solver, _ = solved(model, EFFORT)
    if solver is None:
        return None
    return [job for job, var in goes.items() if solver.value(var)]
