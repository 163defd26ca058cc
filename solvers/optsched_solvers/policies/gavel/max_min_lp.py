"""The linear program of max-min fairness over GPU types, solved from the inside, with a bound."""

import math
from typing import NamedTuple

import numpy as np

from .active import Floats

GAP = 1e-5
"""Relative distance of value and bound at which the search ends."""
MOST_STEPS = 100
TO_EDGE = 0.995
"""Share of the way to the edge of the feasible region that a step may go."""

plus, least = np.add.reduce, np.minimum.reduce


class MaxMin(NamedTuple):
    """`share[a, k]` of the time each job of kind a should spend in column k; `value` is the
    smallest normalised throughput, `bound` what no shares can beat."""

    share: Floats
    value: float
    bound: float


def solve(rate: Floats, gpus: Floats, count: Floats, workers: Floats) -> MaxMin:
    """Maximise min_a sum_k rate[a, k] x[a, k] with sum_k x[a, k] <= 1 for each kind of job, of
    which there are `count[a]`, and sum_a count[a] gpus[a, k] x[a, k] <= workers[k] > 0 for each
    column.

    A primal-dual interior-point method (Mehrotra, SIAM J. Optimization 2, 1992) that starts
    feasible and stays so. Equal jobs are one kind: they get equal shares. Of several optima it ends
    near the analytic centre of all of them: whoever can be given more than the least gets it,
    spread over all columns. Every kind needs a rate above 0 somewhere.
    """
    scale = float(rate.max(axis=1).min())
    search = _Search(
        np.ascontiguousarray(rate.T) / scale, np.ascontiguousarray(gpus.T), count, workers
    )
    with np.errstate(all="ignore"):
        for _ in range(MOST_STEPS):
            if not (search.distance > GAP * search.t and search.step()):
                break
    return MaxMin(search.primal.x.T, search.value() * scale, search.bound() * scale)


class _Point:
    """One vector, and its parts: `x` by column and kind, `s` and `u` by kind, `v` by column.

    Of the primal these are shares, what is left of a job's time, of its throughput beyond the
    least, and of the GPUs; of the dual the prices of the same in the same order, of a job's for one
    job.
    """

    __slots__ = ("all", "s", "u", "v", "x")

    def __init__(self, vector: Floats, columns: int) -> None:
        kinds = (len(vector) - columns) // (columns + 2)
        end = columns * kinds
        self.all = vector
        self.x = vector[:end].reshape(columns, kinds)
        self.s, self.u, self.v = (
            vector[end : end + kinds],
            vector[end + kinds : end + 2 * kinds],
            vector[end + 2 * kinds :],
        )


class _Search:
    """Where the search stands. Arrays are [column, kind]: sums over the few columns are then
    quick."""

    def __init__(self, rate: Floats, gpus: Floats, count: Floats, workers: Floats) -> None:
        self.r, self.g, self.count, self.workers = rate, gpus, count, workers
        self.load = gpus * count
        self.columns, kinds = rate.shape
        self.weight = np.concatenate([np.tile(count, self.columns + 2), np.ones(self.columns)])
        self.pairs = float(self.weight.sum())
        most = np.minimum(
            0.5 / self.columns, 0.5 * workers / np.maximum(self.load.sum(axis=1), 1e-12)
        )
        x = np.repeat(most[:, None], kinds, axis=1)
        reached = (rate * x).sum(axis=0)
        self.t = 0.5 * float(reached.min())
        self.primal = self._point(
            x, 1.0 - x.sum(axis=0), reached - self.t, workers - (self.load * x).sum(axis=1)
        )
        q = np.full(kinds, 1.0 / count.sum())
        w = q[0] / np.maximum(gpus.max(axis=1), 1.0)
        p = q * rate.max(axis=0)
        self.dual = self._point(gpus * w[:, None] + p - q * rate, p, q, w)
        self.products = self.primal.all * self.dual.all
        self.distance = float(self.products @ self.weight)
        self.ratio, self.pull, self.move = (
            _Point(np.empty_like(self.products), self.columns) for _ in range(3)
        )
        """Filled anew at each step."""
        self.identity = np.repeat(np.eye(self.columns)[:, :, None], kinds, axis=2)

    def _point(self, x: Floats, s: Floats, u: Floats, v: Floats) -> _Point:
        return _Point(np.concatenate([x.ravel(), s, u, v]), self.columns)

    def value(self) -> float:
        """Return what the shares give the worst-off job."""
        return float((self.r * self.primal.x).sum(axis=0).min())

    def bound(self) -> float:
        """Return what nobody can beat, whatever the prices are: each job's time in the column that
        is best at them."""
        q, w = self.dual.u, self.dual.v
        time = np.maximum(0.0, (q * self.r - self.g * w[:, None]).max(axis=0))
        return float(self.count @ time + self.workers @ w) / float(self.count @ q)

    def step(self) -> bool:
        """Predict how far the distance would fall, then aim there and correct for the curve. False
        where rounding allows no further step; the point then stays."""
        primal, dual = self.primal.all, self.dual.all
        self._factor()
        move, turn, _ = self._direction(-self.products)
        ahead, back = _room(primal, move), _room(dual, turn)
        reached = float(((primal + ahead * move) * (dual + back * turn)) @ self.weight)
        target = (reached / self.distance) ** 3 * self.distance / self.pairs
        move, turn, rise = self._direction(target - self.products - move * turn)
        ahead, back = min(1.0, TO_EDGE * _room(primal, move)), min(1.0, TO_EDGE * _room(dual, turn))
        if not (ahead * back * abs(rise) < math.inf):
            return False
        primal += ahead * move
        dual += back * turn
        self.t += ahead * rise
        self.products = primal * dual
        self.distance = float(self.products @ self.weight)
        return True

    def _factor(self) -> None:
        """Eliminate each job's own unknowns, all kinds at once: `inverse` is that of the lower
        factor, `pivot` the diagonal; what is left is a system of the columns and t."""
        size = self.columns
        np.divide(self.dual.all, self.primal.all, out=self.ratio.all)
        slope = self.ratio.u
        own = (slope * self.r) * self.r[:, None] + self.ratio.s
        diagonal = _diagonal(own)
        diagonal += self.ratio.x
        self.inverse = self.identity.copy()
        for i in range(size - 1):
            factor = (own[i + 1 :, i] / own[i, i])[:, None]
            own[i + 1 :, i + 1 :] -= factor * own[i, i + 1 :]
            self.inverse[i + 1 :, : i + 1] -= factor * self.inverse[i, : i + 1]
        self.pivot = diagonal
        self.towards = self._solve(self.r) * slope
        self.lean = self.count * slope
        cross = (self.load * self.towards).sum(axis=1)
        system = np.empty((size + 1, size + 1))
        loaded = self.inverse * (self.g * np.sqrt(self.count / self.pivot)[:, None])
        flat = loaded.transpose(1, 0, 2).reshape(size, -1)
        system[:size, :size] = flat @ flat.T
        system.reshape(-1)[: size * (size + 1) : size + 2] += 1.0 / self.ratio.v
        system[:size, size], system[size, :size] = -cross, cross
        system[size, size] = self.lean @ (1.0 - plus(self.r * self.towards))
        self.system = np.linalg.inv(system)

    def _solve(self, y: Floats) -> Floats:
        """Return the inverse of each kind's matrix times its y."""
        half = plus(self.inverse * y, axis=1) / self.pivot
        solution: Floats = plus(self.inverse * half[:, None])
        return solution

    def _direction(self, change: Floats) -> tuple[Floats, Floats, float]:
        """Return the moves of primal, dual and t that change the products of primal and dual by so
        much, to first order; that of the primal until the next call."""
        size, pull, move = self.columns, self.pull, self.move
        np.divide(change, self.primal.all, out=pull.all)
        y = self._solve(pull.x - pull.s + self.r * pull.u)
        right = np.empty(size + 1)
        right[:size] = plus(self.load * y, axis=1) + pull.v / self.ratio.v
        right[size] = self.lean @ plus(self.r * y) - self.count @ pull.u
        solution = self.system @ right
        rise = float(solution[size])
        x = move.x
        np.add(y - self._solve(self.g * solution[:size, None]), self.towards * rise, out=x)
        np.negative(plus(x), out=move.s)
        np.subtract(plus(self.r * x), rise, out=move.u)
        np.negative(plus(self.load * x, axis=1), out=move.v)
        return move.all, pull.all - self.ratio.all * move.all, rise


def _diagonal(blocks: Floats) -> Floats:
    """Return the diagonal of a [column, column, kind] array, as a view."""
    return blocks.reshape(-1, blocks.shape[-1])[:: len(blocks) + 1]


def _room(point: Floats, move: Floats) -> float:
    """Return how much of a move goes until something gets to 0; at most all of it."""
    most = float(least(move / point))
    return 1.0 if most >= -1.0 else -1.0 / most
