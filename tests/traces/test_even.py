"""Workloads drawn evenly: gangs, run times and load as asked for."""

import statistics
from dataclasses import replace
from typing import Any

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


def test_gpus_have_prices_and_jobs_are_due_after_a_multiple_of_their_run_time() -> None:
    made = generate(
        "even", jobs=300, seed=1, cluster="v100=8,k80=4", prices="k80=0.45", deadlines="1.2,2,10"
    )
    assert made.cluster.lowest_gpu_price_per_h == {"v100": 1.0, "k80": 0.45}
    factors = [round(((job.deadline_s or 0.0) - job.submit_s) / job.work_s, 3) for job in made.jobs]
    assert sorted(set(factors)) == [1.2, 2, 10]
    assert min(map(factors.count, (1.2, 2, 10))) > 70


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
        ({"prices": "v100=2"}, "the cluster has no GPUs of type 'v100'"),
        ({"prices": "v100=nan", "families": "bert"}, "'nan' is not a price"),
        ({"deadlines": "2,0.5"}, "--deadlines 2,0.5"),
        ({"deadlines": "inf"}, "--deadlines inf"),
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


def test_more_memory_is_what_was_measured_to_help() -> None:
    given = {"families": "alexnet,resnet50", "cores_per_gpu": 3, "gangs": "1"}
    made = generate("even", jobs=20, gpus=8, more_memory=True, **given)
    alexnet, resnet = (
        next(job.profile for job in made.jobs if job.profile.name == name)
        for name in ("alexnet", "resnet50")
    )
    assert alexnet.memory_gib_per_gpu == 116 and dict(alexnet.memory_rates) == {58.2: 2.0}
    assert alexnet.cpus_per_gpu[12] == 2.94 and not resnet.memory_rates
    bare = generate("even", jobs=20, gpus=8, **given)
    assert [job.duration_s for job in bare.jobs] == [job.duration_s for job in made.jobs]
    with pytest.raises(InputError, match="--more-memory goes with"):
        generate("even", jobs=2, gpus=8, more_memory=True, cores_per_gpu=3)


def test_micro_batches_take_less_gpu_memory() -> None:
    made = generate("even", jobs=9, gpus=8, families="resnet50,a3c", micro_batches=True)
    by_name = {job.profile.name: job.profile for job in made.jobs}
    assert dict(by_name["resnet50"].gpu_memory_rates) == {4.24: 0.886, 2.8: 0.648}
    assert not by_name["a3c"].gpu_memory_rates
    with pytest.raises(InputError, match="--micro-batches goes with --families"):
        generate("even", jobs=2, gpus=8, micro_batches=True)


def test_copies_are_more_gpus_of_any_type() -> None:
    made = generate(
        "even", jobs=9, gpus=20, families="resnet50", gangs="2", copies=3, gpus_per_node=1
    )
    assert {job.gpus for job in made.jobs} == {Elastic(min=2, max=6)}
    assert {job.profile.mixing for job in made.jobs} == {"sum"}
    rates = made.jobs[0].profile.gpus
    assert rates[2] == 1 < rates[4] < rates[6] < 3
    bare = generate("even", jobs=2, gpus=8, gangs="1", copies=2).jobs[0].profile
    assert dict(bare.gpus) == {1: 1, 2: 2} and bare.mixing == "sum"
    with pytest.raises(InputError, match="--elastic"):
        generate("even", jobs=2, gpus=8, gangs="1", copies=2, elastic=True)


def test_profiles_are_drawn_as_asked_for() -> None:
    plain = generate("even", jobs=300, gpus=40, gpus_per_node=4, seed=3, gangs="1,4,8")
    made = generate(
        "even",
        jobs=300,
        gpus=40,
        gpus_per_node=4,
        seed=3,
        gangs="1,4,8",
        duty="0.2-0.6",
        locality=0.7,
        variability=0.2,
    )
    same = [(job.submit_s, job.gpus, job.duration_s) for job in plain.jobs]
    assert [(job.submit_s, job.gpus, job.duration_s) for job in made.jobs] == same
    duties = [job.profile.sharing.duty for job in made.jobs if job.profile.sharing is not None]
    assert len(duties) == 300 and 0.2 <= min(duties) < 0.21 and 0.59 < max(duties) <= 0.6
    local = {gang(job): job.profile.locality for job in made.jobs}
    assert local[1] is None and local[8] is None
    assert local[4] is not None and local[4].cluster == local[4].rack == 0.7
    types = [node.gpu_type for node in made.cluster.nodes]
    assert all(types.count(speed) == 2 for speed in set(types)) and len(set(types)) == 5
    slowest = {job.profile.rate["slowest"] for job in made.jobs}
    assert slowest == {0.6839, 0.859, 0.9812}
    assert all(job.profile.rate["median"] == 1.0 for job in made.jobs)


def test_memory_is_taken_by_those_who_stream_and_by_those_who_prepare_data() -> None:
    how: dict[str, Any] = {
        "jobs": 200,
        "gpus": 16,
        "cpu_jobs": 0.5,
        "cores_per_gpu": 4,
        "families": "resnet50,gpt2",
    }
    made, without = generate("even", memory_gbps=150.0, **how), generate("even", **how)
    assert {node.memory_gbps for node in made.cluster.nodes} == {1200.0}
    on_cpus = [job for job in made.jobs if not job.gpus]
    streaming = [job for job in on_cpus if job.profile.memory_gbps]
    assert {job.profile.memory_gbps / job.cpus for job in streaming} == {80.0}
    assert 0.4 < len(streaming) / len(on_cpus) < 0.6
    gbps = {job.profile.name: job.profile.memory_gbps for job in made.jobs if job.gpus}
    assert gbps["gpt2"] == 8.0 < gbps["resnet50"]
    plain = [replace(job.profile, memory_gbps=0.0, memory_duty=1.0) for job in made.jobs]
    assert plain == [job.profile for job in without.jobs]  # nothing else is drawn otherwise


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"duty": "0-1"}, "--duty 0-1: must be two shares"),
        ({"duty": "nan"}, "--duty nan: must be two shares"),
        ({"duty": "0.5-0.2"}, "must be two shares"),
        ({"locality": float("nan")}, "--locality nan: must be above 0"),
        ({"variability": 1.5}, "--variability 1.5: must be above 0, and 1 at most"),
        ({"variability": 0.1, "families": "bert"}, "--variability does not go with"),
    ],
)
def test_faults_of_drawn_profiles(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        generate("even", jobs=2, gpus=8, seed=0, **asked)  # type: ignore[arg-type]
