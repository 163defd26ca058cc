"""Optimal first decisions under `wct` of instances of tens of jobs, by a time-indexed integer
program.

It reads the file itself and shares nothing with the package. All lengths are multiples of a tick,
so that in a plan in which no job can start earlier every start is a tick. There is a binary for
each job, place and tick at which the job may start, and one for each running job that continues; a
place is a node where no gang may be split, else all nodes of a GPU type. From the horizon on a job
may start without holding anything: the program relaxes the one without an end, and is exact where
its solution starts nobody so late.

Known is what `instances/preempt-or-continue-large` has: gangs, GPU types, weights, checkpoints on
demand and periodic ones, suspended jobs. Anything else in a file is refused.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

TOP = {"format", "name", "cluster", "jobs", "running", "suspended"}
JOB = {"id", "submit_s", "weight", "gpus", "duration_s", "max_nodes", "profile"}
COSTS = {"rate", "checkpoint_s", "checkpoint_every_s", "startup_s", "restore_s"}
NODE = {"name", "gpus", "gpu_type"}
RUNNING = {"job", "mode", "placement", "started_s", "remaining_s", "last_checkpoint_s"}

Json = dict[str, Any]


class NotProvedError(Exception):
    """The solver gave up."""


@dataclass(frozen=True)
class Hold:
    """A job holds GPUs of a place from one tick to another."""

    place: str
    gpus: int
    start: int
    end: int


@dataclass(frozen=True)
class Choice:
    """One binary: the first decision, weight times completion in ticks, and what is held."""

    job: str
    decision: str
    cost: int
    holds: tuple[Hold, ...] = ()
    late: bool = False


@dataclass(frozen=True)
class Option:
    """A job may start in `place` from `release_s` on, for `length_s`."""

    place: str
    release_s: int
    length_s: int


@dataclass
class Program:
    """One choice of each job, no place overfull; `submitted` is the sum of weight times
    submission."""

    tick_s: int
    gpus: dict[str, int]
    submitted: int
    choices: list[Choice] = field(default_factory=list)

    def value(self, cost: float) -> float:
        """Return the weighted flow time of a sum of costs."""
        return cost * self.tick_s - self.submitted


@dataclass(frozen=True)
class Optimum:
    """The best plan: its value, first decisions and, in seconds, what each job holds."""

    value: float
    decisions: dict[str, str]
    holds: dict[str, tuple[Hold, ...]]


class Instance:
    """A file as it is needed here."""

    def __init__(self, path: Path) -> None:
        raw = json.loads(path.read_text())
        nodes, running = raw["cluster"].pop("nodes"), raw.get("running", ())
        assert raw.keys() <= TOP and not raw["cluster"]
        assert all(node.keys() <= NODE for node in nodes)
        assert all(entry.keys() <= RUNNING for entry in running)
        assert all(job.get("submit_s", 0) <= 0 for job in raw["jobs"])
        self.jobs: list[Json] = [{"profile": {}, **job} for job in raw["jobs"]]
        self.running: dict[str, Json] = {entry["job"]: entry for entry in running}
        self.left_s: dict[str, int] = {
            entry["job"]: entry["remaining_s"] for entry in (*running, *raw.get("suspended", ()))
        }
        assert all(job.keys() <= JOB and job["profile"].keys() <= COSTS for job in self.jobs)
        whole = all(job.get("gpus", 1) == 1 or job.get("max_nodes") == 1 for job in self.jobs)
        self.gpus: dict[str, int] = defaultdict(int)
        self.place: dict[str, str] = {}
        self.type: dict[str, str] = {}
        for node in nodes:
            gpu_type = node.get("gpu_type", "")
            for name in _names(node["name"]):
                place = name if whole else gpu_type
                self.place[name], self.type[place] = place, gpu_type
                self.gpus[place] += node["gpus"]

    def home(self, job: Json) -> str | None:
        """Return where a running job is."""
        entry = self.running.get(job["id"])
        return None if entry is None else self.place[entry["placement"][0]["node"]]

    def rate(self, job: Json, place: str) -> float:
        """Return how fast a job works in a place."""
        rates = job["profile"].get("rate")
        return float(rates.get(self.type[place], 0.0)) if rates else 1.0

    def continues_s(self, job: Json) -> int:
        """Return when a running job is done if it continues."""
        home = self.home(job)
        assert home is not None
        return _whole(self.left_s[job["id"]] / self.rate(job, home))

    def options(self, job: Json) -> list[Option]:
        """Return how a job may start, a running one after it has been preempted."""
        profile, home = job["profile"], self.home(job)
        left_s: float = self.left_s[job["id"]] if job["id"] in self.left_s else job["duration_s"]
        setup_s = profile.get("startup_s", 0)
        setup_s += profile.get("restore_s", 0) if job["id"] in self.left_s else 0
        every_s = profile.get("checkpoint_every_s", 0)
        release_s = profile.get("checkpoint_s", 0) if home is not None and not every_s else 0
        if home is not None and every_s:
            entry = self.running[job["id"]]
            own = "last_checkpoint_s" if "last_checkpoint_s" in entry else "started_s"
            saved_s = int(entry[own])
            left_s += -saved_s % every_s * self.rate(job, home)
        return [
            Option(place, release_s, _whole(setup_s + left_s / self.rate(job, place)))
            for place, gpus in self.gpus.items()
            if self.rate(job, place) > 0 and gpus >= job.get("gpus", 1)
        ]

    def horizon_s(self) -> int:
        """Return by when the cluster can hardly fail to have started all."""
        area = 0
        for job in self.jobs:
            area += job.get("gpus", 1) * max(option.length_s for option in self.options(job))
        return area // sum(self.gpus.values())

    def times_s(self) -> Iterator[int]:
        """Yield all lengths and releases."""
        for job in self.jobs:
            if job["id"] in self.running:
                yield self.continues_s(job)
            for option in self.options(job):
                yield from (option.release_s, option.length_s)

    def program(self, horizon_s: int) -> Program:
        """Return the program whose jobs start before `horizon_s`."""
        tick_s = reduce(math.gcd, self.times_s())
        submitted = sum(job.get("weight", 1) * job.get("submit_s", 0) for job in self.jobs)
        made = Program(tick_s, dict(self.gpus), submitted)
        for job in self.jobs:
            made.choices += self._choices(job, tick_s, horizon_s // tick_s)
        return made

    def _choices(self, job: Json, tick_s: int, horizon: int) -> Iterator[Choice]:
        name, weight, gpus = job["id"], job.get("weight", 1), job.get("gpus", 1)
        home, options = self.home(job), self.options(job)
        saving: tuple[Hold, ...] = ()
        later, first = "wait", "resume" if name in self.left_s else "start"
        if home is not None:
            end = self.continues_s(job) // tick_s
            yield Choice(name, "continue", weight * end, (Hold(home, gpus, 0, end),))
            later, first = "preempt", "migrate"
            saving = (Hold(home, gpus, 0, options[0].release_s // tick_s),)
        for option in options:
            ready, length = option.release_s // tick_s, option.length_s // tick_s
            for start in range(ready, horizon):
                if option.place == home and start == ready:
                    continue  # worse than to continue
                decision = first if start == ready else later
                hold = Hold(option.place, gpus, start, start + length)
                yield Choice(name, decision, weight * hold.end, (*saving, hold))
        shortest = min(option.length_s for option in options) // tick_s
        yield Choice(name, later, weight * (horizon + shortest), saving, late=True)


def _names(text: str) -> list[str]:
    """Return the nodes of `n[0-3]`."""
    prefix, _, numbers = text.rstrip("]").partition("[")
    if not numbers:
        return [prefix]
    first, last = map(int, numbers.split("-"))
    return [f"{prefix}{number}" for number in range(first, last + 1)]


def _whole(time_s: float) -> int:
    assert time_s == int(time_s)
    return int(time_s)


def optimum(
    instance: Instance,
    *,
    fixed: Mapping[str, str] | None = None,
    at_most: float = math.inf,
    solver: str = "HIGHS",
) -> Optimum | None:
    """Return the best plan with the decisions in `fixed`; None where none has a value of `at_most`.
    Raises NotProvedError.

    Choices are left out that no plan of that value or less can take: the linear relaxation and
    their reduced cost exceed it.
    """
    fixed, horizon_s = fixed or {}, instance.horizon_s()
    while True:
        program = instance.program(horizon_s)
        choices = [c for c in program.choices if fixed.get(c.job, c.decision) == c.decision]
        near = _near(program, choices, at_most)
        taken = _taken(program, near, solver) if near else []
        if not taken:
            return None
        if not any(choice.late for choice in taken):
            break
        horizon_s *= 2
    value = program.value(sum(choice.cost for choice in taken))
    if value > at_most:
        return None
    return Optimum(
        value,
        {choice.job: choice.decision for choice in taken},
        {choice.job: _in_seconds(choice.holds, program.tick_s) for choice in taken},
    )


def _in_seconds(holds: tuple[Hold, ...], tick_s: int) -> tuple[Hold, ...]:
    return tuple(Hold(h.place, h.gpus, h.start * tick_s, h.end * tick_s) for h in holds)


def _near(program: Program, choices: list[Choice], at_most: float) -> list[Choice]:
    """Return the choices that a plan of `at_most` may take."""
    from ortools.math_opt.python import mathopt

    if math.isinf(at_most):
        return choices
    model, chosen = _model(program, choices, integer=False)
    result = mathopt.solve(model, mathopt.SolverType.GLOP)
    if result.termination.reason == mathopt.TerminationReason.INFEASIBLE:
        return []
    least = program.value(result.objective_value())
    slack = (at_most - least) / program.tick_s + 0.5
    reduced = result.reduced_costs(chosen)
    return [choice for choice, more in zip(choices, reduced, strict=True) if more <= slack]


def _taken(program: Program, choices: list[Choice], solver: str) -> list[Choice]:
    """Return the choices of an optimal plan, none where there is no plan.

    Costs are whole, so that a gap below one proves it.
    """
    from ortools.math_opt.python import mathopt

    model, chosen = _model(program, choices, integer=True)
    parameters = mathopt.SolveParameters(
        relative_gap_tolerance=0.0, absolute_gap_tolerance=0.9, random_seed=0
    )
    result = mathopt.solve(model, mathopt.SolverType[solver], params=parameters)
    if result.termination.reason == mathopt.TerminationReason.INFEASIBLE:
        return []
    if result.termination.reason != mathopt.TerminationReason.OPTIMAL:
        raise NotProvedError(str(result.termination.reason))
    values = result.variable_values(chosen)
    return [choice for choice, value in zip(choices, values, strict=True) if value > 0.5]


def _model(program: Program, choices: Sequence[Choice], *, integer: bool) -> tuple[Any, list[Any]]:
    from ortools.math_opt.python import mathopt

    model = mathopt.Model()
    most = 1.0 if integer else math.inf
    chosen = [model.add_variable(lb=0.0, ub=most, is_integer=integer) for _ in choices]
    of_job, in_slot = defaultdict(list), defaultdict(list)
    for choice, variable in zip(choices, chosen, strict=True):
        of_job[choice.job].append(variable)
        for hold in choice.holds:
            for tick in range(hold.start, hold.end):
                in_slot[hold.place, tick].append(hold.gpus * variable)
    for variables in of_job.values():
        model.add_linear_constraint(mathopt.fast_sum(variables) == 1)
    for (place, _), held in in_slot.items():
        model.add_linear_constraint(mathopt.fast_sum(held) <= program.gpus[place])
    model.minimize(
        mathopt.fast_sum(c.cost * variable for c, variable in zip(choices, chosen, strict=True))
    )
    return model, chosen
