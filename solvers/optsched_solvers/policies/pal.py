"""PAL: GPUs of one model that differ in speed, given first to the jobs that feel it most."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from optsched.driver import Fit, Room, World
from optsched.driver.mixed import may_mix, mixed_option
from optsched.physics import Span, gpu_type_rate, locality_rate
from optsched.physics.capacity import serves
from optsched.physics.modes import WIDEST_FIRST, Option
from optsched.plugins.options import declared_options

from .las import level
from .parts.gang_placement import by_rack, first_gpus
from .parts.placed_reallocation import PlacedReallocation, Placements
from .parts.service_order import Order, OrderOption, served_first
from .parts.starting import start_each

NARROWEST_FIRST = WIDEST_FIRST[::-1]


@declared_options
class PalOptions(OrderOption):
    """What may be set of the policy."""

    order: Order = "las"
    place: Annotated[
        Literal["pal", "pm-first", "packed"],
        "By speed and locality, by speed alone, or packed without a look at speeds.",
    ] = "pal"


class PalStyle(PlacedReallocation):
    """At each interval the jobs are taken in order until their GPUs are as many as there are; of
    these whoever feels the difference between GPU types most is placed first, and all are placed
    anew. Other jobs take what is left.

    A type stands for the GPUs of one speed. For each job the products of speed and locality (its
    rate on one node, in one rack, anywhere) are gone through from the largest: the first for which
    there is a place within that span, on GPUs at least as fast, is taken, the tightest one. A gang
    on several types is as fast as its slowest. `pm-first` takes all localities as 1, `packed` all
    speeds, which leaves the jobs in order.

    Source: R. Jain et al., PAL: A variability-aware policy for scheduling ML workloads in GPU
    clusters, SC'24, and its public placement code, which has single GPUs, spans of one node and
    more, and stops at the first job that finds no place; racks and skipping are of this version.
    """

    name = "pal-style"
    title = "jobs that feel differences in speed most choose GPUs first, by speed x locality"
    Options = PalOptions

    def __init__(self, options: PalOptions) -> None:
        super().__init__(options)
        self.place, self.order = options.place, options.order

    def place_jobs(self, world: World, movable: list[str], room: Room) -> dict[str, Fit]:
        """Place the jobs that are served, the most sensitive first, then whoever fits beside
        them."""
        placements = Placements(world, room, ())

        def give(job_id: str) -> bool:
            return placements.take(job_id, self._fit(world, job_id, room))

        ordered = served_first(world, movable, self.order, level)
        served = self._served(world, ordered, sum(room.pool_gpus))
        for job_id in served:
            give(job_id)
        start_each(world, [job_id for job_id in ordered if job_id not in placements.of], give)
        return placements.of

    def _served(self, world: World, ordered: list[str], gpus: int) -> list[str]:
        """Return the first jobs that together ask for no more than so many GPUs, the most sensitive
        first within a priority."""
        served = []
        for job_id in ordered:
            gpus -= world.fewest_gpus(job_id)
            if gpus < 0:
                break
            served.append(job_id)
        if self.place == "packed":
            return served
        return sorted(
            served, key=lambda job_id: (-world.job(job_id).priority, -sensitivity(world, job_id))
        )

    def _fit(self, world: World, job_id: str, room: Room) -> Fit | None:
        """Return the way and place of the largest product of speed and locality."""
        options = world.options(job_id)
        like = next((option for option in options if option.mode.gpus), None)
        job = world.job(job_id)
        if like is None or not may_mix(world, job_id, like) or job.max_nodes is not None:
            return world.fit(job_id, room)
        speeds = self._speeds(world, job_id, like, room)
        widest = min(
            WIDEST_FIRST.index(option.spread) for option in options if option.mode == like.mode
        )
        spans = [span for span in NARROWEST_FIRST if WIDEST_FIRST.index(span) >= widest]
        local = {
            span: 1.0 if self.place == "pm-first" else locality_rate(job.profile, span)
            for span in spans
        }
        matrix = [
            (speed * local[span], span, speed) for span in spans for speed in set(speeds.values())
        ]
        matrix.sort(key=lambda entry: (-entry[0], NARROWEST_FIRST.index(entry[1]), -entry[2]))
        need = world.need(job_id, like)
        for _, span, least in matrix:
            free = {
                name: room.usable_of_any_type(need, name)
                for name, speed in speeds.items()
                if speed >= least
            }
            for gpus_on in _tightest(world, span, free, speeds, like.mode.gpus):
                fit = mixed_option(world, job_id, like, gpus_on)
                if room.holds(world.need(job_id, fit[0]), fit[1]):
                    return fit
        return None

    def _speeds(self, world: World, job_id: str, like: Option, room: Room) -> dict[str, float]:
        """Return how fast the job is on the GPUs of each node with free ones that can serve it."""
        job, mode = world.job(job_id), replace(like.mode, gpu_type=None)
        speeds = {}
        for name in room.nodes_with_gpus():
            node = world.cluster.node[name]
            speed = gpu_type_rate(job.profile, node.gpu_type)
            if speed > 0 and serves(node, job, mode):
                speeds[name] = 1.0 if self.place == "packed" else speed
        return speeds


def sensitivity(world: World, job_id: str) -> float:
    """Return how many times as fast the job is on the fastest GPU type as on the slowest that can
    run it; 1 for a job without GPUs."""
    profile = world.profile(job_id)
    rates = [gpu_type_rate(profile, gpu_type) for gpu_type in world.cluster.gpu_types]
    usable = [rate for rate in rates if rate > 0]
    return max(usable) / min(usable) if usable else 1.0


def _tightest(
    world: World, span: Span, free: dict[str, int], speeds: dict[str, float], gpus: int
) -> Iterator[dict[str, int]]:
    """Return places for a gang, GPUs by node, in each node, each rack or the whole cluster: those
    with the fewest GPUs left over first; within one the fastest nodes, then those whose free GPUs
    are closest to what is asked for."""
    if span == "node":
        groups = [[name] for name in free]
    elif span == "rack":
        groups = [names for (kind, _), names in by_rack(world, free).items() if kind == "rack"]
    else:
        groups = [list(free)]
    for names in sorted(groups, key=lambda names: sum(free[name] for name in names)):
        names.sort(key=lambda name: (-speeds[name], abs(free[name] - gpus)))
        gpus_on = first_gpus(gpus, ((name, free[name]) for name in names))
        if gpus_on is not None:
            yield gpus_on
