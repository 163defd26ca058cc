"""The price bound where the capacity of a GPU type is the sets of gangs that fit on it together.

Prices by GPU let half of one gang run beside half of another. Here each job has a price curve of
its own on each GPU type, pi_j(t) for all its GPUs, and at any instant the jobs that run there are
a set that fits:

    bound(pi) = sum_j min_{a, s} [ cost_j(s + p_a) + integral_s^{s+p_a} pi_ja ]
              - sum_c integral of max { sum_{j in S} pi_jc : sum_{j in S} g_j <= m_c }

The second sum is a knapsack for each cell of the grid. With pi_j = g_j lam this is at least the
bound by prices lam (reference: Lagrangian decomposition; Guignard and Kim, Mathematical Programming
39, 1987).
"""

from collections.abc import Callable, Iterator

import numpy as np

from optsched.files import InstanceRef, instance_hash
from optsched.files.certificate import Certificate, GangPrices

from .lagrange import Floats, Ints, PriceBound

AVERAGED = 0.95
"""Share of the direction that is kept from the step before."""
FIRST, SLOWER = 0.4, 20.0
"""A price moves by this share of itself at first where its job runs and fits nowhere, and by so
many times less at the end."""
FLOOR = 0.3
"""A price moves at least as one of this share of the gang's mean price at first, so that one of 0
can rise."""
DIGITS = 9
"""Of each price in a certificate."""
TIE = 1e-9
"""Prices of gangs that run are raised by this share, so that they win ties."""


class GangBound(PriceBound):
    """The dual function of prices by job and GPU type, and its ascent."""

    def _tabulate(self) -> None:
        self.gangs: dict[tuple[int, int, float], int] = {}
        super()._tabulate()
        self._kind: Ints = np.array([kind for _, kind, _ in self.gangs], dtype=np.int64)
        self._size: Ints = np.array([gpus for *_, gpus in self.gangs], dtype=np.int64)

    def _curve(self, job: int, kind: int, gpus: float) -> tuple[int, float]:
        return self.gangs.setdefault((job, kind, gpus), len(self.gangs)), float(gpus > 0)

    @property
    def packed(self) -> int:
        """Return how many values the knapsacks of one evaluation compute."""
        return sum(
            int(self.capacity[kind].max()) * len(self._packable(kind)) * len(self.cells_s)
            for kind in range(len(self.types))
        )

    @property
    def has_gangs(self) -> bool:
        """Return whether a job takes several GPUs; else prices by GPU are as good."""
        return bool((self._size > 1).any())

    def _packable(self, kind: int) -> list[int]:
        """Return the sizes of gangs on a type, each as often as it fits and there are gangs."""
        most = int(self.capacity[kind].max())
        sizes, gangs = np.unique(self._size[self._kind == kind], return_counts=True)
        return [
            size
            for size, count in zip(sizes.tolist(), gangs.tolist(), strict=True)
            if 0 < size <= most
            for _ in range(min(count, most // size))
        ]

    def _sold(self, prices: Floats, used: Floats) -> tuple[float, Floats]:
        """Return what the dearest sets of gangs are worth, and how long each gang is in them."""
        held, worth = np.zeros_like(prices), 0.0
        for kind in range(len(self.types)):
            gangs = np.flatnonzero(self._kind == kind)
            liked = prices[gangs] * (1 + TIE * (used[gangs] / self.cells_s))
            best, held[gangs] = self._dearest(kind, gangs, liked)
            worth += float(np.sum(best * self.cells_s))
        return worth, held * self.cells_s

    def _dearest(self, kind: int, gangs: Ints, prices: Floats) -> tuple[Floats, Floats]:
        """Return the value of the dearest set of gangs in each cell and which are in it: knapsacks
        by dynamic programming, of the dearest gangs of each size."""
        sizes, cell = self._packable(kind), np.arange(prices.shape[1])
        capacity = self.capacity[kind].astype(np.int64)
        dearest = [
            own[np.argsort(-prices[own], axis=0)[: sizes.count(size)]]
            for size in sorted(set(sizes))
            for own in [np.flatnonzero(self._size[gangs] == size)]
        ]
        held = np.zeros_like(prices)
        value = np.zeros((int(capacity.max()) + 1, len(cell)))
        if not dearest:
            return value[0], held
        which = np.concatenate(dearest)
        taken = np.zeros((len(sizes), *value.shape), dtype=bool)
        for item, size in enumerate(sizes):
            with_it = value[:-size] + prices[which[item], cell]
            taken[item, size:] = with_it > value[size:]
            value[size:] = np.maximum(value[size:], with_it)
        left = capacity.copy()
        for item in reversed(range(len(sizes))):
            here = taken[item, left, cell]
            held[which[item, here], cell[here]] = 1.0
            left -= np.where(here, sizes[item], 0)
        return value[capacity, cell], held

    def of_gangs(self, prices: Floats) -> Floats:
        """Return prices by GPU type as those of the gangs."""
        return prices[self._kind] * self._size[:, None]

    def certificate(self, prices: Floats) -> Certificate | None:
        """Return the certificate of weighted completion times that prices of gangs are; None where
        no job takes GPUs."""
        rounded = np.array([float(f"{own:.{DIGITS}g}") for own in prices.ravel().tolist()])
        prices = rounded.reshape(prices.shape)
        value, _ = self.evaluate(prices)
        instance = self.problem.instance
        clock = self.problem.tick.clock_ulp_s * sum(job.weight for job in instance.jobs)
        rows = [
            GangPrices(
                job=instance.jobs[job].id,
                gpu_type=self.types[kind],
                gpus=int(gpus),
                per_s=tuple(own.tolist()),
            )
            for (job, kind, gpus), own in zip(self.gangs, prices, strict=True)
            if gpus
        ]
        if not rows:
            return None
        return Certificate(
            format="optsched-bound/1",
            instance=InstanceRef(name=instance.name, hash=instance_hash(instance)),
            objective="wct",
            value=self.certain + value - 1e-9 * abs(value) - clock,
            grid_s=tuple(self.grid_s.tolist()),
            gangs=tuple(own for own in rows if any(own.per_s)) or tuple(rows[:1]),
        )

    def ascend_from(
        self, prices: Floats, done: Callable[[], float]
    ) -> Iterator[tuple[float, Floats]]:
        """Yield the best bound and its prices after each step from prices by GPU type on, until
        `done`, from 0 to 1, says 1.

        Steps are in the direction of the mean over those before, as the volume algorithm takes them
        (Barahona and Anbil, Mathematical Programming 87, 2000), in proportion to each price.
        """
        own = found = self.of_gangs(prices)
        least = FLOOR * own.mean(axis=1, keepdims=True)
        steps = 0
        best, mean = self.evaluate(own)
        while (share := done()) < 1:
            step = FIRST / (1 + SLOWER * share)
            direction = mean / self.cells_s
            direction[(own <= 0) & (direction < 0)] = 0.0
            own = np.maximum(own + step * np.maximum(own, least) * direction, 0.0)
            value, excess = self.evaluate(own)
            steps += 1
            kept = min(AVERAGED, steps / (steps + 1))
            mean = kept * mean + (1 - kept) * excess
            if value > best:
                best, found = value, own
            yield best, found
