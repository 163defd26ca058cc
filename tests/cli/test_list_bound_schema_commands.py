"""`optsched list`, `bound` and `schema`."""

import json

import pytest

from optsched.bounds import all_bounds
from optsched.objectives import TERMS, parse
from optsched.plugins import registry


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("solvers", lambda: registry.names("solvers")),
        ("policies", lambda: registry.names("policies")),
        ("formats", lambda: registry.names("importers")),
        ("objectives", lambda: TERMS),
    ],
)
def test_list_names_all(run, kind, names):
    table, machine, quiet = run("list", kind), run("list", kind, "--json"), run("list", kind, "-q")
    assert [done.exit_code for done in (table, machine, quiet)] == [0, 0, 0]
    rows = json.loads(machine.stdout)
    assert [row["name"] for row in rows] == list(names()) == quiet.stdout.split()
    assert all(row["what it is"] for row in rows if row.get("available", "yes") == "yes")
    assert all(f"\n{name} " in table.stdout for name in names())


def test_a_broken_solver_is_listed_with_its_reason(run, monkeypatch):
    broken = [registry.Listed("gone", "", "", "gone cannot be loaded: ImportError: no such thing")]
    monkeypatch.setattr(registry, "listed", lambda group: broken)
    (row,) = json.loads(run("list", "solvers", "--json").stdout)
    assert row["available"] == "no: gone cannot be loaded: ImportError: no such thing"
    assert "no: gone cannot be loaded" in run("list", "solvers").stdout


def test_nothing_registered(run, monkeypatch):
    monkeypatch.setattr(registry, "listed", lambda group: [])
    assert run("list", "solvers", "--json").stdout == "[]\n"
    assert run("list", "solvers").exit_code == 0


def test_bounds_are_those_of_the_library(run, instance, instance_path):
    expected = all_bounds(instance, parse("deadline,wct"))
    found = json.loads(run("bound", instance_path, "--objective", "deadline,wct", "--json").stdout)
    assert [(one["value"], one["source"], one["preemptive"]) for one in found] == [
        (one.value, one.source, one.preemptive) for one in expected
    ]
    for name in ("deadline", "wct"):
        level = [one for one in found if one["objective"] == name]
        assert {one["value"] for one in level if one["best"]} == {
            max(one["value"] for one in level)
        }


def test_bound_table_and_quiet(run, instance, instance_path):
    done = run("bound", instance_path)
    best = max(all_bounds(instance, parse("wct")), key=lambda one: one.value)
    first = done.output.splitlines()[2]
    assert (
        first.startswith("*") and f"{best.value:,.0f} s" in first and "any schedule" in done.output
    )
    assert float(run("bound", instance_path, "-q").output) == pytest.approx(best.value)


def test_bound_refuses_an_unknown_objective(run, instance_path):
    done = run("bound", instance_path, "--objective", "speed")
    assert done.exit_code == 2 and "objective 'speed' is unknown" in done.stderr


@pytest.mark.parametrize(("kind", "field"), [("instance", "cluster"), ("plan", "objective")])
def test_schema_is_json_schema(run, kind, field):
    found = json.loads(run("schema", kind).stdout)
    assert (
        found["type"] == "object"
        and field in found["properties"]
        and found["title"] == f"optsched {kind} file"
    )
