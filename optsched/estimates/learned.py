"""Beliefs of a model that is trained, as simulated time goes, on the jobs that have completed."""

import math
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..model import Completed, Job, gang
from .commands import similar
from .history import Group, History, Rolling, by_completion

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

FIRST_TRAINING = 500
"""Completions before the first training; until then beliefs are those of `History`."""
TREES, LEAVES = 40, 15
"""Small: more of either predicted no better on generated workloads, and each tree costs time in
each prediction."""
STEPS_PER_OCTAVE = 2
"""How finely the model sees means of earlier jobs."""
UNKNOWN = -100.0
"""Stands for the logarithm of a mean that there is not yet."""
DAY_S, HOUR_S, WEEKDAYS = 86400.0, 3600.0, 7

Features = tuple[float, ...]


class Learned:
    """Gradient-boosted trees (scikit-learn) that predict the logarithm of a job's work from who
    submits what and when, and from what has completed so far of the same user and command, as the
    predictor of Helios does (Hu et al., SC 2021, section 4.2).

    Trained after 500, 1,000, 2,000, 4,000... completions on all of them, each as it looked when it
    was released; at the beginning on the past, if that is as long. As it is the logarithm that is
    predicted, beliefs are near the median, not the mean. The model sees means of earlier jobs in
    steps of half an octave and their number in powers of two: many jobs look the same, and one
    prediction, which takes about a millisecond, serves all of them. One thread and a fixed seed:
    the same completions give the same beliefs.

    Raises InputError where scikit-learn is not installed.
    """

    name = "learned"

    def __init__(self) -> None:
        if find_spec("sklearn") is None:
            raise InputError(
                "estimates 'learned': scikit-learn is not installed; pip install 'optsched[learn]'"
            )
        self._history = History()
        self._of: dict[Group, Rolling] = {}
        self._codes: dict[tuple[str, object], float] = {}
        self._released: dict[str, Features] = {}
        self._examples = array("d")
        self._log_work = array("d")
        self._next_training = FIRST_TRAINING
        self._model: Any = None
        self._predicted: dict[Features, float] = {}

    @property
    def trained(self) -> bool:
        """Tell whether there is a model yet."""
        return self._model is not None

    def remember(self, past: Sequence[Completed]) -> None:
        """Learn from the past as if it were simulated, but train one model only, at its end."""
        waiting = sorted(past, key=lambda done: (done.job.submit_s, done.job.id), reverse=True)
        for done in sorted(past, key=by_completion):
            while waiting and waiting[-1].job.submit_s <= done.completed_s:
                job = waiting.pop().job
                self._released[job.id] = self._features(job, job.submit_s)
            self._add(done.job, done.work_s, done.completed_s)
        if len(self._log_work) >= self._next_training:
            while self._next_training <= len(self._log_work):
                self._next_training *= 2
            self._train()

    def work_s(self, job: Job, now_s: float) -> float:
        """Return the prediction of the latest model; before there is one, that of `History`."""
        features = self._features(job, now_s)
        self._released[job.id] = features
        if self._model is None:
            return self._history.work_s(job, now_s)
        belief_s = self._predicted.get(features)
        if belief_s is None:
            with _one_thread():
                belief_s = math.exp(float(self._model.predict(np.array([features]))[0]))
            self._predicted[features] = belief_s
        return belief_s

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        """Learn from one more example; at certain numbers of them a new model."""
        self._add(job, worked_s, now_s)
        if len(self._log_work) == self._next_training:
            self._next_training *= 2
            self._train()

    def _add(self, job: Job, worked_s: float, now_s: float) -> None:
        """Add one more example."""
        self._history.completed(job, worked_s, now_s)
        for group in _groups(job):
            self._of.setdefault(group, Rolling()).add(worked_s)
        self._examples.extend(self._released.pop(job.id))
        self._log_work.append(math.log(worked_s))

    def _train(self) -> None:
        from sklearn.ensemble import HistGradientBoostingRegressor

        log_work = np.array(self._log_work)
        model = HistGradientBoostingRegressor(
            max_iter=TREES, max_leaf_nodes=LEAVES, early_stopping=False, random_state=0
        )
        with _one_thread():
            self._model = model.fit(np.array(self._examples).reshape(len(log_work), -1), log_work)
        self._predicted.clear()

    def _features(self, job: Job, now_s: float) -> Features:
        """Return features, none of them made from the length of the job, as weights and deadlines
        often are."""
        profile = job.profile
        like = None if job.command is None else similar(job.command)
        types = tuple(sorted(name for name, rate in profile.rate.items() if rate > 0))
        return (
            self._code("user", job.user),
            self._code("command", like),
            self._code("tenant", job.tenant),
            self._code("types", types),
            len(types),
            gang(job),
            job.cpus,
            job.memory_gib,
            profile.gpu_memory_gib,
            profile.memory_gib_per_gpu,
            now_s % DAY_S // HOUR_S,
            now_s // DAY_S % WEEKDAYS,
            *(number for group in _groups(job) for number in self._past(group)),
        )

    def _code(self, kind: str, name: object) -> float:
        """Return a number for a name: how many were seen before it."""
        return self._codes.setdefault((kind, name), float(len(self._codes)))

    def _past(self, group: Group) -> tuple[float, float]:
        """Return the mean and number of the jobs of a group that have completed, coarse."""
        rolling = self._of.get(group)
        if rolling is None:
            return UNKNOWN, 0.0
        return float(round(STEPS_PER_OCTAVE * math.log2(rolling.mean))), float(
            rolling.count.bit_length()
        )


def _groups(job: Job) -> tuple[Group, ...]:
    """Return the groups whose earlier jobs the model is told of."""
    user, like = job.user, None if job.command is None else similar(job.command)
    return (
        ("command", user, job.command),
        ("similar", user, like),
        ("user", user, gang(job)),
        ("user", user),
        ("similar of any user", like),
    )


def _one_thread() -> "AbstractContextManager[Any]":
    """Return a context of one thread. Sums do not depend on the number of cores; and where others
    are at work, waiting for more threads takes longer than such small models."""
    limited: AbstractContextManager[Any] = _thread_pools().limit(limits=1, user_api="openmp")
    return limited


@cache
def _thread_pools() -> Any:
    import sklearn.ensemble  # noqa: F401 (loads the libraries whose threads are meant)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
