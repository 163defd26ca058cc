"""Muri traces: units, the share of an iteration that the GPU works, and the published files."""

from pathlib import Path

import pytest

from optsched.model.profile import Sharing
from optsched.traces.profiles.attach import attach
from optsched.traces.readers import muri
from optsched.traces.usable import NAMED_TWICE
from tests.data import DATA, needs_data

from .refused import refusal

HEADER = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2,priority\n"
)
DQN = "0,1,5000,1000,dqn,128,999,46122000,490,446,8,0,1"
BERT = "1,8,201694500,2000,bert,4,999,201694000,200,0.5,167,59,0"


def trace(folder: Path, *lines: str) -> Path:
    path = folder / "two.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    return path


def test_milliseconds_become_seconds_and_the_gpu_part_the_duty(tmp_path: Path) -> None:
    dqn, bert = muri.read(trace(tmp_path, DQN, BERT)).instance.jobs
    assert (dqn.id, dqn.submit_s, dqn.gpus, dqn.duration_s, dqn.priority) == (
        "job-0",
        0,
        1,
        490,
        -1,
    )
    assert (bert.submit_s, bert.gpus, bert.duration_s, bert.priority) == (201689.5, 8, 400, 0)
    assert dqn.profile.sharing == Sharing(duty=round(8 / 490, 4))
    assert bert.profile.sharing == Sharing(duty=0.835)
    assert (bert.command, bert.profile.name) == ("bert", "bert")


def test_a_gpu_busy_for_longer_than_the_iteration_is_always_busy(tmp_path: Path) -> None:
    (job,) = muri.read(trace(tmp_path, "0,1,0,1000,vgg16,16,999,0,107,117,168,0,1")).instance.jobs
    assert job.profile.sharing == Sharing(duty=1.0)


def test_submission_may_be_later_than_any_number_of_seconds(tmp_path: Path) -> None:
    late = DQN.replace("0,1,5000,", "2,1,10048690250,", 1)
    first, second = muri.read(trace(tmp_path, DQN, late)).instance.jobs
    assert second.submit_s - first.submit_s == 10048690.25 - 5


def test_the_cluster_is_that_of_the_paper(tmp_path: Path) -> None:
    nodes = muri.read(trace(tmp_path, DQN)).instance.cluster.nodes
    assert len(nodes) == 8
    assert {(node.gpu_type, node.gpus, node.cpus, node.memory_gib) for node in nodes} == {
        ("v100", 8, 92, 484.288)
    }
    assert (
        muri.read(
            trace(tmp_path, DQN), cluster="v100=16", gpus_per_node=4
        ).instance.cluster.total_gpus
        == 16
    )


def test_a_repeated_id_is_dropped(tmp_path: Path) -> None:
    assert muri.read(trace(tmp_path, DQN, DQN)).dropped == {NAMED_TWICE: 1}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            DQN.replace(",490,", ",0,"),
            "line 2: expected iteration_time in milliseconds of at least 1e-09, found '0'",
        ),
        (
            DQN.replace(",8,0,1", ",fast,0,1"),
            "resource_time_1 in milliseconds as a number, found 'fast'",
        ),
        (
            DQN.replace("1000,dqn", "many,dqn"),
            "line 2: expected iterations as a whole number, found 'many'",
        ),
        (DQN.replace("dqn", ""), "line 2: expected a model_name, found ''"),
        (DQN.replace("0,1,5000", "0,0,5000"), "line 2: expected num_gpu of at least 1"),
        (
            DQN.replace("5000", "later"),
            "line 2: expected submit_time in milliseconds as a number, found 'later'",
        ),
        ("1,2", "line 2: expected 13 cells separated by commas, not 2"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, line: str, said: str) -> None:
    assert said in refusal(muri.read, trace(tmp_path, line))


def test_the_share_of_the_gpu_stays_when_profiles_are_attached(tmp_path: Path) -> None:
    instance = muri.read(trace(tmp_path, DQN, BERT)).instance
    dqn, bert = (job.profile for job in attach(instance, 0).jobs)
    assert (dqn.name, bert.name) == ("a3c", "bert")
    assert (dqn.sharing, bert.sharing) == tuple(job.profile.sharing for job in instance.jobs)
    assert bert.restore_s == 86


@needs_data("muri")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("trace1.csv", 1494),
        ("trace1_pr.csv", 1494),
        ("trace3.csv", 992),
        ("job_type_1.csv", 992),
        ("cluster_trace.csv", 400),
    ],
)
def test_the_published_files(name: str, count: int) -> None:
    imported = muri.read(DATA / "muri" / name)
    assert (imported.read, imported.kept) == (count, count)
    jobs = attach(imported.instance, 0).jobs
    assert {job.profile.name for job in jobs} <= {
        "resnet18",
        "shufflenet",
        "vgg16",
        "bert",
        "gpt2",
        "a3c",
    }


@needs_data("muri")
def test_a_published_job() -> None:
    job = muri.read(DATA / "muri" / "trace1.csv").instance.job["job-2"]
    assert (job.command, job.gpus, job.submit_s) == ("vgg16", 8, 724670)
    assert job.duration_s == 20901556 * 0.214
    assert job.profile.sharing == Sharing(duty=round(75 / 214, 4))
