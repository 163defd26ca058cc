"""Which active jobs may share GPUs, and how fast they then are."""

import numpy as np

from optsched.driver import World
from optsched.model import Profile
from optsched.physics import sharing_rate

from .active import Active, Ints, Kinds
from .max_min_pairs import SharingProblem


class Sharers:
    """Classes of jobs that run alike alone and beside others, numbered in order of appearance.

    A pair runs on a GPU type where both take as many GPUs at the same clock, their memory fits
    every GPU of the type, and it is known how fast both would be. A job whose GPU count depends on
    the type is known only where it takes as many as where it is fastest.
    """

    def __init__(self, world: World, kinds: Kinds) -> None:
        nodes = [node for node in world.cluster.nodes if node.gpus]
        self._memory_gib = np.array(
            [
                min(
                    (
                        node.gpu_memory_gib
                        for node in nodes
                        if node.gpu_type == gpu_type and node.gpu_memory_gib is not None
                    ),
                    default=np.inf,
                )
                for gpu_type in kinds.gpu_types
            ]
        )
        self._number: dict[object, int] = {}
        self._of: dict[str, int] = {}
        self._profiles: list[Profile] = []
        self._clocks: list[tuple[int | None, ...]] = []
        types = len(kinds.gpu_types)
        self._alone = np.zeros((0, types))
        self._gpus = np.zeros(0)
        self._rate = np.zeros((0, 0, types))

    def among(
        self, world: World, active: Active, kinds: Kinds, rows: list[int], used: Ints
    ) -> SharingProblem:
        """Return the rates of the jobs in these rows in the columns that are `used`."""
        self._of = {active.ids[i]: self._sharer(world, active, kinds, i) for i in rows}
        sharer = np.array([self._of[active.ids[i]] for i in rows], dtype=np.int64)
        present, sharer = np.unique(sharer, return_inverse=True)
        return SharingProblem(
            self._alone[np.ix_(present, used)],
            self._rate[np.ix_(present, present, used)],
            self._gpus[present],
            kinds.workers[used],
            sharer.reshape(-1),
        )

    def _sharer(self, world: World, active: Active, kinds: Kinds, row: int) -> int:
        job_id = active.ids[row]
        if job_id in self._of:
            return self._of[job_id]
        profile, kind = world.profile(job_id), active.kinds[row]
        options = world.options(job_id)
        clocks = tuple(options[way[0][0]].mode.clock_mhz if way else None for way in kind.ways[:-1])
        key = kind.number, profile.name, profile.gpu_memory_gib, clocks, profile.sharing
        if key not in self._number:
            self._number[key] = self._add(profile, clocks, kinds, kind.number)
        return self._number[key]

    def _add(
        self, profile: Profile, clocks: tuple[int | None, ...], kinds: Kinds, kind: int
    ) -> int:
        new = len(self._profiles)
        rate, gpus = kinds.rate[kind, :-1], kinds.gpus[kind, :-1]
        own_gpus = float(gpus[np.where(kinds.workers[:-1] > 0, rate, 0.0).argmax()])
        self._profiles.append(profile)
        self._clocks.append(clocks)
        self._alone = np.vstack([self._alone, np.where(gpus == own_gpus, rate, 0.0)])
        self._gpus = np.append(self._gpus, own_gpus)
        grown = np.zeros((new + 1, new + 1, len(gpus)))
        grown[:new, :new] = self._rate
        for old, other in enumerate(self._profiles):
            mine, others = sharing_rate(profile, other), sharing_rate(other, profile)
            if mine <= 0 or others <= 0 or self._gpus[old] != own_gpus:
                continue
            able = (self._alone[new] > 0) & (self._alone[old] > 0)
            able &= profile.gpu_memory_gib + other.gpu_memory_gib <= self._memory_gib
            able &= np.array(
                [clock == known for clock, known in zip(clocks, self._clocks[old], strict=True)],
                dtype=bool,
            )
            grown[new, old] = np.where(able, mine * self._alone[new], 0.0)
            grown[old, new] = np.where(able, others * self._alone[old], 0.0)
        self._rate = grown
        return new
