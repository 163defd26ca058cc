"""Simulations under estimates, and a workload of users who repeat themselves."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from optsched import Completed, Instance, Job, Profile
from optsched.estimates import Estimates, learned
from optsched.estimates.parse import parse
from optsched.plugins.registry import policy
from optsched.simulate.record import Record
from optsched.simulate.run import Simulation
from tests.clusters import one_node

KINDS = ("noisy:1", "history", "learned", "none")
needs_sklearn = pytest.mark.skipif(
    learned.find_spec("sklearn") is None, reason="needs the extra `learn`"
)
ALL = [pytest.param(kind, marks=needs_sklearn) if kind == "learned" else kind for kind in KINDS]
HERE = tuple(
    kind for kind in KINDS if kind != "learned" or learned.find_spec("sklearn") is not None
)


class Heard:
    """Passes on to other estimates and writes down what was asked and answered."""

    def __init__(self, inner: Estimates) -> None:
        self.inner = inner
        self.name = inner.name
        self.answers: list[tuple[float, str, float]] = []

    def remember(self, past: Sequence[Completed]) -> None:
        self.inner.remember(past)

    def work_s(self, job: Job, now_s: float) -> float:
        found = self.inner.work_s(job, now_s)
        self.answers.append((now_s, job.id, found))
        return found

    def completed(self, job: Job, worked_s: float, now_s: float) -> None:
        self.inner.completed(job, worked_s, now_s)


def simulated(instance: Instance, estimates: Estimates | None, name: str = "fifo") -> Record:
    simulation = Simulation(instance, policy(name), estimates=estimates)
    simulation.run()
    return simulation.record()


def made(kind: str) -> Estimates:
    found = parse(kind)
    assert found is not None
    return found


def workload(seed: int, jobs: int = 150, gpus: int = 8) -> Instance:
    """Users who run their own commands again and again, more than the cluster can take at once."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(jobs):
        user, command = int(rng.integers(4)), int(rng.integers(3))
        length_s = 60.0 * 4 ** ((user + 2 * command) % 5) * math.exp(0.3 * rng.standard_normal())
        found.append(
            Job(
                id=f"j{i}",
                submit_s=round(float(rng.uniform(0, 400 * jobs)), 1),
                user=f"u{user}",
                command=f"train-{'abc'[command]}.py --seed {i}",
                gpus=int(rng.choice([1, 1, 2, 4])),
                duration_s=length_s,
                profile=Profile(startup_s=5, restore_s=10, checkpoint_s=20),
            )
        )
    return Instance(name="workload", cluster=one_node(gpus=gpus), jobs=tuple(found))
