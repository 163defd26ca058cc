"""Gavel's max-min fairness by water filling, among jobs and among tenants."""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np

from optsched.driver import World
from optsched.frozen import entity
from optsched.plugins.options import declared_options

from .active import LEAST_WEIGHT, Bools, Floats, Ints, grouped, weights_of
from .filling import Groups, Weights, fill
from .lp_rounds import HeterogeneityOption, LpRounds
from .max_min import normalised
from .program import Allocation, Program, alone


class GavelWaterFilling(LpRounds):
    """Max-min fairness that goes on: when the worst-off can get no more, those who can rise
    further, and so on.

    All throughputs, measured as for `gavel-max-min`, rise together by their weights; whoever can
    rise no further is left behind at its level.

    Source: Narayanan et al., OSDI'20, section 4.3 with a single level.
    """

    name = "gavel-water-filling"
    title = "Gavel's max-min fairness by water filling over GPU types, in rounds"
    Options: type[HeterogeneityOption] = HeterogeneityOption

    def allocate(self, world: World, jobs: list[str], program: Program) -> Allocation:
        """Return the shares of the last round of filling."""
        weight = weights_of(world, jobs)
        return _filled(program, lambda first, count: lambda saturated: weight[first], weight)


@declared_options
class HierarchyOptions(HeterogeneityOption):
    """What may be set of it."""

    inside: Annotated[
        Literal["fairness", "fifo"],
        "A tenant's weight is divided among its jobs that can still rise, by their weights; or all "
        "of it is the first job's until that can rise no further, then the next one's.",
    ] = "fairness"


class GavelHierarchical(GavelWaterFilling):
    """Water filling among tenants by their weights, and inside each among its jobs.

    Jobs without a tenant are as those of one more tenant of weight 1.

    Source: Narayanan et al., OSDI'20, section 4.3.
    """

    name = "gavel-hierarchical"
    title = "Gavel's hierarchical fairness: water filling among tenants, then among their jobs, in rounds"  # noqa: E501

    Options = HierarchyOptions

    def __init__(self, options: HierarchyOptions) -> None:
        super().__init__(options)
        self.fifo = options.inside == "fifo"

    def allocate(self, world: World, jobs: list[str], program: Program) -> Allocation:
        """Return the shares of the last round of filling."""
        names = [world.job(job_id).tenant for job_id in jobs]
        order = list(dict.fromkeys(names))
        known = {tenant.name: max(tenant.weight, LEAST_WEIGHT) for tenant in world.instance.tenants}
        entity_weight = np.array([1.0 if name is None else known.get(name, 1.0) for name in order])
        entity = np.array([order.index(name) for name in names])
        if self.fifo:
            weigh = InOrder(entity, entity_weight)
            return alone(
                fill(_groups(program, np.arange(len(jobs)), np.ones(len(jobs))), weigh).share
            )
        weight = weights_of(world, jobs)
        return _filled(
            program,
            lambda first, count: Divided(entity[first], entity_weight, weight[first], count),
            weight,
            entity,
        )


@entity
class Divided:
    """A tenant's weight, divided by weight among its jobs that are not saturated."""

    entity: Ints
    entity_weight: Floats
    weight: Floats
    count: Floats

    def __call__(self, saturated: Bools) -> Floats:
        rising = np.where(saturated, 0.0, self.weight)
        total = np.bincount(self.entity, rising * self.count, len(self.entity_weight))
        weights: Floats = (
            self.entity_weight[self.entity] * rising / np.where(total > 0, total, 1.0)[self.entity]
        )
        return weights


@entity
class InOrder:
    """A tenant's weight for the first of its jobs that is not saturated; rows are in order of
    arrival."""

    entity: Ints
    entity_weight: Floats

    def __call__(self, saturated: Bools) -> Floats:
        weights = np.zeros(len(self.entity))
        rest = (~saturated).nonzero()[0]
        _, at = np.unique(self.entity[rest], return_index=True)
        weights[rest[at]] = self.entity_weight[self.entity[rest[at]]]
        return weights


def _filled(
    program: Program, weigh: Callable[[Ints, Floats], Weights], *keys: Floats | Ints
) -> Allocation:
    """Return shares by water filling, the same for jobs of one kind that are equal in all `keys`;
    `weigh` is told the first of each such group, and how many there are."""
    first, group, count = grouped(program.kind, *keys)
    return alone(fill(_groups(program, first, count), weigh(first, count)).share[group])


def _groups(program: Program, first: Ints, count: Floats) -> Groups:
    worth = normalised(program, np.ones(len(program.kind)))[first]
    return Groups(count, worth, program.gpus[first], program.workers)
