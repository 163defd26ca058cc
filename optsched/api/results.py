"""Results for people: a plan, a round or a simulation that prints itself as the command line
does."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from ..errors import InputError
from ..model.instance import Instance
from ..model.plan import Plan, Solution
from ..round.plan import RoundSolution

if TYPE_CHECKING:
    from ..picture.facts import JobFacts
    from .outcome import Outcome


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
class Planned(Solution, WithInstance):
    """A solution with its instance: print it, plot it, ask it why.

    `jobs` has the facts of each job by its id, times in seconds from now, as in
    `solution.jobs["eval"].start_s`.
    """

    @cached_property
    def jobs(self) -> "Mapping[str, JobFacts]":
        """When and where each job runs; empty without a plan."""
        from ..picture.facts import job_facts

        entries = () if self.plan is None else self.plan.jobs
        return {entry.id: job_facts(self.instance, entry) for entry in entries}

    def __str__(self) -> str:
        from ..picture.text import as_text
        from ..picture.text_solution import solution_parts

        return as_text(solution_parts(self.instance, self))

    def _repr_html_(self) -> str:
        """The picture and the table, in a notebook."""
        return _picture(self.instance, self) + _preformatted(self)

    def to_frame(self) -> Any:
        """Return the jobs as a table of polars, or of pandas."""
        from ..picture.facts import JobFacts

        names = [field.name for field in fields(JobFacts)]
        return _frame({name: [getattr(job, name) for job in self.jobs.values()] for name in names})

    def plot(self, path: str | Path) -> None:
        """Draw the plan: .html is an interactive page, .svg, .png and .pdf are figures."""
        _draw(self.instance, self, path)


@dataclass(frozen=True, kw_only=True)
class Decided(RoundSolution, WithInstance):
    """A round with its instance: print it, ask it why."""

    def __str__(self) -> str:
        from ..picture.text import as_text
        from ..picture.text_round import round_parts

        return as_text(round_parts(self.instance, self))

    def to_frame(self) -> Any:
        """Return the decisions as a table of polars, or of pandas."""
        return _frame(
            {
                "id": [entry.id for entry in self.jobs],
                "decision": [entry.decision for entry in self.jobs],
                "gpus": [0 if entry.mode is None else entry.mode.gpus for entry in self.jobs],
                "nodes": [[slot.node for slot in entry.placement] for entry in self.jobs],
            }
        )


class Simulated:
    """What came of a simulation: the checked plan, and what was measured.

    `metrics` is what `optsched simulate --json` prints, field by field in docs/formats.md.
    """

    def __init__(self, outcome: "Outcome") -> None:
        self._outcome = outcome
        self.instance: Instance = outcome.instance
        self.solution: Solution = outcome.solution
        self.metrics: dict[str, Any] = outcome.summary()

    @property
    def plan(self) -> Plan:
        """Who ran where and when."""
        assert self.solution.plan is not None
        return self.solution.plan

    def __str__(self) -> str:
        from ..picture.text import as_text
        from ..picture.text_simulation import simulation_parts

        return as_text(simulation_parts(self._outcome, self.metrics))

    def _repr_html_(self) -> str:
        """The picture and the tables, in a notebook."""
        return _picture(self.instance, self.solution) + _preformatted(self)

    def to_frame(self) -> Any:
        """Return what was measured of each job, the columns of `jobs.csv`, as a table of polars, or
        of pandas."""
        from ..simulate.metrics.table import columns

        return _frame(columns(self._outcome.metrics))

    def plot(self, path: str | Path) -> None:
        """Draw what happened: .html is an interactive page, .svg, .png and .pdf are figures."""
        _draw(self.instance, self.solution, path)


def _draw(instance: Instance, solution: Solution, path: str | Path) -> None:
    from ..picture import can_draw

    if solution.plan is None:
        raise InputError(f"there is no plan to draw, only the status {solution.status}")
    can_draw(Path(path))(instance, solution, Path(path))


def _picture(instance: Instance, solution: Solution) -> str:
    """The picture as part of a page; nothing where there is no plan."""
    if solution.plan is None:
        return ""
    from ..picture.figure import as_bytes

    return as_bytes(instance, solution, "svg").decode()


def _preformatted(result: object) -> str:
    return f"<pre>{escape(str(result))}</pre>"


def _frame(columns: Mapping[str, list[Any]]) -> Any:
    """Return a table of polars, or of pandas where polars is not installed."""
    import importlib

    for library in ("polars", "pandas"):
        try:
            return importlib.import_module(library).DataFrame(columns)
        except ImportError:
            continue
    raise InputError("a table needs polars or pandas; pip install polars")
