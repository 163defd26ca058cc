"""Synergy replay traces with their measurements: a table of round numbers, faults, and the
published file."""

import json
from pathlib import Path
from typing import Any

import pytest

from optsched.model.job import Mode
from optsched.model.profile import Locality
from optsched.physics import rate
from optsched.physics.catalogue import catalogue_of
from optsched.traces.readers import synergy
from tests.data import DATA, needs_data

from .refused import refusal

IMAGE: dict[str, Any] = {
    "name": "res_1",
    "gpus": 1,
    "iter_time": 0.5,
    "placement_penalty": 1,
    "tput": [
        [0.1, share, share, share, share] for share in (0.4, 0.7, 1, 1.2, 1.4, 1.5, 1.5, 1.5, 1.5)
    ],
}
LANGUAGE: dict[str, Any] = {
    "name": "lm_2",
    "gpus": 2,
    "iter_time": 0.25,
    "placement_penalty": 0.8,
    "tput": [[1] * 4] * 7 + [[0] * 4] * 2,
}


def trace(folder: Path, *lines: str, table: Any = (IMAGE, LANGUAGE)) -> Path:
    (folder / synergy.TABLE).write_text(json.dumps(table))
    path = folder / "static_two"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_jobs_and_their_profiles(tmp_path: Path) -> None:
    image, language = synergy.read(
        trace(tmp_path, "0,res,0.5,100,1", "", "1,lm,1.5,400,2")
    ).instance.jobs
    assert (image.id, image.submit_s, image.gpus, image.duration_s) == ("job-0", 0, 1, 50)
    assert (language.submit_s, language.gpus, language.duration_s, language.command) == (
        1,
        2,
        100,
        "lm",
    )
    assert image.profile.cpus_per_gpu == {1: 0.4, 2: 0.7, 3: 1, 4: 1.2, 5: 1.4, 6: 1.5}
    assert image.profile.memory_gib_per_gpu == pytest.approx(62.5e9 / 2**30, abs=0.001)
    assert language.profile.cpus_per_gpu == {1: 1}
    assert language.profile.memory_gib_per_gpu == pytest.approx(
        62.5e9 / 2**30, abs=0.001
    )  # none measured with less
    assert (image.profile.locality, language.profile.locality) == (
        None,
        Locality(rack=0.8, cluster=0.8),
    )


def test_the_share_of_a_node_gives_the_rate_1(tmp_path: Path) -> None:
    instance = synergy.read(trace(tmp_path, "0,res,0,100,1")).instance
    (job,) = instance.jobs
    node = instance.cluster.nodes[0]
    assert (len(instance.cluster.nodes), node.gpus, node.cpus) == (4, 8, 24)
    assert rate(job, Mode(gpus=1, cpus_per_gpu=3), "v100", "node") == 1
    assert [option.mode.cpus_per_gpu for option in catalogue_of(instance).options(job)] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def test_rates_are_those_of_the_scarcer_of_cores_and_memory(tmp_path: Path) -> None:
    by_cores, by_memory = (0.4, 0.7, 1, 1.2, 1.4, 2.5, 2.5, 0, 0), (0.1, 1.5, 2, 2.5, 2.5)
    table = [[min(cores, most) for most in by_memory] for cores in by_cores]
    path = trace(tmp_path, "0,res,0,100,1", table=[{**IMAGE, "tput": table}])
    profile = synergy.read(path).instance.jobs[0].profile
    gib = [round(gigabytes * 1e9 / 2**30, 3) for gigabytes in (62.5, 125, 187.5)]
    assert profile.cpus_per_gpu == {1: 0.4, 2: 0.7, 3: 1, 4: 1.2, 5: 1.4, 6: 2.5}
    assert profile.memory_gib_per_gpu == gib[2]
    assert profile.memory_rates == {gib[0]: 1.5, gib[1]: 2}
    table[4][1] = 0.9
    assert "each that of the scarcer" in refusal(
        synergy.read, trace(tmp_path, "0,res,0,100,1", table=[{**IMAGE, "tput": table}])
    )


def test_what_was_not_measured_is_dropped(tmp_path: Path) -> None:
    imported = synergy.read(
        trace(tmp_path, "0,res,0,100,2", "1,vgg,0,100,1", "2,res,0,100,1", "2,res,0,100,1")
    )
    assert imported.kept == 1
    assert imported.dropped == {
        "res on 2 GPUs was not measured": 1,
        "vgg on 1 GPUs was not measured": 1,
        "a job of this id came before": 1,
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0,res,0,100", "line 1: expected 5 cells separated by commas, not 4"),
        ("0,res,soon,100,1", "line 1: expected arrival in seconds as a number, found 'soon'"),
        ("0,res,0,0,1", "expected iterations of at least 1, found '0'"),
        ("0,res,0,10.5,1", "expected iterations as a whole number"),
        ("0,vgg,0,1,1", "none of the 1 jobs can be used (vgg on 1 GPUs was not measured: 1)"),
        ("", "is empty; expected one job a line"),
    ],
)
def test_what_is_wrong_with_a_trace(tmp_path: Path, line: str, said: str) -> None:
    assert said in refusal(synergy.read, trace(tmp_path, line))


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "x_1"},
        "x",
        {**IMAGE, "iter_time": 0},
        {**IMAGE, "placement_penalty": 2},
        {**IMAGE, "tput": []},
        {**IMAGE, "tput": [[1, 1]] * 9},
        {**IMAGE, "tput": [[1] * 5] * 3},
        {**IMAGE, "tput": [["a"] * 5] * 9},
        {**IMAGE, "tput": [[0.5] * 5] * 9},
        {**IMAGE, "tput": [[-1] * 5] * 9},
        {**IMAGE, "iter_time": "NaN"},
        {**IMAGE, "iter_time": 10**400},
    ],
)
def test_what_is_wrong_with_the_measurements(tmp_path: Path, entry: Any) -> None:
    said = refusal(synergy.read, trace(tmp_path, "0,res,0,100,1", table=[LANGUAGE, entry]))
    assert f"{synergy.TABLE}: entry 1: expected name, iter_time" in said


def test_the_measurements_must_be_there(tmp_path: Path) -> None:
    path = trace(tmp_path, "0,res,0,100,1", table={})
    assert "expected a list of Synergy's measurements" in refusal(synergy.read, path)
    (tmp_path / synergy.TABLE).write_text("[")
    assert "is not JSON" in refusal(synergy.read, path)
    (tmp_path / synergy.TABLE).unlink()
    assert "cannot be read" in refusal(synergy.read, path)


@needs_data("synergy")
def test_the_published_trace() -> None:
    imported = synergy.read(DATA / "synergy" / "static_100job_6_3_1100.0")
    assert (imported.read, imported.kept, imported.dropped) == (100, 100, {})
    alexnet = imported.instance.job["job-0"]
    assert (alexnet.duration_s, alexnet.command) == (round(3349 * 0.6, 3), "alexnet")
    assert alexnet.profile.cpus_per_gpu == {
        **{1: 0.3, 2: 0.66, 3: 1, 4: 1.25, 5: 1.53, 6: 1.75, 9: 2, 12: 2.94}
    }
    assert alexnet.profile.memory_gib_per_gpu == pytest.approx(116.4, abs=0.05)
    assert list(alexnet.profile.memory_rates.values()) == [2]
    assert imported.instance.job["job-8"].profile.cpus_per_gpu == {1: 1}
    assert imported.instance.job["job-8"].profile.memory_gib_per_gpu == pytest.approx(
        19.4, abs=0.01
    )
