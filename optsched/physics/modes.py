"""The modes in which a job can run on a cluster, as planners see them."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..model.cluster import Cluster, Node
from ..model.instance import Instance
from ..model.job import Job, Mode
from ..model.value import Value
from . import (
    Span,
    capacity,
    clocks,
    core_levels,
    crossed_uplinks,
    gang_sizes,
    held_resources,
    node_counts,
    power_w,
    rate,
    run_s,
)

WIDEST_FIRST: tuple[Span, ...] = ("cluster", "rack", "node")
NODE_ONLY: tuple[Span, ...] = ("node",)


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Seconds that `work_s` of reference work takes."""
        return run_s(job, self.mode, work_s, self.rate)


def base_modes(cluster: Cluster, job: Job) -> tuple[Mode, ...]:
    """Every mode of a job before it is known where it fits: listed ones, or sizes x types x core
    levels x clocks."""
    return tuple(_base_modes(cluster, job))


def _base_modes(cluster: Cluster, job: Job) -> Iterator[Mode]:
    if job.modes:
        for listed in job.modes:
            mode = _with_shared(cluster, job, listed)
            for gpu_type in (
                cluster.gpu_types if mode.gpus and mode.gpu_type is None else (mode.gpu_type,)
            ):
                yield replace(mode, gpu_type=gpu_type)
        return
    if job.gpus == 0:
        yield _with_shared(cluster, job, Mode(cpus=job.cpus))
        return
    for gpu_type in cluster.gpu_types:
        for gpus in gang_sizes(job):
            for level in core_levels(job):
                for clock_mhz in clocks(job):
                    mode = Mode(
                        gpu_type=gpu_type, gpus=gpus, cpus_per_gpu=level, clock_mhz=clock_mhz
                    )
                    yield _with_shared(cluster, job, mode)


def _with_shared(cluster: Cluster, job: Job, mode: Mode) -> Mode:
    """`mode` with what it holds of the cluster: the job's own, and under a power cap what its GPUs
    draw."""
    if mode.duration_s is None:
        resources = held_resources(cluster, job, mode, mode.gpu_type)
        return (
            replace(mode, resources=resources, budgets=job.budgets)
            if resources or job.budgets
            else mode
        )
    if not job.resources and not job.budgets:
        return mode
    return replace(
        mode,
        resources={
            name: job.resources.get(name, 0.0) + mode.resources.get(name, 0.0)
            for name in {**job.resources, **mode.resources}
        },
        budgets={
            name: job.budgets.get(name, 0.0) + mode.budgets.get(name, 0.0)
            for name in {**job.budgets, **mode.budgets}
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Nodes that differ only in name, rack and price: one of them, how many, and how many in each
    rack."""

    node: Node
    count: int
    racks: dict[str, int]
    largest_rack: int


def _shapes(cluster: Cluster) -> tuple[tuple[_Shape, ...], tuple[int, ...]]:
    """The shapes of a cluster, and for each node the position of its own."""
    if "shapes" not in cluster.memo:
        alike: dict[object, list[Node]] = {}
        keys = [capacity.alike(node) for node in cluster.nodes]
        for key, node in zip(keys, cluster.nodes, strict=True):
            alike.setdefault(key, []).append(node)
        position = {key: i for i, key in enumerate(alike)}
        shapes = tuple(
            _Shape(
                node=nodes[0],
                count=len(nodes),
                racks=(racks := Counter(node.rack for node in nodes if node.rack is not None)),
                largest_rack=max(racks.values(), default=0),
            )
            for nodes in alike.values()
        )
        cluster.memo["shapes"] = shapes, tuple(position[key] for key in keys)
    found: tuple[tuple[_Shape, ...], tuple[int, ...]] = cluster.memo["shapes"]
    return found


def room_on(node: Node, job: Job, mode: Mode) -> int:
    """The most GPUs of `mode` that `node` could hold when empty (1 for a CPU-only mode that
    fits)."""
    if not capacity.serves(node, job, mode) or (mode.gpus and node.gpu_type != mode.gpu_type):
        return 0  # a gang does not mix types: `gpu_type` None stands for GPUs of no named type here
    if mode.gpus == 0:
        cores_fit = node.cpus is None or mode.cpus <= node.cpus
        return int(cores_fit and (node.memory_gib is None or job.memory_gib <= node.memory_gib))
    most = min(node.gpus, mode.gpus)
    if node.cpus is not None and mode.cpus_per_gpu:
        most = min(most, node.cpus // mode.cpus_per_gpu)
    if node.memory_gib is not None and job.profile.memory_gib_per_gpu:
        most = int(min(most, node.memory_gib / job.profile.memory_gib_per_gpu + 1e-9))
    return most


def room(cluster: Cluster, job: Job, mode: Mode) -> dict[str, int]:
    """For each node with any, the most GPUs of `mode` it could hold when empty (1 for a CPU-only
    mode)."""
    shapes, shape_of = _shapes(cluster)
    most = [room_on(shape.node, job, mode) for shape in shapes]
    return {node.name: most[i] for node, i in zip(cluster.nodes, shape_of, strict=True) if most[i]}


def most_gpus(cluster: Cluster, job: Job, mode: Mode) -> dict[Span, int]:
    """The most GPUs of `mode` that one node, one rack and all nodes could hold when empty.

    No gang over several racks uses one whose uplink is too slow for its traffic.
    """
    key = (
        "most",
        mode.gpu_type,
        mode.gpus,
        mode.cpus_per_gpu,
        mode.cpus,
        capacity.asks(job),
        job.profile.network_gbps if cluster.rack_uplink_gbps else 0.0,
    )
    if key not in cluster.memo:
        cluster.memo[key] = _most_gpus(cluster, job, mode)
    found: dict[Span, int] = cluster.memo[key]
    return found


def _most_gpus(cluster: Cluster, job: Job, mode: Mode) -> dict[Span, int]:
    shapes, _ = _shapes(cluster)
    held = [(shape, most) for shape in shapes if (most := room_on(shape.node, job, mode))]
    if len(held) == 1 and not cluster.rack_uplink_gbps:
        shape, most = held[0]
        return {"node": most, "rack": most * shape.largest_rack, "cluster": most * shape.count}
    racks: Counter[str] = Counter()
    for shape, most in held:
        for rack, count in shape.racks.items():
            racks[rack] += most * count
    one_node = max((most for _, most in held), default=0)
    one_rack = max(racks.values(), default=0)
    every = sum(most * shape.count for shape, most in held)
    slow = sum(
        racks[rack]
        for rack, gbps in cluster.rack_uplink_gbps.items()
        if gbps < job.profile.network_gbps
    )
    return {"node": one_node, "rack": one_rack, "cluster": max(one_node, one_rack, every - slow)}


def on_uplinks(instance: Instance) -> str | None:
    """The first job that could use the uplink of a rack, by its id; None where no uplink can
    bind."""
    cluster = instance.cluster
    if not cluster.rack_uplink_gbps:
        return None
    for job in instance.jobs:
        if not job.profile.network_gbps:
            continue
        entry = instance.running_job.get(job.id)
        if (entry is not None and crossed_uplinks(cluster, entry.placement)) or any(
            option.mode.gpus > 1 and option.spread == "cluster" for option in options(cluster, job)
        ):
            return job.id
    return None


def options(cluster: Cluster, job: Job) -> tuple[Option, ...]:
    """Every option in which `job` fits the empty cluster, without dominated ones.

    A narrower spread is kept only where it is faster than the wider one, more cores only where they
    are faster, a slower clock only where it draws less power. Quotas and budgets are not looked at
    here. Jobs of equal demands and the same profile object share one answer.
    """
    known: dict[object, tuple[Job, tuple[Option, ...]]] = cluster.memo
    key = ("options", demands(job))
    if key not in known:
        found = list(_candidates(cluster, job))
        alike: dict[object, list[Option]] = defaultdict(list)
        for option in found:
            alike[option.mode.gpu_type, option.mode.gpus].append(option)
        if job.profile.clocks or job.modes:
            best = tuple(
                option
                for option in found
                if not any(
                    _dominates(job, other, option)
                    for other in alike[option.mode.gpu_type, option.mode.gpus]
                )
            )
        else:
            best = tuple(
                option
                for option in found
                if _is_best(option, alike[option.mode.gpu_type, option.mode.gpus])
            )
        known[key] = (job, best)  # keeping the job keeps what has the ids in the key
    return known[key][1]


def fits_somewhere(cluster: Cluster, job: Job) -> bool:
    """Whether `options` has any, found without listing them all."""
    known: dict[object, tuple[Job, bool]] = cluster.memo
    key = ("fits", demands(job))
    if key not in known:
        known[key] = (job, next(_candidates(cluster, job), None) is not None)
    return known[key][1]


def demands(job: Job) -> tuple[object, ...]:
    """Return all of a job that its options depend on: equal for jobs with equal options."""
    return (
        job.profile,
        job.gpus,
        job.cpus,
        capacity.asks(job),
        job.modes,
        tuple(job.resources.items()),
        tuple(job.budgets.items()),
        job.min_nodes,
        job.max_nodes,
    )


def _candidates(cluster: Cluster, job: Job) -> Iterator[Option]:
    for mode in _base_modes(cluster, job):
        needs_node = mode.gpus > 0 or mode.cpus > 0 or job.memory_gib > 0
        if not needs_node:
            speed = rate(job, mode, None, "node")
            yield Option(mode=mode, spread="node", rate=speed, needs_node=False)
            continue
        fastest = 0.0
        for spread in spreads(mode.gpus, node_counts(job, mode.gpus)):
            speed = rate(job, mode, mode.gpu_type, spread)
            if speed > fastest and fits_within(cluster, job, mode, spread):
                yield Option(mode=mode, spread=spread, rate=speed, needs_node=True)
                fastest = speed


def fits_within(cluster: Cluster, job: Job, mode: Mode, spread: Span) -> bool:
    """Return whether the empty cluster holds the gang of `mode` within `spread`, split as the job
    allows."""
    counts = node_counts(job, mode.gpus)
    return (
        spread in spreads(mode.gpus, counts)
        and most_gpus(cluster, job, mode)[spread] >= max(mode.gpus, 1)
        and _splits(cluster, job, mode, spread, counts)
    )


def spreads(gpus: int, counts: tuple[int, ...] | None) -> tuple[Span, ...]:
    """How far a gang may be spread that may be split over so many nodes (`node_counts`), the widest
    first."""
    if counts == ():
        return ()
    if gpus <= 1 or counts == (1,):
        return NODE_ONLY
    return WIDEST_FIRST if counts is None or 1 in counts else ("cluster", "rack")


def _splits(
    cluster: Cluster, job: Job, mode: Mode, spread: Span, counts: tuple[int, ...] | None
) -> bool:
    """Whether empty nodes within `spread` hold equal parts of the gang, of one of `counts`; uplinks
    aside."""
    if counts is None or spread == "node":
        return True
    shapes, _ = _shapes(cluster)
    for count in counts:
        able = [shape for shape in shapes if room_on(shape.node, job, mode) * count >= mode.gpus]
        racks = sum((Counter(shape.racks) for shape in able), Counter[str]())
        there = (
            sum(shape.count for shape in able)
            if spread == "cluster"
            else max(racks.values(), default=0)
        )
        if there >= count:
            return True
    return False


def split_jobs(instance: Instance) -> str | None:
    """The first job that is to be split equally over nodes, by its id: no engine but rounds and the
    simulator knows how to; one that stays on one node is none."""
    return next(
        (job.id for job in instance.jobs if job.max_nodes is not None and job.max_nodes > 1), None
    )


def _is_best(option: Option, alike: list[Option]) -> bool:
    """Whether none of `alike` dominates, for jobs without clocks: `_dominates`, told at a
    glance."""
    spread, cores, speed = option.spread, option.mode.cpus_per_gpu, option.rate
    for other in alike:
        if (
            other.rate >= speed
            and other.mode.cpus_per_gpu <= cores
            and (other.rate > speed or other.mode.cpus_per_gpu < cores or other.spread != spread)
            and WIDEST_FIRST.index(other.spread) <= WIDEST_FIRST.index(spread)
        ):
            return False
    return True


def _dominates(job: Job, a: Option, b: Option) -> bool:
    """Whether `b` is of no use beside `a`, of the same GPU type and count."""
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
