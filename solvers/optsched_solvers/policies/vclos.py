"""vClos: every job has its uplinks for itself, so that none is ever slowed down by another's
traffic."""

from optsched.driver import Fit, World
from optsched.model import Placement
from optsched.physics import crossed_uplinks
from optsched.physics.modes import Option

from .parts.gang_placement import by_rack, fill, usable
from .parts.list_scheduling import ListScheduling
from .parts.locality_gate import LocalityGate, Patience

UP_TO_A_RACK = Patience(rack_s=0.0, cluster_s=float("inf"))
ROUNDING = 1e-9


def fewest_racks(free: list[int], gpus: int) -> list[int] | None:
    """Return racks (by position) that together have `gpus`: as few as possible, of these with the
    fewest GPUs left over, of equals the first; None where all together have too few. Exact, by the
    sums that so many racks can have."""
    reached: list[dict[int, tuple[int, ...]]] = [{0: ()}]
    for r, count in enumerate(free):
        if count <= 0:
            continue
        reached.append({})
        for size in range(len(reached) - 1, 0, -1):
            for total, racks in reached[size - 1].items():
                if total < gpus:  # one that has enough already is not made larger
                    reached[size].setdefault(total + count, (*racks, r))
    for by_total in reached:
        enough = [total for total in by_total if total >= gpus]
        if enough:
            return list(by_total[min(enough)])
    return None


class Vclos(ListScheduling):
    """First come first served, skipping what does not fit; no uplink is ever given to more traffic
    than it carries.

    Stage 0 looks for one node, stage 1 for one rack, stage 2 for a virtual sub-network: racks whose
    uplinks have room for the whole traffic of the gang, as few as possible and with the fewest GPUs
    left over in them. A gang for which there are none waits.
    """

    name = "vclos"
    title = "exclusive uplinks for every job: one node, one rack, else the fewest racks with uplinks left"  # noqa: E501

    def __init__(self) -> None:
        super().__init__()
        self._gate = LocalityGate()
        self._stages = [0, 0, 0]

    def facts(self) -> dict[str, float]:
        """Return how many jobs started in each stage."""
        return dict(
            zip(
                ("starts_one_node", "starts_one_rack", "starts_over_racks"),
                self._stages,
                strict=True,
            )
        )

    def find(self, world: World, job_id: str) -> Fit | None:
        """Return a place of its own."""
        fit = self._gate.find(world, job_id, UP_TO_A_RACK, 0.0)
        if fit is not None and _has_uplinks(world, job_id, fit[1]):
            self._stages[min(1, len(fit[1]) - 1) if fit[1] else 0] += 1
            return fit
        for option in world.options(job_id):
            if option.spread != "cluster" or option.mode.gpus < 2:
                continue
            placement = over_racks(world, job_id, option)
            if placement is not None:
                self._stages[2] += 1
                return option, placement
        fit = world.fit(job_id)
        if fit is not None and _has_uplinks(world, job_id, fit[1]):
            self._stages[2] += 1
            return fit
        return None


def _has_uplinks(world: World, job_id: str, placement: Placement) -> bool:
    """Return whether the uplinks of a place have room for the job's traffic."""
    gbps = world.profile(job_id).network_gbps
    return not gbps or all(
        _has_room(world, rack, gbps) for rack in crossed_uplinks(world.cluster, placement)
    )


def _has_room(world: World, rack: str | None, gbps: float) -> bool:
    capacity = None if rack is None else world.cluster.rack_uplink_gbps.get(rack)
    if capacity is None or rack is None:
        return True
    return world.uplink_load_gbps(rack) + gbps <= capacity * (1 + ROUNDING)


def over_racks(world: World, job_id: str, option: Option) -> Placement | None:
    """Return a place over the fewest racks whose uplinks have room; a node without a rack counts as
    one of its own."""
    gbps = world.profile(job_id).network_gbps
    free = usable(world, world.need(job_id, option))
    racks = list(
        by_rack(
            world,
            (
                name
                for name in free
                if not gbps or _has_room(world, world.cluster.node[name].rack, gbps)
            ),
        ).values()
    )
    chosen = fewest_racks([sum(free[name] for name in names) for names in racks], option.mode.gpus)
    if chosen is None:
        return None
    names = [name for r in chosen for name in racks[r]]
    return fill(world, job_id, option, sorted(names, key=lambda name: -free[name]), free)
