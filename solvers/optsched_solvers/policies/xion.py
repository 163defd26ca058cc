"""Xion: preempt only where it pays."""

import math
from bisect import bisect, insort
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optsched.driver import Fit, Need, Outlook, World
from optsched.model import Placement, Running
from optsched.physics import TIME_TOLERANCE_S, hold_to_save_s, lost_s, setup_s, unsaved_s
from optsched.physics.contention import may_contend

from .parts.configuration_choice import solved
from .parts.demand_queue import Entry, Key, arrival_key
from .parts.preemptive import Moment, Preemptive
from .srtf import Srtf

SCALE = 1000
"""Whole units of a second in the model over several nodes."""


class Victim(NamedTuple):
    """A job that could be preempted: it pauses for `pause_s` and takes `load_s` to come back.
    `delayed` is false for one whose delay does not count."""

    job: str
    pause_s: float
    load_s: float
    delayed: bool

    @property
    def costs(self) -> bool:
        """Return whether a preemption takes any time at all."""
        return self.pause_s + self.load_s > 0


class Victims:
    """Running jobs that may be preempted now, the last in order first, with the same in columns:
    for each waiting job all of them are looked at."""

    def __init__(self, world: World, known: list[tuple[Entry, Victim]]) -> None:
        self.known = known
        self._tier = np.array([entry[0][0] for entry, _ in known])
        self._left_s = np.array([entry[0][1] for entry, _ in known])
        self.pause_s = np.array([victim.pause_s for _, victim in known])
        self.load_s = np.array([victim.load_s for _, victim in known])
        self.gpus = np.array([world.hold(victim.job).need.gpus for _, victim in known], np.int64)

    def of(self, key: Key, finish_s: float) -> NDArray[np.intp]:
        """Return the positions of those who may give way for a waiting job that takes `finish_s`,
        set-up included: of its own priority those whose swap pays."""
        longer = self._left_s > key[1] + TIME_TOLERANCE_S
        swap_pays = self._left_s - finish_s > 2 * self.pause_s + self.load_s
        same = self._tier == key[0]
        return np.flatnonzero(np.where(same, longer & swap_pays, self._tier > key[0]))

    def all_count(self, at: NDArray[np.intp], key: Key) -> bool:
        """Return whether the delay of each counts, and each takes time to preempt."""
        costs = self.pause_s[at] + self.load_s[at] > 0
        return bool(np.all(costs & (self._tier[at] == key[0])))

    def named(self, at: NDArray[np.intp], key: Key) -> dict[str, Victim]:
        """Return them by name; the delay of a lower priority does not count."""
        chosen = (self.known[i] for i in at.tolist())
        return {
            other: victim if tier == key[0] else victim._replace(delayed=False)
            for ((tier, *_), other), victim in chosen
        }


def fewest(world: World, job_id: str, soon: Outlook, gpus: Iterable[int]) -> int:
    """Return a lower bound: no set of victims that hold so many `gpus` each with which the job fits
    has fewer members; at least one."""
    missing = min(need.gpus - soon.room.pool_gpus[need.pool] for need in world.demand(job_id).needs)
    return max(1, _count(gpus, missing))


def _count(held: Iterable[int], missing: int) -> int:
    """Return how many members it takes if the largest go first."""
    count = 0
    for gpus in sorted(held, reverse=True):
        if missing <= 0:
            break
        count += 1
        missing -= gpus
    return count


def at_least_s(count: int, pause_s: float, load_s: float, finish_s: float) -> float:
    """Return a lower bound: no set of `count` or more victims costs less whose pause and loading
    take no less and whose delay counts."""
    return pause_s + count * (pause_s + finish_s + load_s)


def _least_s(count: int, victims: list[Victim], finish_s: float) -> float:
    """Return the same for these victims."""
    if not all(victim.delayed for victim in victims):
        return 0.0
    pause_s = min(victim.pause_s for victim in victims)
    return at_least_s(count, pause_s, min(victim.load_s for victim in victims), finish_s)


def cost_s(chosen: list[str], victims: list[Victim], finish_s: float) -> float:
    """Return the longest pause, and what all of them who count lose: that pause, `finish_s`, and
    their loading."""
    among = set(chosen)
    members = [victim for victim in victims if victim.job in among]
    pause_s = max(victim.pause_s for victim in members)
    return pause_s + sum(pause_s + finish_s + victim.load_s for victim in members if victim.delayed)


def cheapest(
    world: World, job_id: str, soon: Outlook, victims: list[Victim], finish_s: float
) -> list[str] | None:
    """Return the set with which the job fits and whose pause + sum of (pause + finish_s + load) is
    smallest; of equals the one whose members come first in `victims`. They are released in `soon`
    then.

    None where GPUs alone do not say who must go (cores, memory, quotas, other resources).
    """
    gpus = [world.hold(victim.job).need.gpus for victim in victims]
    least_s = _least_s(fewest(world, job_id, soon, gpus), victims, finish_s)
    for option in world.options(job_id):
        need = world.need(job_id, option)
        if not need.gpus:
            continue
        chosen = _on_one_node(world, soon, need, victims, finish_s)
        if need.spread != "node" and (
            chosen is None or cost_s(chosen, victims, finish_s) > least_s
        ):
            chosen = _on_several(world, soon, need, victims, finish_s) or chosen
        if chosen is None:
            continue
        for other in chosen:
            soon.release(other)
        if world.fit(job_id, soon.room) is not None:
            return chosen
        for other in chosen:
            soon.put_back(other)
    return None


def _on_one_node(
    world: World, soon: Outlook, need: Need, victims: list[Victim], finish_s: float
) -> list[str] | None:
    """Return the best set of the best node; None where no node can be cleared so far."""
    able = soon.room.able(need)
    on: dict[str, list[tuple[Victim, int]]] = {}
    for victim in victims:
        hold = world.hold(victim.job)
        if hold.partner is None:  # else its GPUs stay taken
            for slot in hold.placement:
                if slot.gpus and able >> world.cluster.node_order[slot.node] & 1:
                    on.setdefault(slot.node, []).append((victim, slot.gpus))
    best: tuple[float, int, list[str]] | None = None
    place = {victim.job: i for i, victim in enumerate(victims)}
    for node, here in on.items():
        missing = need.gpus - soon.room.gpus_on(node)
        if missing <= 0 or sum(gpus for _, gpus in here) < missing:
            continue
        if (
            best is not None
            and _least_s(
                _count((gpus for _, gpus in here), missing), [other for other, _ in here], finish_s
            )
            > best[0]
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
    """Return the cheapest of the jobs that together hold `missing` GPUs or more: a knapsack for
    each longest pause."""
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
    """Return the best set for a gang over nodes of one rack or of all, by CP-SAT with one
    worker."""
    from ortools.sat.python import cp_model

    able = soon.room.able(need)
    nodes = [node for i, node in enumerate(world.cluster.nodes) if able >> i & 1]
    model = cp_model.CpModel()
    goes = {
        victim.job: model.new_bool_var("")
        for victim in victims
        if world.hold(victim.job).partner is None
    }
    freed: dict[str, list[Any]] = {node.name: [] for node in nodes}
    for job, var in goes.items():
        for slot in world.placement(job):
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
    solver, _ = solved(model)
    if solver is None:
        return None
    return [job for job, var in goes.items() if solver.value(var)]


class Xion(Srtf):
    """Shortest remaining time first, but a running job is only preempted where the sum of
    completion times falls by it.

    Let a waiting job w (work W, set-up L_w) start now on the GPUs of a running job r (R to go),
    which pauses for P_r and needs L_r to load again. w gains R - P_r, r loses P_r + L_w + W + L_r,
    so that it pays if and only if

        R - W > 2 P_r + L_w + L_r.

    Only running jobs of which this is true may give way. Where one of them is not enough, a set S
    of them pays if and only if, with P the longest pause in S and T when w would fit if nobody were
    preempted,

        T - P > sum over S of (P + L_w + W + L_r);

    T is looked at for a single victim too, as other jobs may end before it. The set with the
    smallest sum + P is taken. Without overheads nothing is lost by a swap: then victims are chosen
    as by SRTF, and the plan is the same.

    A lower priority gives way without having to pay. T comes from the expected ends of running
    jobs. L_r has the fetch of its model and, of a job with periodic checkpoints, the work that it
    would do again.
    """

    name = "xion"
    title = "shortest remaining time first, preempting only where pausing and loading again are worth it"  # noqa: E501
    reserves = False

    def moment(self, world: World) -> Moment:
        """Return who gives way for whom, if it pays."""
        return _Moment(self, world)


class Later:
    """An outlook in which running jobs leave one after the other; `seen` says of which present."""

    def __init__(
        self, seen: tuple[int, int, int], ends: list[tuple[float, str]], outlook: Outlook
    ) -> None:
        self.seen, self._ends, self._outlook = seen, ends, outlook
        self._left = 0

    def sooner_than(self, time_s: float) -> Outlook | None:
        """Return the outlook as it is left now, if nobody has left who does not by then."""
        ends, left = self._ends, self._left
        return self._outlook if left and ends[left - 1][0] <= time_s else None

    def at(self, time_s: float) -> Outlook:
        """Return the outlook when all have left who do by then."""
        ends, outlook = self._ends, self._outlook
        while self._left < len(ends) and ends[self._left][0] <= time_s:
            outlook.release(ends[self._left][1])
            self._left += 1
        while self._left and ends[self._left - 1][0] > time_s:
            self._left -= 1
            outlook.put_back(ends[self._left][1])
        return outlook

    def begins(self, end: tuple[float, str], need: Need, placement: Placement) -> None:
        """Suppose that one more runs, until this end."""
        self._outlook.room.take(need, placement)
        if bisect(self._ends, end) < self._left:
            self._outlook.release(end[1])
            self._left += 1
        insort(self._ends, end)


class _Moment(Moment):
    """One decision; `_known` are the jobs that may be preempted now, the last in order first."""

    def __init__(self, rule: Preemptive, world: World) -> None:
        super().__init__(rule, world)
        self._known: Victims | None = None
        self._later: Later | None = None

    @cached_property
    def _may_contend(self) -> bool:
        return may_contend(self.world.instance)

    def start(self, job_id: str, fit: Fit) -> None:
        """Start a job; where none slows another down, all others end when they would have."""
        world, later = self.world, self._later
        if later is not None and (later.seen != self._seen() or self._may_contend):
            later = self._later = None
        super().start(job_id, fit)
        if later is not None:
            end = world.expected_release_s(job_id), job_id
            later.begins(end, world.need(job_id, fit[0]), fit[1])
            later.seen = self._seen()

    def evict_for(self, entry: Entry) -> bool:
        """Preempt the cheapest set of jobs with which the waiting one fits, if that pays."""
        key, job_id = entry
        world = self.world
        finish_s = world.fastest_finish_s(job_id)
        known = self._preemptible()
        at = known.of(key, finish_s)
        if not len(at) or self._starts_sooner_anyway(entry, at, finish_s):
            return False
        victims = known.named(at, key)
        chosen = None
        if any(victim.costs for victim in victims.values()):
            chosen = cheapest(world, job_id, self.look_ahead(), list(victims.values()), finish_s)
        if chosen is None:
            chosen = self.needed(job_id, victims)
        if chosen is None:
            return False
        if not self._pays(job_id, [victims[name] for name in chosen], finish_s):
            for name in chosen:
                self.look_ahead().put_back(name)
            return False
        for name in chosen:
            world.preempt(name)
        left = [pair for pair in known.known if pair[0][1] in world.running]
        self._known = Victims(world, left)
        self.evicted(chosen)
        return True

    def _starts_sooner_anyway(self, entry: Entry, at: NDArray[np.intp], finish_s: float) -> bool:
        """Return whether the job would start by itself before even the cheapest thinkable set of
        the victims at these positions paid."""
        key, job_id = entry
        known = self._preemptible()
        if not known.all_count(at, key):
            return False
        count = fewest(self.world, job_id, self.look_ahead(), known.gpus[at].tolist())
        pause_s, load_s = float(known.pause_s[at].min()), float(known.load_s[at].min())
        return self._fits_by(job_id, at_least_s(count, pause_s, load_s, finish_s))

    def _pays(self, job_id: str, victims: list[Victim], finish_s: float) -> bool:
        """Return whether the sum of completion times falls. The victims are released in `soon`
        already."""
        if not any(victim.costs for victim in victims if victim.delayed):
            return True
        paid_s = cost_s([victim.job for victim in victims], victims, finish_s)
        for victim in victims:  # T is when it would fit without anybody's help
            self.look_ahead().put_back(victim.job)
        sooner_anyway = self._fits_by(job_id, paid_s)
        for victim in victims:
            self.look_ahead().release(victim.job)
        return not sooner_anyway

    def _fits_by(self, job_id: str, seconds: float) -> bool:
        """Return whether the job fits so long from now at the latest, if nobody is preempted: at
        once where it fits sooner, as all do but those that must be near others."""
        world, later = self.world, self._leaving()
        until_s = world.now_s + seconds + TIME_TOLERANCE_S
        sooner = None if world.job(job_id).affinity else later.sooner_than(until_s)
        if sooner is not None and world.fit(job_id, sooner.room) is not None:
            return True
        return world.fit(job_id, later.at(until_s).room) is not None

    def _leaving(self) -> Later:
        """Return the outlook in which those who run leave as they are expected to."""
        world, soon = self.world, self.look_ahead()
        seen = self._seen()
        if self._later is None or self._later.seen != seen:
            ends = sorted((world.expected_release_s(other), other) for other in world.running)
            self._later = Later(seen, ends, soon.copy())
        return self._later

    def _seen(self) -> tuple[int, int, int]:
        """Return what tells one present from another."""
        world = self.world
        return world.free.changes, len(world.running), self.look_ahead().room.changes

    def _preemptible(self) -> Victims:
        if self._known is None:
            world = self.world
            entries = []
            for other in world.running:
                if world.may_preempt(other):
                    key = arrival_key(world, other, self.rule.rank(world, other))
                    entries.append(((key, other), _victim(world, other)))
                elif world.now_s < (at_s := world.preemptible_at_s(other)):
                    self.recheck_s = min(self.recheck_s, at_s)
            entries.sort(key=lambda entry: entry[0], reverse=True)
            self._known = Victims(world, entries)
        return self._known


def _victim(world: World, job_id: str) -> Victim:
    """Return what it costs to preempt a running job, in seconds."""
    job = world.job(job_id)
    load_s = setup_s(job, ran_before=True) + job.profile.fetch_s
    if job.profile.checkpoint_every_s:
        entry = world.entry(job_id)
        assert isinstance(entry, Running)
        load_s += lost_s(job, unsaved_s(entry, world.now_s))
    return Victim(job_id, hold_to_save_s(job), load_s, True)
