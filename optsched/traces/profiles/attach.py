"""The seeded rule that gives the jobs of a trace measured profiles, where the trace says nothing of
them.

docs/formats.md, "Measured profiles", states the rule for users.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from itertools import accumulate
from operator import attrgetter
from typing import Any

from ...frozen import record
from ...model import Cluster, Elastic, Instance, Job, Locality, Node, Profile, Sharing, gang
from ...physics import interpolate
from .measured import BOARD_W, FAMILIES, TRAINING_SHARE, Family, family_of, known_type

SHORT_S = 1800.0
"""A group of jobs of one GPU that take less on average draws small families three times as
often."""
LARGE_GANG = 8
"""A group with a gang of as many GPUs draws the other families three times as often."""
SMALL_GIB = 8.0
"""A family that needs no more GPU memory is small."""
FAVOUR = 3.0

PROPORTIONAL_CORES = 3
"""Cores for each GPU at which the measured rate is 1."""
CORE_LEVELS = (1, 3, 6)
"""The core counts that are kept, besides the highest useful one and what the nodes of each type
have."""


COSTS = ("checkpoint_s", "restore_s", "startup_s")
"""Fields of a profile."""


def attach(instance: Instance, seed: int, *, overheads: bool = True) -> Instance:
    """Return the instance with a measured profile for every job on GPUs that does not list modes.

    Jobs of one user and command get one family, whatever the order of jobs. What a job's own
    profile says is kept. Equal profiles are one object. `overheads` False leaves saving, loading
    and starting free.
    """
    drawn: dict[object, tuple[Family, bytes]] = {}
    weighted = cache(_weighted)
    for key, (largest, total_s, count) in _groups(instance).items():
        digest = blake2b(f"{seed} {key!r}".encode(), digest_size=16).digest()
        families = weighted(largest, largest == 1 and total_s < SHORT_S * count)
        drawn[key] = families.pick(digest[:8]), digest[8:]
    of = _Profiles(instance.cluster, overheads).of
    jobs = tuple(
        _with_profile(job, of(job, *drawn[_group(job)])) if _is_open(job) else job
        for job in instance.jobs
    )
    return replace(instance, jobs=jobs)


Gpus = int | Elastic
FIELDS = tuple(name for name in Job.__dataclass_fields__ if name != "profile")
READ, WRITE = (
    attrgetter(*FIELDS),
    tuple(getattr(Job, name).__set__ for name in (*FIELDS, "profile")),
)


def _with_profile(job: Job, profile: Profile) -> Job:
    """Return `replace(job, profile=profile)`, three times as fast: traces have a million jobs."""
    made = object.__new__(Job)
    for write, value in zip(WRITE, (*READ(job), profile), strict=True):
        write(made, value)
    return made


# --------------------------------------------------------------------------------------------------
# -- the draw


def _is_open(job: Job) -> bool:
    return not job.modes and job.gpus != 0


def _group(job: Job) -> object:
    """Return what jobs of one family have in common: user and command, without a command user and
    gang size."""
    if job.command is not None:
        return job.user, job.command
    return job.id if job.user is None else (job.user, gang(job))


def _groups(instance: Instance) -> dict[object, tuple[int, int, int]]:
    """Return for each group the largest gang, and the seconds and number of its jobs: whole
    numbers, so order is nothing."""
    groups: dict[object, tuple[int, int, int]] = {}
    for job in filter(_is_open, instance.jobs):
        key = _group(job)
        largest, total_s, count = groups.get(key, (0, 0, 0))
        groups[key] = max(largest, gang(job)), total_s + int(job.work_s), count + 1
    return groups


@record
class _Weighted:
    """Families with their cumulative weights."""

    families: tuple[Family, ...]
    cumulative: tuple[float, ...]

    def pick(self, draw: bytes) -> Family:
        """Return the family at `draw`, eight random bytes."""
        at = bisect_right(self.cumulative, int.from_bytes(draw) / 2**64 * self.cumulative[-1])
        return self.families[min(at, len(self.families) - 1)]


def _weighted(
    gpus: int, short: bool, fits: Callable[[Family], object] = lambda family: True
) -> _Weighted:
    """Return the families that were measured at the gang's size (or, where none was, at the
    largest), and fit."""
    size = min(gpus, max(family.largest_gang for family in FAMILIES.values()))
    fitting = [family for family in FAMILIES.values() if fits(family)]
    able = [family for family in fitting if family.largest_gang >= size] or fitting
    favoured = [
        short if family.gpu_memory_gib <= SMALL_GIB else gpus >= LARGE_GANG for family in able
    ]
    weights = accumulate(FAVOUR if favour else 1.0 for favour in favoured)
    return _Weighted(tuple(able), tuple(weights))


# ------------------------------------------------------------------------------------------------
# the profiles


@record
class _Kind:
    """GPU nodes of one type."""

    gpu_type: str | None
    nodes: tuple[Node, ...]

    @property
    def cores(self) -> int | None:
        """Return what each of them has at least for each GPU."""
        known = (node.cpus // node.gpus for node in self.nodes if node.cpus is not None)
        return min(known, default=None)

    def holds(self, gpu_memory_gib: float, gpus: int) -> bool:
        """Tell whether a gang finds enough GPUs with so much memory here."""
        return gpus <= sum(
            node.gpus
            for node in self.nodes
            if node.gpu_memory_gib is None or node.gpu_memory_gib >= gpu_memory_gib
        )


class _Profiles:
    """Makes the profiles for one cluster, one object for all that are equal."""

    def __init__(self, cluster: Cluster, overheads: bool) -> None:
        self.overheads = overheads
        self.reference = cluster.reference_gpu
        by_type: dict[str | None, list[Node]] = {}
        for node in cluster.nodes:
            if node.gpus:
                by_type.setdefault(node.gpu_type, []).append(node)
        self.kinds = tuple(_Kind(gpu_type, tuple(nodes)) for gpu_type, nodes in by_type.items())
        self.equal: dict[Profile, Profile] = {}
        self._able = cache(self._able_kinds)
        self._profile = cache(self._merged)
        self._others = cache(self._other_families)

    def of(self, job: Job, family: Family, draw: bytes) -> Profile:
        """Return the profile of `job`, whose group drew `family`; `draw` decides where it does not
        fit."""
        own = job.profile
        named = family_of(own.name) or family
        if not self._able(own, named.name, gang(job)):
            others = self._others(own, job.gpus)
            if not others.families:
                return self.equal.setdefault(own, own)
            named = others.pick(draw)
        return self._profile(own, named.name, job.gpus)

    def _other_families(self, own: Profile, gpus: Gpus) -> _Weighted:
        most = _most(gpus)
        return _weighted(most, False, lambda family: self._able(own, family.name, most))

    def _able_kinds(self, own: Profile, name: str, gpus: int) -> tuple[_Kind, ...]:
        """Return the kinds of nodes that the job may use and that hold it."""
        need = own.gpu_memory_gib or FAMILIES[name].gpu_memory_gib
        return tuple(
            kind
            for kind in self.kinds
            if (not own.rate or kind.gpu_type is None or own.rate.get(kind.gpu_type))
            and kind.holds(need, gpus)
        )

    def _merged(self, own: Profile, name: str, gpus: Gpus) -> Profile:
        """Return the family's profile with what the job's own says in place."""
        family, most = FAMILIES[name], _most(gpus)
        kinds = self._able(own, name, most)
        nodes = [node for kind in kinds for node in kind.nodes]
        reference = self._reference(own, family, kinds)
        known = {
            kind.gpu_type: known_type(kind.gpu_type) for kind in kinds if kind.gpu_type is not None
        }
        memory = [node.memory_gib / node.gpus for node in nodes if node.memory_gib is not None]
        rates = _rates_by_gpus(family, gpus) if isinstance(gpus, Elastic) else {}
        fits_one = most <= max(node.gpus for node in nodes)
        spread = spread_rate(family, most) if fits_one and not rates else 1.0
        sharing = Sharing(duty=family.duty, partners=dict(family.partners))
        costs = own if any(getattr(own, name) for name in COSTS) else family
        relative = {
            gpu_type: round(_speed(family, gpu_type) / _speed(family, reference), 4)
            for gpu_type in known
        }
        power_w = {
            gpu_type: round(TRAINING_SHARE * BOARD_W[board], 1)
            for gpu_type, board in known.items()
            if board
        }
        measured: dict[str, Any] = {
            "gpus": rates,
            "cpus_per_gpu": _cores(family, kinds, reference),
            "locality": Locality(rack=spread, cluster=spread) if spread < 1 else None,
            "sharing": sharing if sharing != Sharing() else None,
            "gpu_memory_gib": family.gpu_memory_gib,
            "memory_gib_per_gpu": min([family.memory_gib_per_gpu, *memory]),
            "power_w": power_w,
        }
        made = replace(
            own,
            name=family.name,
            rate=own.rate if len(set(own.rate.values())) > 1 else relative,
            **{name: getattr(own, name) or value for name, value in measured.items()},
            **{name: getattr(costs, name) * self.overheads for name in COSTS},
        )
        return self.equal.setdefault(made, made)

    def _reference(self, own: Profile, family: Family, kinds: tuple[_Kind, ...]) -> str | None:
        """Return the type on which the duration was observed: the cluster's reference, or the
        fastest the job could use."""
        able = [kind.gpu_type for kind in kinds]
        elsewhere = not own.rate and all(kind.gpu_type != self.reference for kind in self.kinds)
        if self.reference is not None and (elsewhere or self.reference in able):
            return self.reference
        return max(able, key=lambda gpu_type: _speed(family, gpu_type))


def _speed(family: Family, gpu_type: str | None) -> float:
    """Return the rate relative to a V100; a type of which nothing is known is taken to be as
    fast."""
    known = None if gpu_type is None else known_type(gpu_type)
    return 1.0 if known is None else family.rate[known]


def _most(gpus: Gpus) -> int:
    return gpus.max if isinstance(gpus, Elastic) else gpus


def spread_rate(family: Family, gpus: int) -> float:
    """Return the rate of a gang over several nodes, at the largest measured size that is not above
    its own, or the smallest."""
    if gpus < 2:
        return 1.0
    sizes = family.locality
    return sizes[max((size for size in sizes if size <= gpus), default=min(sizes))]


def _rates_by_gpus(family: Family, gpus: Elastic) -> dict[int, float]:
    """Return the rate by GPU count, 1 at the most; empty where it was not measured."""
    if not family.gpus:
        return {}
    counts = sorted({gpus.max, *(count for count in family.gpus if gpus.min <= count <= gpus.max)})
    most = interpolate(family.gpus, gpus.max)
    return {count: round(interpolate(family.gpus, count) / most, 4) for count in counts}


def _cores(family: Family, kinds: tuple[_Kind, ...], reference: str | None) -> dict[int, float]:
    """Return the rate by cores for each GPU, 1 with 3 or with as many as the reference nodes have;
    none where cores do not bind.

    No more are kept than some nodes have for all of their GPUs, so that a full node can use what it
    has.
    """
    shares = {kind.gpu_type: kind.cores for kind in kinds if kind.cores is not None}
    if not shares or min(shares.values()) < 1:
        return {}
    table = family.cpus_per_gpu
    most = max(shares.values()) if len(shares) == len(kinds) else max(table)
    useful = [cores for cores in table if cores <= most]
    filling = {
        max(cores for cores in useful if cores <= max(share, 1)) for share in shares.values()
    }
    kept = sorted({*filling, useful[-1], *(cores for cores in CORE_LEVELS if cores in useful)})
    base = interpolate(table, min(PROPORTIONAL_CORES, shares.get(reference, most)))
    return {cores: round(table[cores] / base, 4) for cores in kept}
