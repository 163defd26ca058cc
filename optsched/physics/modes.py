"""The modes in which a job can run on a cluster, as planners see them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from ..frozen import frozen
from ..model import Cluster, Instance, Job, Mode, Node
from ..model.value import Value
from . import (
    Span,
    capacity,
    clocks,
    core_levels,
    gang_sizes,
    gpu_memory_gib,
    held_resources,
    memory_gib_per_gpu,
    memory_levels,
    power_w,
    rate,
    run_s,
)

WIDEST_FIRST: tuple[Span, ...] = ("cluster", "rack", "node")
NODE_ONLY: tuple[Span, ...] = ("node",)
Takes = tuple[float, float, float]
"""Cores, host memory and memory of the GPU that a mode takes for each GPU."""


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
    core levels x memory x clocks."""
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
        each = product(
            gang_sizes(job),
            core_levels(job),
            memory_levels(job),
            clocks(job),
            _gpu_memory_alone(cluster, job, gpu_type),
        )
        for gpus, level, gib, clock_mhz, gpu_gib in each:
            mode = Mode(
                gpu_type=gpu_type,
                gpus=gpus,
                cpus_per_gpu=level,
                clock_mhz=clock_mhz,
                memory_gib_per_gpu=gib,
                gpu_memory_gib=gpu_gib,
            )
            yield with_shared(cluster, job, mode)


def _gpu_memory_alone(cluster: Cluster, job: Job, gpu_type: str | None) -> tuple[float | None, ...]:
    """Return the GPU memory with which a job may be started on GPUs of its own: all it asks for
    (None), and where GPUs of the type have less the amount that is fastest there."""
    rates = job.profile.gpu_memory_rates
    if not rates:
        return (None,)
    levels: dict[float | None, None] = {None: None}
    have = {node.gpu_memory_gib for node in cluster.nodes if node.gpu_type == gpu_type}
    for most in sorted((gib for gib in have if gib is not None), reverse=True):
        if job.profile.gpu_memory_gib > most:
            fitting = [gib for gib in rates if gib <= most]
            levels[max(fitting, key=lambda gib: (rates[gib], -gib), default=None)] = None
    return tuple(levels)


def with_less_gpu_memory(job: Job, option: Option) -> tuple[Option, ...]:
    """Return an option of a job, and the same with smaller micro-batches, that need less GPU memory
    beside another job: the fastest first, each slower than those that need more."""
    rates, found = job.profile.gpu_memory_rates, [option]
    least_gib = gpu_memory_gib(job, option.mode)
    for gib in sorted(rates, key=lambda gib: (-rates[gib], gib)):
        if option.mode.duration_s is None and gib < least_gib:
            mode = replace(option.mode, gpu_memory_gib=gib)
            speed = rate(job, mode, mode.gpu_type, option.spread)
            found.append(replace(option, mode=mode, rate=speed))
            least_gib = gib
    return tuple(found)


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
    gpus, per_gpu = min(node.gpus, mode.gpus), memory_gib_per_gpu(job, mode)
    return capacity.gpus_that_fit(gpus, cpus, memory_gib, mode.cpus_per_gpu, per_gpu)


def demands(job: Job) -> tuple[object, ...]:
    """Return all of a job that its options depend on: equal for jobs with equal options."""
    return (
        job.profile,
        job.gpus,
        job.cpus,
        capacity.asks(job),
        (job.modes, job.duration_s) if job.modes else (),
        tuple(job.resources.items()) if job.resources else (),
        tuple(job.budgets.items()) if job.budgets else (),
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
    every = [(option, _takes(job, option.mode)) for option in candidates]
    alike: dict[object, list[tuple[Option, Takes]]] = defaultdict(list)
    for entry in every:
        mode = entry[0].mode
        alike[mode.gpu_type, mode.gpus].append(entry)
    return tuple(
        option
        for option, takes in every
        if not any(
            _dominates(job, other, option, less, takes)
            for other, less in alike[option.mode.gpu_type, option.mode.gpus]
        )
    )


def _takes(job: Job, mode: Mode) -> Takes:
    return mode.cpus_per_gpu, memory_gib_per_gpu(job, mode), gpu_memory_gib(job, mode)


def _dominates(job: Job, a: Option, b: Option, a_takes: Takes, b_takes: Takes) -> bool:
    """Return whether `b` is of no use beside `a`, of the same GPU type and count."""
    if a.rate < b.rate or a is b or a.mode.duration_s is not None:
        return False
    if a_takes[0] > b_takes[0] or a_takes[1] > b_takes[1] or a_takes[2] > b_takes[2]:
        return False
    if WIDEST_FIRST.index(a.spread) > WIDEST_FIRST.index(b.spread):
        return False
    if a.rate > b.rate or a_takes != b_takes or a.spread != b.spread:
        return a.mode.clock_mhz == b.mode.clock_mhz or _watts(job, a) <= _watts(job, b)
    # Only their clocks differ: of two that are equal the default or the lower one is kept.
    return (_watts(job, a), a.mode.clock_mhz or 0) < (_watts(job, b), b.mode.clock_mhz or 0)


def _watts(job: Job, option: Option) -> float:
    return power_w(job, option.mode, option.mode.gpu_type, 1)
