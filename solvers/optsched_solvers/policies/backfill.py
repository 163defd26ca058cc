"""EASY backfilling."""

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from optsched.driver import Outlook, Room, World
from optsched.driver.demand import Demand
from optsched.physics import TIME_TOLERANCE_S

from .parts.demand_queue import Entry, arrival_key
from .parts.starting import start_fitting


@dataclass(slots=True)
class Reservation:
    """When the head of the queue is to start, what is then still free beside it, and what that
    assumes.

    `releases_s` has the expected release of every job that held something when the reservation was
    made.
    """

    head: str
    start_s: float
    beside: Room
    releases_s: dict[str, float]


class Backfill:
    """First in, first out, but a later job may start where it does not delay the first one that
    does not fit.

    EASY (Lifka, The ANL/IBM SP scheduling system, JSSPP 1995), on nodes: the head's reservation is
    found by releasing running jobs in the order of their expected end until it fits.
    """

    name = "backfill"
    title = "first in, first out with EASY backfilling"

    def __init__(self) -> None:
        self._queue: list[Entry] = []
        self._reservation: Reservation | None = None

    def decide(self, world: World) -> None:
        """Start from the head while it fits; then reserve for the head and fill what it leaves."""
        arrived = [(arrival_key(world, job_id), job_id) for job_id in world.take_arrived()]
        for entry in arrived:
            insort(self._queue, entry)
        released = world.take_released()
        started = self._start_heads(world)
        if not self._queue:
            self._reservation = None
            return
        head = self._queue[0][1]
        new = self._out_of_date(world, head, released)
        if new:
            self._reservation = reserve(world, head)
        candidates = self._queue[1:] if new or started or released else sorted(arrived)
        waiting = [job_id for _, job_id in candidates if job_id in world.waiting and job_id != head]
        filled = fill(world, self._reservation, waiting)
        if filled:
            self._queue = [entry for entry in self._queue if entry[1] not in filled]

    def _start_heads(self, world: World) -> bool:
        started = 0
        while started < len(self._queue):
            if not start_fitting(world, self._queue[started][1]):
                break
            started += 1
        del self._queue[:started]
        return started > 0

    def _out_of_date(self, world: World, head: str, released: list[str]) -> bool:
        """Return whether there is no reservation for this head, or something did not end as it was
        expected to."""
        known = self._reservation
        if known is None or known.head != head or known.start_s <= world.now_s:
            return True
        soon_s = world.now_s + TIME_TOLERANCE_S
        return any(known.releases_s.get(job_id, soon_s) > soon_s for job_id in released)


def fill(world: World, known: Reservation | None, candidates: Sequence[str]) -> set[str]:
    """Start candidates, in their order, that end before the reservation or fit beside it; return
    those that started."""
    beside = None if known is None else world.free.overlap(known.beside)
    window_s = math.inf
    if known is not None:
        window_s = known.start_s - world.now_s + TIME_TOLERANCE_S
    too_big: set[Demand] = set()
    only_short: set[Demand] = set()
    started = set()
    for job_id in candidates:
        demand = world.demand(job_id)
        if demand in too_big or (
            demand in only_short and world.fastest_finish_s(job_id) > window_s
        ):
            continue
        fit = world.fit(job_id)
        if fit is None:
            too_big.add(demand)
            continue
        run_s = world.expected_run_s(job_id, *fit)
        long = run_s > window_s
        if known is not None and beside is not None and long:
            fit = world.fit(job_id, beside)
            if fit is None:
                only_short.add(demand)
                continue
            run_s = world.expected_run_s(job_id, *fit)
            need = world.need(job_id, fit[0])
            known.beside.take(need, fit[1])
            beside.take(need, fit[1])
        world.start(job_id, *fit)
        started.add(job_id)
        if known is not None:
            known.releases_s[job_id] = world.now_s + run_s
            beside = beside if long else world.free.overlap(known.beside)
    return started


def reserve(world: World, head: str) -> Reservation | None:
    """Return when the head first fits as running jobs end; None where it never does."""
    outlook = Outlook(world)
    ends = sorted((world.expected_release_s(job_id), job_id) for job_id in world.holders)
    for i, (end_s, job_id) in enumerate(ends):
        outlook.release(job_id, finished=job_id in world.running)
        if i + 1 < len(ends) and ends[i + 1][0] == end_s:
            continue
        fit = world.fit(head, outlook.room)
        if fit is not None:
            world.take(outlook.room, head, fit)
            return Reservation(head, end_s, outlook.room, {name: time_s for time_s, name in ends})
    return None
