"""Shockwave's market: shares of a window of rounds by Nash social welfare, with finish-time
fairness and makespan."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from annotated_types import Ge, Le

from optsched.driver import World
from optsched.model import Phase
from optsched.physics.modes import Option
from optsched.plugins.options import Duration, PositiveDuration, declared_options

from .parts.configuration_choice import solved
from .parts.gpu_pool import GpuPool
from .parts.reallocation import ElasticReallocation, Grant, ReallocationOptions, held

BASES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Progress at which the logarithm is exact; between them it is a line."""
LOG_OF_NOTHING = math.log(1e-6)
MAKESPAN = 1e-3
"""What a second of the longest rest after the window takes from the objective."""
PRIORITY = 12.0
PRIORITY_AT_END = 100.0
MOMENTUM = 0.9
SCALE = 1e6
RANKS = 10_000
"""In what steps the weights of jobs count where rounds are placed."""
ROUNDING = 1e-5


class Course(NamedTuple):
    """How far a job is: progress (0 to 1) and what a second of running adds to it; seconds that it
    has run and has left when it runs."""

    progress: float
    pace: float
    done_s: float
    left_s: float


def foreseen(phases: Sequence[Phase], done_s: float) -> Course:
    """Return the course of a job as Shockwave's predictor sees it after `done_s`: it knows the
    number of epochs, which batch sizes there are and how long an epoch takes at each, but of what
    comes next only what the epochs so far say.

    The shares of the batch sizes have a Dirichlet prior, as many epochs for each; every epoch
    begun counts for its own. What the posterior expects, less the epochs begun, is scaled to those
    that are left. The pace is the mean of the epochs begun.
    """
    epochs = math.fsum(phase.epochs for phase in phases)
    done, rest_s = 0.0, done_s
    for phase in phases:
        done += min(phase.epochs, rest_s / phase.epoch_s)
        rest_s = max(0.0, rest_s - phase.epochs * phase.epoch_s)
    epoch_s = {phase.batch_size: phase.epoch_s for phase in phases}
    begun = dict.fromkeys(epoch_s, 0.0)
    uncounted = math.floor(done + ROUNDING) + 1.0
    for phase in phases:
        own = min(phase.epochs, uncounted)
        begun[phase.batch_size] += own
        uncounted -= own
    share = epochs / (epochs + sum(begun.values()))
    ahead = {}
    for size, count in begun.items():
        posterior = (epochs / len(begun) + count) * share
        ahead[size] = posterior - min(count, math.floor(posterior + ROUNDING))
    left = max(0.0, epochs - done)
    scale = left / max(math.floor(sum(ahead.values()) + 1 + ROUNDING), left, ROUNDING)
    left_s = scale * sum(count * epoch_s[size] for size, count in ahead.items())
    mean_s = sum(count * epoch_s[size] for size, count in begun.items()) / sum(begun.values())
    least_s = min(left, 1.0) * min(epoch_s.values())
    return Course(done / epochs, 1 / (mean_s * epochs), done_s, max(left_s, least_s))


class Bidder(NamedTuple):
    """A job in the market: GPUs, progress (0 to 1), progress of one round, seconds that it has left
    when it runs, and the weight of its utility."""

    gpus: int
    progress: float
    gain: float
    left_s: float
    weight: float = 1.0


def gang(options: tuple[Option, ...]) -> Option:
    """Return the way that counts for a job: the fewest GPUs that reach its reference rate of 1,
    else its fastest."""
    return min(
        (option for option in options if option.rate >= 1 - ROUNDING),
        key=lambda option: option.mode.gpus,
        default=options[0],
    )


def log_progress(progress: float) -> float:
    """Return the piecewise-linear logarithm of a progress."""
    values = [LOG_OF_NOTHING, *(math.log(base) for base in BASES[1:])]
    progress = min(max(progress, 0.0), 1.0)
    i = next(i for i in range(1, len(BASES)) if progress <= BASES[i])
    share = (progress - BASES[i - 1]) / (BASES[i] - BASES[i - 1])
    return values[i - 1] + share * (values[i] - values[i - 1])


def plan(
    jobs: Sequence[Bidder],
    gpus: int,
    window: int,
    round_s: float,
    fewest: Sequence[int] | None = None,
) -> list[int] | None:
    """Return rounds of the window for each job at the best welfare, with the GPUs of all rounds
    together as the limit; None where not all can have their `fewest`."""
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    per_job = SCALE / (len(jobs) * window)
    counts, goal, used = [], [], []
    longest = model.NewIntVar(0, math.ceil(max(job.left_s for job in jobs)), "")
    low = fewest or [0] * len(jobs)
    for job, least in zip(jobs, low, strict=True):
        if least > window:
            return None
        whole = min(window, math.ceil(max(0.0, 1 - job.progress) / job.gain)) if job.gain > 0 else 0
        count = model.NewIntVar(least, max(whole, least), "")
        value = [
            round(job.weight * log_progress(job.progress + job.gain * n) * per_job)
            for n in range(whole + 1)
        ]
        utility = model.NewIntVar(
            min(value) - 2 * window, max(value), ""
        )  # lines of rounded values may lie lower
        for n in range(whole):
            model.Add(utility <= value[n] + (value[n + 1] - value[n]) * (count - n))
        if not whole:
            model.Add(utility <= value[0])
        model.Add(longest >= math.ceil(job.left_s) - int(round_s) * count)
        counts.append(count)
        goal.append(utility)
        used.append(job.gpus * count)
    model.Add(sum(used) <= gpus * window)
    model.Maximize(sum(goal) - round(MAKESPAN * SCALE) * longest)
    solver, _ = solved(model)
    return None if solver is None else [solver.value(count) for count in counts]


def place(
    jobs: Sequence[Bidder], counts: Sequence[int], gpus: int, window: int
) -> list[tuple[int, ...]]:
    """Return who runs in each round of the window, by position: the jobs have at most their
    `counts` of rounds, as many GPUs as possible are used in all rounds together, and of equals
    those plans are best whose rounds come earliest, by weight / rounds of each job."""
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    runs = {
        i: [model.NewBoolVar("") for _ in range(window)] for i, count in enumerate(counts) if count
    }
    if not runs:
        return [()] * window
    for i, at in runs.items():
        model.Add(sum(at) <= counts[i])
    for k in range(window):
        model.Add(sum(jobs[i].gpus * at[k] for i, at in runs.items()) <= gpus)
    late = {i: jobs[i].weight / counts[i] for i in runs}
    unit = RANKS / (window * max(late.values()))
    model.Maximize(
        sum(
            (len(runs) * window * RANKS * jobs[i].gpus - round(late[i] * unit) * k) * var
            for i, at in runs.items()
            for k, var in enumerate(at)
        )
    )
    solver, _ = solved(model)
    if solver is None:
        return [tuple(runs)] * window
    return [tuple(i for i, at in runs.items() if solver.value(at[k])) for k in range(window)]


@dataclass(slots=True)
class Fair:
    """The finish times that a job would have had with its fair share so far: weighted sum, weight,
    and the last."""

    total_s: float = 0.0
    weight_s: float = 0.0
    last_s: float = 0.0
    since_s: float = 0.0

    def note(self, now_s: float, finish_s: float) -> None:
        """Note that a new estimate holds from now on."""
        self.total_s += self.last_s * (now_s - self.since_s)
        self.weight_s += now_s - self.since_s
        self.last_s, self.since_s = finish_s, now_s

    def mean_s(self) -> float:
        """Return the mean over the time for which each held, moved a tenth of the way to the
        last."""
        mean_s = self.total_s / self.weight_s if self.weight_s > 0 else self.last_s
        return MOMENTUM * mean_s + (1 - MOMENTUM) * self.last_s


class Shockwave(ElasticReallocation):
    """A window of rounds is divided among the jobs for the best mean logarithm of their progress by
    its end, less 0.001 for each second of the longest rest; each job should be done, after the
    window at its fair share, by the time that a fair share from the start would have taken.

    Where that cannot be, jobs that would be late by a factor r count r^12 times, those in their
    last round r^100 times. The fair share of a job is GPUs / jobs, at most 1. The logarithm is
    piecewise linear at progress 0, 0.2, ... 1. One mixed-integer program says how many rounds each
    job has, with the GPUs of all rounds together as the limit, a second one in which rounds, those
    of urgent jobs first. What is left of a round goes to the longest others. The window is planned
    anew when it has passed, and when a job comes or is done.

    Where the profile tells how the batch size changes (`phases`), the policy knows of it what
    Shockwave's predictor does (`foreseen`); all other jobs are as long as they are believed to be.
    Elastic jobs run on the fewest GPUs that reach the rate of their reference work.

    Source: P. Zheng et al., Shockwave: Fair and efficient cluster scheduling for dynamic adaptation
    in machine learning, NSDI'23, and its public simulator for the constants.
    """

    name = "shockwave-style"
    title = "rounds of a window by Nash welfare of progress, finish-time fairness and makespan"

    @declared_options
    class Options(ReallocationOptions):
        interval_s: Annotated[PositiveDuration, "Length of a round."] = 120.0
        round_s: Annotated[Duration | None, Ge(1), "The same, by its other name."] = None
        window: Annotated[int, Ge(1), Le(1000), "Rounds that are divided among the jobs."] = 20
        predictor: Annotated[
            bool, "Predict batch sizes by a Dirichlet posterior; no: they are known beforehand."
        ] = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.interval_s = options.round_s or options.interval_s
        self.window = options.window
        self.predictor = options.predictor
        self._fair: dict[str, Fair] = {}
        self._planned: list[tuple[str, ...]] = []
        self._planned_s = 0.0

    def allocate(self, world: World, movable: list[str], pool: GpuPool) -> dict[str, Grant]:
        """Give out the round, planning a window where none is left."""
        grants, jobs = self.set_apart(world, movable, pool)
        gpus = sum(max(0, count) for count in pool.gpus.values())
        if not jobs or not gpus:
            return grants
        order = self._order(world, jobs, gpus)
        for job_id in order:
            options = world.options(job_id)
            if job_id in world.running:
                if pool.take(job_id, *held(world, job_id)):
                    grants[job_id] = options
                continue
            most = gang(options).mode.gpus
            able = [
                option
                for option in options
                if 0 < option.mode.gpus <= min(most, pool.room(job_id, option.mode.gpu_type))
            ]
            if able:
                pool.take(job_id, able[0].mode.gpu_type, able[0].mode.gpus)
                grants[job_id] = tuple(able)
        return grants

    def stays(self, world: World, job_id: str) -> bool:
        """Return whether a running job is in this round."""
        return job_id in self._grants

    def _order(self, world: World, jobs: list[str], gpus: int) -> list[str]:
        """Return jobs in the order in which they get GPUs of this round: those that are planned in
        it, then the longest."""
        k = round((world.now_s - self._planned_s) / self.interval_s)
        if self._fair.keys() != set(jobs) or k >= len(self._planned):
            self._planned, self._planned_s, k = self._plan(world, jobs, gpus), world.now_s, 0
        planned = dict.fromkeys(self._planned[k])
        others = (job_id for job_id in jobs if job_id not in planned)
        return [*planned, *sorted(others, key=lambda job_id: -self._course(world, job_id).left_s)]

    def _plan(self, world: World, jobs: list[str], gpus: int) -> list[tuple[str, ...]]:
        """Return the jobs of each round of the window from now on."""
        round_s, now_s = self.interval_s, world.now_s
        share = min(1.0, gpus / len(jobs))
        self._fair = {job_id: self._fair.get(job_id) or Fair(since_s=now_s) for job_id in jobs}
        bidders, fewest, late = [], [], []
        for job_id in jobs:
            course = self._course(world, job_id)
            fair = self._fair[job_id]
            submit_s = world.job(job_id).submit_s
            fair.note(now_s, submit_s + (course.done_s + course.left_s) / share)
            due_s = fair.mean_s()
            gpus_each, left_s = gang(world.options(job_id)).mode.gpus, course.left_s
            progress = min(max(course.progress, 0.0), 1.0)
            bidders.append(Bidder(gpus_each, progress, round_s * course.pace, left_s))
            spare_s = (due_s - now_s - self.window * round_s) * share
            fewest.append(
                max(0, math.ceil((left_s - spare_s) / round_s)) if spare_s >= 0 else self.window + 1
            )
            late.append((now_s - submit_s + left_s / share) / max(due_s - submit_s, 1e-9))
        counts = plan(bidders, gpus, self.window, round_s, fewest)
        if counts is None:
            bidders = [
                job._replace(weight=_priority(ratio, job.left_s, round_s))
                for ratio, job in zip(late, bidders, strict=True)
            ]
            counts = plan(bidders, gpus, self.window, round_s) or [0] * len(jobs)
        rounds = place(bidders, counts, gpus, self.window)
        return [tuple(jobs[i] for i in chosen) for chosen in rounds]

    def _course(self, world: World, job_id: str) -> Course:
        """Return how far a job is, and what is foreseen of it."""
        rate = gang(world.options(job_id)).rate
        work_s, left_s = world.believed_work_s(job_id), world.remaining_work_s(job_id)
        phases = world.job(job_id).profile.phases
        if self.predictor and phases:
            progress, pace, done_s, left_s = foreseen(phases, work_s - left_s)
        else:
            progress, pace, done_s = 1 - left_s / work_s, 1 / work_s, work_s - left_s
        return Course(progress, pace * rate, done_s / rate, left_s / rate)


def _priority(late: float, left_s: float, round_s: float) -> float:
    """Return the weight of a job that would be late by a factor, at most 1e4."""
    if late <= 1:
        return 1.0
    return min(
        1e4,
        math.exp(min(50.0, math.log(late) * (PRIORITY_AT_END if left_s < round_s else PRIORITY))),
    )
