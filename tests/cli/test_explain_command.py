"""`optsched explain`: of rounds decided now, of round files, and of plan files."""

import json
from pathlib import Path

import pytest

from optsched import files
from optsched.engine import solve
from optsched.round import decide as decide_module
from tests.cli.test_round_command import EXAMPLE, WITH_NEVER


@pytest.fixture
def round_path(run, tmp_path):
    path = tmp_path / "round.json"
    assert run("round", EXAMPLE, "-q", "-o", path).exit_code == 0
    return path


@pytest.fixture
def no_round(monkeypatch):
    def refuse(*args, **more):
        raise AssertionError("nothing needs to be decided")

    monkeypatch.setattr(decide_module, "decide", refuse)


def test_every_job_gets_a_sentence(run, round_path):
    done = run("explain", EXAMPLE, round_path)
    assert done.exit_code == 0
    assert [line.split()[:2] for line in done.output.splitlines()] == [
        ["long", "is"],
        ["short", "starts"],
        ["nearly-done", "continues"],
        ["patient", "waits"],
    ]
    assert run("explain", EXAMPLE).output == done.output, "decided now, it is the same round"


def test_a_round_file_is_not_decided_again(run, round_path, no_round):
    assert run("explain", EXAMPLE, round_path).exit_code == 0


def test_named_jobs_alone(run, round_path):
    done = run("explain", EXAMPLE, round_path, "patient", "long", "patient")
    assert [line.split()[0] for line in done.output.splitlines()] == ["patient", "long"]
    assert run("explain", EXAMPLE, "patient").output == done.output.splitlines(keepends=True)[0]


def test_json_has_the_numbers(run, round_path):
    long, patient = json.loads(
        run("explain", EXAMPLE, round_path, "long", "patient", "--json").stdout
    )
    assert (long["state"], long["makes_way_for"], long["chosen"]) == ("preempt", ["short"], None)
    assert long["leaver"] == {
        "id": "long",
        "preempted": True,
        "gpus": 1,
        "value": pytest.approx(300 / 980),
        "save_s": 20,
        "startup_s": 10,
        "restore_s": 30,
        "lost_s": 0,
    }
    assert patient["best"] == {
        "kind": "start",
        "mode": {"gpu_type": "v100", "gpus": 1},
        "node_classes": ["v100 x 1"],
        "rate": 1,
        "finish_s": 110,
        "value": pytest.approx(300 / 170),
        "price": pytest.approx(300 / 170),
        "reduced": pytest.approx(0, abs=1e-9),
        "rows": [
            {"row": "GPUs of v100 x 1", "amount": 1, "price": pytest.approx(300 / 170), "share": 1}
        ],
    }
    assert [one["id"] for one in patient["swap"]["leavers"]] == ["nearly-done"]
    assert patient["swap"]["value_lost"] == pytest.approx(300 / 160)


def test_a_plan_is_explained_with_fresh_prices(run, tmp_path):
    path = tmp_path / "plan.json"
    solution = solve(files.read_instance(EXAMPLE), "wct", solver="cpsat", time_limit_s=20)
    path.write_text(files.dump_plan(solution))
    decisions = {entry.id: entry.decision for entry in solution.plan.jobs}
    assert decisions["long"] == "preempt"
    found = json.loads(run("explain", EXAMPLE, path, "--json").stdout)
    assert {one["id"]: one["state"] for one in found} == decisions
    short = next(one for one in found if one["id"] == "short")
    assert short["takes_from"] == ["long"] and short["sentence"].endswith(
        "on left once long made way."
    )


def test_jobs_that_can_never_run_are_told_before_anything_is_solved(run, tmp_path, no_round):
    path = tmp_path / "odd.json"
    path.write_text(WITH_NEVER)
    done = run("explain", path, "giant", "later")
    assert done.output == (
        "giant can never run: it needs 16 GPUs of one type, the cluster has at most 4.\n"
        "later is not released for another 50 s.\n"
    )
    [giant] = json.loads(run("explain", path, "giant", "--json").stdout)
    assert (giant["state"], giant["reason"], giant["best"]) == (
        "never",
        "it needs 16 GPUs of one type, the cluster has at most 4",
        None,
    )


def test_never_and_waiting_together(run, tmp_path):
    path = tmp_path / "odd.json"
    path.write_text(WITH_NEVER)
    assert [line.split()[0] for line in run("explain", path).output.splitlines()] == [
        "fine",
        "giant",
        "later",
    ]


def test_quiet_checks_only(run, round_path):
    done = run("explain", EXAMPLE, round_path, "-q")
    assert (done.exit_code, done.output) == (0, "")


def test_stdin(run, round_path):
    done = run("explain", "-", round_path, "long", input=EXAMPLE.read_text())
    assert done.output.startswith("long is preempted")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nobody"], "'nobody' is not a job of preempt-or-continue nor a file"),
        (["long", "nobody"], "'nobody' is not a job of preempt-or-continue\n"),
        (["--objective", "speed"], "objective 'speed' is unknown"),
        (["--budget", "0"], "must be above zero"),
    ],
)
def test_bad_input_is_refused(run, words, says):
    done = run("explain", EXAMPLE, *words)
    assert done.exit_code == 2 and says in done.stderr and done.stdout == ""


def test_files_that_do_not_fit_are_refused(run, round_path, tmp_path, plan_path, instance_path):
    other = instance_path
    for path, what in ((round_path, "round"), (plan_path, "plan")):
        done = run("explain", other if what == "round" else EXAMPLE, path)
        assert done.exit_code == 2 and f"the {what} was made for instance" in done.stderr
    tree = json.loads(round_path.read_text())
    tree["jobs"][1]["placement"][0]["node"] = "nowhere"
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(tree))
    done = run("explain", EXAMPLE, broken)
    assert done.exit_code == 2 and "is not a sound round of preempt-or-continue" in done.stderr
    broken.write_text("{}")
    done = run("explain", EXAMPLE, broken)
    assert done.exit_code == 2 and "format: is missing" in done.stderr


def test_a_plan_that_breaks_a_rule_or_is_none_is_refused(run, tmp_path):
    instance = files.read_instance(EXAMPLE)
    text = json.loads(files.dump_plan(solve(instance, "wct", solver="fifo", time_limit_s=5)))
    path = Path(tmp_path / "plan.json")
    text["jobs"][0]["decision"] = "wait"
    path.write_text(json.dumps(text))
    done = run("explain", EXAMPLE, path)
    assert done.exit_code == 2 and "is not a sound plan of preempt-or-continue" in done.stderr
    path.write_text(json.dumps(text | {"jobs": None}))
    done = run("explain", EXAMPLE, path)
    assert done.exit_code == 2 and "holds no plan, only the status" in done.stderr


def test_options_that_contradict_the_file_are_refused(run, round_path):
    assert (
        run("explain", EXAMPLE, round_path, "--objective", "wct", "--length", "5m", "-q").exit_code
        == 0
    )
    for words, says in (
        (("--objective", "makespan"), "--objective makespan is not that of"),
        (("--length", "60s"), "--length 60"),
    ):
        done = run("explain", EXAMPLE, round_path, *words)
        assert done.exit_code == 2 and says in done.stderr
