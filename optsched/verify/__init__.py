"""The independent checker of plans: plain loops over nouns and physics, nothing shared with any
solver."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..model import Instance, JobPlan, Plan, Segment
from ..objectives import Objective, values
from .capacity import budgets, neighbours, node_capacity, quotas, rack_uplinks, resources, sharing
from .contention import Crowding
from .fetches import fetches
from .progress import check_job, decision_now
from .segments import running_faults
from .structure import precedence, structure
from .violation import Violation
from .windows import lower_capacity, windows

__all__ = [
    "Report",
    "Violation",
    "decision_now",
    "held_faults",
    "limit_faults",
    "running_faults",
    "verify",
]


CHECKS = (precedence, node_capacity, resources, rack_uplinks, quotas, neighbours, budgets)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of the verifier. `values` (one for each level of the objective) is None for a
    rejected plan."""

    violations: tuple[Violation, ...]
    values: tuple[float, ...] | None

    @property
    def ok(self) -> bool:
        return not self.violations


def verify(instance: Instance, plan: Plan, objective: Objective, *, replay: bool = False) -> Report:
    """Check every rule of DESIGN 4 and 5 and recompute the objective from the plan alone.

    `replay` says that the plan is what happened: jobs may have run out of GPU memory beside others.
    O(S log S) for S segment pieces. Rules: see `docs/concepts.md`; each violation names job, node
    and time.
    """
    violations = list(structure(instance, plan))
    if not violations:
        crowding, fetched = Crowding(instance, plan), fetches(instance, plan)
        for entry in plan.jobs:
            violations.extend(check_job(instance, entry, crowding, fetched, replay=replay))
        for check in CHECKS:
            violations.extend(check(instance, plan))
        violations.extend(sharing(instance, plan, replay=replay))
        violations.extend(windows(instance, plan, replay=replay))
        violations.extend(lower_capacity(instance, plan, replay=replay))
    if violations:
        return Report(tuple(violations), None)
    computed = values(objective, instance, plan)
    if not all(math.isfinite(value) for value in computed):
        message = f"the objective {objective.name} is not finite in this plan"
        return Report((Violation("objective", message),), None)
    return Report((), computed)


def held_faults(instance: Instance) -> list[str]:
    """Return what is wrong with all running jobs together: nodes that hold too much, sharing
    without a partner.

    Each entry must be without `running_faults`.
    """
    return _faults_now(instance, (node_capacity, sharing))


def limit_faults(instance: Instance) -> list[str]:
    """Return which resources, uplinks and quotas all running jobs together exceed.

    Rounds preempt for these; they must be without `held_faults`.
    """
    return _faults_now(instance, (resources, rack_uplinks, quotas))


def _faults_now(
    instance: Instance, checks: Iterable[Callable[[Instance, Plan], Iterable[Violation]]]
) -> list[str]:
    """Return what `checks` say of all running jobs in the next second."""
    now = Plan(
        jobs=tuple(
            JobPlan(
                id=entry.job,
                decision="continue",
                segments=(
                    Segment(
                        start_s=instance.now_s,
                        end_s=instance.now_s + 1.0,
                        mode=entry.mode,
                        placement=entry.placement,
                    ),
                ),
            )
            for entry in instance.running
        )
    )
    return [violation.message for check in checks for violation in check(instance.undisturbed, now)]
