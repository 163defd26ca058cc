"""What the jobs of a user may ask for at most, whichever way they come."""

from typing import NamedTuple

from .settings import Settings


class Limits(NamedTuple):
    """The largest weight and the highest priority of a job."""

    weight: float
    priority: int


def limits_of(settings: Settings, user: str, tenant: str | None) -> Limits:
    """Return those of the user where cluster.toml has any, else those of the tenant, else those of
    all."""
    weight, priority = settings.limits.max_weight, settings.limits.max_priority
    theirs = next((own for own in settings.tenants if own.name == tenant), None)
    for own in (theirs, settings.limits.users.get(user)):
        if own is not None:
            weight = weight if own.max_weight is None else own.max_weight
            priority = priority if own.max_priority is None else own.max_priority
    return Limits(weight, priority)
