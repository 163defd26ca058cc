"""Elastic jobs that are simulated as gangs of the GPUs that they asked for."""

import pytest

import optsched as opt
from optsched.model.instance import Instance, Running, Slot
from optsched.model.job import Elastic, Job, Mode
from optsched.model.profile import Profile
from tests.clusters import one_node
from tests.verified import checked


@pytest.mark.parametrize(
    ("table", "most", "gpus"),
    [({1: 0.5, 2: 1.0, 8: 3.0}, 8, 2), ({}, 4, 4), ({1: 0.2, 8: 1.0}, 8, 8)],
)
def test_elastic_jobs_run_on_the_gpus_that_they_asked_for(
    table: dict[int, float], most: int, gpus: int
) -> None:
    jobs = tuple(
        Job(
            id=f"j{k}", gpus=Elastic(min=1, max=most), duration_s=100.0, profile=Profile(gpus=table)
        )
        for k in range(3)
    )
    instance = Instance(cluster=one_node(gpus=8), jobs=jobs)
    done = opt.simulate(instance, "fifo", rigid=True)
    segments = [segment for job in done.solution.plan.jobs for segment in job.segments]
    assert {slot.gpus for segment in segments for slot in segment.placement} == {gpus}
    assert {round(segment.end_s - segment.start_s) for segment in segments} == {100}
    checked(instance, done.solution.plan, done.setting.objective)
    assert "elastic jobs run on the GPUs that they asked for" in done.setting.words
    assert "bound (any rigid schedule)" in str(done)


def test_jobs_with_listed_modes_run_in_the_first_but_go_on_in_that_in_which_they_run() -> None:
    modes = Mode(gpus=2, duration_s=100.0), Mode(gpus=1, duration_s=20.0)
    jobs = tuple(Job(id=name, modes=modes) for name in "ab")
    running = Running(job="b", mode=modes[1], placement=(Slot(node="n", gpus=1),), remaining_s=50.0)
    cluster = one_node(gpus=3)
    instance = Instance(cluster=cluster, jobs=jobs, running=(running,))
    done = opt.simulate(instance, "srtf", rigid=True)
    checked(instance, done.solution.plan, done.setting.objective)
    gpus = {
        job.id: [segment.mode.gpus for segment in job.segments] for job in done.solution.plan.jobs
    }
    assert gpus == {"a": [2], "b": [1]}
