"""The parts of an explanation."""

from typing import Literal

from ..frozen import frozen
from ..model import Decision, Mode

State = Decision | Literal["never", "later"]
"""The decision of a job, or that it can never run, or that it cannot run yet."""


@frozen
class RowCost:
    """The price that an option pays for one capacity: `amount` of it at `price` each, a `share` of
    the option's whole price."""

    row: str
    amount: float
    price: float
    share: float


@frozen
class OptionNumbers:
    """One way to run a job this round, and what speaks for it: `reduced` is `value` less `price`.

    `kind` is "keep", "start" or "move"; `node_classes` where it may lie; `finish_s` the seconds to
    completion; `rows` the capacities that cost something, the dearest first.
    """

    kind: str
    mode: Mode
    node_classes: tuple[str, ...]
    rate: float
    finish_s: float
    value: float
    price: float
    reduced: float
    rows: tuple[RowCost, ...]


@frozen
class Victim:
    """A job that would have to leave: be preempted, or, where it is only about to start, wait.

    `value` is what its running is worth. `save_s` it holds its GPUs to save; it pays `startup_s`
    and `restore_s` when it comes back, and does `lost_s` of work again.
    """

    id: str
    preempted: bool
    gpus: int
    value: float
    save_s: float
    startup_s: float
    restore_s: float
    lost_s: float

    @property
    def overhead_s(self) -> float:
        """Return all seconds its preemption costs."""
        return self.save_s + self.startup_s + self.restore_s + self.lost_s


@frozen
class Swap:
    """The victims that would have to leave for a job, on which nodes; what is lost (the value of
    those who leave) and gained (its own). `leavers` are the cheapest found, in one node exactly
    where at most `room.MOST_EXACT` jobs hold it."""

    nodes: tuple[str, ...]
    leavers: tuple[Victim, ...]
    value_lost: float
    value_gained: float


@frozen
class Explanation:
    """The reasons for the decision of a job.

    `state` is the decision, "never" (with `reason`) or "later" (not released, or predecessors left;
    `waits_for` names them). `chosen` is the option decided, `best` the one of largest reduced
    value, `keep` that of leaving a running job alone. A waiting job `waits_for` what binds: the
    rows its best option pays for, or, with `blocked`, what is not there although the prices would
    let it run; `swap` says who would have to leave for it. A running job has a `margin`: how much
    more it is worth where it is than what it holds costs; where that is gone it leaves. `must_stay`
    says why it could not be preempted, `leaver` what that would cost. `makes_way_for` are the jobs
    that get what a preempted or moved one leaves, `takes_from` those that leave nodes for this one.
    `higher` is how many jobs of higher priorities have what a waiting job could use, or get what a
    preempted one leaves; of one that is not `priced` the prices say nothing: they are those of
    lower priorities. One that `borrows` does not fit in the quotas of its tenant; all that do not
    are as of a higher priority; where a window leaves it too little now, `reason` says so.
    """

    id: str
    state: State
    reason: str | None = None
    chosen: OptionNumbers | None = None
    best: OptionNumbers | None = None
    keep: OptionNumbers | None = None
    nodes: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    blocked: bool = False
    margin: float | None = None
    must_stay: str | None = None
    leaver: Victim | None = None
    swap: Swap | None = None
    makes_way_for: tuple[str, ...] = ()
    takes_from: tuple[str, ...] = ()
    higher: int = 0
    priced: bool = True
    borrows: bool = False
    sentence: str = ""
