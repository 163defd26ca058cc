"""`optsched demo`: the first thing a newcomer runs, with real processes."""

import json
from pathlib import Path

import psutil
import pytest

from optsched.control.journal.journal import Journal
from optsched.control.journal.state import State
from optsched.demo.scenario import ARRIVALS, CLUSTER


def test_it_runs_tells_and_draws(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "new" / "demo"
    done = run("demo", "-o", Path("new", "demo"), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["jobs"] == len(ARRIVALS) == 6 and len(found["sentences"]) == 3
    assert "pretrain was preempted for debug" in found["sentences"][0]
    assert "finetune was not preempted for evaluate" in found["sentences"][1]
    page = Path(found["picture"]).read_text()
    assert all(one.name in page for one in ARRIVALS)
    state = State()
    journal = Journal(folder / "state" / "journal", read_only=True)
    for entry in journal.entries():
        state.apply(entry.at_s, entry.event)
    assert {job.status for job in state.jobs.values()} == {"completed"}
    resumed = state.jobs["pretrain"].attempts[-1].ended
    assert resumed is not None and resumed.progress is not None
    assert resumed.progress.first_step > 0 and resumed.progress.step == resumed.progress.total_steps
    assert not [
        one
        for one in psutil.process_iter(["cmdline"])
        if str(folder) in " ".join(one.info["cmdline"] or ())
    ]


def test_a_directory_that_cannot_be_used(run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("demo", "-o", tmp_path / "file" / "demo")
    assert done.exit_code == 2 and "cannot be made" in done.stderr
    (tmp_path / "cluster.toml").write_text(CLUSTER + "# mine\n")
    done = run("demo", "-o", tmp_path)
    assert done.exit_code == 2 and "is not a demo's" in done.stderr
