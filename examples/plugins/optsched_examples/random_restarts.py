"""A solver: the best of many list schedules in random order."""

import random
import time
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from optsched.driver import World
from optsched.model import Instance
from optsched.objectives import Objective, values
from optsched.plugins.options import PluginOptions
from optsched.plugins.solver import Guarantee, Report, Request
from optsched.simulate.run import simulate
from optsched_solvers.policies.parts.list_scheduling import ListScheduling


class RandomOrder(ListScheduling):
    """Whatever fits, in random order."""

    name = title = "random-order"

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng

    def rank(self, world: World, job_id: str) -> float:
        """By lot."""
        return self.rng.random()


class RandomRestarts:
    """Simulates list schedules in random order and reports each that is better than all before."""

    name = "random-restarts"
    title = "the best of many list schedules in random order"
    needs: tuple[str, ...] = ()
    guarantee: Guarantee = "none"

    @dataclass(frozen=True, kw_only=True)
    class Options(PluginOptions):
        restarts: Annotated[int, Ge(1), "How many orders are tried."] = 100

    def supports(self, instance: Instance, objective: Objective) -> str | None:
        """Every instance; else a clause that says why not."""
        return None

    def solve(self, request: Request, report: Report) -> None:
        """Counted, so that one seed gives one result."""
        options = request.options or self.Options()
        rng, best = random.Random(request.seed), None
        until_s = time.monotonic() + request.time_limit_s
        for _ in range(options.restarts):
            plan = simulate(request.instance, RandomOrder(rng))
            found = values(request.objective, request.instance, plan)
            if best is None or found < best:
                best = found
                report.plan(plan)
            if time.monotonic() > until_s:
                return


SOLVER = RandomRestarts()
