"""One scheduling round as sparse arrays: options, what each is worth, and the rows of capacity they
draw on."""

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..frozen import entity, record
from ..model import Instance, Job, Mode, Placement, Running
from ..objectives import Objective
from .patterns import Columns, NodeClass, Pattern
from .plan import JobRound

if TYPE_CHECKING:
    from .held import Held, Hold

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NODE_ROWS = ("GPUs", "slots", "cores", "memory")
"""Rows that say nothing beyond what the nodes themselves can hold."""
NAMED = ("resource", "budget")
"""Rows of what has a name of its own, that of another row perhaps."""
FEW = ("cores", "memory")
"""Rows of what a node can lack while it has free GPUs."""
EXCESS = 1e-6
"""Relative excess of an amount that the verifier takes for rounding."""
NO_OPTION = -1
"""The choice of a job that does not run this round."""


FAR_ABOVE = 1e3
"""Times what anybody would pay: few digits, and the search for prices is not held up before."""


class Kind(IntEnum):
    """The effect of an option: leave a running job as it is, start (or resume) a waiting one, move
    a running one, start a waiting one on the GPUs of a running one, or leave a running one where it
    is without its sharing partner."""

    KEEP = 0
    START = 1
    MOVE = 2
    BESIDE = 3
    ALONE = 4


def is_second(entry: Running) -> bool:
    """Return whether a running job is the second of two that share their GPUs."""
    return entry.mode.share_with is not None and entry.job > entry.mode.share_with


@entity
class Options:
    """The things jobs can do, one of it each: the options of job j are `first[j]` to `first[j +
    1]`, a running job's first is to keep it.

    `pattern` numbers what an option takes (see `Patterns`). `host` is, for an option on GPUs that a
    running job goes on holding, the position of that job, else -1: it is possible only if the host
    is kept, with one guest at most; its value is less by what the host loses by it. `rival` is, for
    a job that stays without its sharing partner, that partner, which must not be kept.
    """

    first: Ints
    job: Ints
    kind: NDArray[np.int8]
    pattern: Ints
    host: Ints
    rival: Ints
    rate: Floats
    finish_s: Floats
    swap_s: Floats
    value: Floats

    def best(self, worth: Floats) -> tuple[Floats, Ints]:
        """Return the largest worth of any option of each job, and the first option that has it."""
        best = np.maximum.reduceat(worth, self.first[:-1])
        at_best = np.flatnonzero(worth == best[self.job])[::-1]
        option = np.empty(len(best), dtype=np.int64)
        option[self.job[at_best]] = at_best
        return best, option

    def of(self, j: int) -> range:
        """Return the options of a job."""
        return range(int(self.first[j]), int(self.first[j + 1]))

    def ranked(self, j: int, worth: Floats) -> list[int]:
        """Return the options of a job, those of most worth first."""
        own = self.of(j)
        best_first = np.argsort(-worth[own.start : own.stop], kind="stable")
        order: list[int] = (own.start + best_first).tolist()
        return order


@entity
class Patterns:
    """The takings of options, numbered: the `fresh` ones on free GPUs (as columns: `table`), then
    the `holds`: first what each of the running jobs `kept` has, then options on their GPUs.

    `gpus` and `class_sets`, which numbers the sets of node classes in use, are of all of them.
    """

    fresh: tuple[Pattern, ...]
    table: Columns
    kept: Ints
    holds: tuple["Hold", ...]
    gpus: Floats
    class_sets: Ints


@record
class Row:
    """One capacity: what it limits (one of `NODE_ROWS`, "resource", "budget" or "quota"), where, or
    which, and how much there is. `slot` is the GPUs of each slot."""

    what: str
    where: str
    capacity: float
    classes: int = 0
    slot: int = 0

    @property
    def name(self) -> str:
        """Return what people call it."""
        if self.what in NAMED:
            return self.where
        what = f"free slots of {self.slot} GPUs" if self.what == "slots" else self.what
        return f"{what} of {self.where}" if self.where else what


@dataclass(frozen=True, eq=False)
class Rows:
    """The capacities, and what each pattern takes of them: entry k says that pattern `pattern[k]`
    takes `amount[k]` of row `row[k]`; entries are sorted by pattern."""

    limits: tuple[Row, ...]
    row: Ints
    pattern: Ints
    amount: Floats

    @classmethod
    def of(cls, limits: tuple[Row, ...], entries: list[tuple[Ints, Ints, Floats]]) -> "Rows":
        """Return rows with (row, pattern, amount) entries in any order."""
        row, pattern, amount = (
            np.concatenate([np.zeros(0, dtype=kind), *(part[i] for part in entries)])
            for i, kind in enumerate((np.int64, np.int64, np.float64))
        )
        order = np.argsort(pattern, kind="stable")
        return cls(limits, row[order], pattern[order], amount[order])

    @cached_property
    def capacity(self) -> Floats:
        """Return the capacity of each row."""
        return np.array([limit.capacity for limit in self.limits], dtype=float)

    @cached_property
    def is_shared(self) -> Bools:
        """Return which rows are not of nodes."""
        return np.array([limit.what not in NODE_ROWS for limit in self.limits], dtype=bool)

    @cached_property
    def shared(self) -> dict[int, list[tuple[int, float]]]:
        """Return the demands of patterns on rows that are not of nodes, as (row, amount) by
        pattern."""
        takes: dict[int, list[tuple[int, float]]] = {}
        at = np.flatnonzero(self.is_shared[self.row])
        columns = (self.pattern[at].tolist(), self.row[at].tolist(), self.amount[at].tolist())
        for pattern, row, amount in zip(*columns, strict=True):
            takes.setdefault(pattern, []).append((row, amount))
        return takes

    def takes(self, pattern: int) -> list[tuple[int, float]]:
        """Return what a pattern takes, as (row, amount)."""
        start, end = np.searchsorted(self.pattern, [pattern, pattern + 1]).tolist()
        return list(zip(self.row[start:end].tolist(), self.amount[start:end].tolist(), strict=True))

    def entries(self, patterns: Ints) -> tuple[Ints, Ints]:
        """Return all entries of the given patterns, and the position of the pattern of each."""
        start, end = (np.searchsorted(self.pattern, patterns, side) for side in ("left", "right"))
        count = end - start
        position = np.repeat(np.arange(len(patterns)), count)
        before = np.repeat(np.cumsum(count) - count, count)
        return np.arange(len(position)) - before + start[position], position


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundModel:
    """max sum value x  over x in {0,1}: one option a job at most, all rows respected, `must` jobs
    running.

    Jobs are the active ones: released, with no predecessor left, and able to run. `never` are those
    that can never run. Capacities are those of the whole cluster less what `blocked` holds.
    `reserved` places go, on real nodes, only to options that complete within the seconds beside
    them, and to the job `reserved_for`. Of jobs of some `depth` only running ones are among them,
    which give way to those of depth 0. `waits` says of each job that it goes on waiting. Every set
    of choices that fits on real nodes satisfies the rows; the other way round holds for gangs of
    powers of two on one node. `held` is what running jobs and pinned options hold of each node.
    """

    instance: Instance
    objective: Objective
    blocked: tuple[Placement, ...]
    reserved: tuple[tuple[Placement, float], ...]
    reserved_for: str | None
    classes: tuple[NodeClass, ...]
    class_of: list[int]
    jobs: tuple[Job, ...]
    never: tuple[Job, ...]
    running: tuple[Running | None, ...]
    waits: tuple[JobRound, ...]
    must: Bools
    depth: Ints
    options: Options
    patterns: Patterns
    held: "Held"
    rows: Rows

    def hold(self, option: int) -> "Hold | None":
        """Return the given GPUs that an option is on, None where any will do."""
        number = int(self.options.pattern[option]) - len(self.patterns.fresh)
        return self.patterns.holds[number] if number >= 0 else None

    def mode(self, option: int) -> Mode:
        """Return the mode of an option; it names no partner that the option itself chooses."""
        hold = self.hold(option)
        return self.fresh(option).option.mode if hold is None else hold.mode

    def fresh(self, option: int) -> Pattern:
        """Return the pattern of an option on free GPUs."""
        return self.patterns.fresh[int(self.options.pattern[option])]

    def pattern_prices(self, prices: Floats) -> Floats:
        """Return what each pattern costs at the given prices of the rows."""
        rows = self.rows
        weights = rows.amount * prices[rows.row]
        return np.bincount(rows.pattern, weights=weights, minlength=len(self.patterns.gpus)).astype(
            float
        )

    def usage(self, options: Ints) -> Floats:
        """Return what the options take of each row together."""
        rows = self.rows
        times = np.bincount(self.options.pattern[options], minlength=len(self.patterns.gpus))
        weights = rows.amount * times[rows.pattern]
        return np.bincount(rows.row, weights=weights, minlength=len(rows.limits)).astype(float)

    def reduced_values(self, prices: Floats) -> Floats:
        """Return the value of each option less the price of what it takes."""
        return self.options.value - self.pattern_prices(prices)[self.options.pattern]

    def best_reduced(self, reduced: Floats) -> Floats:
        """Return the best reduced value of each job; not running counts as 0, where it is
        allowed."""
        best = np.maximum.reduceat(reduced, self.options.first[:-1])
        return np.where(self.must, best, np.maximum(best, 0.0))

    def best_options(self, reduced: Floats) -> Ints:
        """Return the option of largest reduced value of each job, the first of equals; -1 where
        none is above 0."""
        best, option = self.options.best(reduced)
        return np.where(self.must | (best > 0), option, NO_OPTION)

    @cached_property
    def kept_number(self) -> dict[int, int]:
        """Return the position of each running job among them."""
        return {j: k for k, j in enumerate(self.patterns.kept.tolist())}

    @cached_property
    def alone_values(self) -> Floats:
        """Return the value of each job if it had the cluster for itself. What runs on more than
        there is of something cannot go on even so."""
        rows, capacity = self.rows, self.rows.capacity
        beyond = rows.amount > (capacity + EXCESS * np.maximum(1.0, capacity))[rows.row]
        runs = rows.pattern >= len(self.patterns.fresh)
        never = np.isin(self.options.pattern, rows.pattern[beyond & runs])
        return self.best_reduced(np.where(never, 0.0, self.options.value))

    @cached_property
    def alone(self) -> float:
        """Return the value of all jobs if each had the cluster for itself: no round is worth
        more."""
        return float(self.alone_values.sum())

    @cached_property
    def dearest(self) -> Floats:
        """Return for each row a price far above that at which nobody takes any of it who need not:
        more proves no more, and where those who must take all of it any more would prove as much,
        until sums had no digits left for values."""
        rows, options = self.rows, self.options
        free, takes = ~self.must[options.job], rows.amount > 0
        worth, dearest = np.zeros(len(self.patterns.gpus)), np.zeros(len(rows.limits))
        np.maximum.at(worth, options.pattern[free], options.value[free])
        each = worth[rows.pattern[takes]] / rows.amount[takes]
        np.maximum.at(dearest, rows.row[takes], each)
        return FAR_ABOVE * np.where(dearest > 0, dearest, dearest.max(initial=0.0))

    def bound(self, prices: Floats) -> float:
        """Return a proven limit on the value of any choice, from prices >= 0 alone: priced capacity
        plus the best that each job can earn at these prices (Lagrangian relaxation of the rows)."""
        best = self.best_reduced(self.reduced_values(prices))
        return float(np.sum(self.rows.capacity * prices) + best.sum())

    @cached_property
    def scarce(self) -> int:
        """Return the mask of the node classes whose cores or memory can run short."""
        return reduce(or_, (row.classes for row in self.rows.limits if row.what in FEW), 0)

    @cached_property
    def bulk(self) -> Floats:
        """Return for each fresh pattern its GPUs, or as many as go with its cores or its memory
        where these are scarce and it needs more of them than goes with its GPUs."""
        table, bulk = self.patterns.table, self.patterns.table.gpus.astype(float)
        for number, mask in enumerate(table.masks):
            own = np.flatnonzero(table.mask == number)
            for kind in self.classes:
                if kind.bit & mask & self.scarce and kind.node.gpus:
                    for takes, limit in zip(
                        (table.cpus, table.memory_gib), kind.limits, strict=True
                    ):
                        per_gpu = limit / kind.node.gpus
                        bulk[own] = np.maximum(bulk[own], takes[own] / per_gpu)
        return bulk

    @cached_property
    def evenly(self) -> "RoundModel | None":
        """Return the model in which options that take more cores or memory for each GPU than nodes
        have for each are worth nothing, unless all that their job can do take more; None where
        there are none. What is chosen of it fits on nodes almost as well as on the rows; it proves
        nothing."""
        options, fresh = self.options, len(self.patterns.fresh)
        even = np.ones(len(options.value), dtype=bool)
        on_free = np.flatnonzero(options.pattern < fresh)
        pattern = options.pattern[on_free]
        even[on_free] = self.bulk[pattern] <= self.patterns.gpus[pattern] * (1 + 1e-9)
        can = np.zeros(len(self.jobs), dtype=bool)
        can[options.job[on_free[even[on_free] & (options.value[on_free] > 0)]]] = True
        value = np.where(even | ~can[options.job], options.value, 0.0)
        if (value == options.value).all():
            return None
        return replace(self, options=replace(options, value=value))

    def worth(self, chosen: Ints) -> float:
        """Return the value of a choice: the option of each job, or -1."""
        return float(self.options.value[chosen[chosen >= 0]].sum())
