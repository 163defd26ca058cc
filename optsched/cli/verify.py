"""`optsched verify`: check a plan independently of what made it."""

import math
from collections.abc import Iterator
from typing import Any

import click

from .. import files, objectives
from ..errors import InputError
from ..frozen import record
from ..model import Instance
from ..noun import number_of
from .parts.arguments import instance_argument, load, option
from .parts.out import Json, Out, answers, show


@click.command("verify")
@instance_argument
@click.argument("plan", metavar="PLAN")
@option("--objective NAME", "Recompute this objective instead of the one in the plan file.")
@answers
def command(instance: str, plan: str, objective: str | None, out: Out) -> int:
    """Check that PLAN obeys every rule of INSTANCE and is worth what it states.

    Everything is recomputed from the files alone: capacities, gangs, memory, precedence, release
    dates, preemption costs, work done and the value of the objective, which the stated bound must
    not exceed. Exit status: 0 if all is well, 1 if not.

    \b
    optsched verify cluster.json plan.json
    optsched verify cluster.json plan.json --objective makespan
    """
    from ..picture.facts import level_unit
    from ..picture.text import with_length

    verdict = check(load(instance), plan, objective)
    if verdict["ok"] or out.as_json:

        def parts() -> Iterator[str]:
            yield f"OK: {plan} is a valid plan of {number_of(verdict['jobs'], 'job')}"
            for level in verdict["levels"]:
                same = ", as the file says" if level["matches"] else ""
                value = with_length(level["value"], level_unit(level["name"]))
                yield f"  {level['name']}  {value}{same}"

        out.answer(lambda: verdict, parts)
    else:
        found = number_of(len(verdict["violations"]), "violation")
        says = (f"  {own['rule']}: {own['message']}" for own in verdict["violations"])
        show(f"{plan}: {found}", *says, err=out.quiet)
    return 0 if verdict["ok"] else 1


RELATIVE_TOLERANCE = 1e-6
"""Difference of two values of an objective, relative to what lies after now, that counts as
rounding."""
WHERE = ("rule", "message", "job", "node", "time_s")
INSTANT_S = 1e-6
"""Rounding of a completion time."""


def check(instance: Instance, plan_path: str, objective: str | None) -> Json:
    """Return everything that is wrong with a plan file, and the values recomputed from it.

    Raises InputError where the file cannot be read or names an unknown objective.
    """
    from ..verify import verify

    stated, plan = files.read_plan(plan_path)
    wanted = objectives.parse(objective or stated.objective.name)
    wrong: list[Json] = []
    own_hash = files.instance_hash(instance)
    if stated.instance.hash != own_hash:
        message = (
            f"the plan was made for instance {stated.instance.name} with content "
            f"{stated.instance.hash}, this is {instance.name} with content {own_hash}"
        )
        wrong.append(_wrong("instance", message))
    if not stated.replay:
        instance = instance.undisturbed
    levels: list[Level] = []
    status = stated.objective.status
    if plan is None:
        wrong.append(_wrong("no plan", f"the file holds no plan, only the status {status}"))
    else:
        report = verify(instance, plan, wanted, replay=stated.replay)
        wrong += [{name: getattr(own, name) for name in WHERE} for own in report.violations]
        claims = _claims(stated) if wanted.name == _canonical(stated.objective.name) else {}
        for i, value in enumerate(report.values or ()):
            name = objectives.level_name(wanted.levels[i])
            claimed, bound = claims.get(i, (None, None))
            rounding = _rounding(instance, wanted.levels[i], value)
            levels.append(Level(name, value, claimed, bound, rounding))
            wrong += levels[-1].wrong()
        if report.ok and status in ("infeasible", "unknown"):
            wrong.append(_wrong("status", f"the file says {status}, but holds a valid plan"))
        if claims and status == "optimal" and not all(level.is_reached for level in levels):
            message = "the file says optimal, but its bound does not reach the value"
            wrong.append(_wrong("status", message))
    return {
        "ok": not wrong,
        "jobs": len(plan.jobs) if plan else 0,
        "levels": [level.said for level in levels],
        "violations": wrong,
    }


def _wrong(rule: str, message: str) -> Json:
    return {**dict.fromkeys(WHERE), "rule": rule, "message": message}


@record
class Level:
    """A level of the objective: its value, what the file claims, and by how much both may
    differ."""

    name: str
    value: float
    claimed: float | None
    bound: float | None
    rounding: float

    @property
    def matches(self) -> bool | None:
        """Return whether the value is the claimed one; None where none is claimed."""
        return None if self.claimed is None else abs(self.claimed - self.value) <= self.rounding

    @property
    def is_reached(self) -> bool:
        """Return whether the bound is the value."""
        return self.bound is not None and abs(self.bound - self.value) <= self.rounding

    @property
    def said(self) -> Json:
        """Return what is told of it."""
        names = ("name", "value", "claimed", "bound", "matches")
        return {name: getattr(self, name) for name in names}

    def wrong(self) -> Iterator[Json]:
        """Yield what is wrong with what the file claims."""
        name, value = self.name, self.value
        if self.matches is False:
            message = f"{name} of this plan is {value:.10g}, the file says {self.claimed:.10g}"
            yield _wrong("value", message)
        if self.bound is not None and self.bound > value + self.rounding:
            above = f"the stated bound {self.bound:.10g} of {name} lies above the value"
            yield _wrong("bound", f"{above} {value:.10g} of a plan")


def _canonical(name: str) -> str:
    try:
        return objectives.parse(name).name
    except InputError:
        return name


def _claims(stated: Any) -> dict[int, tuple[float | None, float | None]]:
    """Return value and bound that the file states, by level."""
    if stated.objective.levels:
        return {i: (level.value, level.bound) for i, level in enumerate(stated.objective.levels)}
    return {0: (stated.objective.value, stated.objective.bound)}


def _rounding(
    instance: Instance, level: tuple[tuple[float, objectives.Term], ...], value: float
) -> float:
    """Return what two numbers for one level may differ by: relative to what is not past, so that a
    long past hides nothing."""
    past = _if_done_at(instance, level, instance.now_s)
    moved = abs(_if_done_at(instance, level, instance.now_s + INSTANT_S) - past)
    return RELATIVE_TOLERANCE * abs(value - past) + 4 * moved + 4 * math.ulp(value)


def _if_done_at(
    instance: Instance, level: tuple[tuple[float, objectives.Term], ...], at_s: float
) -> float:
    """Return the level's value if jobs were done at an instant, or with their submission; a rate
    then would be infinite, and what segments cost is none of it."""
    total = []
    for weight, term in level:
        if not isinstance(term, objectives.Usage):
            costs = [(term.cost(instance, job), max(at_s, job.submit_s)) for job in instance.jobs]
            finite = [
                cost.at(done_s)
                for cost, done_s in costs
                if cost is not None and not isinstance(cost, objectives.Inverse)
            ]
            total.append(weight * term.combine(finite))
    return math.fsum(total)
