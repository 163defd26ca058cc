"""Who is on which shared channel in a simulation, and how crowded each is."""

import math
from collections.abc import Mapping

from ..model import Cluster, Job, Mode, Placement, Profile
from ..physics.contention import Channel, channel_gbps, channel_loads, slowdown

Loads = Mapping[Channel, float]
"""What one job takes of each channel, in Gbit/s."""


class Channels:
    """The jobs on each channel, by their position in the instance, whether they work, set up or
    save.

    Loads are sums without rounding, so that they do not depend on the order in which jobs came and
    went.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._users: dict[Channel, dict[int, float]] = {}
        self._crowding: dict[Channel, float] = {}
        self._on: dict[int, Loads] = {}

    def loads(self, job: Job, mode: Mode, placement: Placement) -> Loads:
        """Return what a job takes of each channel on a placement."""
        return channel_loads(self._cluster, job, mode, placement)

    def join(self, index: int, loads: Loads) -> dict[int, None]:
        """Count the `loads` that a job begins to take. Return who else is now slowed down more than
        before, perhaps."""
        if not loads:
            return {}
        self._on[index] = loads
        for channel, gbps in loads.items():
            self._users.setdefault(channel, {})[index] = gbps
        affected = self._recount(loads)
        affected.pop(index, None)
        return affected

    def leave(self, index: int) -> dict[int, None]:
        """Count no more what a job took. Return who is now slowed down less, perhaps."""
        loads = self._on.pop(index, None)
        if loads is None:
            return {}
        for channel in loads:
            del self._users[channel][index]
        return self._recount(loads)

    def _recount(self, channels: Loads) -> dict[int, None]:
        affected: dict[int, None] = {}
        for channel in channels:
            users = self._users[channel]
            now = self._ratio(channel, math.fsum(users.values()))
            if now != self._crowding.get(channel, 1.0):
                self._crowding[channel] = now
                affected |= dict.fromkeys(users)
        return affected

    def _ratio(self, channel: Channel, gbps: float) -> float:
        return max(1.0, gbps / channel_gbps(self._cluster, channel))

    def slowdown(self, index: int, profile: Profile) -> float:
        """Return by how much a job that is on its channels is slowed down now."""
        loads = self._on.get(index)
        if loads is None:
            return 1.0
        return slowdown(profile, {channel: self._crowding.get(channel, 1.0) for channel in loads})

    def slowdown_with(self, profile: Profile, own: Loads, more: Loads) -> float:
        """Return by how much a job that takes `own` would be slowed down if `more` were taken
        besides what is taken now."""
        if not own:
            return 1.0
        return slowdown(
            profile,
            {
                channel: self._ratio(channel, self.gbps(channel) + more.get(channel, 0.0))
                for channel in own
            },
        )

    def gbps(self, channel: Channel) -> float:
        """Return what is taken of a channel now."""
        return math.fsum(self._users.get(channel, {}).values())

    def users(self, channel: Channel) -> dict[int, float]:
        """Return what each job on a channel takes of it."""
        return self._users.get(channel, {})

    def on(self, index: int) -> Loads:
        """Return what a job takes of each channel."""
        return self._on.get(index, {})
