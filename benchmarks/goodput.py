"""Pollux where goodput changes with progress and is learned while jobs run.

    python -m benchmarks.goodput                      # all eight workloads, each kind of goodput
    python -m benchmarks.goodput --workloads 6        # one of them

In the simulator a job has one rate at a count of GPUs, whatever it has done. Here each epoch has
its own, by the measured times of a step and the gradient noise of that epoch, and Pollux's
allocation (`optsched_solvers.policies.pollux.exact`) is asked each minute with what it believes:

- `mean`: the rates of the simulator, harmonic means over the whole training.
- `known`: the goodput of the epoch under way in each configuration.
- `learned`: the model that Pollux's agent fits to the configurations that the job has run in, at
  the gradient noise that it has seen last; a job's GPUs are its speedup until something was seen.
  It chooses the batch size, too, but for `ncf`, which has one GPU and its largest batch, as there.

Each kind is held against what the artifact published of Pollux, Tiresias and Optimus on the same
160 jobs on 16 nodes of four T4: the mean change over the workloads with a 95 % interval, and for
each application that against the published Pollux. Epochs are not rounded to whole seconds here,
as they are there, and the allocation is the best one where a genetic search is published.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.command_line import parser_of, tell
from benchmarks.data import DATA
from optsched.model.job import Elastic
from optsched.study.intervals import mean_interval
from optsched.traces.readers import pollux
from optsched.traces.readers.batch_limits import Floats, Ints
from optsched.traces.readers.pollux import MOST_GPUS_PER_NODE, ONE_GPU, RESTART_S, packed
from optsched.traces.readers.pollux_application import Application, Shape
from optsched_solvers.policies.pollux.agent import Performance, Seen, fit
from optsched_solvers.policies.pollux.exact import best
from optsched_solvers.policies.pollux.state import (
    LEAST_SPEEDUP,
    Candidate,
    Free,
    Parts,
    Size,
    State,
)

NODES = 16
ROUND_S = 60.0
SHARE = 0.5
"""Of a pass, the part that is the same for any batch, until a job has run with several."""
DONE = 1e-9
Kind = Literal["mean", "known", "learned"]
KINDS: tuple[Kind, ...] = ("mean", "known", "learned")


# ------------------------------------------------------------------------------------- truth


class Choices(NamedTuple):
    """Ways to divide batches among GPUs: GPUs, batch of one in a pass, and accumulating passes."""

    gpus: Ints
    local: Ints
    passes: Ints

    @property
    def batch(self) -> Ints:
        """Return the examples of a step."""
        whole: Ints = self.gpus * self.local * (self.passes + 1)
        return whole


class Truth:
    """What an application does: times of a step, and how far it leads, epoch by epoch."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.epochs = application.epochs
        self.first = application.smallest_batch

    @cache  # noqa: B019 (there are six of them)
    def choices(self, gpus: int) -> Choices:
        """Return the ways to divide batches among so many GPUs."""
        local, passes = self.application.limits.divisions(gpus)
        return Choices(np.full(len(local), gpus), local, passes)

    @cache  # noqa: B019
    def times(self, shape: Shape) -> tuple[Floats, Floats]:
        """Return the seconds of a pass and of a step of each way on a placement."""
        local = self.choices(sum(shape)).local.tolist()
        both = np.array([self.application.step_times(shape, m) for m in local]).reshape(-1, 2)
        return both[:, 0] - both[:, 1], both[:, 0]

    @cache  # noqa: B019
    def seconds(self, shape: Shape) -> Floats:
        """Return the seconds of each epoch (rows) with each way on a placement."""
        choices = self.choices(sum(shape))
        pass_s, step_s = self.times(shape)
        steps = self.application.steps(choices.batch)
        seconds: Floats = steps * (step_s + choices.passes * pass_s)
        return seconds

    @cache  # noqa: B019
    def gradient(self, gpus: int) -> tuple[Floats, Floats]:
        """Return the squared norm and variance of the gradient, by epoch and way."""
        return self.application.gradients(self.choices(gpus).batch)

    @cache  # noqa: B019
    def goodput(self, shape: Shape) -> Floats:
        """Return the share of each epoch that is done in a second, in the best way."""
        rates: Floats = 1.0 / self.seconds(shape).min(axis=1)
        return rates

    @cache  # noqa: B019
    def mean_rate(self, shape: Shape) -> float:
        """Return the share of a whole training that is done in a second, the best way in each
        epoch."""
        return 1.0 / self.application.adaptive_run_s(shape)

    @cache  # noqa: B019
    def all_choices(self, most: int) -> tuple[Choices, Ints]:
        """Return the ways on 1, 2, ... GPUs, one after the other, and where those of each begin."""
        every = [self.choices(gpus) for gpus in range(1, most + 1)]
        first = np.cumsum([0, *(len(own.gpus) for own in every[:-1])])
        return Choices(*(np.concatenate(column) for column in zip(*every, strict=True))), first


def shape_of(gpus: int, one_node: bool) -> Shape:
    """Return the placement that stands for a size: on the fewest nodes, or on two at least."""
    if one_node or gpus > MOST_GPUS_PER_NODE:
        return packed(gpus, MOST_GPUS_PER_NODE)
    return (gpus - gpus // 2, gpus // 2)


# ------------------------------------------------------------------------------------- jobs


@dataclass(eq=False)
class Training:
    """A job with what it has done, holds and has shown."""

    id: str
    truth: Truth
    submit_s: float
    most_gpus: int
    kind: Kind
    epoch: int = 0
    left: float = 1.0
    parts: Parts = ()
    setup_s: float = 0.0
    restarts: int = -1
    most_held: int = 0
    way: int = 0
    seen: dict[tuple[int, int, int], Seen] = field(default_factory=dict)
    model: Performance | None = None
    noise: tuple[float, float] = (0.0, 0.0)
    end_s: float = math.inf

    @property
    def shape(self) -> Shape:
        """Return the GPUs on each node."""
        return tuple(gpus for _, gpus in self.parts)

    @property
    def limit(self) -> int:
        """Return the most GPUs that it may get: at most twice what it has had."""
        return min(max(2 * self.most_held, 1), self.most_gpus)

    def place(self, parts: Parts) -> None:
        """Begin anew on other GPUs, or on none."""
        self.parts = parts
        if parts:
            self.setup_s = RESTART_S
            self.restarts += 1
            self._choose()

    def run(self, now_s: float, for_s: float) -> None:
        """Train for some seconds, epoch by epoch."""
        waits_s = min(self.setup_s, for_s)
        self.setup_s -= waits_s
        left_s = for_s - waits_s
        while left_s > DONE:
            self.most_held = max(self.most_held, sum(self.shape))
            epoch_s = float(self.truth.seconds(self.shape)[self.epoch, self.way])
            self._look()
            works_s = min(left_s, self.left * epoch_s)
            self.left -= works_s / epoch_s
            left_s -= works_s
            if self.left <= DONE:
                self.epoch, self.left = self.epoch + 1, 1.0
                if self.epoch == self.truth.epochs:
                    self.end_s = now_s + for_s - left_s
                    return
            self._choose()

    def _look(self) -> None:
        """Learn from what it does now."""
        if self.kind != "learned":
            return
        gpus, way = sum(self.shape), self.way
        square, variance = self.truth.gradient(gpus)
        self.noise = float(square[self.epoch, way]), float(variance[self.epoch, way])
        local = int(self.truth.choices(gpus).local[way])
        if (len(self.shape), gpus, local) not in self.seen:
            pass_s, step_s = self.truth.times(self.shape)
            self.seen[len(self.shape), gpus, local] = Seen(
                len(self.shape), gpus, local, float(pass_s[way]), float(step_s[way])
            )
            self.model = fit([*self.seen.values()], SHARE)

    def _choose(self) -> None:
        """Choose the batch size: as is believed best, at first the smallest."""
        gpus = sum(self.shape)
        if self.kind != "learned":
            self.way = int(self.truth.seconds(self.shape)[self.epoch].argmin())
        elif self.truth.application.name in ONE_GPU:
            self.way = int(self.truth.choices(gpus).batch.argmax())
        elif self.model is None:
            self.way = int(self.truth.choices(gpus).batch.argmin())
        else:
            choices = self.truth.choices(gpus)
            self.way = int(self._believed(choices, len(self.shape)).argmax())

    def _believed(self, choices: Choices, nodes: int) -> Floats:
        """Return the goodput that the agent believes of ways."""
        assert self.model is not None
        pass_s, step_s = self.model.times(
            np.full(len(choices.gpus), float(nodes)),
            choices.gpus.astype(float),
            choices.local.astype(float),
        )
        square, variance = self.noise
        gain = (variance + square) / (variance * self.truth.first / choices.batch + square)
        goodput: Floats = gain / (step_s + choices.passes * pass_s)
        return goodput

    def values(self) -> tuple[Floats, Floats, float]:
        """Return the goodput that is believed on 1, 2, ... GPUs of one node and of several, and
        where it runs."""
        counts = range(1, self.most_gpus + 1)
        if self.kind == "learned":
            if self.model is None:
                return np.array(counts, float), np.array(counts, float), float(sum(self.shape))
            choices, first = self.truth.all_choices(self.most_gpus)
            alone, spread = (
                np.maximum.reduceat(self._believed(choices, nodes), first) for nodes in (1, 2)
            )
            one_node, gpus = len(self.shape) == 1, sum(self.shape)
            now = float((alone if one_node else spread)[gpus - 1]) if gpus else 0.0
            return alone, spread, now
        alone, spread = (
            np.array(
                [self._known(shape_of(k, one_node)) if k > 1 or one_node else 0.0 for k in counts]
            )
            for one_node in (True, False)
        )
        return alone, spread, self._known(self.shape) if self.parts else 0.0

    def _known(self, shape: Shape) -> float:
        if self.kind == "mean":
            return self.truth.mean_rate(shape)
        return float(self.truth.goodput(shape)[self.epoch])

    def candidate(self, now_s: float, jobs: int) -> Candidate:
        """Return it as Pollux's objective sees it."""
        alone, spread, now = self.values()
        gpus = NODES * MOST_GPUS_PER_NODE
        fair = min(math.ceil(gpus / jobs), self.most_gpus)
        base = float(alone[:fair].max()) * gpus / NODES
        sizes = range(1, self.limit + 1)
        age_s = now_s - self.submit_s
        factor = max(age_s - max(self.restarts, 0) * RESTART_S, 0.0) / (age_s + RESTART_S)
        on_one: dict[Size, float] = {
            (0, k): float(alone[k - 1]) / base for k in sizes if k <= MOST_GPUS_PER_NODE
        }
        over: dict[Size, float] = {(0, k): float(spread[k - 1]) / base for k in sizes if k > 1}
        return Candidate(
            on_one,
            over,
            self.parts,
            now / base,
            factor if self.parts else max(factor, LEAST_SPEEDUP),
        )


# ------------------------------------------------------------------------------------- play


def play(trainings: Sequence[Training]) -> None:
    """Let Pollux allocate each minute until all is done."""
    nodes = tuple(Free(0, MOST_GPUS_PER_NODE) for _ in range(NODES))
    to_come = sorted(trainings, key=lambda job: job.submit_s)[::-1]
    active: list[Training] = []
    now_s = 0.0
    while to_come or active:
        for job in active:
            if job.parts:
                job.run(now_s, ROUND_S)
        now_s += ROUND_S
        active = [job for job in active if job.end_s == math.inf]
        while to_come and to_come[-1].submit_s <= now_s:
            active.append(to_come.pop())
        if active:
            state = State(nodes, tuple(job.candidate(now_s, len(active)) for job in active))
            for job, parts in zip(active, best(state).given, strict=True):
                if parts != job.parts:
                    job.place(parts)


def trainings_of(workload: Path, kind: Kind, truths: Mapping[str, Truth]) -> list[Training]:
    """Return the jobs of a workload, nothing of them done."""
    instance = pollux.read(workload, fixed_batch=False).instance
    return [
        Training(
            id=job.id,
            truth=truths[job.command or ""],
            submit_s=job.submit_s,
            most_gpus=job.gpus.max if isinstance(job.gpus, Elastic) else 1,
            kind=kind,
        )
        for job in instance.jobs
    ]


def published(data: Path, policy: str, workload: str) -> dict[str, float]:
    """Return the completion times that the artifact has."""
    summary = data / "published" / f"results-jobload_{policy}-1.0_summary.json"
    times: dict[str, float] = json.loads(summary.read_text())["jcts"][workload]
    return times


RIVALS = ("pollux", "tiresias", "optimus")


def line_of(
    data: Path, workload: str, kind: Kind, truths: Mapping[str, Truth]
) -> dict[str, object]:
    """Return what came of a workload, and the change against what is published; of each application
    against the published Pollux."""
    name = f"workload-{workload}"
    jobs = trainings_of(data / "workloads" / f"{name}.csv", kind, truths)
    play(jobs)
    times = {job.id: job.end_s - job.submit_s for job in jobs}
    mean_s = fmean(times.values())
    line: dict[str, object] = {"workload": workload, "goodput": kind, "mean_s": round(mean_s, 1)}
    for policy in RIVALS:
        theirs = fmean(published(data, policy, name).values())
        line[f"{policy}_s"] = round(theirs, 1)
        line[policy] = round(mean_s / theirs - 1, 4)
    members: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        members[job.truth.application.name].append(job.id)
    theirs_of = published(data, "pollux", name)
    for application, own in sorted(members.items()):
        change = fmean(times[i] for i in own) / fmean(theirs_of[i] for i in own) - 1
        line[application] = round(change, 4)
    return line


def over_all(kind: Kind, found: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return the mean changes over several workloads, with the half of their intervals."""
    line: dict[str, object] = {"goodput": kind, "workloads": len(found)}
    line["all_s"] = round(fmean(one["mean_s"] for one in found), 1)
    for key in (*RIVALS, "yolov3"):
        change = mean_interval([one[key] for one in found if key in one])
        line[key], line[f"{key}_half"] = round(change.mean, 4), round(change.half or 0.0, 4)
    return line


def main() -> None:
    """Print a line of JSON for each workload and for each kind over all of them."""
    given = parser_of(
        __doc__, data=DATA / "pollux_profiles", workloads=list(range(1, 9)), kinds=",".join(KINDS)
    ).parse_args()
    kinds = [kind for kind in KINDS if kind in given.kinds.split(",")]
    truths = {
        path.parent.name: Truth(Application(path.parent))
        for path in given.data.glob("*/placements.csv")
    }
    for kind in kinds:
        found = []
        for workload in map(str, given.workloads):
            found.append(line_of(given.data, workload, kind, truths))
            tell(found[-1])
        if len(found) > 1:
            tell(over_all(kind, found))


if __name__ == "__main__":
    main()
