"""Hadar: the gangs of a round, chosen by payoff at primal-dual prices."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from optsched.driver import Fit, Need, Outlook, Room, World
from optsched.model import Placement, Profile
from optsched.physics import TIME_TOLERANCE_S, gpus_by_type, hold_to_save_s, setup_s
from optsched.physics.modes import Option
from optsched.plugins.options import (
    PluginOptions,
    PositiveDuration,
    PositiveNumber,
    declared_options,
)

from ..parts.demand_queue import arrival_key
from ..parts.reallocation import may_move
from ..parts.starting import is_free, start_what_fits
from .places import Shelves, Utility, Way, best_rate, offers, prices, ways_of

LATER = 1.0 + 1e-9
"""A running job only moves where it ends earlier by more than rounding."""


class Share(NamedTuple):
    """What a job gets in a round; `option` None: it stays where it is. `done_s` is how long it then
    takes."""

    option: Option | None
    placement: Placement
    payoff: float
    done_s: float

    def need(self, world: World, job_id: str) -> Need:
        """Return what the job takes there."""
        return world.hold(job_id).need if self.option is None else world.need(job_id, self.option)


@dataclass(slots=True)
class Round:
    """An allocation while it is made: what is left, what it costs, who got what. `refused` is by
    demand and profile the least that a place costs, infinite where there is none; it can only rise
    in a round."""

    room: Room
    shelves: Shelves
    shares: dict[str, Share]
    ways: dict[tuple[Option, ...], tuple[Way, ...]]
    refused: dict[tuple[int, Profile], float]


class Hadar:
    """Rounds: the jobs in order of utility for each GPU take the place of largest payoff, if that
    is positive.

    The utility of a job is its weight divided by the time from its submission to its completion.
    The payoff of a place is that utility less the price of its GPUs, which rises on each node from
    the lowest to the highest by low (high / low)^(share of its GPUs given away) (`Prices`). Places
    are one node, or several, of one GPU type or of a mix: the gang is then as fast as its slowest
    type. A job whose best payoff is not positive waits.

    A running job stays unless another place ends it earlier, set-up and checkpoint counted, or its
    GPUs go to a job before it in the order; so do those whose payoff is not positive while nobody
    takes their GPUs. Jobs that share GPUs or may not be preempted keep what they have. Jobs of no
    weight take what is left. Jobs that arrive wait for the next round, but where nothing runs a
    round begins at once. After a decision `planned` says where jobs start once others have left.
    """

    name = "hadar"
    title = "gangs on mixes of GPU types by payoff at prices that rise with the use of each node"

    @declared_options
    class Options(PluginOptions):
        round_s: Annotated[PositiveDuration, "Time from one allocation to the next."] = 360.0
        eta: Annotated[PositiveNumber, "The larger, the lower the lowest price."] = 1.0
        fill: Annotated[bool, "Jobs whose payoff is not positive take what is left, too."] = False
        utility: Annotated[
            Literal["jct", "rate"],
            "By the time to completion, or by the mean rate from submission to completion relative "
            "to the job's fastest, which prefers no short jobs.",
        ] = "jct"

    def __init__(self, options: Options) -> None:
        self.round_s, self.eta, self.fill = options.round_s, options.eta, options.fill
        self.utility = Utility(relative=options.utility == "rate")
        self._next_s = -math.inf
        self.planned: dict[str, Fit] = {}
        self._mixed = self._started = 0

    def facts(self) -> dict[str, float | str]:
        """Return how many starts there were, and how many of them on several GPU types."""
        return {"starts": self._started, "starts_on_several_gpu_types": self._mixed}

    def decide(self, world: World) -> None:
        """Allocate where a round has passed or nothing runs, then start who has a place."""
        if world.now_s >= self._next_s - TIME_TOLERANCE_S or world.idle:
            self._next_s = world.now_s + self.round_s
            self._allocate(world)
        for job_id, fit in list(self.planned.items()):
            if is_free(world, job_id, fit):
                del self.planned[job_id]
                world.start(job_id, *fit)
                self._started += 1
                self._mixed += len(gpus_by_type(world.cluster, fit[1])) > 1
        if world.idle:  # nothing is worth its price: then whatever fits
            self._started += len(start_what_fits(world))
        if not world.idle:
            world.wake_at(self._next_s)

    def _allocate(self, world: World) -> None:
        movable = [
            job_id
            for job_id in world.running
            if world.hold(job_id).partner is None
            and may_move(world, job_id)
            and world.options(job_id)
        ]
        jobs = [*world.waiting, *movable]
        outlook = Outlook(world, movable)
        held = [slot.node for job_id in movable for slot in world.placement(job_id)]
        shelves = Shelves(world, outlook.room, prices(world, jobs, self.eta, self.utility), held)
        now = Round(outlook.room, shelves, {}, {}, {})
        order = sorted(
            jobs,
            key=lambda job_id: (
                arrival_key(world, job_id)[0],
                -self._density(world, job_id),
                arrival_key(world, job_id),
            ),
        )
        self.share_out(world, now, order)
        for job_id in order:
            if job_id not in now.shares and (keeping := self._keeping(world, now, job_id)):
                self.take(world, now, job_id, keeping)
        for job_id in order:
            if job_id not in now.shares and (self.fill or not world.job(job_id).weight):
                self.take_best(world, now, job_id, free=True)
        for job_id in movable:
            if job_id not in now.shares or now.shares[job_id].option is not None:
                world.preempt(job_id)
        self.planned = {
            job_id: (share.option, share.placement)
            for job_id, share in now.shares.items()
            if share.option is not None
        }

    def share_out(self, world: World, now: Round, order: list[str]) -> None:
        """Give each job its best place, in order."""
        for job_id in order:
            self.take_best(world, now, job_id)

    def take_best(self, world: World, now: Round, job_id: str, *, free: bool = False) -> None:
        """Give a job the place of largest payoff, if that is positive; with `free` whatever it
        costs."""
        kind = world.demand(job_id).number, world.profile(job_id)
        best = self._keeping(world, now, job_id)
        refused = now.refused.get(kind, -math.inf)
        if (
            best is None
            and not free
            and self.utility.of(world, job_id, self.soonest_s(world, job_id)) <= refused
        ):
            return
        if best is not None and best.payoff > 0 and best.done_s <= self.soonest_s(world, job_id):
            self.take(world, now, job_id, best)
            return
        least = self.utility.of(world, job_id, best.done_s) * LATER if best is not None else 0.0
        cheapest = math.inf
        for way in self.ways(world, now, job_id):
            for share, cost in self.places(world, now, job_id, way, free=free):
                cheapest = min(cheapest, cost)
                better = best is None or share.payoff > best.payoff
                if better and (
                    best is None or self.utility.of(world, job_id, share.done_s) > least
                ):
                    best = share
        if best is None or not (best.payoff > 0 or free):
            now.refused[kind] = cheapest
            return
        self.take(world, now, job_id, best)

    def soonest_s(self, world: World, job_id: str) -> float:
        """Return seconds until a job could be done at best, were it to start now or, if it runs, to
        move."""
        job = world.job(job_id)
        starts_s = world.fastest_finish_s(job_id)
        if job_id in world.running:
            starts_s = hold_to_save_s(job) + setup_s(job, ran_before=True)
        else:
            starts_s -= world.remaining_work_s(job_id) / world.fastest(job_id).rate
        return starts_s + world.remaining_work_s(job_id) / best_rate(world, job_id)

    def ways(self, world: World, now: Round, job_id: str) -> tuple[Way, ...]:
        """Return the ways in which a job could be given a place."""
        options = world.options(job_id)
        if options not in now.ways:
            now.ways[options] = ways_of(world, job_id)
        return now.ways[options]

    def places(
        self, world: World, now: Round, job_id: str, way: Way, *, free: bool = False
    ) -> list[tuple[Share, float]]:
        """Return what a job could get in one way, each with its cost."""
        saves_s = hold_to_save_s(world.job(job_id)) if job_id in world.running else 0.0
        shares = []
        for option, placement, cost in offers(world, now.room, now.shelves, job_id, way):
            done_s = saves_s + world.expected_run_s(job_id, option, placement)
            payoff = self.utility.of(world, job_id, done_s) - (0.0 if free else cost)
            shares.append((Share(option, placement, payoff, done_s), cost))
        return shares

    def _keeping(self, world: World, now: Round, job_id: str) -> Share | None:
        """Return the share that stays where it runs, if nobody took that."""
        if job_id not in world.running:
            return None
        hold = world.hold(job_id)
        if not now.room.holds(hold.need, hold.placement):
            return None
        done_s = world.expected_release_s(job_id) - world.now_s
        cost = sum(slot.gpus * now.shelves.price(slot.node) for slot in hold.placement if slot.gpus)
        return Share(None, hold.placement, self.utility.of(world, job_id, done_s) - cost, done_s)

    def _density(self, world: World, job_id: str) -> float:
        """Return the utility for each GPU if the job were at once in its fastest option, or goes on
        where it is."""
        done_s = world.fastest_finish_s(job_id)
        if job_id in world.running:
            done_s = min(done_s, world.expected_release_s(job_id) - world.now_s)
        return self.utility.of(world, job_id, done_s) / max(1, world.fastest(job_id).mode.gpus)

    def take(self, world: World, now: Round, job_id: str, share: Share) -> None:
        """Give a job its share."""
        now.room.take(share.need(world, job_id), share.placement)
        now.shelves.changed(share.placement)
        now.shares[job_id] = share
