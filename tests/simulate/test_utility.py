"""The mean utility of what is done: by hand, and against sums over small steps."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node, Profile, Suspended
from optsched.cli import main
from optsched.files import dump_instance
from optsched.plugins.registry import policy
from optsched.simulate.metrics import measure
from optsched.simulate.metrics.utility import mean_utility
from optsched.simulate.record import Record
from optsched.simulate.run import Simulation
from tests.clusters import one_node


def utility(instance: Instance, rule: str = "fifo") -> tuple[float | None, Record]:
    simulation = Simulation(instance, policy(rule))
    simulation.run()
    return mean_utility(measure(simulation.record())), simulation.record()


def one_gpu(*jobs: Job, **more: object) -> Instance:
    return Instance(cluster=one_node(gpus=1), jobs=jobs, **more)  # type: ignore[arg-type]


def test_by_hand() -> None:
    """The first has worked all the time until the second comes; then nothing counts any more."""
    late = Job(id="late", duration_s=7.0, submit_s=100.0)
    evenly = 2 - 1 / math.log(2)  # the integral of log2(1 + x) from 0 to 1
    first = Job(id="a", duration_s=100.0)
    assert utility(one_gpu(first, late))[0] == pytest.approx(evenly)
    half = one_gpu(Job(id="a", duration_s=50.0), late)
    assert utility(half)[0] == pytest.approx((evenly + 1) / 2)
    slow = Job(id="a", duration_s=50.0, profile=Profile(startup_s=50.0))
    assert utility(one_gpu(slow, late))[0] == pytest.approx(evenly / 2)
    begun = one_gpu(first, late, suspended=(Suspended(job="a", remaining_s=50.0),))
    upper = (2 * math.log(2) - 1.5 * math.log(1.5) - 0.5) / math.log(2)
    assert utility(begun)[0] == pytest.approx(2 * upper * 0.5 + 0.5)
    assert utility(one_gpu(first, Job(id="b", duration_s=9.0)))[0] is None


def test_it_is_told_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "i.json"
    late = Job(id="late", duration_s=7.0, submit_s=100.0)
    path.write_text(dump_instance(one_gpu(Job(id="a", duration_s=100.0), late)))

    def told(*words: str) -> Any:
        arguments = ["simulate", str(path), "--policy", "fifo", "--json", *words]
        return json.loads(CliRunner().invoke(main, arguments).stdout)

    assert told("--utility")["utility"] == pytest.approx(2 - 1 / math.log(2))
    assert "utility" not in told()


JOBS = st.builds(
    lambda submit_s, work_s, weight, gpus, save_s, start_s: Job(
        id="",
        submit_s=submit_s,
        duration_s=work_s,
        weight=weight,
        gpus=gpus,
        profile=Profile(checkpoint_s=save_s, restore_s=start_s, startup_s=start_s),
    ),
    st.integers(0, 60).map(float),
    st.integers(5, 60).map(float),
    st.sampled_from([1.0, 3.0]),
    st.sampled_from([1, 2]),
    st.sampled_from([0.0, 3.0]),
    st.sampled_from([0.0, 2.0]),
)


@given(st.lists(JOBS, min_size=2, max_size=5), st.sampled_from(["fifo", "srtf", "las"]))
@settings(max_examples=40)
def test_it_is_the_sum_over_small_steps(drawn: list[Job], rule: str) -> None:
    jobs = tuple(replace(job, id=f"j{i}") for i, job in enumerate(drawn))
    nodes = (Node(name="n", gpus=2),)
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=jobs)
    found, _ = utility(instance, rule)
    simulation = Simulation(instance, policy(rule))
    simulation.run()
    until_s = max(job.submit_s for job in jobs)
    whole = sum(job.weight * (until_s - job.submit_s) for job in jobs)
    if whole == 0:
        assert found is None
        return
    step_s, total = 0.05, 0.0
    plan = {entry.id: entry for entry in simulation.record().plan().jobs}
    for job in jobs:
        profile, stays = job.profile, plan[job.id].segments
        for k in range(round((until_s - job.submit_s) / step_s)):
            now_s, done_s = job.submit_s + (k + 0.5) * step_s, 0.0
            for i, stay in enumerate(stays):
                saves_s = profile.checkpoint_s if i + 1 < len(stays) else 0.0
                setup_s = profile.startup_s + (profile.restore_s if i else 0.0)
                begins_s = stay.start_s + setup_s
                done_s += max(0.0, min(now_s, stay.end_s - saves_s) - begins_s)
            total += job.weight * math.log2(1 + min(1.0, done_s / job.work_s)) * step_s
    assert found == pytest.approx(total / whole, abs=2e-3)
