"""Pollux's allocation of an elastic cluster by goodput."""

import math
from typing import Annotated, Literal

from optsched.driver import Fit, World, placement_on
from optsched.model import Job, Running
from optsched.physics import placed_rate, span
from optsched.physics.modes import Option
from optsched.plugins.options import Duration, declared_options

from ..parts.gpu_pool import GpuPool, quotas
from ..parts.reallocation import Grant, ReallocationOptions, SolvedReallocation, held
from ..parts.restarts import Growth, restart_factor
from .exact import best
from .learned import Learned
from .state import LEAST_SPEEDUP, Candidate, Free, Parts, Size, State


class Pollux(SolvedReallocation):
    """At each interval the allocation with the best power mean, of exponent -1, of the jobs'
    speedups; exactly.

    The speedup of a job is its rate on what it gets relative to that on its fair share, the GPUs of
    the cluster divided by the number of jobs, times what one node is of the cluster; 0.001 is
    added. Anything but what it holds now counts only by the restart factor max(age - restarts x
    delay, 0) / (age + delay). No node hosts two gangs that are spread over several. A job gets at
    most twice the most GPUs that it has had so far, one at first.

    Each round is solved to the optimum; where that would take long (`facts` says how often), the
    best allocation found by then is used. Jobs are placed as the solution says; where cores, memory
    or other resources forbid it, wherever they fit, with fewer GPUs if need be.

    Source: A. Qiao et al., Pollux: Co-adaptive cluster scheduling for goodput-optimized deep
    learning, OSDI'21, section 4.2, and the policy of its artifact, which searches by a genetic
    algorithm.
    """

    name = "pollux"
    title = "elastic jobs get the GPUs of the best harmonic mean of speedups over a fair share"

    @declared_options
    class Options(ReallocationOptions):
        delay_s: Annotated[Duration, "What a restart is taken to cost."] = 30.0
        goodput: Annotated[
            Literal["known", "learned"],
            "Rates: known from the profile, or learned from the configurations that a job has run "
            "in.",
        ] = "known"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.delay_s = options.delay_s
        self._growth = Growth()
        self._learned = Learned() if options.goodput == "learned" else None
        self._planned: dict[str, tuple[tuple[str, int], ...]] = {}
        self._stays: set[str] = set()

    def allocate(self, world: World, movable: list[str], pool: GpuPool) -> dict[str, Grant]:
        """Build the state, solve it, and say who gets what."""
        view = _View(world)
        grants, jobs = self.set_apart(world, movable, pool)
        self._stays = {job_id for job_id in grants if job_id in world.running}
        for job_id in self._stays:
            del grants[job_id]
        self._growth.note(world, jobs)
        if self._learned is not None:
            self._learned.note(world, jobs)
        state = State(
            view.nodes(jobs),
            tuple(self._candidate(world, view, job_id, len(jobs)) for job_id in jobs),
        )
        solution = best(state, quotas(world, jobs))
        self.solved(solution.proven)
        self._planned = {}
        for job_id, job, parts in zip(jobs, state.jobs, solution.given, strict=True):
            if not parts:
                continue
            gpu_type = view.types[state.nodes[parts[0][0]].gpu_type]
            gpus = sum(count for _, count in parts)
            options = sorted(world.options(job_id), key=lambda option: -option.mode.gpus)
            grants[job_id] = tuple(
                option
                for option in options
                if option.mode.gpus <= gpus and option.mode.gpu_type == gpu_type
            )
            if job.now and parts == job.now:
                self._stays.add(job_id)
            else:
                self._planned[job_id] = tuple((view.names[node], count) for node, count in parts)
        return grants

    def _candidate(self, world: World, view: "_View", job_id: str, jobs: int) -> Candidate:
        """Return a job as the objective sees it."""
        options = world.options(job_id)
        fewest = min(option.mode.gpus for option in options if option.mode.gpus)
        most = self._growth.limit(job_id, fewest)
        fair = max(math.ceil(view.gpus / jobs), fewest)
        rate = self._rate
        base = (
            max(
                rate(job_id, option, option.spread == "node")
                for option in options
                if 0 < option.mode.gpus <= fair
            )
            * view.gpus
            / len(view.names)
        )
        alone: dict[Size, float] = {}
        spread: dict[Size, float] = {}
        for option in options:
            gpus = option.mode.gpus
            if not 0 < gpus <= most:
                continue
            size = view.types.index(option.mode.gpu_type), gpus
            alone[size] = max(alone.get(size, 0.0), rate(job_id, option, True) / base)
            if option.spread != "node" and gpus > 1:
                spread[size] = max(spread.get(size, 0.0), rate(job_id, option, False) / base)
        job, entry = world.job(job_id), world.entry(job_id)
        now_value = 0.0
        if isinstance(entry, Running):
            now_value = self._rate_now(world, job, entry) / base
        factor = restart_factor(world, job_id, self.delay_s)
        now = view.now(job_id)
        return Candidate(
            alone, spread, now, now_value, factor if now else max(factor, LEAST_SPEEDUP)
        )

    def _rate(self, job_id: str, option: Option, one_node: bool) -> float:
        """Return the rate of a job, on one node or over several."""
        if self._learned is None:
            return option.rate
        return self._learned.rate(job_id, option.mode.gpu_type, option.mode.gpus, one_node)

    def _rate_now(self, world: World, job: Job, entry: Running) -> float:
        """Return the rate of a running job."""
        if self._learned is None:
            return placed_rate(world.instance, job, entry.mode, entry.placement)
        one_node = len(entry.placement) == 1
        return self._learned.rate(job.id, *held(world, job.id), one_node)

    def stays(self, world: World, job_id: str) -> bool:
        """Return whether a running job keeps the very GPUs it holds."""
        return job_id in self._stays

    def _start(self, world: World) -> None:
        """Place the jobs as the solution says; once nobody is saving any more, the others wherever
        they fit."""
        for job_id, parts in self._planned.items():
            if job_id in world.waiting and (
                fit := _as_planned(world, self._grants[job_id], job_id, parts)
            ):
                world.start(job_id, *fit)
        if not world.saving:
            super()._start(world)


class _View:
    """Nodes and GPU types of the cluster by position, with what each job holds."""

    def __init__(self, world: World) -> None:
        nodes = [node for node in world.cluster.nodes if node.gpus and node.name not in world.lost]
        self.world = world
        self.names = [node.name for node in nodes]
        self.position = {name: i for i, name in enumerate(self.names)}
        self.kinds = [node.gpu_type for node in nodes]
        self.types = list(dict.fromkeys(self.kinds))
        self.gpus = sum(node.gpus for node in nodes)

    def now(self, job_id: str) -> Parts:
        """Return what a running or saving job holds; nothing for one that waits."""
        if job_id not in self.world.running and job_id not in self.world.saving:
            return ()
        slots = self.world.placement(job_id)
        return tuple(sorted((self.position[slot.node], slot.gpus) for slot in slots if slot.gpus))

    def nodes(self, jobs: list[str]) -> tuple[Free, ...]:
        """Return the nodes with the GPUs that are free, that `jobs` hold or that are being given
        back."""
        free = [self.world.free.gpus_on(name) for name in self.names]
        saving = (name for name in self.world.saving if self.world.hold(name).partner is None)
        for job_id in (*jobs, *saving):
            for node, gpus in self.now(job_id):
                free[node] += gpus
        return tuple(
            Free(self.types.index(kind), count)
            for kind, count in zip(self.kinds, free, strict=True)
        )


def _as_planned(
    world: World, grant: Grant, job_id: str, parts: tuple[tuple[str, int], ...]
) -> Fit | None:
    """Return the option and placement that the solution means, if all of it is free."""
    gpus = sum(count for _, count in parts)
    for option in grant:
        if option.mode.gpus != gpus or (len(parts) > 1 and option.spread == "node"):
            continue
        placement = placement_on(world.cluster, dict(parts), option.mode)
        if option.spread == "rack" and span(world.cluster, placement) == "cluster":
            continue
        need = world.need(job_id, option)
        nodes = world.free.able(need)  # GPU memory, for one
        able = all(nodes >> world.free.layout.order[node] & 1 for node, _ in parts)
        if able and world.free.holds(need, placement):
            return option, placement
    return None
