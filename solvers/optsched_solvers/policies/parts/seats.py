"""Seats given out one after the other, with as few moves as can be."""

from collections.abc import Iterable

from optsched.driver.placement import Room
from optsched.driver.view import Fit
from optsched.driver.world import World
from optsched.model.instance import Placement
from optsched.physics.modes import Option

from .seating import own_place


class Seats:
    """Seats in `room`, which they use up. `staying` are running jobs that will be seated too: a job
    looks for a place beside what they hold now before it takes one of theirs."""

    def __init__(self, world: World, room: Room, staying: Iterable[str]) -> None:
        self.world = world
        self.room = room
        self.of: dict[str, Fit] = {}
        self._beside: Room | None = room.copy()
        self._held: dict[str, None] = {}
        for job_id in staying:
            hold = world.hold(job_id)
            self._beside.take(hold.need, hold.placement)
            self._held[job_id] = None

    def give(self, job_id: str, options: Iterable[Option]) -> bool:
        """Seat the job under the first of the options that has a place: its own, one that is
        nobody's, any."""
        options = tuple(options)
        for option in options:
            placement = own_place(self.world, job_id, option)
            if placement is not None and self.room.holds(
                self.world.need(job_id, option), placement
            ):
                self._take(job_id, option, placement, anybodys=False)
                return True
        for option in options:
            need = self.world.need(job_id, option)
            placement = None if self._beside is None else self._beside.place(need)
            if placement is not None and self.room.holds(need, placement):
                self._take(job_id, option, placement, anybodys=False)
                return True
            placement = self.room.place(need)
            if placement is not None:
                self._take(job_id, option, placement, anybodys=True)
                return True
        return False

    def put(self, job_id: str, option: Option, placement: Placement) -> None:
        """Seat the job where it is known to fit."""
        self._take(
            job_id, option, placement, anybodys=placement != own_place(self.world, job_id, option)
        )

    def take_back(self, job_id: str) -> Fit:
        """Unseat the job again."""
        option, placement = self.of.pop(job_id)
        need = self.world.need(job_id, option)
        self.room.give(need, placement, finished=False)
        if self._beside is not None:
            self._beside.give(need, placement, finished=False)
        return option, placement

    def _take(self, job_id: str, option: Option, placement: Placement, *, anybodys: bool) -> None:
        need = self.world.need(job_id, option)
        self.room.take(need, placement)
        self.of[job_id] = option, placement
        if self._beside is None:
            return
        if job_id in self._held:
            hold = self.world.hold(job_id)
            self._beside.give(hold.need, hold.placement, finished=False)
            del self._held[job_id]
        if anybodys and not self._beside.holds(need, placement):
            self._beside = None  # somebody loses its place: from now on nobody's is respected
        else:
            self._beside.take(need, placement)
