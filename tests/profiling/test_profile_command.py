"""`optsched profile` and `optsched profiles`, as they are called."""

import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from optsched import files
from optsched.cli import main
from optsched.profiling.host import usable_cores
from tests.profiling.conftest import LOOP, patiently

REPOSITORY = Path(__file__).parents[2]
CORES = len(usable_cores())


@pytest.fixture
def run():
    return lambda *words: CliRunner().invoke(main, [str(word) for word in words])


def test_the_profile_goes_into_a_job(run, python, tmp_path) -> None:
    out, plot, store = tmp_path / "out.json", tmp_path / "out.svg", tmp_path / "kept"
    counts = "1,2" if CORES > 1 else "1"

    def measure(for_s):
        return run(
            "profile",
            "--for",
            for_s,
            "--cpus",
            counts,
            "--repeats",
            1,
            "-o",
            out,
            "--plot",
            plot,
            "--store",
            store,
            "--name",
            "loop",
            "--json",
            "--",
            *python(LOOP),
        )

    done = patiently(measure, lambda done: done.exit_code == 0, (0.8, 8, 60))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found == json.loads(out.read_text())
    assert list(found["profile"]["cpus_per_gpu"]) == counts.split(",")
    assert max(found["profile"]["cpus_per_gpu"].values()) == 1
    ET.parse(plot)
    instance = {
        "format": "optsched/1",
        "name": "x",
        "cluster": {
            "nodes": [{"name": "n", "gpu_type": "a100", "gpus": 1, "cpus": 8, "memory_gib": 64}]
        },
        "jobs": [{"id": "j", "gpus": 1, "duration_s": 9, "profile": found["profile"]}],
    }
    [job] = files.load_instance(json.dumps(instance)).jobs
    assert job.profile.restore_s == found["profile"]["restore_s"] > 0
    assert set(job.profile.cpus_per_gpu) == {int(count) for count in counts.split(",")}

    listed = json.loads(run("profiles", "--store", store, "--json").stdout)
    assert [(one["name"], one["source"]) for one in listed] == [("loop", "measured by probe")]
    shown = run("profiles", "loop", "--store", store)
    assert (
        shown.exit_code == 0
        and "measured by probe" in shown.stdout
        and '"restore_s"' in shown.stdout
    )


def test_people_see_what_was_and_was_not_measured(run) -> None:
    done = run("profile", "--for", "300ms", "--", "sleep", "60")
    assert done.exit_code == 0
    assert (
        "host memory, peak" in done.stdout
        and "not measured" in done.stdout
        and '"profile": {' in done.stdout
    )
    assert "at most 900 ms" in done.stderr
    quiet = run("profile", "-q", "--for", "300ms", "--", "sleep", "60")
    assert (quiet.exit_code, quiet.output) == (0, "")


def test_a_command_that_fails_is_status_1(run, tmp_path) -> None:
    out = tmp_path / "out.json"
    done = run("profile", "-o", out, "sh", "-c", "echo lost my data; exit 3")
    assert done.exit_code == 1
    assert "ended with status 3" in done.stderr and "lost my data" in done.stderr
    assert not out.exists()


def test_cores_cannot_be_compared_without_steps(run) -> None:
    done = run("profile", "--for", "200ms", "--cpus", 1, "--", "sleep", "60")
    assert done.exit_code == 1
    assert "without steps there are no rates to compare" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cpus", f"1,{CORES + 1}", "--", "sleep", "9"), f"this host has {CORES} to use"),
        (("--cpus", "1,two", "--", "sleep", "9"), "is not a list of core counts"),
        (("--cpus", "0", "--", "sleep", "9"), "is not a list of core counts"),
        (("--cpus", "", "--", "sleep", "9"), "is not a list of core counts"),
        (("--plot", "a.svg", "--", "sleep", "9"), "say which counts with --cpus"),
        (("--cpus", "1", "--plot", "a.png", "--", "sleep", "9"), "ends in .svg"),
        (("--store", "kept", "--", "sleep", "9"), "--store DIR and --name NAME go together"),
        (("--name", "x", "--", "sleep", "9"), "--store DIR and --name NAME go together"),
        (("--store", "kept", "--name", "../x", "--", "sleep", "9"), "cannot name a profile"),
        (("-o", "no/such/folder.json", "--", "sleep", "9"), "does not exist"),
        (("--", "no-such-program-anywhere"), "is not found"),
        (("--for", "0", "--", "sleep", "9"), "must be above zero"),
        ((), "COMMAND"),
    ],
)
def test_bad_input_is_told_before_anything_runs(run, words, said, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("profile", *words)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_profile_is_told_before_anything_runs(run, tmp_path) -> None:
    (tmp_path / "x.json").write_text("{")
    done = run("profile", "--store", tmp_path, "--name", "x", "--", "no-such-program-anywhere")
    assert done.exit_code == 2 and "is not JSON" in done.stderr


def test_an_empty_store(run, tmp_path) -> None:
    assert run("profiles", "--store", tmp_path).stdout == f"no profiles in {tmp_path}\n"
    missing = run("profiles", "x", "--store", tmp_path)
    assert missing.exit_code == 2 and "none yet" in missing.stderr


def test_sigterm_ends_the_command_too(tmp_path) -> None:
    """Also in the background, where shells have Ctrl-C ignored."""
    ready = tmp_path / "ready"
    code = f"import os, time; open({str(ready)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    words = [
        sys.executable,
        "-m",
        "optsched",
        "profile",
        "--for",
        "10m",
        "--",
        sys.executable,
        "-c",
        code,
    ]
    profiler = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    deadline = time.monotonic() + 120
    while not (ready.exists() and ready.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    profiler.terminate()
    said = profiler.communicate(timeout=120)
    assert (profiler.returncode, said[0]) == (130, "")
    assert "interrupted" in said[1]
    assert not psutil.pid_exists(int(ready.read_text()))
