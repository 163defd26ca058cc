"""`optsched simulate`: what is printed, what is written, and what is refused before any work."""

import json
import math
import statistics
import sys

import pytest

from optsched import Cluster, Instance, Job, Node, Plan, Profile, files, registry
from optsched.bounds import lower_bounds
from optsched.cli import simulate as command
from optsched.objectives import parse
from optsched.simulate.run import simulate
from optsched.simulate.view import PolicyFault
from tests.cli.test_solve_command import BAD_FILES


@pytest.fixture
def queue(tmp_path):
    """Jobs that come one by one to two GPUs, some of them late."""
    profile = Profile(checkpoint_s=5.0, restore_s=5.0, startup_s=10.0)
    jobs = tuple(
        Job(id=f"j{i:02}", submit_s=20.0 * i, duration_s=30.0 + 70.0 * ((i * 7) % 11), profile=profile,
            deadline_s=600.0 if i % 3 == 0 else None)
        for i in range(40)
    )
    instance = Instance(name="queue", cluster=Cluster(nodes=(Node(name="n", gpus=2),)), jobs=jobs)
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
    found = summary(run, path, "--policy", name, "--objective", "deadline,wct", "-o", tmp_path / "p.json")
    stated, plan = files.read_plan(tmp_path / "p.json")
    assert plan == simulate(instance, registry.policy(name))
    jcts = sorted(entry.completion_s - instance.job[entry.id].submit_s for entry in plan.jobs)
    assert found["jct_s"] == pytest.approx({
        "mean": statistics.fmean(jcts), "median": jcts[19], "p90": jcts[35], "p99": jcts[39], "max": jcts[39],
    })
    stops = [len(entry.segments) - 1 for entry in plan.jobs]
    assert (found["preemptions"], found["preempted_jobs"]) == (sum(stops), sum(stop > 0 for stop in stops))
    assert (found["preemptions"] > 0) == (name in ("srtf", "srsf"))
    goal = parse("deadline,wct")
    assert [level["name"] for level in found["levels"]] == ["deadline", "wct"]
    assert found["levels"][0]["value"] == found["deadlines_missed"]
    assert found["levels"][1]["value"] == pytest.approx(math.fsum(jcts))
    for level, bound in zip(found["levels"], lower_bounds(instance, goal), strict=True):
        assert (level["bound"], level["bound_source"]) == (bound.value, bound.source)
        assert level["gap"] == pytest.approx((level["value"] - bound.value) / level["value"])
    assert found["last_s"] == max(entry.completion_s for entry in plan.jobs)
    held = sum(part.end_s - part.start_s for entry in plan.jobs for part in entry.segments)
    assert found["gpu_use"] == pytest.approx(held / 2 / found["last_s"])
    assert (stated.solver, stated.wall_s, stated.objective.name) == (name, None, "deadline,wct")
    assert run("verify", path, tmp_path / "p.json").exit_code == 0


def test_rounds(run, queue, tmp_path):
    instance, path = queue
    found = summary(run, path, "--policy", "sjf", "--round", "1m", "-o", tmp_path / "p.json")
    stated, plan = files.read_plan(tmp_path / "p.json")
    assert (found["round_s"], stated.notes) == (60.0, ("decided in rounds of 1 min",))
    assert plan == simulate(instance, registry.policy("sjf"), round_s=60.0)
    assert {entry.segments[0].start_s % 60 for entry in plan.jobs} == {0.0}
    assert found["levels"][0]["value"] > summary(run, path, "--policy", "sjf")["levels"][0]["value"]


def test_table_says_everything(run, queue, tmp_path):
    _, path = queue
    words = ("--policy", "srtf", "--round", "90s", "-o", tmp_path / "p.json", "--gantt", tmp_path / "p.svg")
    done = run("simulate", path, *words)
    assert done.exit_code == 0, done.output
    found = summary(run, path, "--policy", "srtf", "--round", "90s")
    for word in (
        "queue: 40 jobs, 2 GPUs on 1 nodes, 0 running now",
        "policy srtf: shortest remaining time first, with preemption; decided in rounds of 1 min 30 s",
        "bound (any schedule)",
        f"{found['levels'][0]['value']:,.0f} s",
        f"{found['levels'][0]['bound']:,.0f} s",
        found["levels"][0]["bound_source"],
        "median", "p90", "p99", "max",
        f"{found['preemptions']} preemptions of {found['preempted_jobs']} jobs",
        f"{found['deadlines_missed']} of 14 deadlines missed",
    ):
        assert word in done.output, word
    assert done.output.endswith(f"plan: {tmp_path / 'p.json'}\npicture: {tmp_path / 'p.svg'}\n")
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")


def test_quiet_stdin_and_running_jobs(run, instance_path, tmp_path):
    done = run("simulate", "-", "--policy", "las", "-q", "-o", tmp_path / "p.json", input=instance_path.read_bytes())
    assert (done.exit_code, done.output) == (0, "")
    assert run("verify", instance_path, tmp_path / "p.json").exit_code == 0


def test_same_input_same_output(run, instance_path):
    words = ("simulate", instance_path, "--policy", "srsf", "--json")
    assert run(*words).stdout == run(*words).stdout


def test_what_cannot_be_better_is_optimal(run, tmp_path):
    one = Instance(cluster=Cluster(nodes=(Node(name="n", gpus=1),)), jobs=(Job(id="a", duration_s=5.0),))
    files.write_text(tmp_path / "i.json", files.dump_instance(one))
    found = summary(run, tmp_path / "i.json", "--policy", "fifo")
    assert found["status"] == "optimal" and found["levels"][0]["gap"] == 0
    assert found["jct_s"] == dict.fromkeys(("mean", "median", "p90", "p99", "max"), 5.0)


def test_no_jobs(run, tmp_path):
    (tmp_path / "i.json").write_text('{"format": "optsched/1"}')
    found = summary(run, tmp_path / "i.json", "--policy", "fifo")
    assert (found["jobs"], found["preemptions"], found["jct_s"]["mean"], found["gpu_use"]) == (0, 0, None, None)
    assert "0 preemptions of 0 jobs" in run("simulate", tmp_path / "i.json", "--policy", "fifo").output


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
    raise PolicyFault("job j00 cannot start at 0 s: because")


@pytest.mark.parametrize(
    ("act", "message"),
    [(lambda world: None, "fake stops at 780 s"), (fault, "job j00 cannot start at 0 s")],
)
def test_without_a_plan_the_status_is_1(run, queue, fake_policy, act, message, tmp_path):
    fake_policy(act)
    done = run("simulate", queue[1], "--policy", "fake", "-o", tmp_path / "p.json", "--json")
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.startswith("optsched: no plan: ") and message in done.stderr
    assert not (tmp_path / "p.json").exists()


def test_a_plan_that_breaks_a_rule_is_not_shown(run, queue, monkeypatch, tmp_path):
    monkeypatch.setattr("optsched.simulate.run.simulate", lambda *_, **__: Plan())
    done = run("simulate", queue[1], "--policy", "fifo", "-o", tmp_path / "p.json")
    assert done.exit_code == 1 and done.stdout == "" and not (tmp_path / "p.json").exists()
    assert "the plan of fifo does not pass the verifier" in done.stderr and "missing from the plan" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "oracle"), "policy 'oracle' is unknown; choose from backfill"),
        (("--policy", "fifo", "--objective", "speed"), "objective 'speed' is unknown"),
        (("--policy", "fifo", "--option", "a=1"), "policy fifo takes no options; leave out a"),
        (("--policy", "fifo", "--option", "a"), "--option 'a' has no value; write key=value"),
        (("--policy", "fifo", "--gantt", "plan.gif"), "ends in .html, .svg, .png or .pdf"),
        (("--policy", "fifo", "-o", "nowhere/plan.json"), "does not exist; make it first"),
        (("--policy", "fifo", "-o", "instance.json"), "would overwrite the instance"),
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


def test_a_full_disk_loses_nothing_but_the_file(run, instance_path):
    done = run("simulate", instance_path, "--policy", "fifo", "-o", "/dev/full")
    assert done.exit_code == 2 and "policy fifo" in done.stdout
    assert "/dev/full: cannot be written: No space left on device" in done.stderr


def test_progress_on_a_terminal_only(monkeypatch, capsys):
    with command.completed_jobs(3, wanted=True) as tell:
        assert tell is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with command.completed_jobs(3, wanted=False) as tell:
        assert tell is None
    monkeypatch.setenv("TERM", "xterm")
    with command.completed_jobs(3, wanted=True) as tell:
        tell(2)
    assert "2 of 3 jobs completed" in capsys.readouterr().err
