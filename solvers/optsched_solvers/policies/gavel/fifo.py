"""Gavel's first in, first out."""

import random
from collections import deque
from typing import Annotated, Literal

import numpy as np

from optsched.driver import World
from optsched.plugins.options import declared_options

from .active import IDLE, Active, Floats, Kinds
from .program import Allocation, alone
from .rounds import RoundOptions, Rounds


class GavelFifo(Rounds):
    """Each job gets all its time on one GPU type, in order of arrival, and is not moved to another.

    `choice=fastest` takes the type on which the job is fastest among those with enough GPUs, and
    computes all anew each time (their `fifo_perf`). `choice=published` (default) is what the public
    simulator's `fifo` does, which is neither that nor the random type that its authors meant:

    - the type is the last in alphabetical order (v100 after p100 and k80) that has any GPU left,
      even where the job needs more than are left: such jobs then take turns, while GPUs of other
      types may idle;
    - a job that ends hands its type to the head of the queue while the GPUs of later jobs are not
      yet counted as used, which overbooks types as well;
    - a type that has exactly no GPU left is struck out at a random position of the list, not at its
      own. The random numbers are those of seed 0.
    """

    name = "gavel-fifo"
    title = "Gavel's first in, first out on one GPU type each, in rounds"
    fills = False

    @declared_options
    class Options(RoundOptions):
        choice: Annotated[
            Literal["published", "fastest"],
            "The GPU type of a job: what the public simulator takes, or its fastest with enough "
            "GPUs left.",
        ] = "published"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.choice = options.choice
        self._random = random.Random(0)
        self._type: dict[str, int] = {}

    def allocation(self, world: World, active: Active, kinds: Kinds) -> Allocation:
        """Return 1 on the type of each job that has one."""
        if self.choice == "fastest":
            column = _fastest(kinds.rate[active.kind], kinds.gpus[active.kind], kinds.workers)
        else:
            if not self._type:  # who runs when the simulation starts stays
                running = zip(active.ids, active.column, strict=True)
                self._type = {job_id: k for job_id, k in running if 0 <= k < kinds.columns - 1}
            self._type = _published(self._random, self._type, active, kinds)
            column = [self._type.get(job_id, IDLE) for job_id in active.ids]
        share = np.zeros((len(active.ids), kinds.columns))
        for i, k in enumerate(column):
            if k != IDLE:
                share[i, k] = 1.0
        share[kinds.rate[active.kind, -1] > 0, -1] = 1.0
        return alone(share)


def _published(
    draw: random.Random, before: dict[str, int], active: Active, kinds: Kinds
) -> dict[str, int]:
    """Return the type of each job after jobs have come or gone, given those before in order of
    arrival; see `GavelFifo`."""
    names = sorted(range(len(kinds.gpu_types)), key=lambda k: str(kinds.gpu_types[k]))
    able = kinds.rate[active.kind] > 0
    gang = kinds.gpus[active.kind].max(axis=1)
    free = kinds.workers.tolist()
    waiting = deque(
        i for i, job_id in enumerate(active.ids) if job_id not in before and not able[i, -1]
    )
    placed: dict[int, int] = {}
    for job_id, k in before.items():
        row = active.row.get(job_id)
        if row is None and waiting and able[waiting[0], k] and gang[waiting[0]] <= free[k]:
            row = waiting.popleft()
        if row is not None:
            placed[row] = k
            free[k] -= gang[row]
    open_types = [k for k in names if free[k] > 0]
    while waiting and open_types:
        row = waiting.popleft()
        roomy = [at for at, k in enumerate(open_types) if free[k] >= gang[row]]
        if not roomy:
            break
        drawn = roomy[draw.randrange(len(roomy))]
        usable = [k for k in open_types if able[row, k]]
        if usable:
            k = usable[-1]
            placed[row] = k
            free[k] -= gang[row]
            if free[k] == 0:
                del open_types[drawn]
    return {active.ids[row]: placed[row] for row in sorted(placed)}


def _fastest(rate: Floats, gpus: Floats, workers: Floats) -> list[int]:
    """Return the fastest column with room for each row, in order; none from the first that has
    none."""
    left = workers.copy()
    columns = [IDLE] * len(rate)
    for i, (own_rate, own_gpus) in enumerate(zip(rate, gpus, strict=True)):
        if own_rate[-1] > 0:
            continue  # it needs no GPU
        fits = ((own_rate > 0) & (own_gpus <= left)).nonzero()[0]
        if not len(fits):
            break
        columns[i] = k = int(fits[own_rate[fits].argmax()])
        left[k] -= own_gpus[k]
    return columns
