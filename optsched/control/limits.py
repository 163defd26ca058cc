"""What the jobs of a user may ask for at most, whichever way they come."""

import grp
import os
import pwd
from typing import NamedTuple

from .settings import Settings, TierSettings


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


def may_use(tier: TierSettings, user: str, tenant: str | None) -> bool:
    """Return whether jobs of a user, or of a tenant, may be of a tier."""
    if not (tier.users or tier.groups or tier.tenants):
        return True
    if user in tier.users or tenant in tier.tenants:
        return True
    return bool(tier.groups) and not groups_of(user).isdisjoint(tier.groups)


def groups_of(user: str) -> set[str]:
    """Return the groups of a user of this host; none of one whom it does not know."""
    try:
        known = pwd.getpwnam(user)
        ids = os.getgrouplist(user, known.pw_gid)
    except (KeyError, OSError):
        return set()
    names = set()
    for number in ids:
        try:
            names.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return names
