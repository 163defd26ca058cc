"""Themis: auctions of leases among the jobs that are treated least fairly."""

import math
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from optsched.driver import Fit, Outlook, World
from optsched.physics import TIME_TOLERANCE_S
from optsched.plugins.options import Duration, PluginOptions, Share, declared_options

from .parts.demand_queue import arrival_key
from .parts.reallocation import may_move
from .parts.starting import is_free, start_each, start_fitting, wake

ALWAYS = 1e6
"""Added to the gain of the job that must win."""
PARTS = 4
"""A lease is cut by hidden payments to whole quarters, so that auctions stay rounds."""


class Bid(NamedTuple):
    """A job that asks for `gpus`; `gain` is the logarithm of how much better off it is with
    them."""

    job: str
    gpus: int
    gain: float


class Win(NamedTuple):
    """A job that gets its GPUs; `keeps` is the share of its allocation that is left after its
    hidden payment."""

    job: str
    keeps: float


def allocate(bids: list[Bid], gpus: int) -> list[Win]:
    """Return the bids that fit into `gpus` together and whose gains add up to most (the product of
    valuations is largest), and for each what it keeps: the product of the others' valuations with
    it over that without it.

    Exact, in O(bids x GPUs). Source: K. Mahajan et al., Themis, NSDI 2020, section 5.1, after R.
    Cole et al., Mechanism design for fair division, EC 2013; a gang gets all or nothing.
    """
    before = [np.zeros(gpus + 1)]
    for bid in bids:
        before.append(_with(before[-1], bid))
    after = [np.zeros(gpus + 1)]
    for bid in reversed(bids):
        after.append(_with(after[-1], bid))
    after.reverse()
    best = float(before[-1][gpus])
    wins = []
    left = gpus
    for i in range(len(bids) - 1, -1, -1):
        bid = bids[i]
        if bid.gpus > left or before[i + 1][left] == before[i][left]:
            continue
        left -= bid.gpus
        without = float(np.max(before[i] + after[i + 1][::-1]))
        wins.append(Win(bid.job, min(1.0, math.exp(best - bid.gain - without))))
    return wins[::-1]


def _with(best: NDArray[np.float64], bid: Bid) -> NDArray[np.float64]:
    """Return the largest sum of gains for each number of GPUs, with one more bid."""
    if bid.gpus >= len(best):
        return best
    sums = best.copy()
    taken = best[: len(best) - bid.gpus] + bid.gain
    np.maximum(sums[bid.gpus :], taken, out=sums[bid.gpus :])
    return sums


class Themis:
    """GPUs are leased. When leases end, the share 1 - `fairness` of the jobs whose finish-time
    fairness is worst bids for the GPUs that have come free.

    The fairness of a job is rho = time from its submission to its end if it gets its GPUs now, over
    the time that it would take alone on its share of the cluster (all GPUs / jobs seen there on
    average while it is active, at most its own). Its valuation is 1 / rho with its GPUs, and 1 /
    rho a lease later without. The winners maximise the product of valuations (`allocate`), the
    worst rho always among them, so that nobody is passed for ever. What is left goes to other jobs:
    first those that run go on, then the worst rho starts. In between, GPUs that come free go to the
    worst rho. All leases end together, every `lease`; that of a winner ends earlier by what its
    hidden payment takes.

    Jobs that may not be preempted, or have no checkpoint of their stay yet, keep what they hold.

    """

    name = "themis"
    title = "leases of GPUs auctioned among the jobs with the worst finish-time fairness, with preemption"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        lease_s: Annotated[Duration, Ge(1), "Length of a lease."] = 1200.0
        fairness: Annotated[
            Share, "The share of jobs that does not bid: those with the best finish-time fairness."
        ] = 0.8

    def __init__(self, options: Options) -> None:
        self.lease_s, self.fairness = options.lease_s, options.fairness
        self._begin_s: float | None = None
        self._round_s = 0.0
        self._ends_s: dict[str, float] = {}
        self._winners: dict[str, float] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._ideal_s: dict[str, float] = {}
        self._auctions = self._done = 0
        self._kept = self._won = 0.0
        self._worst = self._sum = 0.0

    def decide(self, world: World) -> None:
        """Hold an auction where leases have ended, and give out what is free."""
        if self._begin_s is None:
            self._begin_s = self._round_s = world.now_s
            self._ends_s = dict.fromkeys(world.running, world.now_s)
        self._note(world)
        if world.now_s >= self._round_s - TIME_TOLERANCE_S:
            part_s = self.lease_s / PARTS
            rounds = math.floor((world.now_s - self._begin_s + TIME_TOLERANCE_S) / part_s) + 1
            self._round_s = self._begin_s + rounds * part_s
            if world.waiting:
                self._auction(world)
        self._start(world)
        if world.waiting and world.running:
            wake(world, self._round_s)

    def facts(self) -> dict[str, float]:
        """Return auctions, the share of leases that winners kept on average, and the finish-time
        fairness of jobs."""
        return {
            "auctions": self._auctions,
            "mean_kept_share": self._kept / self._won if self._won else 1.0,
            "worst_rho": self._worst,
            "mean_rho": self._sum / self._done if self._done else 0.0,
        }

    # -------------------------------------------------------------------------------------------
    # fairness

    def _note(self, world: World) -> None:
        """Note who has come, how many there are, and how those fared who are done."""
        for job_id in dict.fromkeys(world.take_released()):
            if job_id in self._seen and not world.is_active(job_id):
                rho = (world.now_s - world.order(job_id)[0]) / self._ideal_s.pop(job_id)
                self._worst, self._sum, self._done = (
                    max(self._worst, rho),
                    self._sum + rho,
                    self._done + 1,
                )
                del self._seen[job_id]
                self._ends_s.pop(job_id, None)
        active = [*world.waiting, *world.running]
        for job_id in active if world.take_arrived() or not self._seen else ():
            total, times = self._seen.get(job_id, (0, 0))
            self._seen[job_id] = total + len(active), times + 1
            self._ideal_s[job_id] = self._alone_s(world, job_id)

    def _alone_s(self, world: World, job_id: str) -> float:
        """Return seconds that the job would take on its share of the cluster."""
        total, times = self._seen[job_id]
        gpus = world.service_gpus(job_id)
        share = min(float(gpus), max(1, world.cluster.total_gpus) * times / total)
        rate = world.fastest(job_id).rate if world.options(job_id) else 1.0
        return max(TIME_TOLERANCE_S, world.believed_work_s(job_id) / rate * gpus / share)

    def rho(self, world: World, job_id: str, later_s: float = 0.0) -> float:
        """Return the finish-time fairness of a job that gets its GPUs `later_s` from now."""
        shared_s = world.now_s - world.order(job_id)[0] + later_s + world.fastest_finish_s(job_id)
        return shared_s / self._ideal_s[job_id]

    def _worst_first(self, world: World, jobs: list[str]) -> list[str]:
        return sorted(jobs, key=lambda job: arrival_key(world, job, -self.rho(world, job)))

    # -------------------------------------------------------------------------------------------
    # auction

    def _auction(self, world: World) -> None:
        """Lease out anew what the jobs hold whose leases have ended, and what is free."""
        ended = [
            other
            for other in world.running
            if self._ends_s.get(other, -math.inf) <= world.now_s + TIME_TOLERANCE_S
            and may_move(world, other)
        ]
        outlook = Outlook(world, (*world.saving, *ended))
        order = self._worst_first(world, [*world.waiting, *ended])
        offered = order[: max(1, math.ceil((1 - self.fairness) * len(order)))]
        bids = [
            Bid(
                other,
                world.service_gpus(other),
                max(0.0, math.log(self.rho(world, other, self.lease_s) / self.rho(world, other))),
            )
            for other in offered
            if self.rho(world, other) > 0
        ]
        if bids:
            bids[0] = Bid(bids[0].job, bids[0].gpus, bids[0].gain + ALWAYS)
        self._winners = {win.job: win.keeps for win in allocate(bids, sum(outlook.room.pool_gpus))}
        self._auctions += 1
        self._won += len(self._winners)
        self._kept += sum(self._winners.values())
        stay = dict.fromkeys(other for other in ended if other in self._winners)
        for other in stay:  # all of them held their GPUs together until now
            outlook.put_back(other)
        granted: dict[str, Fit] = {}
        for other in self._winners:
            if other in world.waiting and (match := world.fit(other, outlook.room)) is not None:
                granted[other] = match
                world.take(outlook.room, other, match)
        for other in self._worst_first(world, [other for other in ended if other not in stay]):
            hold = world.hold(other)
            if hold.partner is None and outlook.room.holds(hold.need, hold.placement):
                outlook.put_back(other)
                stay[other] = None
        for other in ended:
            if other in stay:
                self._lease(world, other)
            else:
                world.preempt(other)
        world.take_arrived()  # those without a checkpoint wait already
        for job_id, fit in granted.items():
            if is_free(world, job_id, fit):
                world.start(job_id, *fit)
                self._lease(world, job_id)
                del self._winners[job_id]

    def _lease(self, world: World, job_id: str) -> None:
        """Lease until all leases end, or so much earlier as a winner has paid; for a quarter at
        least."""
        assert self._begin_s is not None
        part_s = self.lease_s / PARTS
        leases = math.floor((world.now_s - self._begin_s + TIME_TOLERANCE_S) / self.lease_s) + 1
        end_s = self._begin_s + leases * self.lease_s
        parts = math.ceil(self._winners.get(job_id, 1.0) * PARTS - 1e-9)
        self._ends_s[job_id] = min(
            end_s, max(world.now_s + part_s, end_s - (PARTS - parts) * part_s)
        )

    def _start(self, world: World) -> None:
        """Start winners whose GPUs have come free, then others, unless GPUs for winners are still
        to come."""
        waiting = [other for other in self._winners if other in world.waiting]
        if not (waiting and world.saving):
            waiting += self._worst_first(
                world, [other for other in world.waiting if other not in self._winners]
            )
        for job_id in start_each(world, waiting, lambda job_id: start_fitting(world, job_id)):
            self._lease(world, job_id)
            self._winners.pop(job_id, None)
