"""Solvers: the contract between the engine and its plug-ins."""

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Protocol

from ..frozen import frozen
from ..model import Instance, Plan
from ..objectives import Objective

Guarantee = Literal["exact", "bound", "none"]

Constrain = Callable[[Any, Any], None]
"""Adds side constraints to a solver's model: it is called with the model and with its variables by
job."""


def ignore(*_: Any) -> None:
    """Ignore a report, for those who do not listen."""


@frozen
class Request:
    """One solve.

    `time_limit_s` is what is left of the wall clock. With `workers` 1 the result must depend on
    nothing but the request: limit the search by counted work, not by the clock. `incumbent` is a
    verified plan to start from. `options` are those that the solver declares, None for their
    defaults. With `log` the solver reports the log of its search. `constrain` adds side constraints
    to the model of a solver that says `constrains`; every plan it reports must satisfy them, and
    its bounds are those of the constrained problem. With `certify` a solver
    whose bounds have certificates reports the best one, before the bound that it proves.
    """

    instance: Instance
    objective: Objective
    time_limit_s: float
    seed: int = 0
    workers: int = 1
    incumbent: Plan | None = None
    options: Any = None
    log: bool = False
    constrain: Constrain | None = None
    certify: bool = False


@frozen
class Report:
    """The way in which a solver tells what it found, as soon as it is found; the last word of each
    kind counts.

    plan: a complete plan; the engine verifies it and keeps it only if it is better. bound: a proven
    limit on the value of level `level` of the objective among plans that keep the values of the
    earlier levels, with what proved it. infeasible: the solver claims that no plan exists. The
    engine believes it only where no plan is found at all. note: one sentence for the person who
    reads the solution. log: a line of the log of the search. certificate: the text of the file
    that proves a bound. more_time_s: by how many seconds the solver may exceed its time limit,
    because it compiles what is then kept on this machine, or has done so.
    """

    plan: Callable[[Plan], None]
    bound: Callable[[int, float, str], None]
    infeasible: Callable[[str], None]
    note: Callable[[str], None]
    log: Callable[[str], None] = ignore
    certificate: Callable[[str], None] = ignore
    more_time_s: Callable[[float], None] = ignore

    @classmethod
    def telling(cls, tell: Callable[..., None]) -> "Report":
        """Return a report that calls `tell` with the kind of what is reported, then what it says,
        in plain values."""

        def text(kind: str) -> Callable[[object], None]:
            return lambda said: tell(kind, str(said))

        return cls(
            plan=partial(tell, "plan"),
            bound=lambda level, bound, source: tell("bound", int(level), float(bound), str(source)),
            infeasible=text("infeasible"),
            note=text("note"),
            log=text("log"),
            certificate=text("certificate"),
            more_time_s=lambda seconds: tell("more_time", float(seconds)),
        )


class Solver(Protocol):
    """A planner of whole instances. Importing the module that holds it must be cheap: heavy
    libraries are imported inside `solve`.

    `needs` are the modules it imports, `guarantee` what it can prove: "exact" (an optimum, given
    time), "bound" (a limit) or "none". One whose model takes side constraints (`Request.constrain`)
    has an attribute `constrains` that is true. One that takes options declares them as `Options`
    (see `options`) and finds them in its requests.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    guarantee: Guarantee

    def supports(self, instance: Instance, objective: Objective) -> str | None:
        """Return why this solver cannot plan this, in one clause, or None where it can."""
        ...

    def solve(self, request: Request, report: Report) -> None:
        """Plan, reporting plans and bounds as they are found; return when done or out of time."""
        ...


class _Needs(Protocol):
    needs: tuple[str, ...]


def missing_modules(solver: _Needs) -> list[str]:
    """Return which of the modules it needs are not installed, found without importing them."""
    return [name for name in solver.needs if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is absent
        return False


SILENT = Report(plan=ignore, bound=ignore, infeasible=ignore, note=ignore)
