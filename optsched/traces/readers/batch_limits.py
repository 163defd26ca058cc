"""How a batch is divided among GPUs and passes.

Source: A. Qiao et al., Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning,
OSDI'21, section 3, and `goodput.py` of its artifact for what the paper leaves open.
"""

import numpy as np
from numpy.typing import NDArray

from ...frozen import record

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BATCHES = 50
"""Batch sizes that are tried, evenly spaced by ratio."""
ROUNDING = 1e-8


@record
class Limits:
    """Batch sizes that a job may use: of a step from `smallest` to `largest`, of a GPU in one pass
    from `smallest_local` to `largest_local`."""

    smallest: int
    largest: int
    smallest_local: int
    largest_local: int

    def divisions(self, gpus: int) -> tuple[Ints, Ints]:
        """Return ways to divide batches among `gpus` GPUs: the batch of a GPU in one pass, and how
        many passes a step makes before the one that synchronises. Empty where even the largest
        batch is too small for so many.

        One GPU makes at least two passes for more than the smallest batch: with a single one the
        gradient's variance cannot be told.
        """
        least = max(self.smallest, self.smallest_local * gpus)
        if least > self.largest:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        own = np.geomspace(least, self.largest, BATCHES) / gpus
        passes = np.ceil(own / self.largest_local - ROUNDING) - 1
        if gpus == 1:
            passes = np.where(own > self.smallest + ROUNDING, np.maximum(passes, 1), passes)
        local = np.ceil(own / (passes + 1) - ROUNDING)
        local = np.minimum(
            local, self.largest // (gpus * (passes + 1))
        )  # the last is not rounded up beyond the most
        allowed = (self.smallest_local <= local) & (local <= self.largest_local)
        allowed &= gpus * local * (passes + 1) >= self.smallest
        pairs = np.unique(np.stack((local, passes), axis=1)[allowed].astype(np.int64), axis=0)
        return pairs[:, 0], pairs[:, 1]
