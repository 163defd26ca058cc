"""When the jobs that are here start and end: the present played forward several times, with run
times drawn from how far beliefs are off, and jobs still to come as they came before."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from statistics import fmean
from typing import Protocol, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..driver import Ending, Reservation, World
from ..driver.snapshot import of_length, with_its_length
from ..estimates.errors import NORMAL, Belief, Kind, RunTimeErrors
from ..frozen import frozen, record
from ..model import Completed, Instance, Job, Running
from ..objectives import parse
from ..plugins import registry
from ..simulate.run import Simulation, StalledError

IN_PLACE_OF_ROUNDS = "wspt"
"""The policy that stands for rounds, which it can nearly do (`StandsForRounds`)."""
DRAWS = 15
"""Courses of a forecast: the median is the 8th, the 90 % quantile the 14th."""
HORIZON_S = 7 * 86400.0
"""So far a forecast looks."""
LEAST_WORK_S, MOST_WORK_S = 0.001, 1e9
MOST_TO_COME, TO_COME_EACH = 500, 2
"""So many jobs still to come are drawn for a course at most, and so many for each that is here;
none comes after them."""
SHARE = 0.02
"""The policy is not asked at each event, but after this share of the time seen by then, or of a
job's mean length where that is less: so far ahead nothing is known to a second."""
FEW_JOBS = 20
DAY_S = 86400.0

Floats = NDArray[np.float64]


@frozen
class ToCome:
    """Jobs that came in the last `window_s`: each again in any window as long, at any time of it
    (a block bootstrap). `before_s` is how long before the present each came."""

    jobs: tuple[Job, ...] = ()
    beliefs: tuple[Belief, ...] = ()
    before_s: tuple[float, ...] = ()
    window_s: float = DAY_S


@frozen
class Question:
    """What a forecast is of. Of each job of the `instance` there is a belief; what it has done is
    its work there less what is left. `policy` decides (a name and its options, None for rounds), by
    what is believed, and leaves a place that is `kept` for a job to that one."""

    instance: Instance
    beliefs: Mapping[str, Belief]
    errors: RunTimeErrors
    to_come: ToCome = ToCome()
    policy: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    objective: str = "wct"
    kept: Reservation | None = None
    draws: int = DRAWS
    horizon_s: float = HORIZON_S
    seed: int = 0


@record
class Quantiles:
    """When a job starts and ends with a probability of 50 % and of 90 %, in seconds from now;
    infinite where that is not seen within the horizon. A job that runs has started at 0."""

    start_p50_s: float
    start_p90_s: float
    end_p50_s: float
    end_p90_s: float

    def after(self, later_s: float) -> "Quantiles":
        """Return these in seconds from a later instant, none before it."""
        each = (self.start_p50_s, self.start_p90_s, self.end_p50_s, self.end_p90_s)
        return Quantiles(*(max(0.0, at_s - later_s) for at_s in each))


def forecast(question: Question) -> dict[str, Quantiles]:
    """Return the quantiles of each job over the draws.

    In each draw every job is as long as a job of such a belief may be, and jobs come as they came
    before; the policy knows only what is believed. The levels at which the run time of a job is
    drawn are spread evenly over the draws, in an order that depends on the seed and the job alone
    (Latin hypercube sampling): a forecast made again of the same state is the same, and one made a
    little later differs little. Raises InputError for an unknown policy.
    """
    instance = question.instance
    if not instance.jobs:
        return {}
    levels = _levels(question)
    courses = [
        _course(question, {name: own[i] for name, own in levels.items()}, i)
        for i in range(question.draws)
    ]
    start_s, end_s = (np.sort(np.array(times), axis=0) for times in zip(*courses, strict=True))
    rows = [math.ceil(share * question.draws) - 1 for share in (0.5, 0.9)]
    columns = np.concatenate((start_s[rows], end_s[rows])).T.tolist()
    return {job.id: Quantiles(*own) for job, own in zip(instance.jobs, columns, strict=True)}


def _levels(question: Question) -> dict[str, list[float]]:
    """Return the levels at which the run time of each job is drawn. Those of beliefs of one kind go
    together as far as their errors did (a Gaussian copula with one common factor)."""
    common: dict[Kind, list[float]] = {}
    levels = {}
    for job in question.instance.jobs:
        belief, own = question.beliefs[job.id], _spread(question, job.id)
        alike = 0.0 if belief.measured else question.errors.alike(belief.kind)
        if alike:
            if belief.kind not in common:
                common[belief.kind] = _spread(question, str(belief.kind))
            both, apart = math.sqrt(alike), math.sqrt(1 - alike)
            own = [
                NORMAL.cdf(both * NORMAL.inv_cdf(of_all) + apart * NORMAL.inv_cdf(level))
                for of_all, level in zip(common[belief.kind], own, strict=True)
            ]
        levels[job.id] = own
    return levels


def _spread(question: Question, name: str) -> list[float]:
    """Return levels that are spread evenly over the draws, in an order of this name's own."""
    order = list(range(question.draws))
    random.Random(f"{question.seed} {name}").shuffle(order)
    return [(place + 0.5) / question.draws for place in order]


class _Believed:
    """Estimates of a draw: what was believed of each job. Counts those of `watched` that are yet to
    complete."""

    name = "forecast"

    def __init__(self, work_s: Mapping[str, float], watched: int) -> None:
        self._work_s, self._watched, self.left = work_s, watched, watched

    def remember(self, past: Sequence[Completed]) -> None:
        """Learn nothing."""

    def work_s(self, job: Job, now_s: float) -> float:
        """Return the belief."""
        return self._work_s[job.id]

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        """Count."""
        self.left -= not job.id.startswith(TO_COME)


TO_COME = "\0to come "
"""No job's name begins so."""


def _course(question: Question, levels: Mapping[str, float], draw: int) -> tuple[Floats, Floats]:
    """Return when each job starts and ends in one draw, in seconds from now."""
    instance = _drawn(question, levels)
    watched, now_s = len(instance.jobs), instance.now_s
    believed_s = {job.id: job.work_s for job in question.instance.jobs}
    to_come = []
    for job, belief in _to_come(question, draw):
        to_come.append(job)
        believed_s[job.id] = belief.work_s
    believed = _Believed(believed_s, watched)
    name = question.policy or IN_PLACE_OF_ROUNDS
    policy = registry.policy(name, parse(question.objective), question.options)
    simulation = Simulation(
        replace(instance, jobs=(*instance.jobs, *to_come)),
        policy,
        estimates=believed,
        **spaced(instance),
    )
    world, until_s = simulation.world, now_s + question.horizon_s
    if question.policy is None and isinstance(policy, StandsForRounds):
        policy.stand_for_rounds(_kept(question.kept, world))
    with suppress(StalledError):  # who waits then never starts
        simulation.run(until=lambda: not believed.left or world.now_s > until_s)
    start_s, end_s = np.full(watched, math.inf), np.full(watched, math.inf)
    rows = world.rows.since(0)
    rows = rows[rows["job"] < watched]
    np.minimum.at(start_s, rows["job"], rows["start_s"])
    ended = rows[rows["ending"] == Ending.COMPLETED]
    end_s[ended["job"]] = ended["end_s"]
    for i, job in enumerate(instance.jobs):
        if job.id in world.running or job.id in world.saving:
            entry = world.entry(job.id)
            assert isinstance(entry, Running)
            start_s[i] = min(start_s[i], entry.started_s)
    start_s[start_s > until_s] = math.inf
    end_s[end_s > until_s] = math.inf
    return np.maximum(start_s - now_s, 0.0), end_s - now_s


@runtime_checkable
class StandsForRounds(Protocol):
    """A policy that is quick and can decide nearly as rounds do."""

    def stand_for_rounds(self, kept: Reservation | None) -> None:
        """Do so, and keep a place for a job that waits, if one is kept, until it starts."""
        ...


def _kept(kept: Reservation | None, world: World) -> Reservation | None:
    """Return a reservation in the option of a job whose length is drawn; None where it has none."""
    if kept is None or kept.job not in world.instance.job:
        return None
    if any(slot.node not in world.cluster.node for slot in kept.placement):
        return None
    own = kept.option
    for option in world.options(kept.job):
        alike = option.mode.size == own.mode.size and option.spread == own.spread
        if alike and option.mode.gpu_type == own.mode.gpu_type:
            return replace(kept, option=option)
    return None


class Spacing(TypedDict, total=False):
    """Settings of a `Simulation`."""

    spacing_s: float
    pace: float


def spaced(instance: Instance) -> Spacing:
    """Return how a simulation of many jobs is spaced."""
    if len(instance.jobs) <= FEW_JOBS:
        return {}
    return {"spacing_s": SHARE * fmean(job.work_s for job in instance.jobs), "pace": SHARE}


def _drawn(question: Question, levels: Mapping[str, float]) -> Instance:
    """Return the instance with run times that are drawn."""
    instance, errors = question.instance, question.errors
    left_s: dict[str, float] = {}
    jobs: dict[str, Job] = {}
    for job in instance.jobs:
        believed_s = instance.remaining_s(job)
        done_s = max(0.0, job.work_s - believed_s)
        drawn_s = errors.left_s(question.beliefs[job.id], done_s, believed_s, levels[job.id])
        left_s[job.id] = min(MOST_WORK_S, max(LEAST_WORK_S, drawn_s))
        jobs[job.id] = of_length(job, done_s + left_s[job.id])
    running = []
    for entry in instance.running:
        entry = replace(entry, remaining_s=left_s[entry.job])
        known = with_its_length(entry, jobs[entry.job], instance.job[entry.job])
        assert isinstance(known, Running)
        running.append(known)
    suspended = (replace(entry, remaining_s=left_s[entry.job]) for entry in instance.suspended)
    return replace(
        instance, jobs=tuple(jobs.values()), running=tuple(running), suspended=tuple(suspended)
    )


def _to_come(question: Question, draw: int) -> Iterator[tuple[Job, Belief]]:
    """Yield jobs that come, in order."""
    known, rng = question.to_come, random.Random(f"{question.seed} to come {draw}")
    if not known.jobs:
        return
    begin_s, window_s = rng.random() * known.window_s, known.window_s
    again_s = [(window_s - before_s - begin_s) % window_s for before_s in known.before_s]
    order = sorted(range(len(known.jobs)), key=again_s.__getitem__)
    for number in range(min(MOST_TO_COME, TO_COME_EACH * len(question.instance.jobs) + FEW_JOBS)):
        turn, place = divmod(number, len(order))
        i = order[place]
        at_s = again_s[i] + turn * window_s
        if at_s > question.horizon_s:
            return
        belief = known.beliefs[i]
        work_s = question.errors.left_s(belief, 0.0, belief.work_s, rng.random())
        job, submit_s = known.jobs[i], question.instance.now_s + at_s
        job = replace(job, id=f"{TO_COME}{number}", submit_s=submit_s, after=())
        yield of_length(job, max(LEAST_WORK_S, work_s)), belief
