"""What Pollux's agent learns of a job while it runs: how long a step takes where it was not tried.

A pass of a batch of m examples on a GPU takes T_pass = alpha_c + beta_c m, what K GPUs exchange
after it T_sync = alpha + beta (K - 2), with an alpha and a beta (at K > 2) of their own for gangs
on one node and over several; nothing on one GPU. A step takes (T_pass^gamma + T_sync^gamma)^(1 /
gamma), gamma between 1 (one after the other) and 10 (both at once), and each pass before it that
only accumulates gradients T_pass.

Source: A. Qiao et al., Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning,
OSDI'21, section 3.2 and 4.1, and `goodput.py` of its artifact.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_S = 1e-8
"""What counts as no time."""
DEAREST_OVERLAP = 10.0
OVER_NODES = 1.1
"""Until a gang was on several nodes, exchanges there are taken to be slower by this."""
GAMMA_WEIGHT, RETROGRESSION_WEIGHT = 1e-3, 1e-2
STARTS = (1.001, 4.0)
"""Values of gamma from which parameters are searched."""
STEPS = 60
DELTA = 1e-6
MOST_EXPONENT, LEAST_CURVATURE = 40.0, 1e-9
ENOUGH = 1e-7
"""A smaller gain ends the search for parameters."""
RESIDUAL = 1e-4
"""Below this the logarithmic error of predictions counts by its square."""


class Seen(NamedTuple):
    """A configuration that was tried: nodes and GPUs, the batch of a GPU in one pass, the seconds
    of a pass where they are known, and those of a step with what is exchanged."""

    nodes: int
    gpus: int
    local: float
    pass_s: float | None
    step_s: float


class Performance(NamedTuple):
    """Parameters of the model, times in seconds."""

    pass_s: float
    pass_s_per_example: float
    nodes_s: float
    nodes_s_per_gpu: float
    node_s: float
    node_s_per_gpu: float
    overlap: float

    def times(self, nodes: Floats, gpus: Floats, local: Floats) -> tuple[Floats, Floats]:
        """Return seconds of a pass and of a step."""
        pass_s, step_s = _times(np.array([self]), nodes, gpus, local)
        return pass_s[0], step_s[0]

    def step_s(self, nodes: int, gpus: int, local: float, passes: int = 0) -> float:
        """Return the seconds of a step after so many passes that only accumulate."""
        own, step = self.times(np.array([nodes]), np.array([gpus]), np.array([local]))
        return float(step[0] + passes * own[0])


def _times(parameters: Floats, nodes: Floats, gpus: Floats, local: Floats) -> tuple[Floats, Floats]:
    """Return seconds of a pass and of a step, for each row of parameters."""
    own_s, per_example_s, nodes_s, nodes_per_s, node_s, node_per_s, overlap = parameters.T[
        ..., np.newaxis
    ]
    pass_s = own_s + per_example_s * local
    beyond = np.maximum(gpus - 2.0, 0.0)
    sync_s = np.where(
        nodes > 1,
        nodes_s + nodes_per_s * beyond,
        np.where(gpus > 1, node_s + node_per_s * beyond, LEAST_S),
    )
    ratio = np.maximum(pass_s, sync_s)
    step_s = ratio * ((pass_s / ratio) ** overlap + (sync_s / ratio) ** overlap) ** (1.0 / overlap)
    return pass_s, step_s


def fit(seen: Sequence[Seen], share: float) -> Performance:
    """Return the parameters with the least sum of the root mean square logarithmic errors of passes
    and of steps, 1e-3 (gamma - 1)^2 and 1e-2 (beta / alpha)^2 of both kinds of exchange.

    What nothing was seen of counts as none: exchanges on one node, over several and among more than
    two GPUs; those over several nodes are then 1.1 times as slow as those on one. With one batch
    size `share` of a pass is taken to be the same for any.
    """
    data = _Data(seen)
    scale_s = float(data.step_s.mean())
    start = np.array([0.3, 0.7 / data.local.mean(), 0.1, 0.01, 0.1, 0.01, 0.0]) * scale_s
    free = np.ones(7, bool)
    if len({*data.local.tolist()}) == 1:
        start[0], free[0] = max(share * data.least_pass_s, LEAST_S), False
        start[1] = (1.0 - share) * data.least_pass_s / data.local[0]
    over, within = data.nodes > 1, (data.nodes == 1) & (data.gpus > 1)
    for unseen, which in (
        (not over.any(), (2, 3)),
        (not within.any(), (4, 5)),
        (not (data.gpus > 2).any(), (3, 5)),
    ):
        if unseen:
            start[[*which]], free[[*which]] = LEAST_S * scale_s, False
    found = _Search(data, start, free).least()
    if not over.any():
        found[2] = max(found[2], OVER_NODES * found[4])
        found[3] = max(found[3], OVER_NODES * found[5])
    return Performance(*map(float, found))


class _Data:
    """What was seen, in columns."""

    def __init__(self, seen: Sequence[Seen]) -> None:
        self.nodes = np.array([float(one.nodes) for one in seen])
        self.gpus = np.array([float(one.gpus) for one in seen])
        self.local = np.array([float(one.local) for one in seen])
        self.step_s = np.array([one.step_s for one in seen])
        alone = [one.step_s if one.gpus == 1 else None for one in seen]
        passes = [
            own if one.pass_s is None else one.pass_s for one, own in zip(seen, alone, strict=True)
        ]
        self.known = np.array([one is not None for one in passes])
        self.pass_s = np.array([one for one in passes if one is not None])

    @property
    def least_pass_s(self) -> float:
        """Return the mean of the passes, or of the steps where no pass is known."""
        return float((self.pass_s if len(self.pass_s) else self.step_s).mean())


class _Search:
    """Gauss-Newton steps with damping, the errors weighed so that their roots add up."""

    def __init__(self, data: _Data, start: Floats, free: NDArray[np.bool_]) -> None:
        self.data, self.start, self.free = data, start, np.flatnonzero(free)

    def parameters(self, points: Floats) -> Floats:
        """Return the parameters at points, a row each: logarithms of the times, and gamma as it
        is."""
        found = np.repeat(self.start[np.newaxis], len(points), axis=0)
        found[:, self.free] = np.exp(np.clip(points, -MOST_EXPONENT, MOST_EXPONENT))
        found[:, 6] = np.minimum(np.maximum(points[:, -1], 1.0), DEAREST_OVERLAP)
        return found

    def errors(self, points: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the logarithmic errors of passes and of steps, and the roots of what is charged
        for the parameters, a row for each point."""
        data, found = self.data, self.parameters(points)
        pass_s, step_s = _times(found, data.nodes, data.gpus, data.local)
        charged = np.stack(
            [
                GAMMA_WEIGHT**0.5 * (found[:, 6] - 1.0),
                RETROGRESSION_WEIGHT**0.5 * found[:, 3] / found[:, 2],
                RETROGRESSION_WEIGHT**0.5 * found[:, 5] / found[:, 4],
            ],
            axis=1,
        )
        passes = np.log(pass_s[:, data.known] / data.pass_s)
        return passes, np.log(step_s / data.step_s), charged

    def value(self, x: Floats) -> float:
        """Return what is minimised."""
        passes, steps, charged = self.errors(x[np.newaxis])
        return _root(passes) + _root(steps) + float((charged**2).sum())

    def least(self) -> Floats:
        """Return the best parameters that are found."""
        best = min(map(self._from, STARTS), key=self.value)
        found: Floats = self.parameters(best[np.newaxis])[0]
        return found

    def _from(self, overlap: float) -> Floats:
        """Return the point that is reached from where exchanges overlap so much."""
        x: Floats = np.log(np.append(self.start[:-1], np.exp(overlap))[self.free])
        value, damping = self.value(x), 1e-2
        for _ in range(STEPS):
            passes, steps, charged = self.errors(x + np.vstack([0 * x, DELTA * np.eye(len(x))]))
            weighed = _weight(passes[:1]) * passes, _weight(steps[:1]) * steps, charged
            residuals = np.concatenate(weighed, axis=1)
            slopes = (residuals[1:] - residuals[0]) / DELTA
            normal = slopes @ slopes.T
            damped = normal + damping * np.diag(np.maximum(np.diag(normal), LEAST_CURVATURE))
            to = x - np.linalg.solve(damped, slopes @ residuals[0])
            reached = self.value(to)
            if reached < value:
                gained, x, value = value - reached, to, reached
                damping = max(damping / 4, 1e-9)
                if gained < ENOUGH:
                    break
            else:
                damping *= 8
                if damping > 1e9:
                    break
        return x


def _root(errors: Floats) -> float:
    """Return the root of the mean square, its square over `RESIDUAL` where that is less."""
    return _rounded_root(errors) - RESIDUAL if errors.size else 0.0


def _weight(errors: Floats) -> float:
    """Return the weight of an error by which the sum of squares has the slope of the root."""
    return 1.0 / math.sqrt(2.0 * errors.size * _rounded_root(errors)) if errors.size else 0.0


def _rounded_root(errors: Floats) -> float:
    return math.sqrt(float((errors**2).mean()) + RESIDUAL**2)
