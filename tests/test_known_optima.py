"""Published optima through our own format: PSPLIB j30 (single mode) and j10 (multi-mode), solved
and proved."""

import csv
from pathlib import Path

import pytest

from optsched.engine import solve
from optsched.files import dump_instance, load_instance
from optsched.traces.readers import psplib
from tests.data import DATA, needs_data

SINGLE = DATA / "known-optima" / "psplib-j30"
MULTI = DATA / "known-optima" / "psplib-mm-j10"
LIMIT_S = 300
"""Far above what any of them needs; `benchmarks/known_optima.py` measures the time."""


def published() -> list[tuple[Path, float]]:
    """(file, optimal makespan) of all 480 + 536 instances, where the data is present."""
    found: list[tuple[Path, float]] = []
    if SINGLE.is_dir():
        with (SINGLE / "optimum" / "optimum.csv").open() as rows:
            found += [
                (SINGLE / row["problem"], float(row["optimum"])) for row in csv.DictReader(rows)
            ]
    if MULTI.is_dir():
        with (MULTI / "optimum.csv").open() as rows:
            found += [
                (MULTI / f"{row['instance']}.mm", float(row["objective"]))
                for row in csv.DictReader(rows)
            ]
    return found


def assert_proved(path: Path, optimum: float) -> None:
    instance = load_instance(dump_instance(psplib.read(path).instance), path.name)
    solution = solve(
        instance, "makespan", solver="cpsat", time_limit_s=LIMIT_S, isolate=False, checked=True
    )
    assert solution.status == "optimal", (
        f"{path.name}: {solution.value} with bound {solution.bound}"
    )
    assert solution.value == pytest.approx(optimum)
    assert solution.bound == pytest.approx(optimum)


def name(value: object) -> str | None:
    return value.name if isinstance(value, Path) else None


@needs_data("known-optima")
@pytest.mark.parametrize(("path", "optimum"), published()[::20], ids=name)
def test_every_twentieth_is_solved_and_proved(path: Path, optimum: float) -> None:
    assert_proved(path, optimum)


@needs_data("known-optima")
@pytest.mark.slow
@pytest.mark.parametrize(("path", "optimum"), published(), ids=name)
def test_all_are_solved_and_proved(path: Path, optimum: float) -> None:
    assert_proved(path, optimum)
