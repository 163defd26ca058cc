"""Gavel's largest total throughput for the money, also with deadlines."""

from typing import Annotated, Literal

import numpy as np

from optsched.driver import World
from optsched.plugins.options import declared_options

from .active import Floats
from .lp_rounds import LpOptions, LpRounds, remaining_s
from .program import Allocation, Program
from .sum_lp import largest_sum

DEAREST = 1e3
"""A GPU without a price counts as this many times cheaper than the cheapest that has one."""


class GavelThroughput(LpRounds):
    """Shares with the largest sum of throughput over what a GPU of the type costs: Gavel's form of
    the least cost.

    As published, a job's GPUs do not count: a gang's throughput is divided by the price of one GPU.
    Throughput is in reference work per second, so that a job counts as 1 on its requested GPUs of
    the reference type. The price of a type is the mean over its GPUs.

    In the public simulator GPUs that nobody has a share of go to whoever waits, whatever they cost;
    with `idle=left` they idle, which is where money is saved.

    Source: Narayanan et al., OSDI'20, section 4.2.
    """

    name = "gavel-throughput"
    title = "Gavel's largest total throughput for the price of the GPUs, in rounds"

    @declared_options
    class Options(LpOptions):
        costs: Annotated[
            Literal["price", "none"],
            "None: all types are equally dear, which is Gavel's largest total throughput.",
        ] = "price"
        idle: Annotated[
            Literal["filled", "left"],
            "Whether jobs run on GPUs of which they have no share while these would idle.",
        ] = "filled"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.priced = options.costs == "price"
        self.fills = options.idle == "filled"

    def price(self, world: World, gpu_types: tuple[str | None, ...]) -> Floats:
        """Return the price of a GPU of each type, > 0."""
        nodes = [node for node in world.cluster.nodes if node.gpus]
        price = np.array(
            [
                np.average(
                    [node.gpu_price_per_h for node in nodes if node.gpu_type == gpu_type],
                    weights=[node.gpus for node in nodes if node.gpu_type == gpu_type],
                )
                for gpu_type in gpu_types
            ]
        )
        if not self.priced or not (price > 0).any():
            return np.ones(len(gpu_types))
        prices: Floats = np.maximum(price, price[price > 0].min() / DEAREST)
        return prices

    def allocate(self, world: World, jobs: list[str], program: Program) -> Allocation:
        """Return the optimal shares."""
        allocation = largest_sum(program, self.price(world, tuple(world.cluster.gpu_types)))
        assert allocation is not None
        return allocation


class GavelSlo(GavelThroughput):
    """The same among the shares with which every job would meet its deadline if they were kept.

    A job with a deadline to come gets at least remaining work / time to the deadline, unless no GPU
    type alone is that fast. Where that cannot be had for all, deadlines do not count at all until
    shares are computed again. Set-ups are not foreseen.

    Source: Narayanan et al., OSDI'20, section 4.2 (minimize cost with SLOs).
    """

    name = "gavel-slo"
    title = (
        "Gavel's largest total throughput for the price of the GPUs that meets deadlines, in rounds"
    )

    def __init__(self, options: GavelThroughput.Options) -> None:
        super().__init__(options)
        self._dropped = 0

    def allocate(self, world: World, jobs: list[str], program: Program) -> Allocation:
        """Return the optimal shares."""
        need = np.zeros(len(jobs))
        for i, (job_id, left_s) in enumerate(
            zip(jobs, remaining_s(world, jobs).tolist(), strict=True)
        ):
            deadline_s = world.job(job_id).deadline_s
            if deadline_s is not None and deadline_s > world.now_s:
                rate = left_s / (deadline_s - world.now_s)
                need[i] = rate if rate <= program.rate[i].max() else 0.0
        price = self.price(world, tuple(world.cluster.gpu_types))
        allocation = largest_sum(program, price, need)
        if allocation is None:
            self._dropped += 1
            return super().allocate(world, jobs, program)
        return allocation

    def facts(self) -> dict[str, float | str]:
        """Return how often the deadlines could not all be met."""
        return {"deadlines_dropped": self._dropped}
