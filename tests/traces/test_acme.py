"""Acme: rows of Seren and Kalos in the published form."""

from pathlib import Path
from typing import Any

import pytest

from optsched import files
from optsched.model.profile import UNMEASURED, Profile
from optsched.traces.readers import acme, job_table
from optsched.traces.usable import NEVER_RAN

from .refused import refusal

SEREN = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time"  # noqa: E501
SEREN_ROWS = (
    "5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,"
    "2023-03-01 00:20:51+08:00,117,32,936.0",
    "5778469,u5907,1,8,128,Eval,COMPLETED,2023-03-01 00:23:58+08:00,2023-03-01 00:24:11+08:00,"
    "2023-03-01 01:09:04+08:00,2693,13,21544.0",
)
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
    "end_time,fail_time,stop_time,duration,queue,gpu_time"
)
KALOS_ROWS = (
    "dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 "
    "11:00:58+00:00,2023-05-17 11:01:08+00:00,"
    "2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0",
    "dlc1t2ypl09b8qtp,uf794,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:28:42+00:00,"
    "2023-05-17 11:28:54+00:00,2023-05-17 11:30:04+00:00,,2023-05-17 11:30:04+00:00,82,12.0,5248.0",
)
"""The examples in the description of the data."""


def trace(folder: Path, *lines: str, name: str = "trace_seren.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def kalos(job_id: str, *, nodes: Any = 1, gpus: Any = 8, cpus: Any = 120, memory: Any = 800) -> str:
    times = "2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:02:48+00:00"
    return f"{job_id},u1,{nodes},{gpus},{cpus},{memory},100.0,Pretrain,COMPLETED,{times},,,110,10,0"


def test_seren_by_hand(tmp_path: Path) -> None:
    imported = acme.read(trace(tmp_path, SEREN, *SEREN_ROWS))
    instance = imported.instance
    assert [
        (job.id, job.submit_s, job.gpus, job.duration_s, job.command) for job in instance.jobs
    ] == [("5778432", 0, 8, 117, "Other"), ("5778469", 5 * 60 + 36, 8, 2693, "Eval")]
    assert {(job.user, job.tenant) for job in instance.jobs} == {("u5907", None)}
    assert instance.jobs[0].profile == Profile(cpus_per_gpu={16: 1.0})
    assert (len(instance.cluster.nodes), instance.cluster.total_gpus, instance.name) == (
        286,
        2288,
        "trace_seren",
    )
    assert {
        (node.gpu_type, node.gpu_memory_gib, node.cpus, node.memory_gib)
        for node in instance.cluster.nodes
    } == {("a100", 80, 128, 1024)}
    assert (imported.read, imported.dropped, instance.tenants) == (2, {}, ())


def test_kalos_by_hand(tmp_path: Path) -> None:
    """Run times are 8 and 70 s; the column `duration` says 18 and 82, the queue included."""
    instance = acme.read(trace(tmp_path, KALOS, *KALOS_ROWS, name="trace_kalos.csv")).instance
    assert [(job.gpus, job.duration_s) for job in instance.jobs] == [(64, 8), (64, 70)]
    assert instance.jobs[0].profile == Profile(cpus_per_gpu={15: 1.0}, memory_gib_per_gpu=125)
    assert instance.jobs[0].profile is instance.jobs[1].profile
    assert instance.cluster.total_gpus == 2416
    assert {node.memory_gib for node in instance.cluster.nodes} == {2048}


def test_jobs_without_gpus_have_their_cores_and_memory_on_one_node(tmp_path: Path) -> None:
    path = trace(
        tmp_path,
        KALOS,
        kalos("a", gpus=0, cpus=16, memory=60),
        kalos("b", memory=""),
        kalos("c", nodes=2, gpus=0, memory=1000),
        kalos("d", nodes=3, gpus=0, memory=1000),
        kalos("e", nodes="", gpus=0, cpus="", memory=""),
    )
    imported = acme.read(path)
    assert [(job.id, job.gpus, job.cpus, job.memory_gib) for job in imported.instance.jobs] == [
        ("a", 0, 16, 60),
        ("b", 8, 0, 0),
        ("c", 0, 120, 2000),
    ]
    assert [job.profile for job in imported.instance.jobs] == [
        UNMEASURED,
        Profile(cpus_per_gpu={15: 1.0}),
        UNMEASURED,
    ]
    assert imported.dropped == {
        job_table.NOTHING: 1,
        "can never run on this cluster, the first is d: it needs 3000 GiB of memory on one node, "
        "the most are the 2048 "
        "of a100-0": 1,
    }
    assert acme.read(path, cpu_jobs=False).dropped == {job_table.CPU_ONLY: 4}


def test_dates_are_compared_across_zones(tmp_path: Path) -> None:
    """2023-03-01 00:18:22 in Shanghai is still February in UTC, in which dates without a zone
    are."""
    path = trace(tmp_path, SEREN, *SEREN_ROWS)
    assert acme.read(path, end="2023-03-01").kept == 2
    assert acme.read(path, end="2023-03-01T00:20+08:00").kept == 1
    assert acme.read(path, start="2023-02-28T16:20").kept == 1


def test_jobs_that_never_ran_or_never_can_are_counted(tmp_path: Path) -> None:
    never_ran = (
        "1,u1,1,8,128,SFT,CANCELLED,2023-03-01 00:18:22+08:00,,2023-03-01 00:20:51+08:00,0,32,0.0"
    )
    path = trace(
        tmp_path,
        SEREN,
        never_ran,
        *SEREN_ROWS,
        SEREN_ROWS[0].replace("5778432,u5907,1,8", "2,u5907,4,32"),
    )
    imported = acme.read(path, cluster="a100=24", jobs=1)
    assert [job.id for job in imported.instance.jobs] == ["5778432"]
    assert imported.dropped == {
        NEVER_RAN: 1,
        "after the first 1": 1,
        "can never run on this cluster, the first is 2: it needs 32 GPUs of one type, the "
        "cluster has at most 24": 1,
    }
    assert {
        (node.gpus, node.cpus, node.memory_gib) for node in imported.instance.cluster.nodes
    } == {(8, 128, 1024)}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "is empty"),
        (
            ("job_id,user,gpu_num",),
            "line 1: expected a header with the columns job_id, user, gpu_num, cpu_num, state",
        ),
        ((SEREN,), "none of the 0 jobs can be used"),
        (
            (SEREN, SEREN_ROWS[0].replace("8,128", "8,x")),
            "line 2: expected cpu_num as a number, found 'x'",
        ),
        ((SEREN, SEREN_ROWS[0].replace("5778432", "")), "line 2: expected a job_id, found ''"),
        (
            (KALOS, kalos("a", memory="lots")),
            "line 2: expected mem_per_pod_GB as a number, found 'lots'",
        ),
        (
            (KALOS, kalos("a", memory="-1")),
            "line 2: expected mem_per_pod_GB of at least 0, found '-1'",
        ),
        (
            (KALOS, kalos("a", nodes="1.5")),
            "line 2: expected node_num as a whole number, found '1.5'",
        ),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, lines: tuple[str, ...], said: str) -> None:
    path = trace(tmp_path, *lines)
    assert refusal(acme.read, path).startswith(f"{path}: {said}")


def test_the_instance_is_one_that_files_accept(tmp_path: Path) -> None:
    path = trace(tmp_path, KALOS, *KALOS_ROWS, kalos("a", gpus=0, cpus=16, memory=60))
    instance = acme.read(path).instance
    assert files.load_instance(files.dump_instance(instance)) == instance
