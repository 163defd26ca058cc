"""Studies: what the file may say, that nothing is run twice, and that nothing stops a study but its
end."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optsched.cli import main
from optsched.errors import InputError
from optsched.study.design import read_study, runs
from optsched.study.results import Results
from optsched.study.runner import run_study

SMALL = """
format = "optsched-study/1"
name = "small"
title = "Two rules"
seeds = [1, 2]
policies = ["fifo", "srtf"]

[[instances]]
name = "mixed"
command = "generate --like mixed --jobs {jobs} --gpus 16 --seed {seed}"

[parameters]
jobs = [10, 20]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def table(folder: Path) -> list[dict[str, str]]:
    """The rows of runs.csv without what the clock said."""
    found = list(csv.DictReader(io.StringIO((folder / "runs.csv").read_text())))
    return [
        {name: value for name, value in row.items() if name != "run_s" and "decision" not in name}
        for row in found
    ]


def optsched(*words: str | Path, cwd: Path) -> Result:
    """Run a command in this process; its runs are in others."""
    with chdir(cwd):
        return CliRunner().invoke(main, [*map(str, words)])


def test_every_combination_is_a_run_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = runs(read_study(write(tmp_path, SMALL)))
    assert [(run.method, dict(run.parameters)) for run in found] == [
        (method, {"jobs": jobs, "seed": seed})
        for method in ("fifo", "srtf")
        for jobs in (10, 20)
        for seed in (1, 2)
    ]
    assert found[1].make == "generate --like mixed --jobs 10 --gpus 16 --seed 2"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('name = "small"', 'nam = "small"'), ["nam: is not a known field", "name: is missing"]),
        (
            ("generate --like", "rm --like"),
            ["instances[0]", "begins with none of generate, import"],
        ),
        (("{jobs}", "{job}"), ["mixed: {job} is no parameter; known are data, jobs, seed"]),
        (('["fifo", "srtf"]', '["fifo", "fifo"]'), ["method fifo is named twice"]),
        (('["fifo", "srtf"]', "[]"), ["name at least one method or policy"]),
        (("seeds = [1, 2]", 'seeds = [1, 2]\ntime_limit = "soon"'), ["time_limit: "]),
        (("seeds = [1, 2]", "seeds = [1, 2"), ["is not TOML"]),
        (("seeds = [1, 2]", "seeds = [1, 2]\nmemory_gib = inf"), ["memory_gib: should be at most"]),
        (('name = "small"', 'name = "a/b"'), ["1 fault\n  name: holds characters"]),
        (("command =", "comand ="), ["1 fault\n  instances[0].comand: is not a known field"]),
    ],
)
def test_faults_are_said_in_a_sentence(
    tmp_path: Path, change: tuple[str, str], said: list[str]
) -> None:
    path = write(tmp_path, SMALL.replace(*change))
    with pytest.raises(InputError) as error:
        read_study(path)
    for text in said:
        assert text in str(error.value)
    found = optsched("study", path, cwd=tmp_path)
    assert found.exit_code == 2 and "Traceback" not in found.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["study.toml"]


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    assert read_study(write(tmp_path, "\ufeff" + SMALL)) == read_study(write(tmp_path, SMALL))


def test_a_finished_run_is_never_repeated(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    first: list[str] = []
    found = run_study(
        read_study(path),
        Results(tmp_path / "out"),
        workers=2,
        on_result=lambda one: first.append(one.run.method),
    )
    assert len(first) == len(found) == 8 and all(one.answer is not None for one in found)
    again: list[str] = []
    more = read_study(write(tmp_path, SMALL.replace('"srtf"]', '"srtf", "las"]')))
    other = run_study(
        more,
        Results(tmp_path / "out"),
        workers=1,
        on_result=lambda one: again.append(one.run.method),
    )
    assert again == ["las"] * 4
    assert [one.answer for one in other if one.run.method != "las"] == [one.answer for one in found]


def test_a_run_that_fails_is_a_row_with_its_reason(tmp_path: Path) -> None:
    text = (
        SMALL.replace("seeds = [1, 2]", "seeds = [1]\ntime_limit = '20s'").replace(
            "[10, 20]", "[10]"
        )
        + """
[[instances]]
name = "gone"
command = "import swf {data}/no/such/file.swf"

[[methods]]
name = "wrong"
command = "simulate --policy nobody"
[[methods]]
name = "slow"
command = "solve --solver cpsat --time-limit 1h"
only = ["mixed"]
"""
    )
    text = text.replace("[parameters]\njobs = [10]", "").replace("{jobs}", "60")
    path = write(tmp_path, text.replace("'20s'", "'6s'"))
    found = optsched("study", path, "-o", "out", "--workers", "2", cwd=tmp_path)
    assert found.exit_code == 1 and "Traceback" not in found.stderr
    failed = {(row["instance"], row["method"]): row["failed"] for row in table(tmp_path / "out")}
    assert failed["mixed", "fifo"] == failed["mixed", "srtf"] == ""
    assert "nobody" in failed["mixed", "wrong"]
    assert failed["mixed", "slow"] == "stopped after 6 s"
    assert all("cannot be read" in failed["gone", name] for name in ("fifo", "srtf", "wrong"))
    assert "failed: stopped after 6 s" in (tmp_path / "out" / "table.md").read_text()


def test_memory_is_bounded(tmp_path: Path) -> None:
    text = SMALL.replace("seeds = [1, 2]", "seeds = [1]\nmemory_gib = 0.05").replace(
        "[10, 20]", "[10]"
    )
    results = run_study(read_study(write(tmp_path, text)), Results(tmp_path / "out"), workers=1)
    assert all(one.answer is None and one.reason for one in results)


def test_a_killed_study_ends_with_the_same_table(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    assert optsched("study", path, "-o", "whole", "--workers", "2", cwd=tmp_path).exit_code == 0
    for _ in range(2):
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "optsched",
                "study",
                str(path),
                "-o",
                "killed",
                "--workers",
                "1",
            ],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = len(list((tmp_path / "killed").glob("runs/*.json")))
        while (
            process.poll() is None
            and len(list((tmp_path / "killed").glob("runs/*.json"))) == before
        ):
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finished = {one.name: one.read_bytes() for one in (tmp_path / "killed" / "runs").glob("*.json")}
    assert finished
    assert optsched("study", path, "-o", "killed", cwd=tmp_path).exit_code == 0
    assert table(tmp_path / "killed") == table(tmp_path / "whole")
    for name, data in finished.items():
        assert (tmp_path / "killed" / "runs" / name).read_bytes() == data


def test_foreign_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    found = optsched("study", write(tmp_path, SMALL), "-o", "mine", cwd=tmp_path)
    assert found.exit_code == 2 and "holds other files and no study" in found.stderr
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_the_answer_for_machines(tmp_path: Path) -> None:
    text = SMALL.replace("seeds = [1, 2]", "seeds = [1]").replace("[10, 20]", "[10]")
    found = optsched("study", write(tmp_path, text), "--json", cwd=tmp_path)
    assert found.exit_code == 0
    assert json.loads(found.stdout) == {"runs": 2, "failed": 0, "folder": "small"}


@pytest.mark.slow
def test_five_hundred_runs_killed_three_times_end_with_the_same_table(tmp_path: Path) -> None:
    wanted = 500
    path = write(tmp_path, SMALL.replace("[1, 2]", str(list(range(1, wanted // 4 + 1)))))
    line = [sys.executable, "-m", "optsched", "study", str(path), "--workers", "2", "-q"]
    subprocess.run([*line, "-o", "whole"], cwd=tmp_path, check=True, timeout=1800)
    runs_dir = tmp_path / "killed" / "runs"
    for k in (1, 2, 3):
        process = subprocess.Popen([*line, "-o", "killed"], cwd=tmp_path)
        while process.poll() is None and len(list(runs_dir.glob("*.json"))) < k * wanted // 4:
            time.sleep(0.05)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
    kept = {one.name: one.read_bytes() for one in runs_dir.glob("*.json")}
    assert 3 * wanted // 4 <= len(kept) < wanted
    subprocess.run([*line, "-o", "killed"], cwd=tmp_path, check=True, timeout=1800)
    assert len(list(runs_dir.glob("*.json"))) == wanted
    assert table(tmp_path / "killed") == table(tmp_path / "whole")
    assert all((runs_dir / name).read_bytes() == data for name, data in kept.items())


def test_bounds_are_rows_too(tmp_path: Path) -> None:
    text = (
        SMALL.replace("seeds = [1, 2]", "seeds = [1]").replace("[10, 20]", "[10]")
        + """
[[methods]]
name = "bound"
command = "bound"
"""
    )
    found = optsched("study", write(tmp_path, text), "-o", "out", cwd=tmp_path)
    assert found.exit_code == 0, found.stderr
    rows = {row["method"]: row for row in table(tmp_path / "out")}
    assert rows["bound"]["bound"] == rows["fifo"]["bound"] and rows["bound"]["value"] == ""
    read = (tmp_path / "out" / "table.md").read_text()
    assert " | bound | " in read, "a row without completion times has its bound in the table"


def plug_in(folder: Path, base: str, package: str = "lab_rules") -> None:
    """A package of its own with one policy, `lab`, that does what `base` does."""
    (folder / package).mkdir(parents=True, exist_ok=True)
    (folder / package / "__init__.py").write_text(
        "from optsched.plugins.registry import policy\n\ndef Lab():\n    return "
        f"policy({base!r})\n\nLab.title = 'of the lab'\n"
    )
    said = folder / f"{package}-1.0.dist-info"
    said.mkdir(exist_ok=True)
    (said / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (said / "entry_points.txt").write_text(f"[optsched.policies]\nlab = {package}:Lab\n")


def test_a_plug_in_whose_code_changes_runs_again_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    study = write(tmp_path, SMALL.replace('"srtf"]', '"lab"]').replace("[10, 20]", "[10]"))
    finished = tmp_path / "out" / "runs"

    def addresses() -> dict[str, list[str]]:
        line = [
            sys.executable,
            "-m",
            "optsched",
            "study",
            str(study),
            "-o",
            "out",
            "-q",
            "--workers",
            "1",
        ]
        subprocess.run(line, cwd=tmp_path, check=True, timeout=120)
        kept: dict[str, list[str]] = {"fifo": [], "lab": []}
        for path in sorted(finished.glob("*.json")):
            kept[json.loads(path.read_text())["method"]].append(path.name)
        return kept

    plug_in(tmp_path / "site", "fifo")
    first = addresses()
    assert {method: len(own) for method, own in first.items()} == {"fifo": 2, "lab": 2}
    assert addresses() == first
    rows = table(tmp_path / "out")
    assert rows[0]["mean_jct_h"] == rows[2]["mean_jct_h"]
    plug_in(tmp_path / "site", "srtf")
    second = addresses()
    assert second["fifo"] == first["fifo"]
    assert len(second["lab"]) == 4 and set(second["lab"]) > set(first["lab"])
    rows = table(tmp_path / "out")
    assert rows[0]["mean_jct_h"] != rows[2]["mean_jct_h"]
    (tmp_path / "site" / "lab_rules" / "weights.json").write_text("[1]")
    assert len(addresses()["lab"]) == 6


def test_what_a_command_reads_is_part_of_its_address(tmp_path: Path) -> None:
    weights = tmp_path / "weights.json"
    run = next(iter(runs(read_study(write(tmp_path, SMALL)))))
    run = replace(run, command=f"simulate --policy rltune --option weights={weights}")
    results = Results(tmp_path / "out")
    before = results.address(run, "0", (1.0, 1.0))
    weights.write_text("[1]")
    there = results.address(run, "0", (1.0, 1.0))
    weights.write_text("[1, 2]")
    assert len({before, there, results.address(run, "0", (1.0, 1.0))}) == 3
