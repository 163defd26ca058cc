"""Every way in which one job can run: an alternative on a concrete split of its gang over bins."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from optsched.frozen import entity
from optsched.model import Mode
from optsched.objectives import Usage
from optsched.physics.capacity import Capacity, Demand

from ..scheduling.problem import Activity, Alternative, Problem, Split
from .bins import Bin, as_node, partitions

MAX_SPLITS = 200
"""Ways of one job beyond which nodes are merged into coarser bins."""


@entity
class Way:
    """An alternative of a job, by its number, on so many GPUs of each bin."""

    activity: Activity
    which: int
    split: Split

    @property
    def alternative(self) -> Alternative:
        """Return the alternative itself."""
        return self.activity.alternatives[self.which]

    @property
    def preempts(self) -> bool:
        """Return whether the job, which runs now, is saved and leaves its nodes first."""
        return self.activity.preempts(self.which)

    @property
    def seconds(self) -> float:
        """Return how long it takes."""
        return self.alternative.seconds

    @property
    def ready_s(self) -> float:
        """Return the seconds from now before which it cannot start."""
        return self.activity.ready_s(self.which)


@dataclass(frozen=True)
class Ways:
    """All ways of all jobs, over the finest bins that keep each job within `MAX_SPLITS`.

    `exact` says that a schedule over the bins is one on real nodes.
    """

    problem: Problem
    bins: tuple[Bin, ...]
    exact: bool
    of: tuple[tuple[Way, ...], ...]

    @cached_property
    def table(self) -> Capacity:
        """Return what there is of everything, each bin taken for one node."""
        instance = self.problem.instance
        nodes = tuple(as_node(instance.cluster.nodes[n] for n in each) for each in self.bins)
        return Capacity(replace(instance.cluster, nodes=nodes), instance.tenants)

    def demand(self, activity: Activity, mode: Mode, split: Split) -> Demand:
        """Return everything `mode` holds on a split over bins."""
        on_bins = (self.table.on_node(activity.job, mode, b, gpus) for b, gpus in split)
        return [*chain.from_iterable(on_bins), *self.table.together(activity.job, mode)]

    def usage(self, term: Usage, way: Way) -> float:
        """Return what a way and the checkpoint before it use, on the cheapest nodes of its bins."""
        problem, activity, mode = self.problem, way.activity, way.alternative.mode

        def cheapest(b: int) -> int:
            return min(self.bins[b], key=lambda n: problem.gpu_cost_per_s(term, activity, mode, n))

        split = None
        if not way.alternative.fixed:
            split = tuple((cheapest(b), gpus) for b, gpus in way.split)
        return float(problem.usage(term, activity, way.which, 0.0, split))


def find_ways(problem: Problem) -> Ways:
    """Return all ways of all jobs, over bins as fine as `MAX_SPLITS` allows; a job may have
    none."""
    *finer, coarsest = partitions(problem)
    limits = [(*bins, MAX_SPLITS) for bins in finer] + [(*coarsest, math.inf)]
    tries = (_over(problem, bins, exact, limit) for bins, exact, limit in limits)
    return next(ways for ways in tries if ways is not None)


def _over(problem: Problem, bins: tuple[Bin, ...], exact: bool, limit: float) -> Ways | None:
    """Return the ways over these bins; None where some job has more than `limit`."""
    of = []
    for activity in problem.activities:
        own = _of(problem, bins, activity, limit)
        if own is None:
            return None
        of.append(own)
    return Ways(problem, bins, exact, tuple(of))


def _of(
    problem: Problem, bins: tuple[Bin, ...], activity: Activity, limit: float
) -> tuple[Way, ...] | None:
    """Return the fastest alternative of each mode on each split; None for more than `limit`."""
    best: dict[object, Way] = {}
    for which, alternative in enumerate(activity.alternatives):
        for split in _splits(problem, bins, alternative):
            key = alternative.fixed, alternative.mode, split
            if key not in best or alternative.seconds < best[key].seconds:
                best[key] = Way(activity, which, split)
            if len(best) > limit:
                return None
    return tuple(best.values())


def over_bins(bins: tuple[Bin, ...], split: Split) -> Split:
    """Return a split over nodes as one over bins."""
    where = {n: b for b, each in enumerate(bins) for n in each}
    taken: Counter[int] = Counter()
    for n, gpus in split:
        taken[where[n]] += gpus
    return tuple(sorted(taken.items()))


def _splits(problem: Problem, bins: tuple[Bin, ...], alternative: Alternative) -> Iterator[Split]:
    """Yield every split of a gang over bins that its alternative allows."""
    if alternative.fixed or not alternative.rooms:
        yield over_bins(bins, alternative.rooms)
        return
    most, gpus = dict(alternative.rooms), alternative.mode.gpus
    if alternative.spread == "node" or not gpus:
        yield from (((b, gpus),) for b, each in enumerate(bins) if not most.keys().isdisjoint(each))
        return
    racks: dict[str | int | None, set[int]] = {}
    for n in most:
        racks.setdefault(problem.racks[n] if alternative.spread == "rack" else None, set()).add(n)
    for rack in racks.values():
        rooms = [(b, sum(most[n] for n in rack.intersection(each))) for b, each in enumerate(bins)]
        yield from _compositions(gpus, rooms)


def _compositions(count: int, rooms: list[tuple[int, int]]) -> Iterator[Split]:
    """Yield all ways to take `count` in total from bins with this much room."""
    rooms = [(b, most) for b, most in rooms if most > 0]
    after = [sum(most for _, most in rooms[i:]) for i in range(len(rooms) + 1)]

    def extend(i: int, left: int, taken: Split) -> Iterator[Split]:
        if left == 0:
            yield taken
        elif left <= after[i]:
            b, most = rooms[i]
            for here in range(min(left, most), -1, -1):
                yield from extend(i + 1, left - here, (*taken, (b, here)) if here else taken)

    yield from extend(0, count, ())
