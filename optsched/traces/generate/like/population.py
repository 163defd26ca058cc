"""Who submits what: virtual clusters, their users, the commands these run again and again."""

import heapq

import numpy as np
from numpy.typing import NDArray

from ....frozen import record
from .arrivals import stratified
from .distribution import Floats
from .model import Model, Row

Ints = NDArray[np.int64]

NEW_COMMAND = 0.4
"""The chance that a user's next batch is of a new command and not that of an earlier batch (Simon's
process): about two thirds of all jobs then belong to commands that run five times or more, as in
Alibaba's PAI (Weng et al., NSDI'22)."""
OF_COMMAND, OF_BATCH = 0.7, 0.2
"""How much of the variance of run times (of their ranks, within a gang size) lies between commands,
and how much between batches of one command; the rest is between the jobs of a batch. Philly: ranks
of the run times of jobs submitted within 30 s of one another in the same virtual cluster with the
same gang correlate by 0.90."""


@record
class Population:
    """For each job its batch and command; for each command its user and row; for each user the
    virtual cluster."""

    batch: Ints
    command: Ints
    user_of: Ints
    row_of: Ints
    group_of: Ints

    @property
    def row(self) -> Ints:
        """Return the row of each job."""
        return self.row_of[self.command]


def populate(
    model: Model, rows: tuple[Row, ...], gaps: Floats, rng: np.random.Generator
) -> Population:
    """Draw the population. Jobs close to the one before repeat it; others are drawn: virtual
    cluster, user (Zipf), command (Simon).

    Commands get rows such that the shares of jobs come as close to the rows' as whole commands
    allow.
    """
    jobs = len(gaps)
    repeats = (gaps < model.rhythm.batch_gap) & (rng.random(jobs) < model.rhythm.batch_chance)
    repeats[0] = False
    batch = np.cumsum(~repeats) - 1
    user, group_of = _users(model, int(batch[-1]) + 1, rng)
    command_of_batch, user_of = _commands(user, rng)
    command = command_of_batch[batch]
    return Population(batch, command, user_of, _rows(rows, np.bincount(command)), group_of)


def run_times(rows: tuple[Row, ...], population: Population, rng: np.random.Generator) -> Floats:
    """Run time of each job, in whole seconds: within its row stratified draws from the row's
    distribution, in an order in which jobs of one command, and more so of one batch, are alike."""
    score = (
        np.sqrt(OF_COMMAND) * rng.standard_normal(len(population.user_of))[population.command]
        + np.sqrt(OF_BATCH) * rng.standard_normal(int(population.batch[-1]) + 1)[population.batch]
        + np.sqrt(1 - OF_COMMAND - OF_BATCH) * rng.standard_normal(len(population.batch))
    )
    times_s = np.empty(len(score))
    row = population.row
    for i, kind in enumerate(rows):
        (mine,) = np.nonzero(row == i)
        times_s[mine] = np.maximum(1.0, np.rint(kind.run_s.at(stratified(score[mine], rng))))
    return times_s


def _users(model: Model, batches: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the user of each batch, and the virtual cluster of each user. A virtual cluster has
    users by the square root of its share of jobs; the k-th of them submits in proportion to 1 / k
    ** user_skew."""
    shares = np.array([float(group.share) for group in model.groups] or [1.0])
    shares /= shares.sum()
    roots = np.sqrt(shares)
    counts = np.maximum(1, np.rint(model.users * roots / roots.sum())).astype(np.int64)
    group = rng.choice(len(shares), size=batches, p=shares)
    within = np.empty(batches, dtype=np.int64)
    for i, count in enumerate(counts.tolist()):
        (mine,) = np.nonzero(group == i)
        weights = np.arange(1, count + 1) ** -model.user_skew
        within[mine] = rng.choice(count, size=len(mine), p=weights / weights.sum())
    first = np.cumsum(counts) - counts
    return first[group] + within, np.repeat(np.arange(len(counts)), counts)


def _commands(user: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the command of each batch, and the user of each command: a new one, or one of a batch
    the user had before."""
    history: dict[int, list[int]] = {}
    commands: list[int] = []
    owner: list[int] = []
    for who, draw in zip(user.tolist(), rng.random(len(user)).tolist(), strict=True):
        past = history.setdefault(who, [])
        if past and draw >= NEW_COMMAND:
            command = past[int((draw - NEW_COMMAND) / (1 - NEW_COMMAND) * len(past))]
        else:
            command = len(owner)
            owner.append(who)
        past.append(command)
        commands.append(command)
    return np.array(commands), np.array(owner)


def _rows(rows: tuple[Row, ...], sizes: Ints) -> Ints:
    """Return a row for each command, the largest command first, each where most jobs are still
    missing."""
    shares = np.array([row.share for row in rows])
    missing = [
        (-share, i) for i, share in enumerate((shares / shares.sum() * sizes.sum()).tolist())
    ]
    heapq.heapify(missing)
    row_of = np.empty(len(sizes), dtype=np.int64)
    for command in np.argsort(-sizes, kind="stable").tolist():
        left, row = missing[0]
        row_of[command] = row
        heapq.heapreplace(missing, (left + int(sizes[command]), row))
    return row_of
