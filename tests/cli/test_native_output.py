"""What native code prints never gets into what a command answers."""

import json
import subprocess
import sys

NOISY = """
import os, sys
import optsched.cli as cli

invoke = cli.LazyGroup.invoke

def noisy(self, ctx):
    os.write(1, b"a library talks\\n")
    return invoke(self, ctx)

cli.LazyGroup.invoke = noisy
cli.main()
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", NOISY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_answers_are_answers_alone() -> None:
    done = run("schema", "instance")
    assert done.returncode == 0 and json.loads(done.stdout)
    assert done.stderr == "a library talks\n"


def test_a_closed_pipe_is_noticed() -> None:
    command = [sys.executable, "-c", NOISY, "schema", "instance"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 141


def test_closed_streams_are_like_the_null_device() -> None:
    """With stdout closed the next file opened would be file 1, and get what is printed."""
    for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
        command = f'"{sys.executable}" -m optsched schema instance {closed}'
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
        assert done.returncode == 0, (closed, done.stderr)
        assert bool(done.stdout) is (">&-" not in closed.replace("2>&-", ""))
