"""What a caller may ask for: a tenant, a tier, weight, priority and time."""

from ..caps import limits_of, may_use
from ..controller import Controller
from .bodies import SubmitBody
from .peer import Caller
from .refusal import HttpError


def tenant_of(body: SubmitBody, caller: Caller, controller: Controller) -> str | None:
    """Return the tenant of the job. Raises HttpError: 403, 422."""
    tenants = controller.settings.tenants
    if body.tenant is None:
        return next((tenant.name for tenant in tenants if caller.name in tenant.users), None)
    wanted = next((tenant for tenant in tenants if tenant.name == body.tenant), None)
    if wanted is None:
        names = ", ".join(tenant.name for tenant in tenants[:20])
        remedy = f"there are {names}" if names else "leave it out"
        raise HttpError(422, f"there is no tenant {body.tenant!r}; {remedy}")
    if wanted.users and caller.name not in wanted.users and not caller.all_jobs:
        raise HttpError(403, f"{caller.name} is not among the users of tenant {wanted.name}")
    return wanted.name


def priority_of(body: SubmitBody, controller: Controller) -> int:
    """Return the priority that is asked for, by its number or as that of a tier."""
    if body.tier is None:
        return body.priority
    tiers = controller.settings.tiers
    priority = next((tier.priority for tier in tiers if tier.name == body.tier), None)
    if priority is None:
        names = ", ".join(tier.name for tier in tiers[:20])
        remedy = f"there are {names}" if names else "give priority, a number, or leave it out"
        raise HttpError(422, f"there is no tier {body.tier!r}; {remedy}")
    if body.priority not in (0, priority):
        raise HttpError(422, f"tier {body.tier} has priority {priority}; leave out priority")
    return priority


def check_limits(
    weight: float, priority: int | None, caller: Caller, tenant: str | None, controller: Controller
) -> None:
    """Check weight and priority, which are at the cost of others: only operators may ask for more
    than cluster.toml allows."""
    if caller.all_jobs:
        return
    whose = f"jobs of {caller.name}" + (f" in tenant {tenant}" if tenant else "")
    limits = limits_of(controller.settings, caller.name, tenant)
    if weight > limits.weight:
        raise HttpError(
            403,
            f"weight {weight:g} is above {limits.weight:g}, the most that {whose} may have "
            "(max_weight in "
            "cluster.toml); ask an administrator, or give less",
        )
    if priority is None:
        return
    tier = next((tier for tier in controller.settings.tiers if tier.priority == priority), None)
    if tier is not None and not may_use(tier, caller.name, tenant):
        raise HttpError(
            403, f"{whose} may not be of tier {tier.name} (tiers in cluster.toml); ask for another"
        )
    if tier is None and priority > limits.priority:
        raise HttpError(
            403,
            f"priority {priority} is above {limits.priority}, the most that {whose} may have "
            "(max_priority in cluster.toml); ask an administrator, or give less",
        )


def time_limit_s(
    asked_s: float | None, caller: Caller, tenant: str | None, controller: Controller
) -> float | None:
    """Return its time limit. Raises HttpError 403 for one that is too long."""
    limits = limits_of(controller.settings, caller.name, tenant)
    limit_s = limits.time_limit_s if asked_s is None else asked_s
    most_s = limits.max_time_limit_s
    if limit_s is not None and most_s is not None and limit_s > most_s and not caller.all_jobs:
        raise HttpError(
            403,
            f"limit_s {limit_s:g} is above {most_s:g}, the most that jobs of {caller.name} may run "
            "(max_time_limit in cluster.toml); ask an administrator, or give less",
        )
    return limit_s
