"""The value of an option: what running a job by it until the next round is worth under each
objective.

A round asks which jobs to run now; the objectives of `optsched.objectives` speak of completion
times. The value of an option translates one into the other. Let T be the seconds in which the
option completes the job, everything it still has to pay included, D the length of the round, and u
the *urgency* of the job: the cost of delaying its completion by one second, at the time it would
complete.

- Sums (wct, tardiness, deadline, throughput): value = u D / T, the job's index in Smith's rule
  (Naval Research Logistics Quarterly 3, 1956) times the length of the round. Between jobs that
  compete for GPUs it is the index for each GPU that counts, as the capacity rows see to.
- Maxima and quantiles (makespan, lateness, tail, ftf, maxmin): value = u D (T* / T), where T* is
  the time to complete in the job's best option. A maximum is replaced by a sum of exponentials or
  of fourth powers, whose slopes are u.
- Resources (energy, cost): value = (D / T) (what the job's dearest option uses - what this one
  uses).

Where nothing starts between two rounds, GPUs of a job that completes stay idle until the next:
`refill` False replaces D / T by min(1, D / T).

**Preempt or continue.** Preempting r for w pays under wct exactly when (docs/mathematics.md,
section 1)

    w_w (rem_r - save_r) > w_r (save_r + load_w + rem_w + load_r).

So T of *keeping* r is rem_r - save_r, and T of *starting* w where others must leave for it is
load_w + rem_w + (save + load of those who leave): then keeping has the higher value for each GPU
exactly when the rule says so, for victims that are alike also when a gang needs several of them. A
job that would complete before it could be saved is kept. Work lost since the last checkpoint counts
as load of the victim, start-up still to go is taken off it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..objectives import TERMS, Objective, Term

Floats = NDArray[np.float64]

LATER_LEVEL = 1e-3
"""Weight of each further objective of a sequence relative to the one before, both scaled to the
same mean."""
IDLE = 1e-3
"""Weight of the wct value that is added where an objective sees no worth in running a job, so that
GPUs do not idle. A sequence of objectives ends in wct for the same reason."""
SAME = 1e-9
"""Relative difference between what two options use that is taken for rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """What the value needs to know of the active jobs, one entry each; `deadline_s` is inf without
    one."""

    now_s: float
    weight: Floats
    submit_s: Floats
    deadline_s: Floats
    fastest_s: Floats
    isolated_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The options, sorted by job: `job` is the index, `first` where each job's options begin.

    `finish_s` are the seconds to completion, `swap_s` the same with what preemption adds or spares
    (see above), `longest_s` is the longest that the jobs which could be preempted still take;
    `energy_kwh` and `price` what the option uses until completion.
    """

    job: NDArray[np.int64]
    first: NDArray[np.int64]
    finish_s: Floats
    swap_s: Floats
    energy_kwh: Floats
    price: Floats
    longest_s: float


def option_values(
    objective: Objective, jobs: Jobs, ways: Ways, round_s: float, *, refill: bool
) -> Floats:
    """Value of every option. All are at least 0."""
    if not len(ways.job):
        return np.zeros(0)
    total = np.zeros(len(ways.job))
    several = len(objective.levels) > 1
    for k, level in enumerate(
        (*objective.levels, ((1.0, TERMS["wct"]),)) if several else objective.levels
    ):
        found = np.zeros(len(ways.job))
        for weight, term in level:
            found += weight * term_values(
                term, jobs, ways, round_s, refill=refill, idle=not several
            )
        mean = float(found.mean())
        total += found * (LATER_LEVEL**k / mean if mean > 0 else 0.0) if several else found
    return total


def term_values(
    term: Term, jobs: Jobs, ways: Ways, round_s: float, *, refill: bool, idle: bool = True
) -> Floats:
    """Value of every option under one term (see above); with `idle`, also where the term sees no
    worth in running."""
    pace = round_s / ways.swap_s
    if not refill:
        pace = np.minimum(1.0, pace)
    if term.name == "wct":
        lightest = IDLE**2 * (
            float(jobs.weight.max()) or 1.0
        )  # jobs of no weight still run where nothing else would
        return np.maximum(jobs.weight, lightest)[ways.job] * _with_second_best(ways, pace)
    best_s = np.minimum.reduceat(ways.finish_s, ways.first[:-1])
    least = (
        (IDLE if idle else 0.0)
        * (jobs.weight / (float(jobs.weight.mean()) or 1.0))[ways.job]
        * pace
    )
    if term.over == "segments":
        used = ways.energy_kwh if term.name == "energy" else ways.price
        most = np.maximum.reduceat(used, ways.first[:-1])
        spared = most[ways.job] - used
        spared[spared < SAME * most[ways.job]] = 0.0
        return pace * spared + least * (float(used.mean()) or 1.0)
    urgency = _urgency(term, jobs, best_s)
    scale = float(urgency.mean()) or 1.0
    if term.over == "sum":
        return urgency[ways.job] * pace + scale * least
    return (urgency * best_s)[ways.job] * pace + scale * round_s * least


def _with_second_best(ways: Ways, pace: Floats) -> Floats:
    """D / T of each option, at least that of the job's best option less what the option falls
    behind it, at the rate of the longest job (see above)."""
    best_s = np.minimum.reduceat(ways.swap_s, ways.first[:-1])[ways.job]
    best = np.maximum.reduceat(pace, ways.first[:-1])[ways.job]
    behind = (ways.swap_s - best_s) / ways.longest_s
    return np.asarray(np.maximum(pace, best * (1.0 - behind)), dtype=float)


def _urgency(term: Term, jobs: Jobs, best_s: Floats) -> Floats:
    """Cost of delaying the completion of each job by one second, at `now + best_s`."""
    complete_s = jobs.now_s + best_s
    typical_s = max(float(best_s.mean()), 1e-300)
    slack_s = jobs.deadline_s - complete_s
    late = np.isfinite(jobs.deadline_s)
    near = np.exp(-np.clip(slack_s / (2.0 * typical_s), 0.0, 50.0))
    if (
        term.name == "tardiness"
    ):  # Vepsalainen and Morton, Management Science 33, 1987: apparent tardiness cost
        return np.where(late, jobs.weight * near, 0.0)
    if term.name == "deadline":  # a job that is late already has nothing to lose
        return np.where(late & (slack_s >= 0), jobs.weight * near, 0.0)
    if term.name == "throughput":
        slope: Floats = (
            jobs.weight * jobs.fastest_s / np.maximum(complete_s - jobs.submit_s, 1e-9) ** 2
        )
        return slope
    if term.name in ("ftf", "maxmin"):
        alone_s = jobs.isolated_s if term.name == "ftf" else jobs.fastest_s
        stretch = (complete_s - jobs.submit_s) / alone_s
        return stretch**3 / max(float(stretch.max()), 1e-300) ** 3 / alone_s
    due_s = {"makespan": 0.0 * best_s, "tail": jobs.submit_s, "lateness": jobs.deadline_s}[
        term.name
    ]
    height = complete_s - due_s
    counts = np.isfinite(height)
    if not counts.any():
        return np.zeros(len(height))
    return np.where(
        counts, np.exp(np.clip((height - height[counts].max()) / typical_s, -50.0, 0.0)), 0.0
    )
