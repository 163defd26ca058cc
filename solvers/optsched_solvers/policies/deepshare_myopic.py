"""DeepShare's reward, optimised exactly one step ahead instead of by a learned policy."""

import math
from heapq import heappop, heappush
from typing import Annotated

from annotated_types import Ge

from optsched.driver import Fit, World
from optsched.driver.demand import Demand
from optsched.model import Placement
from optsched.physics.modes import Option
from optsched.plugins.options import PluginOptions, PositiveDuration, declared_options

from .parts.demand_queue import Entry, arrival_key
from .parts.spread_choices import spread_choices

SPAN = 10
"""Of the moving average of utilisation, in samples."""
MOST_SAMPLES = 200
"""Beyond it an average over equal samples does not change."""
ROUNDING = 1e-12


class Utilisation:
    """Exponentially weighted moving average with span 10: weights (1 - a)^i, a = 2 / 11, divided by
    their sum."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, share: float, samples: int = 1) -> None:
        """Add so many samples of one value."""
        for _ in range(min(samples, MOST_SAMPLES)):
            self._sum = share + self._sum * (1 - 2 / (SPAN + 1))
            self._weight = 1.0 + self._weight * (1 - 2 / (SPAN + 1))

    def after(self, share: float) -> float:
        """Return the average once another sample has come."""
        decay = 1 - 2 / (SPAN + 1)
        return (share + self._sum * decay) / (1.0 + self._weight * decay)


def reward(
    lost: float, jobs: int, utilisation: float, contention_weight: float, utilisation_weight: float
) -> float:
    """Return -w_c x mean over running jobs of (1 - shared / isolated throughput) + w_u x averaged
    utilisation; 0 where nobody runs. `lost` is the sum over jobs of what each loses."""
    if jobs == 0:
        return 0.0
    return -contention_weight * lost / jobs + utilisation_weight * utilisation


class DeepShareMyopic:
    """Starts, one at a time, the job and the place that raise DeepShare's reward most, and nothing
    if none does.

    Candidates are the first waiting job of each demand, and every place that shares uplinks and
    memory in a way of its own. The throughput ratio of a job is 1 / its slow-down by contention.
    Where nothing runs, the best start is made whatever it is worth. Of equal rewards the faster
    place, then the earlier job.
    """

    name = "deepshare-myopic"
    title = "the start that most raises DeepShare's reward (less contention, more utilisation), one step ahead"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        contention: Annotated[
            float, Ge(0), "Weight of contention in the reward; published 0.3 to 0.7."
        ] = 0.5
        utilisation: Annotated[
            float, Ge(0), "Weight of utilisation in the reward; published 0.3 to 0.7."
        ] = 0.5
        interval_s: Annotated[PositiveDuration, "Time between samples of utilisation."] = 300.0

    def __init__(self, options: Options) -> None:
        self._contention, self._utilisation = options.contention, options.utilisation
        self._interval_s = options.interval_s
        self._average = Utilisation()
        self._sampled = 0
        self._share = 0.0
        self._waiting: dict[Demand, list[Entry]] = {}
        self._hopeless: dict[Demand, None] = {}
        self._declined = self._started = 0

    def decide(self, world: World) -> None:
        """Start as long as the reward rises."""
        self._sample(world)
        for job_id in world.take_arrived():
            heap = self._waiting.setdefault(world.demand(job_id), [])
            heappush(heap, (arrival_key(world, job_id), job_id))
        if world.take_released():
            self._hopeless.clear()
        while (best := self._best(world)) is not None:
            job_id, option, placement, gain = best
            if gain <= ROUNDING and world.running:
                self._declined += 1
                break
            demand = world.demand(job_id)
            heappop(self._waiting[demand])
            if not self._waiting[demand]:
                del self._waiting[demand]
            world.start(job_id, option, placement)
            self._started += 1
        self._share = _used(world) / max(1, world.cluster.total_gpus)

    def facts(self) -> dict[str, float]:
        """Return starts, and decisions at which every start would have lowered the reward."""
        return {"starts": self._started, "declined": self._declined}

    def _sample(self, world: World) -> None:
        """Sample the utilisation since the last decision, at each interval that has passed."""
        due = math.floor((world.now_s - world.instance.now_s) / self._interval_s)
        if due > self._sampled:
            self._average.add(self._share, due - self._sampled)
            self._sampled = due

    def _best(self, world: World) -> tuple[str, Option, Placement, float] | None:
        """Return the start of the highest reward, and by how much that is above the reward of
        none."""
        ratios = {job_id: 1.0 / world.slowdown(job_id) for job_id in world.running}
        lost, used = sum(1.0 - ratio for ratio in ratios.values()), _used(world)
        gpus = max(1, world.cluster.total_gpus)
        none = self._reward(lost, len(ratios), used / gpus)
        best: tuple[tuple[float, float, float, float], str, Option, Placement] | None = None
        for demand, heap in self._waiting.items():
            if demand in self._hopeless:
                continue
            key, job_id = heap[0]
            if world.fit(job_id) is None:
                self._hopeless[demand] = None
                continue
            for option, placement in self._places(world, job_id):
                own = 1.0 - 1.0 / world.slowdown_on(job_id, option, placement)
                more = sum(
                    ratios[other] * (1.0 - 1.0 / times)
                    for other, times in world.slowed_by(job_id, option, placement).items()
                )
                value = self._reward(
                    lost + own + more, len(ratios) + 1, (used + option.mode.gpus) / gpus
                )
                rank = (
                    -key[0],
                    value,
                    1.0 / world.expected_run_s(job_id, option, placement),
                    -key[2],
                )
                if best is None or rank > best[0]:
                    best = rank, job_id, option, placement
        return None if best is None else (best[1], best[2], best[3], best[0][1] - none)

    def _places(self, world: World, job_id: str) -> list[Fit]:
        """Return all that differ in what they share; the fastest without contention will do for a
        gang of one size."""
        profile = world.profile(job_id)
        sizes = {option.mode.gpus for option in world.options(job_id)}
        if (
            len(sizes) == 1
            and not profile.memory_gbps
            and (fit := world.fit(job_id)) is not None
            and (not profile.network_gbps or world.slowdown_on(job_id, *fit) == 1.0)
        ):
            return [fit]
        fits: list[Fit] = []
        for option in world.options(job_id):
            fits.extend((option, placement) for placement in spread_choices(world, job_id, option))
        return fits

    def _reward(self, lost: float, jobs: int, share: float) -> float:
        return reward(lost, jobs, self._average.after(share), self._contention, self._utilisation)


def _used(world: World) -> int:
    """Return GPUs that are held now."""
    lost = sum(world.cluster.node[name].gpus for name in world.lost)
    return world.cluster.total_gpus - sum(world.free.pool_gpus) - lost
