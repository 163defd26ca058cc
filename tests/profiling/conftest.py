"""Commands that are profiled: small Python programs, run as real processes."""

import os
import sys
from pathlib import Path

import pytest

from optsched.profiling.run import Setting

LOOP = """
import json, os, signal, sys, time

saved = os.path.join(os.environ["OPTSCHED_CHECKPOINT_DIR"], "state.json")
report_to = os.environ["OPTSCHED_PROGRESS"]
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
report = {}
step = 0
if os.path.exists(saved):
    began = time.time()
    time.sleep(0.15)
    step = json.load(open(saved))["step"]
    report["restore_s"] = time.time() - began
report |= {"first_step": step, "began_s": time.time()}
while True:
    time.sleep(0.04 / min(len(os.sched_getaffinity(0)), 2))
    step += 1
    stop = bool(asked)
    report |= {"step": step, "at_s": time.time()}
    if stop:
        began = time.time()
        time.sleep(0.1)
        json.dump({"step": step, "weights": "w" * 500_000}, open(saved, "w"))
        report |= {"saved_step": step, "saved_at_s": time.time(), "checkpoint_s": time.time() - began}
    open(report_to + ".tmp", "w").write(json.dumps(report))
    os.replace(report_to + ".tmp", report_to)
    if stop:
        sys.exit(85)
"""  # noqa: E501
"""Follows the contract: a step takes 40 ms on one core and 20 ms on more, a save 100 ms, a restore
150 ms."""


def patiently(measure, good, times_s=(0.8, 5.0, 40.0)):
    """What `measure(seconds)` finds, with more time where a busy host has not got far enough for it
    to be `good`."""
    for for_s in times_s:
        found = measure(for_s)
        if good(found):
            break
    return found


@pytest.fixture
def python(tmp_path):
    """The command line that runs this code."""

    def write(code: str, name: str = "command.py") -> tuple[str, ...]:
        path: Path = tmp_path / name
        path.write_text(code)
        return sys.executable, str(path)

    return write


@pytest.fixture
def setting():
    """How a command is run, briefly, on two cores where there are two."""

    def make(argv, for_s=1.2, grace_s=20.0, **how) -> Setting:
        cores = tuple(sorted(os.sched_getaffinity(0))[:2])
        return Setting(
            **{"argv": tuple(argv), "for_s": for_s, "grace_s": grace_s, "cores": cores, "gpus": 1}
            | how
        )

    return make
