"""The modes in which a job can run on a cluster, as planners see them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..frozen import frozen
from ..model.cluster import Cluster, Node
from ..model.instance import Instance
from ..model.job import Job, Mode
from ..model.value import Value
from . import Span, capacity, clocks, core_levels, gang_sizes, held_resources, power_w, run_s

WIDEST_FIRST: tuple[Span, ...] = ("cluster", "rack", "node")
NODE_ONLY: tuple[Span, ...] = ("node",)


@frozen
class Option(Value):
    """A mode on GPUs of one type (`mode.gpu_type`), spread at most over `spread`, with its rate.

    A gang of spread "node" sits on one node; "cluster" may be split in any way, also onto one node.
    `needs_node` is false for a job that takes neither GPU nor core nor memory.
    """

    mode: Mode
    spread: Span
    rate: float
    needs_node: bool

    __hash__ = Value.__hash__

    def run_s(self, job: Job, work_s: float) -> float:
        """Return the seconds that `work_s` of reference work takes."""
        return run_s(job, self.mode, work_s, self.rate)


def base_modes(cluster: Cluster, job: Job) -> tuple[Mode, ...]:
    """Return every mode of a job before it is known where it fits: listed ones, or sizes x types x
    core levels x clocks."""
    return tuple(_base_modes(cluster, job))


def _base_modes(cluster: Cluster, job: Job) -> Iterator[Mode]:
    if job.modes:
        for listed in job.modes:
            mode = with_shared(cluster, job, listed)
            for gpu_type in (
                cluster.gpu_types if mode.gpus and mode.gpu_type is None else (mode.gpu_type,)
            ):
                yield replace(mode, gpu_type=gpu_type)
        return
    if job.gpus == 0:
        yield with_shared(cluster, job, Mode(cpus=job.cpus))
        return
    for gpu_type in cluster.gpu_types:
        for gpus in gang_sizes(job):
            for level in core_levels(job):
                for clock_mhz in clocks(job):
                    mode = Mode(
                        gpu_type=gpu_type, gpus=gpus, cpus_per_gpu=level, clock_mhz=clock_mhz
                    )
                    yield with_shared(cluster, job, mode)


def with_shared(cluster: Cluster, job: Job, mode: Mode) -> Mode:
    """Return `mode` with what it holds of the cluster: the job's own, and under a power cap what
    its GPUs draw."""
    if mode.duration_s is None:
        resources = held_resources(cluster, job, mode, mode.gpu_type)
    else:
        resources = _sum(job.resources, mode.resources)
    budgets = _sum(job.budgets, mode.budgets)
    return replace(mode, resources=resources, budgets=budgets) if resources or budgets else mode


def _sum(a: Mapping[str, float], b: Mapping[str, float]) -> Mapping[str, float]:
    return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in {**a, **b}}


def room_on(node: Node, job: Job, mode: Mode) -> int:
    """Return the most GPUs of `mode` that `node` could hold when empty (1 for a CPU-only mode that
    fits)."""
    if not capacity.serves(node, job, mode) or (mode.gpus and node.gpu_type != mode.gpu_type):
        return 0  # a gang does not mix types: `gpu_type` None stands for GPUs of no named type here
    cpus, memory_gib = capacity.or_inf(node.cpus), capacity.or_inf(node.memory_gib)
    if mode.gpus == 0:
        return int(mode.cpus <= cpus and job.memory_gib <= memory_gib)
    gpus, per_gpu = min(node.gpus, mode.gpus), job.profile.memory_gib_per_gpu
    return capacity.gpus_that_fit(gpus, cpus, memory_gib, mode.cpus_per_gpu, per_gpu)


def demands(job: Job) -> tuple[object, ...]:
    """Return all of a job that its options depend on: equal for jobs with equal options."""
    return (
        job.profile,
        job.gpus,
        job.cpus,
        capacity.asks(job),
        (job.modes, job.duration_s) if job.modes else (),
        tuple(job.resources.items()),
        tuple(job.budgets.items()),
        job.min_nodes,
        job.max_nodes,
    )


def spreads(gpus: int, counts: tuple[int, ...] | None) -> tuple[Span, ...]:
    """Return how far a gang may be spread that may be split over so many nodes (`node_counts`), the
    widest first."""
    if counts == ():
        return ()
    if gpus <= 1 or counts == (1,):
        return NODE_ONLY
    return WIDEST_FIRST if counts is None or 1 in counts else ("cluster", "rack")


def split_jobs(instance: Instance) -> str | None:
    """Return the first job that is to be split equally over nodes, by its id: no engine but rounds
    and the simulator knows how to; one that stays on one node is none."""
    return next(
        (job.id for job in instance.jobs if job.max_nodes is not None and job.max_nodes > 1), None
    )


def undominated(job: Job, candidates: Iterable[Option]) -> tuple[Option, ...]:
    """Return the options that are of use beside the others of their GPU type and count."""
    every = list(candidates)
    alike: dict[object, list[Option]] = defaultdict(list)
    for option in every:
        alike[option.mode.gpu_type, option.mode.gpus].append(option)
    return tuple(
        option
        for option in every
        if not any(
            _dominates(job, other, option)
            for other in alike[option.mode.gpu_type, option.mode.gpus]
        )
    )


def _dominates(job: Job, a: Option, b: Option) -> bool:
    """Return whether `b` is of no use beside `a`, of the same GPU type and count."""
    if a is b or a.mode.duration_s is not None:
        return False
    wider = WIDEST_FIRST.index(a.spread) <= WIDEST_FIRST.index(b.spread)
    if not wider or a.mode.cpus_per_gpu > b.mode.cpus_per_gpu or a.rate < b.rate:
        return False
    if a.rate > b.rate or a.mode.cpus_per_gpu < b.mode.cpus_per_gpu or a.spread != b.spread:
        return a.mode.clock_mhz == b.mode.clock_mhz or _watts(job, a) <= _watts(job, b)
    # Only their clocks differ: of two that are equal the default or the lower one is kept.
    return (_watts(job, a), a.mode.clock_mhz or 0) < (_watts(job, b), b.mode.clock_mhz or 0)


def _watts(job: Job, option: Option) -> float:
    return power_w(job, option.mode, option.mode.gpu_type, 1)
