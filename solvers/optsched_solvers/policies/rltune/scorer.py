"""The learned scorer: one small network for every job, and the file that holds it."""

import json
import math
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optsched.errors import InputError
from optsched.frozen import record

Floats = NDArray[np.float64]

FEATURES = 7
VISIBLE_JOBS = 128
"""Jobs of the queue that the scorer sees."""
MOST_WAIT_S = 12 * 3600.0
NEARLY = 1.0 - 1e-5
HARDLY = 1e-5


FORMAT = "optsched-weights/1"
LAYERS = (FEATURES, 32, 16, 8, 1)
DIGITS = 5
"""Decimals of a weight in a file."""


class Present(NamedTuple):
    """The cluster now: GPUs free and in all, nodes with some but not all GPUs free and in all, GPUs
    of the largest."""

    free_gpus: int
    gpus: int
    fragmented: int
    nodes: int
    per_node: int


def features(
    present: Present, waits_s: Floats, gpus: Floats, tiers: Sequence[tuple[int, int]]
) -> Floats:
    """Return one row a visible job: waiting time, GPUs, demand over supply, availability in the
    near future, fragmentation, ways to schedule, can be scheduled now. `tiers` has the number of
    ways of tiers 1 and 2 of each."""
    rows = np.empty((len(gpus), FEATURES))
    rows[:, 0] = np.minimum(waits_s / MOST_WAIT_S, NEARLY)
    rows[:, 1] = np.minimum(gpus / present.per_node, NEARLY)
    rows[:, 2] = np.minimum(gpus / max(present.free_gpus, 1e-5) / max(present.gpus, 1), NEARLY)
    others = gpus.sum() - gpus
    left = (present.free_gpus - gpus) - others
    rows[:, 3] = np.clip((left + present.gpus) / (2.0 * present.gpus + 1e-5), 0.0, NEARLY)
    rows[:, 4] = present.fragmented / max(present.nodes, 1e-5)
    first = np.array([number for number, _ in tiers])
    ways = np.minimum(first, 2) + np.array([min(two, 1) for _, two in tiers])
    rows[:, 5] = np.where(ways > 0, np.minimum(ways / 3.0, NEARLY), HARDLY)
    rows[:, 6] = np.where(first > 0, np.where(ways >= 2, NEARLY * 1.5, NEARLY), HARDLY)
    return rows


@record
class Scorer:
    """A network 7-32-16-8-1 with ReLU between its layers, the same for every job; `about` says how
    it came to be."""

    layers: tuple[tuple[Floats, Floats], ...]
    about: dict[str, Any] = field(default_factory=dict)

    def scores(self, rows: Floats) -> Floats:
        """Return the highest is picked; one a row."""
        for weights, bias in self.layers[:-1]:
            rows = np.maximum(rows @ weights + bias, 0.0)
        weights, bias = self.layers[-1]
        return (rows @ weights + bias)[:, 0]

    def vector(self) -> Floats:
        """Return all parameters, layer by layer."""
        return np.concatenate([part.ravel() for layer in self.layers for part in layer])

    def rounded(self) -> "Scorer":
        """Return it as it will come back from a file."""
        return Scorer(
            tuple((_rounded(weights), _rounded(bias)) for weights, bias in self.layers), self.about
        )

    def dump(self, about: dict[str, Any] | None = None) -> str:
        """Return the text of a weights file that says `about` itself how it came to be, one row of
        weights a line."""
        head = {"format": FORMAT, "policy": "rltune", **(self.about if about is None else about)}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        layers = []
        for weights, bias in self.layers:
            rows = ",\n".join(
                f"      {json.dumps([round(float(weight), DIGITS) for weight in row])}"
                for row in weights
            )
            biases = json.dumps([round(float(number), DIGITS) for number in bias])
            layers.append(f'    {{"weights": [\n{rows}],\n     "bias": {biases}}}')
        return "\n".join(["{", *lines, '  "layers": [', ",\n".join(layers), "  ]", "}"]) + "\n"


def _rounded(values: Floats) -> Floats:
    return np.array([round(float(number), DIGITS) for number in values.ravel()]).reshape(
        values.shape
    )


def from_vector(vector: Floats) -> Scorer:
    """Return the scorer with these parameters."""
    layers, at = [], 0
    for inputs, outputs in pairwise(LAYERS):
        weights = vector[at : at + inputs * outputs].reshape(inputs, outputs)
        at += inputs * outputs
        layers.append((weights, vector[at : at + outputs]))
        at += outputs
    return Scorer(tuple(layers))


def untrained(seed: int) -> Scorer:
    """Return a scorer of random weights (He), no biases."""
    rng = np.random.default_rng(seed)
    layers = tuple(
        (rng.normal(0.0, math.sqrt(2.0 / inputs), (inputs, outputs)), np.zeros(outputs))
        for inputs, outputs in pairwise(LAYERS)
    )
    return Scorer(layers)


def read(path: str | Path) -> Scorer:
    """Return the scorer in a weights file. Raises InputError for anything else."""
    try:
        content = json.loads(Path(path).read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path}: is not a weights file: {error}") from None
    if (
        not isinstance(content, dict)
        or content.get("format") != FORMAT
        or content.get("policy") != "rltune"
    ):
        raise InputError(
            f'{path}: is not a weights file of rltune, which has "format": "{FORMAT}", "policy": '
            '"rltune"'
        )
    try:
        layers = tuple(
            (np.array(layer["weights"], dtype=float), np.array(layer["bias"], dtype=float))
            for layer in content["layers"]
        )
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{path}: layers must have weights and bias, all of them numbers"
        ) from None
    for (weights, bias), shape in zip(layers, pairwise(LAYERS), strict=False):
        if weights.shape != shape or bias.shape != shape[1:]:
            raise InputError(
                f"{path}: a layer has weights {weights.shape} and bias {bias.shape}, expected "
                f"{shape}"
            )
        if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
            raise InputError(f"{path}: a weight is not finite")
    if len(layers) != len(LAYERS) - 1:
        raise InputError(f"{path}: has {len(layers)} layers, expected {len(LAYERS) - 1}")
    about = {
        key: value for key, value in content.items() if key not in ("format", "policy", "layers")
    }
    return Scorer(layers, about)
