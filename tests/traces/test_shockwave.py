"""Shockwave traces: batch sizes by hand, run times summed over epochs, faults, and the published
trace."""

import json
from pathlib import Path
from typing import Any

import pytest

from optsched.errors import InputError
from optsched.traces.readers import shockwave
from optsched.traces.readers.batch_sizes import phases, steps_of_epoch

TABLE: dict[str, Any] = {
    "v100": {
        "('LM (batch size 40)', 1)": {"null": 10.0},
        "('LM (batch size 80)', 1)": {"null": 8.0},
        "('LM (batch size 20)', 1)": {"null": 16.0},
        "('ResNet-50 (batch size 64)', 2)": {"null": 4.0},
        "('LM (batch size 40)', 2)": {"null": 20.0},
        "('LM (batch size 80)', 2)": {"null": 0.0},
    },
    "p100": {
        "('LM (batch size 40)', 1)": {"null": 5.0},
        "('LM (batch size 80)', 1)": {"null": 2.0},
    },
}
EPOCH_40, EPOCH_80 = 1492, 746
"""Steps of 59,675 samples of LM at a batch of 40 and 80."""


def line(
    job_type: str, steps: Any, rule: str = "static", gpus: Any = 1, arrival: Any = 0, slo: Any = -1
) -> str:
    return "\t".join(
        map(str, (job_type, "run.py", "dir", "--steps", 1, steps, gpus, rule, 1, slo, 77, arrival))
    )


def trace(folder: Path, *lines: str, table: Any = TABLE) -> Path:
    (folder / "tacc_throughputs.json").write_text(json.dumps(table))
    path = folder / "small.trace"
    path.write_text("".join(f"{text}\n" for text in lines))
    return path


@pytest.mark.parametrize(
    ("model", "first", "gpus", "rule", "epochs", "expected"),
    [
        ("LM", 10, 1, "static", 50, [(10, 50)]),
        ("LM", 10, 1, "accordion", 50, [(10, 10), (80, 40)]),
        ("LM", 10, 1, "gns", 50, [(10, 11), (20, 10), (40, 20), (80, 9)]),
        ("ResNet-50", 32, 1, "accordion", 45, [(32, 10), (128, 20), (32, 10), (128, 5)]),
        (
            "ResNet-18",
            64,
            1,
            "accordion",
            270,
            [(64, 10), (256, 140), (64, 10), (256, 90), (64, 10), (256, 10)],
        ),
        ("Recommendation", 2048, 1, "accordion", 50, [(2048, 40), (8192, 10)]),
        ("Transformer", 16, 1, "accordion", 99, [(16, 99)]),
        ("Transformer", 16, 1, "gns", 99, [(16, 99)]),
        ("LM", 80, 1, "gns", 99, [(80, 99)]),
        ("LM", 5, 4, "gns", 100, [(5, 11), (10, 20), (20, 40), (40, 20), (80, 9)]),
    ],
)
def test_batch_sizes(
    model: str, first: int, gpus: int, rule: str, epochs: int, expected: list[tuple[int, int]]
) -> None:
    assert phases(model, first, gpus, rule, epochs) == expected


def test_steps_of_an_epoch_go_through_all_samples() -> None:
    assert steps_of_epoch("LM", 40) == EPOCH_40
    assert steps_of_epoch("LM", 80) == EPOCH_80


def test_run_time_is_summed_over_epochs(tmp_path: Path) -> None:
    steps = int(20.5 * EPOCH_40)
    path = trace(tmp_path, line("LM (batch size 40)", steps, "gns", arrival=5, slo=2))
    read = shockwave.read(path, cluster="v100=4,p100=4")
    job = read.instance.jobs[0]
    v100_s = 11 * EPOCH_40 / 10.0 + 9.5 * EPOCH_80 / 8.0
    assert job.duration_s == pytest.approx(v100_s, abs=1e-3)
    assert job.profile.rate["p100"] == pytest.approx(
        v100_s / (11 * EPOCH_40 / 5.0 + 9.5 * EPOCH_80 / 2.0), abs=1e-6
    )
    assert [(phase.batch_size, phase.epochs, phase.epoch_s) for phase in job.profile.phases] == [
        (40, 11, EPOCH_40 / 10.0),
        (80, pytest.approx(9.5, abs=1e-3), EPOCH_80 / 8.0),
    ]
    assert (job.submit_s, job.gpus, job.command, job.profile.startup_s) == (5.0, 1, "run.py", 20.0)
    assert job.deadline_s == pytest.approx(5.0 + 2 * v100_s, abs=1e-2)


def test_a_batch_size_that_was_not_measured_leaves_the_one_before(tmp_path: Path) -> None:
    job = shockwave.read(
        trace(tmp_path, line("LM (batch size 40)", 20 * EPOCH_40, "gns", gpus=2))
    ).instance.jobs[0]
    assert job.duration_s == pytest.approx(20 * EPOCH_40 / 20.0, abs=1e-3)


def test_a_type_without_one_of_the_batch_sizes_cannot_run_the_job(tmp_path: Path) -> None:
    table = {**TABLE, "p100": {"('LM (batch size 40)', 1)": {"null": 5.0}}}
    path = trace(tmp_path, line("LM (batch size 40)", 20 * EPOCH_40, "accordion"), table=table)
    assert set(shockwave.read(path, cluster="v100=4,p100=4").instance.jobs[0].profile.rate) == {
        "v100"
    }


def test_what_cannot_be_used_is_counted(tmp_path: Path) -> None:
    path = trace(
        tmp_path,
        line("LM (batch size 40)", 9),
        line("LM (batch size 10)", 9),
        line("ResNet-50 (batch size 64)", 9, gpus=2),
        line("LM (batch size 40)", 9, arrival=3),
        line("LM (batch size 40)", 9, arrival=1),
    )
    read = shockwave.read(path, jobs=2, cluster="v100=1", overheads=False)
    assert [job.id for job in read.instance.jobs] == ["job-0", "job-4"]
    assert read.read == 5
    assert sorted(read.dropped.values()) == [1, 1, 1]
    assert read.instance.jobs[0].profile.startup_s == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("a\tb\n", "line 1: expected 12 cells separated by tabs, not 2"),
        (line("LM (batch size 40)", "many"), "line 1: expected total_steps"),
        (line("LM (batch size 40)", 9, "sometimes"), "static, accordion, gns"),
        (line("LM", 9), "job type"),
        (line("GPT (batch size 8)", 9), "job type"),
        (line("LM (batch size 40)", 0), "total_steps of at least 1"),
        (line("LM (batch size 40)", 9, arrival="soon"), "arrival in seconds"),
        (line("LM (batch size 10)", 9), "none of the 1 jobs"),
    ],
)
def test_faults_name_the_line(tmp_path: Path, text: str, expected: str) -> None:
    path = trace(tmp_path)
    path.write_text(text)
    with pytest.raises(InputError, match=expected):
        shockwave.read(path)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("no json", "is not JSON"),
        ("{}", "no object 'v100'"),
        ('{"v100": {"(\'LM (batch size 40)\', 1)": {"null": -1}}}', "steps per second"),
    ],
)
def test_faults_of_the_table(tmp_path: Path, table: str, expected: str) -> None:
    path = trace(tmp_path, line("LM (batch size 40)", 9))
    (tmp_path / "tacc_throughputs.json").write_text(table)
    with pytest.raises(InputError, match=expected):
        shockwave.read(path)


def test_a_missing_table_is_asked_for(tmp_path: Path) -> None:
    path = trace(tmp_path, line("LM (batch size 40)", 9))
    (tmp_path / "tacc_throughputs.json").unlink()
    with pytest.raises(InputError, match="--throughputs"):
        shockwave.read(path)


def test_the_published_trace(data: Path) -> None:
    """The trace states run times at the first batch size throughout, which is what static jobs
    take."""
    path = data / "shockwave_tacc32" / "120jobs_32gpus.trace"
    read = shockwave.read(path)
    assert (read.kept, read.dropped) == (120, {})
    cells = [text.split("\t") for text in path.read_text().splitlines()]
    changed = 0
    for job in read.instance.jobs:
        stated = cells[int(job.id.removeprefix("job-"))]
        assert job.duration_s is not None
        same = job.duration_s == pytest.approx(float(stated[10]), rel=0.01)
        assert same or stated[7] != "static"
        changed += not same
    assert changed > 50
