"""Quotas of GPUs as the check of bounds reads them: the jobs of a tenant count against its own, and
against those of all tenants that it is part of."""

from collections import defaultdict

from ..model import Instance


def limits(instance: Instance) -> dict[str | None, int]:
    """Return the most GPUs that the jobs below each quota may hold at once, and (None) those below
    any quota, where a tenant may borrow that is below no other's."""
    most: dict[str | None, int] = {
        own.name: own.gpu_quota + own.borrow_gpus
        for own in instance.tenants
        if own.gpu_quota is not None
    }
    inside = {name for quota, below in members(instance).items() for name in below - {quota}}
    lenders = [own for own in instance.tenants if own.name in most and own.name not in inside]
    if not any(own.borrow_gpus for own in lenders):
        return most
    every = sum(own.gpu_quota or 0 for own in lenders)
    return {name: min(own, every) for name, own in most.items()} | {None: every}


def members(instance: Instance) -> dict[str | None, set[str]]:
    """Return the tenants whose jobs count against the quota of each tenant that has one."""
    children: dict[str | None, list[str]] = defaultdict(list)
    for own in instance.tenants:
        children[own.parent].append(own.name)
    below: dict[str | None, set[str]] = {}
    for own in instance.tenants:
        if own.gpu_quota is None:
            continue
        seen, fresh = {own.name}, [own.name]
        while fresh:
            fresh = [name for parent in fresh for name in children[parent] if name not in seen]
            seen.update(fresh)
        below[own.name] = seen
    return below


def counts_against(instance: Instance) -> dict[str | None, tuple[str | None, ...]]:
    """Return the limits that the jobs of each tenant count against."""
    below, most = members(instance), limits(instance)
    if None in most:
        below[None] = set().union(*below.values())
    against: dict[str | None, tuple[str | None, ...]] = defaultdict(tuple)
    for quota, names in below.items():
        for name in names:
            against[name] += (quota,)
    return against
