"""`optsched solve`: what is printed, what is written, and what is refused before any work."""

import gzip
import json
from pathlib import Path

import pytest

from optsched import files
from optsched.model.plan import Level
from tests.clusters import one_node
from tests.list_schedule import list_schedule


def test_table_says_everything(run, fake_engine, instance_path):
    done = run("solve", instance_path)
    assert done.exit_code == 0
    for word in (
        "busy <morning>: 7 jobs, 6 GPUs on 3 nodes, 1 running now",
        "feasible: a checked plan",
        "wct",
        "bound",
        "gap",
        "10 %",
        "proved by",
        "nine tenths",
        "list, seed 0",
        "1 of 1 deadlines missed",
        "now        1 continue, 2 start, 4 wait",
        "1 h 52 min",
    ):
        assert word in done.output, word
    for job in ("long", "short", "late", "chained", "cpu", "paper", "back"):
        assert f"\n{job} " in done.output


def test_engine_gets_what_was_asked_for(run, fake_engine, instance_path, instance, plan_path):
    done = run(
        "solve",
        instance_path,
        "--solver",
        "cpsat",
        "--objective",
        "deadline,wct",
        "--time-limit",
        "1h30m",
        "--seed",
        "7",
        "--workers",
        "3",
        "--option",
        "a=b",
        "--option",
        "c = d=e",
        "--gap",
        "1%",
        "--start",
        plan_path,
    )
    assert done.exit_code == 0
    (call,) = fake_engine.calls
    assert call == {
        "instance": instance,
        "objective": "deadline,wct",
        "solver": "cpsat",
        "time_limit_s": 5400.0,
        "seed": 7,
        "workers": 3,
        "options": {"a": "b", "c": "d=e"},
        "checked": True,
        "on_progress": None,
        "on_certificate": None,
        "initial": files.read_plan(plan_path)[1],
        "gap": 0.01,
        "log": False,
        "ignore_priorities": False,
    }


def test_json_is_the_plan_file_and_nothing_else(run, fake_engine, instance_path, tmp_path):
    plan = tmp_path / "plan.json"
    done = run("solve", instance_path, "--json", "-o", plan)
    assert done.stdout == plan.read_text()
    assert json.loads(done.stdout)["objective"]["status"] == "feasible"
    assert done.stderr == ""


def test_quiet_prints_nothing_and_writes_all(run, fake_engine, instance_path, tmp_path):
    done = run(
        "solve", instance_path, "-q", "-o", tmp_path / "p.json.gz", "--gantt", tmp_path / "p.svg"
    )
    assert (done.exit_code, done.output) == (0, "")
    assert (
        json.loads(gzip.decompress((tmp_path / "p.json.gz").read_bytes()))["format"]
        == files.PLAN_FORMAT
    )
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")


def test_written_files_are_named(run, fake_engine, instance_path, tmp_path):
    done = run("solve", instance_path, "-o", tmp_path / "p.json", "--gantt", tmp_path / "p.html")
    assert done.output.endswith(f"plan: {tmp_path / 'p.json'}\npicture: {tmp_path / 'p.html'}\n")
    assert "Plotly.newPlot" in (tmp_path / "p.html").read_text()


def test_stdin(run, fake_engine, instance_path, instance):
    assert run("solve", "-", input=instance_path.read_bytes()).exit_code == 0
    assert fake_engine.calls[0]["instance"] == instance


def test_without_a_plan_the_status_is_1(run, fake_engine, instance_path, tmp_path):
    fake_engine.change = {
        "plan": None,
        "status": "infeasible",
        "levels": (Level(name="wct", value=None, bound=None),),
    }
    done = run("solve", instance_path, "-o", tmp_path / "p.json", "--gantt", tmp_path / "p.svg")
    assert done.exit_code == 1
    assert "infeasible: no plan exists" in done.output and "unknown" in done.output
    assert files.read_plan(tmp_path / "p.json")[1] is None
    assert not (tmp_path / "p.svg").exists()


def test_fallback_and_notes_are_shown(run, fake_engine, instance_path):
    fake_engine.change = {
        "fallback": "cpsat was killed",
        "notes": ("first [red]note[/red]", "second note"),
    }
    done = run("solve", instance_path)
    for word in (
        "fallback   cpsat was killed",
        "note       first [red]note[/red]",
        "note       second note",
    ):
        assert word in done.output


def test_many_jobs_are_cut_at_30(run, fake_engine, tmp_path):
    from optsched import Instance, Job

    many = Instance(
        name="many",
        cluster=one_node("a", gpus=8),
        jobs=tuple(Job(id=f"job{i:02}", duration_s=60) for i in range(40)),
    )
    files.write_text(tmp_path / "i.json", files.dump_instance(many))
    done = run("solve", tmp_path / "i.json")
    assert (
        "and 10 more" in done.output and done.output.count("\njob") == 31
    )  # the heading and 30 jobs


@pytest.mark.parametrize("limit", ["", "0", "0s", "-5", "soon", "nan", "inf", "5x", "1e400"])
def test_bad_durations(run, fake_engine, instance_path, limit):
    done = run("solve", instance_path, "--time-limit", limit)
    assert done.exit_code == 2
    assert "--time-limit" in done.output and not fake_engine.calls


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--objective", "speed"), "objective 'speed' is unknown; choose from "),
        (("--objective", ""), "objective '' is unknown"),
        (("--option", "novalue"), "--option 'novalue' has no value; write key=value"),
        (("--option", "a=1", "--option", "a=2"), "--option a is given twice"),
        (("--gantt", "plan.gif"), "ends in .html, .svg, .png or .pdf"),
        (("--gantt", "plan"), "ends in .html, .svg, .png or .pdf"),
        (("-o", "nowhere/plan.json"), "does not exist; make it first"),
        (("-o", "."), "is a directory"),
        (("-o", "same.html", "--gantt", "same.html"), "would overwrite the file of -o"),
        (("-o", "instance.json"), "would overwrite the instance"),
        (("--solver", "oracle"), "solver 'oracle' is unknown"),
    ],
)
def test_refused_before_any_work(run, fake_engine, instance_path, words, message, monkeypatch):
    monkeypatch.chdir(instance_path.parent)
    before = instance_path.read_bytes()
    done = run("solve", instance_path, *words)
    assert done.exit_code == 2
    assert done.stderr.startswith("optsched: ") and message in done.stderr and done.stdout == ""
    assert [path.name for path in instance_path.parent.iterdir()] == ["instance.json"]
    assert instance_path.read_bytes() == before
    if "--solver" not in words:
        assert not fake_engine.calls


def test_a_directory_without_permission_is_refused(
    run, fake_engine, instance_path, tmp_path, monkeypatch
):
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    done = run("solve", instance_path, "-o", tmp_path / "p.json")
    assert done.exit_code == 2 and "no permission" in done.stderr and not fake_engine.calls


def test_a_full_disk_loses_nothing_but_the_file(run, fake_engine, instance_path):
    done = run("solve", instance_path, "-o", "/dev/full")
    assert done.exit_code == 2
    assert "/dev/full: cannot be written: No space left on device" in done.stderr
    assert "feasible: a checked plan" in done.stdout
    assert not Path("/dev/full").is_file()


def test_both_files_that_cannot_be_written_are_named(run, fake_engine, instance_path, monkeypatch):
    from optsched.picture import figure

    monkeypatch.setattr(
        figure, "write_bytes", lambda path, data: files.write_bytes("/dev/full", data)
    )
    done = run("solve", instance_path, "-o", "/dev/full", "--gantt", "/tmp/never-written.svg", "-q")
    assert done.stderr.count("optsched: /dev/full: cannot be written") == 2
    assert not Path("/tmp/never-written.svg").exists()


BAD_FILES = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "truncated": (b'{"format": "optsched/1", "jobs": [{"id": "a", ', "is not JSON"),
    "not text": (b"\x80\x81\x82" * 9, "UTF-8"),
    "damaged gzip": (b"\x1f\x8b\x08\x00" + b"x" * 40, "gzip"),
    "a list": (b"[]", "object"),
    "NaN": (b'{"format": "optsched/1", "jobs": [{"id": "a", "duration_s": NaN}]}', "duration_s"),
    "huge": (
        b'{"format": "optsched/1", "jobs": [{"id": "a", "gpus": 0, "duration_s": 1e300}]}',
        "duration_s",
    ),
    "no format": (b'{"jobs": []}', "format"),
    "a plan": (
        b'{"format": "optsched-plan/1"}',
        "is a plan (optsched-plan/1), expected an instance",
    ),
    "unknown field": (b'{"format": "optsched/1", "jbos": []}', "jbos"),
    "never runs": (
        b'{"format": "optsched/1", "jobs": [{"id": "a", "duration_s": 5}]}',
        "can never run",
    ),
}


@pytest.mark.parametrize("words", [("solve",), ("bound",)], ids=" ".join)
@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_one_message_and_status_2(run, fake_engine, tmp_path, words, name):
    data, message = BAD_FILES[name]
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    done = run(*words, path)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"optsched: {path}: ") and message in done.stderr, done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr and not fake_engine.calls


@pytest.mark.parametrize("name", ["empty", "truncated", "NaN", "not text"])
def test_bad_stdin(run, fake_engine, name):
    data, message = BAD_FILES[name]
    done = run("solve", "-", input=data)
    assert (
        done.exit_code == 2
        and done.stderr.startswith("optsched: stdin: ")
        and message in done.stderr
    )


def test_unreadable_files(run, fake_engine, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.json"):
        done = run("solve", path)
        assert done.exit_code == 2 and "cannot be read" in done.stderr


def test_real_engine_end_to_end(run, instance_path, instance, tmp_path):
    done = run("solve", instance_path, "--solver", "backfill", "--json")
    assert done.exit_code == 0
    plan = json.loads(done.stdout)
    assert [entry["id"] for entry in plan["jobs"]] == [job.id for job in instance.jobs]
    assert plan["objective"]["bound"] <= plan["objective"]["value"]


def test_live_line(instance):
    from optsched.cli.parts.progress import words
    from optsched.engine import Progress

    assert words(None, "wct", 2.0, 10.0) == "looking for a first plan, 8 s left"
    at = Progress(elapsed_s=3, value=12345.0, bound=12000.0, gap=0.0279, source="srtf")
    assert (
        words(at, "wct", 4.0, 64.0)
        == "best 12,345 s by srtf  bound 12,000 s  gap 2.79 %  1 min left"
    )
    at = Progress(elapsed_s=3, value=2.0, bound=None, gap=None, source=None)
    assert words(at, "deadline,wct", 70.0, 64.0) == "best 2  0 s left"


def test_list_schedule_of_the_fixture_is_what_the_table_shows(
    run, fake_engine, instance_path, instance
):
    ends = {entry.id: entry.completion_s - instance.now_s for entry in list_schedule(instance).jobs}
    done = run("solve", instance_path)
    row = next(line.split() for line in done.output.splitlines() if line.startswith("cpu "))
    assert row[:6] == ["cpu", "start", "0", "s", "6", "min"] and ends["cpu"] == 400
