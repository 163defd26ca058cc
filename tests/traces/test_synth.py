"""The generator: same arguments, same bytes; marginals; what it places; and that every instance is
sound."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import files
from optsched.errors import InputError
from optsched.model.instance import Instance
from optsched.physics import TIME_TOLERANCE_S, placed_rate, setup_s, span
from optsched.traces.generate.families import FAMILIES
from optsched.traces.generate.synth import CLASSES, GANG_SHARES, GANG_SIZES, SHORTEST_S, generate


def size(value: Any) -> int:
    assert isinstance(value, int)
    return value


def check_sound(instance: Instance) -> None:
    text = files.dump_instance(instance)
    loaded = files.load_instance(text)
    assert loaded == instance
    assert files.dump_instance(loaded) == text


@settings(max_examples=40)
@given(
    jobs=st.integers(1, 60),
    gpus=st.integers(1, 300),
    seed=st.integers(0, 2**63),
    overheads=st.booleans(),
    like=st.sampled_from(["mixed", "llm"]),
    arrivals=st.sampled_from(["batch", "poisson"]),
    load=st.floats(0.1, 3),
    running=st.floats(0, 1),
    gpu_types=st.integers(1, 3),
)
def test_every_instance_is_sound(**arguments: Any) -> None:
    instance = generate(**arguments)
    assert (
        len(instance.jobs) == arguments["jobs"] and instance.cluster.total_gpus == arguments["gpus"]
    )
    assert len(instance.running) <= round(arguments["running"] * arguments["jobs"])
    check_sound(instance)


@pytest.mark.parametrize("like", ["mixed", "llm"])
def test_same_arguments_same_bytes(like: Any) -> None:
    first, again, other = (
        files.dump_instance(generate(jobs=200, gpus=128, seed=seed, like=like, running=0.3))
        for seed in (7, 7, 8)
    )
    assert first == again
    assert first.replace("seed-7", "seed-8") != other


@pytest.mark.parametrize("like", ["mixed", "llm"])
def test_gang_shares(like: Any) -> None:
    """Each share within four standard deviations of its probability, for 5,000 jobs on a roomy
    cluster."""
    jobs = 5_000
    drawn = Counter(
        size(job.gpus) for job in generate(jobs=jobs, gpus=2048, seed=0, like=like).jobs
    )
    for gang, share in zip(GANG_SIZES, GANG_SHARES[like], strict=True):
        assert abs(drawn[gang] - jobs * share) <= 4 * (jobs * share * (1 - share)) ** 0.5, gang


def test_durations_weights_and_families() -> None:
    jobs = generate(jobs=5_000, gpus=2048, seed=0).jobs
    durations = np.array([job.duration_s for job in jobs], dtype=float)
    assert durations.min() == SHORTEST_S and durations.max() <= 30 * 86400
    assert np.all(durations == np.rint(durations))
    # the median of 5,000 draws of sigma 2 is within 4 * 2 * 1.2533 / sqrt(5000) = 0.14 of 900, in
    # logs
    assert abs(np.log(np.median(durations) / 900)) <= 0.15
    # quartiles of the normal lie 0.6745 sigma from the median
    low, high = np.quantile(np.log(durations), [0.25, 0.75])
    assert (high - low) / (2 * 0.6745) == pytest.approx(2.0, rel=0.1)
    assert set(Counter(job.weight for job in jobs)) == {1.0, 2.0, 4.0}
    names = Counter(job.profile.name for job in jobs)
    assert set(names) == {family.name for family in FAMILIES}
    profiles = {job.profile.name: job.profile for job in jobs}
    assert all(job.profile == profiles[job.profile.name] for job in jobs)


def test_cluster_classes() -> None:
    nodes = generate(jobs=1, gpus=1024, seed=0).cluster.nodes
    assert Counter(node.gpu_type for node in nodes) == {"a100": 32, "v100": 64, "p100": 64}
    assert {(n.gpu_type, n.gpus, n.cpus, n.gpu_memory_gib) for n in nodes} == {
        ("a100", 8, 96, 80),
        ("v100", 8, 64, 32),
        ("p100", 4, 32, 16),
    }
    racks = Counter(node.rack for node in nodes)
    assert set(racks.values()) == {8} and len(racks) == 20


@pytest.mark.parametrize(
    ("gpus", "sizes"),
    [
        (1, {"a100": [1]}),
        (2, {"a100": [1], "v100": [1]}),
        (3, {"a100": [1], "v100": [1], "p100": [1]}),
        (8, {"a100": [2], "v100": [4], "p100": [2]}),
        (16, {"a100": [4], "v100": [8], "p100": [4]}),
        (32, {"a100": [8], "v100": [8, 8], "p100": [4, 4]}),
        (40, {"a100": [8, 2], "v100": [8, 8, 4], "p100": [4, 4, 2]}),
    ],
)
def test_small_clusters_have_what_was_asked_for_and_gangs_that_fit(
    gpus: int, sizes: dict[str, list[int]]
) -> None:
    instance = generate(jobs=2_000, gpus=gpus, seed=3, like="llm", running=0.01)
    made: dict[str | None, list[int]] = {}
    for node in instance.cluster.nodes:
        made.setdefault(node.gpu_type, []).append(node.gpus)
    assert made == sizes
    assert max(size(job.gpus) for job in instance.jobs) <= max(map(sum, sizes.values()))
    check_sound(instance)


def test_one_gpu_type() -> None:
    instance = generate(jobs=50, gpus=64, seed=0, gpu_types=1)
    assert instance.cluster.gpu_types == ("a100",)
    assert instance.cluster.total_gpus == 64


def test_no_overheads() -> None:
    for job in generate(jobs=50, gpus=64, seed=0, overheads=False).jobs:
        assert (job.profile.startup_s, job.profile.checkpoint_s, job.profile.restore_s) == (0, 0, 0)


def test_options_change_nothing_else() -> None:
    """Other arrivals or a share of running jobs leave gangs, durations, weights and families
    alone."""
    plain = generate(jobs=300, gpus=256, seed=5)
    for other in (
        generate(jobs=300, gpus=256, seed=5, arrivals="poisson"),
        generate(jobs=300, gpus=256, seed=5, running=0.5),
    ):
        for a, b in zip(plain.jobs, other.jobs, strict=True):
            assert (a.gpus, a.duration_s, a.weight, a.profile) == (
                b.gpus,
                b.duration_s,
                b.weight,
                b.profile,
            )


@pytest.mark.parametrize("load", [0.5, 2.0])
def test_poisson_offers_the_load(load: float) -> None:
    """On A100 nodes alone, where every family has rate 1: GPU-seconds submitted by those there
    are."""
    jobs = 4_000
    instance = generate(jobs=jobs, gpus=512, seed=1, arrivals="poisson", load=load, gpu_types=1)
    submits = [job.submit_s for job in instance.jobs]
    assert submits == sorted(submits) and submits[0] > 0
    work = sum(size(job.gpus) * job.work_s for job in instance.jobs)
    # the time of the last of n exponential arrivals is off by 1/sqrt(n) = 1.6 %, four of them here
    assert work / (512 * submits[-1]) == pytest.approx(load, rel=4 / jobs**0.5)


@pytest.mark.parametrize("like", ["mixed", "llm"])
def test_running_jobs(like: Any) -> None:
    instance = generate(jobs=400, gpus=1024, seed=2, like=like, running=0.25)
    assert len(instance.running) == 100
    shortest = {kind.gpu_type: kind.gpus for kind in CLASSES}
    spread = 0
    for entry in instance.running:
        job = instance.job[entry.job]
        assert job.submit_s == entry.started_s <= 0
        assert 1 <= entry.remaining_s <= job.work_s
        worked_s = -entry.started_s - setup_s(job, ran_before=False)
        rate = placed_rate(instance, job, entry.mode, entry.placement)
        done_s = job.work_s - entry.remaining_s
        assert worked_s * rate == pytest.approx(done_s, abs=rate * 0.5 + TIME_TOLERANCE_S)
        if entry.last_checkpoint_s is None:
            assert worked_s < 1800
        else:
            assert (
                entry.started_s < entry.last_checkpoint_s <= 0 and entry.last_checkpoint_s > -1800
            )
        assert entry.mode.gpu_type is not None
        fits_one = size(job.gpus) <= shortest[entry.mode.gpu_type]
        spread += fits_one and span(instance.cluster, entry.placement) != "node"
    assert (spread > 0) == (like == "llm")


def test_a_full_cluster_holds_what_it_can() -> None:
    instance = generate(jobs=500, gpus=64, seed=4, running=1.0)
    held = sum(entry.mode.gpus for entry in instance.running)
    assert 0 < len(instance.running) < 500
    assert held == instance.cluster.total_gpus  # single-GPU jobs fill every gap
    check_sound(instance)


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobs": 0},
        {"gpus": 0},
        {"seed": -1},
        {"load": 0.0},
        {"load": float("nan")},
        {"running": 1.5},
        {"running": float("nan")},
        {"gpu_types": 4},
        {"gpu_types": 0},
        {"jobs": 10**7},
    ],
)
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=f"generate: {name} must be"):
        generate(**{"jobs": 5, "gpus": 8, "seed": 0, **wrong})
