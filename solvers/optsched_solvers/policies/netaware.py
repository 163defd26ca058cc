"""Predicted run time by place from telemetry."""

import math
from collections import defaultdict
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from optsched.driver import Fit, World
from optsched.errors import InputError
from optsched.model import Placement
from optsched.physics import crossed_uplinks, span
from optsched.physics.contention import memory_gbps
from optsched.physics.modes import Option
from optsched.plugins.options import PluginOptions, declared_options

from .parts.by_score import ByScore
from .parts.core_search import category
from .parts.locality_gate import within

MOST_PLACES = 100
"""Places that are looked at, the least loaded; Kubernetes too scores a sample of a large
cluster."""
FEATURES = 10
SAME = 1e-6
"""Run times that differ by a smaller share are the same."""


Floats = NDArray[np.float64]

FEW = 10
"""Below so many samples nothing is predicted."""
SHRINKAGE = 1.0
LATEST = 2000
"""Samples that a forest is grown from."""
GROWN = 1.2
"""A forest is grown anew when there are so many times as many samples as the last time."""


class DurationModel:
    """Predicts log(run time / work) from features; `ridge` is a linear model, brought up to date
    with each sample, `forest` a random forest of scikit-learn, `none` never predicts."""

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
        """Learn that one job is done: it ran `ratio` times as long as its work."""
        target = math.log(min(max(ratio, 1e-3), 1e3))
        self.samples += 1
        if self.kind != "forest":
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
        """Return the logarithms for rows of features; None as long as too little was seen."""
        if self.samples < FEW or self.kind == "none":
            return None
        if self.kind == "forest":
            prediction: Floats = self._forest.predict(features)
            return prediction
        if self._weights is None:
            self._weights = np.asarray(np.linalg.solve(self._gram, self._moment), dtype=np.float64)
        return features @ self._weights


def _forest_of_sklearn() -> Any:
    try:
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        raise InputError(
            "option model=forest of policy netaware needs scikit-learn; install optsched[learn] "
            "or leave it at ridge"
        ) from None
    return RandomForestRegressor(n_estimators=40, min_samples_leaf=3, random_state=0, n_jobs=1)


class NetAware(ByScore):
    """A regressor predicts from telemetry how long the job would run at each place, and the
    shortest is taken.

    Telemetry of a place: load of the memory bandwidth and of the rack uplinks with the job there,
    share of GPUs and cores in use, how far the gang is spread, and how much longer than their work
    earlier jobs ran there, and those of the job's category (profile, else command, else user) on
    that GPU type. The regressor learns from each job that completes; until there are ten, and of
    equal predictions, the least loaded place is taken. It never sees the rates in the profiles.
    Jobs are taken in order of priority and arrival; what does not fit is skipped. The places of a
    gang that fits on no node are one in each rack and the one that best fit finds.

    Source: S. Timilsina, S. Shannigrahi, Learning to schedule, arXiv 2510.21419, 2025.
    """

    name = "netaware"
    title = "each job goes where a regressor, taught by telemetry, predicts the shortest run"

    @declared_options
    class Options(PluginOptions):
        model: Annotated[
            Literal["ridge", "forest", "none"],
            "The regressor; forest needs scikit-learn, none always takes the least loaded place.",
        ] = "ridge"

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.model = DurationModel(options.model, FEATURES)
        self._by_node: defaultdict[str, list[float]] = defaultdict(_nothing)
        self._by_type: defaultdict[tuple[str, str | None], list[float]] = defaultdict(_nothing)
        self._runs: dict[str, tuple[float, float, Floats, Fit]] = {}
        self._features: Floats | None = None
        self._choices_made = 0
        self._right = 0
        self._right_by_default = 0

    def facts(self) -> dict[str, float]:
        """Return how often the place taken was the fastest, of the placements where places
        differed, beside how often the least loaded would have been."""
        made = max(1, self._choices_made)
        return {
            "placements_with_a_difference": self._choices_made,
            "top1_accuracy": self._right / made,
            "top1_accuracy_least_loaded": self._right_by_default / made,
            "jobs_learned_from": self.model.samples,
        }

    # --------------------------------------------------------------------------------------------
    # places

    def alike(self, world: World, job_id: str, fitted: Option) -> tuple[Option, ...]:
        """Return for each GPU type and spread the fastest option with as many GPUs."""
        fastest: dict[object, Option] = {}
        for option in world.options(job_id):
            if option.mode.gpus == fitted.mode.gpus:
                fastest.setdefault((option.mode.gpu_type, option.spread), option)
        return tuple(fastest.values())

    def places(self, world: World, job_id: str, fitted: Option) -> list[Fit]:
        """Return nodes; for a gang that fits on none, racks and what best fit finds."""
        fits = super().places(world, job_id, fitted)
        if fits or fitted.mode.gpus < 2:
            return _least_loaded(world, fits)
        placements: dict[Placement, Option] = {}
        for option in self.alike(world, job_id, fitted):
            need = world.need(job_id, option)
            for nodes in (*world.free.layout.racks, -1):
                placement = world.free.place(within(need, nodes)) if need.nodes & nodes else None
                if placement:
                    placements.setdefault(placement, option)
        return _least_loaded(
            world, [(option, placement) for placement, option in placements.items()]
        )

    # --------------------------------------------------------------------------------------------
    # choices

    def choose(self, world: World, job_id: str, places: list[Fit]) -> Fit:
        """Return the place with the shortest prediction; the first is the least loaded."""
        features = np.array([self._telemetry(world, job_id, fit) for fit in places])
        predicted = self.model.predict(features)
        k = 0 if predicted is None else int(np.argmin(np.round(predicted, 9)))
        self._features = features[k]
        self._judge(world, job_id, places, k)
        return places[k]

    def start(self, world: World, job_id: str) -> bool:
        """Start the job if it fits, and note what was known."""
        fit = self.find(world, job_id)
        if fit is None:
            return False
        work_s = world.remaining_work_s(job_id)
        if self._features is None and fit[1]:
            self._features = np.array(self._telemetry(world, job_id, fit))
        world.start(job_id, *fit)
        if self._features is not None and work_s > 0:
            self._runs[job_id] = world.now_s, work_s, self._features, fit
        self._features = None
        return True

    def released(self, world: World, job_id: str) -> None:
        """Learn from a job that is done."""
        run = self._runs.pop(job_id, None)
        if run is None or world.is_active(job_id):
            return  # it failed, or its node was lost
        started_s, work_s, features, (option, placement) = run
        ratio = (world.now_s - started_s) / work_s
        self.model.learn(features, ratio)
        log = float(np.log(min(max(ratio, 1e-3), 1e3)))
        own = self._by_type[category(world.job(job_id)), option.mode.gpu_type]
        for sums in (own, *(self._by_node[slot.node] for slot in placement)):
            sums[0] += log
            sums[1] += 1

    def _telemetry(self, world: World, job_id: str, fit: Fit) -> list[float]:
        """Return what is known of a place before the job is there."""
        option, placement = fit
        cluster, profile = world.cluster, world.profile(job_id)
        memory = uplink = 0.0
        for slot in placement:
            capacity = cluster.node[slot.node].memory_gbps
            if capacity:
                own = memory_gbps(world.job(job_id), option.mode)
                own *= slot.gpus if option.mode.gpus else 1
                memory = max(memory, (world.memory_load_gbps(slot.node) + own) / capacity)
        for rack in crossed_uplinks(cluster, placement):
            if cluster.rack_uplink_gbps[rack]:
                load = world.uplink_load_gbps(rack) + profile.network_gbps
                uplink = max(uplink, load / cluster.rack_uplink_gbps[rack])
        spread = span(cluster, placement)
        sums = [self._by_node[slot.node] for slot in placement]
        own_sum = self._by_type[category(world.job(job_id)), option.mode.gpu_type]
        return [
            1.0,
            own_sum[0] / (own_sum[1] + 1),
            max((total / (count + 1) for total, count in sums), default=0.0),
            memory,
            max(0.0, memory - 1),
            uplink,
            max(0.0, uplink - 1),
            float(spread == "rack"),
            float(spread == "cluster"),
            _load(world, fit),
        ]

    def _judge(self, world: World, job_id: str, places: list[Fit], k: int) -> None:
        """Count whether the place taken, and the least loaded, are the fastest as things stand."""
        if len(places) < 2:
            return
        run_s = [world.expected_run_s(job_id, *fit) for fit in places]
        best_s = min(run_s) * (1 + SAME)
        if max(run_s) > best_s:
            self._choices_made += 1
            self._right += run_s[k] <= best_s
            self._right_by_default += run_s[0] <= best_s


def _nothing() -> list[float]:
    """Return a sum and count of nothing."""
    return [0.0, 0.0]


def _least_loaded(world: World, places: list[Fit]) -> list[Fit]:
    """Return the least loaded places; of equal ones that on the first nodes in the cluster, however
    fast."""
    order = world.cluster.node_order
    return sorted(
        places, key=lambda fit: (_load(world, fit), *(order[slot.node] for slot in fit[1]))
    )[:MOST_PLACES]


def _load(world: World, fit: Fit) -> float:
    """Return the mean share of GPUs and cores in use on the nodes of a place, as the Kubernetes
    default weighs them."""
    shares = []
    for slot in fit[1]:
        node = world.cluster.node[slot.node]
        if node.gpus:
            shares.append(1 - world.free.gpus_on(slot.node) / node.gpus)
        if node.cpus:
            shares.append(1 - world.free.cpus_on(slot.node) / node.cpus)
    return sum(shares) / len(shares) if shares else 0.0
