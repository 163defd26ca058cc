"""How long an application of Pollux's measurements trains, by batch size and by the GPUs it holds
on each node."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from ...errors import InputError
from ..tables.table import Row, Table
from .batch_limits import Floats, Ints, Limits

TIMES, GRADIENT = ("step_time", "sync_time"), ("grad_sqr", "grad_var")
SIZE = ("num_nodes", "num_replicas", "local_bsz")
LARGEST_LOCAL_BATCH = {"yolov3": 8}
"""Batch of one GPU in one pass: where Pollux's simulator goes less far than the measurements."""

Shape = tuple[int, ...]
"""GPUs on each node."""
Times = tuple[float, float]
"""Seconds of a step, and of these the seconds of synchronisation that no computation hides."""
ByBatch = dict[int, Times]
"""Measured times by the batch of one GPU."""


class Application:
    """The measurements of one application, read from its folder.

    `placements.csv` has step times by shape (digits: GPUs on each node) for up to four nodes,
    `scalability.csv` by nodes and GPUs for more, `validation-<batch size>.csv` one row an epoch:
    the progress made by its end, in steps of the smallest batch size, and the squared norm and the
    variance of the gradient. Raises InputError with the line of the first fault.
    """

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._adaptive_s: dict[Shape, Floats] = {}
        self._shapes: dict[str, ByBatch] = defaultdict(dict)
        for row in _rows(folder / "placements.csv", "placement", "local_bsz", *TIMES):
            shape = row["placement"]
            if not (shape.isascii() and shape.isdecimal()) or "0" in shape:
                row.refuse("a placement as GPUs on each node, one digit a node", "placement")
            self._shapes[shape][row.whole("local_bsz", least=1)] = _times(row)
        self._sizes = _by_size(self._shapes)
        for row in _rows(folder / "scalability.csv", *SIZE, *TIMES):
            nodes, gpus, local = (row.whole(name, least=1) for name in SIZE)
            self._sizes[nodes][gpus][local] = _times(row)
        batches = {local for measured in self._shapes.values() for local in measured}
        self.smallest_local = min(batches)
        self.largest_local = LARGEST_LOCAL_BATCH.get(self.name, max(batches))
        self._epochs = {
            _batch_size(path): _epochs(path) for path in sorted(folder.glob("validation-*.csv"))
        }
        if not self._epochs:
            raise InputError(
                f"{folder}: has no validation-<batch size>.csv; expected one for each batch size"
            )
        self.smallest_batch, self.largest_batch = min(self._epochs), max(self._epochs)

    def most_gpus(self, batch: int) -> int:
        """Return the most GPUs among which a batch can be divided without leaving what was
        measured."""
        return batch // self.smallest_local

    @property
    def epochs(self) -> int:
        """Return how many epochs a training has: those measured for every batch size."""
        return len(self._progress)

    def run_s(self, batch: int, shape: Shape) -> float:
        """Return the seconds from the first step to the end of the last epoch with a batch of at
        least `batch`."""
        gpus = sum(shape)
        local, accumulated = self._division(batch, gpus)
        step_s, sync_s = self.step_times(shape, local)
        steps = float(self.steps(np.array([gpus * local * (accumulated + 1)])).sum())
        return steps * (step_s + accumulated * (step_s - sync_s))

    @cached_property
    def limits(self) -> Limits:
        """Return the batch sizes between which it was measured."""
        return Limits(
            self.smallest_batch, self.largest_batch, self.smallest_local, self.largest_local
        )

    def adaptive_run_s(self, shape: Shape) -> float:
        """Return the seconds from the first step to the end of the last epoch when each epoch has
        the batch size of the best goodput for its gradient noise, on as many of the GPUs as are
        best for it: early epochs gain nothing from the large batches that many GPUs need."""
        epochs = [self._adaptive_epochs(fewer) for fewer in _within(shape)]
        return float(np.minimum.reduce(epochs).sum())

    def _adaptive_epochs(self, shape: Shape) -> Floats:
        """Return the seconds of each epoch on all GPUs of a placement."""
        if shape not in self._adaptive_s:
            self._adaptive_s[shape] = self._adaptive(shape)
        return self._adaptive_s[shape]

    def _adaptive(self, shape: Shape) -> Floats:
        gpus = sum(shape)
        local, passes = self.limits.divisions(gpus)
        times = np.array(
            [self.step_times(shape, local_batch) for local_batch in local.tolist()]
        ).reshape(-1, 2)
        step_s = times[:, 0] + passes * (times[:, 0] - times[:, 1])
        needed = self.steps(gpus * local * (passes + 1))
        seconds: Floats = (needed * step_s).min(axis=1)
        return seconds

    def steps(self, batch: Ints) -> Floats:
        """Return the steps of each epoch (rows) with each batch: they count for more, the larger
        the batch, by the gradient noise."""
        square, variance = self.gradients(batch)
        scale = batch / self.smallest_batch
        progress = np.diff([0.0, *self._progress])[:, None]
        needed: Floats = progress * ((variance / scale + square) / (variance + square))
        return needed

    def gradients(self, batch: Ints) -> tuple[Floats, Floats]:
        """Return the squared norm and variance of the gradient, by epoch and batch size."""
        sizes = sorted(self._epochs)
        tables = np.array([self._epochs[size][: self.epochs] for size in sizes])
        gradients = [
            np.array(
                [np.interp(batch, sizes, tables[:, epoch, column]) for epoch in range(self.epochs)]
            )
            for column in (1, 2)
        ]
        return gradients[0], gradients[1]

    def _division(self, batch: int, gpus: int) -> tuple[int, int]:
        """Return the batch of one GPU in one pass, and how many passes a step makes before the one
        that synchronises."""
        own = math.ceil(batch / gpus)
        accumulated = math.ceil(own / self.largest_local) - 1
        if gpus == 1 and batch > self.smallest_batch:
            accumulated = max(
                1, accumulated
            )  # the gradient's variance is estimated from several passes
        local = math.ceil(own / (accumulated + 1))
        return min(local, self.largest_batch // (gpus * (accumulated + 1))), accumulated

    @cached_property
    def _progress(self) -> list[float]:
        """Return progress by the end of each epoch."""
        progress = [
            min(epoch[0] for epoch in epochs)
            for epochs in zip(*self._epochs.values(), strict=False)
        ]
        if any(
            later <= earlier for earlier, later in zip([0.0, *progress], progress, strict=False)
        ):
            raise InputError(
                f"{self.name}: the progress in its validation tables does not rise from epoch to "
                "epoch"
            )
        return progress

    def step_times(self, shape: Shape, local: int) -> Times:
        """Return times of one pass and its synchronisation: measured for the shape, else for as
        many nodes and GPUs."""
        turns = ("".join(map(str, shape[i:] + shape[:i])) for i in range(len(shape)))
        name = min(turns)  # a ring looks the same from each of its nodes
        if name in self._shapes:
            return _between(self._shapes[name], local)
        nodes, per_node = len(shape), sum(shape) / len(shape)
        known = sorted(self._sizes)
        i = min(bisect_left(known, nodes), len(known) - 1)
        around = {known[i]} if known[i] <= nodes or i == 0 else {known[i - 1], known[i]}
        return _between({count: self._evenly(count, per_node, local) for count in around}, nodes)

    def _evenly(self, nodes: int, per_node: float, local: int) -> Times:
        by_gpus = self._sizes[nodes]
        return _between(
            {gpus: _between(measured, local) for gpus, measured in by_gpus.items()},
            nodes * per_node,
        )


def _within(shape: Shape) -> list[Shape]:
    """Return the placement, and those of fewer of its GPUs on the fewest of its nodes."""
    placements = []
    for gpus in range(1, sum(shape) + 1):
        left, fewer = gpus, []
        for on_node in shape:
            if left > 0:
                fewer.append(min(left, on_node))
                left -= on_node
        placements.append(tuple(fewer))
    return placements


def _between(points: Mapping[int, Times], at: float) -> Times:
    """Interpolate linearly between the points; beyond the first and the last what was measured
    there."""
    if at in points:
        return points[int(at)]
    known = sorted(points)
    i = bisect_left(known, at)
    if i in (0, len(known)):
        return points[known[min(i, len(known) - 1)]]
    low, high = known[i - 1], known[i]
    share = (at - low) / (high - low)
    (a, b), (c, d) = points[low], points[high]
    return a + (c - a) * share, b + (d - b) * share


def _by_size(shapes: Mapping[str, ByBatch]) -> dict[int, dict[int, ByBatch]]:
    """Return times by nodes and GPUs: the mean over the shapes."""
    alike: dict[tuple[int, int, int], list[Times]] = defaultdict(list)
    for shape, measured in shapes.items():
        for local, times in measured.items():
            alike[len(shape), sum(map(int, shape)), local].append(times)
    by_size: dict[int, dict[int, ByBatch]] = defaultdict(lambda: defaultdict(dict))
    for (nodes, gpus, local), several in alike.items():
        step_s, sync_s = (math.fsum(column) / len(several) for column in zip(*several, strict=True))
        by_size[nodes][gpus][local] = step_s, sync_s
    return by_size


def _rows(path: Path, *columns: str) -> Iterator[Row]:
    rows = Table(path, columns).rows()
    if (first := next(rows, None)) is None:
        raise InputError(f"{path}: has no rows below its header; expected one for each measurement")
    return chain([first], rows)


def _times(row: Row) -> Times:
    step_s, sync_s = map(row.number, TIMES)
    if not 0 <= sync_s <= step_s or step_s == 0:
        row.refuse("a step_time above 0 and a sync_time from 0 to it", *TIMES)
    return step_s, sync_s


def _batch_size(path: Path) -> int:
    size = path.stem.removeprefix("validation-")
    if not (size.isascii() and size.isdecimal()) or int(size) < 1:
        raise InputError(f"{path}: expected a name as validation-128.csv, with the batch size")
    return int(size)


def _epochs(path: Path) -> list[tuple[float, float, float]]:
    return [(row.number("progress"), *_gradient(row)) for row in _rows(path, "progress", *GRADIENT)]


def _gradient(row: Row) -> tuple[float, float]:
    """Return finite numbers >= 0 of any size: gradients are measured with the loss scaled up."""
    try:
        square, variance = (float(row[column]) for column in GRADIENT)
    except ValueError:
        square = variance = math.nan
    if not 0 < square + variance < math.inf or min(square, variance) < 0:
        row.refuse("a grad_sqr and a grad_var >= 0, one of them above 0", *GRADIENT)
    return square, variance
