"""Results for people: a plan, a round or a simulation that prints itself as the command line
does."""

import importlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from ..errors import InputError
from ..model import Instance, Solution
from ..round.plan import RoundSolution

if TYPE_CHECKING:
    from rich.table import Table

    from ..picture.facts import JobFacts


class Shown:
    """A result that prints itself and becomes a table."""

    def _parts(self) -> "Iterable[str | Table]":
        """Return what is printed."""
        raise NotImplementedError

    def _columns(self) -> dict[str, list[Any]]:
        """Return the columns of the table, one line a job."""
        raise NotImplementedError

    def __str__(self) -> str:
        from ..picture.text import as_text

        return as_text(self._parts())

    def to_frame(self) -> Any:
        """Return one line a job as a table of polars, or of pandas."""
        for library in ("polars", "pandas"):
            with suppress(ImportError):
                return importlib.import_module(library).DataFrame(self._columns())
        raise InputError("a table needs polars or pandas; pip install polars")


class Drawn(Shown):
    """A result with a picture of its plan."""

    def _drawn(self) -> tuple[Instance, Solution]:
        """Return the plan that is drawn."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return the picture and the table, for a notebook."""
        from ..picture.figure import as_bytes

        instance, solution = self._drawn()
        picture = "" if solution.plan is None else as_bytes(instance, solution, "svg").decode()
        return f"{picture}<pre>{escape(str(self))}</pre>"

    def plot(self, path: str | Path) -> None:
        """Draw the plan: .html is an interactive page, .svg, .png and .pdf are figures."""
        from ..picture import can_draw

        instance, solution = self._drawn()
        if solution.plan is None:
            raise InputError(f"there is no plan to draw, only the status {solution.status}")
        can_draw(Path(path))(instance, solution, Path(path))


@dataclass(frozen=True, kw_only=True)
class WithInstance:
    """A result together with its instance, to be asked why."""

    instance: Instance

    @classmethod
    def of(cls, instance: Instance, solution: Solution | RoundSolution) -> Self:
        """Return a solution or a round together with its instance."""
        values = {field.name: getattr(solution, field.name) for field in fields(solution)}
        return cls(instance=instance, **values)

    def explain(self, job: str) -> str:
        """Say in a sentence why a job runs, waits, moves or is preempted now."""
        from . import explain

        decisions = cast("Solution | RoundSolution", self)
        return explain(self.instance, decisions, job, decisions.objective)[job]


@dataclass(frozen=True, kw_only=True)
class Planned(Solution, WithInstance, Drawn):
    """A solution with its instance: print it, plot it, ask it why.

    `jobs` has the facts of each job by its id, times in seconds from now, as in
    `solution.jobs["eval"].start_s`.
    """

    @cached_property
    def jobs(self) -> "Mapping[str, JobFacts]":
        """Return when and where each job runs; empty without a plan."""
        from ..picture.facts import job_facts

        entries = () if self.plan is None else self.plan.jobs
        return {entry.id: job_facts(self.instance, entry) for entry in entries}

    def _parts(self) -> "Iterable[str | Table]":
        from ..picture.text_solution import solution_parts

        return solution_parts(self.instance, self)

    def _columns(self) -> dict[str, list[Any]]:
        from ..picture.facts import JobFacts

        names = [field.name for field in fields(JobFacts)]
        return {name: [getattr(job, name) for job in self.jobs.values()] for name in names}

    def _drawn(self) -> tuple[Instance, Solution]:
        return self.instance, self


@dataclass(frozen=True, kw_only=True)
class Decided(RoundSolution, WithInstance, Shown):
    """A round with its instance: print it, ask it why."""

    def _parts(self) -> "Iterable[str | Table]":
        from ..picture.text_round import round_parts

        return round_parts(self.instance, self)

    def _columns(self) -> dict[str, list[Any]]:
        return {
            "id": [entry.id for entry in self.jobs],
            "decision": [entry.decision for entry in self.jobs],
            "gpus": [0 if entry.mode is None else entry.mode.gpus for entry in self.jobs],
            "nodes": [[slot.node for slot in entry.placement] for entry in self.jobs],
        }
