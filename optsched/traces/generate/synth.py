"""Synthetic clusters and workloads: three node classes, mixed or LLM-like gangs, log-normal
durations.

The classes are A100 (8 GPUs of 80 GiB and 96 cores a node), V100 (8, 32 GiB, 64) and P100 (4, 16
GiB, 32), with 25, 50 and 25 % of the GPUs, rounded to whole nodes, at least one node each; racks
hold 8 nodes of one class. A job's family (`profile.name`) decides its GPU memory and with it the
classes it can run on. A gang that no class can hold is drawn again, so the shares of large gangs
are those of the table only on clusters that can hold them. Durations are log-normal, cut to 30 s
and 30 days.

Every attribute has a random stream of its own, so that one option does not change what another one
draws. The same arguments give the same instance, byte for byte, under the same version of numpy.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...frozen import record
from ...model import Cluster, Instance, Job, Mode, Node, Running, Slot
from ...physics import placed_rate
from ..clusters import alike, sizes
from .families import CHECKPOINT_PERIOD_S, FAMILIES, STARTUP_S, Family
from .ranges import check_ranges

Like = Literal["mixed", "llm"]
Arrivals = Literal["batch", "poisson"]

GANG_SIZES = (1, 2, 4, 8, 16, 32)
GANG_SHARES: dict[str, tuple[float, ...]] = {
    "mixed": (0.70, 0.10, 0.08, 0.08, 0.03, 0.01),
    "llm": (0.20, 0.15, 0.20, 0.30, 0.10, 0.05),
}
MEDIAN_S, SIGMA = 900.0, 2.0
SHORTEST_S, LONGEST_S = 30.0, 30 * 86400.0
WEIGHTS = (1.0, 2.0, 4.0)


@record
class NodeClass:
    """One kind of node; `share` is its share of all GPUs."""

    gpu_type: str
    share: float
    gpus: int
    gpu_memory_gib: float
    cpus: int

    def holds(self, family: Family) -> bool:
        """Tell whether its GPUs have the memory that a family needs."""
        return self.gpu_memory_gib >= family.gpu_memory_gib


CLASSES = (
    NodeClass("a100", 0.25, 8, 80.0, 96),
    NodeClass("v100", 0.50, 8, 32.0, 64),
    NodeClass("p100", 0.25, 4, 16.0, 32),
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def generate(
    *,
    jobs: int,
    gpus: int,
    seed: int,
    like: Like = "mixed",
    arrivals: Arrivals = "batch",
    load: float = 0.9,
    running: float = 0.0,
    gpu_types: int = 3,
    overheads: bool = True,
) -> Instance:
    """Return a random instance of `gpus` GPUs at time 0.

    `gpu_types` 1 gives A100 nodes only, 2 A100 and V100. `arrivals` "batch" submits all jobs at 0,
    "poisson" at exponential intervals such that they offer `load` times the work the cluster can do
    meanwhile (a GPU type counted at the families' mean rate, 0 for those it cannot hold). `running`
    is the fraction of the jobs that run at time 0, submitted when they started: by best fit, for
    "llm" scattered over more nodes than needed. Where the nodes cannot hold so many, fewer run.
    `overheads` False sets start-up, checkpoint and restore to 0.

    Raises InputError for arguments out of range.
    """
    check_ranges(jobs=jobs, gpus=gpus, seed=seed, load=load, running=running, gpu_types=gpu_types)
    classes = CLASSES[:gpu_types]
    shares = _shares(classes, gpus)
    cluster = Cluster(nodes=_nodes(shares), reference_gpu="a100")
    families, gangs, durations, weights, gaps, places = np.random.default_rng(seed).spawn(6)
    family = families.integers(len(FAMILIES), size=jobs)
    gang = _gangs(gangs, family, like, _largest(shares))
    duration_s = np.clip(
        np.rint(durations.lognormal(np.log(MEDIAN_S), SIGMA, jobs)), SHORTEST_S, LONGEST_S
    )
    weight = weights.choice(WEIGHTS, size=jobs)
    submit_s = np.zeros(jobs)
    if arrivals == "poisson":
        span_s = float(np.sum(gang * duration_s)) / (_capacity(shares) * load)
        submit_s = np.floor(np.cumsum(gaps.exponential(span_s / jobs, jobs)))
    profiles = [kind.profile(overheads) for kind in FAMILIES]
    made = [
        Job(
            id=f"job-{i}",
            submit_s=float(submit_s[i]),
            weight=float(weight[i]),
            gpus=int(gang[i]),
            duration_s=float(duration_s[i]),
            profile=profiles[family[i]],
        )
        for i in range(jobs)
    ]
    kind = "" if gpu_types == len(CLASSES) else f"-{gpu_types}-types"
    name = f"{like}-{jobs}-jobs-{gpus}-gpus{kind}-seed-{seed}"
    instance = Instance(name=name, cluster=cluster, jobs=tuple(made))
    return _with_running(instance, shares, places, like, round(running * jobs))


def _shares(classes: tuple[NodeClass, ...], gpus: int) -> dict[NodeClass, int]:
    """Return the GPUs of each class: whole nodes where their rounded counts add up, else the last
    node of a class may be smaller."""
    exact = [gpus * kind.share / sum(kind.share for kind in classes) for kind in classes]
    own = [
        max(1, round(share / kind.gpus)) * kind.gpus
        for share, kind in zip(exact, classes, strict=True)
    ]
    if sum(own) != gpus:
        own = [int(share) for share in exact]
        # the first class, which alone holds every family, before all others
        order = sorted(
            range(len(own)), key=lambda i: (own[i] > 0, own[i] - exact[i] if own[i] else i)
        )
        for i in order[: gpus - sum(own)]:
            own[i] += 1
    return dict(zip(classes, own, strict=True))


def _nodes(shares: Mapping[NodeClass, int]) -> tuple[Node, ...]:
    return tuple(
        node
        for kind, gpus in shares.items()
        for node in alike(
            kind.gpu_type,
            sizes(gpus, kind.gpus),
            kind.cpus // kind.gpus,
            gpu_type=kind.gpu_type,
            gpu_memory_gib=kind.gpu_memory_gib,
        )
    )


def _largest(shares: Mapping[NodeClass, int]) -> Ints:
    """Return for each family the GPUs of the largest class that can hold it."""
    return np.array(
        [max(gpus for kind, gpus in shares.items() if kind.holds(family)) for family in FAMILIES]
    )


def _gangs(rng: np.random.Generator, family: Ints, like: Like, largest: Ints) -> Ints:
    """Return GPU counts; the ones that fit no class their family may use are drawn again until they
    do."""
    gang = rng.choice(GANG_SIZES, size=len(family), p=GANG_SHARES[like])
    while (unfit := np.flatnonzero(gang > largest[family])).size:
        gang[unfit] = rng.choice(GANG_SIZES, size=unfit.size, p=GANG_SHARES[like])
    return gang


def _capacity(shares: Mapping[NodeClass, int]) -> float:
    """Return the reference GPU-seconds of work the cluster does per second."""
    total = 0.0
    for kind, gpus in shares.items():
        rates = [family.rate[kind.gpu_type] if kind.holds(family) else 0.0 for family in FAMILIES]
        total += gpus * sum(rates) / len(rates)
    return total


# --------------------------------------------------------------------------------------------
# running jobs


class _Free:
    """Free GPUs on the nodes of one class; `first` is the index of its first node in the
    cluster."""

    def __init__(self, kind: NodeClass, first: int, gpus: list[int]) -> None:
        self.kind, self.first = kind, first
        self.gpus: Ints = np.array(gpus, dtype=np.int64)

    def take(self, size: int, count: int, rng: np.random.Generator | None) -> dict[int, int] | None:
        """Take `count` slots of `size` GPUs on the fullest nodes with room, or on any with `rng`.

        Return GPUs by node index; None, with nothing taken, where they do not all fit.
        """
        left, held = self.gpus.copy(), Counter[int]()
        for _ in range(count):
            fits = np.flatnonzero(left >= size)
            if not fits.size:
                return None
            i = int(rng.choice(fits)) if rng is not None else int(fits[left[fits].argmin()])
            left[i] -= size
            held[i + self.first] += size
        self.gpus = left
        return held


def _with_running(
    instance: Instance,
    shares: Mapping[NodeClass, int],
    rng: np.random.Generator,
    like: Like,
    wanted: int,
) -> Instance:
    """Return the instance with up to `wanted` of its jobs placed, taken in random order, each on
    the allowed class with most free GPUs."""
    free: list[_Free] = []
    first = 0
    for kind, gpus in shares.items():
        if gpus:
            free.append(_Free(kind, first, sizes(gpus, kind.gpus)))
            first += len(free[-1].gpus)
    jobs = list(instance.jobs)
    entries: dict[int, Running] = {}
    for j in rng.permutation(len(jobs)).tolist() if wanted else ():
        if len(entries) == wanted or not any(part.gpus.any() for part in free):
            break
        job = jobs[j]
        assert isinstance(job.gpus, int)
        allowed = [part for part in free if part.kind.gpu_memory_gib >= job.profile.gpu_memory_gib]
        part = max(allowed, key=lambda part: int(part.gpus.sum()))
        size = min(job.gpus, part.kind.gpus)
        if like == "llm":
            size = max(1, size >> int(rng.integers(3)))
        held = part.take(size, job.gpus // size, rng if like == "llm" else None)
        if held is not None:
            entries[j] = _running(instance, job, part.kind, held, rng)
            jobs[j] = replace(job, submit_s=entries[j].started_s)
    running = tuple(entries[j] for j in sorted(entries))
    return replace(instance, jobs=tuple(jobs), running=running)


def _running(
    instance: Instance, job: Job, kind: NodeClass, held: dict[int, int], rng: np.random.Generator
) -> Running:
    """Return a job part way through, with the most cores per GPU that leave every other GPU of its
    nodes as many."""
    assert isinstance(job.gpus, int) and job.duration_s is not None
    level = max(n for n in job.profile.cpus_per_gpu if n <= kind.cpus // kind.gpus)
    mode = Mode(gpu_type=kind.gpu_type, gpus=job.gpus, cpus_per_gpu=level)
    placement = tuple(
        Slot(node=instance.cluster.nodes[i].name, gpus=held[i], cpus=held[i] * level)
        for i in sorted(held)
    )
    remaining_s = max(1.0, round(job.duration_s * rng.uniform()))
    worked_s = round((job.duration_s - remaining_s) / placed_rate(instance, job, mode, placement))
    started_s = instance.now_s - worked_s - (STARTUP_S if job.profile.startup_s else 0.0)
    periods = worked_s // CHECKPOINT_PERIOD_S
    saved_s = instance.now_s - worked_s + periods * CHECKPOINT_PERIOD_S if periods else None
    return Running(
        job=job.id,
        mode=mode,
        placement=placement,
        started_s=started_s,
        remaining_s=remaining_s,
        last_checkpoint_s=saved_s,
    )
