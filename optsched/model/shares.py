"""What tenants and users have held lately, and for how long that counts."""

from typing import Annotated

from annotated_types import Ge, Le

from ..frozen import frozen

GpuSeconds = Annotated[float, Ge(0), Le(1e18)]
HalfLife = Annotated[float, Ge(1), Le(1e10)]
"""Seconds after which use counts half."""
Account = tuple[str | None, str | None]
"""Who is charged: a tenant and a user of it. Jobs without a tenant are those of one more tenant."""


@frozen
class Use:
    """GPU-seconds that the jobs of one user have held for one tenant, decayed to `now_s` of the
    instance."""

    tenant: str | None = None
    user: str | None = None
    gpu_s: GpuSeconds


@frozen
class Shares:
    """Rounds favour jobs of tenants that have used less than their weights entitle them to. Use
    counts half after `half_life_s`; `used` is what was held before `now_s`."""

    half_life_s: HalfLife
    used: tuple[Use, ...] = ()
