"""Whose jobs a quota of GPUs limits: those of its tenant, and of all tenants below it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..frozen import record
from .cluster import Tenant

MOST_LEVELS = 16
"""A tenant is at most this many levels down."""


@record
class Quotas:
    """The most GPUs that each quota allows at once, borrowed ones included, by tenant; None is that
    of all together, where one that no other quota limits may borrow. `over` has for each tenant the
    quotas that its jobs count against: the one closest to it first."""

    limits: dict[str | None, int]
    over: dict[str, tuple[str | None, ...]]

    @classmethod
    def of(cls, tenants: tuple[Tenant, ...]) -> "Quotas":
        """Return the quotas of tenants, of which each may be part of another."""
        tenant = {own.name: own for own in tenants}
        over: dict[str, tuple[str | None, ...]] = {
            own.name: tuple(above.name for above in _upwards(own, tenant) if limited(above))
            for own in tenants
        }
        limits: dict[str | None, int] = {
            own.name: own.gpu_quota + own.borrow_gpus
            for own in tenants
            if own.gpu_quota is not None
        }
        topmost = [tenant[name] for name, above in over.items() if above == (name,)]
        if any(own.borrow_gpus for own in topmost):
            pool = sum(own.gpu_quota or 0 for own in topmost)
            limits = {name: min(most, pool) for name, most in limits.items()} | {None: pool}
            over = {name: (*above, None) for name, above in over.items() if above}
        return cls(limits, {name: above for name, above in over.items() if above})

    def least(self, tenant: str | None) -> int | None:
        """Return the most GPUs that the jobs of a tenant may hold at once; None is no limit."""
        return min((self.limits[name] for name in self.over.get(tenant or "", ())), default=None)


def capped(tenants: tuple[Tenant, ...], most: Mapping[str, int]) -> tuple[Tenant, ...]:
    """Return the tenants with no more than so many GPUs for some, borrowed ones included. Others
    may borrow what these leave: one more tenant, that nobody is, has it as its quota."""
    after = tuple(
        tenant
        if tenant.name not in most or tenant.gpu_quota is None
        else replace(
            tenant,
            gpu_quota=(own := min(tenant.gpu_quota, most[tenant.name])),
            borrow_gpus=min(tenant.borrow_gpus, most[tenant.name] - own),
        )
        for tenant in tenants
    )
    pool, left = (Quotas.of(own).limits.get(None) for own in (tenants, after))
    if pool is None or left is None or pool == left:
        return after
    nobody = max(tenant.name for tenant in tenants) + "'"
    return (*after, Tenant(name=nobody, gpu_quota=pool - left))


def not_lowered(
    most: Mapping[str, int], tenants: Iterable[Tenant]
) -> Iterator[tuple[str, str, str]]:
    """Yield the tenants of a window's quotas that it does not lower, with what is wrong, and what
    would be right."""
    known = {tenant.name: tenant for tenant in tenants}
    for name, gpus in most.items():
        own = known.get(name)
        if own is None:
            yield name, f"there is no tenant {name!r}", "name a tenant with a gpu_quota"
        elif own.gpu_quota is None:
            yield name, f"tenant {name!r} has no gpu_quota to lower", "give it one"
        elif gpus > (limit := own.gpu_quota + own.borrow_gpus):
            says = f"{gpus} GPUs are more than the {limit} that tenant {name!r} may hold anyway"
            yield name, says, "a window only lowers a quota"


def limited(tenant: Tenant) -> bool:
    """Return whether a tenant has a quota."""
    return tenant.gpu_quota is not None


def _upwards(own: Tenant, tenant: dict[str, Tenant]) -> list[Tenant]:
    """Return a tenant and those that it is part of, as far as they are known."""
    above = [own]
    while len(above) <= MOST_LEVELS and above[-1].parent in tenant:
        above.append(tenant[above[-1].parent or ""])
    return above
