"""Certificates of bounds by prices: what `optsched verify-bound` recomputes by plain arithmetic."""

import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge

from ..frozen import frozen
from ..model.quantity import PositiveCount
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
class GangPrices:
    """What a second costs in each interval in which a job holds so many GPUs of a type, for all of
    them together."""

    job: str
    gpu_type: str | None = None
    gpus: PositiveCount
    per_s: tuple[NotNegative, ...]


@frozen
class Certificate:
    """Prices that prove that no plan has a smaller `value`: "wct" by their sum, the others because
    they refute `value`. With `replay` no schedule has in which the attempts of the instance fail.
    Prices of `gangs`, which stand alone, say it of plans in the plan class.

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
    gangs: tuple[GangPrices, ...] = ()


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
    if certificate.gangs:
        stated["gangs"] = [plain(own) for own in certificate.gangs]
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
    intervals = len(grid) - 1
    by_type = [(own.gpu_type, own.per_gpu_s) for own in parsed.prices]
    yield from _priced("prices", "per_gpu_s", "gpu_type", by_type, intervals)
    by_quota = [(own.tenant, own.per_gpu_s) for own in parsed.quotas]
    yield from _priced("quotas", "per_gpu_s", "tenant", by_quota, intervals)
    by_gang = [((own.job, own.gpu_type, own.gpus), own.per_s) for own in parsed.gangs]
    yield from _priced("gangs", "per_s", "job", by_gang, intervals)
    if parsed.gangs and (
        parsed.objective != "wct" or parsed.prices or parsed.quotas or parsed.replay
    ):
        yield Fault(
            "gangs",
            "stand beside other prices, another objective than wct or attempts that fail",
            "leave one of the two out",
        )
    if not math.isfinite(parsed.value):
        yield Fault("value", "is not a number", "correct it")


def _priced(
    field: str,
    prices: str,
    name: str,
    rows: Sequence[tuple[Hashable, tuple[float, ...]]],
    intervals: int,
) -> Iterator[Fault]:
    seen: set[Hashable] = set()
    for i, (of, own) in enumerate(rows):
        if len(own) != intervals:
            yield Fault(
                f"{field}[{i}].{prices}",
                f"has {len(own)} prices for {intervals} intervals",
                "give one price for each interval",
            )
        if of in seen:
            yield Fault(f"{field}[{i}].{name}", f"{of!r} appears twice", "keep one")
        seen.add(of)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of certificates."""
    return schema_of(Certificate, "optsched bound certificate")
