"""Learning the scorer: an evolution strategy on batches of jobs, each judged against a plain rule
on the same batch."""

import builtins
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from optsched.driver.world import World
from optsched.errors import InputError
from optsched.model.instance import Instance
from optsched.plugins import registry
from optsched.plugins.policy import Policy
from optsched.simulate.run import simulate

from .queue import Moment, PickedFirst, requested_gpus, rows_of
from .scorer import Floats, Scorer, from_vector, untrained

BATCH_JOBS = 256
PAIRS, BATCHES = 8, 2
"""Of each generation: pairs of opposite steps that are tried, and training batches on which each
is."""
SIGMA, STEP = 0.15, 0.05
"""Size of a trial step and of a learning step, in weights."""
MOMENTUM, SCALING = 0.9, 0.999
TRAINED_ON, SELECTED_ON = 0.6, 0.2
"""Shares of the jobs, in order of arrival; what is left after both is held out."""
MOST_HELD_BATCHES = 4
SHORT_S = 10.0
"""Run times below this count as this much in a bounded slow-down."""
SCORES = ("bounded-slowdown", "wait", "wct", "utilisation", "slowdown")
RULES = ("wfp", "f1")
"""Base rules that are known here only, beside every policy."""


class Scoring(PickedFirst):
    """A scorer at work on a batch."""

    name = title = "rltune"
    first_only = False

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.scorer = scorer

    def scores(self, world: World, moment: Moment, visible: list[str]) -> Floats:
        return self.scorer.scores(rows_of(world, moment, visible))


class Rule(PickedFirst):
    """WFP, (waiting time / run time)^3 x GPUs, or F1, -(log10(run time) x GPUs + 870
    log10(submission)), as RLTune's public code has them; that takes WFP's waiting time from a start
    that has not been, here it is the time waited."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = self.title = name

    def scores(self, world: World, moment: Moment, visible: list[str]) -> Floats:
        run_s = np.array([world.fastest_finish_s(job_id) for job_id in visible])
        gpus = np.array([float(requested_gpus(world, job_id)) for job_id in visible])
        submit_s = np.array(
            [world.job(job_id).submit_s - world.instance.now_s for job_id in visible]
        )
        if self.name == "wfp":
            waited: Floats = (world.now_s - world.instance.now_s - submit_s) / run_s
            urgency: Floats = np.power(waited, 3) * gpus
            return urgency
        since = np.where(submit_s > 0, submit_s, 0.1)
        scores: Floats = -(np.log10(run_s) * gpus + 870.0 * np.log10(since))
        return scores


class Trained(NamedTuple):
    """The best scorer so far, its mean reward on what it was selected by, and after how many
    generations."""

    scorer: Scorer
    generation: int
    selected: float


def score(instance: Instance, policy: Policy, objective: str) -> float:
    """Return what a policy makes of a batch, lower is better: RLTune's mean score of its jobs."""
    plan = simulate(instance, policy)
    total, end_s, gpu_s = 0.0, -math.inf, 0.0
    weights = 0.0
    for job, entry in zip(instance.jobs, plan.jobs, strict=True):
        start_s, done_s = entry.segments[0].start_s, entry.completion_s
        wait_s, run_s, turnaround_s = (
            start_s - job.submit_s,
            done_s - start_s,
            done_s - job.submit_s,
        )
        end_s = max(end_s, done_s)
        gpu_s += run_s * entry.segments[0].mode.gpus
        weight = job.weight if objective == "wct" else 1.0
        weights += weight
        total += (
            weight
            * {
                "bounded-slowdown": max(1.0, turnaround_s / max(run_s, SHORT_S)),
                "wait": wait_s,
                "wct": turnaround_s,
                "slowdown": turnaround_s / run_s,
                "utilisation": 0.0,
            }[objective]
        )
    if objective == "utilisation":
        return -gpu_s / max(1.0, (end_s - instance.now_s) * instance.cluster.total_gpus)
    return total / max(weights, 1e-9)


def reward(base: float, learned: float) -> float:
    """Return RLTune's reward of a batch, from the scores of the base rule and of the learned
    one."""
    return (base - learned) / max(base, learned, 1)


def batch(instance: Instance, first: int, count: int) -> Instance:
    """Return so many jobs from the one at `first` on, in order of arrival, on an idle cluster that
    knows of no incidents."""
    jobs = sorted(instance.jobs, key=lambda job: job.submit_s)[first : first + count]
    known = {job.id for job in jobs}
    jobs = [replace(job, after=tuple(name for name in job.after if name in known)) for job in jobs]
    return Instance(
        name=instance.name,
        now_s=jobs[0].submit_s,
        cluster=instance.cluster,
        tenants=instance.tenants,
        jobs=tuple(jobs),
    )


class Parts(NamedTuple):
    """First jobs of the batches to train on (any may be one), and the batches to select by and to
    judge by."""

    size: int
    train: range
    select: tuple[Instance, ...]
    held_out: tuple[Instance, ...]


def parts(instance: Instance) -> Parts:
    """Return the jobs of an instance in three parts, in order of arrival. Raises InputError for
    fewer than ten jobs."""
    jobs = len(instance.jobs)
    if jobs < 10:
        raise InputError(f"{instance.name} has {jobs} jobs; learning takes ten at least")
    trained, selected = int(TRAINED_ON * jobs), int((TRAINED_ON + SELECTED_ON) * jobs)
    size = min(BATCH_JOBS, trained)

    def cut(low: int, high: int) -> tuple[Instance, ...]:
        count = min(size, high - low)
        return tuple(batch(instance, at, count) for at in range(low, high - count + 1, count))[
            :MOST_HELD_BATCHES
        ]

    return Parts(size, range(trained - size + 1), cut(trained, selected), cut(selected, jobs))


def base_score(base: str, objective: str, instance: Instance) -> float:
    """Return what the base rule makes of a batch."""
    return score(instance, Rule(base) if base in RULES else registry.policy(base), objective)


def _rewarded(objective: str, task: tuple[Floats, Instance, float]) -> float:
    vector, instance, base = task
    return reward(base, score(instance, Scoring(from_vector(vector)), objective))


def train(
    instances: Sequence[Instance],
    *,
    seed: int = 0,
    generations: int = 30,
    objective: str = "bounded-slowdown",
    base: str = "fifo",
    workers: int = 1,
    on_generation: Callable[[int, float, Trained], None] | None = None,
) -> tuple[Trained, list[tuple[float, float, float]]]:
    """Return a scorer learned on the first 60 % of each instance's jobs, the best by the next 20 %;
    and for each batch of the last 20 %, which had no part in either, the scores of the base rule
    and of the scorer, and the reward.

    OpenAI-ES (Salimans et al., arXiv:1703.03864): pairs of opposite steps, ranked by mean reward,
    Adam. Depends on nothing but the arguments. `on_generation` is told the number, the mean reward
    of the trials, and the best so far; Ctrl-C ends it with that. Raises InputError for an unknown
    objective or base rule and for too few jobs.
    """
    if objective not in SCORES:
        raise InputError(
            f"objective {objective!r} is none that rltune learns by; choose from "
            f"{', '.join(SCORES)}"
        )
    if base not in RULES and base not in registry.names("policies"):
        known = ", ".join((*RULES, *registry.names("policies")))
        raise InputError(f"base rule {base!r} is unknown; choose from {known}")
    split = [parts(instance.undisturbed) for instance in instances]
    rng = np.random.default_rng(seed)
    scorer = untrained(seed)
    vector = scorer.vector()
    mean, square = np.zeros(len(vector)), np.zeros(len(vector))
    selecting = [instance for part in split for instance in part.select]
    best: Trained | None = None
    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext(builtins) as pool:
        rewarded = partial(_rewarded, objective)
        try:
            bases = list(pool.map(partial(base_score, base, objective), selecting))
            for generation in range(generations + 1):
                judged = [
                    (vector, instance, own) for instance, own in zip(selecting, bases, strict=True)
                ]
                rewards = list(pool.map(rewarded, judged))
                selected = float(np.mean(rewards))
                if best is None or selected > best.selected:
                    best = Trained(from_vector(vector.copy()).rounded(), generation, selected)
                if generation == generations:
                    break
                noise = rng.normal(size=(PAIRS, len(vector)))
                picks = [int(rng.integers(len(split))) for _ in range(BATCHES)]
                tries = [
                    batch(instances[k], int(rng.integers(len(split[k].train))), split[k].size)
                    for k in picks
                ]
                own = list(pool.map(partial(base_score, base, objective), tries))
                steps = np.concatenate((noise, -noise))
                tasks = [
                    (vector + SIGMA * step, instance, score_)
                    for step in steps
                    for instance, score_ in zip(tries, own, strict=True)
                ]
                fitness = (
                    np.array(list(pool.map(rewarded, tasks)))
                    .reshape(len(steps), BATCHES)
                    .mean(axis=1)
                )
                gradient = (_shaped(fitness)[:, None] * steps).sum(axis=0) / (len(steps) * SIGMA)
                mean = MOMENTUM * mean + (1 - MOMENTUM) * gradient
                square = SCALING * square + (1 - SCALING) * gradient**2
                ahead = mean / (1 - MOMENTUM ** (generation + 1))
                vector = vector + STEP * ahead / (
                    np.sqrt(square / (1 - SCALING ** (generation + 1))) + 1e-8
                )
                if on_generation is not None:
                    on_generation(generation + 1, float(fitness.mean()), best)
        except KeyboardInterrupt:
            if best is None:
                raise
    assert best is not None
    return best, judge(
        best.scorer, [instance for part in split for instance in part.held_out], objective, base
    )


def judge(
    scorer: Scorer, held_out: Sequence[Instance], objective: str, base: str
) -> list[tuple[float, float, float]]:
    """Return scores of the base rule and of the scorer on batches that had no part in learning, and
    the reward."""
    scores = []
    for instance in held_out:
        plain, learned = (
            base_score(base, objective, instance),
            score(instance, Scoring(scorer), objective),
        )
        scores.append((plain, learned, reward(plain, learned)))
    return scores


def _shaped(fitness: Floats) -> Floats:
    """Return ranks from -0.5 to 0.5, equal ones alike, so that only the order of rewards counts."""
    below = (fitness[None, :] < fitness[:, None]).sum(axis=1)
    equal = (fitness[None, :] == fitness[:, None]).sum(axis=1) - 1
    ranks: Floats = (below + equal / 2) / max(1, len(fitness) - 1) - 0.5
    return ranks
