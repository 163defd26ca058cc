"""Known optimal values of a study's instances: read from its file or a table, and held against what
runs say."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, model_validator

from ..errors import InputError
from ..frozen import record

if TYPE_CHECKING:
    from .results import Result

CONTRADICTS = "contradicts the known optimum"
EQUAL = 1e-6
"""Values whose relative difference is at most this are the same."""


class OptimumSpec(BaseModel):
    """The optimal value of an instance in `objective`: `value`, a number; or, for `files`, a column
    of that name in `file`, a table (CSV with a head) whose column `instance` has the names of the
    files, with or without endings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    objective: str
    value: float | str = "optimum"
    file: str | None = None
    instance: str = "instance"

    @model_validator(mode="after")
    def _number_or_table(self) -> "OptimumSpec":
        if self.file is None and isinstance(self.value, str):
            raise ValueError("optimum: give value, a number, or the file of a table")
        if self.file is not None and not isinstance(self.value, str):
            raise ValueError(
                "optimum: value names a column of the file; leave the number or the file out"
            )
        return self

    def stated(self) -> "Optimum":
        """Return the optimum of an instance that has its number."""
        return Optimum(self.objective, float(self.value))


@record
class Optimum:
    """The least value that any plan of an instance has in an objective."""

    objective: str
    value: float


def optima_in(spec: OptimumSpec, path: Path) -> dict[str, Optimum]:
    """Return optima by name of instance, without ending; lines without a value are left out.

    Raises InputError naming the table and what is wrong in it: unreadable, a column missing, no
    number, two values.
    """
    assert isinstance(spec.value, str)
    try:
        lines = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        raise InputError(f"optima {path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"optima {path}: is not a table: {error}") from None
    optima: dict[str, Optimum] = {}
    for number, line in enumerate(lines, 2):
        for column in (spec.instance, spec.value):
            if column not in line:
                raise InputError(
                    f"optima {path}: has no column {column}; its columns are {', '.join(line)}"
                )
        name, text = without_ending(line[spec.instance] or ""), (line[spec.value] or "").strip()
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(
                f"optima {path}: line {number}: {spec.value} of {name} is {text!r}, no number"
            )
        if optima.get(name, Optimum(spec.objective, value)).value != value:
            raise InputError(f"optima {path}: line {number}: {name} is there with two values")
        optima[name] = Optimum(spec.objective, value)
    return optima


def without_ending(name: str) -> str:
    """Return `j301_1` of `j301_1.sm`, as the instances of `files` are named."""
    return Path(name.strip()).name.split(".")[0]


def optimum_of(result: "Result") -> float | None:
    """Return the known optimum of what a run minimised first; None where none is known."""
    known, first = result.run.optimum, _first_level(result)
    return (
        known.value
        if known is not None and first and first.get("name") == known.objective
        else None
    )


def is_reached(result: "Result") -> bool:
    """Return whether the value that a run found is the known optimum."""
    optimum, value = optimum_of(result), _first_level(result).get("value")
    return optimum is not None and value is not None and _same(float(value), optimum)


def held_against(result: "Result") -> "Result":
    """Return the result, or one that failed, with the reason, where it contradicts the known
    optimum: a value below it, a bound above it, or another value said to be optimal. Such a value,
    bound or optimum is wrong."""
    optimum, said = optimum_of(result), _first_level(result)
    if optimum is None:
        return result
    value, bound, status = said.get("value"), said.get("bound"), said.get("status")
    wrong: list[str] = []
    if value is not None and value < optimum and not _same(value, optimum):
        wrong.append(f"the value {value:,.10g} is below it")
    if bound is not None and bound > optimum and not _same(bound, optimum):
        wrong.append(f"the bound {bound:,.10g} is above it")
    if not wrong and status == "optimal" and value is not None and not _same(value, optimum):
        wrong.append(f"{value:,.10g} is said to be optimal")
    if not wrong:
        return result
    reason = f"{CONTRADICTS} {optimum:,.10g} of {said['name']}: {' and '.join(wrong)}"
    return replace(result, answer=None, reason=reason)


def _first_level(result: "Result") -> dict[str, Any]:
    answer = result.answer or {}
    goal = answer.get("objective")
    levels = answer.get("levels") or (
        goal.get("levels") or [goal] if isinstance(goal, dict) else []
    )
    return levels[0] if levels else {}


def _same(value: float, optimum: float) -> bool:
    return math.isclose(value, optimum, rel_tol=EQUAL, abs_tol=EQUAL)
