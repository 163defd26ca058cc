"""What a first step leads to for the jobs that are here, if a plain list rule goes on after it."""

import math
from bisect import bisect, insort
from collections.abc import Collection, Sequence
from functools import cache
from heapq import heapify, heappop, heappush, nsmallest

import numpy as np
from numpy.typing import NDArray

from ..model import Instance, Job, Placement
from ..objectives import Inverse, JobCost, Objective, RankOfJobs, SumOfJobs, Usage
from ..physics import TIME_TOLERANCE_S, hold_to_save_s, setup_s, sharing_rate
from ..physics.modes import Option
from .demand import Demand
from .layout import Need
from .placement import Aside
from .trial import Trial
from .view import Fit, Hold
from .world import World

Entry = tuple[tuple[int, float], tuple[float, int], str]
"""A waiting job in order: priority (the highest first) and rank, arrival, id."""
MOST_STARTS = 500
"""So many starts are played; later ones are costed as if the rest of the queue were one stream of
GPU time."""
MOST_GROWING, MOST_TRIED = 200, 10
"""Of more jobs none grows; of fewer so many are tried at an instant, until one does, and then as
many again."""


class Playouts:
    """Plays trials of one instant forward and costs where they lead.

    After the first step no job is preempted and none arrives: waiting jobs start in the order of
    priority, then of seconds to completion x sqrt(GPUs) / weight, wherever they fit, each in its
    fastest option that does. With `grow`, elastic jobs are saved and restored on more GPUs where
    they are done earlier so, while nobody waits: a guess, as what they leave is free at once. What
    is claimed is kept for who has claimed it. All trials must be of the `world` as it is now.
    """

    def __init__(self, world: World, objective: Objective, *, grow: bool = False) -> None:
        self._world, self._objective = world, objective
        self._finish_s, self._gpus = cache(world.fastest_finish_s), cache(world.service_gpus)
        names = [*world.waiting, *world.running, *world.saving]
        self.place = {job_id: i for i, job_id in enumerate(names)}
        jobs = [world.job(job_id) for job_id in names]
        self._levels = self._costs_of(world.instance, jobs)
        tiers = sorted({world.rank(job_id) for job_id in names}, reverse=True)
        self._by_tier = self._levels
        if len(tiers) > 1:
            self._by_tier = [
                level
                for tier in tiers
                for level in self._costs_of(
                    world.instance, [job for job in jobs if world.rank(job.id) == tier]
                )
            ]
        self.line = sorted(map(self.entry, world.waiting))
        self._services = self._services_of(self.line)
        self.queues: dict[Demand, list[Entry]] = {}
        for entry in self.line:
            self.queues.setdefault(world.demand(entry[2]), []).append(entry)
        self.holding = {job_id: world.hold(job_id) for job_id in world.holders}
        self.holders = sorted(
            (self.end_s(job_id), world.order(job_id), job_id) for job_id in world.holders
        )
        self.ends_s = np.full(len(jobs), math.nan)
        for end_s, _, job_id in self.holders:
            if job_id not in world.saving:
                self.ends_s[self.place[job_id]] = end_s
        self._played: dict[tuple[int, float], tuple[Trial, object, _Played]] = {}
        self.growth_s = (
            {
                name: _growth_s(job)
                for name, job in zip(names, jobs, strict=True)
                if world.demand(name).elastic and job.preemptible and job.max_preemptions is None
            }
            if grow and may_grow(world, names)
            else {}
        )

    def end_s(self, job_id: str) -> float:
        """Return when a job is done that runs, or gives back what it holds while it saves."""
        world = self._world
        if job_id in world.saving or not world.cluster.windows:
            return world.expected_release_s(job_id)
        placement = world.placement(job_id)
        return world.through_windows_s(job_id, placement, world.expected_end_s(job_id))

    def cost(self, trial: Trial) -> tuple[float, ...]:
        """Return what each level of the objective comes to over the jobs that are here."""
        return _cost(self._levels, self.completions_s(trial))

    def cost_by_tier(self, trial: Trial) -> tuple[float, ...]:
        """Return what each level comes to over the jobs of the highest priority, then over those of
        the next: of two trials the one of the lower cost is better for the first for whom they
        differ."""
        return _cost(self._by_tier, self.completions_s(trial))

    def done_now(self) -> tuple[float, ...]:
        """Return what each level would come to if all were done now. Where rates count these would
        be infinite, so that each job is done as soon as it can be instead."""
        return _cost(self._levels, self._soonest_s(self._levels))

    def plan_cost(self, trial: Trial, now: Instance) -> tuple[float, float]:
        """Return what the first level comes to over the jobs of the instance `now`: in the plan
        that a trial leads to if it is played to the end and no job grows, and if all were done now.
        The first is infinite where some job never starts."""
        level = self._costs_of(now, now.jobs)[:1]
        ends_s = self.completions_s(trial, math.inf)
        return _cost(level, ends_s)[0], _cost(level, self._soonest_s(level))[0]

    def _soonest_s(self, levels: "list[_Level]") -> NDArray[np.float64]:
        world = self._world
        counts_rates = any(isinstance(cost, Inverse) for level in levels for *_, cost in level)
        left_s = [self._finish_s(job) if counts_rates else 0.0 for job in self.place]
        return world.now_s + np.array(left_s)

    def _costs_of(self, instance: Instance, jobs: Sequence[Job]) -> "list[_Level]":
        """Return the terms of each level, with the places and costs in an instance of the jobs that
        count."""
        place = np.array([self.place[job.id] for job in jobs], dtype=np.int64)
        levels: list[_Level] = []
        for level in self._objective.levels:
            levels.append([])
            for weight, term in level:
                if not isinstance(term, Usage):
                    counted, cost = term.costs(instance, jobs)
                    levels[-1].append((weight, term, place[counted], cost))
        return levels

    def completions_s(self, trial: Trial, most_starts: float | None = None) -> NDArray[np.float64]:
        """Return when each job completes, in the order in which the world names them: those that
        wait, run and are being saved. After the first step of a plan, as that says."""
        if trial.ends_s is not None:
            return np.array([trial.ends_s[job_id] for job_id in self.place])
        return self._run(trial, MOST_STARTS if most_starts is None else most_starts)[0]

    def begin(self, trial: Trial) -> bool:
        """Start in a trial what the list rule starts at once after it; return whether that is
        anything. It leads where it did before."""
        if trial.ends_s is not None:
            return False
        ends_s, begun = self._run(trial, MOST_STARTS)
        for job_id, fit in begun.items():
            trial.start(job_id, *fit)
        self._played[id(trial), MOST_STARTS] = trial, trial.mark, (ends_s, {})
        return bool(begun)

    def _run(self, trial: Trial, most_starts: float) -> "_Played":
        """Return when jobs end in a trial played forward and what starts at once, played once for
        all that is asked of it as it is."""
        key, mark = (id(trial), most_starts), trial.mark
        known = self._played.get(key)
        if known is None or known[1] != mark:
            playout = _Playout(self, trial, most_starts)
            playout.run()
            played = playout.ends_s, playout.begun
            self._played[key] = known = trial, mark, played  # the trial too: its id stays its own
        return known[2]

    def complete_the_rest(self, ends_s: NDArray[np.float64], begin_s: float) -> None:
        """Complete those without an end as if all GPUs together ran one after the other, in
        order."""
        names, waiting = list(self.place), len(self.line)
        late = waiting + np.flatnonzero(np.isnan(ends_s[waiting:]))  # were preempted, or are saved
        more = sorted(self.entry(names[i]) for i in late)
        at = [bisect(self.line, entry) for entry in more]
        place, run_s, service_s = (
            np.insert(column, at, added)
            for column, added in zip(self._services, self._services_of(more), strict=True)
        )
        left = np.isnan(ends_s[place])
        place, run_s, service_s = place[left], run_s[left], service_s[left]
        begins_s = np.cumsum(np.append(begin_s, service_s))[:-1]
        ends_s[place] = begins_s + run_s

    def _services_of(self, entries: list[Entry]) -> "_Services":
        """Return the place of each job, the seconds that it takes in its fastest option, and those
        that all GPUs together would take for it."""
        gpus = max(1, self._world.cluster.total_gpus)
        place = np.array([self.place[job_id] for _, _, job_id in entries], dtype=np.int64)
        run_s = np.array([self._finish_s(job_id) for _, _, job_id in entries])
        held = np.array([self._gpus(job_id) for _, _, job_id in entries])
        return place, run_s, run_s * held / gpus

    def entry(self, job_id: str, left_s: float | None = None) -> Entry:
        """Return the place of a job in order: of one that runs as it goes on, or, once it has been
        preempted, with `left_s` of reference work to do."""
        world, job = self._world, self._world.job(job_id)
        finish_s = self._finish_s(job_id)
        if left_s is not None:
            finish_s = setup_s(job, True) + left_s / world.options(job_id)[0].rate
        rank = finish_s * math.sqrt(self._gpus(job_id)) / max(job.weight, 1e-9)
        return (-world.rank(job_id), rank), world.order(job_id), job_id


_Played = tuple[NDArray[np.float64], dict[str, Fit]]
_Services = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
_Level = list[tuple[float, SumOfJobs | RankOfJobs, NDArray[np.int64], JobCost]]


def may_grow(world: World, jobs: Collection[str]) -> bool:
    """Return whether play-outs let elastic ones among these jobs grow."""
    few = len(jobs) <= MOST_GROWING and not world.cluster.windows
    return few and any(world.demand(job_id).elastic for job_id in jobs)


def _growth_s(job: Job) -> float:
    """Return how long a job does not work that is to go on elsewhere; with periodic checkpoints it
    loses half of the time between two."""
    return hold_to_save_s(job) + setup_s(job, True) + (job.profile.checkpoint_every_s or 0.0) / 2


def _cost(levels: list[_Level], ends: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(
        sum(
            weight * term.combine(cost.at(ends[counted]).tolist())
            for weight, term, counted, cost in level
        )
        for level in levels
    )


_Claim = tuple[Option, Placement, Need]


class _Group:
    """Claims that are linked by nodes which two of them ask for. None can start before something
    comes free on one of their nodes, unless `always` is set: then one depends on time or on what
    all nodes share."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.nodes: list[str] = []
        self.always = False

    def add(self, job_id: str, nodes: list[str], need: Need) -> None:
        """Take a claim in."""
        self.jobs.append(job_id)
        self.nodes += nodes
        shares = need.shared or need.budgets or need.ties is not None
        self.always |= bool(shares or need.windows)

    def join(self, other: "_Group") -> None:
        """Take another group in."""
        self.jobs += other.jobs
        self.nodes += other.nodes
        self.always |= other.always


def _groups(claims: dict[str, _Claim]) -> dict[str, _Group]:
    """Return the group of claims on each node. Claims on no node are put on one without a name."""
    groups: dict[str, _Group] = {}
    for job_id, (_, placement, need) in claims.items():
        nodes = [slot.node for slot in placement] or [""]
        met = {id(groups[node]): groups[node] for node in nodes if node in groups}
        *others, largest = sorted(met.values(), key=lambda group: len(group.jobs)) or [_Group()]
        largest.add(job_id, nodes, need)
        for other in others:
            largest.join(other)
            nodes += other.nodes
        groups.update(dict.fromkeys(nodes, largest))
    return groups


class _Playout:
    """One trial played forward. `holders` are (end, arrival, job) of those that hold something;
    an entry of another end than `holding` says is out of date."""

    def __init__(self, common: Playouts, trial: Trial, most_starts: float) -> None:
        self.most_starts, self.starts = most_starts, 0
        self.may_grow = bool(common.growth_s) and most_starts < math.inf
        self.rates: dict[str, float] = {}
        self.started: dict[str, Fit] = {}
        self.begun: dict[str, Fit] = {}
        self.common, self.trial = common, trial
        self.claims: dict[str, _Claim] = {
            job_id: (option, placement, trial.need(job_id, option))
            for job_id, (option, placement) in trial.claims.items()
        }
        self.now_s, self.room = trial.now_s, trial.free.copy()
        self.ends_s = common.ends_s.copy()
        self.kept: dict[str, Aside] = {}
        self.groups = _groups(self.claims)
        self.always = [node for node, group in self.groups.items() if group.always]
        self.freed = {*self.groups}
        self.saving = {*trial.saving}
        self.queues = dict(common.queues)
        self.at = dict.fromkeys(self.queues, 0)
        self.heads: list[tuple[Entry, int, Demand]] = []
        self.blocked: list[Demand] = []
        changed = {*trial.victims, *trial.joined, *(other for _, other in trial.joined.values())}
        self.holding, self.holders = common.holding.copy(), common.holders.copy()
        if changed:
            self.holders = [entry for entry in self.holders if entry[2] not in changed]
        for job_id in changed & self.holding.keys():
            del self.holding[job_id]
            self.ends_s[common.place[job_id]] = math.nan
        windows = trial.cluster.windows
        over = {window.to_s for window in windows if window.to_s > trial.now_s}
        self.holders += [(to_s, (to_s, -1), "") for to_s in over]
        for job_id in (*trial.started, *(changed & {*trial.running, *trial.saving})):
            end_s = self._shared_end_s(job_id) or trial.expected_release_s(job_id)
            self._hold(end_s, trial.order(job_id), job_id, trial.hold(job_id))
        heapify(self.holders)
        for demand in self.queues:
            self._push_head(demand)
        for job_id in trial.victims:
            if job_id in trial.waiting:
                self._enqueue(job_id)

    def run(self) -> None:
        self._start_claimed()
        self._serve()
        self.begun = self.started.copy()
        self._grow()
        while self.holders and self.starts < self.most_starts:
            self._release()
            self._start_claimed()
            self._serve()
            self._grow()
        if self.most_starts < math.inf:
            self.common.complete_the_rest(self.ends_s, self.now_s)
        self.ends_s[np.isnan(self.ends_s)] = math.inf

    def _hold(self, end_s: float, order: tuple[float, int], job_id: str, hold: Hold) -> None:
        self.holding[job_id] = hold
        self.holders.append((end_s, order, job_id))
        if job_id not in self.saving:
            self.ends_s[self.common.place[job_id]] = end_s

    def _shared_end_s(self, job_id: str) -> float | None:
        """Return when a job ends that the trial let share GPUs, at the rate of the pair."""
        trial, hold = self.trial, self.trial.hold(job_id)
        if hold.partner is None or job_id in self.saving:
            return None
        if job_id in trial.joined:
            option = trial.joined[job_id][0]
            return trial.now_s + trial.expected_run_s(job_id, option, hold.placement) / self._pace(
                job_id
            )
        left_s = trial.expected_release_s(job_id) - trial.now_s
        return trial.now_s + left_s / self._pace(job_id)

    def _pace(self, job_id: str) -> float:
        """Return the rate of a job beside its partner, relative to that alone."""
        trial, partner = self.trial, self.holding.get(job_id, self.trial.hold(job_id)).partner
        assert partner is not None
        return sharing_rate(trial.profile(job_id), trial.profile(partner))

    def _release(self) -> None:
        """Go on to the next instant at which something comes free."""
        self.now_s = self.room.now_s = self.holders[0][0]
        while self.holders and self.holders[0][0] <= self.now_s:
            job_id = heappop(self.holders)[2]
            hold = self.holding.pop(job_id, None)
            if hold is None:
                continue
            saved = job_id in self.saving
            own = self.claims[job_id][1] if job_id in self.claims else ()
            self.freed.update(slot.node for slot in (*hold.placement, *own))
            other = self.holding.get(hold.partner or "")
            partner = hold.partner if other is not None and other.partner == job_id else None
            self.room.give(hold.need, hold.placement, finished=not saved, with_gpus=partner is None)
            if partner is not None:
                self._leave_alone(partner)
            if saved:
                self.saving.discard(job_id)
                self._enqueue(job_id)

    def _leave_alone(self, job_id: str) -> None:
        """Let a job go on without its partner, faster."""
        if job_id in self.saving:
            return
        place = self.common.place[job_id]
        end_s = self.now_s + (self.ends_s[place] - self.now_s) * self._pace(job_id)
        self.ends_s[place] = end_s
        heappush(self.holders, (end_s, self.trial.order(job_id), job_id))

    def _start_claimed(self) -> None:
        """Start those whose claims have come free, in the order in which they were made, and set
        aside what is free of the places of the others."""
        groups = {id(group): group for node in self.freed if (group := self.groups.get(node))}
        self.freed = {*self.always}
        reopened = {job_id for group in groups.values() for job_id in group.jobs}
        for job_id in reopened & self.kept.keys():
            self.room.take_back(self.kept.pop(job_id))
        open_claims = [job_id for job_id in self.claims if job_id in reopened]
        for job_id in open_claims:
            option, placement, need = self.claims[job_id]
            if job_id not in self.saving and self.room.holds(need, placement):
                del self.claims[job_id]
                self._start(job_id, option, placement)
        for job_id in open_claims:
            if job_id in self.claims:
                _, placement, need = self.claims[job_id]
                self.kept[job_id] = self.room.set_aside(need, placement)

    def _serve(self) -> None:
        """Start what fits, in order; of a demand that does not fit nobody else does."""
        blocked, self.blocked = self.blocked, []
        for demand in blocked:
            if demand.has_gpus(self.room):
                self._push_head(demand)
            else:
                self.blocked.append(demand)
        while self.heads:
            (_, _, job_id), _, demand = heappop(self.heads)
            fit = demand.fit(self.room)
            if fit is None:
                self.blocked.append(demand)
                continue
            option = self.trial.options(job_id)[fit[0]]
            self.started[job_id] = option, fit[1]
            self._start(job_id, option, fit[1])
            self._push_head(demand)

    def _grow(self) -> None:
        """While nobody waits, let elastic jobs go on in the fastest option that fits, first who
        would gain most in its fastest."""
        while self.may_grow and self.starts < self.most_starts:
            if self.heads or self.blocked or self.claims or self.saving:
                return
            if not any(map(self._grows, self._growing())):
                return

    def _growing(self) -> list[str]:
        """Return those who would gain most by growing."""
        gains_s = []
        for job_id in self.holding.keys() & self.common.growth_s.keys():
            fastest = self.trial.options(job_id)[0].rate
            left_s = self.ends_s[self.common.place[job_id]] - self.now_s
            gain_s = left_s - self._left_after_s(job_id, fastest)
            if gain_s > TIME_TOLERANCE_S and self.holding[job_id].partner is None:
                gains_s.append((-gain_s, self.trial.order(job_id), job_id))
        return [job_id for *_, job_id in nsmallest(MOST_TRIED, gains_s)]

    def _left_after_s(self, job_id: str, rate: float) -> float:
        """Return how long a job would still take if it went on at another rate."""
        left_s = float(self.ends_s[self.common.place[job_id]]) - self.now_s
        return self.common.growth_s[job_id] + left_s * self._rate(job_id) / rate

    def _rate(self, job_id: str) -> float:
        """Return the rate at which a job runs."""
        if job_id not in self.rates:
            begun = self.trial.started.get(job_id) or self.trial.joined.get(job_id)
            self.rates[job_id] = begun[0].rate if begun else self.trial.rate_now(job_id)
        return self.rates[job_id]

    def _grows(self, job_id: str) -> bool:
        """Let a job go on where it is done earlier, if there is such a place."""
        trial, hold, place = self.trial, self.holding[job_id], self.common.place[job_id]
        self.room.give(hold.need, hold.placement, finished=False)
        fit = trial.demand(job_id).fit(self.room)
        if fit is not None:
            option = trial.options(job_id)[fit[0]]
            left_s = self._left_after_s(job_id, option.rate)
            if self.now_s + left_s < self.ends_s[place] - TIME_TOLERANCE_S:
                self.rates[job_id] = option.rate
                self._occupy(job_id, trial.need(job_id, option), fit[1], self.now_s + left_s)
                return True
        self.room.take(hold.need, hold.placement)
        return False

    def _start(self, job_id: str, option: Option, placement: Placement) -> None:
        trial = self.trial
        end_s = self.now_s + trial.expected_run_s(job_id, option, placement)
        if trial.cluster.windows:
            end_s = trial.through_windows_s(job_id, placement, end_s)
        self.rates[job_id] = option.rate
        self._occupy(job_id, trial.need(job_id, option), placement, end_s)

    def _occupy(self, job_id: str, need: Need, placement: Placement, end_s: float) -> None:
        self.room.take(need, placement)
        self.holding[job_id] = Hold(need, placement, None)
        self.ends_s[self.common.place[job_id]] = end_s
        heappush(self.holders, (end_s, self.trial.order(job_id), job_id))
        self.starts += 1

    def _enqueue(self, job_id: str) -> None:
        """Put a job that has been saved in order."""
        if job_id in self.claims:
            return
        demand = self.trial.demand(job_id)
        queue = self.queues.get(demand, [])[self.at.get(demand, 0) :]
        left_s = self.trial.remaining_work_s(job_id) if job_id in self.trial.victims else None
        insort(queue, self.common.entry(job_id, left_s))
        self.queues[demand], self.at[demand] = queue, 0
        self.heads = [head for head in self.heads if head[2] is not demand]
        heapify(self.heads)
        if demand not in self.blocked:
            self._push_head(demand)

    def _push_head(self, demand: Demand) -> None:
        """Offer the next of a demand that waits for no place that is kept for it."""
        queue, ends_s, place = self.queues[demand], self.ends_s, self.common.place
        i = self.at[demand]
        while i < len(queue) and (
            queue[i][2] in self.claims or not math.isnan(ends_s[place[queue[i][2]]])
        ):
            i += 1
        self.at[demand] = i
        if i < len(queue):
            heappush(self.heads, (queue[i], demand.number, demand))
