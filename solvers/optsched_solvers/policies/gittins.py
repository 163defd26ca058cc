"""Tiresias' discretised Gittins index."""

import math
from typing import Annotated

import numpy as np

from optsched.driver import World
from optsched.estimates.lengths import Lengths
from optsched.plugins.options import PluginOptions, PositiveNumber, declared_options

from .parts.preemptive import Preemptive

FIRST_COMPLETIONS = 10
"""Jobs that must have completed before anything is known of their service; it is looked at again at
each doubling."""
MOST_STEPS = 100_000
"""Beyond so many steps the index counts as 0."""
ROUNDING_GPU_S = 1e-3


class Gittins(Preemptive):
    """Highest Gittins index of GPU service first, with preemption; of a job's own length nothing is
    known.

    The index of a job that has had service a is P(S - a <= step | S > a) / E[min(S - a, step) | S >
    a], with S drawn from the service of the jobs that have completed in the simulation. It is
    looked at whenever a job has had another `step` of service. Jobs of equal index, and all jobs
    until ten have completed, are served in order of arrival.
    """

    name = "gittins"
    title = "highest Gittins index first (likely to complete soon by what completed jobs took), with preemption"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        step: Annotated[
            PositiveNumber, "GPU-seconds of service after which a job's index is looked at again."
        ] = 3250.0

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.step_gpu_s = options.step
        self._services: list[float] = []
        self.refresh_at = FIRST_COMPLETIONS
        self._ranks: list[float] = []

    def rank(self, world: World, job_id: str) -> float:
        """Return the GPU-seconds for each expected completion: one over the index."""
        return self._rank_of(self._steps(world, job_id))

    def rise_s(self, world: World, job_id: str) -> float:
        """Return when a running job has had so much service that its index is lower."""
        steps = self._steps(world, job_id)
        now = self._rank_of(steps)
        for later in range(steps + 1, len(self._ranks) + 1):
            if self._rank_of(later) > now:
                to_go = later * self.step_gpu_s - world.attained_gpu_s(job_id)
                return world.now_s + to_go / world.held_gpus(job_id)
        return math.inf

    def given_back(self, world: World, released: list[str]) -> None:
        """Note the service of jobs that are done; at each doubling of their number look at all
        indices anew."""
        for job_id in dict.fromkeys(released):
            if world.knows(job_id) and not world.is_active(job_id):
                self._services.append(world.attained_gpu_s(job_id))
        if len(self._services) < self.refresh_at:
            return
        self.refresh_at = 2 * len(self._services)
        known = Lengths(self._services, [1.0] * len(self._services))
        count = min(MOST_STEPS, math.ceil(max(self._services) / self.step_gpu_s))
        indices = known.index(np.arange(float(count)) * self.step_gpu_s, self.step_gpu_s)
        self._ranks = [1 / index if index > 0 else math.inf for index in indices.tolist()]
        seen = [job_id for job_id in world.waiting if not world.has_arrived(job_id)]
        self.put_in_order(world, sorted(seen, key=world.order))

    def _steps(self, world: World, job_id: str) -> int:
        return int((world.attained_gpu_s(job_id) + ROUNDING_GPU_S) / self.step_gpu_s)

    def _rank_of(self, steps: int) -> float:
        if not self._ranks:
            return 0.0
        return self._ranks[steps] if steps < len(self._ranks) else math.inf
