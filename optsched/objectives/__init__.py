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
from ..model.cluster import Cluster
from ..model.instance import Instance
from ..model.plan import Plan
from .alone import fastest_s, isolated_s
from .costs import LATE_TOLERANCE_S, Hinge, Inverse, JobCost, Linear, Numbers, Square, Step
from .tariff import Tariff
from .terms import RankOfJobs, Relaxation, SumOfJobs, Term, Usage

__all__ = [
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
    "fastest_s",
    "isolated_s",
    "level_name",
    "level_value",
    "parse",
    "values",
    "wanted",
]

_FILES = (import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__))
TERMS: dict[str, Term] = {file.TERM.name: file.TERM for file in _FILES if hasattr(file, "TERM")}

Level = tuple[tuple[float, Term], ...]
"""A weighted sum of terms."""


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
        return all(isinstance(term, SumOfJobs) and term.shape is Linear for term in self.terms)

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
        + (f":{_digits(term.quantile)}" if term != TERMS[term.name] else "")
        for weight, term in level
    )


def _digits(number: float) -> str:
    """Return all digits of a number, without an exponent: what `parse` reads as the same number."""
    return f"{Decimal(repr(number)):f}".removesuffix(".0")


def parse(text: str) -> Objective:
    """Read `wct`, `deadline,wct` (in order) or `0.7*makespan+0.3*tail:0.9` (weighted sum).

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
    match = re.fullmatch(r"\s*(?:([0-9.eE+-]+)\s*\*)?\s*([a-z][a-z0-9_]*)(?::([0-9.]+))?\s*", piece)
    where = f"objective {piece.strip()!r}"
    if match is None or match[2] not in TERMS:
        near = perhaps(re.sub(r"^.*\*|:.*$", "", piece).strip(), TERMS)
        raise InputError(
            f"{where} is unknown{near}; choose from {', '.join(TERMS)}, "
            "joined by + (weighted sum, 0.7*wct) or , (in order of importance)"
        )
    term = TERMS[match[2]]
    try:
        weight = float(match[1] or 1)
        quantile = float(match[3] or term.quantile)
    except ValueError:
        raise InputError(f"{where}: weight and quantile must be numbers") from None
    if not (weight > 0 and math.isfinite(weight)):
        raise InputError(f"{where}: its weight must be positive")
    if match[3] and term.quantile == 1:
        takes = ", ".join(name for name, other in TERMS.items() if other.quantile < 1)
        raise InputError(f"{where}: only {takes} takes a quantile, as in {takes}:0.9")
    if not 0 < quantile <= 1:
        raise InputError(f"{where}: the quantile must be above 0 and at most 1")
    return weight, replace(term, quantile=quantile)


def level_value(level: Level, instance: Instance, plan: Plan) -> float:
    """Return the value of a weighted sum of terms."""
    return math.fsum(weight * term.value(instance, plan) for weight, term in level)


def values(objective: Objective, instance: Instance, plan: Plan) -> tuple[float, ...]:
    """Return the value of each level of `objective` in `plan`."""
    return tuple(level_value(level, instance, plan) for level in objective.levels)
