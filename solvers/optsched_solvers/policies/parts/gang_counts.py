"""At which GPU counts a job can run on one GPU type."""

from functools import lru_cache
from typing import NamedTuple

from optsched.physics.modes import Option

from .gpu_pool import GpuPool


class GangCounts(NamedTuple):
    """GPU counts of a job on one GPU type, ascending, each with its options, the fastest first."""

    gpu_type: str | None
    options: tuple[tuple[Option, ...], ...]

    def gpus(self, step: int) -> int:
        """Return GPUs at the count number `step`."""
        return self.options[step][0].mode.gpus

    def rate(self, step: int) -> float:
        """Return the rate of the fastest option at the count number `step`."""
        return self.options[step][0].rate

    def down_from(self, step: int) -> tuple[Option, ...]:
        """Return the options at the count number `step`, then those at each smaller count."""
        return tuple(option for k in range(step, -1, -1) for option in self.options[k])


class Allotment:
    """What a job has been given so far: the count number `step` of `counts`, or nothing yet
    (None)."""

    def __init__(self, job_id: str, types: list[GangCounts]) -> None:
        self.job_id = job_id
        self.types = types
        self.counts: GangCounts | None = None
        self.step = 0

    def begin(self, pool: GpuPool) -> bool:
        """Give it its fewest GPUs, on the first type that has as many; return whether one has."""
        for counts in self.types:
            if pool.take(self.job_id, counts.gpu_type, counts.gpus(0)):
                self.counts = counts
                return True
        return False

    def rates(self) -> tuple[float, float]:
        """Return its rate, and that a step later; of the last step the same."""
        assert self.counts is not None
        last = len(self.counts.options) - 1
        return self.counts.rate(self.step), self.counts.rate(min(self.step + 1, last))

    def next_gpus(self) -> int:
        """Return the GPUs that its next step takes more."""
        assert self.counts is not None
        return self.counts.gpus(self.step + 1) - self.counts.gpus(self.step)

    def grow(self, pool: GpuPool) -> bool:
        """Give it its next step, if there are the GPUs; return whether there are."""
        assert self.counts is not None
        grows = pool.take(self.job_id, self.counts.gpu_type, self.next_gpus())
        self.step += grows
        return grows

    def grant(self) -> tuple[Option, ...]:
        """Return the options at what it has been given, then at less."""
        assert self.counts is not None
        return self.counts.down_from(self.step)


def by_size(options: tuple[Option, ...]) -> dict[tuple[str | None, int], tuple[Option, ...]]:
    """Return the options with GPUs by type and count."""
    groups: dict[tuple[str | None, int], list[Option]] = {}
    for option in options:
        if option.mode.gpus:
            groups.setdefault((option.mode.gpu_type, option.mode.gpus), []).append(option)
    return {size: tuple(alike) for size, alike in groups.items()}


@lru_cache(maxsize=4096)
def by_type(options: tuple[Option, ...]) -> tuple[GangCounts, ...]:
    """Return a job's options (the fastest first) by GPU type and count; options without GPUs are a
    type None of count 0."""
    groups: dict[str | None, dict[int, list[Option]]] = {}
    for option in options:
        gpu_type = option.mode.gpu_type if option.mode.gpus else None
        groups.setdefault(gpu_type, {}).setdefault(option.mode.gpus, []).append(option)
    return tuple(
        GangCounts(gpu_type, tuple(tuple(by_count[count]) for count in sorted(by_count)))
        for gpu_type, by_count in groups.items()
    )
