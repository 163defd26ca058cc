"""The modes in which a job can run on a cluster, as planners see them."""

from dataclasses import dataclass, replace

from .cluster import Cluster
from .job import Elastic, Job, Mode
from .physics import Span, fits_type, rate, run_s


WIDEST_FIRST: tuple[Span, ...] = ("cluster", "rack", "node")
NODE_ONLY: tuple[Span, ...] = ("node",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A mode on GPUs of one type (`mode.gpu_type`), spread at most over `spread`, with its rate.

    A gang of spread "node" sits on one node; "cluster" may be split in any way, also onto one node.
    `needs_node` is false for a job that takes neither GPU nor core nor memory.
    """

    mode: Mode
    spread: Span
    rate: float
    needs_node: bool

    def run_s(self, job: Job, work_s: float) -> float:
        """Seconds that `work_s` of reference work takes."""
        return run_s(job, self.mode, work_s, self.rate)


def gang_sizes(job: Job) -> tuple[int, ...]:
    """GPU counts a job may run with: one, or for an elastic job the measured counts, powers of two and ends."""
    if not isinstance(job.gpus, Elastic):
        return (job.gpus,)
    low, high = job.gpus.min, job.gpus.max
    sizes = {low, high, *(n for n in job.profile.gpus if low <= n <= high)}
    power = 1
    while power <= high:
        if power >= low:
            sizes.add(power)
        power *= 2
    return tuple(sorted(sizes))


def base_modes(cluster: Cluster, job: Job) -> tuple[Mode, ...]:
    """Every mode of a job before it is known where it fits: listed ones, or sizes x types x core levels."""
    if job.modes:
        listed = (_with_shared(job, mode) for mode in job.modes)
        return tuple(
            replace(mode, gpu_type=gpu_type)
            for mode in listed
            for gpu_type in (cluster.gpu_types if mode.gpus and mode.gpu_type is None else (mode.gpu_type,))
        )
    if job.gpus == 0:
        return (_with_shared(job, Mode(cpus=job.cpus)),)
    levels = sorted(job.profile.cpus_per_gpu) or [0]
    return tuple(
        _with_shared(job, Mode(gpu_type=gpu_type, gpus=gpus, cpus_per_gpu=level))
        for gpu_type in cluster.gpu_types
        for gpus in _sizes_on(cluster, job, gpu_type, levels)
        for level in levels
    )


def _sizes_on(cluster: Cluster, job: Job, gpu_type: str | None, levels: list[int]) -> tuple[int, ...]:
    """`gang_sizes`, and for an elastic job the largest gangs that fit a node, a rack or all GPUs of a type."""
    sizes = gang_sizes(job)
    if not isinstance(job.gpus, Elastic):
        return sizes
    found = set(sizes)
    for level in levels:
        where = room(cluster, job, Mode(gpu_type=gpu_type, gpus=job.gpus.max, cpus_per_gpu=level))
        for most in (max(where.values(), default=0), _most_in_a_rack(cluster, where), sum(where.values())):
            if job.gpus.min <= most <= job.gpus.max:
                found.add(most)
    return tuple(sorted(found))


def _with_shared(job: Job, mode: Mode) -> Mode:
    if not job.resources and not job.budgets:
        return mode
    return replace(
        mode,
        resources={name: job.resources.get(name, 0.0) + mode.resources.get(name, 0.0)
                   for name in {**job.resources, **mode.resources}},
        budgets={name: job.budgets.get(name, 0.0) + mode.budgets.get(name, 0.0)
                 for name in {**job.budgets, **mode.budgets}},
    )


def room(cluster: Cluster, job: Job, mode: Mode) -> dict[str, int]:
    """For each node the most GPUs of `mode` it could hold when empty (1 for a CPU-only mode that fits)."""
    found: dict[str, int] = {}
    for node in cluster.nodes:
        if not fits_type(job, mode, node):
            continue
        if mode.gpus == 0:
            if (node.cpus is None or mode.cpus <= node.cpus) and (
                node.memory_gib is None or job.memory_gib <= node.memory_gib
            ):
                found[node.name] = 1
            continue
        most = min(node.gpus, mode.gpus)
        if node.cpus is not None and mode.cpus_per_gpu:
            most = min(most, node.cpus // mode.cpus_per_gpu)
        if node.memory_gib is not None and job.profile.memory_gib_per_gpu:
            most = min(most, int(node.memory_gib / job.profile.memory_gib_per_gpu + 1e-9))
        if most:
            found[node.name] = most
    return found


def options(cluster: Cluster, job: Job) -> tuple[Option, ...]:
    """Every option in which `job` fits the empty cluster, without dominated ones.

    A narrower spread is kept only where it is faster than the wider one; more cores only where they are faster.
    Quotas and budgets are not looked at here. Jobs of equal demands and the same profile object share one answer.
    """
    key = (
        id(job.profile), job.gpus, job.cpus, job.memory_gib, id(job.modes) if job.modes else None,
        tuple(job.resources.items()), tuple(job.budgets.items()),
    )
    known: dict[object, tuple[Job, tuple[Option, ...]]] = cluster.memo
    if key not in known:
        known[key] = (job, _enumerate(cluster, job))  # the job keeps the objects alive whose ids are in the key
    return known[key][1]


def _enumerate(cluster: Cluster, job: Job) -> tuple[Option, ...]:
    found: list[Option] = []
    for mode in base_modes(cluster, job):
        needs_node = mode.gpus > 0 or mode.cpus > 0 or job.memory_gib > 0
        if not needs_node:
            found.append(Option(mode=mode, spread="node", rate=rate(job, mode, None, "node"), needs_node=False))
            continue
        where = room(cluster, job, mode)
        fastest = 0.0
        for spread in WIDEST_FIRST if mode.gpus > 1 else NODE_ONLY:
            speed = rate(job, mode, mode.gpu_type, spread)
            if speed > fastest and _fits(cluster, mode, where, spread):
                found.append(Option(mode=mode, spread=spread, rate=speed, needs_node=True))
                fastest = speed
    return tuple(option for option in found if not any(_dominates(other, option) for other in found))


def _fits(cluster: Cluster, mode: Mode, where: dict[str, int], spread: Span) -> bool:
    if not where:
        return False
    need = max(mode.gpus, 1)
    if spread == "node" or mode.gpus == 0:
        return max(where.values()) >= need
    if spread == "cluster":
        return sum(where.values()) >= need
    return _most_in_a_rack(cluster, where) >= need


def _most_in_a_rack(cluster: Cluster, where: dict[str, int]) -> int:
    racks: dict[str, int] = {}
    for name, most in where.items():
        rack = cluster.node[name].rack
        if rack is not None:
            racks[rack] = racks.get(rack, 0) + most
    return max(racks.values(), default=0)


def _dominates(a: Option, b: Option) -> bool:
    if a is b or a.mode.duration_s is not None or a.mode.gpu_type != b.mode.gpu_type or a.mode.gpus != b.mode.gpus:
        return False
    wider = WIDEST_FIRST.index(a.spread) <= WIDEST_FIRST.index(b.spread)
    return wider and a.mode.cpus_per_gpu <= b.mode.cpus_per_gpu and a.rate >= b.rate and (
        a.rate > b.rate or a.mode.cpus_per_gpu < b.mode.cpus_per_gpu or a.spread != b.spread
    )


