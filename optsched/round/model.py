"""One scheduling round as sparse arrays: options, what each is worth, and the rows of capacity they
draw on."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..model.instance import Instance, Placement, Running
from ..model.job import Job
from ..objectives import Objective
from .patterns import Columns, NodeClass, Pattern

if TYPE_CHECKING:
    from .sharing import Pinned

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NO_OPTION = -1
"""The choice of a job that does not run this round."""


class Kind(IntEnum):
    """What an option does: leave a running job as it is, start (or resume) a waiting one, move a
    running one, start a waiting one on the GPUs of a running one, or leave a running one where it
    is without its sharing partner."""

    KEEP = 0
    START = 1
    MOVE = 2
    BESIDE = 3
    ALONE = 4


def is_second(entry: Running) -> bool:
    """Whether a running job is the second of two that share their GPUs."""
    return entry.mode.share_with is not None and entry.job > entry.mode.share_with


@dataclass(frozen=True, slots=True)
class Row:
    """One capacity: what it limits ("GPUs", "slots", "cores", "memory", a resource, a budget, a
    quota), where, and how much there is. `slot` is the GPUs of each slot."""

    what: str
    where: str
    capacity: float
    classes: int = 0
    slot: int = 0

    @property
    def name(self) -> str:
        """For people."""
        what = f"free slots of {self.slot} GPUs" if self.what == "slots" else self.what
        return f"{what} of {self.where}" if self.where else what


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundModel:
    """max sum value x  over x in {0,1}: one option a job at most, all rows respected, `must` jobs
    running.

    Jobs are the active ones: released, with no predecessor left, and able to run. `never` are those
    that can never run. The options of job j are `first[j]` to `first[j + 1]`, a running job's first
    is to keep it. `pattern` is the index of what the option takes: of `patterns` (as columns:
    `table`), or, from `len(patterns)` on, of what the running jobs `kept` hold; `pattern_classes`
    numbers the sets of node classes they use. After those come the patterns of `pinned` options.
    `host` is, for an option on GPUs that a running job goes on holding, the position of that job,
    else -1: it is possible only if the host is kept, with one guest at most. Its value is less by
    what the host loses by it, and it takes no GPUs. `rival` is, for a job that stays without its
    sharing partner, that partner, which must not be kept.

    The matrix is kept by pattern: entry k says that pattern `entry_pattern[k]` takes
    `entry_amount[k]` of row `entry_row[k]`. Capacities are those of the whole cluster less what
    `blocked` holds. `reserved` places go, on real nodes, only to options that complete within the
    seconds beside them. Every set of choices that fits on real nodes satisfies the rows; the other
    way round holds for gangs of powers of two on one node. `memo` is for what is derived from all
    this once.
    """

    instance: Instance
    objective: Objective
    round_s: float
    refill: bool
    blocked: tuple[Placement, ...]
    reserved: tuple[tuple[Placement, float], ...]
    classes: tuple[NodeClass, ...]
    class_of: list[int]
    jobs: tuple[Job, ...]
    never: tuple[Job, ...]
    running: tuple[Running | None, ...]
    must: Bools
    patterns: tuple[Pattern, ...]
    table: Columns
    kept: Ints
    pattern_gpus: Floats
    pattern_classes: Ints
    first: Ints
    job: Ints
    kind: NDArray[np.int8]
    pattern: Ints
    host: Ints
    rival: Ints
    pinned: tuple["Pinned", ...]
    rate: Floats
    finish_s: Floats
    swap_s: Floats
    value: Floats
    rows: tuple[Row, ...]
    capacity: Floats
    entry_row: Ints
    entry_pattern: Ints
    entry_amount: Floats
    memo: dict[str, Any] = field(default_factory=dict)

    def pin(self, option: int) -> "Pinned | None":
        """Where an option on the GPUs of a running job is, None for others."""
        number = int(self.pattern[option]) - len(self.patterns) - len(self.kept)
        return self.pinned[number] if number >= 0 else None

    def pattern_prices(self, prices: Floats) -> Floats:
        """What each pattern costs at the given prices of the rows."""
        weights = self.entry_amount * prices[self.entry_row]
        return np.bincount(
            self.entry_pattern, weights=weights, minlength=len(self.pattern_gpus)
        ).astype(float)

    def usage(self, options: Ints) -> Floats:
        """What the options take of each row together."""
        times = np.bincount(self.pattern[options], minlength=len(self.pattern_gpus))
        weights = self.entry_amount * times[self.entry_pattern]
        return np.bincount(self.entry_row, weights=weights, minlength=len(self.rows)).astype(float)

    def reduced_values(self, prices: Floats) -> Floats:
        """Value of each option less the price of what it takes."""
        return self.value - self.pattern_prices(prices)[self.pattern]

    def best_reduced(self, reduced: Floats) -> Floats:
        """Best reduced value of each job; not running counts as 0, where it is allowed."""
        best = np.maximum.reduceat(reduced, self.first[:-1]) if len(self.jobs) else np.zeros(0)
        return np.where(self.must, best, np.maximum(best, 0.0))

    def bound(self, prices: Floats) -> float:
        """A proven limit on the value of any choice, from prices >= 0 alone: priced capacity plus
        the best that each job can earn at these prices (Lagrangian relaxation of the rows)."""
        return float(self.capacity @ prices + self.best_reduced(self.reduced_values(prices)).sum())

    def worth(self, chosen: Ints) -> float:
        """Value of a choice: the option of each job, or -1."""
        return float(self.value[chosen[chosen >= 0]].sum())
