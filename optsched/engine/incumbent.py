"""The best verified plan so far, and what is proven about how good any plan can be."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..frozen import record
from ..model import Instance, Level, Plan
from ..model.plan_types import malformed
from ..objectives import Objective, level_name
from ..verify import verify
from .plan_class import outside_class

if TYPE_CHECKING:
    from ..bounds.yardstick import Yardstick


@record
class Limit:
    """A proven limit on the value of one level, and what proved it."""

    bound: float
    source: str


def is_better(a: Sequence[float], b: Sequence[float], by: "Sequence[Yardstick]") -> bool:
    """Return whether level values `a` are better than `b`, the first level that differs
    counting."""
    for x, y, yardstick in zip(a, b, by, strict=True):
        if yardstick.differ(x, y):
            return x < y
    return False


class Incumbent:
    """Collects plans and bounds of any origin; believes no plan unverified and no bound that a plan
    refutes.

    `any_plan` takes plans outside the plan class too, about which solvers' bounds say nothing.
    """

    def __init__(self, instance: Instance, objective: Objective, any_plan: bool) -> None:
        self.instance = instance
        self.objective = objective
        self.any_plan = any_plan
        self.plan: Plan | None = None
        self.values: tuple[float, ...] | None = None
        self.source: str | None = None
        self.refuted_claims: list[str] = []
        self.refuted_bounds: list[str] = []
        self._combinatorial: dict[int, Limit] = {}
        self._claimed: dict[int, Limit] = {}
        self._trusts_claims = True

    @cached_property
    def yardsticks(self) -> "tuple[Yardstick, ...]":
        """Return the yardsticks that tell values and bounds of each level apart."""
        from ..bounds.yardstick import yardsticks

        return yardsticks(self.instance, self.objective, self.any_plan)

    def offer(self, plan: object, source: str, *, replay: bool = False) -> str | None:
        """Verify a plan (`replay`: what happened) and keep it if it is better. Return why it was
        rejected, or None."""
        fault = malformed(plan)
        if fault is not None:
            return fault
        assert isinstance(plan, Plan)
        report = verify(self.instance, plan, self.objective, replay=replay)
        if report.values is None:
            more = len(report.violations) - 1
            return str(report.violations[0]) + (f" (and {more} more)" if more else "")
        if not self.any_plan and (reason := outside_class(self.instance, plan)) is not None:
            return reason
        if self.values is None or is_better(report.values, self.values, self.yardsticks):
            self.plan, self.values, self.source = plan, report.values, source
            self._refute()
        return None

    def prove(self, level: int, bound: float, source: str) -> None:
        """Take a bound that holds for every plan, whatever its earlier levels."""
        self._combinatorial[level] = Limit(bound, source)
        self._refute()

    def claim(self, level: object, bound: object, source: str) -> str | None:
        """Take a solver's bound on `level` among plans that keep the earlier levels' values.

        The largest of a level counts. Returns what is malformed, or None; `refuted_claims` gets
        wrong ones.
        """
        if type(level) is not int or not 0 <= level < len(self.objective.levels):
            return f"a bound for level {level!r}, which the objective does not have"
        if not isinstance(bound, int | float) or not math.isfinite(bound):
            return f"a bound of {bound!r}, which is not a finite number"
        if level not in self._claimed or bound > self._claimed[level].bound:
            self._claimed[level] = Limit(float(bound), source)
            self._refute()
        return None

    def distrust_claims(self) -> None:
        """Use no bound of the solver any more: it was caught being wrong."""
        self._trusts_claims = False

    def levels(self) -> tuple[Level, ...]:
        """Return value and proven bound of each level."""
        return tuple(
            Level(name=level_name(level), value=value, bound=None if limit is None else limit.bound)
            for level, value, limit in zip(
                self.objective.levels, self._values(), self._limits(), strict=True
            )
        )

    def bound_source(self) -> str | None:
        """Return what proved the bound of the level that is not settled, or of the last one."""
        limit = self._limits()[self.unsettled()]
        return None if limit is None else limit.source

    def unsettled(self) -> int:
        """Return the first level whose value is not proved to be optimal, or the last."""
        closed = self._closed()
        return closed.index(False) if False in closed else len(closed) - 1

    def is_optimal(self) -> bool:
        """Return whether there is a plan and no other can be better, on any level."""
        return self.plan is not None and all(self._closed())

    def _closed(self) -> list[bool]:
        """Return for each level whether its bound proves its value."""
        return [
            by.is_closed(level.value, level.bound)
            for level, by in zip(self.levels(), self.yardsticks, strict=True)
        ]

    def _values(self) -> Sequence[float | None]:
        return (None,) * len(self.objective.levels) if self.values is None else self.values

    def _limits(self) -> list[Limit | None]:
        """Return the best limit of each level; a claim counts only where all earlier levels are
        proven optimal."""
        limits: list[Limit | None] = []
        earlier_closed = True
        for k, value in enumerate(self._values()):
            limit = self._combinatorial.get(k)
            claimed = self._claimed.get(k) if earlier_closed and self._trusts_claims else None
            if claimed is not None and (limit is None or claimed.bound > limit.bound):
                limit = claimed
            # A bound above the value is so by no more than rounding, else it was refuted.
            by = self.yardsticks[k]
            if (
                limit
                and value is not None
                and (limit.bound > value or not by.differ(value, limit.bound))
            ):
                limit = Limit(value, limit.source)
            earlier_closed = earlier_closed and by.is_closed(
                value, None if limit is None else limit.bound
            )
            limits.append(limit)
        return limits

    def _refute(self) -> None:
        """Drop bounds that the verified plan shows to be wrong, and remember the reason."""
        if self.values is None:
            return
        for k, value in enumerate(self.values):
            by = self.yardsticks[k]
            claimed, proven = self._claimed.get(k), self._combinatorial.get(k)
            name = level_name(self.objective.levels[k])
            if claimed is not None and self._trusts_claims and by.refutes(value, claimed.bound):
                self.refuted_claims.append(
                    f"a bound of {claimed.bound:.10g} for {name}, but a verified plan has "
                    f"{value:.10g}"
                )
                self._claimed.clear()
                self.distrust_claims()
            if proven is not None and by.refutes(value, proven.bound):
                self.refuted_bounds.append(
                    f"the {proven.source} bound of {proven.bound:.10g} for {name} is wrong, "
                    f"a verified plan has {value:.10g}; please report this instance"
                )
                del self._combinatorial[k]
            limit = self._limits()[k]
            if limit is None or not by.is_closed(value, limit.bound):
                return  # what is claimed of later levels holds only once this one is settled
