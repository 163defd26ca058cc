"""Workloads that wait say when they are expected to start."""

from collections.abc import Callable
from typing import Any

import pytest

from optsched.control.beside import NoForecastError
from optsched.kueue.objects import STARTS, Workload
from optsched.kueue.starts import Starts

from .memory import Memory
from .objects import NOW_S, admitted, workload


class Here:
    """Computes in this process; `fails` says that it does not."""

    cpu_s = 0.0
    fails = False

    def call(self, limit_s: float, function: Callable[..., Any], *given: Any) -> Any:
        if self.fails:
            raise NoForecastError("no answer")
        return function(*given)


@pytest.fixture
def memory() -> Memory:
    return Memory(
        admitted(workload("runs", 8, duration="1h"), NOW_S - 60),
        workload("next", 8, duration="2h"),
        workload("later", 8, duration="9h"),
    )


def test_what_waits_is_annotated_and_only_where_it_changes(memory: Memory) -> None:
    written: list[tuple[str, str | None]] = []

    def write(own: Workload, text: str | None) -> None:
        written.append((own.name, text))
        annotations = memory.workloads[own.name]["metadata"].setdefault("annotations", {})
        annotations.pop(STARTS, None)
        if text is not None:
            annotations[STARTS] = text

    starts = Starts("wct", write)
    starts._beside = here = Here()  # type: ignore[assignment]
    starts.tell(memory.decide())
    assert [name for name, _ in written] == ["next", "later"]
    for _, text in written:
        median, late = (text or "").split("/")
        assert len(median) == 17 and median <= late
    assert [text for _, text in written] == sorted(text or "" for _, text in written)
    starts.tell(memory.decide())
    assert len(written) == 2, "nothing has changed"
    here.fails = True
    starts.tell(memory.decide())
    assert sorted(written[2:]) == [("later", None), ("next", None)]
