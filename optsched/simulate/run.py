"""Runs a policy over an instance in virtual time and returns the plan it made."""

import math
from collections.abc import Callable

from ..errors import InputError, OptschedError
from ..instance import Instance
from ..physics import TIME_TOLERANCE_S
from ..plan import JobPlan, Plan
from ..policy import Policy
from ..verify import decision_now
from .world import World


class Stalled(OptschedError):
    """Jobs wait, nothing runs and nothing is to come: the policy will never start them."""


def simulate(
    instance: Instance,
    policy: Policy,
    *,
    round_s: float | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Plan:
    """The plan that `policy` makes of a checked instance, with every job run to its end.

    Time is virtual and progress exact between events, so the same instance always gives the same plan. The
    policy decides at every event or, with `round_s`, only at multiples of it after `Instance.now_s`: jobs still
    end, arrive and come free in between, but what they leave or ask for waits for the next round. Rounds before
    which nothing has happened are skipped. `on_progress` is told after each decision how many jobs are done.

    Raises Stalled where the policy leaves jobs waiting for ever, PolicyFault where it asks for what cannot be,
    InputError for a round that is no positive length of time.
    """
    if round_s is not None and not (math.isfinite(round_s) and round_s >= TIME_TOLERANCE_S):
        raise InputError(f"round of {round_s} s: must be a length of time of at least {TIME_TOLERANCE_S:g} s")
    world = World(instance)
    while world.unfinished and world.advance(round_s):
        policy.decide(world)
        if on_progress is not None:
            on_progress(len(instance.jobs) - world.unfinished)
    if world.unfinished:
        raise Stalled(_why_stalled(world, policy))
    entries = []
    for job in instance.jobs:
        segments = world.segments(job.id)
        entries.append(JobPlan(id=job.id, decision=decision_now(instance, job, segments), segments=segments))
    return Plan(jobs=tuple(entries))


def _why_stalled(world: World, policy: Policy) -> str:
    waiting = list(world.waiting)
    where = f"{policy.name} stops at {world.now_s:g} s, nothing runs or is to come, {len(waiting)} jobs wait"
    if not waiting:
        return f"{where}: {world.unfinished} jobs wait for jobs that never complete"
    first = waiting[0]
    needs = world.demand(first).needs
    if world.fit(first) is not None:
        return f"{where}: it does not start job {first}, which fits"
    if needs and not any(world.free.within_budgets(need) for need in needs):
        return f"{where}: what is left of the budgets allows no mode of job {first}"
    return f"{where}: job {first} does not fit"
