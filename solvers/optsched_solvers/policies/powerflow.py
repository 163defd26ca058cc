"""PowerFlow: GPUs and clocks of elastic jobs under a limit on power or energy."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from optsched.driver import World
from optsched.model import POWER_CAP, Running
from optsched.physics import power_w
from optsched.physics.modes import Option
from optsched.plugins.options import PositiveNumber, declared_options

from .parts.configuration_choice import Choice, Configuration, choose
from .parts.gpu_pool import GpuPool, Rows
from .parts.reallocation import Grant, ReallocationOptions, SolvedReallocation, held, is_left_alone

Use = tuple[tuple[int, int], ...]
"""Rows, and how much is taken of each."""
WATT_PARTS = 1000
"""Limits are counted in thousandths, so that they are whole numbers."""


class Way(NamedTuple):
    """A configuration of a job: the seconds that it then still needs, GPU type, GPUs and clock (by
    rank, the slowest 0), what it takes of the limit (`drawn`), and of all rows (`use`: GPUs by
    type, quota, limit)."""

    run_s: float
    gpu_type: int
    gpus: int
    clock: int
    drawn: int
    use: Use


def exact(jobs: Sequence[Sequence[Way]], room: Sequence[int]) -> Choice:
    """Return the ways of the least sum of run times, of as many jobs as can run; the position after
    the last way is none.

    Of jobs alike in this the one that is done first runs.
    """
    slowest_s = sum(max((way.run_s for way in ways), default=0.0) for ways in jobs) + 1
    later = {j: (len(jobs) - rank) / len(jobs) for rank, j in enumerate(_shortest_first(jobs))}
    return choose(
        [
            [
                *(Configuration(way.run_s, way.use) for way in ways),
                Configuration(slowest_s * (1 + 0.001 * later[j])),
            ]
            for j, ways in enumerate(jobs)
        ],
        room,
    )


def _shortest_first(jobs: Sequence[Sequence[Way]]) -> list[int]:
    return sorted(range(len(jobs)), key=lambda j: min((way.run_s for way in jobs[j]), default=0.0))


def greedy(jobs: Sequence[Sequence[Way]], room: Sequence[int]) -> tuple[int, ...]:
    """Give every job, the shortest first, its most efficient way; then one step at a time, more
    GPUs or a higher clock, goes to whoever saves the most seconds for what it draws more."""
    left = list(room)
    chosen = [len(ways) for ways in jobs]
    for j in _shortest_first(jobs):
        for i in sorted(range(len(jobs[j])), key=lambda i: _efficiency(jobs[j][i])):
            if _fits(jobs[j][i].use, (), left):
                chosen[j] = i
                _move(jobs[j][i].use, (), left)
                break
    while True:
        best = None
        for j, ways in enumerate(jobs):
            if chosen[j] == len(ways):
                continue
            now = ways[chosen[j]]
            for i in _steps(ways, now):
                saved_s = now.run_s - ways[i].run_s
                if saved_s > 0 and _fits(ways[i].use, now.use, left):
                    more = ways[i].drawn - now.drawn
                    worth = saved_s / more if more > 0 else math.inf
                    if best is None or worth > best[0]:
                        best = worth, j, i
        if best is None:
            return tuple(chosen)
        _, j, i = best
        _move(jobs[j][i].use, jobs[j][chosen[j]].use, left)
        chosen[j] = i


def _efficiency(way: Way) -> tuple[float, int, float]:
    """Return the energy of the rest of the job, then GPUs, then time."""
    return way.drawn * way.run_s, way.gpus, way.run_s


def _steps(ways: Sequence[Way], now: Way) -> list[int]:
    """Return the next larger GPU count at the same clock, and the next higher clock on as many
    GPUs, on the same GPU type."""
    same = [i for i, way in enumerate(ways) if way.gpu_type == now.gpu_type]
    larger = [i for i in same if ways[i].clock == now.clock and ways[i].gpus > now.gpus]
    faster = [i for i in same if ways[i].gpus == now.gpus and ways[i].clock > now.clock]
    steps = [min(larger, key=lambda i: ways[i].gpus)] if larger else []
    return steps + ([min(faster, key=lambda i: ways[i].clock)] if faster else [])


def _fits(use: Use, instead: Use, left: list[int]) -> bool:
    given_up = dict(instead)
    return all(amount <= left[row] + given_up.get(row, 0) for row, amount in use)


def _move(use: Use, instead: Use, left: list[int]) -> None:
    for row, amount in use:
        left[row] -= amount
    for row, amount in instead:
        left[row] += amount


class PowerFlow(SolvedReallocation):
    """At each interval every job gets a GPU count and a clock, for the least sum of the times that
    the jobs still need within the GPUs and a limit on power, or on the energy of what is left of
    them.

    Counts of elastic jobs are powers of two and their fewest, so that best fit places them as a
    buddy system would. The limit is the cluster's resource `power_w`, or the option; without one
    only the GPUs limit.

    Source: D. Gu et al., PowerFlow: Energy-efficient GPU clusters scheduling for deep learning,
    arXiv 2304.06381; the order of the greedy steps is reconstructed.
    """

    name = "powerflow"
    title = "GPU counts and clocks of elastic jobs for the least waiting under a limit on power or energy"  # noqa: E501

    @declared_options
    class Options(ReallocationOptions):
        solve: Annotated[
            Literal["exact", "greedy"],
            "A multiple-choice knapsack solved to the optimum, as many jobs as possible running; "
            "or as published: each job at its most efficient configuration, then step by step.",
        ] = "exact"
        power: Annotated[PositiveNumber | None, "The limit on power, in watts."] = None
        energy: Annotated[
            PositiveNumber | None, "What the rest of the running jobs may use together, in kWh."
        ] = None

        def __post_init__(self) -> None:
            if self.power is not None and self.energy is not None:
                raise ValueError("options power and energy: give one of them")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.solve = options.solve
        self.power_w, self.energy_kwh = options.power, options.energy

    def facts(self) -> dict[str, float | str]:
        """Return how many rounds were solved to the optimum, where they are solved exactly."""
        return super().facts() if self.solve == "exact" else {}

    def allocate(self, world: World, movable: list[str], pool: GpuPool) -> dict[str, Grant]:
        """Choose a way for each job."""
        grants, jobs = self.set_apart(world, movable, pool)
        rows = Rows(world, jobs, pool)
        limit = self._limit(world, jobs)
        limit_row = None if limit is None else len(rows.room)
        room = rows.room if limit is None else [*rows.room, limit]
        ways = [self._ways(world, rows, i, job_id, limit_row) for i, job_id in enumerate(jobs)]
        bare = [[way for way, _ in own] for own in ways]
        if self.solve == "exact":
            solution = exact(bare, room)
            chosen = solution.chosen
            self.solved(solution.proven)
        else:
            chosen = greedy(bare, room)
        for job_id, own, i in zip(jobs, ways, chosen, strict=True):
            if i < len(own):
                grants[job_id] = own[i][1]
        return grants

    def stays(self, world: World, job_id: str) -> bool:
        """Return whether a running job keeps its GPU type, count and clock."""
        if is_left_alone(world, job_id):
            return True
        entry = world.entry(job_id)
        grant = self._grants.get(job_id)
        same_clock = (
            isinstance(entry, Running)
            and grant is not None
            and (entry.mode.clock_mhz == grant[0].mode.clock_mhz)
        )
        return same_clock and super().stays(world, job_id)

    def _limit(self, world: World, jobs: list[str]) -> int | None:
        """Return what `jobs` may draw, in thousandths of a watt or of a watt-hour; None without a
        limit."""
        if self.energy_kwh is not None:
            return int(self.energy_kwh * 1000 * WATT_PARTS)
        most_w = (
            self.power_w if self.power_w is not None else world.cluster.resources.get(POWER_CAP)
        )
        if most_w is None:
            return None
        listed = set(jobs)
        for job_id in world.running:
            entry = world.entry(job_id)
            if job_id not in listed and isinstance(entry, Running):
                gpu_type, gpus = held(world, job_id)
                most_w -= power_w(world.job(job_id), entry.mode, gpu_type, gpus)
        return max(0, int(most_w * WATT_PARTS))

    def _ways(
        self, world: World, rows: Rows, i: int, job_id: str, limit: int | None
    ) -> list[tuple[Way, Grant]]:
        """Return the configurations of a job, with what each grants."""
        job, work_s = world.job(job_id), world.remaining_work_s(job_id)
        options = [
            option for option in world.options(job_id) if option.mode.gpus and option.rate > 0
        ]
        fewest = min(option.mode.gpus for option in options)
        alike: dict[tuple[str | None, int, int | None], list[Option]] = {}
        for option in options:
            mode = option.mode
            if mode.gpus == fewest or mode.gpus & (mode.gpus - 1) == 0:
                alike.setdefault((mode.gpu_type, mode.gpus, mode.clock_mhz), []).append(option)
        clocks = sorted({mhz for _, _, mhz in alike if mhz is not None})
        ways = []
        for (gpu_type, gpus, mhz), same in alike.items():
            run_s = work_s / same[0].rate
            drawn = power_w(job, same[0].mode, gpu_type, gpus)
            if self.energy_kwh is not None:
                drawn *= run_s / 3600
            use = rows.use(i, gpu_type, gpus)
            parts = math.ceil(drawn * WATT_PARTS)
            if limit is not None:
                use.append((limit, parts))
            rank = len(clocks) if mhz is None else clocks.index(mhz)
            fewer = [key for key in alike if key[0] == gpu_type and key[2] == mhz and key[1] < gpus]
            smaller = sorted(fewer, key=lambda key: -key[1])
            grant = (*same, *(option for key in smaller for option in alike[key]))
            ways.append(
                (Way(run_s, rows.types.index(gpu_type), gpus, rank, parts, tuple(use)), grant)
            )
        return ways
