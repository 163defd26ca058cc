"""Batch sizes that change while a job trains, by the rules of Shockwave's simulator (NSDI'23)."""

import tomllib
from importlib.resources import files
from itertools import groupby
from typing import Any

_TABLES: dict[str, Any] = tomllib.loads(files(__package__).joinpath("batch_sizes.toml").read_text())
SAMPLES: dict[str, int] = _TABLES["samples"]
LARGEST: dict[str, int] = _TABLES["largest"]
GNS: dict[str, list[int]] = _TABLES["gns"]
ACCORDION_HEAD: dict[str, int] = _TABLES["accordion"]


def batch_size(model: str, first: int, gpus: int, rule: str, epoch: int) -> int:
    """Return the batch of each GPU in an epoch counted from 0.

    `static` never changes. `accordion` (Agarwal et al., MLSys 2021) uses the largest outside
    critical regimes: the first epochs, for ResNet-18 also 150 to 159 and 250 to 259, for ResNet-50
    the first ten of every 30; it leaves models without regimes alone. `gns` doubles it at the
    epochs of `GNS`.
    """
    most = LARGEST.get(model, first)
    if rule == "gns":
        doublings = sum(1 for start in GNS.get(f"{model} {first} {gpus}", ()) if epoch >= start)
        return max(first, min(first << doublings, most))
    if (
        rule == "accordion"
        and model in LARGEST
        and model != "Transformer"
        and not _critical(model, first, epoch)
    ):
        return most
    return first


def _critical(model: str, first: int, epoch: int) -> bool:
    if model == "ResNet-50":
        return epoch % 30 < 10
    if epoch < ACCORDION_HEAD.get(f"{model} {first}", 10):
        return True
    return model == "ResNet-18" and (150 <= epoch < 160 or 250 <= epoch < 260)


def phases(model: str, first: int, gpus: int, rule: str, epochs: int) -> list[tuple[int, int]]:
    """Return (batch, epochs) one after the other."""
    sizes = (batch_size(model, first, gpus, rule, epoch) for epoch in range(epochs))
    return [(size, len(list(same))) for size, same in groupby(sizes)]


def steps_of_epoch(model: str, batch: int) -> int:
    """Return the steps that go once through the samples."""
    return -(-SAMPLES[model] // batch)
