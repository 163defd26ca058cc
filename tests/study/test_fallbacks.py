"""Answers that are not those of the solver that was asked are named, not passed over."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from optsched.cli import main

pytest.importorskip("joblib", reason="studies need the extra `study`")

STUDY = """
format = "optsched-study/1"
name = "small"
title = "Too many jobs for one of them"
[[instances]]
name = "many"
command = "generate --like mixed --jobs 70 --gpus 16"
[[methods]]
name = "milp"
command = "solve --solver milp --time-limit 2s"
[[methods]]
name = "sjf"
command = "solve --solver sjf --time-limit 2s"
"""


def test_the_tables_say_who_did_not_answer(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    done = CliRunner().invoke(
        main, ["study", str(tmp_path / "study.toml"), "-o", str(tmp_path / "out"), "-q"]
    )
    assert done.exit_code == 0, done.output
    said = "in 1 of 1 runs a heuristic answered: milp cannot plan this: it has 70 jobs"
    table = (tmp_path / "out" / "table.md").read_text()
    assert f"- `milp`: {said}" in table and table.count("a heuristic answered") == 1
    assert f"<li>milp: {said}" in (tmp_path / "out" / "report.html").read_text()
