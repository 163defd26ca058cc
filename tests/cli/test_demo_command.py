"""`optsched demo`: the first thing a newcomer runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from optsched import engine, files
from optsched.cli.demo import Preemption, most_telling, story
from optsched.cli.demo_instance import demo_instance
from tests.list_schedule import list_schedule, solution_of

ORDER = ("eval-nightly", "urgent-fix", "sweep-1", "sweep-2")


@pytest.fixture
def planned(monkeypatch):
    """An engine that preempts `pretrain` where it may, and goes by arrival as `fifo`."""

    def solve(instance, objective="wct", *, solver="auto", **_):
        may = instance.job["pretrain"].preemptible and solver == "auto"
        return solution_of(
            instance, list_schedule(instance, ("pretrain",), ORDER) if may else None, solver=solver
        )

    monkeypatch.setattr(engine, "solve", solve)
    return solve


def test_instance_is_sound_and_small():
    instance = demo_instance()
    files.check_instance(instance)
    assert len(instance.jobs) <= 16 and {entry.job for entry in instance.running} <= set(instance.job)


def test_demo_writes_three_files_and_tells_the_story(run, planned, tmp_path):
    done = run("demo", "-o", tmp_path / "new" / "demo")
    assert done.exit_code == 0, done.output
    folder = tmp_path / "new" / "demo"
    assert sorted(path.name for path in folder.iterdir()) == ["instance.json", "plan.html", "plan.json"]
    assert run("verify", folder / "instance.json", folder / "plan.json").exit_code == 0
    for word in (
        "First in, first out would give",
        "pretrain is preempted on a100-0",
        "eval-nightly",
        "Had pretrain to go on",
        str(folder / "plan.html"),
    ):
        assert word in done.output


def test_json_and_quiet(run, planned, tmp_path):
    found = json.loads(run("demo", "-o", tmp_path, "--json").stdout)
    assert found["verified"] and found["preempted"] == "pretrain" and Path(found["picture"]).exists()
    assert found["value"] < found["fifo"] and found["value"] < found["value_without"]
    assert run("demo", "-o", tmp_path, "-q").output == ""


def test_a_directory_that_cannot_be_made(run, planned, tmp_path):
    (tmp_path / "file").write_text("")
    done = run("demo", "-o", tmp_path / "file" / "demo")
    assert done.exit_code == 2 and "cannot be made" in done.stderr


def test_numbers_of_the_story_are_those_of_the_plans(planned):
    instance = demo_instance()
    solution, fifo = planned(instance), planned(instance, solver="fifo")
    found = most_telling(instance, solution)
    assert (found.job, found.nodes, found.overhead_s) == ("pretrain", ("a100-0",), 225)
    assert found.for_jobs[0] == "eval-nightly"
    text = " ".join(story(instance, solution, fifo, found))
    assert f"{fifo.value:,.0f} s" in text and f"{fifo.value - solution.value:,.0f} s" in text
    assert f"{found.value_without - solution.value:,.0f} s more" in text


def test_story_without_a_preemption_or_a_comparison(planned):
    instance = demo_instance()
    solution = planned(instance, solver="fifo")
    assert most_telling(instance, solution) is None
    empty = replace(solution, levels=tuple(replace(level, value=None) for level in solution.levels))
    assert story(instance, solution, empty, None) == [
        "No running job is preempted: what waits would gain less than saving and restoring costs."
    ]
    lonely = Preemption("a", ("n",), (), 60.0, 5.0, None)
    assert "serve nobody" in story(instance, solution, empty, lonely)[0]


@pytest.mark.slow
def test_real_demo_is_good_and_in_time(run, tmp_path):
    import time

    started = time.monotonic()
    found = json.loads(run("demo", "-o", tmp_path, "--json").stdout)
    assert time.monotonic() - started < 25
    assert found["verified"] and found["value"] < 0.6 * found["fifo"]
