"""Standard Workload Format: every field that is read, what is left out, blanks, and the real
workloads."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import files
from optsched.errors import InputError
from optsched.model.instance import Instance
from optsched.plugins.registry import policy
from optsched.simulate.run import simulate
from optsched.traces.imported import Imported
from optsched.traces.readers import swf
from optsched.traces.usable import NAMED_TWICE
from tests.data import DATA, needs_data

from .refused import refusal

HEADER = "; Version: 2.2\n; MaxNodes: 4 (SMP)\n; MaxProcs: 20\n;UnixStartTime: 1000000000\n; MaxProcs: 99\n"  # noqa: E501


def line(number: int, **fields: Any) -> str:
    """A line of 18 fields, unknown where not given."""
    names = (
        "number",
        "submit",
        "wait",
        "run",
        "allocated",
        "cpu",
        "memory",
        "requested",
        "time",
        "asked_memory",
        "status",
        "user",
        "group",
        "executable",
        "queue",
        "partition",
        "preceding",
        "think",
    )
    values = {"submit": 0, "run": 60, "allocated": 1, "status": 1, **fields, "number": number}
    assert set(values) <= set(names)
    return " ".join(str(values.get(name, -1)) for name in names)


def read(tmp_path: Path, *lines: str, header: str = HEADER, **options: Any) -> Imported:
    path = tmp_path / "log.swf"
    path.write_text(header + "\n".join(lines))
    return swf.read(path, **options)


def fault(tmp_path: Path, *lines: str, header: str = HEADER, **options: Any) -> str:
    return refusal(read, tmp_path, *lines, header=header, **options).removeprefix(
        f"{tmp_path / 'log.swf'}: "
    )


def check_sound(instance: Instance) -> None:
    assert files.load_instance(files.dump_instance(instance)) == instance


def test_a_line_becomes_a_gang(tmp_path: Path) -> None:
    imported = read(
        tmp_path,
        line(
            7,
            submit=100,
            wait=5,
            run=61.5,
            allocated=16,
            requested=12,
            time=7200,
            user=3,
            group=2,
            executable=9,
            queue=4,
        ),
    )
    [job] = imported.instance.jobs
    assert (job.id, job.submit_s, job.duration_s, job.gpus) == ("job-7", 0, 61.5, 16)
    assert (job.user, job.tenant, job.command) == ("user-3", "group-2", "executable-9")
    assert [tenant.name for tenant in imported.instance.tenants] == ["group-2"]
    assert (imported.read, imported.dropped) == (1, {})
    check_sound(imported.instance)


def test_unknown_fields_stay_unknown(tmp_path: Path) -> None:
    [job] = read(tmp_path, line(1, allocated=-1, requested=12)).instance.jobs
    assert (job.gpus, job.user, job.tenant, job.command, job.after) == (12, None, None, None, ())


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    imported = read(
        tmp_path,
        line(1),
        line(1),
        line(2, run=-1),
        line(3, allocated=-1),
        line(4, allocated=0, requested=0),
        line(5, run=0, status=0),
        line(6, run=-1, status=5),
        line(7, run=0, status=5),
        line(8, status=2),
        line(9, status=3),
        line(10, status=4),
        line(11, allocated=21),
        line(12, run=30, status=5),
        line(13, run=40, status=0),
        line(14, run=0),
    )
    assert [(job.id, job.duration_s) for job in imported.instance.jobs] == [
        ("job-1", 60),
        ("job-12", 30),
        ("job-13", 40),
        ("job-14", 0.5),
    ]
    assert imported.read == 15
    assert imported.dropped == {
        NAMED_TWICE: 1,
        swf.UNKNOWN: 3,
        swf.NEVER_RAN: 3,
        swf.PART: 3,
        "can never run on this cluster, the first is job-11: it needs 21 GPUs of one type, the "
        "cluster has at most "
        "20": 1,
    }


def test_the_machine_of_the_header(tmp_path: Path) -> None:
    """The first comment of a name counts; MaxProcs before MaxNodes."""
    nodes = read(tmp_path, line(1)).instance.cluster.nodes
    assert [node.gpus for node in nodes] == [8, 8, 4]
    assert all(node.gpu_type is None and node.rack is None and node.cpus is None for node in nodes)
    nodes = read(tmp_path, line(1), gpus_per_node=5).instance.cluster.nodes
    assert [node.gpus for node in nodes] == [5] * 4
    assert read(tmp_path, line(1), header="; MaxNodes: 3\n").instance.cluster.total_gpus == 3
    assert read(tmp_path, line(1), header="", cluster="cpu=6").instance.cluster.total_gpus == 6
    for header in ("", "; MaxProcs: -1\n", "; MaxProcs: 0\n"):
        assert fault(tmp_path, line(1), header=header).startswith(
            "no comment '; MaxProcs: N' or '; MaxNodes: N'"
        )


def test_a_job_comes_after_the_one_that_precedes_it(tmp_path: Path) -> None:
    """Not after one that is left out, unknown, itself, or submitted later."""
    jobs = read(
        tmp_path,
        line(1, submit=10),
        line(2, submit=20, preceding=1, think=5),
        line(3, submit=30, run=-1),
        line(4, submit=40, preceding=3),
        line(5, submit=50, preceding=5),
        line(6, submit=60, preceding=7),
        line(7, submit=70, preceding=6),
        line(8, submit=80, preceding=99),
    ).instance.job
    assert {job.id: job.after for job in jobs.values() if job.after} == {
        "job-2": ("job-1",),
        "job-7": ("job-6",),
    }


def test_the_first_and_the_window(tmp_path: Path) -> None:
    """Jobs need not be sorted; the clock starts with the first that is kept."""
    lines = [
        line(i, submit=submit) for i, submit in enumerate((86_400, 0, 172_800, 90_000), start=1)
    ]
    imported = read(tmp_path, *lines, jobs=2)
    assert [(job.id, job.submit_s) for job in imported.instance.jobs] == [
        ("job-2", 0),
        ("job-1", 86_400),
    ]
    assert imported.dropped == {"after the first 2": 2}
    # second 0 of the log is 2001-09-09T01:46:40 UTC
    for start, end in (
        ("86400", "172800"),
        ("2001-09-10", "2001-09-11T01:46:40"),
        ("2001-09-10T01:46:40+00:00", "2001-09-11T02:46:40+01:00"),
    ):
        imported = read(tmp_path, *lines, start=start, end=end)
        assert [(job.id, job.submit_s) for job in imported.instance.jobs] == [
            ("job-1", 0),
            ("job-4", 3600),
        ]
        assert imported.dropped == {
            "submitted before --from": 1,
            "submitted at --until or later": 1,
        }
    assert "is not before" in fault(tmp_path, *lines, start="5", end="5")
    assert "expected a date" in fault(tmp_path, *lines, start="yesterday")
    assert "has no dates" in fault(tmp_path, *lines, header="; MaxProcs: 1\n", start="2001-09-10")
    assert "none of the 4 jobs can be used (submitted before --from: 4)" in fault(
        tmp_path, *lines, start="1e9"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3", "line 6: expected 18 cells separated by blanks, not 3, found '1 2 3'"),
        (line(1, user="root"), "line 6: expected user as a number, found 'root'"),
        (line(1, run="nan"), "line 6: expected run as a number, found 'nan'"),
        (line(1, allocated=1.5), "line 6: expected allocated as a whole number, found '1.5'"),
        (line(1, submit=-1), "line 6: expected submit of at least 0, found '-1'"),
        (
            line(1, allocated=2_000_000),
            "line 6: expected at most 1000000 processors, found '2000000,-1'",
        ),
        ("", "is empty; expected one job a line, 18 cells separated by blanks"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    assert fault(tmp_path, text).startswith(message)


JOBS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 20)),
    min_size=1,
    max_size=20,
)
BLANKS = st.text(" \t", min_size=1, max_size=3)


@settings(max_examples=60)
@given(
    jobs=JOBS,
    blank=BLANKS,
    ending=st.sampled_from(["\n", "\r\n", "\n\n", "\n; comment\n"]),
    packed=st.booleans(),
    decimal=st.sampled_from(["", ".0", ".00"]),
)
def test_blanks_and_line_ends_change_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    jobs: list[tuple[int, int, int]],
    blank: str,
    ending: str,
    packed: bool,
    decimal: str,
) -> None:
    lines = [
        line(i, submit=submit, run=f"{run}{decimal}", allocated=f"{processors}{decimal}")
        for i, (submit, run, processors) in enumerate(jobs)
    ]
    text = HEADER + ending.join(blank + each.replace(" ", blank) for each in lines)
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found = swf.read(path).instance
    first_s = min(submit for submit, _, _ in jobs)
    assert sorted(
        (job.submit_s + first_s, job.duration_s, job.gpus) for job in found.jobs
    ) == sorted(jobs)
    check_sound(found)


@settings(max_examples=60)
@given(text=st.text(st.sampled_from("0123456789 -.;\n:MaxProcs"), max_size=200))
def test_garbage_is_refused_or_sound(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    path.write_text(HEADER + line(1) + "\n" + text)
    try:
        check_sound(swf.read(path).instance)
    except InputError as error:
        assert str(path) in str(error)


# ------------------------------------------------------------------------------------------------
# real workloads


@needs_data("swf")
def test_lublin() -> None:
    """Every job of the model, against the file read the plain way."""
    path = DATA / "swf" / "lublin_256.swf.gz"
    rows = [
        text.split()
        for text in gzip.decompress(path.read_bytes()).decode().splitlines()
        if text[0] != ";"
    ]
    imported = swf.read(path)
    assert (imported.read, imported.kept, imported.dropped) == (10_000, 10_000, {})
    assert imported.instance.cluster.total_gpus == 256
    first_s = float(rows[0][1])
    assert [(job.id, job.submit_s, job.duration_s, job.gpus) for job in imported.instance.jobs] == [
        (f"job-{row[0]}", float(row[1]) - first_s, float(row[3]), int(row[4])) for row in rows
    ]


@needs_data("swf")
def test_awkward_blanks() -> None:
    """Leading blanks, Windows line ends, CPU times as 18.00, no end of the last line, no header."""
    path = DATA / "swf" / "accasim_workload.swf"
    imported = swf.read(path, cluster="cpu=36")
    assert (imported.read, imported.kept) == (25, 25)
    jobs = imported.instance.job
    assert (jobs["job-5687"].gpus, jobs["job-5687"].duration_s) == (20, 4071)
    assert (jobs["job-184"].user, jobs["job-184"].tenant, jobs["job-184"].submit_s) == (
        "user-6",
        "group-1",
        0,
    )
    with pytest.raises(InputError, match="--cluster"):
        swf.read(path)


@needs_data("swf")
@pytest.mark.parametrize("name", ["easy_mediumWL_smallPF.swf", "filler_mediumWL_smallPF.swf"])
def test_a_schedulers_output_without_a_header(name: str) -> None:
    imported = swf.read(DATA / "swf" / name, cluster="cpu=16")
    assert (imported.read, imported.kept) == (800, 800)
    assert imported.instance.jobs[1].submit_s == 4.709  # the file is not sorted


@needs_data("swf")
def test_fifo_over_a_workload_is_fifo() -> None:
    """Completions of the simulation against a queue that is served strictly in order."""
    instance = swf.read(DATA / "swf" / "lublin_256.swf.gz", jobs=400).instance
    free, now_s, running, ends = 256, 0.0, [], {}
    for job in instance.jobs:
        assert isinstance(job.gpus, int)
        now_s = max(now_s, job.submit_s)
        while free < job.gpus or (running and min(running)[0] <= now_s):
            end_s, gpus = min(running)
            running.remove((end_s, gpus))
            free, now_s = free + gpus, max(now_s, end_s)
        free -= job.gpus
        ends[job.id] = now_s + job.work_s
        running.append((ends[job.id], job.gpus))
    plan = simulate(instance, policy("fifo"))
    assert {entry.id: entry.segments[-1].end_s for entry in plan.jobs} == pytest.approx(ends)
