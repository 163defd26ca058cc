"""The jobs that are in the system, in arrays: one row a job in order of arrival, one column a GPU
type."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optsched.driver import Need, World
from optsched.model import Job
from optsched.physics.modes import Option

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

IDLE = -1
"""Column of a job that does not run."""
LEAST_WEIGHT = 1e-3
"""A weight of 0 counts as this much: whoever has it comes last, but is not left out."""


def grouped(*keys: Floats | Ints) -> tuple[Ints, Ints, Floats]:
    """Return of rows that are equal in all `keys` the first, the group of each row, and how many
    rows each group has."""
    rows = np.column_stack(keys)
    order = np.lexsort(rows.T[::-1])
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    group = np.empty(len(rows), dtype=np.int64)
    group[order] = new.cumsum() - 1
    return order[new], group, np.bincount(group).astype(np.float64)


def weight_of(job: Job) -> float:
    """Return the weight that counts."""
    return max(job.weight, LEAST_WEIGHT)


def weights_of(world: World, jobs: list[str]) -> Floats:
    """Return the weight of each job."""
    return np.array([weight_of(world.job(job_id)) for job_id in jobs])


class Kind(NamedTuple):
    """Jobs that ask for the same at the same rates with the same weight.

    `ways` has for each column how they can run there, the fastest first: the position among each
    job's options (which are its own where it lists modes) and what that takes.
    """

    number: int
    ways: tuple[tuple[tuple[int, Need], ...], ...]


class Kinds:
    """Kinds of jobs, numbered in order of appearance, with what a program needs of each in arrays.

    `rate[a, k]` is the work per second of a job of kind a in column k (0 where it cannot run),
    `gpus[a, k]` the GPUs it takes there. Columns are the GPU types in the order of the cluster; the
    last is for running without GPUs. `workers` are the GPUs of each column.
    """

    def __init__(self, world: World) -> None:
        cluster = world.cluster
        self.gpu_types = tuple(cluster.gpu_types)
        self.columns = len(self.gpu_types) + 1
        self.workers = np.zeros(self.columns)
        for node in cluster.nodes:
            if node.gpus:
                self.workers[self.gpu_types.index(node.gpu_type)] += node.gpus
        self.rate = np.zeros((0, self.columns))
        self.gpus = np.zeros((0, self.columns))
        self.weight = np.zeros(0)
        self._kind: dict[object, Kind] = {}

    def of(self, world: World, job_id: str) -> Kind:
        """Return the kind of a job."""
        options, demand = world.options(job_id), world.demand(job_id)
        weight = weight_of(world.job(job_id))
        key = (demand.number, weight, *(option.rate for option in options))
        if key not in self._kind:
            self._kind[key] = self._add(options, demand.needs, weight)
        return self._kind[key]

    def _add(self, options: tuple[Option, ...], needs: tuple[Need, ...], weight: float) -> Kind:
        ways: list[list[tuple[int, Need]]] = [[] for _ in range(self.columns)]
        for i, (option, need) in enumerate(zip(options, needs, strict=True)):
            ways[self.gpu_types.index(option.mode.gpu_type) if need.gpus else -1].append((i, need))
        rate = [options[way[0][0]].rate if way else 0.0 for way in ways]
        gpus = [float(way[0][1].gpus) if way else 0.0 for way in ways]
        self.rate = np.vstack([self.rate, rate])
        self.gpus = np.vstack([self.gpus, gpus])
        self.weight = np.append(self.weight, weight)
        return Kind(len(self._kind), tuple(map(tuple, ways)))


@dataclass(slots=True, eq=False)
class Ledger:
    """Time on each GPU type, by column and item (a job, or a pair of jobs): the `share` of it that
    the last computation gave, `time_s` received since then, `deficit_s` that earlier computations
    still owe."""

    share: Floats
    time_s: Floats
    deficit_s: Floats

    def settle(self, passed_s: float, first_time_s: float) -> None:
        """Carry over what is owed after `passed_s`, and count the time received from the start."""
        self.deficit_s += self.share * passed_s - (self.time_s - first_time_s)

    def add(self, first_time_s: float) -> None:
        """Append an item that has no share yet."""
        nothing = np.zeros((len(self.share), 1))
        self.share = np.hstack([self.share, nothing])
        self.deficit_s = np.hstack([self.deficit_s, nothing])
        self.time_s = np.hstack([self.time_s, nothing + first_time_s])

    def keep(self, stay: Bools) -> None:
        """Drop the other items."""
        self.share, self.time_s, self.deficit_s = (
            np.ascontiguousarray(table[:, stay])
            for table in (self.share, self.time_s, self.deficit_s)
        )


def empty_ledger(columns: int) -> Ledger:
    """Return a ledger without items."""
    return Ledger(*(np.zeros((columns, 0)) for _ in range(3)))


class Active:
    """What the round mechanism knows of each job in the system, by row.

    A job that came after the last computation of shares is not `known` to it. `column` is where it
    runs. `bound` jobs have rules that may forbid to preempt them.
    """

    def __init__(self, columns: int) -> None:
        self.ids: list[str] = []
        self.kinds: list[Kind] = []
        self.bound: list[bool] = []
        self.column: list[int] = []
        self.row: dict[str, int] = {}
        self.kind = np.zeros(0, dtype=np.int64)
        self.ledger = empty_ledger(columns)
        self.known = np.zeros(0, dtype=bool)

    def add(self, job: Job, kind: Kind, first_time_s: float) -> None:
        """Append a job that does not run."""
        self.row[job.id] = len(self.ids)
        self.ids.append(job.id)
        self.kinds.append(kind)
        self.column.append(IDLE)
        profile = job.profile
        self.bound.append(
            not job.preemptible
            or job.max_preemptions is not None
            or job.min_run_s + profile.startup_s + profile.restore_s > 0
        )
        self.kind = np.append(self.kind, kind.number)
        self.known = np.append(self.known, False)
        self.ledger.add(first_time_s)

    def remove(self, gone: list[int]) -> None:
        """Take rows out."""
        for i in sorted(gone, reverse=True):
            del self.ids[i], self.kinds[i], self.bound[i], self.column[i]
        self.row = {job_id: i for i, job_id in enumerate(self.ids)}
        stay = np.ones(len(self.kind), dtype=bool)
        stay[gone] = False
        self.kind, self.known = self.kind[stay], self.known[stay]
        self.ledger.keep(stay)
