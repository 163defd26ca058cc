"""`optsched round`: what is printed, what is written, and what is refused."""

import json
from pathlib import Path

import pytest

from optsched import files
from optsched.plugins import registry
from optsched.round.files import dump_round, read_round

EXAMPLES = Path(__file__).parents[2] / "instances" / "examples"
EXAMPLE = EXAMPLES / "preempt-or-continue.json"
WITH_NEVER = """{
  "format": "optsched/1", "name": "odd",
  "cluster": {"nodes": [{"name": "n", "gpu_type": "a", "gpus": 4}]},
  "jobs": [{"id": "fine", "duration_s": 60}, {"id": "giant", "gpus": 16, "duration_s": 60},
           {"id": "later", "submit_s": 50, "duration_s": 60}]
}"""


def test_table_says_everything(run):
    done = run("round", EXAMPLE)
    assert done.exit_code == 0
    for line in (
        "preempt-or-continue: 4 jobs, 2 GPUs on 2 nodes, 2 running now",
        "  status     optimal: no round of this instance is worth more",
        "  value      3.64 (wct; more is better)",
        "  bound      3.64",
        "  gap        0 %",
        "  proved by  prices",
        "  round      5 min, what comes free is given on at once",
        "  now        1 preempt, 1 start, 1 continue, 1 wait",
        "GPUs of a100 x 1         1     1         1.765",
        "long         preempt   -       -",
        "short        start     1 a100  left",
        "nearly-done  continue  1 v100  right",
        "patient      wait      -       -",
    ):
        assert line in [shown.rstrip() for shown in done.output.splitlines()], line


def test_what_changes_comes_first(run):
    table = run("round", EXAMPLE).output.split("\njob ")[1].splitlines()[2:]
    assert [row.split()[1] for row in table] == ["preempt", "start", "continue", "wait"]


def test_json_is_the_round_file_and_nothing_else(run, tmp_path):
    done = run("round", EXAMPLE, "--json", "-o", tmp_path / "r.json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (tmp_path / "r.json").read_text()
    solution = read_round(tmp_path / "r.json")
    assert solution.instance_hash == files.instance_hash(files.read_instance(EXAMPLE))
    assert dump_round(solution) == done.stdout


def test_quiet_prints_nothing_and_writes_all(run, tmp_path):
    done = run("round", EXAMPLE, "-q", "-o", tmp_path / "r.json.gz")
    assert (done.exit_code, done.output) == (0, "")
    assert read_round(tmp_path / "r.json.gz").status == "optimal"
    assert run("round", EXAMPLE, "-o", tmp_path / "s.json").output.endswith(
        f"round: {tmp_path / 's.json'}\n"
    )


def test_options_reach_the_round(run):
    done = run(
        "round",
        EXAMPLE,
        "--length",
        "1m",
        "--budget",
        "3s",
        "--objective",
        "tardiness",
        "--fixed",
        "--seed",
        "7",
        "--json",
    )
    found = json.loads(done.stdout)
    assert (found["round_s"], found["refill"], found["seed"]) == (60, False, 7)
    assert found["objective"]["name"] == "tardiness"
    shown = run("round", EXAMPLE, "--fixed").output
    assert "what comes free stays idle until then" in shown


def test_the_last_round_is_a_start(run, tmp_path):
    first = tmp_path / "first.json"
    assert run("round", EXAMPLE, "-q", "-o", first).exit_code == 0
    done = run("round", EXAMPLE, "--last", first, "--json")
    one, two = json.loads(first.read_text()), json.loads(done.stdout)
    assert (one["jobs"], one["objective"]["value"]) == (two["jobs"], two["objective"]["value"])


def test_jobs_that_can_never_run_stop_nothing(run, tmp_path):
    path = tmp_path / "odd.json"
    path.write_text(WITH_NEVER)
    done = run("round", path)
    assert done.exit_code == 0
    assert (
        "  never      giant: it needs 16 GPUs of one type, the cluster has at most 4\n"
        in done.output
    )
    assert "  later      1 not released yet, or waiting for other jobs or a window\n" in done.output
    found = json.loads(run("round", path, "--json").stdout)
    assert found["never"] == ["giant"] and [job["id"] for job in found["jobs"]] == ["fine"]
    assert run("solve", path).exit_code == 2, "a plan is for all jobs"


def test_other_faults_stop_it(run, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(WITH_NEVER.replace('"id": "later"', '"id": "fine"'))
    done = run("round", path)
    assert done.exit_code == 2
    assert "job 'fine' appears 2 times" in done.stderr and "giant" not in done.stderr


def test_an_instance_without_jobs(run, tmp_path):
    path = tmp_path / "empty.json"
    path.write_text('{"format": "optsched/1"}')
    done = run("round", path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "0 jobs" in done.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--solver", "magic"], "round solver 'magic' is unknown; choose from"),
        (["--objective", "speed"], "objective 'speed' is unknown"),
        (["--budget", "0"], "must be above zero"),
        (["--gap", "-1"], "is not a share; write 1% or 0.01"),
        (["--last", "nowhere.json"], "nowhere.json: cannot be read"),
        (["--option", "x"], "--option 'x' has no value"),
        (["-o", "nowhere/r.json"], "the directory"),
    ],
)
def test_bad_input_is_refused(run, words, says):
    done = run("round", EXAMPLE, *words)
    assert done.exit_code == 2 and says in done.stderr
    assert done.stdout == ""


def test_a_plan_is_no_last_round(run, plan_path):
    done = run("round", EXAMPLE, "--last", plan_path)
    assert done.exit_code == 2 and "expected a round (optsched-round/1)" in done.stderr


def test_round_solvers_are_listed(run):
    table, machine, quiet = (
        run("list", "rounds"),
        run("list", "rounds", "--json"),
        run("list", "rounds", "-q"),
    )
    rows = json.loads(machine.stdout)
    assert [row["name"] for row in rows] == list(registry.names("rounds")) == quiet.stdout.split()
    assert "price" in quiet.stdout.split()
    assert all(f"\n{row['name']} " in table.stdout and row["what it is"] for row in rows)


def test_schema_of_round_files(run):
    found = json.loads(run("schema", "round").stdout)
    assert found["title"] == "optsched round file" and "prices" in found["properties"]
