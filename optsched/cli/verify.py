"""`optsched verify`: check a plan independently of what made it."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..model.instance import Instance
from .parts.arguments import instance_argument, load, option
from .parts.out import Json, Out, answers

if TYPE_CHECKING:
    from ..objectives import Term


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
            yield f"OK: {plan} is a valid plan of {verdict['jobs']:,} jobs"
            for level in verdict["levels"]:
                same = ", as the file says" if level["matches"] else ""
                value = with_length(level["value"], level_unit(level["name"]))
                yield f"  {level['name']}  {value}{same}"

        out.answer(lambda: verdict, parts)
    else:
        count = len(verdict["violations"])
        click.echo(f"{plan}: {count} violation{'s' if count != 1 else ''}", err=out.quiet)
        for violation in verdict["violations"]:
            click.echo(f"  {violation['rule']}: {violation['message']}", err=out.quiet)
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
    from .. import files, objectives
    from ..verify import verify

    stated, plan = files.read_plan(plan_path)
    wanted = objectives.parse(objective or stated.objective.name)
    wrong: list[Json] = []

    def add(rule: str, message: str, **where: Any) -> None:
        nowhere = {"job": None, "node": None, "time_s": None}
        wrong.append({"rule": rule, "message": message, **nowhere, **where})

    own_hash = files.instance_hash(instance)
    if stated.instance.hash != own_hash:
        add(
            "instance",
            f"the plan was made for instance {stated.instance.name} with content "
            f"{stated.instance.hash}, this is {instance.name} with content {own_hash}",
        )
    if not stated.replay:
        instance = instance.undisturbed
    levels: list[Json] = []
    status = stated.objective.status
    if plan is None:
        add("no plan", f"the file holds no plan, only the status {status}")
    else:
        report = verify(instance, plan, wanted, replay=stated.replay)
        for violation in report.violations:
            add(**{name: getattr(violation, name) for name in WHERE})
        claims = _claims(stated) if wanted.name == _canonical(stated.objective.name) else {}
        reaches = True
        for i, value in enumerate(report.values or ()):
            name = objectives.level_name(wanted.levels[i])
            claimed, bound = claims.get(i, (None, None))
            rounding = _rounding(instance, wanted.levels[i], value)
            matches = None if claimed is None else abs(claimed - value) <= rounding
            levels.append(
                {
                    "name": name,
                    "value": value,
                    "claimed": claimed,
                    "bound": bound,
                    "matches": matches,
                }
            )
            reaches = reaches and bound is not None and abs(bound - value) <= rounding
            if matches is False:
                add("value", f"{name} of this plan is {value:.10g}, the file says {claimed:.10g}")
            if bound is not None and bound > value + rounding:
                above = f"the stated bound {bound:.10g} of {name} lies above the value"
                add("bound", f"{above} {value:.10g} of a plan")
        if report.ok and status in ("infeasible", "unknown"):
            add("status", f"the file says {status}, but holds a valid plan")
        if claims and status == "optimal" and not reaches:
            add("status", "the file says optimal, but its bound does not reach the value")
    return {
        "ok": not wrong,
        "jobs": len(plan.jobs) if plan else 0,
        "levels": levels,
        "violations": wrong,
    }


def _canonical(name: str) -> str:
    from .. import objectives

    try:
        return objectives.parse(name).name
    except InputError:
        return name


def _claims(stated: Any) -> dict[int, tuple[float | None, float | None]]:
    """Return value and bound that the file states, by level."""
    if stated.objective.levels:
        return {i: (level.value, level.bound) for i, level in enumerate(stated.objective.levels)}
    return {0: (stated.objective.value, stated.objective.bound)}


def _rounding(instance: Instance, level: "tuple[tuple[float, Term], ...]", value: float) -> float:
    """Return what two numbers for one level may differ by: relative to what is not past, so that a
    long past hides nothing."""
    past = _if_done_at(instance, level, instance.now_s)
    moved = abs(_if_done_at(instance, level, instance.now_s + INSTANT_S) - past)
    return RELATIVE_TOLERANCE * abs(value - past) + 4 * moved + 4 * math.ulp(value)


def _if_done_at(instance: Instance, level: "tuple[tuple[float, Term], ...]", at_s: float) -> float:
    """Return the level's value if jobs were done at an instant, or with their submission; a rate
    then would be infinite, and what segments cost is none of it."""
    from .. import objectives

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
