"""How the commands are called, and an engine that answers at once."""

from dataclasses import dataclass, field, replace

import pytest
from click.testing import CliRunner

from optsched import engine, files
from optsched.cli import main
from optsched.errors import InputError
from optsched.plugins import registry
from tests.list_schedule import list_schedule, solution_of
from tests.picture.cases import busy_morning


@pytest.fixture
def run():
    """Call `optsched` with these words; stdin as `input`."""
    return lambda *words, **more: CliRunner().invoke(main, [str(word) for word in words], **more)


@pytest.fixture(scope="session")
def instance():
    return busy_morning()


@pytest.fixture(scope="session")
def solution(instance):
    return solution_of(instance, list_schedule(instance, ("long",), ("short", "late")))


@pytest.fixture
def instance_path(tmp_path, instance):
    path = tmp_path / "instance.json"
    files.write_text(path, files.dump_instance(instance))
    return path


@pytest.fixture
def plan_path(tmp_path, solution):
    path = tmp_path / "plan.json"
    files.write_text(path, files.dump_plan(solution))
    return path


@dataclass
class FakeEngine:
    """Answers with a list schedule, or as `change` says; remembers how it was called."""

    calls: list = field(default_factory=list)
    change: dict = field(default_factory=dict)
    error: BaseException | None = None

    def __call__(self, instance, objective="wct", **how):
        self.calls.append({"instance": instance, "objective": objective, **how})
        if self.error is not None:
            raise self.error
        if how.get("solver", "auto") not in (
            "auto",
            *registry.names("solvers"),
            *registry.names("policies"),
        ):
            raise InputError(f"solver {how['solver']!r} is unknown")
        return replace(solution_of(instance, objective=objective), **self.change)


@pytest.fixture
def fake_engine(monkeypatch):
    fake = FakeEngine()
    monkeypatch.setattr(engine, "solve", fake)
    return fake
