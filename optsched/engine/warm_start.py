"""A plan of one's own as the start of a search: used as it is, or for its order."""

from typing import TYPE_CHECKING

from ..errors import InputError
from ..model import Instance, JobPlan, Plan, Solution
from ..model.plan_types import malformed
from .incumbent import Incumbent

if TYPE_CHECKING:
    from ..driver.world import World

SOURCE = "initial"
"""What a solution calls the plan that it was given."""


def initial_plan(given: Plan | Solution | None) -> Plan | None:
    """Return the plan to start from. Raises InputError for anything that is not a plan."""
    plan = given.plan if isinstance(given, Solution) else given
    if plan is not None and (fault := malformed(plan)) is not None:
        raise InputError(f"the initial plan {fault}")
    return plan


def offer_initial(incumbent: Incumbent, plan: Plan) -> str | None:
    """Offer the plan if it plans every job of the instance by the rules, else one that starts the
    jobs in its order. Return a note where it could not be used as it is."""
    from ..simulate.run import simulate

    reason = offer_whole(incumbent, plan)
    if reason is None:
        return None
    ordered = simulate(incumbent.instance, PlannedOrder(incumbent.instance, _by_id(plan)))
    reordered = incumbent.offer(ordered, SOURCE)
    used = "is not used" if reordered else "gives only the order of jobs"
    return f"the initial plan {used}: {reordered or reason}"


def offer_whole(incumbent: Incumbent, plan: Plan) -> str | None:
    """Offer the plan as it is; return why it cannot be used."""
    instance, entries = incumbent.instance, _by_id(plan)
    known = tuple(entries[job.id] for job in instance.jobs if job.id in entries)
    if len(known) < len(instance.jobs):
        return f"it plans {len(known):,} of {len(instance.jobs):,} jobs"
    return incumbent.offer(Plan(jobs=known), SOURCE)


def _by_id(plan: Plan) -> dict[str, JobPlan]:
    return {entry.id: entry for entry in plan.jobs if entry.segments}


class PlannedOrder:
    """Policy: start jobs in the order of a plan, those it does not name last; skip what does not
    fit."""

    name = SOURCE
    title = "the order of a given plan"

    def __init__(self, instance: Instance, entries: dict[str, JobPlan]) -> None:
        self._waiting: list[str] = []
        self._rank = {
            job.id: (
                job.id not in entries,
                entries[job.id].segments[0].start_s if job.id in entries else job.submit_s,
                job.submit_s,
                job.id,
            )
            for job in instance.jobs
        }

    def decide(self, world: "World") -> None:
        """Start every waiting job that fits, in order."""
        self._waiting += world.take_arrived()
        self._waiting.sort(key=self._rank.__getitem__)
        waiting = []
        for job_id in self._waiting:
            place = world.fit(job_id)
            if place is None:
                waiting.append(job_id)
            else:
                world.start(job_id, *place)
        self._waiting = waiting
