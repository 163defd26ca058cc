"""What is left of the uplinks of racks while gangs are put in place."""

from ..model.instance import Instance
from ..physics.contention import planned_uplinks_gbps

SLACK = 1e-7
"""Relative excess that is taken for rounding."""


class Uplinks:
    """The uplinks that have a limit; a gang within one rack or on one node uses none (see
    `physics.uplinks`).

    `held` lists (node, GPUs, cores), as in `place`.
    """

    def __init__(self, instance: Instance) -> None:
        self._rack = [node.rack for node in instance.cluster.nodes]
        self._left = {
            rack: gbps * (1 + SLACK) for rack, gbps in planned_uplinks_gbps(instance).items()
        }

    def crossed(self, held: list[tuple[int, int, int]]) -> list[str]:
        """The racks whose uplink a placement uses."""
        if not self._left or len(held) < 2:
            return []
        racks = dict.fromkeys(self._rack[n] for n, *_ in held)
        if len(racks) == 1 and None not in racks:
            return []
        return [rack for rack in racks if rack is not None and rack in self._left]

    def hold(self, held: list[tuple[int, int, int]], gbps: float) -> bool:
        """Whether there is room for a placement."""
        return not gbps or all(self._left[rack] >= gbps for rack in self.crossed(held))

    def take(self, held: list[tuple[int, int, int]], gbps: float) -> None:
        """Take it; a negative amount gives it back."""
        if gbps:
            for rack in self.crossed(held):
                self._left[rack] -= gbps

    def open_nodes(self, gbps: float) -> list[int]:
        """The nodes that a gang over several racks may use."""
        return [
            n
            for n, rack in enumerate(self._rack)
            if rack is None or self._left.get(rack, gbps) >= gbps
        ]
