"""List scheduling in order of arrival, with the node chosen by a score."""

from optsched.driver import Fit, World
from optsched.model import Placement
from optsched.physics.modes import Option

from .list_scheduling import ListScheduling


class ByScore(ListScheduling):
    """Base of the rules whose point is where a job goes: jobs start in order of priority and
    arrival, what does not fit is skipped, and `choose` picks the place among those on one node. A
    gang that fits on no node alone goes where best fit puts it."""

    def choose(self, world: World, job_id: str, places: list[Fit]) -> Fit:
        """Return the place to take."""
        raise NotImplementedError

    def find(self, world: World, job_id: str) -> Fit | None:
        """Return the place of the best score; None where the job does not fit."""
        fitted = world.fit(job_id)
        if fitted is None:
            return None
        places = self.places(world, job_id, fitted[0])
        return self.choose(world, job_id, places) if places else fitted

    def places(self, world: World, job_id: str, fitted: Option) -> list[Fit]:
        """Return every node on which the job fits now alone, under the options that `alike` says
        are as good as `fitted`."""
        fits: list[Fit] = []
        taken = 0
        for option in self.alike(world, job_id, fitted):
            need = world.need(job_id, option)
            if not need.needs_node:
                continue
            nodes = world.free.able(need) & ~taken
            while nodes:
                bit = nodes & -nodes
                nodes ^= bit
                i = bit.bit_length() - 1
                node = world.cluster.nodes[i].name
                if need.gpus > world.free.gpus_on(node):
                    continue
                placement: Placement = world.free.layout.alone(
                    i, need.gpus, need.cpus or need.gpus * need.cpus_per_gpu
                )
                if world.free.holds(need, placement):
                    fits.append((option, placement))
                    taken |= bit
        return fits

    def alike(self, world: World, job_id: str, fitted: Option) -> tuple[Option, ...]:
        """Return the options as fast as the one that best fit found, the fastest that fits."""
        return tuple(option for option in world.options(job_id) if option.rate == fitted.rate)
