"""Places that wait for their jobs, and running jobs that stay."""

import math
from collections.abc import Iterable

from optsched.driver import Reservation, Reservations, World
from optsched.driver.reservation import Claimed, are_sure
from optsched.model import Placement
from optsched.objectives import Objective
from optsched.physics.modes import Option

from .demand_queue import arrival_key
from .starting import start_each


class KeptPlaces:
    """Claims, whose places are still being left, the place that is kept for who has waited too long
    (see `optsched.driver.reservation`), and whom a decision may not preempt.

    `unripe` are the running jobs that may not be preempted yet, None before the first decision, and
    `biding` those that wait by choice, for whom no place is kept.
    """

    def __init__(self) -> None:
        self.reservations = Reservations(early=True)
        self.unripe: set[str] | None = None
        self.biding: set[str] = set()

    def pinned(self, world: World) -> set[str]:
        """Return the running jobs that may not be preempted now, or must not be."""
        if self.unripe is None:
            self.unripe = set(world.running)
        self.unripe = {
            job_id
            for job_id in self.unripe
            if job_id in world.running and not world.may_preempt(job_id)
        }
        return self.unripe | self.reservations.pinned(world)

    def start(self, world: World, job_id: str, option: Option, placement: Placement) -> None:
        """Start a job, which may not be preempted before it has run for a while."""
        world.start(job_id, option, placement)
        self.began((job_id,))

    def began(self, started: Iterable[str]) -> None:
        """Note that jobs have started."""
        if self.unripe is not None:
            self.unripe.update(started)

    def start_claimed(self, world: World) -> None:
        """Start those whose places have come free."""
        self.began(world.start_claimed())

    def start_reserved(self, world: World, *, before_higher: bool = True) -> None:
        """Start those for whom a place is kept, as soon as there is room that nobody has claimed;
        not `before_higher` if a job of a higher priority waits, which the round decides first."""
        while True:
            self.renew(world)
            kept = self.reservations.current
            if kept is None or kept.job not in world.waiting or kept.job in world.claims:
                return
            if not before_higher and _is_outranked(world, kept.job):
                return
            if not _claimed_nodes(world).isdisjoint(slot.node for slot in kept.placement):
                return  # what is free there now may be part of a claim
            if not world.free.holds(world.need(kept.job, kept.option), kept.placement):
                self._clear(world, kept)
                return
            self.start(world, kept.job, kept.option, kept.placement)
            self.reservations.began(world)

    def _clear(self, world: World, kept: Reservation) -> None:
        """Preempt who is still on a place that is due, and start its job there once they have
        saved."""
        overstaying = self.reservations.overstaying(world, self.pinned(world))
        for job_id in overstaying:
            world.preempt(job_id)
        if overstaying:
            world.claim(kept.job, kept.option, kept.placement)
            self.reservations.began(world)
            self.start_claimed(world)

    def fill(self, world: World, waiting: list[str]) -> None:
        """Start whatever fits beside what is claimed and reserved, the most weight per GPU and
        second first."""
        room = world.free.copy()
        for node in _claimed_nodes(world):
            room.lose(node)

        def start(job_id: str) -> bool:
            fit = self.reservations.fit(world, job_id, room)
            if fit is not None:
                world.take(room, job_id, fit)
                self.start(world, job_id, *fit)
            return fit is not None

        order = sorted(waiting, key=lambda name: arrival_key(world, name, -_density(world, name)))
        start_each(world, order, start)

    def keep(self, world: World, before: Reservation | None = None) -> None:
        """Keep a place for who has waited too long. Where somebody of a higher priority has taken
        the one that was kept `before` at the instant it was due, others start beside them who are
        done by when they are."""
        self.renew(world)
        kept = self.reservations.current
        if before and kept and kept.job == before.job and kept.due_s > before.due_s:
            held_back = {*world.claims, *self.biding}
            self.fill(world, [job_id for job_id in world.waiting if job_id not in held_back])
        if kept is not None and world.now_s < kept.due_s < math.inf:
            world.wake_at(kept.due_s)

    def bide(self, world: World, objective: Objective) -> None:
        """Find out who waits, though there is room, until what it uses costs less."""
        self.biding = set()
        if objective.tariffs(world.instance.cluster):
            self.biding = {
                job_id
                for job_id in world.waiting
                if job_id not in world.claims and self.reservations.fit(world, job_id) is not None
            }

    def renew(self, world: World) -> None:
        """Keep the place that is kept, or one for the next."""
        but = {*world.claims, *self.biding}
        self.reservations.renew(world, but=but, claimed=self._claimed(world))

    def _claimed(self, world: World) -> list[Claimed]:
        """Return the places of claims, and until when their jobs will hold them."""
        return [
            (placement, world.now_s + world.fastest_finish_s(job_id))
            for job_id, (_, placement) in world.claims.items()
        ]

    def reserved(self, world: World) -> tuple[tuple[Placement, float], ...]:
        """Return the place that is kept, and in how many seconds it is due."""
        kept = self.reservations.current
        if kept is None:
            return ()
        return ((kept.placement, max(0.0, kept.due_s - world.now_s)),)

    def reserved_for(self, world: World) -> str | None:
        """Return the job that may start on the place kept for it before that is due: only where run
        times are sure, as what who runs there has left is a guess elsewhere."""
        kept = self.reservations.current
        return kept.job if kept is not None and are_sure(world) else None

    def reserved_rank(self, world: World) -> float:
        """Return the priority of the job for which a place is kept, infinite for none."""
        kept = self.reservations.current
        return math.inf if kept is None else world.rank(kept.job)


def _claimed_nodes(world: World) -> set[str]:
    return {slot.node for _, placement in world.claims.values() for slot in placement}


def _density(world: World, job_id: str) -> float:
    return world.job(job_id).weight / world.service_left_gpu_s(job_id)


def _is_outranked(world: World, job_id: str) -> bool:
    own = world.rank(job_id)
    return any(world.rank(name) > own for name in world.waiting if name not in world.claims)
