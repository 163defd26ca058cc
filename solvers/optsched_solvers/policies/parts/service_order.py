"""Serving jobs in the order that an option names."""

from collections.abc import Callable
from typing import Annotated, Literal

from optsched.driver import World
from optsched.plugins.options import PositiveDuration, declared_options

from .demand_queue import Key, arrival_key
from .reallocation import IntervalOption

Order = Annotated[
    Literal["fifo", "srtf", "las"],
    "First come first served, least time left first, or least GPU service attained first.",
]


@declared_options
class OrderOption(IntervalOption):
    """For policies that serve jobs in rounds, in either order."""

    interval_s: Annotated[PositiveDuration, "Length of a round."] = 300.0
    order: Order = "fifo"


def served_first(
    world: World, jobs: list[str], order: Order, of_service: Callable[[float], float] = float
) -> list[str]:
    """Return jobs, which are by priority and arrival, in order; `of_service` makes a rank of the
    GPU-seconds that a job has attained."""

    def key(job_id: str) -> Key:
        if order == "srtf":
            return arrival_key(world, job_id, world.fastest_finish_s(job_id))
        return arrival_key(world, job_id, of_service(world.attained_gpu_s(job_id)))

    return jobs if order == "fifo" else sorted(jobs, key=key)
