"""`instances/preempt-or-continue-large/`: files, optima and README agree, and the time-indexed
program proves what is stored, also of the smaller set, whose optima it does not know."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import certified_large as benchmark
from benchmarks import preempt_or_continue as small
from optsched.files import instance_hash
from tests.oracles import time_indexed

REPOSITORY = Path(__file__).parent.parent
NAMES = small.names((), benchmark.SET)
STORED = small.stored(benchmark.SET)
QUICK = ("pool-01", "pool-02", "type-02", "weight-02")
SMALL = (
    "gang-03",
    "gpu-type-02",
    "gpu-type-04",
    "mix-01",
    "periodic-04",
    "periodic-07",
    "queue-08",
    "suspended-03",
    "sweep-09",
    "weight-05",
)
MOST_CHOICES = 1300
"""Programs with more are left out of the slow comparison with the smaller set."""


def test_the_set_is_what_it_says_it_is() -> None:
    instances = {name: small.load(name, benchmark.SET) for name in NAMES}
    assert len(instances) >= 40
    assert list(STORED) == NAMES == [instance.name for instance in instances.values()]
    assert {len(instance.jobs) for instance in instances.values()} <= set(range(15, 51))
    for name, instance in instances.items():
        entry = STORED[name]
        assert instance_hash(instance) == entry["hash"]
        assert min(entry["first"].values()) == entry["value"]
        assert len(entry["certified_by"]) == 2


def test_generator_makes_the_same_bytes() -> None:
    command = [sys.executable, str(benchmark.SET / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_has_every_instance_with_its_optimum() -> None:
    page = (benchmark.SET / "README.md").read_text()
    assert re.findall(r"^\| [a-z-]+-\d\d .*$", page, re.M) == [
        benchmark.row(name, small.load(name, benchmark.SET), STORED[name]) for name in NAMES
    ]


@pytest.mark.parametrize("name", QUICK)
def test_both_solvers_and_the_verifier_certify(name: str) -> None:
    instance, own, value = small.load(name, benchmark.SET), benchmark.oracle(name), proved(name)
    best = time_indexed.optimum(own, at_most=value, solver="GSCIP")
    assert best is not None and best.value == value
    small.check_plan(instance, benchmark.plan_of(instance, best), value)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
def test_all_are_certified(name: str) -> None:
    proved(name)


def proved(name: str) -> float:
    """The optimum that HiGHS proves, which is the stored one."""
    value = float(STORED[name]["value"])
    best = time_indexed.optimum(benchmark.oracle(name), at_most=value)
    assert best is not None and best.value == value
    return value


def test_nothing_is_below_the_optimum() -> None:
    own, value = benchmark.oracle("pool-01"), float(STORED["pool-01"]["value"])
    assert time_indexed.optimum(own, at_most=value - 1) is None


@pytest.mark.parametrize("name", SMALL)
def test_the_program_proves_what_exhaustive_search_found(name: str) -> None:
    agrees(name, time_indexed.Instance(small.SET / f"{name}.json"))


@pytest.mark.slow
def test_the_program_proves_what_exhaustive_search_found_of_all_it_knows() -> None:
    compared = 0
    for name in small.names():
        try:
            own = time_indexed.Instance(small.SET / f"{name}.json")
        except AssertionError:  # what it does not know
            continue
        if len(own.program(own.horizon_s()).choices) <= MOST_CHOICES:
            agrees(name, own)
            compared += 1
    assert compared >= 50


def agrees(name: str, own: time_indexed.Instance) -> None:
    """Check the optimum and the first decisions against those of exhaustive search."""
    entry = small.stored()[name]
    best = time_indexed.optimum(own, at_most=1.1 * entry["value"])
    assert best is not None
    assert best.value == pytest.approx(entry["value"], rel=1e-9)
    assert best.decisions in entry["decisions"]


def test_unknown_parts_of_a_file_are_refused(tmp_path: Path) -> None:
    raw = json.loads((benchmark.SET / "pool-01.json").read_text())
    raw["jobs"][0]["deadline_s"] = 60
    (path := tmp_path / "deadline.json").write_text(json.dumps(raw))
    with pytest.raises(AssertionError):
        time_indexed.Instance(path)


def test_first_decisions_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    """`fifo` never preempts, which is optimal in `pool-01` only with other starts."""
    small.judge("fifo", ["pool-01", "pool-02"], 1.0, benchmark.SET, benchmark.regret)
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["planned"] == 2
    assert summary["optimal_first_decisions"] < 2
