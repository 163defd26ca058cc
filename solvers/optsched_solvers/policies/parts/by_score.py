"""List scheduling in order of arrival, with the node chosen by a score."""

from typing import Any

from optsched.driver.world import World
from optsched.model.instance import Placement
from optsched.physics.modes import Option

from .demand_queue import DemandQueue, arrival_key
from .seating import Seat


class ByScore:
    """Base of the rules whose point is where a job goes: jobs start in order of priority and
    arrival, what does not fit is skipped, and `choose` picks the place among those on one node. A
    gang that fits on no node alone goes where best fit puts it."""

    def __init__(self) -> None:
        self.queue = DemandQueue()
        self._choices: dict[int, tuple[tuple[Option, ...], tuple[tuple[Option, ...], ...]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without what is found by identity, which is another one in another process."""
        return {**self.__dict__, "_choices": {}}

    def choose(self, world: World, job_id: str, places: list[Seat], fitted: Seat) -> Seat:
        """The place to take: one of `places`, or the one that best fit `fitted`."""
        raise NotImplementedError

    def comes(self, world: World, job_id: str) -> None:
        """A job has come to wait."""

    def leaves(self, world: World, job_id: str) -> None:
        """A job, or a node that comes back, has given back what it held."""

    def start_otherwise(self, world: World, job_id: str) -> bool:
        """Start a waiting job in another way than on GPUs of its own, if that is better; whether it
        was."""
        return False

    def decide(self, world: World) -> None:
        """Start every job that fits, in order, each on the node of the best score."""
        for job_id in world.take_released():
            self.leaves(world, job_id)
            self.queue.unblock()
        for job_id in world.take_arrived():
            self.comes(world, job_id)
            self.queue.push(arrival_key(world, job_id), job_id, world.demand(job_id))
        while entry := self.queue.best():
            job_id = entry[1]
            if self.start_otherwise(world, job_id):
                self.queue.pop()
                continue
            fitted = world.fit(job_id)
            if fitted is None:
                self.queue.block()
                continue
            self.queue.pop()
            places = self.places(world, job_id, fitted[0])
            seat = self.choose(world, job_id, places, fitted) if places else fitted
            self.start(world, job_id, seat)

    def start(self, world: World, job_id: str, seat: Seat) -> None:
        """Start the job there."""
        world.start(job_id, *seat)

    def places(self, world: World, job_id: str, fitted: Option) -> list[Seat]:
        """Every node on which the job fits now alone, under the options that `alike` says are as
        good as `fitted`."""
        found: list[Seat] = []
        taken = 0
        for option in self.alike(world, job_id, fitted):
            need = world.need(job_id, option)
            if not need.needs_node:
                continue
            nodes = need.nodes & ~taken
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
                    found.append((option, placement))
                    taken |= bit
        return found

    def alike(self, world: World, job_id: str, fitted: Option) -> tuple[Option, ...]:
        """The options as fast as the one that best fit found, the fastest that fits."""
        return tuple(option for option in world.options(job_id) if option.rate == fitted.rate)
