"""Certificates of bounds by prices: what `optsched verify-bound` recomputes by plain arithmetic."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge

from ..faults import Fault
from ..file_faults import FaultyFile
from ..files import InstanceRef, adapter, instance_hash, lines, number, parse_file, plain, read_bytes
from ..instance import Instance
from .deadlines import Deadlines
from .market import market
from .priced import Prices

NotNegative = Annotated[float, Ge(0)]
BOUND_FORMAT = "optsched-bound/1"
TOLERANCE = 1e-9
"""A stated bound may lie above the recomputed one by this much relative to it: the rounding of numbers in files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypePrices:
    """What a GPU-second of one type costs in each interval; `gpu_type` None are the GPUs without a type."""

    gpu_type: str | None = None
    per_gpu_s: tuple[NotNegative, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Prices that prove that no plan has a smaller `value`: "wct" by their sum, the others because they refute `value`.

    `grid_s` are the instants, in seconds after the instance's now, between which prices are constant, from 0 on; GPUs
    are free after the last.
    """

    format: Literal["optsched-bound/1"]
    instance: InstanceRef
    objective: Literal["wct", "makespan", "ftf"]
    value: float
    grid_s: tuple[NotNegative, ...]
    prices: tuple[TypePrices, ...] = ()


NOUNS: tuple[type, ...] = (InstanceRef, TypePrices, Certificate)


def certified(
    instance: Instance, name: str, grid_s: list[float], prices: list[list[float]], value: float | None
) -> Certificate:
    """The certificate of prices: with the bound they prove, or of a largest cost with `value`, which they refute."""
    if not instance.jobs:
        found = 0.0
    elif name == "wct":
        found = Prices(market(instance), grid_s, prices).bound()
    else:
        made = market(instance)
        due_s = Deadlines(instance, made, name).at(value or 0.0)
        found = value if value and Prices(made, grid_s, prices).refutes(due_s) else 0.0
    types = instance.cluster.gpu_types if prices else ()
    return Certificate(
        format="optsched-bound/1", instance=InstanceRef(name=instance.name, hash=instance_hash(instance)),
        objective=name, value=found, grid_s=tuple(grid_s),  # type: ignore[arg-type]
        prices=tuple(
            TypePrices(gpu_type=gpu_type, per_gpu_s=tuple(own)) for gpu_type, own in zip(types, prices, strict=True)
        ),
    )


def recomputed(instance: Instance, certificate: Certificate) -> tuple[float | None, list[str]]:
    """The bound that the prices of a certificate prove for an instance, None if they do not prove any, and what is
    wrong with the certificate."""
    wrong = []
    own_hash = instance_hash(instance)
    if certificate.instance.hash != own_hash:
        wrong.append(
            f"the bound was made for instance {certificate.instance.name} with content {certificate.instance.hash}, "
            f"this is {instance.name} with content {own_hash}"
        )
    if not instance.jobs:
        value: float | None = 0.0
    else:
        made = market(instance)
        stated = [own.gpu_type for own in certificate.prices]
        if sorted(map(str, stated)) != sorted(map(str, made.gpu_types)):
            wrong.append(f"it has prices of GPU types {_names(stated)}, the cluster has {_names(made.gpu_types)}")
            return None, wrong
        own_prices = {own.gpu_type: list(own.per_gpu_s) for own in certificate.prices}
        priced = Prices(made, list(certificate.grid_s), [own_prices[gpu_type] for gpu_type in made.gpu_types])
        if certificate.objective == "wct":
            value = priced.bound()
        elif certificate.value <= 0 or priced.refutes(
            Deadlines(instance, made, certificate.objective).at(certificate.value)
        ):
            value = certificate.value
        else:
            value = None
            wrong.append(f"its prices do not refute {certificate.objective} {certificate.value:.12g}")
    if value is not None and certificate.value > value + TOLERANCE * max(1.0, abs(value)):
        wrong.append(f"its prices prove {value:.12g}, the file says {certificate.value:.12g}")
    return value, wrong


def _names(types: Any) -> str:
    return ", ".join("without a name" if one is None else str(one) for one in types) or "none"


def dump_certificate(certificate: Certificate) -> str:
    """The certificate as file text, the prices of a GPU type a line."""
    return lines({
        "format": certificate.format,
        "instance": {"name": certificate.instance.name, "hash": certificate.instance.hash},
        "objective": certificate.objective,
        "value": number(certificate.value),
        "grid_s": [number(at) for at in certificate.grid_s],
        "prices": [plain(own) for own in certificate.prices],
    })


def read_certificate(path: str | Path) -> Certificate:
    """Read a certificate. Raises InputError naming every fault."""
    return load_certificate(read_bytes(path), str(path))


def load_certificate(data: bytes | str, name: str = "certificate") -> Certificate:
    """Parse a certificate; `name` is what messages call it. Raises InputError naming every fault."""
    parsed: Certificate = parse_file(Certificate, data, name, BOUND_FORMAT, NOUNS)
    faults = list(_faults(parsed))
    if faults:
        raise FaultyFile(name, faults)
    return parsed


def _faults(parsed: Certificate) -> Iterator[Fault]:
    grid = parsed.grid_s
    if len(grid) < 2 or grid[0] != 0 or any(a >= b for a, b in pairwise(grid)):
        yield Fault("grid_s", "is not a list of two or more rising instants from 0 on", "give the intervals' ends")
    seen = set()
    for i, own in enumerate(parsed.prices):
        if len(own.per_gpu_s) != len(grid) - 1:
            yield Fault(f"prices[{i}].per_gpu_s", f"has {len(own.per_gpu_s)} prices for {len(grid) - 1} intervals",
                        "give one price for each interval")
        if own.gpu_type in seen:
            yield Fault(f"prices[{i}].gpu_type", f"{own.gpu_type!r} appears twice", "keep one")
        seen.add(own.gpu_type)
    if not math.isfinite(parsed.value):
        yield Fault("value", "is not a number", "correct it")


def schema() -> dict[str, Any]:
    """JSON Schema of certificates."""
    found: dict[str, Any] = adapter(Certificate, NOUNS).json_schema(by_alias=True)
    found["title"] = "optsched bound certificate"
    return found
