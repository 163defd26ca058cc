"""What jobs ask for: the options of a job in the order of preference, shared by all jobs that ask
for the same."""

from dataclasses import replace

from ..frozen import entity
from ..model import Instance, Job, Mode, Placement
from ..physics import Span, gpu_memory_gib, memory_gib_per_gpu, node_counts
from ..physics.capacity import asks
from ..physics.catalogue import catalogue_of
from ..physics.modes import WIDEST_FIRST, Option, demands
from .layout import NO_GPUS, Layout, Need
from .placement import Room


@entity
class Demand:
    """Needs in order of preference. Jobs of one demand fit at the same instants, all of them or
    none."""

    number: int
    needs: tuple[Need, ...]
    fewest: tuple[tuple[int, int], ...]
    """The fewest GPUs that suffice, by pool."""
    least_gpus: int
    """The fewest of any pool; 0 where there is no need."""
    elastic: bool
    """Whether needs differ in how many GPUs they take."""

    @classmethod
    def made(cls, number: int, needs: tuple[Need, ...]) -> "Demand":
        """Return the demand of these needs."""
        fewest: dict[int, int] = {}
        for need in needs:
            fewest[need.pool] = min(need.gpus, fewest.get(need.pool, need.gpus))
        least = min(fewest.values(), default=0)
        elastic = len({need.gpus for need in needs}) > 1
        return cls(number, needs, tuple(fewest.items()), least, elastic)

    def has_gpus(self, room: Room) -> bool:
        """Return whether some need has its GPUs free, wherever they are."""
        free = room.pool_gpus
        for pool, gpus in self.fewest:  # noqa: SIM110  (a generator takes several times as long)
            if not gpus or gpus <= free[pool]:
                return True
        return False

    def fit(self, room: Room) -> tuple[int, Placement] | None:
        """Return the first need that fits and where, or None."""
        if not self.has_gpus(room):
            return None  # as `place` would say of each need, but most of the time it is this
        free = room.pool_gpus
        for i, need in enumerate(self.needs):
            gpus = need.gpus
            if gpus and (gpus > free[need.pool] or (gpus > 1 and room.is_short(need))):
                continue
            placement = room.place(need)
            if placement is not None:
                return i, placement
        return None


class Demands:
    """Finds a job's options, the fastest first, and its demand. Equal demands are one object."""

    def __init__(self, instance: Instance, layout: Layout) -> None:
        self._instance = instance
        self._layout = layout
        self._known: dict[object, tuple[tuple[Option, ...], Demand]] = {}
        self._by_signature: dict[object, Demand] = {}
        self._staying: dict[object, Demand] = {}

    def of(self, job: Job) -> tuple[tuple[Option, ...], Demand]:
        """Return options that could ever fit (fastest first; of equals the fewest GPUs, then the
        first GPU type), and the demand whose needs go with them one by one."""
        key = demands(job), job.tenant
        known = self._known.get(key)
        if known is None:
            known = self._make(job, catalogue_of(self._instance).options(job))
            self._known[key] = known
        return known

    def staying(self, job: Job, stays_s: tuple[float, ...]) -> Demand:
        """Return the demand of a job that must be able to stay so long in each of its options."""
        demand, windows = self.of(job)[1], self._layout.windows(job)
        if not (windows or self._layout.dips):
            return demand
        key = demand, stays_s, windows
        if key not in self._staying:
            needs = (
                replace(need, windows=windows, stay_s=stay_s)
                for need, stay_s in zip(demand.needs, stays_s, strict=True)
            )
            number = len(self._by_signature) + len(self._staying)
            self._staying[key] = Demand.made(number, tuple(needs))
        return self._staying[key]

    def least_budgets(self, job: Job, among: tuple[Option, ...]) -> dict[int, float]:
        """Return the least that the job uses of each budget, by row, whichever option it takes."""
        return {
            row: min((option.mode.budgets.get(name, 0.0) for option in among), default=0.0)
            for name, row in self._layout.table.budgets.items()
        }

    def need(self, job: Job, mode: Mode, spread: Span, among: tuple[Option, ...]) -> Need:
        """Return what `job` takes in `mode`; `among` are its options, which say what it needs of
        budgets at least."""
        cluster = self._instance.cluster
        least = self.least_budgets(job, among)
        nodes = 0
        for name in catalogue_of(self._instance).room(job, mode):
            if not mode.gpus or mode.gpu_type == cluster.node[name].gpu_type:
                nodes |= 1 << self._layout.order[name]
        return Need(
            gpus=mode.gpus,
            pool=self._layout.pools.get((mode.gpu_type,) if mode.gpus else NO_GPUS, -1),
            nodes=nodes,
            spread=spread,
            needs_node=mode.gpus > 0 or mode.cpus > 0 or job.memory_gib > 0,
            cpus_per_gpu=mode.cpus_per_gpu,
            memory_gib_per_gpu=memory_gib_per_gpu(job, mode) if mode.gpus else 0.0,
            cpus=mode.cpus,
            memory_gib=job.memory_gib,
            shared=tuple(self._layout.table.together(job, mode)),
            budgets=tuple(
                (row, max(0.0, amount - least[row]))
                for row, amount in self._layout.table.used_up(mode)
            ),
            ties=self._layout.domains.ties(job),
            counts=node_counts(job, mode.gpus),
        )

    def _make(self, job: Job, every: tuple[Option, ...]) -> tuple[tuple[Option, ...], Demand]:
        types = {gpu_type: i for i, gpu_type in enumerate(self._instance.cluster.gpu_types)}
        able = tuple(
            sorted(
                (option for option in every if self._layout.table.allows(job, option.mode)),
                key=lambda option: (
                    -option.rate,
                    option.mode.gpus,
                    types.get(option.mode.gpu_type, 0),
                    option.mode.cpus_per_gpu,
                    option.mode.cpus,
                    -WIDEST_FIRST.index(option.spread),
                    option.mode.clock_mhz or 0,
                    memory_gib_per_gpu(job, option.mode),
                    gpu_memory_gib(job, option.mode),
                ),
            )
        )
        signature = (
            self._layout.table.quotas_of(job),
            asks(job),
            self._layout.domains.ties(job),
            job.min_nodes,
            job.max_nodes,
            tuple(
                (
                    option.mode.gpu_type,
                    option.mode.gpus,
                    option.mode.cpus_per_gpu,
                    option.mode.cpus,
                    option.mode.memory_gib_per_gpu,
                    option.mode.gpu_memory_gib,
                    option.spread,
                    tuple(sorted(option.mode.resources.items())),
                    tuple(sorted(option.mode.budgets.items())),
                )
                for option in able
            ),
        )
        if signature not in self._by_signature:
            needs = tuple(self.need(job, option.mode, option.spread, able) for option in able)
            number = len(self._by_signature) + len(self._staying)
            self._by_signature[signature] = Demand.made(number, needs)
        return able, self._by_signature[signature]
