"""Consequences of a cluster and its tenants alone: derived once, shared by all who plan on it."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from ..frozen import frozen
from ..model import Cluster, Instance, Job, Mode, Node, Tenant
from . import Span, crossed_uplinks, node_counts, rate
from .capacity import Capacity, alike, asks
from .modes import Option, base_modes, demands, room_on, spreads, undominated

T = TypeVar("T")
MOST_KNOWN = 200_000
"""Answers that a catalogue remembers; with more it begins anew, so that a controller that runs for
months does not fill its memory."""


@frozen
class Shape:
    """Nodes that differ only in name, rack and price: the first of them, how many, and how many in
    each rack."""

    node: Node
    count: int
    racks: Counter[str]


class Catalogue:
    """The options of jobs on an empty cluster, and what else nothing but the cluster and its
    tenants decides. Equal clusters and tenants share one (`Catalogue.of`), whoever made them.

    What only others need they keep here themselves: `once` by a key of values, that must hold all
    that the answer depends on besides cluster and tenants.
    """

    def __init__(self, cluster: Cluster, tenants: tuple[Tenant, ...] = ()) -> None:
        self.cluster = cluster
        self.tenants = tenants
        self._known: dict[object, Any] = {}
        bare = replace(cluster, budgets={}) if cluster.budgets else cluster
        self._fitting = _fitting(bare)

    @staticmethod
    def of(cluster: Cluster, tenants: tuple[Tenant, ...] = ()) -> "Catalogue":
        """Return the catalogue of a cluster and its tenants. Who asks for many jobs holds it: to
        find it takes as long as to compare two clusters."""
        return _catalogue(cluster, tenants)

    def once(self, key: object, make: Callable[[], T]) -> T:
        """Return what `make` returned the first time that it was asked for by an equal key."""
        return _once(self._known, key, make)

    @cached_property
    def capacity(self) -> Capacity:
        """Return the table of capacities of the cluster and its tenants."""
        return Capacity(self.cluster, self.tenants)

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Return the shapes of the nodes in order of first appearance."""
        return tuple(
            Shape(
                node=nodes[0],
                count=len(nodes),
                racks=Counter(node.rack for node in nodes if node.rack is not None),
            )
            for nodes in self._alike.values()
        )

    @cached_property
    def _alike(self) -> dict[object, list[Node]]:
        nodes: dict[object, list[Node]] = {}
        for node in self.cluster.nodes:
            nodes.setdefault(alike(node), []).append(node)
        return nodes

    @cached_property
    def _shape_of(self) -> dict[str, int]:
        number = {key: i for i, key in enumerate(self._alike)}
        return {node.name: number[alike(node)] for node in self.cluster.nodes}

    def room(self, job: Job, mode: Mode) -> dict[str, int]:
        """Return for each node with any the most GPUs of `mode` it could hold when empty (1 for a
        CPU-only mode), in the order of the nodes."""
        most = [room_on(shape.node, job, mode) for shape in self.shapes]
        return {name: most[i] for name, i in self._shape_of.items() if most[i]}

    def most_gpus(self, job: Job, mode: Mode) -> dict[Span, int]:
        """Return the most GPUs of `mode` that one node, one rack and all nodes could hold when
        empty. No gang over several racks uses one whose uplink is too slow for its traffic."""
        key = (
            "most",
            mode.gpu_type,
            mode.gpus,
            mode.cpus_per_gpu,
            mode.cpus,
            mode.memory_gib_per_gpu,
            mode.gpu_memory_gib,
            asks(job),
            job.profile.network_gbps if self.cluster.rack_uplink_gbps else 0.0,
        )
        return _once(self._fitting, key, lambda: self._most_gpus(job, mode))

    def _most_gpus(self, job: Job, mode: Mode) -> dict[Span, int]:
        room = [(shape, room_on(shape.node, job, mode)) for shape in self.shapes]
        most = most_within(room, self._slow_racks(job))
        return most | {"cluster": max(most.values())}

    def _slow_racks(self, job: Job) -> list[str]:
        """Return the racks whose uplinks are too slow for the traffic of a job."""
        uplinks = self.cluster.rack_uplink_gbps.items()
        return [rack for rack, gbps in uplinks if gbps < job.profile.network_gbps]

    def fits_within(self, job: Job, mode: Mode, spread: Span) -> bool:
        """Return whether the empty cluster holds the gang of `mode` within `spread`, split as the
        job allows."""
        counts = node_counts(job, mode.gpus)
        return (
            spread in spreads(mode.gpus, counts)
            and self.most_gpus(job, mode)[spread] >= max(mode.gpus, 1)
            and (
                counts is None
                or spread == "node"
                or any(self._splits(job, mode, spread, count) for count in counts)
            )
        )

    def _splits(self, job: Job, mode: Mode, spread: Span, count: int) -> bool:
        """Return whether so many empty nodes within `spread` hold equal parts of the gang."""
        able = [
            shape for shape in self.shapes if room_on(shape.node, job, mode) * count >= mode.gpus
        ]
        racks = sum((shape.racks for shape in able), Counter[str]())
        if spread == "rack":
            return max(racks.values(), default=0) >= count
        slow = sum(racks[rack] for rack in self._slow_racks(job))
        return sum(shape.count for shape in able) - slow >= count

    def options(self, job: Job) -> tuple[Option, ...]:
        """Return every option in which `job` fits the empty cluster, without dominated ones.

        A narrower spread is kept only where it is faster than the wider one, more cores only where
        they are faster, a slower clock only where it draws less power, less GPU memory only where
        the GPUs have no more. Quotas and budgets are not looked at here. Jobs of equal demands
        share one answer.
        """
        key = "options", demands(job)
        return _once(self._fitting, key, lambda: undominated(job, self._candidates(job)))

    def fits_somewhere(self, job: Job) -> bool:
        """Return whether `options` has any, found without listing them all."""
        key = "fits", demands(job)
        return _once(self._fitting, key, lambda: next(self._candidates(job), None) is not None)

    def _candidates(self, job: Job) -> Iterator[Option]:
        for mode in base_modes(self.cluster, job):
            if not (mode.gpus > 0 or mode.cpus > 0 or job.memory_gib > 0):
                speed = rate(job, mode, None, "node")
                yield Option(mode=mode, spread="node", rate=speed, needs_node=False)
                continue
            fastest = 0.0
            for spread in spreads(mode.gpus, node_counts(job, mode.gpus)):
                speed = rate(job, mode, mode.gpu_type, spread)
                if speed > fastest and self.fits_within(job, mode, spread):
                    yield Option(mode=mode, spread=spread, rate=speed, needs_node=True)
                    fastest = speed


def most_within(
    room: Sequence[tuple[Shape, int]],
    slow_racks: Iterable[str] = (),
    among: Container[str] | None = None,
) -> dict[Span, int]:
    """Return the most GPUs on one node, in one rack (`among` some), and on all nodes but those of
    slow racks, where a node of each shape has room for so many."""
    racks: Counter[str] = Counter()
    for shape, most in room:
        for rack, count in shape.racks.items():
            racks[rack] += most * count
    return {
        "node": max((most for _, most in room), default=0),
        "rack": max((n for rack, n in racks.items() if among is None or rack in among), default=0),
        "cluster": sum(most * shape.count for shape, most in room)
        - sum(racks[rack] for rack in slow_racks),
    }


def catalogue_of(instance: Instance) -> Catalogue:
    """Return the catalogue of an instance's cluster and tenants; the instance keeps it."""
    own: dict[str, Any] = vars(instance)
    if "catalogue" not in own:
        own["catalogue"] = Catalogue.of(instance.cluster, instance.tenants)
    catalogue: Catalogue = own["catalogue"]
    return catalogue


@lru_cache(maxsize=16)
def _catalogue(cluster: Cluster, tenants: tuple[Tenant, ...]) -> Catalogue:
    return Catalogue(cluster, tenants)


@lru_cache(maxsize=16)
def _fitting(cluster: Cluster) -> dict[object, Any]:
    """Return what is known of the empty cluster: no matter whose it is and, as it is that of the
    cluster without its budgets, what is left of these."""
    return {}


def _once(known: dict[object, Any], key: object, make: Callable[[], T]) -> T:
    if key not in known:
        made = make()
        if len(known) >= MOST_KNOWN:
            known.clear()
        known[key] = made
    answer: T = known[key]
    return answer


def on_uplinks(instance: Instance) -> str | None:
    """Return the first job that could use the uplink of a rack, by its id; None where no uplink can
    bind."""
    cluster, catalogue = instance.cluster, catalogue_of(instance)
    if not cluster.rack_uplink_gbps:
        return None
    for job in instance.jobs:
        if not job.profile.network_gbps:
            continue
        entry = instance.running_job.get(job.id)
        if (entry is not None and crossed_uplinks(cluster, entry.placement)) or any(
            option.mode.gpus > 1 and option.spread == "cluster" for option in catalogue.options(job)
        ):
            return job.id
    return None
