"""Each objective once: the value of a plan, and the coefficients a model needs.

Every objective is minimised. All but the resource ones are a sum, a maximum or a quantile over jobs
of `cost_j(C_j)`, where `C_j` is the completion time; `JobCost` holds the coefficients of that
function.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from ..errors import InputError, perhaps
from ..model.instance import Instance
from ..model.job import Job
from ..model.plan import Plan, Segment
from ..physics import power_w
from ..physics.catalogue import catalogue_of
from ..physics.modes import Option

Shape = Literal["linear", "positive", "late", "inverse"]


@dataclass(frozen=True, slots=True)
class JobCost:
    """Cost of completing at `C`, with d = C - origin_s:

    linear: scale * d; positive: scale * max(0, d); late: scale * [d > 0]; inverse: -scale / d.
    """

    scale: float
    origin_s: float
    shape: Shape = "linear"

    def at(self, completion_s: float) -> float:
        """The cost of completing at `completion_s`."""
        late_s = completion_s - self.origin_s
        if self.shape == "linear":
            return self.scale * late_s
        if self.shape == "positive":
            return self.scale * max(0.0, late_s)
        if self.shape == "late":
            return self.scale if late_s > LATE_TOLERANCE_S else 0.0
        return -self.scale / late_s if self.scale else 0.0


LATE_TOLERANCE_S = 1e-5
"""A job this close to its deadline is in time."""


@dataclass(frozen=True, slots=True)
class Term:
    """One objective: its name, how job costs are combined, and what it means.

    `over` is "sum", "max", "quantile" (of job costs) or "segments" (a sum over what segments hold).
    """

    name: str
    over: Literal["sum", "max", "quantile", "segments"]
    unit: str
    title: str
    quantile: float = 1.0


TERMS: dict[str, Term] = {
    term.name: term
    for term in (
        Term(
            "wct",
            "sum",
            "s",
            "weighted completion times, counted from submission: sum w (C - submit)",
        ),
        Term("makespan", "max", "s", "last completion, counted from now"),
        Term("tardiness", "sum", "s", "weighted tardiness: sum w max(0, C - deadline)"),
        Term("deadline", "sum", "", "weight of the jobs that miss their deadline"),
        Term("lateness", "max", "s", "largest C - deadline"),
        Term(
            "tail", "quantile", "s", "quantile of C - submit; tail:0.9 for another than 0.99", 0.99
        ),
        Term(
            "ftf",
            "max",
            "",
            "largest finish-time fairness: (C - submit) / time with 1/n of the cluster",
        ),
        Term(
            "maxmin",
            "max",
            "",
            "minus the smallest normalised rate: fastest run time / (C - submit)",
        ),
        Term(
            "throughput",
            "sum",
            "",
            "minus the sum of normalised rates: sum w fastest run time / (C - submit)",
        ),
        Term("energy", "segments", "kWh", "energy of the GPUs held"),
        Term("cost", "segments", "", "price of the GPU-hours held"),
    )
}


SINCE_SUBMISSION = {"wct", "tail", "ftf", "maxmin", "throughput"}
"""Terms that count a job's time from its submission."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Levels in order of importance; each level is a weighted sum of terms."""

    levels: tuple[tuple[tuple[float, Term], ...], ...]

    @property
    def name(self) -> str:
        """The objective as it is written on the command line."""
        return ",".join(level_name(level) for level in self.levels)


def level_name(level: tuple[tuple[float, Term], ...]) -> str:
    """A level as it is written on the command line."""
    return "+".join(
        (f"{_digits(weight)}*" if weight != 1 else "")
        + term.name
        + (f":{_digits(term.quantile)}" if term.quantile != TERMS[term.name].quantile else "")
        for weight, term in level
    )


def _digits(number: float) -> str:
    """All digits of a number, without an exponent: what `parse` reads as the same number."""
    return f"{Decimal(repr(number)):f}".removesuffix(".0")


def parse(text: str) -> Objective:
    """Read `wct`, `deadline,wct` (in order) or `0.7*makespan+0.3*tail:0.9` (weighted sum).

    Raises InputError with what is wrong and what would be right.
    """
    levels = []
    for part in text.split(","):
        level = []
        for piece in re.split(r"(?<![0-9.][eE])\+", part):
            match = re.fullmatch(r"\s*(?:([0-9.eE+-]+)\s*\*)?\s*([a-z]+)(?::([0-9.]+))?\s*", piece)
            if match is None or match[2] not in TERMS:
                near = perhaps(re.sub(r"^.*\*|:.*$", "", piece).strip(), TERMS)
                raise InputError(
                    f"objective {piece.strip()!r} is unknown{near}; choose from "
                    f"{', '.join(TERMS)}, "
                    "joined by + (weighted sum, 0.7*wct) or , (in order of importance)"
                )
            try:
                weight = float(match[1] or 1)
                quantile = float(match[3] or TERMS[match[2]].quantile)
            except ValueError:
                raise InputError(
                    f"objective {piece.strip()!r}: weight and quantile must be numbers"
                ) from None
            if not (weight > 0 and math.isfinite(weight)):
                raise InputError(f"objective {piece.strip()!r}: its weight must be positive")
            if match[3] and match[2] != "tail":
                raise InputError(
                    f"objective {piece.strip()!r}: only tail takes a quantile, as in tail:0.9"
                )
            if not 0 < quantile <= 1:
                raise InputError(
                    f"objective {piece.strip()!r}: the quantile must be above 0 and at most 1"
                )
            base = TERMS[match[2]]
            level.append((weight, Term(base.name, base.over, base.unit, base.title, quantile)))
        levels.append(tuple(level))
    return Objective(tuple(levels))


def fastest_s(instance: Instance, job: Job) -> float:
    """Run time of the whole job alone on the empty cluster in its fastest mode, without start-up.

    Raises InputError where the job fits nowhere.
    """
    return min(option.run_s(job, job.work_s) for option in _options_that_fit(instance, job))


def isolated_s(instance: Instance, job: Job) -> float:
    """Run time of the whole job with a 1/n share of the cluster's GPUs for n jobs (finish-time
    fairness, Mahajan et al., Themis, NSDI 2020): a gang larger than the share runs proportionally
    slower."""
    share = instance.cluster.total_gpus / max(1, len(instance.jobs))
    return min(
        option.run_s(job, job.work_s)
        * (max(1.0, option.mode.gpus / share) if option.mode.gpus else 1.0)
        for option in _options_that_fit(instance, job)
    )


def _options_that_fit(instance: Instance, job: Job) -> tuple[Option, ...]:
    found = catalogue_of(instance).options(job)
    if not found:
        raise InputError(f"job {job.id} fits nowhere on the cluster")
    return found


def _wct(instance: Instance, job: Job) -> JobCost:
    return JobCost(job.weight, job.submit_s)


def _makespan(instance: Instance, job: Job) -> JobCost:
    return JobCost(1.0, instance.now_s)


def _tardiness(instance: Instance, job: Job) -> JobCost | None:
    return None if job.deadline_s is None else JobCost(job.weight, job.deadline_s, "positive")


def _deadline(instance: Instance, job: Job) -> JobCost | None:
    return None if job.deadline_s is None else JobCost(job.weight, job.deadline_s, "late")


def _lateness(instance: Instance, job: Job) -> JobCost | None:
    return None if job.deadline_s is None else JobCost(1.0, job.deadline_s)


def _tail(instance: Instance, job: Job) -> JobCost:
    return JobCost(1.0, job.submit_s)


def _ftf(instance: Instance, job: Job) -> JobCost:
    return JobCost(1.0 / isolated_s(instance, job), job.submit_s)


def _maxmin(instance: Instance, job: Job) -> JobCost:
    return JobCost(fastest_s(instance, job), job.submit_s, "inverse")


def _throughput(instance: Instance, job: Job) -> JobCost:
    return JobCost(job.weight * fastest_s(instance, job), job.submit_s, "inverse")


_COSTS: dict[str, Callable[[Instance, Job], JobCost | None]] = {
    "wct": _wct,
    "makespan": _makespan,
    "tardiness": _tardiness,
    "deadline": _deadline,
    "lateness": _lateness,
    "tail": _tail,
    "ftf": _ftf,
    "maxmin": _maxmin,
    "throughput": _throughput,
}


def job_cost(term: Term, instance: Instance, job: Job) -> JobCost | None:
    """Coefficients of `term` for one job; None where the job does not count (it has no
    deadline)."""
    return _COSTS[term.name](instance, job)


def combine(term: Term, costs: list[float]) -> float:
    """Sum, maximum or quantile of job costs; 0 without any. The q-quantile of n is the ceil(q n)-th
    smallest."""
    if not costs:
        return 0.0
    if term.over == "sum":
        return math.fsum(costs)
    if term.over == "max":
        return max(costs)
    return sorted(costs)[quantile_rank(term, len(costs)) - 1]


def quantile_rank(term: Term, jobs: int) -> int:
    """How many of `jobs` jobs must lie at or below the quantile."""
    return max(1, math.ceil(term.quantile * jobs - 1e-9))


def segment_cost(term: Term, instance: Instance, job: Job, segment: Segment) -> float:
    """Cost of one segment under `energy` or `cost`."""
    node = instance.cluster.node
    total = 0.0
    for slot in segment.placement:
        gpu_type = node[slot.node].gpu_type
        if term.name == "energy":
            total += power_w(job, segment.mode, gpu_type, slot.gpus) / 3.6e6
        else:
            total += node[slot.node].gpu_price_per_h * slot.gpus / 3600.0
    return total * (segment.end_s - segment.start_s)


def term_value(term: Term, instance: Instance, plan: Plan) -> float:
    """Value of one term in a plan that completes every job."""
    if term.over == "segments":
        return math.fsum(
            segment_cost(term, instance, instance.job[entry.id], segment)
            for entry in plan.jobs
            for segment in entry.segments
        )
    costs = []
    for entry in plan.jobs:
        cost = job_cost(term, instance, instance.job[entry.id])
        if cost is not None:
            costs.append(cost.at(entry.completion_s))
    return combine(term, costs)


def level_value(level: tuple[tuple[float, Term], ...], instance: Instance, plan: Plan) -> float:
    """Value of a weighted sum of terms."""
    return math.fsum(weight * term_value(term, instance, plan) for weight, term in level)


def values(objective: Objective, instance: Instance, plan: Plan) -> tuple[float, ...]:
    """Value of each level of `objective` in `plan`."""
    return tuple(level_value(level, instance, plan) for level in objective.levels)
