"""`optsched verify`: good plans pass, and everything that can be wrong with a file is found."""

import json

import pytest

from optsched import Cluster, Instance, Job, Node, files
from optsched.engine import solve
from tests.list_schedule import solution_of


@pytest.fixture
def edited(plan_path):
    """The plan file with a change made to its object."""

    def edit(change):
        plan = json.loads(plan_path.read_text())
        change(plan)
        plan_path.write_text(json.dumps(plan))
        return plan_path

    return edit


def test_good_plan(run, instance_path, plan_path, solution):
    done = run("verify", instance_path, plan_path)
    assert done.exit_code == 0
    assert done.output.startswith(f"OK: {plan_path} is a valid plan of 7 jobs\n  wct  ")
    assert f"{solution.value:,.0f} s" in done.output and "as the file says" in done.output


def test_json(run, instance_path, plan_path, solution):
    found = json.loads(run("verify", instance_path, plan_path, "--json").stdout)
    assert found == {
        "ok": True,
        "jobs": 7,
        "violations": [],
        "levels": [
            {
                "name": "wct",
                "value": pytest.approx(solution.value),
                "claimed": solution.value,
                "bound": solution.bound,
                "matches": True,
            }
        ],
    }


def test_quiet(run, instance_path, plan_path, edited):
    assert run("verify", instance_path, plan_path, "-q").output == ""
    edited(lambda plan: plan["jobs"].pop())
    done = run("verify", instance_path, plan_path, "-q")
    assert done.exit_code == 1 and done.stdout == "" and "no segments" in done.stderr


def test_another_objective_is_recomputed_without_a_claim(run, instance_path, plan_path):
    done = run("verify", instance_path, plan_path, "--objective", "makespan,wct")
    assert done.exit_code == 0
    assert "makespan" in done.output and "as the file says" not in done.output


def test_two_levels(run, instance, instance_path, tmp_path):
    files.write_text(
        tmp_path / "two.json", files.dump_plan(solution_of(instance, objective="deadline,wct"))
    )
    done = run("verify", instance_path, tmp_path / "two.json")
    assert done.exit_code == 0 and done.output.count("as the file says") == 2


def set_objective(**fields):
    return lambda plan: plan["objective"].update(fields)


def shift(plan):
    for segment in plan["jobs"][1]["segments"]:
        segment["start_s"] -= 61
        segment["end_s"] -= 61


WRONG = {
    "value": (
        lambda plan: plan["objective"].update(value=plan["objective"]["value"] + 1),
        "value: wct of this plan is",
    ),
    "bound above value": (
        lambda plan: plan["objective"].update(bound=plan["objective"]["value"] + 1),
        "bound: ",
    ),
    "optimal without proof": (
        set_objective(status="optimal"),
        "its bound does not reach the value",
    ),
    "infeasible with a plan": (set_objective(status="infeasible"), "holds a valid plan"),
    "hash": (lambda plan: plan["instance"].update(hash="0" * 16), "the plan was made for instance"),
    "no plan": (lambda plan: plan.update(jobs=None), "holds no plan"),
    "too early": (shift, "short"),
    "decision": (lambda plan: plan["jobs"][2].update(decision="resume"), "late"),
    "missing job": (lambda plan: plan["jobs"].pop(3), "chained"),
    "unknown node": (
        lambda plan: plan["jobs"][1]["segments"][0]["placement"][0].update(node="z"),
        "node z",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_plans_are_status_1_with_a_sentence(run, instance_path, edited, name):
    change, message = WRONG[name]
    done = run("verify", instance_path, edited(change))
    assert done.exit_code == 1
    assert "violation" in done.stdout and message in done.stdout
    found = json.loads(run("verify", instance_path, edited(lambda plan: None), "--json").stdout)
    assert not found["ok"] and found["violations"]


def test_rounding_is_no_violation(run, instance_path, edited):
    path = edited(
        lambda plan: plan["objective"].update(value=plan["objective"]["value"] * (1 + 1e-9))
    )
    assert run("verify", instance_path, path).exit_code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("{", "is not JSON"),
        ("{}", "format"),
        ('{"format": "optsched/1"}', "format"),
    ],
)
def test_bad_plan_files(run, instance_path, tmp_path, text, message):
    path = tmp_path / "bad.json"
    path.write_text(text)
    done = run("verify", instance_path, path)
    assert (
        done.exit_code == 2
        and done.stderr.startswith(f"optsched: {path}")
        and message in done.stderr
    )


def test_unknown_objectives(run, instance_path, plan_path, edited):
    assert run("verify", instance_path, plan_path, "--objective", "speed").exit_code == 2
    done = run("verify", instance_path, edited(set_objective(name="speed")))
    assert done.exit_code == 2 and "objective 'speed' is unknown" in done.stderr


@pytest.mark.parametrize(
    ("field", "by", "rule"),
    [("bound", -960.0, "status"), ("value", -810.0, "value"), ("bound", 810.0, "bound")],
)
def test_a_long_past_hides_no_false_claim(run, tmp_path, field, by, rule):
    node, lengths_s = Node(name="n", gpus=1), {"a": 1000.0, "b": 180.0}
    jobs = tuple(Job(id=name, duration_s=length_s) for name, length_s in lengths_s.items())
    instance = Instance(now_s=1.7e9, cluster=Cluster(nodes=(node,)), jobs=jobs)
    solution = solve(instance, solver="cpsat", workers=1, isolate=False)
    assert solution.status == "optimal"
    (tmp_path / "instance.json").write_text(files.dump_instance(instance))
    plan = json.loads(files.dump_plan(solution))
    for change, code in ((0.0, 0), (by, 1)):
        plan["objective"][field] += change
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        done = run("verify", tmp_path / "instance.json", tmp_path / "plan.json")
        assert done.exit_code == code, done.output
    assert f"  {rule}: " in done.output
