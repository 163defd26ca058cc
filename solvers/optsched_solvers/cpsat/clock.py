"""Budget of a search: by the wall clock, or by counted work where the result must be
reproducible."""

import time
from typing import Any

WORK_PER_SECOND = 0.04
"""Deterministic time (CP-SAT's counted work) granted for each second of the limit; the wall clock
stays the outer limit, and a run that meets it first is not reproducible. Scheduling models take 5
to 20 s for one unit."""

SHARE = 0.95
"""CP-SAT overruns its limits a little; what is left is for that and for sending the last plan."""


class Budget:
    """The time that a solve has left."""

    def __init__(self, time_limit_s: float, workers: int, seed: int) -> None:
        self.begun_s = time.monotonic()
        self.limit_s = SHARE * time_limit_s
        self.workers, self.seed = workers, seed
        self.work = WORK_PER_SECOND * self.limit_s if workers == 1 else None
        self.met_clock = False

    def left_s(self) -> float:
        """Return the wall seconds left; 0 also where the counted work is used up."""
        left_s = self.limit_s - (time.monotonic() - self.begun_s)
        if self.work is not None and self.work <= 0:
            return 0.0
        if left_s <= 0:
            self.met_clock = True
        return max(0.0, left_s)

    def fraction_left(self) -> float:
        """Return the share of the budget left, counted in work where the result must be
        reproducible."""
        if self.work is not None:
            return max(0.0, self.work / (WORK_PER_SECOND * self.limit_s))
        return self.left_s() / self.limit_s

    def work_at(self, share: float) -> float:
        """Return how much counted work is left when this share of the budget is."""
        return share * WORK_PER_SECOND * self.limit_s

    def configure(self, solver: Any, share: float = 1.0) -> None:
        """Set the limits of a CP-SAT solver, a share of what is left, its seed and workers."""
        parameters = solver.parameters
        parameters.max_time_in_seconds = max(share * self.left_s(), 1e-3)
        if self.work is not None:
            parameters.max_deterministic_time = max(share * self.work, 1e-6)
        parameters.num_workers = self.workers
        parameters.random_seed = self.seed

    def used(self, solver: Any) -> None:
        """Count what a solve has used."""
        self.spend(solver.response_proto.deterministic_time if self.work is not None else 0.0)

    def spend(self, work: float) -> None:
        """Count work done elsewhere, in the same unit."""
        if self.work is not None:
            self.work -= work
