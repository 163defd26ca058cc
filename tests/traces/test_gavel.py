"""Gavel traces: both layouts, a table of round numbers, and jobs of the published traces checked by
hand."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from optsched import files
from optsched.model.profile import Locality, Sharing
from optsched.traces.readers import gavel
from optsched.traces.readers.throughputs import NOT_MEASURED

from .refused import refusal

TABLE: dict[str, dict[str, dict[str, Any]]] = {
    "v100": {
        "('LM (batch size 5)', 1)": {
            "null": 10.0,
            "('LM (batch size 5)', 1)": [6.0, 6.0],
            "('A3C', 1)": [8.0, 1.0],
            "('ResNet-50 (batch size 64)', 1)": [0.0, 0.0],
        },
        "('LM (batch size 5)', 2)": {"null": 16.0, "('LM (batch size 5)', 2)": [0.0, 0.0]},
        "('LM (batch size 5)', 8)": {"null": 40.0},
        "('A3C', 1)": {"null": 2.0, "('LM (batch size 5)', 1)": [1.0, 8.0]},
        "('ResNet-50 (batch size 64)', 1)": {"null": 4.0, "('LM (batch size 5)', 1)": [0.0, 0.0]},
        "('ResNet-50 (batch size 64)', 2)": {"null": 6.0},
    },
    "p100": {
        "('LM (batch size 5)', 1)": {"null": 8.0},
        "('LM (batch size 5)', 2)": {"null": 9.0},
        "('LM (batch size 5)', 8)": {"null": 20.0},
        "('A3C', 1)": {"null": 3.0},
        "('ResNet-50 (batch size 64)', 1)": {"null": 2.0},
        "('ResNet-50 (batch size 64)', 2)": {"null": 3.0},
    },
    "k80": {
        "('LM (batch size 5)', 1)": {"null": 2.5},
        "('LM (batch size 5)', 2)": {"null": 4.0},
        "('LM (batch size 5)', 8)": {"null": 10.0},
        "('A3C', 1)": {"null": 1.0},
        "('ResNet-50 (batch size 64)', 1)": {"null": 1.0},
        "('ResNet-50 (batch size 64)', 2)": {"null": 0.0},
    },
    "v100_unconsolidated": {
        "('LM (batch size 5)', 1)": {"null": 10.0},
        "('LM (batch size 5)', 2)": {"null": 4.0},
        "('LM (batch size 5)', 8)": {"null": 4.0},
        "('ResNet-50 (batch size 64)', 2)": {"null": 7.0},
    },
}


def line10(
    job_type: str, steps: Any, gpus: Any, arrival: Any, weight: Any = 1, slo: Any = "-1.000000"
) -> str:
    return "\t".join(
        map(str, (job_type, "run.py", "dir", "--steps", 1, steps, gpus, weight, slo, arrival))
    )


def line7(job_type: str, steps: Any, gpus: Any, arrival: Any) -> str:
    return "\t".join(map(str, (job_type, "run.py", "--steps", 1, steps, arrival, gpus)))


def trace(folder: Path, *lines: str, table: Any = TABLE) -> Path:
    (folder / "simulation_throughputs.json").write_text(json.dumps(table))
    path = folder / "small.trace"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_one_job_by_hand(tmp_path: Path) -> None:
    imported = gavel.read(trace(tmp_path, line10("LM (batch size 5)", 3000, 1, 60, weight=2)))
    (job,) = imported.instance.jobs
    assert (job.id, job.submit_s, job.gpus, job.weight, job.deadline_s) == ("job-0", 60, 1, 2, None)
    assert job.duration_s == 300  # 3000 steps at 10 a second
    assert job.profile.name == "LM (batch size 5)"
    assert job.profile.rate == {"v100": 1, "p100": 0.8, "k80": 0.25}
    assert job.profile.sharing == Sharing(partners={"LM (batch size 5)": 0.6, "A3C": 0.8})
    assert job.profile.locality is None
    assert (job.profile.checkpoint_s, job.profile.restore_s, job.profile.startup_s) == (6, 24, 0)


def test_own_rate_comes_first_in_a_pair(tmp_path: Path) -> None:
    (job,) = gavel.read(trace(tmp_path, line7("A3C", 10, 1, 0))).instance.jobs
    assert job.profile.sharing == Sharing(
        partners={"LM (batch size 5)": 0.5}
    )  # 1 of 2, not 8 of 10


def test_locality_is_never_above_one_and_only_for_gangs_a_node_can_hold(tmp_path: Path) -> None:
    path = trace(
        tmp_path,
        line7("LM (batch size 5)", 16, 2, 0),
        line7("LM (batch size 5)", 40, 8, 1),
        line7("ResNet-50 (batch size 64)", 6, 2, 2),
    )
    packed, large, noisy = gavel.read(path).instance.jobs
    assert packed.profile.locality == Locality(rack=0.25, cluster=0.25)  # 4 of 16 steps/s
    assert packed.profile.sharing is None
    assert large.profile.locality is None
    assert noisy.profile.locality is None  # 7 spread, 6 packed
    on_large_nodes = gavel.read(path, gpus_per_node=8).instance.jobs
    assert on_large_nodes[1].profile.locality == Locality(rack=0.1, cluster=0.1)


def test_a_type_without_a_rate_cannot_run_the_job_and_restarts_take_longer(tmp_path: Path) -> None:
    path = trace(tmp_path, line7("ResNet-50 (batch size 64)", 600, 2, 0))
    (job,) = gavel.read(path).instance.jobs
    assert job.profile.rate == {"v100": 1, "p100": 0.5}
    assert (job.profile.checkpoint_s, job.profile.restore_s) == (50, 200)
    (free,) = gavel.read(path, overheads=False).instance.jobs
    assert (free.profile.checkpoint_s, free.profile.restore_s) == (0, 0)


def test_a_deadline_is_a_multiple_of_the_duration(tmp_path: Path) -> None:
    (job,) = gavel.read(trace(tmp_path, line10("A3C", 200, 1, 50, slo="1.2"))).instance.jobs
    assert job.deadline_s == 50 + 1.2 * 100


def test_both_layouts_say_the_same(tmp_path: Path) -> None:
    seven = gavel.read(trace(tmp_path, line7("A3C", 200, 1, "50.500000"))).instance
    ten = gavel.read(trace(tmp_path, line10("A3C", 200, 1, "50.500000"))).instance
    assert seven == ten


def test_first_jobs_are_the_first_to_arrive(tmp_path: Path) -> None:
    path = trace(
        tmp_path,
        line7("A3C", 2, 1, 30),
        line7("A3C", 4, 2, 10),
        line7("A3C", 6, 1, 20),
        "",
        line7("A3C", 8, 1, 5),
    )
    imported = gavel.read(path, jobs=2)
    assert [(job.id, job.submit_s, job.duration_s) for job in imported.instance.jobs] == [
        ("job-3", 5, 4),
        ("job-2", 20, 3),
    ]
    assert imported.read == 4
    assert imported.dropped == {NOT_MEASURED: 1, "after the first 2": 1}


@pytest.mark.parametrize(
    "specification", ["v100=6,p100=4,k80=0", "6:4:0", "p100=4, v100=6", "specs.json"]
)
def test_cluster(tmp_path: Path, specification: str) -> None:
    (tmp_path / "specs.json").write_text('{"philly": ["6:4:0", "1:1:1"]}')
    text = str(tmp_path / specification) if specification.endswith(".json") else specification
    cluster = gavel.read(trace(tmp_path, line7("A3C", 2, 1, 0)), cluster=text).instance.cluster
    assert sorted((node.name, node.gpu_type, node.gpus) for node in cluster.nodes) == [
        ("p100-0", "p100", 4),
        ("v100-0", "v100", 4),
        ("v100-1", "v100", 2),
    ]
    assert cluster.reference_gpu == "v100"


def test_default_cluster(tmp_path: Path) -> None:
    cluster = gavel.read(trace(tmp_path, line7("A3C", 2, 1, 0))).instance.cluster
    assert {t: sum(n.gpus for n in cluster.nodes if n.gpu_type == t) for t in gavel.GPU_TYPES} == {
        "v100": 36,
        "p100": 36,
        "k80": 36,
    }
    assert len(cluster.nodes) == 27


def test_jobs_that_never_fit_are_dropped_with_the_reason(tmp_path: Path) -> None:
    path = trace(
        tmp_path,
        line7("A3C", 2, 1, 0),
        line7("LM (batch size 5)", 2, 8, 0),
        line7("ResNet-50 (batch size 64)", 2, 2, 0),
    )
    assert gavel.read(path, cluster="k80=4").dropped == {
        "it needs 8 GPUs of one type, the cluster has at most 4": 1,
        "its profile has rates for v100, p100, the cluster has k80": 1,
    }
    assert refusal(gavel.read, trace(tmp_path, line7("A3C", 2, 4, 0))).endswith(
        "none of the 1 jobs can be used (job type and GPU count are not in the throughput table: 1)"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "A3C\trun.py\t2",
            "line 2: expected 7 or 10 cells separated by tabs, not 3, found 'A3C\\trun.py\\t2'",
        ),
        (
            line7("A3C", "many", 1, 0),
            "line 2: expected total_steps as a whole number, found 'many'",
        ),
        (line7("A3C", 5, "-1", 0), "line 2: expected scale_factor as a whole number, found '-1'"),
        (line7("A3C", 5, 1, "nan"), "line 2: expected arrival in seconds as a number, found 'nan'"),
        (
            line7("A3C", 5, 1, "1e300"),
            "line 2: expected arrival in seconds as a number, found '1e300'",
        ),
        (line10("A3C", 5, 1, 0, weight="x"), "line 2: expected weight as a number, found 'x'"),
        (line10("A3C", 5, 1, 0, slo="inf"), "line 2: expected slo as a number, found 'inf'"),
        (line7("A3C", 0, 1, 0), "line 2: expected total_steps of at least 1, found '0'"),
    ],
)
def test_a_damaged_line_is_refused(tmp_path: Path, line: str, said: str) -> None:
    path = trace(tmp_path, line7("A3C", 2, 1, 0), line)
    assert refusal(gavel.read, path) == f"{path}: {said}"


@pytest.mark.parametrize(
    "cluster",
    [
        "",
        "36",
        "36:36",
        "v100",
        "v100=",
        "v100=x",
        "v100=-4",
        "h100=8",
        "0:0:0",
        "v100=4,v100=4",
        "v100=9999999",
        "v100=4=4",
        "absent.json",
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(tmp_path: Path, cluster: str) -> None:
    path = trace(tmp_path, line7("A3C", 2, 1, 0))
    assert cluster in refusal(gavel.read, path, cluster=cluster)


NO_RATE = "v100: ('A3C', 1): expected {'null': steps per second >= 0, ...}"


def test_the_table_is_looked_for_beside_the_trace_and_above(tmp_path: Path) -> None:
    path = trace(tmp_path, line7("A3C", 2, 1, 0))
    below = tmp_path / "below"
    below.mkdir()
    moved = path.rename(below / "small.trace")
    assert gavel.read(moved).kept == 1
    other = tmp_path / "other.json.gz"
    other.write_bytes(gzip.compress((tmp_path / "simulation_throughputs.json").read_bytes()))
    (tmp_path / "simulation_throughputs.json").unlink()
    assert "name Gavel's throughput table with --throughputs PATH" in refusal(gavel.read, moved)
    assert gavel.read(moved, throughputs=other).kept == 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ([], "is no Gavel throughput table"),
        ({"p100": {}}, "is no Gavel throughput table"),
        ({"v100": {"('A3C', 1)": 5}}, NO_RATE),
        ({"v100": {"('A3C', 1)": {"null": "fast"}}}, NO_RATE),
        ({"v100": {"('A3C', 1)": {"null": -1}}}, NO_RATE),
        ({"v100": {"('A3C', 1)": {"null": 10**400}}}, NO_RATE),
        ({"v100": {"('A3C', 1)": {"null": math.nan}}}, NO_RATE),
        ({"v100": {"('A3C', 1)": {"null": True}}}, NO_RATE),
        (
            {"v100": {"('A3C', 1)": {"null": 1, "('A3C', 1)": [1]}}},
            "('A3C', 1): expected two rates [own, other]",
        ),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, table: Any, said: str) -> None:
    assert said in refusal(gavel.read, trace(tmp_path, line7("A3C", 2, 1, 0), table=table))


def test_published_seven_columns_by_hand(data: Path) -> None:
    imported = gavel.read(data / "gavel/traces_msr/0e4a51.trace.gz")
    assert (imported.instance.name, imported.read, imported.kept) == ("0e4a51", 1181, 984)
    assert imported.dropped == {NOT_MEASURED: 197}
    job = imported.instance.jobs[0]
    assert job.profile.name == "Transformer (batch size 128)"
    assert job.duration_s == 17465.876  # 95121 steps at 5.44610521981264 a second
    assert job.profile.rate == {"v100": 1, "p100": 0.564355, "k80": 0.180236}
    assert job.profile.sharing is not None
    assert (
        job.profile.sharing.partners["ResNet-18 (batch size 16)"] == 0.739826
    )  # 4.02917090291956 steps/s
    assert (
        "ResNet-50 (batch size 128)" not in job.profile.sharing.partners
    )  # out of memory together


def test_published_ten_columns_by_hand(data: Path) -> None:
    imported = gavel.read(data / "gavel/generated/gavel_osdi_100_lam2400.trace.gz", jobs=50)
    assert (imported.read, imported.kept, imported.dropped) == (100, 50, {"after the first 50": 50})
    job = imported.instance.job["job-0"]
    assert (job.gpus, job.duration_s) == (4, 8109.634)  # 57005 steps at 7.029294087316617 a second
    assert job.profile.rate == {"v100": 1, "p100": 0.738502}  # it does not fit a K80
    spread = imported.instance.job["job-15"]
    assert (spread.profile.name, spread.gpus) == ("LM (batch size 40)", 2)
    assert spread.profile.locality == Locality(
        rack=0.231696, cluster=0.231696
    )  # 21.2217 of 91.5927 steps/s
    assert imported.instance.jobs[1].submit_s == 346.298554


def test_published_traces_load(data: Path) -> None:
    paths = sorted(data.glob("gavel/*/*.trace.gz"))
    assert len(paths) == 15
    for path in paths:
        instance = gavel.read(path, jobs=100).instance
        text = files.dump_instance(instance)
        loaded = files.load_instance(text, path.name)
        assert loaded == instance
        assert files.dump_instance(loaded) == text
