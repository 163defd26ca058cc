"""Starting jobs, and asking for the next decision, as several rules do."""

import math
from collections.abc import Callable, Iterable

from optsched.driver import Fit, World

from .demand_queue import in_order


def start_at(world: World, job_id: str, fit: Fit | None) -> bool:
    """Start a waiting job where it was found to fit; return whether it was."""
    if fit is not None:
        world.start(job_id, *fit)
    return fit is not None


def start_fitting(world: World, job_id: str) -> bool:
    """Start a waiting job if it fits what is free; return whether it does."""
    return start_at(world, job_id, world.fit(job_id))


def is_free(world: World, job_id: str, fit: Fit) -> bool:
    """Tell whether a job waits and could start now in this very place."""
    return job_id in world.waiting and world.free.holds(world.need(job_id, fit[0]), fit[1])


def start_each(world: World, jobs: Iterable[str], start: Callable[[str], bool]) -> list[str]:
    """Try jobs in order with `start`, which says whether it has started the job. Those of one
    demand with a job that cannot start are left out. Return those that have started."""
    refused: set[int] = set()
    started = []
    for job_id in jobs:
        number = world.demand(job_id).number
        if number in refused:
            continue
        if start(job_id):
            started.append(job_id)
        else:
            refused.add(number)
    return started


def start_what_fits(world: World) -> list[str]:
    """Start every waiting job that fits, by priority and arrival; return which."""
    waiting = in_order(world, world.waiting)
    return start_each(world, waiting, lambda job_id: start_fitting(world, job_id))


def wake(world: World, at_s: float) -> None:
    """Ask for a decision at this time, at once where it has passed, for none where it is
    infinite."""
    if at_s < math.inf:
        world.wake_at(max(at_s, math.nextafter(world.now_s, math.inf)))
