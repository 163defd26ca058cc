"""Gangs on the nodes with the least work left on them, as an alternative to best fit."""

from optsched.driver.world import World
from optsched.model.instance import Placement
from optsched.physics.modes import Option

from .filling import by_rack, fill, usable


class LeastLoaded:
    """GPU-seconds of work that is still to be done on each node by those who run or save there now.

    LWF-kappa: a gang of at most `kappa` GPUs goes to the least loaded GPUs, whatever nodes they are
    on; a larger one to one node if any has room (the least loaded), else to one rack, node by node
    from the least loaded, else so over all nodes. GPUs are not time-shared here, so all free GPUs
    have load 0 and that of their node decides.
    """

    def __init__(self, world: World, kappa: int) -> None:
        self._world = world
        self._kappa = kappa
        self._load: dict[str, float] = {}
        for job_id in (*world.running, *world.saving):
            self.add(job_id)

    def add(self, job_id: str) -> None:
        """Count a job that runs or saves."""
        left_s = max(0.0, self._world.expected_release_s(job_id) - self._world.now_s)
        for slot in self._world.hold(job_id).placement:
            self._load[slot.node] = self._load.get(slot.node, 0.0) + left_s * max(1, slot.gpus)

    def place(self, job_id: str, option: Option) -> Placement | None:
        """A place for a gang that fits somewhere now; None where the rule finds none."""
        world, gpus = self._world, option.mode.gpus
        free, order = usable(world, world.need(job_id, option)), world.cluster.node_order
        by_load = sorted(free, key=lambda name: (self._load.get(name, 0.0), order[name]))
        groups = [[name] for name in by_load if free[name] >= gpus]
        if option.spread != "node":
            if gpus <= self._kappa and option.spread == "cluster":
                groups.insert(0, by_load)
            racks = [names for key, names in by_rack(world, by_load).items() if key[0] == "rack"]
            groups += sorted(
                racks, key=lambda names: sum(self._load.get(name, 0.0) for name in names)
            )
            if option.spread == "cluster":
                groups.append(by_load)
        placements = (fill(world, job_id, option, names, free) for names in groups)
        return next((placement for placement in placements if placement is not None), None)
