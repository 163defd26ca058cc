"""Plans that the verifier accepts."""

from typing import Any

from optsched import Instance, Plan
from optsched.objectives import Objective, parse
from optsched.verify import verify


def checked(
    instance: Instance, plan: Plan, objective: str | Objective = "wct", **settings: Any
) -> tuple[float, ...]:
    """Return the values of a plan, which must pass the verifier."""
    goal = parse(objective) if isinstance(objective, str) else objective
    report = verify(instance, plan, goal, **settings)
    assert report.ok and report.values is not None, "\n".join(map(str, report.violations))
    return report.values
