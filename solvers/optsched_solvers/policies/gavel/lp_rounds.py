"""Base of Gavel's policies whose shares come from linear programs."""

from typing import Annotated, Literal

import numpy as np

from optsched.driver import World
from optsched.plugins.options import declared_options

from .active import Active, Floats, Kinds
from .program import Allocation, Program, alone
from .rounds import RoundOptions, Rounds, SharingOption
from .sharers import Sharers


@declared_options
class HeterogeneityOption(RoundOptions):
    """For policies that can leave the speeds of GPU types out of account."""

    heterogeneity: Annotated[
        Literal["aware", "agnostic"],
        "Agnostic: all types on which a job can run seem as fast as its fastest.",
    ] = "aware"


@declared_options
class LpOptions(HeterogeneityOption, SharingOption):
    """For policies that can do both, one at a time."""

    def __post_init__(self) -> None:
        if self.sharing == "pairs" and self.heterogeneity == "agnostic":
            raise ValueError("sharing=pairs goes with heterogeneity=aware only")


class LpRounds(Rounds):
    """`allocate` gives shares to the jobs that need GPUs and can have some; one that can run
    without does so always.

    With the option `heterogeneity=agnostic` each job seems to be as fast on every GPU type on which
    it can run as on its fastest, as in the policies of Gavel's simulator that know of no
    heterogeneity.
    """

    def __init__(self, options: HeterogeneityOption) -> None:
        super().__init__(options)
        self.agnostic = options.heterogeneity == "agnostic"
        self._sharers: Sharers | None = None

    def allocate(self, world: World, jobs: list[str], program: Program) -> Allocation:
        """Return shares of these jobs, one row of the program each. What it gives where a job
        cannot run does not count."""
        raise NotImplementedError

    def allocation(self, world: World, active: Active, kinds: Kinds) -> Allocation:
        """Return the shares of all active jobs."""
        rate, gpus = kinds.rate[active.kind], kinds.gpus[active.kind]
        used = (kinds.workers > 0).nonzero()[0]
        share = np.zeros_like(rate)
        share[:, -1] = rate[:, -1] > 0
        rows = ((share[:, -1] == 0) & (rate[:, used].max(axis=1, initial=0.0) > 0)).nonzero()[0]
        if not len(rows):
            return alone(share)
        block = np.ix_(rows, used)
        seen, pairs = rate[block], None
        if self.agnostic:
            seen = np.where(seen > 0, seen.max(axis=1, keepdims=True), 0.0)
        if self.paired:
            self._sharers = self._sharers or Sharers(world, kinds)
            pairs = self._sharers.among(world, active, kinds, rows.tolist(), used)
            seen = pairs.rate[pairs.kind_of_job]
        program = Program(active.kind[rows], seen, gpus[block], kinds.workers[used], pairs)
        allotted = self.allocate(world, [active.ids[i] for i in rows.tolist()], program)
        share[block] = np.where(rate[block] > 0, allotted.share, 0.0)
        return Allocation(
            share,
            rows[allotted.first],
            rows[allotted.second],
            used[allotted.column],
            allotted.fraction,
        )


def remaining_s(world: World, jobs: list[str]) -> Floats:
    """Return the reference work that each job has left, never quite none."""
    work_s = np.array([world.remaining_work_s(job_id) for job_id in jobs])
    left_s: Floats = np.maximum(work_s, max(1e-6 * float(work_s.max()), 1e-9))
    return left_s
