"""Certificates of bounds by prices: what `optsched verify-bound` recomputes by plain arithmetic."""

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge

from ..frozen import frozen
from . import InstanceRef, lines, number, parse_file, plain, read_bytes, schema_of
from .faults import Fault

NotNegative = Annotated[float, Ge(0)]
BOUND_FORMAT = "optsched-bound/1"


@frozen
class TypePrices:
    """What a GPU-second of one type costs in each interval; `gpu_type` None are the GPUs without a
    type."""

    gpu_type: str | None = None
    per_gpu_s: tuple[NotNegative, ...]


@frozen
class QuotaPrices:
    """What a GPU-second of the quota of a tenant costs in each interval; `tenant` None is that of
    all quotas together, where tenants lend."""

    tenant: str | None = None
    per_gpu_s: tuple[NotNegative, ...]


@frozen
class Certificate:
    """Prices that prove that no plan has a smaller `value`: "wct" by their sum, the others because
    they refute `value`. With `replay` no schedule has in which the attempts of the instance fail.

    `grid_s` are the instants, in seconds after the instance's now, between which prices are
    constant, from 0 on; GPUs are free after the last.
    """

    format: Literal["optsched-bound/1"]
    instance: InstanceRef
    objective: Literal["wct", "makespan", "ftf"]
    value: float
    grid_s: tuple[NotNegative, ...]
    prices: tuple[TypePrices, ...] = ()
    quotas: tuple[QuotaPrices, ...] = ()
    replay: bool = False


def dump_certificate(certificate: Certificate) -> str:
    """Return the certificate as file text, the prices of a GPU type a line."""
    stated: dict[str, Any] = {
        "format": certificate.format,
        "instance": {"name": certificate.instance.name, "hash": certificate.instance.hash},
        "objective": certificate.objective,
        "value": number(certificate.value),
        "grid_s": [number(at) for at in certificate.grid_s],
        "prices": [plain(own) for own in certificate.prices],
    }
    if certificate.quotas:
        stated["quotas"] = [plain(own) for own in certificate.quotas]
    if certificate.replay:
        stated["replay"] = True
    return lines(stated)


def read_certificate(path: str | Path) -> Certificate:
    """Read a certificate. Raises InputError naming every fault."""
    return load_certificate(read_bytes(path), str(path))


def load_certificate(data: bytes | str, name: str = "certificate") -> Certificate:
    """Parse a certificate; `name` is what messages call it. Raises InputError naming every
    fault."""
    parsed: Certificate = parse_file(Certificate, data, name, BOUND_FORMAT, _faults)
    return parsed


def _faults(parsed: Certificate) -> Iterator[Fault]:
    grid = parsed.grid_s
    if len(grid) < 2 or grid[0] != 0 or any(a >= b for a, b in pairwise(grid)):
        yield Fault(
            "grid_s",
            "is not a list of two or more rising instants from 0 on",
            "give the intervals' ends",
        )
    yield from _priced("prices", "gpu_type", parsed.prices, len(grid) - 1)
    yield from _priced("quotas", "tenant", parsed.quotas, len(grid) - 1)
    if not math.isfinite(parsed.value):
        yield Fault("value", "is not a number", "correct it")


def _priced(
    field: str, name: str, rows: tuple[TypePrices | QuotaPrices, ...], intervals: int
) -> Iterator[Fault]:
    seen = set()
    for i, own in enumerate(rows):
        if len(own.per_gpu_s) != intervals:
            yield Fault(
                f"{field}[{i}].per_gpu_s",
                f"has {len(own.per_gpu_s)} prices for {intervals} intervals",
                "give one price for each interval",
            )
        of = getattr(own, name)
        if of in seen:
            yield Fault(f"{field}[{i}].{name}", f"{of!r} appears twice", "keep one")
        seen.add(of)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of certificates."""
    return schema_of(Certificate, "optsched bound certificate")
