"""Interrupted simulations: killed at any moment, they are taken up again and end as if nothing had
been."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optsched import files
from optsched.cli import simulate as simulate_command
from optsched.errors import InputError
from optsched.model.instance import Instance
from optsched.plugins.registry import policy
from optsched.simulate import saved
from optsched.simulate.run import Simulation
from optsched.simulate.saved import RunInterruptedError, run_saving, take_up
from optsched.traces.generate.synth import generate
from tests.policies.heavy import POLICIES

ASKED = {"policy": "x", "round_s": None}


def workload() -> Instance:
    return generate(jobs=32, gpus=24, seed=3, like="mixed", arrivals="poisson", load=1.2)


class Killed(BaseException):
    """What kill -9 looks like from inside."""


def after(count: int, act: Callable[[], None]) -> Callable[[int], None]:
    left = iter(range(count, -1, -1))

    def tell(done: int) -> None:
        if next(left, 1) == 0:
            act()

    return tell


def die() -> None:
    raise Killed


@pytest.mark.parametrize("name", POLICIES)
def test_killed_twice_it_ends_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "EVERY_S", 0.0)
    monkeypatch.setattr(saved, "MOST_OF_TIME", 1e9)
    whole = Simulation(workload(), policy(name))
    whole.run()
    state = tmp_path / "state.bin"
    simulation = Simulation(workload(), policy(name))
    for count in (12, 15):
        with pytest.raises(Killed):
            run_saving(simulation, state, ASKED, after(count, die))
        simulation = take_up(state, ASKED)
    monkeypatch.undo()
    run_saving(simulation, state, ASKED, None)
    assert simulation.record().plan() == whole.record().plan()
    assert not state.exists()


def test_ctrl_c_saves_first(tmp_path: Path) -> None:
    state = tmp_path / "state.bin"
    simulation = Simulation(workload(), policy("srtf"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    try:
        with pytest.raises(RunInterruptedError):
            run_saving(
                simulation, state, ASKED, after(10, lambda: os.kill(os.getpid(), signal.SIGINT))
            )
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    again = take_up(state, ASKED)
    assert again.world.now_s > 0 and again.done == simulation.done


@pytest.mark.parametrize(
    "spoil, asked, message",
    [
        (lambda data: data, {"policy": "y"}, 'had policy "x", this is "y"'),
        (
            lambda data: data.partition(b"\n")[0] + b"\n" + data.partition(b"\n")[2][:500],
            {},
            "is damaged",
        ),
        (lambda data: b"", {}, "cannot be read"),
        (lambda data: b"[]\n", {}, "had format null"),
        (None, {}, "there is no interrupted simulation"),
    ],
)
def test_what_cannot_be_taken_up(
    spoil: Any, asked: dict[str, Any], message: str, tmp_path: Path
) -> None:
    state = tmp_path / "state.bin"
    if spoil is not None:
        saved.save(Simulation(workload(), policy("fifo")), state, ASKED)
        state.write_bytes(spoil(state.read_bytes()))
    with pytest.raises(InputError, match=message):
        take_up(state, ASKED | asked)


def test_the_command_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, whole, part = tmp_path / "i.json", tmp_path / "whole", tmp_path / "part"
    files.write_text(instance, files.dump_instance(workload()))

    def run(*arguments: Any) -> Any:
        return CliRunner().invoke(
            simulate_command.command,
            [str(argument) for argument in arguments],
            standalone_mode=False,
        )

    asked = (instance, "--policy", "srsf", "--spacing", "30s")
    assert run(*asked, "-o", whole).return_value == 0
    monkeypatch.setattr(saved, "EVERY_S", 0.0)
    monkeypatch.setattr(saved, "MOST_OF_TIME", 1e9)
    kept = Simulation.run

    def interrupted(self: Simulation, *given: Any, **named: Any) -> bool:
        if self.done >= 10:
            os.kill(os.getpid(), signal.SIGINT)
        return kept(self, *given, **named)

    monkeypatch.setattr(Simulation, "run", interrupted)
    stopped = run(*asked, "-o", part)
    assert stopped.return_value == 130 and "--resume goes on" in stopped.stderr
    assert [one.name for one in part.iterdir()] == ["state.bin"]
    monkeypatch.setattr(Simulation, "run", kept)
    assert run(*asked, "-o", part, "--resume").return_value == 0
    assert not (part / "state.bin").exists()
    for name in ("plan.json", "jobs.csv"):
        assert (part / name).read_text() == (whole / name).read_text()
    ours, theirs = (json.loads((folder / "summary.json").read_text()) for folder in (part, whole))
    assert ours["jct_s"] == theirs["jct_s"] and ours["spacing_s"] == 30


def test_resume_needs_a_directory(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        simulate_command.command, ["i.json", "--policy", "fifo", "--resume"]
    )
    assert isinstance(result.exception, InputError) and "-o DIR" in str(result.exception)


@pytest.mark.parametrize("name", ["fifo", "srtf"])
def test_decisions_keep_their_distance(name: str) -> None:
    simulation = Simulation(workload(), policy(name), spacing_s=45.0)
    simulation.run()
    at_s = simulation.record().decision_s
    assert len(at_s) > 10 and (at_s[1:] - at_s[:-1]).min() >= 45.0


def test_time_to_think_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched.simulate import run as module

    ticks = iter(range(10**6))
    monkeypatch.setattr(
        module.time, "perf_counter", lambda: 7.0 * next(ticks)
    )  # every decision takes 7 s
    charged = Simulation(workload(), policy("fifo"), charge_solver_time=True)
    charged.run()
    free = Simulation(workload(), policy("fifo"))
    free.run()
    found, submits_s = charged.record(), {job.submit_s for job in workload().jobs}
    assert found.decision_s[0] == 0.0 and found.decision_s[1] - 7.0 in submits_s
    assert set(found.decision_wall_s) == {7.0} and not submits_s - {0.0} & set(found.start_s)
    assert found.end_s.max() > free.record().end_s.max()
