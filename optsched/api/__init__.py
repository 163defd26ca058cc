"""The Python API: what `import optsched as opt` offers beside the nouns.

Every function takes an instance as an `Instance`, a `Model`, or the name of a file, checks it once,
and raises InputError with a sentence for every fault.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .. import files
from ..errors import InputError
from ..files.faults import find_faults
from ..files.shape_faults import FaultyFileError
from ..model import Instance, Plan, Solution
from ..objectives import Objective, parse
from ..plugins.options import Duration, Flag, Gap
from .model import Model
from .workloads import generate, import_trace, pack, with_past

if TYPE_CHECKING:
    from ..bounds import Bound
    from ..engine import Progress
    from ..plugins.solver import Constrain, Solver
    from ..round.plan import RoundSolution
    from ..verify import Report
    from .outcome import Simulated
    from .results import Decided, Planned

__all__ = [
    "Model",
    "PlanSource",
    "Source",
    "bound",
    "decide",
    "explain",
    "generate",
    "import_trace",
    "pack",
    "read_instance",
    "read_plan",
    "simulate",
    "solve",
    "verify",
    "with_past",
    "write_instance",
    "write_plan",
]

Source = Instance | Model | str | Path
"""An instance, a model of one, or the name of its file."""
PlanSource = Plan | Solution | str | Path
"""A plan, a solution that holds one, or the name of a plan file."""
Options = Annotated[dict[str, str] | None, Flag("--option")]
"""Options of a solver or policy."""


def read_instance(path: str | Path) -> Instance:
    """Read and check an instance file (.json or .json.gz)."""
    return files.read_instance(path)


def write_instance(instance: Instance | Model, path: str | Path) -> None:
    """Write an instance as a file, checked and whole (gzip where the name ends in .gz)."""
    files.write_text(path, files.dump_instance(checked_instance(instance)))


def read_plan(path: str | Path) -> Plan:
    """Read a plan file. Raises InputError where it holds no plan."""
    _, plan = files.read_plan(path)
    if plan is None:
        raise InputError(f"{path}: holds no plan; its solver found none")
    return plan


def write_plan(solution: Solution, path: str | Path) -> None:
    """Write a solution as a plan file."""
    files.write_text(path, files.dump_plan(solution))


def solve(
    instance: Source,
    objective: str | Objective = "wct",
    *,
    solver: "str | Solver" = "auto",
    time_limit_s: Duration = 10.0,
    seed: int = 0,
    workers: int | None = None,
    options: Options = None,
    initial: Annotated["PlanSource | None", Flag("--start")] = None,
    gap: Gap = 0.0,
    log: Callable[[str], None] | bool = False,
    constrain: "Constrain | None" = None,
    ignore_priorities: bool = False,
    on_progress: "Callable[[Progress], None] | None" = None,
) -> "Planned":
    """Plan an instance: the best verified plan found in the time given, with its proven gap.

    See `optsched.engine.solve` for what the options mean.
    """
    from .. import engine
    from .results import Planned

    checked = checked_instance(instance)
    solution = engine.solve(
        checked,
        objective,
        solver=solver,
        time_limit_s=time_limit_s,
        seed=seed,
        workers=workers,
        options=options,
        checked=True,
        initial=None if initial is None else _plan(initial),
        gap=gap,
        log=log,
        constrain=constrain,
        ignore_priorities=ignore_priorities,
        on_progress=on_progress,
    )
    return Planned.of(checked, solution)


def decide(
    instance: Source,
    objective: str | Objective = "wct",
    *,
    round_s: Annotated[Duration, Flag("--length")] = 300.0,
    budget_s: Duration = 1.0,
    solver: str = "price",
    gap: Gap | None = None,
    seed: int = 0,
    refill: Annotated[bool, Flag("--fixed")] = True,
    last: "RoundSolution | str | Path | None" = None,
    options: Options = None,
) -> "Decided":
    """Decide who runs from now until the next round, with a proven gap; `last` is the round before,
    or its file.

    See `optsched.round.decide.decide` for what the options mean.
    """
    from ..round.decide import DEFAULT_GAP
    from ..round.decide import decide as decide_round
    from ..round.files import read_round
    from .results import Decided

    checked = checked_instance(instance, now_only=True)
    solution = decide_round(
        checked,
        objective,
        round_s=round_s,
        budget_s=budget_s,
        solver=solver,
        gap=DEFAULT_GAP if gap is None else gap,
        seed=seed,
        refill=refill,
        last=read_round(Path(last)) if isinstance(last, str | Path) else last,
        options=options,
    )
    return Decided.of(checked, solution)


def simulate(
    instance: Source,
    policy: str = "optsched",
    objective: str | Objective = "wct",
    *,
    round_s: Duration | None = None,
    spacing_s: Duration = 0.0,
    estimates: str = "oracle",
    charge_solver_time: bool = False,
    half_life_s: Duration | None = None,
    rigid: bool = False,
    prices: bool = False,
    options: Options = None,
    timing: bool = False,
    curves: bool = False,
    utility: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> "Simulated":
    """Simulate what a policy does until every job is done: its plan, checked, and the metrics, with
    `timing` also how long decisions took, with `curves` also distributions and use over time, with
    `utility` the mean utility of what is done. With `rigid` elastic jobs run on the GPUs that they
    asked for, those at which their rate is 1, and jobs with listed modes in the first. With
    `prices` the gap is to the bound that a search for prices of GPU time proves.

    See `optsched.simulate.run.Simulation` for what the options mean. Raises StalledError where the
    policy leaves jobs waiting for ever, PolicyError where it breaks a rule.
    """
    from .outcome import Setting, Simulated

    checked = checked_instance(instance)
    setting = Setting.of(
        policy,
        objective,
        round_s=round_s,
        spacing_s=spacing_s,
        estimates=estimates,
        charge_solver_time=charge_solver_time,
        half_life_s=half_life_s,
        rigid=rigid,
        prices=prices,
        options=options or {},
    )
    simulation = setting.simulation(checked)
    simulation.run(on_progress)
    return Simulated(setting, simulation, timing=timing, curves=curves, utility=utility)


def verify(instance: Source, plan: PlanSource, objective: str | Objective = "wct") -> "Report":
    """Check a plan against every rule, independently of what made it: `.ok`, `.violations` and
    `.values`, one for each level of the objective."""
    from ..verify import verify as verify_plan

    replay = isinstance(plan, Solution) and plan.replay
    return verify_plan(
        checked_instance(instance), _plan(plan), _objective(objective), replay=replay
    )


def bound(
    instance: Source,
    objective: str | Objective = "wct",
    *,
    prices: bool = False,
    steps: int | None = None,
    time_limit_s: Duration | None = None,
    replay: bool = False,
) -> "list[Bound]":
    """Return the lower bounds on the objective that need no solver, the best of each level first;
    with `prices` also what a search for prices of GPU time proves, in so many steps or so long.
    With `replay` they hold for schedules in which the attempts of the instance fail."""
    from ..bounds import all_bounds, priced_bound

    checked, goal = checked_instance(instance), _objective(objective)
    bounds = all_bounds(checked, goal, replay=replay)
    if prices:
        bounds.append(priced_bound(checked, goal, steps, replay, time_limit_s=time_limit_s)[0])
    elif steps is not None or time_limit_s is not None:
        raise InputError("--steps and --time-limit go with --prices; add it")
    return sorted(bounds, key=lambda bound: (bound.level, -bound.value))


def explain(
    instance: Source,
    decisions: "Solution | RoundSolution | None" = None,
    job: str | None = None,
    objective: str | Objective = "wct",
) -> dict[str, str]:
    """Say in a sentence why each job (or `job`) runs, waits, moves or is preempted now.

    `decisions` is what `solve` or `decide` gave; without it a round is decided first.
    """
    from ..explain.many import explain_all, round_of_plan
    from ..round.decide import decide as decide_round

    checked = checked_instance(instance, now_only=True)
    if job is not None and job not in checked.job:
        raise InputError(f"{job!r} is not a job of {checked.name}")
    goal = _objective(objective)

    def decided() -> "RoundSolution":
        if isinstance(decisions, Solution):
            return round_of_plan(checked, _plan(decisions), goal)
        return decide_round(checked, goal) if decisions is None else decisions

    jobs = [entry.id for entry in checked.jobs] if job is None else [job]
    return {entry.id: entry.sentence for entry in explain_all(checked, jobs, decided)}


def checked_instance(source: Source, *, now_only: bool = False) -> Instance:
    """Return the instance, checked; with `now_only` it is no fault that no whole plan exists."""
    if isinstance(source, Model):
        return source.instance
    if isinstance(source, Instance):
        if not now_only:
            files.check_instance(source)
        elif faults := find_faults(source, now_only=True):
            raise FaultyFileError(source.name, faults)
        return source
    return files.read_instance(source, now_only=now_only)


def _plan(source: PlanSource) -> Plan:
    if isinstance(source, Solution):
        if source.plan is None:
            raise InputError(f"the solution of {source.instance_name} holds no plan")
        return source.plan
    return source if isinstance(source, Plan) else read_plan(source)


def _objective(objective: str | Objective) -> Objective:
    return parse(objective) if isinstance(objective, str) else objective
