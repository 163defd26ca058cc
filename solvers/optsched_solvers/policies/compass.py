"""Compass: inference queries as they come, the tasks of each by upward rank to the worker that
finishes them first, models cached or fetched."""

from dataclasses import dataclass, field

from optsched.driver import Fit, World
from optsched.model import Placement, Slot
from optsched.physics import setup_s
from optsched.physics.modes import Option

from .parts.demand_queue import DemandQueue, arrival_key
from .parts.starting import start_fitting

Found = tuple[float, float, float, int, Option, Placement]
"""Expected finish with what others fetch again for it, start, finish, node, and how it would be
started."""


@dataclass(slots=True)
class Worker:
    """What the rule knows of a node at one instant: when its GPUs come free, the soonest first,
    and what is planned to go there."""

    free_at_s: list[float]
    models: dict[str | None, float] = field(default_factory=dict)
    """Those of the tasks that wait for this worker, in order, with the seconds of a fetch."""

    def take(self, gpus: int, until_s: float) -> None:
        """Use the GPUs that come free first until then."""
        self.free_at_s = sorted([*self.free_at_s[gpus:], *[until_s] * gpus])


class Compass:
    """Tasks in the order in which their queries were submitted, those of one query in that of their
    upward rank: run time plus the longest way through what comes after. Each goes to the worker (a
    node) on which it is expected to finish first, counting the
    wait for its GPUs behind the tasks placed before it, the fetch of its model where it is not
    cached, and what the tasks that wait there would have to fetch again because it makes them lose
    their models. Where a task waits it is placed anew at the next event, so that it moves when its
    worker falls behind.

    Tasks that need more than one node, or no GPU, start in order of arrival wherever they fit,
    after the others. Priority comes before both. At most the first `LOOKED_AT` tasks are placed at
    an event.

    After a decision `planned` says how and where the tasks that wait for a worker would start.

    Source: Compass (v1: Navigator), arXiv 2402.17652, sections on planning and dynamic adjustment.
    """

    name = "compass"
    title = "inference DAGs: the oldest first, by upward rank, to the node that finishes a task first with its model"  # noqa: E501
    LOOKED_AT = 32

    def __init__(self) -> None:
        self._rank_s: dict[str, float] = {}
        self._after: dict[str, list[str]] | None = None
        self._tasks: dict[str, tuple[float, ...]] = {}
        self._others = DemandQueue()
        self.planned: dict[str, Fit] = {}

    def decide(self, world: World) -> None:
        """Place every task that waits, and start those whose worker is free now."""
        for job_id in world.take_arrived():
            if on_one_gpu_node(world, job_id):
                job, rank_s = world.job(job_id), self.rank_s(world, job_id)
                key = (-job.priority, job.submit_s, -rank_s, *world.order(job_id))
                self._tasks[job_id] = key
            else:
                self._others.push(arrival_key(world, job_id), job_id, world.demand(job_id))
        if world.take_released():
            self._others.unblock()
        if self._tasks:
            self._place(world)
        self._others.serve(lambda job_id: start_fitting(world, job_id))

    def rank_s(self, world: World, job_id: str) -> float:
        """Return the upward rank: run time and the longest chain of run times after it, in seconds,
        transfers taking none. Tasks that have not been submitted are not known."""
        if self._after is None:
            self._after = {}
            for job in world.instance.jobs:
                for before in job.after:
                    self._after.setdefault(before, []).append(job.id)
        stack = [job_id]
        while stack:
            current = stack[-1]
            following = [
                name
                for name in self._after.get(current, ())
                if world.job(name).submit_s <= world.now_s
            ]
            missing = [name for name in following if name not in self._rank_s]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            options = world.options(current)
            own_s = world.believed_work_s(current) / options[0].rate if options else 0.0
            self._rank_s[current] = own_s + max(
                (self._rank_s[name] for name in following), default=0.0
            )
        return self._rank_s[job_id]

    def _place(self, world: World) -> None:
        workers = {
            i: Worker([world.now_s] * node.gpus)
            for i, node in enumerate(world.cluster.nodes)
            if node.gpus and node.name not in world.lost
        }
        order = world.cluster.node_order
        for job_id in world.holders:
            end_s = world.expected_release_s(job_id)
            for slot in world.placement(job_id):
                if slot.gpus and order[slot.node] in workers:
                    workers[order[slot.node]].take(slot.gpus, max(end_s, world.now_s))
        self.planned = {}
        waiting = sorted(self._tasks, key=self._tasks.__getitem__)
        for job_id in waiting[: self.LOOKED_AT]:
            best = self._best(world, job_id, workers)
            if best is None:
                continue
            _, start_s, ends_s, i, option, placement = best
            worker = workers[i]
            gpus = option.mode.gpus
            if start_s <= world.now_s and world.free.holds(world.need(job_id, option), placement):
                run_s = world.expected_run_s(job_id, option, placement)
                del self._tasks[job_id]
                world.start(job_id, option, placement)
            else:
                run_s = ends_s - start_s
                profile = world.profile(job_id)
                worker.models.setdefault(profile.name, profile.fetch_s)
                self.planned[job_id] = option, placement
            worker.take(gpus, start_s + run_s)
        self._unstick(world, waiting)

    def _best(self, world: World, job_id: str, workers: dict[int, Worker]) -> "Found | None":
        """Return where the task finishes first; of equals the first."""
        job = world.job(job_id)
        best: Found | None = None
        ran_before = world.entry(job_id) is not None
        for option in first_by_type(world, job_id):
            need = world.need(job_id, option)
            able = world.free.able(need)
            for i, worker in workers.items():
                gpus = option.mode.gpus
                node = world.cluster.nodes[i]
                if (
                    not able >> i & 1
                    or node.gpu_type != option.mode.gpu_type
                    or len(worker.free_at_s) < gpus
                ):
                    continue
                start_s = max(world.now_s, worker.free_at_s[gpus - 1])
                placement = (Slot(node=node.name, gpus=gpus, cpus=gpus * need.cpus_per_gpu),)
                fetch_s = world.fetch_s(job_id, placement)
                if (
                    fetch_s
                    and job.profile.name in worker.models
                    and node.model_cache_gib is not None
                ):
                    fetch_s = 0.0  # one that goes there before it brings the model
                run_s = (
                    setup_s(job, ran_before)
                    + world.remaining_work_s(job_id) / option.rate
                    + fetch_s
                )
                value_s = start_s + run_s + refetch_s(world, job_id, node.name, worker)
                if best is None or value_s < best[0] - 1e-9:
                    best = value_s, start_s, start_s + run_s, i, option, placement
        return best

    def _unstick(self, world: World, waiting: list[str]) -> None:
        """Start what fits where nothing runs and nothing was started: only cores, memory or budgets
        stood in the way of the options looked at."""
        if not world.idle:
            return
        for job_id in waiting:
            if job_id in self._tasks and start_fitting(world, job_id):
                del self._tasks[job_id]


def refetch_s(world: World, job_id: str, node: str, worker: Worker) -> float:
    """Return what tasks placed on the worker would have to fetch again if this one went there
    first."""
    if not worker.models or not world.profile(job_id).fetch_s:
        return 0.0
    return sum(worker.models.get(model, 0.0) for model in world.evicted_by(job_id, node))


def on_one_gpu_node(world: World, job_id: str) -> bool:
    """Return whether every way to run the job takes GPUs, of a node that has as many."""
    options = world.options(job_id)
    most = max((node.gpus for node in world.cluster.nodes), default=0)
    return bool(options) and all(0 < option.mode.gpus <= most for option in options)


def first_by_type(world: World, job_id: str) -> list[Option]:
    """Return the fastest option of each GPU type."""
    first: dict[str | None, Option] = {}
    for option in world.options(job_id):
        first.setdefault(option.mode.gpu_type, option)
    return list(first.values())
