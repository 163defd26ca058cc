"""solve(): a heuristic first, then an exact solver under a watchdog; every plan and bound is
checked."""

import pickle
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from ..errors import InputError, SolverUnavailableError
from ..files import check_instance
from ..model import Instance, Plan, Solution
from ..objectives import Objective, by_priority, wanted
from ..plugins import registry
from ..plugins.options import NO_OPTIONS, PluginOptions, declaration, read_options
from ..plugins.solver import Constrain, Solver, missing_modules
from .search import Limits, Progress, Search
from .warm_start import initial_plan
from .watchdog import Child

if TYPE_CHECKING:
    from ..files.certificate import Certificate

__all__ = ["DEFAULT_WORKERS", "Progress", "choose_solver", "solve"]

DEFAULT_WORKERS = 8
"""CP-SAT's workers are different strategies: eight do better than two even on two cores."""

AUTO = (("cpsat", 2000), ("milp", 50))
"""What `auto` tries in turn, and up to how many jobs."""
HEURISTICS = ("wspt", "backfill", "sjf", "fifo")
"""Policies simulated for a first plan, the likeliest best first; none of them preempts (see
`plan_class`)."""


def solve(
    instance: Instance,
    objective: str | Objective = "wct",
    *,
    solver: str | Solver = "auto",
    time_limit_s: float = 10.0,
    seed: int = 0,
    workers: int | None = None,
    options: Mapping[str, object] | None = None,
    isolate: bool = True,
    checked: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    initial: Plan | Solution | None = None,
    gap: float = 0.0,
    log: Callable[[str], None] | bool = False,
    constrain: Constrain | None = None,
    ignore_priorities: bool = False,
    on_certificate: "Callable[[Certificate], None] | None" = None,
) -> Solution:
    """Plan an instance: the best verified plan found in `time_limit_s` of wall clock, with its
    proven gap.

    A few policies are simulated for a first plan, combinatorial bounds are computed, then `solver`
    (a name, an object, or "auto") runs in a child process that is killed at the time limit plus 10
    %. Whatever it does, the answer is the best plan that passes the verifier; where the solver
    failed, `fallback` says why a heuristic answers. The name of a policy simulates that policy
    alone, with the objective and `options` if it takes them. Ctrl-C ends the search and gives the
    best plan so far; a second one ends it without.

    With `workers` 1 the result depends on nothing but the arguments, unless the solver has to be
    killed, and `wall_s` is None. `isolate=False` runs the solver in this process, without a
    watchdog. `checked` skips the check of an instance that was read from a file. `on_progress` is
    called at every improvement and, where the solver is isolated, every half second.

    `initial` is a plan to start from, of these jobs or others: what does not pass the verifier
    still gives an order of jobs. The search ends once the proven gap of every objective is at most
    `gap`. `log` is called with every line of the log of the search; True prints them.

    `constrain(model, variables)` adds side constraints to the CP-SAT model (see `docs/python.md`).
    Every plan then comes from that model; what it proves holds only among the plans that meet the
    side constraints, so that a note says it and `bound` stays that of the instance. A function that
    cannot be pickled runs in this process, without a watchdog.

    `on_certificate` is given the certificate of the solver's bound, accepted by the check of bounds
    (`verify_bound`), if there is one; a note says where not.

    Priorities are strict (`objectives.by_priority`) unless `ignore_priorities`.

    Raises InputError for a faulty instance, objective, solver name, limit or option. Isolation
    needs POSIX.
    """
    started_s = time.monotonic()
    limits = Limits(time_limit_s, DEFAULT_WORKERS if workers is None else workers, seed, gap)
    limits.check()
    if not checked:
        check_instance(instance)
    goal = wanted(objective, instance.cluster)
    if not ignore_priorities:
        goal = by_priority(goal, instance)
    if log is True:
        log = partial(print, flush=True)
    search = Search(instance, goal, limits, started_s, on_progress, log or None)
    search.initial, search.on_certificate = initial_plan(initial), on_certificate
    policies, exact, search.not_run, search.options = _choose(solver, instance, goal, options or {})
    if constrain is not None:
        search.constrain, policies = constrain, ()
        if not getattr(exact, "constrains", False):
            reason = search.not_run or "only solver cpsat takes them"
            raise InputError(f"side constraints cannot be used here: {reason}")
        if isolate and not _can_travel(constrain):
            isolate = False
            search.note(
                "the side constraints cannot be sent to another process, so the solver ran in this "
                "one, without a watchdog"
            )
    if policies == (solver,):
        if search.initial is not None:
            raise InputError(f"policy {solver} takes no plan to start from; name a solver")
        search.incumbent.any_plan = True
    with ExitStack() as stack:
        child = None
        if exact is not None and isolate:
            try:
                child = stack.enter_context(
                    Child(exact)
                )  # imports its solver while this process simulates
            except OSError as error:
                search.not_run = f"{exact.name} cannot have a process of its own: {error}"
                exact = None
        search.run(policies, exact, child)
    return search.solution(exact)


def _can_travel(constrain: Constrain) -> bool:
    """Return whether another process can be given this function."""
    if getattr(constrain, "__module__", None) == "__main__":
        return False
    try:
        pickle.dumps(constrain)
    except Exception:
        return False
    return True


def _choose(
    solver: str | Solver, instance: Instance, objective: Objective, given: Mapping[str, object]
) -> tuple[tuple[str, ...], Solver | None, str | None, PluginOptions]:
    """Return the policies to simulate, the exact solver to run afterwards if there is one, if there
    is none why, and the options of the solver.

    Raises InputError for options that the solver does not take, before any work.
    """
    known = registry.names("policies")
    options = NO_OPTIONS
    if isinstance(solver, str) and solver in known and solver not in registry.names("solvers"):
        with suppress(SolverUnavailableError):  # what is broken will be noted
            declared = registry.options_of("policies", solver)
            options = read_options(f"policy {solver}", declared, given)
            registry.policy(solver, objective, options)
        return (solver,), None, None, options
    policies = tuple(name for name in HEURISTICS if name in known) or known
    if solver != "auto":
        usable, reason = _usable(solver, instance, objective)
        name = solver if isinstance(solver, str) else solver.name
        with suppress(SolverUnavailableError):
            declared = (
                registry.options_of("solvers", solver)
                if isinstance(solver, str)
                else declaration(solver)
            )
            options = read_options(f"solver {name}", declared, given)
        return policies, usable, reason, options
    chosen, reason = choose_solver(instance, objective)
    what = "solver auto, which finds no exact solver for this,"
    if chosen is not None:
        what = f"solver {chosen.name}, which auto takes here,"
    return policies, chosen, reason, read_options(what, declaration(chosen), given)


def choose_solver(instance: Instance, objective: Objective) -> tuple[Solver | None, str | None]:
    """Return what `auto` means: the first solver of `AUTO` that is installed, meant for so many
    jobs, and able to plan such an instance at all; or None, and why."""
    reasons = []
    for name, most_jobs in AUTO:
        if name not in registry.names("solvers"):
            continue
        if len(instance.jobs) > most_jobs:
            reasons.append(f"{name} is for up to {most_jobs:,} jobs")
            continue
        usable, reason = _usable(name, instance, objective)
        if usable is not None:
            return usable, None
        reasons.append(str(reason))
    return None, "; ".join(reasons) or "no exact solver is installed"


def _usable(
    solver: str | Solver, instance: Instance, objective: Objective
) -> tuple[Solver | None, str | None]:
    """Return the solver, or None and why it cannot be used for this. Raises InputError for an
    unknown name."""
    try:
        plug_in = registry.solver(solver) if isinstance(solver, str) else solver
        missing = missing_modules(plug_in)
        if missing:
            return None, f"{plug_in.name} needs {', '.join(missing)}, which is not installed"
        reason = plug_in.supports(instance, objective)
    except SolverUnavailableError as error:
        return None, str(error)
    except InputError:
        raise
    except Exception as error:
        name = solver if isinstance(solver, str) else solver.name
        return (
            None,
            f"{name} crashed when asked whether it can plan this: {type(error).__name__}: {error}",
        )
    return (None, f"{plug_in.name} cannot plan this: {reason}") if reason else (plug_in, None)
