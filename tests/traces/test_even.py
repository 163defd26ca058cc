"""Workloads drawn evenly: gangs, run times and load as asked for."""

import statistics

import pytest

from optsched import generate
from optsched.errors import InputError
from optsched.model.job import Elastic, gang
from optsched.traces.profiles.clocks import CLOCKS_MHZ, DEFAULT_MHZ


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


def test_families_bring_measured_profiles_and_nodes_to_match() -> None:
    made = generate(
        "even",
        jobs=2000,
        gpus=16,
        seed=3,
        families="resnet18,resnet18,bert",
        gangs="1,4",
        elastic=True,
        cpu_jobs=0.25,
        cores_per_gpu=3,
        nodes_per_rack=1,
        clocks=True,
        load=0.8,
    )
    on_gpus = [job for job in made.jobs if job.gpus != 0]
    assert sum(job.profile.name == "resnet18" for job in on_gpus) == pytest.approx(1000, rel=0.1)
    assert {job.gpus for job in on_gpus} == {1, Elastic(min=1, max=4)}
    assert {(job.profile.name, max(job.profile.cpus_per_gpu)) for job in on_gpus} == {
        ("resnet18", 9),
        ("bert", 1),
    }
    assert {(node.cpus, node.rack) for node in made.cluster.nodes} == {
        (24, "rack-0"),
        (24, "rack-1"),
    }
    others = [job for job in made.jobs if job.gpus == 0]
    assert len(others) == pytest.approx(500, rel=0.1) and not any(j.profile.clocks for j in others)
    assert {job.cpus for job in others} == {1, 2, 4, 8}
    asked = sum(job.work_s * gang(job) for job in on_gpus)
    assert asked / (16 * made.jobs[-1].submit_s) == pytest.approx(0.8, rel=0.1)


def test_a_lower_clock_slows_what_computes_and_saves_power() -> None:
    made = generate(
        "even", jobs=40, gpus=8, seed=1, families="resnet18,bert", clocks=True, power_cap=1800.0
    )
    assert made.cluster.resources == {"power_w": 1800.0}
    clocks = {job.profile.name: job.profile.clocks for job in made.jobs}
    for mhz in CLOCKS_MHZ:
        busy, waiting = clocks["bert"][mhz], clocks["resnet18"][mhz]  # duties of 0.9 and 0.14
        assert busy.rate < waiting.rate < 1 and busy.power == waiting.power < 1
        assert busy.rate == pytest.approx(1 / (1 - 0.899 + 0.899 * DEFAULT_MHZ / mhz), abs=1e-4)
    assert clocks["bert"][1080].power / clocks["bert"][1080].rate < 0.91


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gangs": "1,0"}, "--gangs 1,0"),
        ({"gangs": "one"}, "--gangs one"),
        ({"gangs": "32"}, "a gang of 32 GPUs never runs on 16"),
        ({"run_times": "30m-5m"}, "--run-times 30m-5m"),
        ({"run_times": "0-5m"}, "--run-times 0-5m"),
        ({"arrivals": "batch", "load": 1.0}, "--load goes with jobs that arrive one by one"),
        ({"families": "resnet18,none"}, "no family 'none'; there are resnet18"),
        ({"cpu_jobs": 1.0}, "--cpu-jobs"),
        ({"days": 3.0}, "--days goes with --like"),
    ],
)
def test_what_is_out_of_range_is_said(given: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        generate("even", jobs=5, gpus=16, **given)  # type: ignore[arg-type]


def test_a_cluster_of_several_types_gets_measured_rates() -> None:
    made = generate(
        "even",
        jobs=50,
        cluster="v100=8,k80=4",
        gpus_per_node=4,
        families="resnet50,transformer",
        elastic=True,
    )
    assert [(node.gpu_type, node.gpus) for node in made.cluster.nodes] == [
        ("v100", 4),
        ("v100", 4),
        ("k80", 4),
    ]
    assert all(job.profile.rate["v100"] == 1 > job.profile.rate["k80"] > 0 for job in made.jobs)
    for more in ({"gpus": 12}, {"cores_per_gpu": 3}):
        with pytest.raises(InputError, match="--cluster"):
            generate("even", jobs=5, cluster="v100=8", **more)
