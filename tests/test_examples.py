"""The README of the examples states each optimum; solving proves it."""

import re
from pathlib import Path

import pytest

from optsched.engine import solve
from optsched.files import read_instance

EXAMPLES = Path(__file__).parent.parent / "instances" / "examples"


def stated() -> list[tuple[str, str, tuple[float, ...]]]:
    """(name, objective, values) from the table of the README."""
    rows = re.findall(
        r"^\| ([a-z-]+) \| ([a-z,]+) \| ([0-9,]+) \|", (EXAMPLES / "README.md").read_text(), re.M
    )
    return [
        (name, objective, tuple(float(value) for value in optimum.split(",")))
        for name, objective, optimum in rows
    ]


def test_every_example_is_in_the_table() -> None:
    assert sorted(name for name, _, _ in stated()) == sorted(
        path.stem for path in EXAMPLES.glob("*.json")
    )


@pytest.mark.parametrize(("name", "objective", "optimum"), stated())
def test_stated_optimum_is_proved(name: str, objective: str, optimum: tuple[float, ...]) -> None:
    solution = solve(
        read_instance(EXAMPLES / f"{name}.json"), objective, time_limit_s=60, checked=True
    )
    assert solution.status == "optimal"
    assert [level.value for level in solution.levels] == pytest.approx(optimum, rel=1e-9)
    assert solution.fallback is None
