"""Tiresias traces: both layouts, clusters of switches, and the published files."""

from pathlib import Path

import pytest

from optsched.traces.profiles.attach import attach
from optsched.traces.readers import tiresias
from optsched.traces.usable import NAMED_TWICE
from tests.data import DATA, needs_data

from .refused import refusal

HEADER = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
OTHER = "job_id,num_gpu,submit_time,start_time,duration,model_size,aggr_interval,model_name,model_scale\n"  # noqa: E501
SPEC = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n"


def trace(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "four.csv"
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return path


def switches(folder: Path, *lines: str, header: str = SPEC) -> Path:
    path = folder / "spec.csv"
    path.write_text(header + "\n".join(lines))
    return path


def test_jobs(tmp_path: Path) -> None:
    imported = tiresias.read(trace(tmp_path, "7,8,30,133,vgg11,147,23", "0,1,10,606,,164.5,30"))
    first, second = imported.instance.jobs
    assert (first.id, first.submit_s, first.gpus, first.duration_s, first.command) == (
        "job-0",
        0,
        1,
        164.5,
        None,
    )
    assert (second.id, second.submit_s, second.gpus, second.duration_s) == ("job-7", 20, 8, 147)
    assert (second.command, second.profile.name) == ("vgg11", "vgg11")
    assert (imported.instance.name, imported.read, imported.dropped) == ("four", 2, {})


def test_the_other_layout_and_a_repeated_id(tmp_path: Path) -> None:
    path = trace(tmp_path, *["10,12,11,14,20,400,0,vgg19,1"] * 2, header=OTHER)
    imported = tiresias.read(path)
    (job,) = imported.instance.jobs
    assert (job.gpus, job.duration_s, job.command) == (12, 20, "vgg19")
    assert (imported.read, imported.dropped) == (2, {NAMED_TWICE: 1})


def test_the_first_jobs_and_those_that_can_run(tmp_path: Path) -> None:
    path = trace(
        tmp_path,
        "0,61,0,1,vgg11,5,1",
        "1,1,3,1,vgg11,5,1",
        "2,1,2,1,vgg11,5,1",
        "3,1,4,1,vgg11,5,1",
    )
    imported = tiresias.read(path, jobs=2)
    assert [job.id for job in imported.instance.jobs] == ["job-2", "job-1"]
    assert imported.dropped["after the first 2"] == 1
    never = "it needs 61 GPUs of one type, the cluster has at most 60"
    assert any(reason.endswith(never) for reason in imported.dropped)


def test_the_cluster_by_default_and_by_options(tmp_path: Path) -> None:
    path = trace(tmp_path, "0,1,0,1,vgg11,5,1")
    nodes = tiresias.read(path).instance.cluster.nodes
    assert [(node.gpu_type, node.gpus) for node in nodes] == [("p100", 4)] * 15
    nodes = tiresias.read(path, cluster="v100=12", gpus_per_node=8).instance.cluster.nodes
    assert [(node.gpu_type, node.gpus) for node in nodes] == [("v100", 8), ("v100", 4)]


def test_switches_are_racks(tmp_path: Path) -> None:
    cluster = tiresias.read(
        trace(tmp_path, "0,1,0,1,vgg11,5,1"), switches=switches(tmp_path, "2,3,4,128,256")
    ).instance.cluster
    assert [(node.name, node.rack) for node in cluster.nodes] == [
        (f"node-{i}", f"switch-{i // 3}") for i in range(6)
    ]
    node = cluster.nodes[0]
    assert (node.gpu_type, node.gpus, node.cpus, node.gpu_memory_gib) == ("p100", 4, 128, 16)
    assert node.memory_gib == pytest.approx(256e9 / 2**30, abs=0.001)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "expected one row below the header, with the cluster, not 0"),
        (["1,1,4,4,4"] * 2, "expected one row below the header, with the cluster, not 2"),
        (["1,0,4,4,4"], "line 2: expected at least one switch, node and GPU"),
        (["1,1,four,4,4"], "line 2: expected num_gpu_p_node as a whole number, found 'four'"),
        (["9999,9999,8,4,4"], "at most 1000000 GPUs"),
    ],
)
def test_what_is_wrong_with_switches(tmp_path: Path, lines: list[str], said: str) -> None:
    path = trace(tmp_path, "0,1,0,1,vgg11,5,1")
    assert said in refusal(tiresias.read, path, switches=switches(tmp_path, *lines))


def test_switches_go_with_no_other_cluster(tmp_path: Path) -> None:
    path = trace(tmp_path, "0,1,0,1,vgg11,5,1")
    for options in ({"cluster": "v100=8"}, {"gpus_per_node": 8}):
        assert "leave out --cluster and --gpus-per-node" in refusal(
            tiresias.read, path, switches=switches(tmp_path), **options
        )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (HEADER, "none of the 0 jobs can be used"),
        (
            "job_id,num_gpu\n1,1\n",
            "line 1: expected a header with the columns job_id, num_gpu, submit_time, duration",
        ),
        (HEADER + "1,1,2\n", "line 2: expected 7 cells separated by commas, not 3"),
        (HEADER + "1,x,2,3,vgg11,5,1\n", "line 2: expected num_gpu as a whole number, found 'x'"),
        (
            HEADER + "1,1,noon,3,vgg11,5,1\n",
            "line 2: expected submit_time in seconds as a number, found 'noon'",
        ),
        (HEADER + "1,1,2,3,vgg11,0,1\n", "line 2: expected duration in seconds of at least 0.001"),
        (HEADER + "1,0,2,3,vgg11,5,1\n", "line 2: expected num_gpu of at least 1, found '0'"),
        ("duration\n121\n", "is a distribution of GPU time"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert said in refusal(tiresias.read, path)


def test_models_get_the_profiles_of_their_families(tmp_path: Path) -> None:
    path = trace(tmp_path, "0,4,0,1,vgg19,50,1", "1,1,0,1,resnet50,50,1", "2,1,0,1,resnet152,50,1")
    jobs = attach(tiresias.read(path).instance, 0).jobs
    assert [job.profile.name for job in jobs] == ["vgg16", "resnet50", "resnet50"]
    assert jobs[0].profile.rate == {"p100": 1}  # where the durations were observed


@needs_data("tiresias")
def test_the_published_files() -> None:
    folder = DATA / "tiresias"
    imported = tiresias.read(folder / "60_job.csv", switches=folder / "n32g4.csv")
    assert (imported.read, imported.kept, imported.instance.cluster.total_gpus) == (60, 60, 128)
    second = imported.instance.jobs[1]
    assert (second.id, second.gpus, second.submit_s, second.duration_s) == ("job-1", 8, 30, 147)
    for shape, gpus in (("n1g4", 4), ("n160g8", 1280), ("n256g8", 2048), ("cluster_spec", 64)):
        found = tiresias.read(
            folder / "60_job.csv", switches=folder / f"{shape}.csv"
        ).instance.cluster
        assert found.total_gpus == gpus
    assert "distribution of GPU time" in refusal(tiresias.read, folder / "yarn-gput1000.csv")
