"""Cores by GPU: the proportional share of a node's cores, and the ways of a job within it and
beyond."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from optsched.model.cluster import Cluster
from optsched.physics.modes import Option

from .gang_counts import by_size


@lru_cache(maxsize=16)
def core_shares(cluster: Cluster) -> Mapping[str | None, float]:
    """Return for each GPU type the whole cores of each GPU on the node that has the fewest;
    infinite where one does not model them."""
    shares: dict[str | None, float] = {}
    for node in cluster.nodes:
        if node.gpus:
            own = math.inf if node.cpus is None else node.cpus // node.gpus
            shares[node.gpu_type] = min(own, shares.get(node.gpu_type, math.inf))
    return shares


class CoreWays(NamedTuple):
    """Ways of a job on so many GPUs of one type, the fastest first. `best` have as many cores as
    the very fastest, `fair` as many as the fastest of those within the proportional share, or the
    fewest where all have more."""

    gpu_type: str | None
    gpus: int
    every: tuple[Option, ...]
    best: tuple[Option, ...]
    fair: tuple[Option, ...]

    @property
    def fair_rate(self) -> float:
        """Return the rate with the proportional share of cores."""
        return self.fair[0].rate

    def rates(self) -> dict[int, float]:
        """Return the best rate by cores for each GPU."""
        rates: dict[int, float] = {}
        for option in self.every:
            rates.setdefault(option.mode.cpus_per_gpu, option.rate)
        return rates

    def with_cores(self, cpus_per_gpu: int) -> tuple[Option, ...]:
        """Return the ways with so many cores for each GPU."""
        return tuple(option for option in self.every if option.mode.cpus_per_gpu == cpus_per_gpu)


def core_ways(
    options: tuple[Option, ...], shares: Mapping[str | None, float]
) -> tuple[CoreWays, ...]:
    """Return a job's ways by GPU type and count, the fastest first; those without GPUs are not
    among them."""
    ways = []
    for (gpu_type, gpus), every in by_size(options).items():
        share = max(
            shares.get(gpu_type, math.inf), min(option.mode.cpus_per_gpu for option in every)
        )
        top = every[0].mode.cpus_per_gpu
        fair = next(
            option.mode.cpus_per_gpu for option in every if option.mode.cpus_per_gpu <= share
        )
        ways.append(
            CoreWays(
                gpu_type,
                gpus,
                every,
                best=tuple(option for option in every if option.mode.cpus_per_gpu == top),
                fair=tuple(option for option in every if option.mode.cpus_per_gpu == fair),
            )
        )
    return tuple(ways)
