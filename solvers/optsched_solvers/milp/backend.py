"""PuLP's back ends: which are there, how one is run, what it truly found.

Three traps. PuLP calls a time-limited incumbent "Optimal" in `status` (`sol_status` tells the
truth). It drops the bound, which is read here from CBC's log or from the back end's own object. And
asking PuLP for all back ends that are available imports HiGHS's Python module, which must not share
a process with OR-Tools.
"""

import importlib.util
import inspect
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from optsched.errors import SolverUnavailableError
from optsched.frozen import record
from optsched.plugins.options import Written

DEFAULT = "PULP_CBC_CMD"

SHORT_NAMES = {
    "cbc": (DEFAULT,),
    "highs": ("HiGHS_CMD",),
    "scip": ("SCIP_PY", "SCIP_CMD", "FSCIP_CMD"),
    "gurobi": ("GUROBI", "GUROBI_CMD"),
    "cplex": ("CPLEX_PY", "CPLEX_CMD"),
}
"""With the PuLP solvers that are tried in turn; PuLP's own names are taken too."""

PYTHON_MODULE = {
    "CyLP": "cylp",
    "PYGLPK": "glpk",
    "CPLEX_PY": "cplex",
    "GUROBI": "gurobipy",
    "MOSEK": "mosek",
    "XPRESS": "xpress",
    "XPRESS_PY": "xpress",
    "SCIP_PY": "pyscipopt",
    "HiGHS": "highspy",
    "COPT": "coptpy",
    "SAS94": "saspy",
    "SASCAS": "swat",
    "CUOPT": "cuopt",
}
"""Back ends that are Python modules, so that their presence can be told without importing them."""

CBC_ROUNDING = 5e-4
"""CBC prints its bound with three decimals."""


@record
class Outcome:
    """The status that a back end proved of the model, and the bound it gave, in units of the
    model's objective."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    bound: float | None


def known(name: object) -> str:
    """Return the name of a back end. Raises ValueError where PuLP does not know it."""
    if str(name).lower() not in SHORT_NAMES and name not in _names():
        raise ValueError(f"PuLP has no {name!r}; available here: {_available()}")
    return str(name)


Backend = Annotated[str, Written("a PuLP solver", known)]


def choose(asked: str) -> str:
    """Return the PuLP solver of that name, or the first one there of a short name. Raises
    SolverUnavailableError where none is installed."""
    names = SHORT_NAMES.get(asked.lower(), (asked,))
    name = next(filter(_is_there, names), None)
    if name is None:
        raise SolverUnavailableError(
            f"PuLP's {' or '.join(names)} is not installed; available here: {_available()}"
        )
    if name == "HiGHS" and "ortools" in sys.modules:
        raise SolverUnavailableError(
            "HiGHS cannot be loaded beside OR-Tools in one process; use HiGHS_CMD"
        )
    return name


def _names() -> list[str]:
    import pulp

    return list(dict.fromkeys(pulp.listSolvers()))


def _available() -> str:
    return ", ".join(name for name in _names() if _is_there(name)) or "none"


def _is_there(name: str) -> bool:
    if name in PYTHON_MODULE:
        return importlib.util.find_spec(PYTHON_MODULE[name]) is not None
    return bool(_make(name, {}).available())


def _make(name: str, wanted: dict[str, Any]) -> Any:
    """Return a PuLP solver object with those of the wanted settings that it knows."""
    import pulp

    if name == DEFAULT:
        # The bundled CBC through the class that outlives PuLP 3.
        make: Callable[..., Any] = pulp.COIN_CMD
        wanted = {**wanted, "path": pulp.PULP_CBC_CMD.pulp_cbc_path}
    else:
        make = next(cls for cls in pulp.apis._all_solvers if cls.name == name)
    accepted = inspect.signature(make).parameters
    return make(msg=False, **{key: value for key, value in wanted.items() if key in accepted})


def run(
    problem: Any,
    name: str,
    time_limit_s: float,
    workers: int,
    seed: int,
    max_nodes: int | None,
    folder: Path,
) -> Outcome:
    """Solve `problem` in place, with temporary files in `folder`. Raises SolverUnavailableError if
    the back end fails."""
    import pulp

    is_cbc = name in (DEFAULT, "COIN_CMD")
    wanted: dict[str, Any] = {
        "timeLimit": max(0.1, time_limit_s),
        "gapRel": 0.0,
        "keepFiles": False,
    }
    log = folder / "log.txt"
    if is_cbc:
        wanted["logPath"] = str(log)
        # Seed 0 would be the time of day.
        wanted["options"] = [f"randomSeed {1 + seed % 2**30}", f"randomCbcSeed {1 + seed % 2**30}"]
    if max_nodes is not None:
        wanted["maxNodes"] = max_nodes
    if workers > 1 or not is_cbc:
        # For CBC one thread is not the same as none: it waits for itself.
        wanted["threads"] = workers
    solver = _make(name, wanted)
    solver.tmpDir = str(folder)
    started = time.monotonic()
    try:
        problem.solve(solver)
    except pulp.PulpSolverError as error:
        raise SolverUnavailableError(
            f"PuLP's back end {name} failed: {str(error).strip()}"
        ) from error
    if problem.sol_status == pulp.LpSolutionOptimal:
        return Outcome("optimal", None)
    if pulp.LpStatusInfeasible in (problem.status, problem.sol_status):
        # CBC's preprocessing calls a feasible model infeasible when its time runs out.
        in_time = time.monotonic() - started < time_limit_s / 2
        return Outcome("infeasible" if in_time else "unknown", None)
    bound = _cbc_bound(log) if is_cbc else _own_bound(problem.solverModel)
    if problem.sol_status == pulp.LpSolutionIntegerFeasible:
        return Outcome("feasible", bound)
    return Outcome("unknown", bound)


def _cbc_bound(log: Path) -> float | None:
    """Return the bound of a search that CBC did not complete."""
    bounds = re.findall(r"^Lower bound:\s+(\S+)", log.read_text(errors="replace"), re.MULTILINE)
    try:
        bound = float(bounds[-1])
    except (IndexError, ValueError):
        return None
    return bound - CBC_ROUNDING if abs(bound) < 1e20 else None


def _own_bound(solver_model: Any) -> float | None:
    """Return the bound kept by the Python objects of Gurobi, HiGHS, SCIP and CPLEX; None from any
    other."""
    readers: tuple[Callable[[Any], Any], ...] = (
        lambda model: model.ObjBound,
        lambda model: model.getInfo().mip_dual_bound,
        lambda model: model.getDualbound(),
        lambda model: model.solution.MIP.get_best_objective(),
    )
    for read in readers:
        try:
            bound = float(read(solver_model))
        except Exception:
            continue
        if abs(bound) < 1e20:
            return bound
    return None
