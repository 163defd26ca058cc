"""Pollux's goodput: how fast a job makes progress on some GPUs when its batch size goes with them.

Source: A. Qiao et al., Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning,
OSDI'21, section 3, and `goodput.py` of its artifact for what the paper leaves open.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import OptschedError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BATCHES = 50
"""Batch sizes that are tried, evenly spaced by ratio."""
LEAST = 1e-8
"""Seconds below which no time of the model goes."""
MOST_OVERLAP = 10.0
ROUNDING = 1e-8


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Parameters of the time of a step.

    One pass over a batch of m takes `alpha_c + beta_c m` seconds. K GPUs synchronise in `alpha +
    beta max(K - 2, 0)` seconds: `alpha_n`, `beta_n` over several nodes, `alpha_r`, `beta_r` on one.
    `gamma` is how far the two overlap: 1 not at all, 10 almost wholly.
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def pass_s(self, local: Floats) -> Floats:
        """Seconds of one pass over a batch of `local` on each GPU."""
        return self.alpha_c + self.beta_c * local

    def sync_s(self, nodes: int, gpus: int) -> float:
        """Seconds in which the gradients of all GPUs are summed."""
        if gpus <= 1:
            return LEAST
        alpha, beta = (self.alpha_n, self.beta_n) if nodes > 1 else (self.alpha_r, self.beta_r)
        return alpha + beta * max(gpus - 2, 0)

    def step_s(self, nodes: int, gpus: int, local: Floats, passes: Floats) -> Floats:
        """Seconds of a step of `passes` passes without synchronisation and one with it."""
        once_s = self.pass_s(local)
        last_s: Floats = (once_s**self.gamma + self.sync_s(nodes, gpus) ** self.gamma) ** (
            1 / self.gamma
        )
        return passes * once_s + last_s


@dataclass(frozen=True, slots=True)
class Noise:
    """Squared norm and variance of the gradient at a batch of `batch`, the one that progress is
    counted in."""

    square: float
    variance: float
    batch: int

    def efficiency(self, batch: Floats) -> Floats:
        """Progress of an example in a batch of `batch`, relative to one in a batch of
        `self.batch`."""
        scale = batch / self.batch
        return (self.variance + self.square) / (self.variance / scale + self.square) / scale


@dataclass(frozen=True, slots=True)
class Limits:
    """Batch sizes that a job may use: of a step from `smallest` to `largest`, of a GPU in one pass
    from `smallest_local` to `largest_local`."""

    smallest: int
    largest: int
    smallest_local: int
    largest_local: int

    def divisions(self, gpus: int) -> tuple[Ints, Ints]:
        """Ways to divide batches among `gpus` GPUs: the batch of a GPU in one pass, and how many
        passes a step makes before the one that synchronises. Empty where even the largest batch is
        too small for so many.

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
        found = {
            (int(one), int(more))
            for one, more in zip(local, passes, strict=True)
            if self.smallest_local <= one <= self.largest_local
            and gpus * one * (more + 1) >= self.smallest
        }
        pairs = np.array(sorted(found), np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


@dataclass(frozen=True, slots=True)
class Goodput:
    """Examples a second, weighed by what they are worth."""

    times: StepTimes
    noise: Noise
    limits: Limits

    def at(self, nodes: int, gpus: int, local: Floats, passes: Floats) -> Floats:
        """Goodput of batches of `local` on each GPU in each of `passes` + 1 passes."""
        batch = gpus * local * (passes + 1)
        throughput = batch / self.times.step_s(nodes, gpus, local, passes)
        return throughput * self.noise.efficiency(batch)

    def best(self, nodes: int, gpus: int) -> tuple[float, int, int]:
        """The best goodput on so many GPUs, with the batch of a GPU and the passes that reach it; 0
        where no batch is large enough for them."""
        local, passes = self.limits.divisions(gpus)
        if not local.size:
            return 0.0, 0, 0
        values = self.at(nodes, gpus, local.astype(np.float64), passes.astype(np.float64))
        i = int(values.argmax())
        return float(values[i]), int(local[i]), int(passes[i])

    def speedup(self, nodes: int, gpus: int) -> float:
        """The best goodput relative to that on one GPU."""
        return self.best(nodes, gpus)[0] / self.best(1, 1)[0]


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement: seconds of a pass, and of a pass with synchronisation."""

    nodes: int
    gpus: int
    local: int
    pass_s: float
    step_s: float


def fit(measured: Iterable[Measured]) -> StepTimes:
    """The parameters under which the measurements are least surprising.

    Minimised are the root mean squared errors of the logarithms of both times, plus 1e-3 (gamma -
    1)^2 and 1e-2 ((beta_n / alpha_n)^2 + (beta_r / alpha_r)^2). What was not measured is taken to
    be fast: without two GPUs their synchronisation is free, without three it does not grow with
    their number, and with batches of one size only half of a pass grows with the batch. Several
    nodes are never taken to be faster than one.

    Raises OptschedError without measurements, or where SciPy is not installed (extra `learn`).
    """
    known = list(measured)
    if not known:
        raise OptschedError("the time of a step cannot be fitted to no measurements")
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise OptschedError(
            "fitting the time of a step needs SciPy: pip install 'optsched[learn]'"
        ) from None
    nodes = np.array([one.nodes for one in known])
    gpus = np.array([one.gpus for one in known])
    local = np.array([one.local for one in known], np.float64)
    log_pass, log_step = (
        np.log([one.pass_s for one in known]),
        np.log([one.step_s for one in known]),
    )
    over = nodes > 1
    alone = gpus <= 1

    def error(point: Floats) -> float:
        alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma = point
        once_s = alpha_c + beta_c * local
        more = np.maximum(gpus - 2, 0)
        sync_s = np.where(over, alpha_n + beta_n * more, alpha_r + beta_r * more)
        sync_s = np.where(alone, LEAST, sync_s)
        step = np.log(once_s**gamma + sync_s**gamma) / gamma
        wrong = np.sqrt(np.mean((np.log(once_s) - log_pass) ** 2)) + np.sqrt(
            np.mean((step - log_step) ** 2)
        )
        return float(
            wrong
            + 1e-3 * (gamma - 1) ** 2
            + 1e-2 * ((beta_n / alpha_n) ** 2 + (beta_r / alpha_r) ** 2)
        )

    start = [0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001]
    bounds: list[tuple[float, float | None]] = [(LEAST, None)] * 6 + [(1.0, MOST_OVERLAP)]
    fixed: dict[int, float] = {}
    if len(set(local.tolist())) == 1:
        fixed[0] = float(np.exp(log_pass).mean()) / 2
    if not over.any():
        fixed.update({2: LEAST, 3: LEAST})
    if not (~over & ~alone).any():
        fixed.update({4: LEAST, 5: LEAST})
    if not (gpus > 2).any():
        fixed.update({3: LEAST, 5: LEAST})
    for i, value in fixed.items():
        start[i], bounds[i] = value, (value, value)
    found = minimize(error, start, bounds=bounds, method="L-BFGS-B").x.tolist()
    if not over.any():
        found[2], found[3] = max(found[2], found[4] * 1.1), max(found[3], found[5] * 1.1)
    return StepTimes(*found)
