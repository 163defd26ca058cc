"""What happened in a simulation, in columns: one row for each stretch in which a job held the same GPUs."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ..instance import Instance, Placement
from ..job import Mode

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Ending(IntEnum):
    """Why a row ends."""

    COMPLETED = 0
    PREEMPTED = 1
    """Its last `checkpoint_s` are spent saving."""
    FAILED = 2
    """The attempt failed: an entry of `Instance.failures`."""
    NODE_LOST = 3
    """An entry of `Instance.outages`."""
    GOES_ON = 4
    """Only the sharing partner changes; the job's next row follows at once."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Record:
    """Rows in the order in which they ended. All columns have one entry a row.

    `job` is the position in `instance.jobs`; `mode` that in `modes` (without partners); `placement` that in
    `placements`; `partner` the position of the job on the same GPUs or -1. `gpu_type` is the position in
    `instance.cluster.gpu_types`, -1 without GPUs; `gpus` and `cpus` are counted over all nodes. `overhead_s` are the
    seconds of the row spent on start-up, restore and checkpoint; `work_s` the reference work done in it, `lost_s` the
    reference work of this stay and row that counts for nothing because of how the row ended. A job's work is
    the sum of its `work_s` less its `lost_s`.
    """

    instance: Instance
    job: Ints
    start_s: Floats
    end_s: Floats
    mode: Ints
    placement: Ints
    partner: Ints
    gpu_type: Ints
    gpus: Ints
    cpus: Ints
    overhead_s: Floats
    work_s: Floats
    lost_s: Floats
    ending: Ints
    modes: tuple[Mode, ...]
    placements: tuple[Placement, ...]
    decision_s: Floats
    """When the policy decided."""
    decision_wall_s: Floats
    """How long each of these decisions took, on the machine's clock; the only column that is not deterministic."""

    @property
    def rows(self) -> int:
        return len(self.job)
