"""Philly: the job log in its published form, its machine lists, and the table made of it."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from optsched import files
from optsched.model.instance import Failure
from optsched.traces.readers import philly
from optsched.traces.usable import (
    FAILED_ATTEMPT,
    NAMED_TWICE,
    NEGATIVE,
    NO_SUBMISSION,
    NO_TIME,
    WITHOUT_GPUS,
)

from .refused import refusal

EIGHT = [f"gpu{i}" for i in range(8)]


def attempt(start: str | None, end: str | None, **gpus: list[str]) -> dict[str, Any]:
    return {
        "start_time": start,
        "end_time": end,
        "detail": [{"ip": ip, "gpus": held} for ip, held in gpus.items()],
    }


def record(
    job_id: str, submitted: str | None, *attempts: dict[str, Any], vc: str = "ee9e8c"
) -> dict[str, Any]:
    return {
        "status": "Pass",
        "vc": vc,
        "jobid": job_id,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "ce2f4c",
    }


PUBLISHED = record(
    "application_1506638472019_14199",
    "2017-10-07 01:11:39",
    attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", m47=EIGHT),
    attempt("2017-10-07 01:13:30", "2017-10-09 06:53:12", m412=EIGHT),
)
"""The example in the description of the traces."""


def log(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "cluster_job_log"
    path.write_text(json.dumps(records, indent=4))
    return path


def hour(n: int) -> str:
    return f"2017-10-03 {n:02}:00:00"


def simple(job_id: str, n: int, gpus: int = 1, vc: str = "ee9e8c") -> dict[str, Any]:
    """A job submitted at hour n that ran an hour from then on."""
    return record(job_id, hour(n), attempt(hour(n), hour(n + 1), m1=EIGHT[:gpus]), vc=vc)


# ------------------------------------------------------------------------------------------------
# the job log


def test_the_published_example_by_hand(tmp_path: Path) -> None:
    imported = philly.read(log(tmp_path, PUBLISHED))
    (job,) = imported.instance.jobs
    assert (job.id, job.submit_s, job.gpus, job.user) == (
        "application_1506638472019_14199",
        0,
        8,
        "ce2f4c",
    )
    assert job.duration_s == 2 * 86400 + (6 - 1) * 3600 + (53 - 13) * 60 + (12 - 30)
    assert imported.instance.failures == (Failure(job=job.id, work_s=74, kind=FAILED_ATTEMPT),)
    assert [(tenant.name, tenant.gpu_quota) for tenant in imported.instance.tenants] == [
        ("ee9e8c", None)
    ]
    assert job.tenant == "ee9e8c"
    assert (imported.read, imported.dropped, imported.instance.name) == (1, {}, "philly")


@pytest.mark.parametrize(
    ("unusable", "reason"),
    [
        (record("x", hour(1)), philly.NO_ATTEMPT),
        (record("x", hour(1), attempt(hour(2), None, m1=EIGHT)), philly.RUNNING),
        (record("x", hour(1), attempt(hour(2), "None", m1=EIGHT)), philly.RUNNING),
        (
            record("x", hour(1), attempt(hour(2), hour(3), m1=EIGHT), attempt(None, None)),
            philly.NO_START,
        ),
        (record("x", hour(1), attempt(hour(2), hour(2), m1=EIGHT)), NO_TIME),
        (record("x", hour(1), attempt(hour(2), hour(1), m1=EIGHT)), NEGATIVE),
        (record("x", hour(1), attempt(hour(2), hour(3), m1=[])), WITHOUT_GPUS),
        (record("x", None, attempt(hour(2), hour(3), m1=EIGHT)), NO_SUBMISSION),
        (record("x", "None", attempt(hour(2), hour(3), m1=EIGHT)), NO_SUBMISSION),
        (simple("kept", 9), NAMED_TWICE),
    ],
)
def test_jobs_that_cannot_be_used_are_counted(
    tmp_path: Path, unusable: dict[str, Any], reason: str
) -> None:
    imported = philly.read(log(tmp_path, unusable, simple("kept", 0)))
    assert [job.id for job in imported.instance.jobs] == ["kept"]
    assert (imported.read, imported.dropped) == (2, {reason: 1})


def test_attempts_without_a_usable_time_are_left_out_but_the_last_one_counts(
    tmp_path: Path,
) -> None:
    instance = philly.read(
        log(
            tmp_path,
            record(
                "x",
                hour(0),
                attempt(None, hour(1), m1=["gpu0"]),
                attempt(hour(1), hour(2), m1=["gpu0"]),
                attempt(hour(2), None, m2=["gpu0"]),
                attempt(hour(2), hour(2), m1=["gpu0"]),
                attempt(hour(2), "2017-10-03 02:00:07", m1=["gpu0", "gpu1"]),
                attempt(hour(5), hour(8), m1=EIGHT[:4], m2=EIGHT[4:6]),
            ),
        )
    ).instance
    assert (instance.jobs[0].gpus, instance.jobs[0].duration_s) == (6, 3 * 3600)
    assert [failure.work_s for failure in instance.failures] == [3600, 7]


def test_the_clock_starts_with_the_first_job_kept_and_jobs_come_by_submission(
    tmp_path: Path,
) -> None:
    path = log(tmp_path, simple("c", 5), simple("a", 1), simple("b", 3, vc="11cb48"))
    instance = philly.read(path).instance
    assert [(job.id, job.submit_s) for job in instance.jobs] == [
        ("a", 0),
        ("b", 7200),
        ("c", 14400),
    ]
    later = philly.read(path, start="2017-10-03T02:00", end="2017-10-03T05:00")
    assert [(job.id, job.submit_s) for job in later.instance.jobs] == [("b", 0)]
    assert later.dropped == {"submitted before --from": 1, "submitted at --until or later": 1}
    of_one = philly.read(path, tenant="ee9e8c", jobs=1)
    assert [job.id for job in of_one.instance.jobs] == ["a"]
    assert of_one.dropped == {"of another tenant than ee9e8c": 1, "after the first 1": 1}
    assert [tenant.name for tenant in of_one.instance.tenants] == ["ee9e8c"]
    assert (
        refusal(philly.read, path, tenant="x")
        == "--tenant 'x': no usable job is of it; the tenants are 11cb48, ee9e8c"
    )
    assert "expected a date" in refusal(philly.read, path, start="spring")
    assert refusal(philly.read, path, start="2018-01-01").endswith(
        "none of the 3 jobs can be used (submitted before --from: 3)"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("{}", "line 1: expected a JSON list, which starts with '['"),
        ("[]", "none of the 0 jobs can be used"),
        (json.dumps([simple("a", 1)])[:-1] + ",\n{]", "line 2: is no JSON"),
        (
            '[{"status": "Pass"}]',
            "job 1 of the list: expected {jobid, vc, user, submitted_time, attempts",
        ),
        ("[7]", "job 1 of the list: expected {jobid, vc,"),
        (
            json.dumps([simple("a", 1), record("x", "yesterday", attempt(hour(1), hour(2)))]),
            "job 2 of the list: expected",
        ),
        (
            json.dumps([record("x", hour(1), attempt(hour(1), hour(2), m1="gpu0"))]),
            "job 1 of the list: expected",
        ),
        (json.dumps([{**simple("a", 1), "jobid": 5}]), "job 1 of the list: expected"),
        (json.dumps([{**simple("a", 1), "user": 5}]), "job 1 of the list: expected"),
        (json.dumps([{**simple("a", 1), "attempts": {"a": 1}}]), "job 1 of the list: expected"),
    ],
)
def test_a_damaged_log_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text(text)
    assert refusal(philly.read, path).startswith(str(path))
    assert said in refusal(philly.read, path)


def test_a_folder_and_gzip(tmp_path: Path) -> None:
    assert "has no cluster_job_log" in refusal(philly.read, tmp_path)
    (tmp_path / "cluster_job_log.gz").write_bytes(gzip.compress(json.dumps([PUBLISHED]).encode()))
    assert philly.read(tmp_path).kept == 1
    assert "cannot be read" in refusal(philly.read, tmp_path / "absent")


# ------------------------------------------------------------------------------------------------
# machines

PUBLISHED_LIST = "machineId, number of GPUs, single GPU mem\nm0,2, 12GB\nm412,8, 24GB\n"
REVISED_LIST = ",machineId,number of GPUs\n0,m0,8\n1,m107,0\n2,m412,4\n"


def machines(
    path: Path, **options: Any
) -> list[tuple[str, str | None, int, float | None, str | None]]:
    nodes = philly.read(path, **options).instance.cluster.nodes
    return [(node.name, node.gpu_type, node.gpus, node.gpu_memory_gib, node.rack) for node in nodes]


def test_without_a_list_the_machines_are_those_in_the_log(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        PUBLISHED,
        record("x", hour(1), attempt(None, None, m100=["gpu0"], m9=["gpu3", "gpu1"])),
        record("y", hour(1), attempt(hour(1), hour(2), m9=["gpu3"])),
    )
    assert machines(path) == [
        ("m9", "p100", 2, None, None),
        ("m47", "p100", 8, None, None),
        ("m100", "p100", 1, None, None),
        ("m412", "p100", 8, None, None),
    ]


def test_machine_lists(tmp_path: Path) -> None:
    path = log(tmp_path, simple("a", 1))
    revised = tmp_path / "revised_machine_list.csv"
    revised.write_text(REVISED_LIST)
    assert machines(path, machines_path=revised) == [
        ("m0", "p100", 8, None, None),
        ("m412", "p100", 4, None, None),
    ]
    (tmp_path / "cluster_machine_list").write_text(PUBLISHED_LIST)
    assert machines(path) == [("m0", "k80", 2, 12, None), ("m412", "p100", 8, 24, None)]
    assert machines(tmp_path) == machines(path)
    assert philly.read(path).instance.cluster.reference_gpu == "p100"
    assert [
        node.gpus
        for node in philly.read(path, cluster="v100=6", gpus_per_node=4).instance.cluster.nodes
    ] == [4, 2]
    assert "--gpus-per-node goes with --cluster" in refusal(philly.read, path, gpus_per_node=4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (
            "machineId,GPUs\nm0,2\n",
            "line 1: expected a header with the columns machineId, number of GPUs; number of GPUs ",
        ),
        (
            "machineId, number of GPUs, single GPU mem\nm0,two, 12GB\n",
            "line 2: expected number of GPUs as a whole",
        ),
        (
            "machineId, number of GPUs, single GPU mem\nm0,2, much\n",
            "line 2: expected single GPU mem in GB as a number",
        ),
        (
            "machineId, number of GPUs, single GPU mem\nm0,2, 0GB\n",
            "line 2: expected single GPU mem in GB of at least 0.012, found '0GB'",
        ),
        (
            "machineId, number of GPUs, single GPU mem\nm0,2\n",
            "line 2: expected 3 cells separated by commas, not 2",
        ),
        (PUBLISHED_LIST + "m0,2, 12GB\n", "line 4: expected each machine once, found 'm0'"),
        ("machineId,number of GPUs\nm0,0\n", "names no machine with GPUs"),
    ],
)
def test_a_damaged_machine_list_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = log(tmp_path, simple("a", 1))
    (tmp_path / "cluster_machine_list").write_text(text)
    assert said in refusal(philly.read, path)


def test_jobs_too_large_for_the_cluster_are_counted(tmp_path: Path) -> None:
    path = log(tmp_path, simple("a", 1, 4), simple("b", 2, 8), simple("c", 3, 6), simple("d", 4, 8))
    imported = philly.read(path, cluster="p100=4")
    assert imported.dropped == {
        "can never run on this cluster, the first is b: it needs 8 GPUs of one type, the cluster "
        "has at most 4": 3
    }
    assert refusal(philly.read, path, cluster="p100=2").endswith("the cluster has at most 2: 4)")


# ------------------------------------------------------------------------------------------------
# the table

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_the_table_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text(
        HEADER
        + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\r\n2017-10-09 06:13:03,2951.5,16,0,6214e9\r\n\r\n"
    )
    imported = philly.read(path)
    assert [
        (job.id, job.submit_s, job.gpus, job.duration_s, job.tenant)
        for job in imported.instance.jobs
    ] == [("job-1", 0, 16, 2951.5, "6214e9"), ("job-0", 48 * 60 + 52, 1, 66, "11cb48")]
    cluster = imported.instance.cluster
    assert (len(cluster.nodes), cluster.total_gpus, imported.instance.name) == (552, 2490, "philly")
    assert {(node.gpu_type, node.gpus, node.gpu_memory_gib) for node in cluster.nodes} == {
        ("k80", 2, 12),
        ("p100", 8, 24),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "timestamp,duration,num_gpus\n",
            "line 1: expected a header with the columns timestamp, duration, num_gpus, clu",
        ),
        (HEADER, "none of the 0 jobs can be used"),
        (
            HEADER + "2017-10-09,66.0,1,66.0\n",
            "line 2: expected 5 cells separated by commas, not 4",
        ),
        (
            HEADER + "noon,66.0,1,66.0,a\n",
            "line 2: expected timestamp as 2017-10-09 07:01:47, or nothing, found 'noo",
        ),
        (HEADER + ",66.0,1,66.0,a\n", "line 2: expected a timestamp, found ''"),
        (
            HEADER + "2017-10-09,0,1,66.0,a\n",
            "line 2: expected duration in seconds of at least 0.001, found '0'",
        ),
        (HEADER + "2017-10-09,9,0,66.0,a\n", "line 2: expected num_gpus of at least 1, found '0'"),
        (
            HEADER + "2017-10-09,nan,1,66.0,a\n",
            "line 2: expected duration in seconds as a number, found 'nan'",
        ),
        (
            HEADER + "2017-10-09,9,1.5,66.0,a\n",
            "line 2: expected num_gpus as a whole number, found '1.5'",
        ),
        ("job\tgpus\n", "line 1: expected a header with the columns"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "philly.csv"
    path.write_text(text)
    assert said in refusal(philly.read, path)


def test_the_published_table(data: Path) -> None:
    path = data / "philly/philly.csv.gz"
    imported = philly.read(path, jobs=2000, cluster="p100=32")
    (reason, after) = sorted(imported.dropped, key=len, reverse=True)
    assert reason.endswith("GPUs of one type, the cluster has at most 32")
    too_large = 6 + 3  # of 64 and 128 GPUs
    assert imported.dropped == {reason: too_large, after: 82_247 - 2000 - too_large}
    assert (imported.read, imported.kept, after) == (82_247, 2000, "after the first 2000")
    loaded = files.load_instance(files.dump_instance(imported.instance), path.name)
    assert loaded == imported.instance


def test_a_day_of_a_virtual_cluster(data: Path) -> None:
    """1,088 rows; the first is of 01:34:10 and ran 5,672 s, the last of 23:45:24 and ran 1,660
    s."""
    imported = philly.read(
        data / "philly/philly.csv.gz", start="2017-10-09", end="2017-10-10", tenant="6214e9"
    )
    jobs = imported.instance.jobs
    assert (len(jobs), [tenant.name for tenant in imported.instance.tenants]) == (1088, ["6214e9"])
    assert (jobs[0].submit_s, jobs[0].duration_s) == (0, 5672)
    assert (jobs[-1].submit_s, jobs[-1].duration_s) == (
        (23 - 1) * 3600 + (45 - 34) * 60 + (24 - 10),
        1660,
    )
    assert imported.dropped["of another tenant than 6214e9"] == 82_247 - 41_226
