"""Deciding at each interval what every job gets and where, and bringing what runs to that."""

from collections.abc import Iterable
from dataclasses import replace

from optsched.driver import Fit, Outlook, Room, World
from optsched.model import Placement, Running
from optsched.physics import cpus, span
from optsched.physics.modes import WIDEST_FIRST, Option

from .demand_queue import in_order
from .reallocation import IntervalOption, Reallocation, may_move
from .starting import is_free, start_what_fits


class PlacedReallocation(Reallocation):
    """Base of the policies that decide at each interval on the very nodes of each job;
    `place_jobs` is the rule.

    A running job that is given what it holds stays; the others that may be moved are preempted, and
    start on their new places as soon as these are free, which may be at once. Jobs that may not be
    preempted, those that share their GPUs, those that have not worked for half an interval in their
    stay, and those with periodic checkpoints before the first of it keep what they have. Between
    two intervals only jobs start that were given a place at the last.

    With `moves_pairs` jobs that share may be moved where both may, and two jobs may be given one
    place (`partners`): whoever comes second starts beside the other.
    """

    moves_pairs = False

    def __init__(self, options: IntervalOption) -> None:
        super().__init__(options)
        self._pending: dict[str, Fit] = {}
        self.partners: dict[str, str] = {}

    def place_jobs(self, world: World, movable: list[str], room: Room) -> dict[str, Fit]:
        """Return the places of those of the `movable` jobs that are to run: they are the jobs that
        wait, are being saved or may be moved, in order of priority and arrival. `room` is what is
        free once all have left, to be used up."""
        raise NotImplementedError

    def start(self, world: World, job_id: str, fit: Fit) -> None:
        """Start the job on its place."""
        world.start(job_id, *fit)

    def _reallocate(self, world: World) -> None:
        outlook = Outlook(world)
        movable = []
        for job_id in in_order(world, (*world.waiting, *world.saving, *world.running)):
            if job_id in world.running and not self._is_movable(world, job_id):
                continue
            if job_id not in world.waiting:
                outlook.release(job_id)
            movable.append(job_id)
        placements = self.place_jobs(world, movable, outlook.room)
        self._pending = {}
        for job_id in movable:
            if job_id in world.running:
                if job_id in placements and holds_place(world, job_id, placements[job_id]):
                    continue
                world.preempt(job_id)
            if job_id in placements:
                self._pending[job_id] = placements[job_id]

    def _is_movable(self, world: World, job_id: str) -> bool:
        partner = world.hold(job_id).partner
        if partner is None:
            return self._may_move(world, job_id)
        pair = job_id, partner
        return self.moves_pairs and all(
            name in world.running and self._may_move(world, name) for name in pair
        )

    def _may_move(self, world: World, job_id: str) -> bool:
        """Return whether a running job may be moved: it has worked for half an interval in its
        stay, or those whose set-up takes as long as the interval would be moved for ever."""
        if not may_move(world, job_id):
            return False
        entry, profile = world.entry(job_id), world.profile(job_id)
        stay_s = profile.startup_s + profile.restore_s + self.interval_s / 2
        return isinstance(entry, Running) and world.now_s - entry.started_s >= stay_s

    def _start(self, world: World) -> None:
        """Start whoever waits and finds its place free; where nothing runs, whatever fits."""
        for job_id, fit in list(self._pending.items()):
            partner = self.partners.get(job_id)
            if is_free(world, job_id, fit):
                self.start(world, job_id, fit)
                del self._pending[job_id]
            elif (
                partner in world.running
                and gpus_of(world.placement(partner)) == gpus_of(fit[1])
                and world.may_share(job_id, fit[0], partner)
            ):
                world.start_sharing(job_id, fit[0], partner)
                del self._pending[job_id]
        if world.idle:
            for job_id in start_what_fits(world):
                self._pending.pop(job_id, None)


def holds_place(world: World, job_id: str, fit: Fit) -> bool:
    """Return whether a running job holds just what the place gives it."""
    entry = world.entry(job_id)
    option, placement = fit
    same_mode = isinstance(entry, Running) and entry.mode.size == option.mode.size
    return same_mode and world.placement(job_id) == placement


def gpus_of(placement: Placement) -> dict[str, int]:
    """Return the GPUs of a placement by node."""
    return {slot.node: slot.gpus for slot in placement}


def own_place(world: World, job_id: str, option: Option) -> Placement | None:
    """Return the GPUs that a running job holds, with the cores of `option`; None where they do not
    serve it."""
    if job_id not in world.running:
        return None
    return resized(world, world.placement(job_id), option)


def resized(world: World, placement: Placement, option: Option) -> Placement | None:
    """Return the same GPUs with the cores of `option`; None where they do not serve it."""
    mode, cluster = option.mode, world.cluster
    if not placement or sum(slot.gpus for slot in placement) != mode.gpus:
        return None
    if mode.gpus and cluster.node[placement[0].node].gpu_type != mode.gpu_type:
        return None
    if WIDEST_FIRST.index(span(cluster, placement)) < WIDEST_FIRST.index(option.spread):
        return None
    return tuple(replace(slot, cpus=cpus(mode, slot.gpus)) for slot in placement)


class Placements:
    """Placements in `room`, which they use up. `staying` are running jobs that will be placed too:
    a job looks for a place beside what they hold now before it takes one of theirs."""

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
        """Place the job under the first of the options that has a place: its own, one that is
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

    def take(self, job_id: str, fit: Fit | None) -> bool:
        """Place the job where it was found to fit; return whether it was."""
        if fit is not None:
            self.put(job_id, *fit)
        return fit is not None

    def put(self, job_id: str, option: Option, placement: Placement) -> None:
        """Place the job where it is known to fit."""
        self._take(
            job_id, option, placement, anybodys=placement != own_place(self.world, job_id, option)
        )

    def take_back(self, job_id: str) -> Fit:
        """Take the job's place away again; return it."""
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
