"""The program as a whole: help, exit statuses, and what happens when the world is against it."""

import os
import subprocess
import sys

import click
import pytest

from optsched import Cluster, Instance, Job, Node, files
from optsched.cli import COMMANDS, main

HEAVY = (
    "ortools",
    "pulp",
    "networkx",
    "plotly",
    "matplotlib",
    "pandas",
    "pydantic",
    "rich",
    "numpy",
)


def optsched(*words, **more):
    """A real process."""
    more = {"capture_output": True, "text": True, "timeout": 120} | more
    return subprocess.run([sys.executable, "-m", "optsched", *map(str, words)], check=False, **more)


def test_help_names_every_command(run):
    shown = run("--help")
    assert shown.exit_code == 0
    for name, summary in COMMANDS.items():
        assert f"\n  {name} " in shown.output and summary in shown.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(run, name):
    shown = run(name, "--help")
    assert shown.exit_code == 0
    assert f"Usage: optsched {name}" in shown.output and len(shown.output) > 150


def imported_by(*words):
    """Which heavy modules a call imports."""
    code = (
        "import sys\nfrom optsched.cli import main\n"
        f"try: main({list(words)})\nexcept SystemExit: pass\n"
        f"print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    ).stderr.split()


def test_help_imports_nothing_heavy():
    assert imported_by("--help") == []
    assert imported_by("solve", "--help") == []
    assert imported_by("list", "objectives", "--json") == []


@pytest.mark.parametrize(
    "words",
    [
        ("bogus",),
        ("--bogus",),
        ("solve",),
        ("solve", "x", "--bogus"),
        ("list", "nodes"),
        ("schema", "cluster"),
        ("verify", "x"),
        ("solve", "x", "--workers", "0"),
        ("solve", "x", "--seed", "-1"),
        ("solve", "x", "--seed", "one"),
    ],
)
def test_wrong_words_are_status_2(run, words):
    done = run(*words)
    assert done.exit_code == 2
    assert "Error: " in done.output and "Traceback" not in done.output


def test_version(run):
    import optsched

    assert run("--version").output == f"optsched {optsched.__version__}\n"


def test_a_bug_is_one_line_and_a_traceback_in_a_file(
    run, fake_engine, instance_path, monkeypatch, tmp_path
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fake_engine.error = RuntimeError("numbers ran out")
    done = run("solve", instance_path)
    assert done.exit_code == 3
    assert "a bug in optsched" in done.stderr and "RuntimeError: numbers ran out" in done.stderr
    assert "Traceback" not in done.output
    (written,) = tmp_path.glob("optsched-*.traceback")
    assert str(written) in done.stderr and "RuntimeError: numbers ran out" in written.read_text()


def test_ctrl_c_before_there_is_a_plan_is_status_130(run, fake_engine, instance_path):
    fake_engine.error = KeyboardInterrupt()
    done = run("solve", instance_path)
    assert done.exit_code == 130
    assert "Traceback" not in done.output


def test_real_process_good_and_bad(instance_path, tmp_path):
    plan = tmp_path / "p.json"
    done = optsched("solve", instance_path, "--solver", "fifo", "-o", plan)
    assert (done.returncode, done.stderr) == (0, "")
    assert "status" in done.stdout and plan.exists()
    done = optsched("verify", instance_path, plan)
    assert done.returncode == 0 and done.stdout.startswith("OK")
    done = optsched("solve", tmp_path / "nowhere.json")
    assert done.returncode == 2
    assert (
        done.stderr.startswith("optsched: ") and "No such file" in done.stderr and done.stdout == ""
    )


def test_stdin_of_a_real_process(instance_path):
    done = optsched("solve", "-", "--solver", "fifo", "--json", input=instance_path.read_text())
    assert done.returncode == 0 and done.stdout.startswith('{\n  "format": "optsched-plan/1"')


def test_a_closed_pipe_is_quiet():
    read, write = os.pipe()
    os.close(read)
    done = optsched(
        "list", "objectives", capture_output=False, stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_stdout_is_one_sentence():
    with open("/dev/full", "w") as full:
        done = optsched(
            "schema", "instance", capture_output=False, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 2
    assert done.stderr == "optsched: output: No space left on device\n"


def test_layouts_in_help_texts_stay_as_they_are():
    """A backspace keeps a paragraph as it is laid out; it stands alone on its line."""
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        for line in (command.help or "").splitlines():
            assert "\b" not in line or line.strip(" ") == "\b", (name, line)


@pytest.mark.parametrize(
    ("command", "gpus", "says"),
    [
        ("round", 1, "a?[2Jb  start"),
        ("explain", 1, "a?[2Jb starts"),
        ("bound", 2, "job a?[2Jb can never run"),
    ],
)
def test_names_do_not_move_the_cursor(run, tmp_path, command, gpus, says):
    path = tmp_path / "instance.json"
    job = Job(id="a\x1b[2Jb", gpus=gpus, duration_s=5.0)
    instance = Instance(cluster=Cluster(nodes=(Node(name="n", gpus=1),)), jobs=(job,))
    files.write_text(path, files.dump_instance(instance))
    done = run(command, path, color=True)
    assert says in done.output and "\x1b[2J" not in done.output
