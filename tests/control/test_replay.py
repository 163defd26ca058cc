"""Stored rounds: every one loads, is sound, and is the same problem again when it is decided
anew."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from optsched.cli.replay import command as replay_command
from optsched.cli.rounds import command as rounds_command
from optsched.control.journal.journal import Journal
from optsched.control.journal.state import State
from optsched.control.regret.past import past_rounds
from optsched.control.regret.replay import replay
from optsched.control.round_driver import RoundDriver
from optsched.errors import InputError
from optsched.files import instance_hash, load_instance, read_instance
from optsched.model.instance import Instance
from optsched.round.files import load_round, read_round
from optsched.round.verify import verify_round

from .test_controller import Lab


def history(folder: Path, seed: int, seconds: int = 150) -> Journal:
    """Arrivals, failures, preemptions, a drained and a lost node, silence."""
    rng = random.Random(seed)
    lab = Lab(folder)
    for i in range(seconds // 3):
        if rng.random() < 0.5:
            lab.submit(
                f"j{i}",
                rng.randint(1, 8),
                float(rng.randint(3, 80)),
                saves_s=rng.choice([0.0, 2.0, 7.0, -1.0]),
                status=rng.choice([0, 0, 0, 3]),
                retries=1,
                grace_s=9.0,
                job={"weight": rng.choice([1.0, 1.0, 5.0])},
            )
        what = rng.random()
        lab.executor.drained = {"n0"} if what < 0.1 else set()
        lab.executor.down = {"n1"} if 0.1 < what < 0.15 else set()
        lab.executor.silent = 0.15 < what < 0.2
        lab.run(3)
    lab.executor.drained, lab.executor.down, lab.executor.silent = set(), set(), False
    lab.run(600.0, turn_s=5.0)
    lab.controller.journal.close()
    return Journal(folder / "journal", read_only=True)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_every_stored_round_loads_is_sound_and_knows_what_was_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    seen: list[Any] = []

    def watched(self: RoundDriver, instance: Instance, state: State, *given: Any) -> Any:
        commands = decide(self, instance, state, *given)
        if commands is not None:
            seen.append(given[0])
        return commands

    decide = RoundDriver.decide
    monkeypatch.setattr(RoundDriver, "decide", watched)
    journal = history(tmp_path, seed, seconds=60 if seed == 1 else 150)
    entries, blocked = journal.rounds(), [tuple(slots) for slots in seen]
    assert len(entries) == len(blocked) > 20
    for entry in entries:
        instance_text, round_text = journal.round_files(entry.number)
        instance, solution = load_instance(instance_text, now_only=True), load_round(round_text)
        assert solution.instance_hash == instance_hash(instance)
        assert (solution.value, solution.bound) == (
            pytest.approx(entry.value),
            pytest.approx(entry.bound),
        )
        assert not verify_round(instance, solution.jobs, blocked[entry.number - 1])
    found = list(past_rounds(journal))
    assert [one.blocked for one in found] == blocked
    assert any(one.blocked for one in found)


def test_the_same_is_decided_again_and_a_better_solver_proves_no_less(tmp_path: Path) -> None:
    journal = history(tmp_path, 4, seconds=30)
    rounds = [one for one in past_rounds(journal) if len(one.instance.jobs) > 2]
    for past in rounds[:: max(1, len(rounds) // 6)]:
        again = replay(past, budget_s=60.0)
        assert not again.faults and again.comparable
        assert again.then_gap is not None and again.then_gap <= past.solution.gap + 1e-9
        assert again.now.value <= past.solution.bound * (1 + 1e-9)
        if again.now.value == pytest.approx(past.solution.value, rel=1e-9):
            continue
        assert again.differences


def test_another_objective_is_not_compared_and_differences_are_told(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.submit("light", 8, 20.0)
    lab.submit("heavy", 8, 100.0, job={"weight": 2.0, "deadline_s": 1130.0})
    lab.run(2)
    journal = lab.controller.journal
    past = next(one for one in past_rounds(journal) if len(one.instance.jobs) == 2)
    # by weight over GPU time light (1 / 20) comes before heavy (2 / 100); only heavy has a deadline
    assert {one.id: one.decision for one in past.solution.jobs} == {
        "light": "start",
        "heavy": "wait",
    }
    other = replay(past, objective="tardiness", budget_s=60.0)
    assert not other.comparable and other.then_gap is None
    assert {one.job: (one.then, one.now) for one in other.differences}["heavy"] == ("wait", "start")


def test_rounds_that_are_not_there(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.submit("a", 1, 5.0)
    lab.run(2)
    with pytest.raises(InputError, match="it has no round 99; `optsched rounds` lists them"):
        list(past_rounds(lab.controller.journal, 99))


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    journal = history(tmp_path / "state", 5, seconds=30)
    journal.close()
    config = tmp_path / "cluster.toml"
    config.write_text('format = "optsched-cluster/1"\nstate = "state"\n')
    run = CliRunner().invoke(rounds_command, ["--config", str(config), "--json", "--last", "4"])
    assert run.exit_code == 0
    listed = json.loads(run.output)
    assert len(listed) == 4 and listed[-1]["number"] == listed[0]["number"] + 3
    number = str(listed[0]["number"])
    run = CliRunner().invoke(
        rounds_command, [number, "-o", str(tmp_path / "out"), "--config", str(config)]
    )
    assert run.exit_code == 0 and "written:" in run.output
    assert "note: " in run.output and "no plan can save more than" in run.output
    instance = read_instance(tmp_path / "out" / f"round-{number}.instance.json", now_only=True)
    solution = read_round(tmp_path / "out" / f"round-{number}.round.json")
    assert solution.instance_hash == instance_hash(instance)
    run = CliRunner().invoke(replay_command, [number, "--json", "--config", str(config)])
    assert run.exit_code == 0 and json.loads(run.output)["sound"] is True
    run = CliRunner().invoke(replay_command, [number, "--config", str(config)])
    assert run.exit_code == 0 and "decided the same for" in run.output
    run = CliRunner().invoke(replay_command, ["9999", "--config", str(config)])
    assert isinstance(run.exception, InputError)
    run = CliRunner().invoke(rounds_command, ["-o", str(tmp_path / "x"), "--config", str(config)])
    assert isinstance(run.exception, InputError) and not (tmp_path / "x").exists()
