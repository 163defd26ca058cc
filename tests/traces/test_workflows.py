"""Inference queries as DAGs of models."""

import pytest

from optsched import generate, simulate
from optsched.errors import InputError
from optsched.traces.generate.workflows import PIPELINES


def test_queries_are_whole_pipelines_that_arrive_at_the_load() -> None:
    made = generate("workflows", jobs=3000, gpus=5, seed=1, load=0.5)
    assert 3000 - 4 < len(made.jobs) <= 3000 and made == generate(
        "workflows", jobs=3000, gpus=5, seed=1, load=0.5
    )
    work_s = sum(job.work_s for job in made.jobs)
    assert work_s / (5 * made.jobs[-1].submit_s) == pytest.approx(0.5, rel=0.1)
    names = {job.id for job in made.jobs}
    for job in made.jobs:
        query, k = job.id.rsplit(".", 1)
        task = PIPELINES[query.rsplit("-", 1)[0]][int(k)]
        assert job.after == tuple(f"{query}.{before}" for before in task.after)
        assert {*job.after} <= names and job.profile.fetch_s > 0


def test_too_few_jobs_for_a_query_are_refused() -> None:
    with pytest.raises(InputError, match="jobs must be 3 or more"):
        generate("workflows", jobs=1, gpus=8, seed=0)


def test_the_latency_of_a_workflow_is_that_of_its_last_task() -> None:
    made = generate("workflows", jobs=30, gpus=2, seed=2)
    done = simulate(made, "compass")
    end_s = {job.id: job.segments[-1].end_s for job in done.solution.plan.jobs}
    awaited = {name for job in made.jobs for name in job.after}
    latencies_s = [end_s[job.id] - job.submit_s for job in made.jobs if job.id not in awaited]
    assert done.metrics["workflow_s"]["max"] == pytest.approx(max(latencies_s))
    assert done.metrics["workflow_s"]["mean"] == pytest.approx(sum(latencies_s) / len(latencies_s))
    alone = generate("even", jobs=3, gpus=4)
    assert simulate(alone, "fifo").metrics["workflow_s"]["mean"] is None
