"""Workloads drawn evenly: gangs, run times and load as asked for."""

import statistics

import pytest

from optsched import generate
from optsched.errors import InputError


def test_gangs_run_times_and_load_are_as_asked_for() -> None:
    made = generate("even", jobs=4000, gpus=16, seed=1, gangs="1,2,4", run_times="5m-30m", load=0.8)
    assert {job.gpus for job in made.jobs} == {1, 2, 4}
    lengths_s = [job.work_s for job in made.jobs]
    assert 300 <= min(lengths_s) < 310 and 1790 < max(lengths_s) <= 1800
    assert statistics.fmean(lengths_s) == pytest.approx(1050, rel=0.03)
    asked = sum(job.work_s * job.gpus for job in made.jobs if isinstance(job.gpus, int))
    assert asked / (16 * made.jobs[-1].submit_s) == pytest.approx(0.8, rel=0.06)
    assert made == generate(
        "even", jobs=4000, gpus=16, seed=1, gangs="1,2,4", run_times="300s-1800s", load=0.8
    )


def test_heavy_tails_have_as_many_jobs_in_each_factor() -> None:
    made = generate("even", jobs=4000, gpus=64, seed=2, run_times="1m-100m", heavy_tail=True)
    short = sum(job.work_s < 600 for job in made.jobs)
    assert short == pytest.approx(2000, rel=0.06)


def test_a_batch_is_there_at_once() -> None:
    made = generate("even", jobs=9, gpus=20, seed=0, arrivals="batch", checkpoint_s=60.0)
    assert {job.submit_s for job in made.jobs} == {0.0}
    assert [node.gpus for node in made.cluster.nodes] == [8, 8, 4]
    assert {job.profile.checkpoint_s for job in made.jobs} == {60.0}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gangs": "1,0"}, "--gangs 1,0"),
        ({"gangs": "one"}, "--gangs one"),
        ({"gangs": "32"}, "a gang of 32 GPUs never runs on 16"),
        ({"run_times": "30m-5m"}, "--run-times 30m-5m"),
        ({"run_times": "0-5m"}, "--run-times 0-5m"),
        ({"arrivals": "batch", "load": 1.0}, "--load goes with jobs that arrive one by one"),
        ({"days": 3.0}, "--days goes with --like"),
    ],
)
def test_what_is_out_of_range_is_said(given: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        generate("even", jobs=5, gpus=16, **given)  # type: ignore[arg-type]
