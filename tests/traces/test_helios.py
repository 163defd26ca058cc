"""Helios: rows in the published form, the sizes of virtual clusters, and the clusters
themselves."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from optsched import files
from optsched.model.profile import UNMEASURED, Profile
from optsched.traces.readers import helios, job_table
from optsched.traces.usable import NEGATIVE, NEVER_RAN, NO_SUBMISSION, NO_TIME

from .refused import refusal

HEADER = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
)
PUBLISHED = (
    "1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 "
    "04:55:09,36848,0",
    "1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 "
    "18:45:36,249,0",
    "1425513,uzqls,vcpDC,1,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 "
    "14:15:21,675233,0",
)
"""The example in the description of the data."""


def row(
    job_id: str,
    *,
    gpus: Any = 1,
    cpus: Any = 4,
    submit: str = "2020-06-09 10:00:00",
    start: str = "2020-06-09 10:00:05",
    end: str = "2020-06-09 10:01:45",
    vc: str = "vcJkd",
    state: str = "COMPLETED",
) -> str:
    return f"{job_id},u1,{vc},{gpus},{cpus},1,{state},{submit},{start},{end},100,5"


def log(folder: Path, *rows: str, sizes: str | None = None, cluster: str = "Earth") -> Path:
    """A folder as in the published data."""
    there = folder / cluster
    there.mkdir()
    (there / "cluster_log.csv").write_text("\n".join((HEADER, *rows)) + "\n")
    if sizes is not None:
        (there / "cluster_gpu_number.csv").write_text(sizes)
    return there


def test_the_published_example_by_hand(tmp_path: Path) -> None:
    imported = helios.read(log(tmp_path, *PUBLISHED))
    jobs = imported.instance.jobs
    assert [(job.id, job.submit_s, job.gpus, job.duration_s) for job in jobs] == [
        ("1425511", 0, 1, 36848),
        ("1425512", 26, 4, 249),
        ("1425513", 27, 1, 675233),
    ]
    assert [(job.user, job.tenant, job.command) for job in jobs] == [
        ("uXBbc", "vcJkd", None),
        ("uVMrF", "vchbv", None),
        ("uzqls", "vcpDC", None),
    ]
    assert [job.profile for job in jobs] == [
        Profile(cpus_per_gpu={cores: 1.0}) for cores in (1, 4, 1)
    ]
    assert jobs[0].profile is jobs[2].profile
    assert (imported.read, imported.dropped, imported.instance.name) == (3, {}, "helios-earth")
    assert [(tenant.name, tenant.gpu_quota) for tenant in imported.instance.tenants] == [
        ("vcJkd", None),
        ("vchbv", None),
        ("vcpDC", None),
    ]


@pytest.mark.parametrize(
    ("cluster", "types", "cpus"),
    [
        ("Venus", {"v100": 1064}, 48),
        ("Earth", {"v100": 1144}, 48),
        ("Saturn", {"v100": 1048, "p100": 1048}, 64),
        ("Uranus", {"p100": 2112}, 64),
    ],
)
def test_the_clusters_of_the_paper(
    tmp_path: Path, cluster: str, types: dict[str, int], cpus: int
) -> None:
    nodes = helios.read(log(tmp_path, row("1"), cluster=cluster)).instance.cluster.nodes
    assert {t: sum(node.gpus for node in nodes if node.gpu_type == t) for t in types} == types
    assert sum(node.gpus for node in nodes) == sum(types.values())
    assert {(node.gpus, node.cpus) for node in nodes} == {(8, cpus)}


def test_the_cluster_is_found_by_the_name_of_the_file_or_given(tmp_path: Path) -> None:
    folder = log(tmp_path, row("1"), cluster="elsewhere")
    path = folder / "cluster_log.csv"
    assert (
        "the name of one of venus, earth, saturn, uranus; name the cluster's GPUs with --cluster"
        in refusal(helios.read, path)
    )
    given = helios.read(path, cluster="v100=12", gpus_per_node=4).instance
    assert [(node.gpus, node.cpus) for node in given.cluster.nodes] == [(4, None)] * 3
    assert given.name == "cluster_log"
    named = path.rename(folder / "helios_uranus.csv.gz")
    named.write_bytes(gzip.compress(named.read_bytes()))
    found = helios.read(named, cluster="p100=4").instance
    assert [(node.gpus, node.cpus, node.memory_gib) for node in found.cluster.nodes] == [
        (4, 32, 128)
    ]
    assert found.name == "helios-uranus"


@pytest.mark.parametrize(
    ("unusable", "reason"),
    [
        (row("2", start="", end=""), NEVER_RAN),
        (row("2", end="None"), NEVER_RAN),
        (row("2", submit=""), NO_SUBMISSION),
        (row("2", end="2020-06-09 10:00:05"), NO_TIME),
        (row("2", end="2020-06-09 10:00:00"), NEGATIVE),
        (row("2", state="RUNNING"), job_table.UNFINISHED),
        (row("2", state="SUSPENDED"), job_table.UNFINISHED),
        (row("2", gpus=0, cpus=0), job_table.NOTHING),
        (
            row("2", gpus=1145),
            "can never run on this cluster, the first is 2: it needs 1145 GPUs of one type, the "
            "cluster "
            "has at most 1144",
        ),
        (
            row("2", gpus=0, cpus=49),
            "can never run on this cluster, the first is 2: it needs 49 cores on one node, the "
            "most are the 48 of v100-0",
        ),
    ],
)
def test_jobs_that_cannot_be_used_are_counted(tmp_path: Path, unusable: str, reason: str) -> None:
    imported = helios.read(log(tmp_path, row("1"), unusable))
    assert [job.id for job in imported.instance.jobs] == ["1"]
    assert imported.dropped == {reason: 1}


def test_jobs_without_gpus_are_cpu_only_jobs_or_left_out(tmp_path: Path) -> None:
    folder = log(
        tmp_path,
        row("1", gpus=0, cpus=12),
        row("2", gpus=2, cpus="9.0"),
        row("3", gpus="8.0", cpus=""),
    )
    one, two, three = helios.read(folder).instance.jobs
    assert (one.gpus, one.cpus, one.duration_s, one.profile) == (0, 12, 100, UNMEASURED)
    assert (two.gpus, two.cpus, two.profile.cpus_per_gpu) == (2, 0, {5: 1.0})
    assert (three.gpus, three.profile) == (8, UNMEASURED)
    left = helios.read(folder, cpu_jobs=False)
    assert [job.id for job in left.instance.jobs] == ["2", "3"]
    assert left.dropped == {job_table.CPU_ONLY: 1}


SIZES = """date,vcJkd,vchbv,vcold,total
2020-06-08,800,8,64,2000
2020-06-09,16,40,0,1064
2020-06-10,64,24,0,1072
2020-06-11,8,400,64,1200
"""


def test_quotas_are_the_largest_of_the_days_of_the_jobs(tmp_path: Path) -> None:
    folder = log(
        tmp_path,
        row("1", submit="2020-06-09 23:59:59", gpus=64),
        row("2", submit="2020-06-10 00:00:00", vc="vchbv"),
        row("3", submit="2020-06-10 12:00:00", vc="vcold"),
        row("4", submit="2020-06-10 12:00:00", gpus=65),
        row("5", submit="2020-06-10 12:00:00", vc="vcnew"),
        sizes=SIZES,
    )
    imported = helios.read(folder)
    assert [(tenant.name, tenant.gpu_quota) for tenant in imported.instance.tenants] == [
        ("vcJkd", 64),
        ("vchbv", 40),
        ("vcnew", None),
    ]
    assert imported.instance.cluster.total_gpus == 1072
    assert imported.dropped == {
        "can never run on this cluster, the first is 3: it needs 1 GPU, the quota of vcold is 0": 2
    }
    assert "the first is 1: it needs 64 GPUs, the quota of vcJkd is 16: 1)" in refusal(
        helios.read, folder, end="2020-06-10"
    )


def test_quotas_of_one_day(tmp_path: Path) -> None:
    instance = helios.read(log(tmp_path, row("1"), sizes=SIZES)).instance
    assert ([tenant.gpu_quota for tenant in instance.tenants], instance.cluster.total_gpus) == (
        [16],
        1064,
    )


def test_quotas_of_all_days_where_none_is_a_day_of_the_jobs(tmp_path: Path) -> None:
    instance = helios.read(
        log(tmp_path, row("1", submit="2020-03-18 00:00:00"), sizes=SIZES)
    ).instance
    assert ([tenant.gpu_quota for tenant in instance.tenants], instance.cluster.total_gpus) == (
        [800],
        2000,
    )


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("", "is empty"),
        (
            "day,vcJkd\n",
            "line 1: expected a header with the columns date, total; date, total are missing",
        ),
        ("date,vcJkd,total\n", "has no rows below its header"),
        (
            "date,vcJkd,total\nspring,8,8\n",
            "line 2: expected date as 2017-10-09 07:01:47, or nothing, found 'spring'",
        ),
        ("date,vcJkd,total\n,8,8\n", "line 2: expected a date, found ''"),
        (
            "date,vcJkd,total\n2020-06-09,many,8\n",
            "line 2: expected vcJkd as a whole number, found 'many'",
        ),
    ],
)
def test_damaged_sizes_are_refused(tmp_path: Path, sizes: str, said: str) -> None:
    folder = log(tmp_path, row("1"), sizes=sizes)
    assert refusal(helios.read, folder).startswith(f"{folder}/cluster_gpu_number.csv: {said}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (row("2", gpus="many"), "line 3: expected gpu_num as a number, found 'many'"),
        (row("2", gpus="1.5"), "line 3: expected gpu_num as a whole number, found '1.5'"),
        (row("2", cpus="-1"), "line 3: expected cpu_num of at least 0, found '-1'"),
        (
            row("2", start="noon"),
            "line 3: expected start_time as 2017-10-09 07:01:47, or nothing, found 'noon'",
        ),
        (row(""), "line 3: expected a job_id, found ''"),
        (row("2") + ",7", "line 3: expected 12 cells separated by commas, not 13"),
        ("2,u", "line 3: expected 12 cells separated by commas, not 2"),
    ],
)
def test_a_damaged_row_is_refused(tmp_path: Path, line: str, said: str) -> None:
    folder = log(tmp_path, row("1"), line)
    assert refusal(helios.read, folder).startswith(f"{folder}/cluster_log.csv: {said}")


def test_what_is_no_job_table_is_refused(tmp_path: Path) -> None:
    assert "has no cluster_log.csv" in refusal(helios.read, tmp_path)
    other = tmp_path / "venus.csv"
    other.write_text("timestamp,duration\n")
    assert "gpu_num, cpu_num, state, submit_time" in refusal(helios.read, other)
    other.write_text(HEADER + "\n")
    assert refusal(helios.read, other).endswith("none of the 0 jobs can be used")


def test_the_instance_is_one_that_files_accept(tmp_path: Path) -> None:
    folder = log(tmp_path, *PUBLISHED, row("9", gpus=0, cpus=12), sizes=SIZES)
    instance = helios.read(
        folder, start="2020-06-09", end="2020-06-10", tenant="vcJkd", jobs=5
    ).instance
    assert [job.id for job in instance.jobs] == ["9", "1425511"]
    assert files.load_instance(files.dump_instance(instance)) == instance
