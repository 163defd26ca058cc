"""What cluster.toml allows users, tenants and tiers: what their jobs may ask for at most, and how
many of them may wait and run."""

import grp
import os
import pwd
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..frozen import record
from .settings import Settings, TenantSettings, TierSettings, UserLimits


class Limits(NamedTuple):
    """The largest weight and the highest priority of a job, its time limit where it names none, and
    the longest (None: none)."""

    weight: float
    priority: int
    time_limit_s: float | None
    max_time_limit_s: float | None


def limits_of(settings: Settings, user: str, tenant: str | None) -> Limits:
    """Return those of the user where cluster.toml has any, else those of the tenant, else those of
    all."""
    theirs = next((own for own in settings.tenants if own.name == tenant), None)
    sources = settings.limits.users.get(user), theirs, settings.limits

    def said(name: str) -> Any:
        values = (getattr(own, name) for own in sources if own is not None)
        return next((value for value in values if value is not None), None)

    longest, usual = said("max_time_limit"), said("time_limit")
    if longest is not None:
        usual = longest if usual is None else min(usual, longest)
    return Limits(said("max_weight"), said("max_priority"), usual, longest)


def may_use(tier: TierSettings, user: str, tenant: str | None) -> bool:
    """Return whether jobs of a user, or of a tenant, may be of a tier."""
    if not (tier.users or tier.groups or tier.tenants or tier.qos or tier.accounts):
        return True
    if user in tier.users or tenant in tier.tenants:
        return True
    return bool(tier.groups) and not groups_of(user).isdisjoint(tier.groups)


def priority_in_manager(tiers: Iterable[TierSettings], qos: str | None, account: str | None) -> int:
    """Return the priority of a job that was given to the cluster manager, which has checked its QOS
    and account: that of the highest tier which lists one of these, else 0."""
    of = [tier.priority for tier in tiers if qos in tier.qos or account in tier.accounts]
    return max(of, default=0)


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


@record
class Cap:
    """How many jobs `whose`, a user's or a tenant's, or tasks of an array, may wait and run, and
    GPUs be held, at once, and GPU-hours be used in a period; None: any number."""

    whose: str
    queued: int | None
    running: int | None
    gpus: int | None = None
    gpu_hours: float | None = None
    where: str = " (max_running in cluster.toml)"


def caps_of(settings: Settings, user: str, tenant: str | None) -> tuple[Cap, ...]:
    """Return the caps on the jobs of a user in a tenant, those that limit nothing left out."""
    limits, theirs = settings.limits, settings.limits.users.get(user)

    def own(name: str) -> Any:
        said = None if theirs is None else getattr(theirs, name)
        return getattr(limits, name) if said is None else said

    caps = [Cap(user, own("max_queued"), own("max_running"), own("max_gpus"), own("max_gpu_hours"))]
    for named in upwards(settings, tenant):
        whose, hours = f"tenant {named.name}", named.max_gpu_hours
        if named.name == tenant:
            caps.append(Cap(whose, named.max_queued, named.max_running, gpu_hours=hours))
        else:
            caps.append(Cap(whose, None, None, gpu_hours=hours))
    nothing = (None,) * 4
    return tuple(
        cap for cap in caps if (cap.queued, cap.running, cap.gpus, cap.gpu_hours) != nothing
    )


def caps_on_labels(
    settings: Settings, user: str, tenant: str | None, labels: Iterable[str]
) -> Iterator[Cap]:
    """Yield the caps on what the jobs of a user in a tenant hold on nodes with these labels."""
    for label in sorted(settings.limits.labels.keys() & labels):
        limits, where = settings.limits.labels[label], f", on nodes with label {label},"
        most = limits.users.get(user, limits.max_gpus)
        if most is not None:
            yield Cap(user + where, None, None, most)
        for named in upwards(settings, tenant):
            if named.name in limits.tenants:
                whose = f"tenant {named.name}{where}"
                yield Cap(whose, None, None, limits.tenants[named.name])


def upwards(settings: Settings, tenant: str | None) -> Iterator[TenantSettings]:
    """Yield a tenant and those that it is part of."""
    known = {own.name: own for own in settings.tenants}
    for _ in settings.tenants:
        if tenant not in known:
            return
        yield known[tenant]
        tenant = known[tenant].parent


def has_budgets(settings: Settings) -> bool:
    """Return whether anybody has a budget."""
    limits = settings.limits
    users: list[UserLimits] = [limits, *limits.users.values()]
    return any(own.max_gpu_hours is not None for own in (*users, *settings.tenants))
