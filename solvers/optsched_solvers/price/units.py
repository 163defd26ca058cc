"""Units: what of a job lies on one node, an option or a single GPU of a gang that may be split; and
units on nodes before jobs get them."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from optsched.frozen import record
from optsched.round.held import SLACK
from optsched.round.model import RoundModel
from optsched.round.nodes import Nodes
from optsched.round.patterns import Key


@record
class Unit:
    """A part of a job that lies on one node, of one of the node classes of a mask, in a rack or
    (-1) anywhere."""

    classes: int
    rack: int
    gpus: int
    cpus: int
    memory_gib: float


def unit_of(key: Key) -> tuple[Unit, int]:
    """Return the unit of a pattern with GPUs, anywhere, and how many it has."""
    classes, together, gpus, cpus, memory_gib = key
    count = 1 if together else gpus
    return Unit(classes, -1, gpus // count, cpus // count, memory_gib / count), count


class Gathering:
    """Units on nodes (`on_nodes`), and what they leave of the room. Those that a gang needs within
    one rack are gathered there, in exchange for others of as many GPUs."""

    def __init__(
        self, model: RoundModel, room: Nodes, on_nodes: Mapping[Unit, Counter[int]]
    ) -> None:
        self._racks, self._rack = model.held.racks, model.held.rack
        self._bit = [1 << number for number in model.class_of]
        self._cpus, self._memory = list(room.cpus), list(room.memory)
        self._on: dict[int, Counter[Unit]] = defaultdict(Counter)
        for unit, nodes in on_nodes.items():
            for n, count in nodes.items():
                self._change(n, unit, count)

    def _change(self, n: int, unit: Unit, count: int) -> None:
        self._on[n][unit] += count
        self._cpus[n] -= count * unit.cpus
        self._memory[n] -= count * unit.memory_gib

    def of(self, unit: Unit, nodes: list[int] | None = None) -> Counter[int]:
        """Return how many of a unit are where, on some nodes or all."""
        where = self._on if nodes is None else nodes
        return Counter({n: count for n in where if (count := self._on[n][unit]) > 0})

    def taken(self, unit: Unit, nodes: Counter[int]) -> None:
        """Note that a job has got so many of a unit of these nodes."""
        for n, count in nodes.items():
            self._on[n][unit] -= count

    def in_a_rack(self, unit: Unit, count: int) -> Counter[int]:
        """Return so many of a unit or more in one rack: that with the fewest that are enough, or
        where none has, that with the most, to which others come; none if not enough can."""
        inside = [self.of(unit, nodes) for nodes in self._racks]
        enough = [own for own in inside if own.total() >= count]
        if enough:
            return min(enough, key=Counter.total)
        for r in sorted(range(len(inside)), key=lambda r: (-inside[r].total(), r)):
            have = inside[r].total()
            while have and have < count and (more := self._bring(unit, r, count - have)):
                have += more
            if have >= count:
                return self.of(unit, self._racks[r])
        return Counter()

    def _bring(self, unit: Unit, rack: int, most: int) -> int:
        """Exchange something on a node of a rack for units of a node outside; return how many."""
        outside = [(n, c) for n, c in self.of(unit).items() if self._rack[n] != rack]
        for n in self._racks[rack]:
            if not self._bit[n] & unit.classes:
                continue
            for other in list(self._on[n]):
                times, rest = divmod(other.gpus, unit.gpus)
                if self._on[n][other] <= 0 or other == unit or rest or times > most:
                    continue
                for at, count in outside:
                    if count >= times and self._exchanged(n, other, at, unit, times):
                        return times
        return 0

    def _exchanged(self, n: int, other: Unit, at: int, unit: Unit, times: int) -> bool:
        """Put so many units of one node on another in exchange for another unit, if both fit."""
        cpus = times * unit.cpus - other.cpus
        memory = times * unit.memory_gib - other.memory_gib
        fits = (
            other.classes & self._bit[at]
            and -self._cpus[at] <= cpus <= self._cpus[n]
            and -self._memory[at] <= memory * (1 - SLACK)
            and memory * (1 - SLACK) <= self._memory[n]
        )
        if fits:
            self._change(n, other, -1)
            self._change(at, unit, -times)
            self._change(n, unit, times)
            self._change(at, other, 1)
        return bool(fits)
