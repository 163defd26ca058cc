"""A regressor of run times, learned from jobs as they complete."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optsched.errors import InputError

Floats = NDArray[np.float64]

MODELS = ("ridge", "forest")
FEW = 10
"""Below so many samples nothing is predicted."""
SHRINKAGE = 1.0
LATEST = 2000
"""Samples that a forest is grown from."""
GROWN = 1.2
"""A forest is grown anew when there are so many times as many samples as the last time."""


class DurationModel:
    """Predicts log(run time / work) from features; `ridge` is a linear model, brought up to date
    with each sample, `forest` a random forest of scikit-learn."""

    def __init__(self, kind: str, features: int) -> None:
        self.kind = kind
        self.samples = 0
        self._gram = SHRINKAGE * np.eye(features)
        self._moment = np.zeros(features)
        self._weights: Floats | None = None
        self._x: list[Floats] = []
        self._y: list[float] = []
        self._forest: Any = None
        self._due = FEW
        if kind == "forest":
            _forest_of_sklearn()  # says at once if it is missing

    def learn(self, features: Floats, ratio: float) -> None:
        """One job is done: it ran `ratio` times as long as its work."""
        target = math.log(min(max(ratio, 1e-3), 1e3))
        self.samples += 1
        if self.kind == "ridge":
            self._gram += np.outer(features, features)
            self._moment += features * target
            self._weights = None
            return
        self._x.append(features)
        self._y.append(target)
        del self._x[:-LATEST], self._y[:-LATEST]
        if self.samples >= self._due:
            self._forest = _forest_of_sklearn().fit(np.array(self._x), np.array(self._y))
            self._due = math.ceil(self.samples * GROWN)

    def predict(self, features: Floats) -> Floats | None:
        """The logarithms for rows of features; None as long as too little was seen."""
        if self.samples < FEW:
            return None
        if self.kind == "forest":
            found: Floats = self._forest.predict(features)
            return found
        if self._weights is None:
            self._weights = np.asarray(np.linalg.solve(self._gram, self._moment), dtype=np.float64)
        predicted: Floats = features @ self._weights
        return predicted


def _forest_of_sklearn() -> Any:
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        raise InputError(
            "option model=forest of policy netaware needs scikit-learn; install optsched[learn] "
            "or leave it at ridge"
        ) from None
    return RandomForestRegressor(n_estimators=40, min_samples_leaf=3, random_state=0, n_jobs=1)
