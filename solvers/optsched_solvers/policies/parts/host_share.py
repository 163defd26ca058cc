"""Cores and host memory by GPU: the proportional share of a node's, and the ways of a job within it
and beyond."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from optsched.model import Cluster
from optsched.physics.modes import Option

from .gang_counts import by_size


class Host(NamedTuple):
    """Cores and host memory (GiB) for each GPU."""

    cores: float
    gib: float

    def within(self, other: "Host") -> bool:
        """Return whether this is no more of either."""
        return self.cores <= other.cores and self.gib <= other.gib


NONE, ANY = Host(0.0, 0.0), Host(math.inf, math.inf)


@lru_cache(maxsize=16)
def host_shares(cluster: Cluster) -> Mapping[str | None, Host]:
    """Return for each GPU type the whole cores, and the memory, of each GPU on the node that has
    the least; infinite where one does not model them."""
    shares: dict[str | None, Host] = {}
    for node in cluster.nodes:
        if node.gpus:
            cores = math.inf if node.cpus is None else node.cpus // node.gpus
            gib = math.inf if node.memory_gib is None else node.memory_gib / node.gpus
            known = shares.get(node.gpu_type, ANY)
            shares[node.gpu_type] = Host(min(cores, known.cores), min(gib, known.gib))
    return shares


class HostWays(NamedTuple):
    """Ways of a job on so many GPUs of one type, the fastest first. `best` have as many cores and
    as much memory as the very fastest, `fair` as the fastest of those within the proportional
    share of both, or with the least where all have more. `memory_gib` is what the job takes where a
    way does not choose less."""

    gpu_type: str | None
    gpus: int
    memory_gib: float
    every: tuple[Option, ...]
    best: tuple[Option, ...]
    fair: tuple[Option, ...]

    @property
    def fair_rate(self) -> float:
        """Return the rate with the proportional share."""
        return self.fair[0].rate

    def host(self, option: Option) -> Host:
        """Return what a way takes for each GPU."""
        return host_of(option, self.memory_gib)

    def rates(self) -> dict[int, float]:
        """Return the best rate by cores for each GPU."""
        rates: dict[int, float] = {}
        for option in self.every:
            rates.setdefault(option.mode.cpus_per_gpu, option.rate)
        return rates

    def by_host(self) -> dict[Host, float]:
        """Return the best rate by cores and memory for each GPU."""
        rates: dict[Host, float] = {}
        for option in self.every:
            rates.setdefault(self.host(option), option.rate)
        return rates

    def with_cores(self, cpus_per_gpu: int) -> tuple[Option, ...]:
        """Return the ways with so many cores for each GPU."""
        return tuple(option for option in self.every if option.mode.cpus_per_gpu == cpus_per_gpu)

    def with_host(self, host: Host) -> tuple[Option, ...]:
        """Return the ways with so many cores and so much memory for each GPU."""
        return tuple(option for option in self.every if self.host(option) == host)


def host_of(option: Option, memory_gib: float) -> Host:
    """Return what a way takes for each GPU of a job that asks for so much memory."""
    less = option.mode.memory_gib_per_gpu
    return Host(option.mode.cpus_per_gpu, memory_gib if less is None else less)


def host_ways(
    options: tuple[Option, ...], memory_gib: float, shares: Mapping[str | None, Host]
) -> tuple[HostWays, ...]:
    """Return the ways, by GPU type and count, the fastest first, of a job that asks for so much
    memory for each GPU; those without GPUs are not among them."""
    ways = []
    for (gpu_type, gpus), every in by_size(options).items():
        hosts = [host_of(option, memory_gib) for option in every]
        own = shares.get(gpu_type, ANY)
        share = Host(
            max(own.cores, min(host.cores for host in hosts)),
            max(own.gib, min(host.gib for host in hosts)),
        )
        fair = next((host for host in hosts if host.within(share)), min(hosts))
        ways.append(
            HostWays(
                gpu_type,
                gpus,
                memory_gib,
                every,
                best=tuple(o for o, host in zip(every, hosts, strict=True) if host == hosts[0]),
                fair=tuple(o for o, host in zip(every, hosts, strict=True) if host == fair),
            )
        )
    return tuple(ways)
