"""The answer of a solver: segments for every job, what they are worth, and how good that is."""

from typing import Literal

from ..frozen import frozen
from .instance import Placement
from .job import Mode

CLOSED_GAP = 1e-6
"""What a bound may fall short of an optimum, relative to what plans can change: the rounding of
solvers and times."""

Decision = Literal["start", "continue", "preempt", "resume", "migrate", "resize", "wait"]
Incident = Literal["failure", "outage", "out_of_memory"]
Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@frozen
class Segment:
    """One stretch of time in which a job holds the same resources.

    Start-up, restore and checkpoint seconds are inside it. A segment that begins where the one
    before ended, with the same mode (but for the sharing partner) and placement, goes on without
    any of them. `stopped_by` says what ended it that nobody planned: the failure of its attempt,
    the outage of a node, or that the memory of its GPUs did not hold it beside its partner.
    """

    start_s: float
    end_s: float
    mode: Mode
    placement: Placement = ()
    stopped_by: Incident | None = None


@frozen
class JobPlan:
    """All segments of one job, in time order, and what happens to it now."""

    id: str
    decision: Decision
    segments: tuple[Segment, ...] = ()

    @property
    def completion_s(self) -> float:
        """Return the instant at which the job is done."""
        return self.segments[-1].end_s


@frozen
class Plan:
    """The segments of every job of an instance, in the order of its jobs."""

    jobs: tuple[JobPlan, ...] = ()


@frozen
class Level:
    """One objective of a sequence: its value in the plan and the proven limit, where there is
    one."""

    name: str
    value: float | None
    bound: float | None

    @property
    def gap(self) -> float | None:
        """Return (value - bound) / |value|; None where either is unknown; 0 where they are
        equal."""
        if self.value is None or self.bound is None:
            return None
        if self.value <= self.bound:
            return 0.0
        return (self.value - self.bound) / abs(self.value) if self.value else float("inf")


@frozen
class Solution:
    """A verified plan with its value, proven bound and status.

    `levels` has one entry for each objective in order of importance; the bound of a later one holds
    among plans that keep the values of the earlier ones. `fallback` says why a heuristic answered,
    where it did. `bound_source` names what proved the bound. `replay` says that the plan is what
    happened, with the failures and outages of the instance; else it is made without knowing of
    them. `wall_s` is None where the output must not depend on the clock.
    """

    instance_name: str
    instance_hash: str
    solver: str
    seed: int
    objective: str
    status: Status
    levels: tuple[Level, ...]
    plan: Plan | None
    bound_source: str | None = None
    wall_s: float | None = None
    fallback: str | None = None
    notes: tuple[str, ...] = ()
    replay: bool = False

    @property
    def deciding(self) -> Level:
        """Return the first level whose gap is not closed, or the last."""
        for level in self.levels:
            if level.gap is None or level.gap > CLOSED_GAP:
                return level
        if self.status != "optimal":  # what is open is a small part of a large value
            return next((level for level in self.levels if level.gap), self.levels[-1])
        return self.levels[-1]

    @property
    def value(self) -> float | None:
        return self.deciding.value

    @property
    def bound(self) -> float | None:
        return self.deciding.bound

    @property
    def gap(self) -> float | None:
        return self.deciding.gap
