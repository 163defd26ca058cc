"""`optsched simulate`: what is printed, what is written, and what is refused before any work."""

import csv
import json
import math
import re
import statistics
import sys
from pathlib import Path

import pytest

from optsched import Cluster, Failure, Instance, Job, Node, Outage, Plan, Profile, files
from optsched.bounds import lower_bounds, priced_bound
from optsched.cli.parts import progress
from optsched.driver.view import PolicyError
from optsched.errors import InputError
from optsched.objectives import parse
from optsched.plugins import registry
from optsched.simulate import output
from optsched.simulate.run import simulate
from tests.cli.test_solve_command import BAD_FILES
from tests.clusters import one_node


@pytest.fixture(autouse=True)
def light_page(request, monkeypatch):
    """Drawing takes longer than all else; one test has the real page, tests/simulate/test_report.py
    all of it."""
    if request.node.name != "test_table_says_everything":
        monkeypatch.setattr("optsched.simulate.report.page", lambda *_: "<html></html>")


@pytest.fixture
def queue(tmp_path):
    """Jobs that come one by one to two GPUs, some of them late."""
    profile = Profile(checkpoint_s=5.0, restore_s=5.0, startup_s=10.0)
    jobs = tuple(
        Job(
            id=f"j{i:02}",
            submit_s=20.0 * i,
            duration_s=30.0 + 70.0 * ((i * 7) % 11),
            profile=profile,
            deadline_s=600.0 if i % 3 == 0 else None,
        )
        for i in range(40)
    )
    instance = Instance(name="queue", cluster=one_node(gpus=2), jobs=jobs)
    path = tmp_path / "queue.json"
    files.write_text(path, files.dump_instance(instance))
    return instance, path


def summary(run, *words):
    done = run("simulate", *words, "--json")
    assert done.exit_code == 0 and done.stderr == "", done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["fifo", "backfill", "sjf", "las", "srtf", "srsf"])
def test_numbers_are_those_of_the_plan(run, queue, tmp_path, name):
    instance, path = queue
    found = summary(
        run, path, "--policy", name, "--objective", "deadline,wct", "-o", tmp_path / "o"
    )
    stated, plan = files.read_plan(tmp_path / "o" / "plan.json")
    assert plan == simulate(instance, registry.policy(name))
    jcts = sorted(entry.completion_s - instance.job[entry.id].submit_s for entry in plan.jobs)
    assert found["jct_s"] == pytest.approx(
        {
            "mean": statistics.fmean(jcts),
            "median": jcts[19],
            "p90": jcts[35],
            "p99": jcts[39],
            "max": jcts[39],
        }
    )
    stops = [len(entry.segments) - 1 for entry in plan.jobs]
    assert (found["preemptions"], found["preempted_jobs"]) == (
        sum(stops),
        sum(stop > 0 for stop in stops),
    )
    assert (found["preemptions"] > 0) == (name in ("srtf", "srsf"))
    goal = parse("deadline,wct")
    assert [level["name"] for level in found["levels"]] == ["deadline", "wct"]
    assert found["levels"][0]["value"] == found["deadlines_missed"]
    assert found["levels"][1]["value"] == pytest.approx(math.fsum(jcts))
    for level, bound in zip(found["levels"], lower_bounds(instance, goal), strict=True):
        assert (level["bound"], level["bound_source"]) == (bound.value, bound.source)
        assert level["gap"] == pytest.approx((level["value"] - bound.value) / level["value"])
    assert found["makespan_s"] == max(entry.completion_s for entry in plan.jobs)
    held = sum(part.end_s - part.start_s for entry in plan.jobs for part in entry.segments)
    assert found["use"]["gpus"] == pytest.approx(held / 2 / found["makespan_s"])
    assert found["gpu_h"]["held"] == pytest.approx(held / 3600)
    assert found["instance"] == {"name": "queue", "hash": files.instance_hash(instance)}
    assert (stated.solver, stated.wall_s, stated.objective.name) == (name, None, "deadline,wct")
    assert run("verify", path, tmp_path / "o" / "plan.json").exit_code == 0


def test_rounds(run, queue, tmp_path):
    instance, path = queue
    found = summary(run, path, "--policy", "sjf", "--round", "1m", "-o", tmp_path / "o")
    stated, plan = files.read_plan(tmp_path / "o" / "plan.json")
    assert (found["round_s"], stated.notes) == (60.0, ("decided in rounds of 1 min",))
    assert plan == simulate(instance, registry.policy("sjf"), round_s=60.0)
    assert {entry.segments[0].start_s % 60 for entry in plan.jobs} == {0.0}
    assert found["levels"][0]["value"] > summary(run, path, "--policy", "sjf")["levels"][0]["value"]


def test_table_says_everything(run, queue, tmp_path):
    _, path = queue
    words = (
        "--policy",
        "srtf",
        "--round",
        "90s",
        "-o",
        tmp_path / "o",
        "--gantt",
        tmp_path / "p.svg",
    )
    done = run("simulate", path, *words)
    assert done.exit_code == 0, done.output
    found = summary(run, path, "--policy", "srtf", "--round", "90s")
    for word in (
        "queue: 40 jobs, 2 GPUs on 1 node, 0 running now",
        "policy srtf: shortest remaining time first, with preemption; decided in rounds of 1 min "
        "30 s",
        "bound (any schedule)",
        f"{found['levels'][0]['value']:,.0f} s",
        f"{found['levels'][0]['bound']:,.0f} s",
        found["levels"][0]["bound_source"],
        "median",
        "p90",
        "p99",
        "max",
        f"{found['preemptions']} preemptions of {found['preempted_jobs']} jobs",
        f"{found['deadlines_missed']} of 14 deadlines missed",
        "waiting is ",
        " price",
        " next decision",
        " lost to preemptions and failures",
        "while jobs arrive GPUs held",
    ):
        assert word in done.output, word
    assert f"written to {tmp_path / 'o'}: summary.json, plan.json, jobs.csv" in done.output
    assert done.output.endswith(f"picture: {tmp_path / 'p.svg'}\n")
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
    assert "<h1>queue: srtf</h1>" in (tmp_path / "o" / "report.html").read_text()


def test_quiet_stdin_and_running_jobs(run, instance_path, tmp_path):
    done = run(
        "simulate",
        "-",
        "--policy",
        "las",
        "-q",
        "-o",
        tmp_path / "o",
        input=instance_path.read_bytes(),
    )
    assert (done.exit_code, done.output) == (0, "")
    assert run("verify", instance_path, tmp_path / "o" / "plan.json").exit_code == 0


def test_same_input_same_output(run, instance_path):
    words = ("simulate", instance_path, "--policy", "srsf", "--json")
    assert run(*words).stdout == run(*words).stdout


def test_what_cannot_be_better_is_optimal(run, tmp_path):
    one = Instance(cluster=one_node(gpus=1), jobs=(Job(id="a", duration_s=5.0),))
    files.write_text(tmp_path / "i.json", files.dump_instance(one))
    found = summary(run, tmp_path / "i.json", "--policy", "fifo")
    assert found["status"] == "optimal" and found["levels"][0]["gap"] == 0
    assert found["jct_s"] == dict.fromkeys(("mean", "median", "p90", "p99", "max"), 5.0)


def test_no_jobs(run, tmp_path):
    (tmp_path / "i.json").write_text('{"format": "optsched/1"}')
    found = summary(run, tmp_path / "i.json", "--policy", "fifo")
    assert (found["jobs"], found["preemptions"], found["jct_s"]["mean"], found["use"]["gpus"]) == (
        0,
        0,
        None,
        None,
    )
    assert (
        "0 preemptions of 0 jobs" in run("simulate", tmp_path / "i.json", "--policy", "fifo").output
    )


class Fake:
    """A policy that is not in the registry."""

    name = title = "fake"

    def __init__(self, act):
        self.decide = act


@pytest.fixture
def fake_policy(monkeypatch):
    def use(act):
        monkeypatch.setattr(registry, "policy", lambda *_: Fake(act))

    return use


def fault(world):
    raise PolicyError("job j00 cannot start at 0 s: because")


@pytest.mark.parametrize(
    ("act", "message"),
    [(lambda world: None, "fake stops at 780 s"), (fault, "job j00 cannot start at 0 s")],
)
def test_without_a_plan_the_status_is_1(run, queue, fake_policy, act, message, tmp_path):
    fake_policy(act)
    done = run("simulate", queue[1], "--policy", "fake", "-o", tmp_path / "o", "--json")
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.startswith("optsched: no plan: ") and message in done.stderr
    assert not (tmp_path / "o").exists()


def test_a_plan_that_breaks_a_rule_is_not_shown(run, queue, monkeypatch, tmp_path):
    monkeypatch.setattr("optsched.simulate.record.Record.plan", lambda _: Plan())
    done = run("simulate", queue[1], "--policy", "fifo", "-o", tmp_path / "o")
    assert done.exit_code == 1 and done.stdout == "" and not (tmp_path / "o").exists()
    assert (
        "the plan of fifo does not pass the verifier" in done.stderr
        and "missing from the plan" in done.stderr
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "oracle"), "policy 'oracle' is unknown; choose from a-srpt"),
        (("--policy", "fifo", "--objective", "speed"), "objective 'speed' is unknown"),
        (("--policy", "fifo", "--option", "a=1"), "policy fifo takes no options; leave out a"),
        (("--policy", "fifo", "--option", "a"), "--option 'a' has no value; write key=value"),
        (("--policy", "fifo", "--gantt", "plan.gif"), "ends in .html, .svg, .png or .pdf"),
        (("--policy", "fifo", "-o", "nowhere/run"), "does not exist; make it first"),
        (("--policy", "fifo", "-o", "instance.json"), "is a file; name a directory"),
        (
            ("--policy", "fifo", "-o", "."),
            "holds instance.json, which no simulation wrote; name a new or an empty",
        ),
        (("--policy", "fifo", "--round", "1us"), "--round"),
        (("--policy", "fifo", "--round", "0"), "must be above zero"),
        (("--policy", "fifo", "--round", "0.000000001"), "at least 1e-05 s"),
        ((), "--policy"),
    ],
)
def test_refused_before_any_work(run, instance_path, words, message, monkeypatch):
    monkeypatch.chdir(instance_path.parent)
    before = instance_path.read_bytes()
    done = run("simulate", instance_path, *words)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == "", done.output
    assert "Traceback" not in done.output
    assert [path.name for path in instance_path.parent.iterdir()] == ["instance.json"]
    assert instance_path.read_bytes() == before


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_one_message_and_status_2(run, tmp_path, name):
    data, message = BAD_FILES[name]
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    done = run("simulate", path, "--policy", "fifo")
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.startswith(f"optsched: {path}: ") and message in done.stderr


def test_a_full_disk_loses_nothing_but_the_file(run, instance_path, tmp_path, monkeypatch):
    write = files.write_text

    def full(path, text):
        if path.name == "plan.json":
            raise InputError(f"{path}: cannot be written: No space left on device")
        write(path, text)

    monkeypatch.setattr(files, "write_text", full)
    done = run("simulate", instance_path, "--policy", "fifo", "-o", tmp_path / "o")
    assert done.exit_code == 2 and "policy fifo" in done.stdout
    assert "plan.json: cannot be written: No space left on device" in done.stderr
    assert {path.name for path in (tmp_path / "o").iterdir()} >= {"summary.json", "jobs.csv"}


# ------------------------------------------------------------------------------------------------
# the directory


def test_the_files_say_what_is_printed(run, queue, tmp_path):
    instance, path = queue
    found = summary(run, path, "--policy", "srtf", "-o", tmp_path / "o")
    assert json.loads((tmp_path / "o" / "summary.json").read_text()) == found
    lines = list(csv.DictReader((tmp_path / "o" / "jobs.csv").open()))
    assert [line["id"] for line in lines] == [job.id for job in instance.jobs]
    assert statistics.fmean(float(line["jct_s"]) for line in lines) == pytest.approx(
        found["jct_s"]["mean"]
    )
    assert sum(int(line["preemptions"]) for line in lines) == found["preemptions"] > 0
    waited = sum(
        float(line[f"waiting_{name}_s"]) for line in lines for name in found["waiting_mean_s"]
    )
    assert waited == pytest.approx(40 * found["waiting_s"]["mean"])
    decided = list(csv.DictReader((tmp_path / "o" / "rounds.csv").open()))
    assert len(decided) > 40 and [*decided[0]] == ["time_s", "wall_s"] and found["rounds"] is None


def test_what_the_policy_recorded_of_its_rounds_is_kept(run, queue, tmp_path):
    found = summary(run, queue[1], "--policy", "optsched", "--round", "2m", "-o", tmp_path / "o")
    decided = list(csv.DictReader((tmp_path / "o" / "rounds.csv").open()))
    own = ["jobs", "value", "bound", "gap", "lead", "plan_gap"]
    assert [*decided[0]] == ["time_s", "wall_s", *own]
    gaps = [float(line["gap"]) for line in decided if line["gap"]]
    assert found["rounds"] == {
        "count": len(gaps),
        "gap_mean": pytest.approx(statistics.fmean(gaps)),
        "gap_max": max(gaps),
    }
    assert all(
        float(line["bound"]) >= float(line["value"]) - 1e-9 for line in decided if line["gap"]
    )


def test_another_simulation_takes_the_place_of_the_last(run, queue, tmp_path):
    out = tmp_path / "o"
    out.mkdir()
    assert run("simulate", queue[1], "--policy", "srtf", "-o", out).exit_code == 0
    (out / "plan.json").rename(out / "plan.json.gz")  # as if that had been larger
    assert run("simulate", queue[1], "--policy", "fifo", "-o", out).exit_code == 0
    assert not (out / "plan.json.gz").exists()
    assert json.loads((out / "summary.json").read_text())["policy"] == "fifo"
    assert files.read_plan(out / "plan.json")[0].solver == "fifo"


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ({"notes.txt": "mine"}, "holds notes.txt, which no simulation wrote"),
        ({"a": "", "b": "", "plan.json": ""}, "holds a and 1 more, which no simulation wrote"),
        ({"plan.json": "{}"}, "holds plan.json, but no summary.json of a simulation"),
        ({"summary.json": "{}"}, "holds summary.json, but no summary.json of a simulation"),
        ({"summary.json": "not json"}, "name a new or an empty directory"),
    ],
)
def test_a_directory_with_anything_else_is_left_alone(run, queue, tmp_path, there, message):
    out = tmp_path / "o"
    out.mkdir()
    for name, text in there.items():
        (out / name).write_text(text)
    done = run("simulate", queue[1], "--policy", "fifo", "-o", out)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == ""
    assert {path.name: path.read_text() for path in out.iterdir()} == there


def test_a_large_plan_is_packed(run, queue, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "LARGE", 100)
    assert run("simulate", queue[1], "--policy", "fifo", "-o", tmp_path / "o").exit_code == 0
    assert run("verify", queue[1], tmp_path / "o" / "plan.json.gz").exit_code == 0
    assert not (tmp_path / "o" / "plan.json").exists()


def test_failures_and_outages_are_told_and_verified(run, tmp_path):
    failures = (Failure(job="a", work_s=30.0, kind="out of memory"), Failure(job="b", work_s=10.0))
    instance = Instance(
        cluster=Cluster(nodes=(Node(name="n", gpus=1), Node(name="m", gpus=1))),
        jobs=(Job(id="a", duration_s=50.0), Job(id="b", duration_s=500.0)),
        failures=failures,
        outages=(
            Outage(node="n", start_s=200.0, end_s=300.0),
            Outage(node="m", start_s=200.0, end_s=300.0),
        ),
    )
    files.write_text(tmp_path / "i.json", files.dump_instance(instance))
    done = run("simulate", tmp_path / "i.json", "--policy", "fifo", "-o", tmp_path / "o")
    assert done.exit_code == 0, done.output
    assert "2 failures (1 out of memory), 1 node loss, " in done.output
    assert run("verify", tmp_path / "i.json", tmp_path / "o" / "plan.json").exit_code == 0


def names_in(value):
    """All names of an object and of those in it, but not the names of GPU types and kinds of
    failures."""
    found = set()
    if isinstance(value, dict):
        for name, inner in value.items():
            found |= {name} | (
                set()
                if name in ("gpus_by_type", "by_type", "failures_by_kind")
                else names_in(inner)
            )
    elif isinstance(value, list):
        found = set().union(*map(names_in, value))
    return found


def test_every_name_in_the_files_is_explained(run, queue, tmp_path):
    found = summary(run, queue[1], "--policy", "optsched", "-o", tmp_path / "o")
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    explained = set(
        re.findall(
            r"`([^`]+)`", text.partition("## Output of a simulation")[2].partition("\n## ")[0]
        )
    )
    assert (
        names_in(found) <= explained
        and {path.name for path in (tmp_path / "o").iterdir()} <= explained
    )
    for name in ("jobs.csv", "rounds.csv"):
        assert set((tmp_path / "o" / name).open().readline().strip().split(",")) <= explained


def test_progress_on_a_terminal_only(monkeypatch, capsys):
    with progress.completed_jobs(3, wanted=True) as tell:
        assert tell is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.completed_jobs(3, wanted=False) as tell:
        assert tell is None
    monkeypatch.setenv("TERM", "xterm")
    with progress.completed_jobs(3, wanted=True) as tell:
        tell(2)
    assert "2 of 3 jobs completed" in capsys.readouterr().err


def test_prices_prove_a_better_bound(run, queue, tmp_path):
    instance, path = queue
    words = (path, "--policy", "srtf")
    [usual], [priced] = (summary(run, *words, *more)["levels"] for more in ((), ("--prices",)))
    assert usual["value"] == priced["value"] >= priced["bound"] > usual["bound"] * 1.001
    assert priced["bound_source"] == "prices on GPU time" != usual["bound_source"]
    assert priced["bound"] == pytest.approx(priced_bound(instance, parse("wct"))[0].value)
    done = run("simulate", path, "--policy", "srtf", "--prices", "--objective", "deadline,wct")
    assert done.exit_code == 2 and "prices bound" in done.stderr and not done.stdout


def test_a_wide_gap_says_how_a_better_bound_is_had(run, queue):
    _, path = queue
    hint = "--prices may prove a better bound"
    assert hint in run("simulate", path, "--policy", "fifo").stdout
    assert hint not in run("simulate", path, "--policy", "fifo", "--prices").stdout
    assert hint not in run("simulate", path, "--policy", "srtf").stdout


def test_the_price_of_priorities(run, tmp_path):
    """Two jobs on one GPU: the long one first costs the short one its time."""
    jobs = (Job(id="long", duration_s=90.0, priority=1), Job(id="short", duration_s=10.0))
    instance = Instance(cluster=one_node(gpus=1), jobs=jobs)
    (tmp_path / "i.json").write_text(files.dump_instance(instance))
    words = ("simulate", tmp_path / "i.json", "--policy", "optsched", "--price-of-priorities")
    price = json.loads(run(*words, "--json").stdout)["price_of_priorities"]
    assert (price["mean_jct_s"], price["one_tier_s"]) == pytest.approx((95.0, 55.0))
    assert [tier["priority"] for tier in price["priorities"]] == [1, 0]
    assert [tier["cost"] for tier in price["priorities"]] == pytest.approx([-0.1, 9.0])
    assert "strict priorities cost +72.7 % of mean JCT, by priority:" in run(*words).output
    assert "price_of_priorities" not in run(*words[:-1], "--json").stdout
