"""Water filling over GPU types: raise all weighted throughputs together, leave behind whoever can
rise no further.

Source: Narayanan et al., OSDI'20, section 4.3, and `max_min_fairness_water_filling.py` of the
public code: each round

    max c   level_g + weight_g * c <= value_g(X) for every group g that rises,  value_h(X) >=
    level_h for the others

with value_g(X) the normalised throughput of a job of group g times its GPUs. Then every riser's
level goes up by weight_g * c, and whoever no allocation can lift beyond (by SLACK of its level)
while all keep theirs is saturated. The public code finds these by a mixed-integer program that
lifts as many as possible; that the mean of two allocations is one makes a linear program do: lift
all by up to SLACK, as much as possible in sum.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from optsched.frozen import entity

from .active import Bools, Floats, Ints, grouped
from .glop import CONTINUED, maximisation, solve

SLACK = 1e-4
"""Relative to the level: what counts as rising; the published 1.0001."""
LEAST_SLACK = 1e-5
"""The same for low levels, relative to the highest one; the published epsilon."""
ROUNDING = 1e-8
"""Share of a level by which a later program may fall short of it."""
LIFTED = 0.5
"""Share of SLACK that tells a lift from rounding."""


@entity
class Groups:
    """Groups of `count` equal jobs. `worth[g, k]` is what all its time on type k is worth to a job,
    `gpus[g, k]` what it takes there."""

    count: Floats
    worth: Floats
    gpus: Floats
    workers: Floats


class Filled(NamedTuple):
    """`share` of each group's job, and the `level` it was lifted to."""

    share: Floats
    level: Floats


Weights = Callable[[Bools], Floats]
"""From which groups are saturated to the weights of the others; 0 for one that does not rise
yet."""


def fill(groups: Groups, weights: Weights) -> Filled:
    """Lift until all are saturated."""
    size = len(groups.count)
    scale = float(groups.worth.max(axis=1).min())
    levels = _Levels(Groups(groups.count, groups.worth / scale, groups.gpus, groups.workers))
    _, alike, _ = grouped(groups.worth, groups.gpus)
    level, saturated = np.zeros(size), np.zeros(size, dtype=bool)
    while not saturated.all():
        weight = np.where(saturated, 0.0, weights(saturated))
        rising = (weight > 0).nonzero()[0]
        if not len(rising):
            break
        weight /= weight.max()
        level = level + weight * levels.raised(level, weight, rising)
        lifted = levels.lifted(level, rising)
        stuck = rising[
            lifted <= max(LIFTED, float(lifted.min()))
        ]  # not all can rise: else they would have
        saturated[stuck] = True
        # Where one cannot leave the ground, none like it ever can: the others only rise.
        grounded = stuck[level[stuck] <= ROUNDING * level.max(initial=1.0)]
        saturated |= (level == 0) & np.isin(alike, alike[grounded])
    return Filled(levels.share(), level * scale)


class _Levels:
    """One program for both questions: variables are shares, the common rise, and each group's lift.
    It has the groups that have risen so far; the others need nothing."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.lp = maximisation()
        self.infinity = self.lp.infinity()
        self.rise = self.lp.NumVar(0.0, self.infinity, "")
        self.workers = [self.lp.Constraint(-self.infinity, 1.0) for _ in groups.workers]
        self.x: dict[int, dict[int, Any]] = {}
        self.lift: dict[int, Any] = {}
        self.rows: dict[int, Any] = {}

    def _enter(self, g: int) -> None:
        groups = self.groups
        time = self.lp.Constraint(-self.infinity, 1.0)
        self.rows[g] = self.lp.Constraint(0.0, self.infinity)
        self.lift[g] = self.lp.NumVar(0.0, 0.0, "")
        self.rows[g].SetCoefficient(self.lift[g], -1.0)
        self.x[g] = {}
        for k in (groups.worth[g] > 0).nonzero()[0].tolist():
            x = self.x[g][k] = self.lp.NumVar(0.0, self.infinity, "")
            time.SetCoefficient(x, 1.0)
            self.rows[g].SetCoefficient(x, float(groups.worth[g, k]))
            self.workers[k].SetCoefficient(
                x, float(groups.count[g] * groups.gpus[g, k] / groups.workers[k])
            )

    def raised(self, level: Floats, weight: Floats, rising: Ints) -> float:
        """Return by how much, for a weight of 1, all that have one can rise together."""
        for g in rising.tolist():
            if g not in self.rows:
                self._enter(g)
        self._keep(level, weight)
        for lift in self.lift.values():
            lift.SetUb(0.0)
        self._maximise([self.rise])
        return float(self.rise.solution_value())

    def lifted(self, level: Floats, rising: Ints) -> Floats:
        """Return how far those that rise can rise further while all keep their levels, as a share
        of what counts."""
        most = np.maximum(SLACK * level, LEAST_SLACK * level.max(initial=1.0))
        self._keep(level, np.zeros_like(level))
        for g in rising.tolist():
            self.lift[g].SetUb(float(most[g]))
        self._maximise([self.lift[g] for g in rising.tolist()])
        lifts = np.array([self.lift[g].solution_value() for g in rising.tolist()])
        share: Floats = lifts / most[rising]
        return share

    def _keep(self, level: Floats, weight: Floats) -> None:
        """Keep each group at its level, and above it by its weight times the common rise."""
        for g, row in self.rows.items():
            row.SetLb(float(level[g]) * (1 - ROUNDING))
            row.SetCoefficient(self.rise, -float(weight[g]))

    def _maximise(self, variables: list[Any]) -> None:
        objective = self.lp.Objective()
        objective.Clear()
        for variable in variables:
            objective.SetCoefficient(variable, 1.0)
        objective.SetMaximization()
        solve(self.lp, CONTINUED)

    def share(self) -> Floats:
        """Return the shares of the last solution."""
        shares = np.zeros_like(self.groups.worth)
        for g, own in self.x.items():
            for k, x in own.items():
                shares[g, k] = max(0.0, x.solution_value())
        return shares
