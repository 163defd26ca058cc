"""Each objective once: the value of a plan, and the coefficients a model needs.

Every objective is minimised. Each is in a file of its own (`TERM`), found by its name; what it says
of itself, and of which kind it is, is in `terms` and `costs`.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from importlib import import_module
from pkgutil import iter_modules

from ..errors import InputError, perhaps
from ..frozen import record
from ..model import Cluster, Instance, Plan
from .alone import fastest_s, isolated_s
from .costs import (
    AT_ONCE_S,
    LATE_TOLERANCE_S,
    Hinge,
    Inverse,
    JobCost,
    Linear,
    Numbers,
    Square,
    Step,
)
from .tariff import Tariff
from .terms import RankOfJobs, Relaxation, SumOfJobs, Term, Usage

__all__ = [
    "AT_ONCE_S",
    "LATE_TOLERANCE_S",
    "TERMS",
    "Hinge",
    "Inverse",
    "JobCost",
    "Level",
    "Linear",
    "Numbers",
    "Objective",
    "RankOfJobs",
    "Relaxation",
    "Square",
    "Step",
    "SumOfJobs",
    "Term",
    "Usage",
    "by_priority",
    "fastest_s",
    "isolated_s",
    "level_name",
    "level_value",
    "parse",
    "values",
    "wanted",
]

WEIGHTED = r"\s*(?:([0-9.eE+-]+)\s*\*)?\s*([a-z][a-z0-9_]*)(?::([0-9.]+))?(?:@(-?[0-9]+))?\s*"
"""A term with its weight, quantile and least priority."""

_FILES = (import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__))
TERMS: dict[str, Term] = {file.TERM.name: file.TERM for file in _FILES if hasattr(file, "TERM")}

Level = tuple[tuple[float, Term], ...]
"""A weighted sum of terms."""
MOST_TIERS = 16
"""Of more priorities at once the jobs of the lowest are planned together: a plan or a round must
end, whatever numbers users give."""


@record
class Objective:
    """Levels in order of importance; each level is a weighted sum of terms."""

    levels: tuple[Level, ...]

    @property
    def name(self) -> str:
        """Return the objective as it is written on the command line."""
        return ",".join(map(level_name, self.levels))

    @property
    def terms(self) -> Iterator[Term]:
        """Yield all terms of all levels."""
        return (term for level in self.levels for _, term in level)

    @property
    def is_linear(self) -> bool:
        """Return whether it sums costs that are linear in completion, so that urgency is the
        weight."""
        return all(
            isinstance(term, SumOfJobs) and term.shape is Linear and term.priority is None
            for term in self.terms
        )

    @property
    def _priorities(self) -> list[float]:
        """Return the least priority of each tier that the levels tell apart, the highest first."""
        own = {term.priority for term in self.terms if term.priority is not None}
        return [*sorted(own, reverse=True), -math.inf]

    def tier(self, priority: int | None) -> int:
        """Return the number of the tier of jobs of a priority, 0 the highest; None is the last."""
        least = -math.inf if priority is None else priority
        return next(k for k, own in enumerate(self._priorities) if least >= own)

    def tier_of_level(self, number: int) -> int:
        """Return the lowest tier whose jobs count in a level."""
        return max(self.tier(term.priority) for _, term in self.levels[number])

    def changes(self, cluster: Cluster) -> bool:
        """Return whether the round values jobs otherwise while nothing happens. Raises InputError
        as `tariffs`."""
        return any([term.changes(cluster) for term in self.terms])

    def tariffs(self, cluster: Cluster) -> list[Tariff]:
        """Return the tariffs by which the time at which something is held matters. Raises
        InputError where the cluster does not say what one needs."""
        tariffs = [term.tariff(cluster) for term in self.terms if isinstance(term, Usage)]
        return [tariff for tariff in tariffs if not tariff.is_constant]


def level_name(level: Level) -> str:
    """Return a level as it is written on the command line."""
    return "+".join(
        (f"{_digits(weight)}*" if weight != 1 else "")
        + term.name
        + (f":{_digits(term.quantile)}" if term.quantile != TERMS[term.name].quantile else "")
        + (f"@{term.priority}" if term.priority is not None else "")
        for weight, term in level
    )


def _digits(number: float) -> str:
    """Return all digits of a number, without an exponent: what `parse` reads as the same number."""
    return f"{Decimal(repr(number)):f}".removesuffix(".0")


def parse(text: str) -> Objective:
    """Read `wct`, `deadline,wct` (in order), `0.7*makespan+0.3*tail:0.9` (weighted sum) or
    `wct@2,wct` (of jobs of at least priority 2 first).

    Raises InputError with what is wrong and what would be right.
    """
    return Objective(
        tuple(
            tuple(_weighted(piece) for piece in re.split(r"(?<![0-9.][eE])\+", part))
            for part in text.split(",")
        )
    )


def wanted(objective: str | Objective, cluster: Cluster) -> Objective:
    """Return an objective that may be given by its name. Raises InputError where it is unknown, or
    the cluster does not say what it needs."""
    goal = parse(objective) if isinstance(objective, str) else objective
    goal.tariffs(cluster)
    return goal


def _weighted(piece: str) -> tuple[float, Term]:
    match = re.fullmatch(WEIGHTED, piece)
    where = f"objective {piece.strip()!r}"
    if match is None or match[2] not in TERMS:
        near = perhaps(re.sub(r"^.*\*|[:@].*$", "", piece).strip(), TERMS)
        raise InputError(
            f"{where} is unknown{near}; choose from {', '.join(TERMS)}, "
            "joined by + (weighted sum, 0.7*wct) or , (in order of importance)"
        )
    term = TERMS[match[2]]
    try:
        weight = float(match[1] or 1)
        quantile = float(match[3] or term.quantile)
        priority = int(match[4]) if match[4] else None
    except ValueError:
        raise InputError(f"{where}: weight, quantile and priority must be numbers") from None
    if not (weight > 0 and math.isfinite(weight)):
        raise InputError(f"{where}: its weight must be positive")
    if match[3] and term.quantile == 1:
        takes = ", ".join(name for name, other in TERMS.items() if other.quantile < 1)
        raise InputError(f"{where}: only {takes} takes a quantile, as in {takes}:0.9")
    if not 0 < quantile <= 1:
        raise InputError(f"{where}: the quantile must be above 0 and at most 1")
    if match[4] and isinstance(term, Usage):
        raise InputError(f"{where}: it counts what all jobs use; leave out @{match[4]}")
    return weight, replace(term, quantile=quantile, priority=priority)


def by_priority(objective: Objective, instance: Instance) -> Objective:
    """Return the objective under strict priorities: all its levels over the jobs of the highest
    priority, then over those of the two highest, and so on, over all jobs last; as it is where it
    names priorities itself.

    Energy and money are those of all jobs in every level.
    """
    if any(term.priority is not None for term in objective.terms):
        return objective
    priorities = sorted({job.priority for job in instance.jobs}, reverse=True)[:MOST_TIERS]
    above = (
        tuple(
            (weight, term if isinstance(term, Usage) else replace(term, priority=priority))
            for weight, term in level
        )
        for priority in priorities[:-1]
        for level in objective.levels
        if not all(isinstance(term, Usage) for _, term in level)
    )
    return Objective((*above, *objective.levels))


def level_value(level: Level, instance: Instance, plan: Plan) -> float:
    """Return the value of a weighted sum of terms."""
    return math.fsum(weight * term.value(instance, plan) for weight, term in level)


def values(objective: Objective, instance: Instance, plan: Plan) -> tuple[float, ...]:
    """Return the value of each level of `objective` in `plan`."""
    return tuple(level_value(level, instance, plan) for level in objective.levels)
