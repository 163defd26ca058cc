"""`instances/preempt-or-continue/`: files, optima and README agree, and both methods still certify
what is stored."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import preempt_or_continue as benchmark
from optsched.files import dump_instance, instance_hash, load_instance

REPOSITORY = Path(__file__).parent.parent
NAMES = benchmark.names()
STORED = benchmark.stored()
SLOW = {
    name
    for name in NAMES
    if len(STORED[name]["preempting"]) > 8 or name.startswith(("mix", "queue-0"))
}
"""Those that take longer than a moment by search or by cpsat."""
QUICK = [name for name in NAMES if name not in SLOW]


def test_the_set_is_what_it_says_it_is() -> None:
    instances = {name: benchmark.load(name) for name in NAMES}
    assert len(instances) >= 60
    assert list(STORED) == NAMES == [instance.name for instance in instances.values()]
    sizes = {len(instance.jobs) for instance in instances.values()}
    assert sizes == set(range(1, 11))
    assert all(entry["certified_by"] == ["exhaustive search", "cpsat"] for entry in STORED.values())
    for name, instance in instances.items():
        text = (benchmark.SET / f"{name}.json").read_text()
        assert dump_instance(load_instance(text, name)) == text
        assert instance_hash(instance) == STORED[name]["hash"]
        seconds = [
            value
            for job in json.loads(text)["jobs"]
            for key, value in {**job, **job.get("profile", {})}.items()
            if key.endswith("_s")
        ]
        assert all(isinstance(value, int) for value in seconds)


def test_generator_makes_the_same_bytes() -> None:
    command = [sys.executable, str(benchmark.SET / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_has_every_instance_with_its_optimum() -> None:
    page = (benchmark.SET / "README.md").read_text()
    rows = {
        row.split(" | ")[0].strip("| "): row
        for row in re.findall(r"^\| [a-z-]+-\d\d .*$", page, re.M)
    }
    assert list(rows) == NAMES
    for name, row in rows.items():
        idea = row.split(" | ")[3]
        assert row == benchmark.row(name, idea, benchmark.load(name), STORED[name])


def entry_is_consistent(entry: dict[str, Any]) -> bool:
    values = sorted(entry["preempting"].values())
    others = [value for value in values if not math.isclose(value, values[0], rel_tol=1e-9)]
    second = others[0] if others else None
    return bool(values[0] == entry["value"] and entry["second"] == second and entry["decisions"])


def test_values_of_sets_give_optimum_and_second_best() -> None:
    assert [name for name, entry in STORED.items() if not entry_is_consistent(entry)] == []


@pytest.mark.parametrize("name", QUICK)
def test_search_and_cpsat_certify(name: str) -> None:
    certified(name, keeping=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_search_and_cpsat_certify_all(name: str) -> None:
    certified(name, keeping=True)


def certified(name: str, keeping: bool) -> None:
    instance = benchmark.load(name)
    found = benchmark.by_search(instance)
    assert {**found, "certified_by": STORED[name]["certified_by"]} == STORED[name]
    assert benchmark.disagreements(instance, found, keeping) == []


def test_swap_rule_decides_the_pairs() -> None:
    """One second below, at and above rem_r - rem_w = 2 x 20 + 10 + 40."""
    below, tie, above = (
        [vector["r"] for vector in STORED[f"pair-{k:02}"]["decisions"]] for k in (1, 2, 3)
    )
    assert (below, tie, above) == (["continue"], ["continue", "preempt"], ["preempt"])


def test_policies_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.judge("fifo", ["pair"], 1.0)
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["planned"] == 8
    assert (
        summary["optimal_first_decisions"] == 3
    )  # it never preempts: right in pair-01 and in the two ties


def test_a_wrong_optimum_is_found() -> None:
    instance = benchmark.load("pair-03")
    right = benchmark.by_search(instance)
    wrong = {**right, "value": 1790, "decisions": [{"r": "continue", "w": "wait"}]}
    assert len(benchmark.disagreements(instance, wrong, keeping=False)) == 2
