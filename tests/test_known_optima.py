"""Published optima through our own format: PSPLIB j30 (single mode) and j10 (multi-mode), solved
and proved."""

from pathlib import Path

import pytest

from benchmarks import known_optima
from benchmarks.known_optima import SETS, published
from optsched.engine import solve
from optsched.files import dump_instance, load_instance
from optsched.traces.readers import psplib
from tests.data import needs_data

LIMIT_S = 300
"""Far above what any of them needs; `benchmarks/known_optima.py` measures the time."""
PUBLISHED = [
    case
    for name in ("psplib-j30", "psplib-mm-j10")
    if (SETS / name).is_dir()
    for *case, _ in published(name)
]
"""480 + 536 instances, where the data is present."""


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


def test_published_ranges_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_optima, "SETS", tmp_path)
    (tmp_path / "some" / "optimum").mkdir(parents=True)
    (tmp_path / "some" / "optimum" / "optimum.csv").write_text(
        "problem,optimum\na.sm,77\nb.sm,82..87\nc.sm,..96\n"
    )
    read = [(path.name, least, largest) for path, least, largest in published("some")]
    assert read == [("a.sm", 77, 77), ("b.sm", 82, 87), ("c.sm", 0, 96)]


@needs_data("known-optima")
@pytest.mark.parametrize(("path", "optimum"), PUBLISHED[::20], ids=name)
def test_every_twentieth_is_solved_and_proved(path: Path, optimum: float) -> None:
    assert_proved(path, optimum)


@needs_data("known-optima")
@pytest.mark.slow
@pytest.mark.parametrize(("path", "optimum"), PUBLISHED, ids=name)
def test_all_are_solved_and_proved(path: Path, optimum: float) -> None:
    assert_proved(path, optimum)
