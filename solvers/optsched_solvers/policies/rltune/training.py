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

from optsched.driver import World
from optsched.errors import InputError
from optsched.model import Instance
from optsched.plugins import registry
from optsched.plugins.policy import Policy
from optsched.simulate.run import simulate

from .queue import RULES, Moment, PickedFirst, rows_of
from .scorer import Floats, Scorer, from_vector, untrained

BATCH_JOBS = 256
PAIRS, BATCHES = 8, 2
"""Of each generation: pairs of opposite steps that are tried, and training batches of each instance
on which each of them is."""
SIGMA, STEP = 0.15, 0.05
"""Size of a trial step and of a learning step, in weights."""
MOMENTUM, SCALING = 0.9, 0.999
TRAINED_ON, SELECTED_ON = 0.6, 0.2
"""Shares of the jobs, in order of arrival; what is left after both is held out."""
MOST_HELD_BATCHES = 4
SHORT_S = 10.0
"""Run times below this count as this much in a bounded slow-down."""
SCORES = ("bounded-slowdown", "wait", "wct", "utilisation", "slowdown")


class Scoring(PickedFirst):
    """A scorer at work on a batch."""

    name = title = "rltune"
    first_only = False

    def __init__(self, scorer: Scorer, backfill: bool = False) -> None:
        super().__init__(backfill)
        self.scorer = scorer

    def scores(self, world: World, moment: Moment, visible: list[str]) -> Floats:
        return self.scorer.scores(rows_of(world, moment, visible))


class Rule(PickedFirst):
    """A plain rule at work on a batch."""

    def __init__(self, name: str, backfill: bool = False) -> None:
        super().__init__(backfill)
        self.name = self.title = name

    def scores(self, world: World, moment: Moment, visible: list[str]) -> Floats:
        return RULES[self.name](world, visible)


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


def base_score(base: str, objective: str, backfill: bool, instance: Instance) -> float:
    """Return what the base rule makes of a batch."""
    rule = Rule(base, backfill) if base in RULES else registry.policy(base)
    return score(instance, rule, objective)


def _rewarded(objective: str, backfill: bool, task: tuple[Floats, Instance, float]) -> float:
    vector, instance, base = task
    return reward(base, score(instance, Scoring(from_vector(vector), backfill), objective))


def train(
    instances: Sequence[Instance],
    *,
    seed: int = 0,
    generations: int = 30,
    objective: str = "bounded-slowdown",
    base: str = "fifo",
    backfill: bool = False,
    workers: int = 1,
    on_generation: Callable[[int, float, Trained], None] | None = None,
) -> tuple[Trained, list[tuple[float, float, float]]]:
    """Return a scorer learned on the first 60 % of each instance's jobs, the best by the next 20 %;
    and for each batch of the last 20 %, which had no part in either, the scores of the base rule
    and of the scorer, and the reward.

    With `backfill` the scorer, and a base rule that is known here only, backfill.

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
        rewarded = partial(_rewarded, objective, backfill)
        base_scored = partial(base_score, base, objective, backfill)
        try:
            bases = list(pool.map(base_scored, selecting))
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
                picks = [k for k in range(len(split)) for _ in range(BATCHES)]
                tries = [
                    batch(instances[k], int(rng.integers(len(split[k].train))), split[k].size)
                    for k in picks
                ]
                own = list(pool.map(base_scored, tries))
                steps = np.concatenate((noise, -noise))
                tasks = [
                    (vector + SIGMA * step, instance, score_)
                    for step in steps
                    for instance, score_ in zip(tries, own, strict=True)
                ]
                fitness = (
                    np.array(list(pool.map(rewarded, tasks)))
                    .reshape(len(steps), len(tries))
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
    held_out = [instance for part in split for instance in part.held_out]
    return best, judge(best.scorer, held_out, objective, base, backfill)


def judge(
    scorer: Scorer, held_out: Sequence[Instance], objective: str, base: str, backfill: bool = False
) -> list[tuple[float, float, float]]:
    """Return scores of the base rule and of the scorer on batches that had no part in learning, and
    the reward."""
    scores = []
    for instance in held_out:
        plain = base_score(base, objective, backfill, instance)
        learned = score(instance, Scoring(scorer, backfill), objective)
        scores.append((plain, learned, reward(plain, learned)))
    return scores


def _shaped(fitness: Floats) -> Floats:
    """Return ranks from -0.5 to 0.5, equal ones alike, so that only the order of rewards counts."""
    below = (fitness[None, :] < fitness[:, None]).sum(axis=1)
    equal = (fitness[None, :] == fitness[:, None]).sum(axis=1) - 1
    ranks: Floats = (below + equal / 2) / max(1, len(fitness) - 1) - 0.5
    return ranks
