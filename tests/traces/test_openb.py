"""Alibaba 2023 pods: fractions, types, hosts, priorities, what is left out, and the real lists."""

import csv
import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import files
from optsched.errors import InputError
from optsched.model.profile import UNMEASURED, Locality
from optsched.physics import sharing_rate
from optsched.physics.catalogue import catalogue_of
from optsched.traces.imported import Imported
from optsched.traces.readers import openb
from tests.data import DATA, needs_data

from .refused import refusal

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"  # noqa: E501
NODES = """sn,cpu_milli,memory_mib,gpu,model
n0,32000,262144,0,
n1,96000,393216,8,G2
n2,32500,131072,4,V100M16
n3,48000,376832,4,V100M32
"""


def read(tmp_path: Path, *rows: str, nodes: str = NODES, **options: str | int | bool) -> Imported:
    (tmp_path / "openb_node_list_all_node.csv").write_text(nodes)
    path = tmp_path / "pods.csv"
    path.write_text(PODS + "\n".join(rows) + "\n")
    return openb.read(path, **options)  # type: ignore[arg-type]


def fault(tmp_path: Path, *rows: str, **options: str) -> str:
    return refusal(read, tmp_path, *rows, **options).removeprefix(f"{tmp_path}/")


def test_a_pod_of_whole_gpus(tmp_path: Path) -> None:
    imported = read(tmp_path, "p,22500,131072,4,1000,V100M16|V100M32,LS,Running,100,1700.5,200")
    [job] = imported.instance.jobs
    assert (job.id, job.submit_s, job.duration_s, job.gpus, job.cpus, job.memory_gib) == (
        "p",
        0,
        1500.5,
        4,
        0,
        0,
    )
    assert job.profile.rate == {"v100m16": 1.0, "v100m32": 1.0}
    assert job.profile.cpus_per_gpu == {6: 1.0}  # 5.625 cores beside each
    assert job.profile.memory_gib_per_gpu == 32
    assert job.profile.locality == Locality(node=1.0, rack=0.0, cluster=0.0)
    assert job.profile.sharing is None
    assert {
        (option.mode.gpu_type, option.spread)
        for option in catalogue_of(imported.instance).options(job)
    } == {("v100m16", "node"), ("v100m32", "node")}


def test_a_list_of_what_pods_ask_for_is_read_without_times(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    path = tmp_path / "pods.csv"
    path.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,2000,1024,2,1000\n")
    [job] = openb.read(path, with_times=False).instance.jobs
    assert (job.gpus, job.submit_s, job.duration_s, job.profile.rate) == (2, 0, 1, {})
    with pytest.raises(
        InputError, match="gpu_spec, qos, creation_time, deletion_time, scheduled_time are missing"
    ):
        openb.read(path)


def test_parts_of_a_gpu_may_share_one(tmp_path: Path) -> None:
    jobs = read(
        tmp_path,
        "a,4000,15258,1,220,,BE,Failed,0,10,0",
        "b,4000,15258,1,700,,BE,Succeeded,0,10,0",
        "c,4000,15258,1,400,,BE,Succeeded,0,10,0",
        "d,4000,15258,1,1000,,BE,Succeeded,0,10,0",
    ).instance.job
    assert [job.gpus for job in jobs.values()] == [1] * 4
    assert sharing_rate(jobs["a"].profile, jobs["b"].profile) == 1
    assert sharing_rate(jobs["b"].profile, jobs["c"].profile) == pytest.approx(1 / 1.1)
    assert sharing_rate(jobs["a"].profile, jobs["d"].profile) == 0
    assert jobs["a"].profile.locality is None and jobs["a"].profile.rate == {}


def test_a_pod_without_gpus(tmp_path: Path) -> None:
    [job] = read(tmp_path, "p,12500,4096,0,0,,Guaranteed,Running,0,10,0").instance.jobs
    assert (job.gpus, job.cpus, job.memory_gib, job.profile) == (0, 13, 4, UNMEASURED)


def test_best_effort_yields(tmp_path: Path) -> None:
    jobs = read(
        tmp_path,
        *(f"p-{qos},1000,1,1,1000,,{qos},Running,0,9,0" for qos in ("LS", "BE", "Burstable", "")),
    )
    assert [job.priority for job in jobs.instance.jobs] == [1, 0, 1, 1]


def test_nodes(tmp_path: Path) -> None:
    cluster = read(tmp_path, "p,1000,1,1,1000,,BE,Running,0,9,0").instance.cluster
    assert [
        (n.name, n.gpu_type, n.gpus, n.gpu_memory_gib, n.cpus, n.memory_gib, n.rack)
        for n in cluster.nodes
    ] == [
        ("n0", None, 0, None, 32, 256, None),
        ("n1", "g2", 8, None, 96, 384, None),
        ("n2", "v100m16", 4, 16, 32, 128, None),
        ("n3", "v100m32", 4, 32, 48, 368, None),
    ]
    other = tmp_path / "others.csv.gz"
    other.write_bytes(gzip.compress(b"sn,cpu_milli,memory_mib,gpu,model\nx,1000,1024,1,T4\n"))
    imported = read(tmp_path, "p,1000,1,1,1000,,BE,Running,0,9,0")
    again = openb.read(tmp_path / "pods.csv", nodes=other)
    assert [node.name for node in again.instance.cluster.nodes] == ["x"]
    assert again.instance.jobs == imported.instance.jobs


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    imported = read(
        tmp_path,
        "a,1000,1,1,1000,,BE,Pending,0,9,",
        "b,1000,1,1,1000,,BE,Running,0,,5",
        "c,1000,1,1,1000,,BE,Failed,7,7,7",
        "d,0,1,0,0,,BE,Running,0,9,0",
        "e,1000,1,2,1000,,BE,Running,0,9,0",
        "e,1000,1,2,1000,,BE,Running,0,9,0",
        "f,1000,1,9,1000,,BE,Running,0,9,0",
        "g,1000,1,1,1000,T4,BE,Failed,0,9,0",
        "h,1000,1,1,1000,,BE,Running,20,29,20",
        "i,1000,1,1,1000,,BE,Running,2,29,20",
        end="20",
        jobs=1,
    )
    assert [job.id for job in imported.instance.jobs] == ["e"]
    assert imported.read == 10
    assert imported.dropped == {
        openb.NEVER_SCHEDULED: 2,
        "ran for no time": 1,
        "asks for neither GPUs nor cores": 1,
        "a job of this id came before": 1,
        "submitted at --until or later": 1,
        "after the first 1": 1,
        "can never run on this cluster, the first is f: it needs 9 GPUs of one type, the cluster "
        "has at most 8": 2,
    }


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "p,1000,1,1,1000,,BE,Running,0,9",
            "pods.csv: line 2: expected 11 cells separated by commas, not 10, found ",
        ),
        (
            "p,1000,1,1.5,1000,,BE,Running,0,9,0",
            "pods.csv: line 2: expected num_gpu as a whole number, found '1.5'",
        ),
        (
            "p,1000,1,1,0,,BE,Running,0,9,0",
            "pods.csv: line 2: expected gpu_milli above 0, at most 1000, beside num_gpu",
        ),
        (
            "p,1000,1,1,1001,,BE,Running,0,9,0",
            "pods.csv: line 2: expected gpu_milli above 0, at most 1000",
        ),
        (
            "p,-1,1,1,1000,,BE,Running,0,9,0",
            "pods.csv: line 2: expected cpu_milli of at least 0, found '-1'",
        ),
        (
            "p,1000,1,1,1000,,BE,Running,,9,0",
            "pods.csv: line 2: expected a name and a creation_time, found 'p,1000",
        ),
        (
            ",1000,1,1,1000,,BE,Running,0,9,0",
            "pods.csv: line 2: expected a name and a creation_time, found ',1000",
        ),
        (
            "p,1000,x,1,1000,,BE,Running,0,9,0",
            "pods.csv: line 2: expected memory_mib as a number, found 'x'",
        ),
        ("", "pods.csv: none of the 0 jobs can be used"),
    ],
)
def test_a_damaged_list_is_refused_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    assert fault(tmp_path, row).startswith(message)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("", "is empty; expected a table"),
        (
            "sn,cpu_milli\n",
            "line 1: expected a header with the columns sn, cpu_milli, memory_mib, gpu, model; "
            "memory_mib",
        ),
        ("sn,cpu_milli,memory_mib,gpu,model\n", "lists no machine"),
        (NODES + "n0,1,1,1,\n", "line 6: expected each machine once, found 'n0'"),
        (NODES + "n[1-9],1,1,1,\n", "line 6: expected a machine's name of letters"),
    ],
)
def test_a_damaged_node_list_is_refused(tmp_path: Path, nodes: str, message: str) -> None:
    said = fault(tmp_path, "p,1000,1,1,1000,,BE,Running,0,9,0", nodes=nodes)
    assert said.removeprefix("openb_node_list_all_node.csv: ").startswith(message)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "alone.csv"
    path.write_text(PODS)
    with pytest.raises(InputError, match="name the node list with --nodes PATH"):
        openb.read(path)
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    for content, said in (
        (b"\xff\xfe\x00", "is not a text file"),
        (gzip.compress(PODS.encode())[:40], "is not a sound gzip file"),
        (b"a" * 200_000, "line 1: is not comma-separated text"),
        (PODS.encode() + b'"' + b"a\n" * 100_000, "expected 11 cells separated by commas, not 1"),
        (b"name,cpu_milli\n", "are missing"),
        (b"", "is empty"),
        (b"\n\n", "is empty"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=said):
            openb.read(path)
    with pytest.raises(InputError, match=r"absent.csv: cannot be read: No such file"):
        openb.read(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        openb.read(tmp_path, nodes=tmp_path / "openb_node_list_all_node.csv")


@settings(max_examples=50)
@given(length=st.integers(0, 300), junk=st.text(st.sampled_from('0,.-"\nxn\x00'), max_size=20))
def test_a_list_cut_or_scribbled_on_anywhere_is_refused_or_sound(
    tmp_path_factory: pytest.TempPathFactory, length: int, junk: str
) -> None:
    folder = tmp_path_factory.mktemp("openb")
    (folder / "openb_node_list_all_node.csv").write_text(NODES)
    text = PODS + "".join(
        f"p{i},4000,15258,{i},1000,,BE,Failed,{i},{i + 9},{i}\n" for i in range(6)
    )
    path = folder / "pods.csv"
    path.write_text(text[:length] + junk + text[length:])
    try:
        instance = openb.read(path).instance
        assert files.load_instance(files.dump_instance(instance)) == instance
    except InputError as error:
        assert str(error).startswith(f"{path}: ")


# ------------------------------------------------------------------------------------------------
# the real lists


@needs_data("alibaba_openb")
@pytest.mark.parametrize(
    ("name", "kept", "pending"), [("default", 7255, 897), ("gpushare100", 6943, 1209)]
)
def test_the_published_lists(name: str, kept: int, pending: int) -> None:
    """Every pod that was scheduled, with what it asked for, against the file read the plain way."""
    path = DATA / "alibaba_openb" / f"openb_pod_list_{name}.csv.gz"
    imported = openb.read(path)
    assert (imported.read, imported.kept, imported.dropped) == (
        kept + pending,
        kept,
        {openb.NEVER_SCHEDULED: pending},
    )
    cluster = imported.instance.cluster
    assert (len(cluster.nodes), cluster.total_gpus) == (1523, 6212)
    assert set(cluster.gpu_types) == {"g2", "g3", "t4", "p100", "v100m16", "v100m32", "a10"}
    with gzip.open(path, "rt") as file:
        rows = {row["name"]: row for row in csv.DictReader(file) if row["scheduled_time"]}
    first_s = min(float(row["creation_time"]) for row in rows.values())
    assert set(imported.instance.job) == set(rows)
    for job in imported.instance.jobs:
        row = rows[job.id]
        assert job.submit_s == float(row["creation_time"]) - first_s
        assert job.duration_s == float(row["deletion_time"]) - float(row["scheduled_time"])
        assert job.gpus == int(row["num_gpu"])
        part = job.profile.sharing.duty if job.profile.sharing else None
        assert part == (int(row["gpu_milli"]) / 1000 if 0 < int(row["gpu_milli"]) < 1000 else None)
        cores = sum(job.profile.cpus_per_gpu) if job.gpus else job.cpus
        assert cores == math.ceil(int(row["cpu_milli"]) / 1000 / max(1, int(row["num_gpu"])))
    profiles = {id(job.profile) for job in imported.instance.jobs}
    assert len(profiles) <= 151  # the distinct requests in the larger list


@needs_data("alibaba_openb")
def test_the_published_list_of_gpu_nodes() -> None:
    folder = DATA / "alibaba_openb"
    imported = openb.read(
        folder / "openb_pod_list_default.csv.gz",
        jobs=100,
        nodes=folder / "openb_node_list_gpu_node.csv.gz",
    )
    assert (len(imported.instance.cluster.nodes), imported.instance.cluster.total_gpus) == (
        1213,
        6212,
    )
    assert files.load_instance(files.dump_instance(imported.instance)) == imported.instance
    with pytest.raises(InputError, match="expected a header with the columns sn"):
        openb.read(
            folder / "openb_pod_list_default.csv.gz", nodes=folder / "v2026_spot_nodes.csv.gz"
        )


def test_cores_in_thousandths(tmp_path: Path) -> None:
    imported = read(
        tmp_path,
        "p,11300,1024,1,1000,,LS,Running,0,10,0",
        "q,500,1024,0,0,,LS,Running,0,10,0",
        whole_cores=False,
    )
    gpu, cpu = imported.instance.jobs
    assert gpu.profile.cpus_per_gpu == {11300: 1.0}
    assert cpu.cpus == 500
    assert [node.cpus for node in imported.instance.cluster.nodes] == [32000, 96000, 32500, 48000]


def test_pods_that_never_ran_can_be_kept(tmp_path: Path) -> None:
    rows = (
        "p,1000,1024,1,470,,LS,Pending,7,,",
        "q,1000,1024,0,0,,LS,Failed,7,9,9",
        "r,1000,1024,1,1000,,LS,Running,7,20,9",
    )
    assert [job.id for job in read(tmp_path, *rows).instance.jobs] == ["r"]
    kept = read(tmp_path, *rows, with_times=False)
    assert [(job.id, job.duration_s) for job in kept.instance.jobs] == [
        ("p", 1),
        ("q", 1),
        ("r", 11),
    ]
    assert kept.dropped == {}
