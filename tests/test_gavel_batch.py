"""A Gavel trace from end to end through the command line: import, solve the first 50 jobs, verify,
picture."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from optsched.cli import main
from tests.data import DATA, needs_data

TRACE = DATA / "gavel" / "generated" / "gavel_100_lam1200_m.trace.gz"


@needs_data("gavel")
def test_first_fifty_jobs_as_a_batch(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    instance, plan, page = (
        str(tmp_path / name) for name in ("gavel.json", "plan.json", "plan.html")
    )
    run = CliRunner().invoke
    imported = run(
        main,
        [
            "import",
            "gavel",
            str(TRACE),
            "--jobs",
            "50",
            "--cluster",
            "v100=8,p100=8,k80=8",
            "-o",
            instance,
            "--json",
        ],
    )
    assert imported.exit_code == 0, imported.output
    solved = run(
        main, ["solve", instance, "--time-limit", "8s", "-o", plan, "--gantt", page, "--json"]
    )
    assert solved.exit_code == 0, solved.output
    objective = json.loads(Path(plan).read_text())["objective"]
    assert 0 <= objective["gap"] < 1
    assert objective["bound"] <= objective["value"]
    verified = run(main, ["verify", instance, plan])
    assert verified.exit_code == 0, verified.output
    text = Path(page).read_text()
    assert "plotly" in text
    assert "<script src=" not in text  # offline


@pytest.mark.parametrize("solver", ["cpsat", "milp", "wspt"])
def test_one_worker_writes_the_same_bytes(tmp_path: Path, solver: str) -> None:
    example = str(
        Path(__file__).parent.parent / "instances" / "examples" / "preempt-or-continue.json"
    )
    texts = []
    for name in ("first.json", "second.json"):
        path = tmp_path / name
        result = CliRunner().invoke(
            main,
            [
                "solve",
                example,
                "--solver",
                solver,
                "--workers",
                "1",
                "--seed",
                "7",
                "--time-limit",
                "60s",
                "-o",
                str(path),
                "--quiet",
            ],
        )
        assert result.exit_code == 0, result.output
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]
