"""Ada-SRSF: shortest remaining service first, least-loaded placement, and a gate before a contended
uplink."""

from collections import defaultdict
from typing import Annotated, Literal

from annotated_types import Ge

from optsched.driver import Fit, World
from optsched.model import Placement
from optsched.physics import crossed_uplinks
from optsched.physics.modes import Option
from optsched.plugins.options import PluginOptions, declared_options

from .parts.gang_placement import by_rack, fill, usable
from .parts.list_scheduling import ListScheduling

ROUNDING = 1e-9


class LeastLoaded:
    """GPU-seconds of work that is still to be done on each node and in each rack by those who run
    or save there now.

    LWF-kappa: a gang of at most `kappa` GPUs goes to the least loaded GPUs, whatever nodes they are
    on; a larger one to one node if any has room (the least loaded), else to one rack, node by node
    from the least loaded, else to several, from the least loaded. GPUs are not time-shared here, so
    all free GPUs have load 0 and that of their node and rack decides. Without `loads` a gang takes
    the first free GPUs, in the order of the cluster: first fit, which LWF was compared with.
    """

    def __init__(self, world: World, kappa: int, loads: bool) -> None:
        self._world = world
        self._kappa = kappa if loads else world.cluster.total_gpus
        self._loads = loads
        self._load: defaultdict[str | None, float] = defaultdict(float)
        self._of_rack: defaultdict[str | None, float] = defaultdict(float)
        for job_id in world.holders:
            self.add(job_id)

    def add(self, job_id: str) -> None:
        """Count a job that runs or saves."""
        if not self._loads:
            return
        left_s = max(0.0, self._world.expected_release_s(job_id) - self._world.now_s)
        for slot in self._world.placement(job_id):
            load = left_s * max(1, slot.gpus)
            self._load[slot.node] += load
            self._of_rack[self._world.cluster.node[slot.node].rack] += load

    def place(self, job_id: str, option: Option) -> Placement | None:
        """Return a place for a gang that fits somewhere now; None where the rule finds none."""
        world, gpus = self._world, option.mode.gpus
        free, order = usable(world, world.need(job_id, option)), world.cluster.node_order
        by_load = sorted(free, key=lambda name: (self._load[name], order[name]))
        groups = [[name] for name in by_load if free[name] >= gpus]
        if option.spread != "node":
            if gpus <= self._kappa and option.spread == "cluster":
                groups.insert(0, by_load)
            racks = sorted(by_rack(world, by_load).items(), key=lambda rack: self._total(*rack[0]))
            groups += [names for key, names in racks if key[0] == "rack"]
            if option.spread == "cluster":
                groups.append([name for _, names in racks for name in names])
        placements = (fill(world, job_id, option, names, free) for names in groups)
        return next((placement for placement in placements if placement is not None), None)

    def _total(self, kind: str, name: str) -> float:
        return self._of_rack[name] if kind == "rack" else self._load[name]


def worth_contending(new: float, old: float, eta: float = 0.0) -> bool:
    """Return whether, by AdaDUAL, a transfer of size `new` should start while one with `old` left
    is on the link, to keep the sum of their completion times low: new / old < 1 / (2 (1 + eta)).

    `eta` is the extra time that contention costs per byte, as a multiple of the time per byte
    alone: two transfers together take 2 + eta times as long per byte. With new <= old, starting now
    ends at (2 + eta) new and (2 + eta) new + old - new, waiting at old and old + new; a larger new
    one always waits.
    """
    return 2.0 * (1.0 + eta) * new < old


class AdaSrsf(ListScheduling):
    """Shortest remaining service first; a job whose traffic would overload an uplink asks AdaDUAL
    first.

    Jobs are placed by LWF-kappa. A gang over several racks starts at once where no uplink of its
    place would be overloaded. Where one gang is on an uplink that would be, it starts only if its
    traffic still to come is so much less that contending is worth it (see `worth_contending`);
    where several are, it waits. The published system asks for each all-reduce of a job; here
    traffic is all that the job still has, so it is asked once, at its start.
    """

    name = "ada-srsf"
    title = "shortest remaining service first on the least loaded nodes, contending for uplinks only if it pays"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        kappa: Annotated[int, Ge(0), "The largest gang spread over the least loaded GPUs."] = 1
        eta: Annotated[
            float,
            Ge(0),
            "What contention costs per byte beyond sharing, as a multiple of the time per byte "
            "alone; 0 as contention is here.",
        ] = 0.0
        gate: Annotated[
            Literal["adadual", "avoid", "accept"],
            "Ask AdaDUAL, never contend, or accept up to two on a contended uplink.",
        ] = "adadual"
        placement: Annotated[
            Literal["lwf", "first-fit", "best-fit"],
            "LWF-kappa, the first free GPUs (its published baseline), or best fit as of other "
            "policies.",
        ] = "lwf"

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._kappa, self._gate, self._eta = options.kappa, options.gate, options.eta
        self._placement = options.placement
        self._contended = self._refused = 0
        self._loaded: LeastLoaded | None = None

    def rank(self, world: World, job_id: str) -> float:
        """Return the GPU-seconds to completion in the fastest option, start-up and restore
        included."""
        return world.service_left_gpu_s(job_id)

    def decide(self, world: World) -> None:
        """Start every job that fits and passes the gate, in order."""
        super().decide(world)
        self._loaded = None

    def find(self, world: World, job_id: str) -> Fit | None:
        """Return a place by the rule of placement, if the gate lets the job start there."""
        fitting = world.fit(job_id)
        if fitting is None:
            return None
        option, placement = fitting
        if option.mode.gpus and self._placement != "best-fit":
            self._loaded = self._loaded or LeastLoaded(world, self._kappa, self._placement == "lwf")
            placement = self._loaded.place(job_id, option) or placement
        if not self._may_start(world, job_id, option, placement):
            self._refused += 1
            return None
        return option, placement

    def start(self, world: World, job_id: str) -> bool:
        """Start the job if it may, and note what it loads."""
        started = super().start(world, job_id)
        if started and self._loaded is not None:
            self._loaded.add(job_id)
        return started

    def facts(self) -> dict[str, float]:
        """Return starts onto a contended uplink, and refusals of the gate."""
        return {"contended_starts": self._contended, "gate_refusals": self._refused}

    def _may_start(self, world: World, job_id: str, option: Option, placement: Placement) -> bool:
        gbps = world.profile(job_id).network_gbps
        if world.cluster.uplinks != "shared" or not gbps:
            return True
        contended = False
        for rack in crossed_uplinks(world.cluster, placement):
            capacity = world.cluster.rack_uplink_gbps[rack]
            users = world.uplink_users(rack)
            if not users or world.uplink_load_gbps(rack) + gbps <= capacity * (1 + ROUNDING):
                continue
            if len(users) > 1 or self._gate == "avoid":
                return False
            new = self._traffic(world, job_id, world.remaining_work_s(job_id) / option.rate)
            if self._gate == "adadual" and not worth_contending(
                new, self._traffic_of_user(world, users[0]), self._eta
            ):
                return False
            contended = True
        self._contended += contended
        return True

    def _traffic_of_user(self, world: World, job_id: str) -> float:
        if job_id not in world.running:
            return 0.0  # it saves, and will be gone
        alone_s = world.remaining_work_s(job_id) / (world.rate_now(job_id) * world.slowdown(job_id))
        return self._traffic(world, job_id, alone_s)

    def _traffic(self, world: World, job_id: str, alone_s: float) -> float:
        """Return the Gbit that a job still sends in so many seconds alone."""
        profile = world.profile(job_id)
        return profile.network_gbps * profile.network_duty * alone_s
