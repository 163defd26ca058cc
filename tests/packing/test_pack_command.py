"""`optsched pack`: what it prints and writes, what it refuses, and how a study runs it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from optsched import files
from optsched.cli import main
from optsched.model.instance import Instance
from optsched.packing.verify import violations
from tests.packing.cases import instance, job, node

TWO = instance(
    [node("n", 4, 16), node("m", 4, 16)],
    [*(job(f"j{i}", cpus=4) for i in range(6)), job("p", 1, 0.5, cpus=1)],
)


def saved(folder: Path, made: Instance = TWO) -> Path:
    path = folder / "small.json"
    path.write_text(files.dump_instance(made))
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["pack", *map(str, words)])


def summary(*words: object) -> dict[str, Any]:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_the_numbers(tmp_path: Path) -> None:
    """6.5 of 8 GPUs are asked for, all fit: 81.25 %, and no rule can have more."""
    found = summary(saved(tmp_path), "--load", 0.8125, "--bound")
    assert (found["gpus"], found["arrived"], found["failed"]) == (8, 7, 0)
    assert found["allocated_percent"] == found["bound_percent"] == pytest.approx(81.25)
    assert found["gap_percent"] == pytest.approx(0)
    assert found["decision_wall_s"]["p99"] >= found["decision_wall_s"]["p50"] > 0


def test_jobs_that_fit_no_node_fail(tmp_path: Path) -> None:
    made = instance([node("n", 2)], [job("a"), job("b", 4)])
    found = summary(saved(tmp_path, made), "--load", 2.5)
    assert found["failed_by_gpus"]["4"] >= 1
    assert found["allocated_percent"] == pytest.approx(50)


def test_the_same_seed_gives_the_same_packing(tmp_path: Path) -> None:
    path = saved(tmp_path)
    one, other = summary(path, "--seed", 3), summary(path, "--seed", 3)
    del one["decision_wall_s"], other["decision_wall_s"]
    assert one == other


def test_what_is_written(tmp_path: Path) -> None:
    path, out = saved(tmp_path), tmp_path / "out"
    done = run(path, "--bound", "-o", out)
    assert done.exit_code == 0, done.output
    assert "no rule exceeds" in done.output and "rule optsched" in done.output
    packing = json.loads((out / "packing.json").read_text())
    rows = [(one["job"], one["node"], tuple(one.get("gpus", ()))) for one in packing["arrivals"]]
    assert violations(TWO, rows) == []
    assert {
        one.get("part") for one in packing["arrivals"] if one["job"] == "p" and one["node"]
    } <= {0.5}
    assert json.loads((out / "summary.json").read_text())["arrived"] == len(rows)
    assert (out / "allocation.svg").read_text().lstrip().startswith("<?xml")
    assert (out / "allocation.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--load", "0"), "--load 0: give a number above 0"),
        (("--load", "-1"), "--load -1"),
        (("--load", "nan"), "--load nan"),
        (("--rule", "nothing"), "--rule 'nothing' is unknown"),
    ],
)
def test_bad_input(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = run(saved(tmp_path), *words, "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert says in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_instances_without_gpus_are_refused(tmp_path: Path) -> None:
    done = run(saved(tmp_path, instance([node("n", 0, 8)], [job("a", 0, cpus=1)])))
    assert done.exit_code == 2
    assert "has no GPU to allocate" in done.stderr


def test_a_study_of_rules(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "study.toml").write_text(f"""
format = "optsched-study/1"
name = "rules"
title = "Two rules"
seeds = [1, 2]
[[instances]]
name = "small"
file = "{path}"
[[methods]]
name = "ours"
command = "pack --load 1.3 --seed {{seed}} --bound"
[[methods]]
name = "best-fit"
command = "pack --rule best-fit --load 1.3 --seed {{seed}}"
""")
    done = CliRunner().invoke(
        main, ["study", str(tmp_path / "study.toml"), "-o", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    table = (tmp_path / "out" / "table.md").read_text()
    head = next(line for line in table.splitlines() if line.startswith("| method"))
    assert "GPUs allocated %" in head and "no rule exceeds %" in head and "decision, p99 ms" in head
    assert "`ours`" in table and "`best-fit`" in table and "failed" not in table
