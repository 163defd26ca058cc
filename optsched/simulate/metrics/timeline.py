"""What is free over time, between the instants at which that changes or a wait begins or ends."""

from collections import defaultdict
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...frozen import entity
from ..record import Floats, Ints, Record
from .sums import sums
from .use import parts as parts_of


@entity
class Headroom:
    """GPUs that quotas leave a tenant: `gpus[i]` from `Timeline.times_s[at[i]]` on."""

    at: Ints
    gpus: Floats


class Timeline:
    """Instants `times_s` in order, `length_s` apart; everything else is by position, and holds
    until the next one.

    `wait_from` and `wait_to` are where each of the given intervals begins and ends.
    """

    def __init__(self, rows: Record, from_s: Floats, to_s: Floats) -> None:
        self.rows = rows
        self.cluster = rows.instance.cluster
        order = self.cluster.node_order
        outages = rows.instance.outages
        self._lost = [self.cluster.nodes[order[entry.node]] for entry in outages]
        lost_s = np.array([(entry.start_s, entry.end_s) for entry in outages]).reshape(-1, 2)
        parts = (rows.start_s, rows.end_s, from_s, to_s, lost_s[:, 0], lost_s[:, 1])
        self.times_s, at = np.unique(np.concatenate(parts), return_inverse=True)
        self.length_s = np.diff(self.times_s)
        split = np.split(at, np.cumsum([len(part) for part in parts])[:-1])
        self._start, self._end, self.wait_from, self.wait_to, self._lost_from, self._lost_to = split
        self._free: dict[int, NDArray[np.float32]] = {}
        self._parts = parts_of(rows)

    def free(self, pool: int) -> NDArray[np.float32]:
        """Return GPUs of the type at this position that nobody holds, on nodes that are there;
        cores where `pool` is the number of types."""
        if pool not in self._free:
            self._free[pool] = self._free_of(pool).astype(np.float32)  # halves at most, so exact
        return self._free[pool]

    def _free_of(self, pool: int) -> Floats:
        rows, types = self.rows, self.cluster.gpu_types
        if pool < len(types):
            room = {
                node.name: node.gpus for node in self.cluster.nodes if node.gpu_type == types[pool]
            }
            mine = np.flatnonzero(self._parts.gpu_type == pool)
            of_pool = self._parts.row[mine]
            amount = self._parts.held[mine]
        else:
            room = {node.name: node.cpus or 0 for node in self.cluster.nodes}
            of_pool = np.flatnonzero(rows.cpus)
            amount = rows.cpus[of_pool].astype(np.float64)
        free = sum(room.values()) - self._level(self._start[of_pool], self._end[of_pool], amount)
        if self._lost:
            lost = np.array([room.get(node.name, 0) for node in self._lost], dtype=np.float64)
            free -= self._level(self._lost_from, self._lost_to, lost)
        return free

    def quota_pool(self) -> Floats | None:
        """Return GPUs that all tenants with a quota may hold beyond those they hold; None where
        nobody borrows."""
        quotas = self.rows.instance.quotas
        if None not in quotas.limits:
            return None
        rows = np.concatenate([self._rows_of[name] for name in quotas.over])
        gpus = self.rows.gpus[rows].astype(np.float64)
        return quotas.limits[None] - self._level(self._start[rows], self._end[rows], gpus)

    def headrooms(self) -> dict[str, Headroom]:
        """Return what the quotas that its jobs count against leave each tenant that has any, but
        for that of all together."""
        quotas = self.rows.instance.quotas
        below: dict[str, list[str]] = defaultdict(list)
        for name, over in quotas.over.items():
            for quota in over:
                if quota is not None:
                    below[quota].append(name)
        left = {quota: self._left(quotas.limits[quota], names) for quota, names in below.items()}
        return {
            name: _least([left[quota] for quota in over if quota is not None])
            for name, over in quotas.over.items()
        }

    @cached_property
    def _rows_of(self) -> dict[str, Ints]:
        """Return the rows of each tenant's jobs."""
        instance = self.rows.instance
        code = {tenant.name: k for k, tenant in enumerate(instance.tenants)}
        of_job = np.fromiter(
            (code.get(job.tenant or "", -1) for job in instance.jobs), np.int64, len(instance.jobs)
        )
        of_row = of_job[self.rows.job]
        order = np.argsort(of_row, kind="stable")
        ends = np.cumsum(np.bincount(of_row + 1, minlength=len(code) + 1))
        return {
            name: order[begin:end]
            for name, (begin, end) in zip(code, pairwise(ends.tolist()), strict=True)
        }

    def _left(self, quota: int, tenants: list[str]) -> Headroom:
        """Return what the jobs of some tenants leave of a quota."""
        rows = np.concatenate([self._rows_of[name] for name in tenants])
        at, place = np.unique(
            np.concatenate(([0], self._start[rows], self._end[rows])), return_inverse=True
        )
        gpus = self.rows.gpus[rows].astype(np.float64)
        taken = np.cumsum(sums(place, np.concatenate(([0.0], gpus, -gpus)), len(at)))
        return Headroom(at, quota - taken)

    def _level(self, start: Ints, end: Ints, amount: Floats) -> Floats:
        count = len(self.times_s)
        level: Floats = np.cumsum(sums(start, amount, count) - sums(end, amount, count))
        return level


def _least(several: list[Headroom]) -> Headroom:
    """Return the least that any of several quotas leaves."""
    if len(several) == 1:
        return several[0]
    at = np.unique(np.concatenate([own.at for own in several]))
    levels = [own.gpus[np.searchsorted(own.at, at, side="right") - 1] for own in several]
    return Headroom(at, np.minimum.reduce(levels))
