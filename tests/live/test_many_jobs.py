"""Many short jobs: all complete, and nothing of them stays: no process, no open file, no record, no
memory."""

import gc
import os
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from .lab import Lab, lab

MOST_GROWTH_MIB = 60.0
"""What a controller may grow by from its first quarter of jobs to its last."""
FIRST = 30
"""So many more jobs come first: whole plans are sought for few, with libraries that are loaded
then."""


@pytest.mark.parametrize("jobs", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_all_complete_and_nothing_stays(
    tmp_path: Path, jobs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    me = psutil.Process()
    before = {*me.children()}  # servers of other tests
    with lab(tmp_path, gpus=8) as here:
        for i in range(FIRST + jobs):
            if i == FIRST:
                here.until(lambda: done(here) == FIRST, 1200.0)
            here.submit(
                f"job-{i}", "/bin/sleep", f"{(i % 5) * 0.05:g}", gpus=1 + i % 3, believed_s=0.2
            )
        here.controller.step()
        begun_s, cpu_s = time.monotonic(), time.process_time()
        here.until(lambda: done(here) >= FIRST + jobs // 4, 1200.0)
        gc.collect()
        open_files, memory_mib = me.num_fds(), me.memory_info().rss / 2**20
        here.until(lambda: done(here) == FIRST + jobs, 1200.0)
        took_s, cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
        here.controller.step()
        gc.collect()
        assert all(job.status == "completed" for job in here.controller.state.jobs.values())
        again = [run for job in here.controller.state.jobs.values() for run in job.attempts[:-1]]
        assert all(run.stop_why == "preempt" for run in again)
        assert me.num_fds() <= open_files
        assert me.memory_info().rss / 2**20 - memory_mib < MOST_GROWTH_MIB
        here.controller.executor.observe()  # takes leave of supervisors that have ended
        assert not [
            child
            for child in me.children()
            if child not in before and child.status() != psutil.STATUS_ZOMBIE
        ]
        assert not list((tmp_path / "state" / "attempts").rglob("*.json"))
        assert here.controller.executor.observe() == ()
        rounds_s = [entry.wall_s for entry in here.controller.journal.rounds()]
    with capsys.disabled():
        print(
            f"\n{jobs} jobs in {took_s:.1f} s; {len(rounds_s)} rounds: median "
            f"{np.median(rounds_s) * 1000:.0f} ms, "
            f"p99 {np.percentile(rounds_s, 99) * 1000:.0f} ms; "
            f"controller {cpu_s / jobs * 1000:.0f} ms of processor a job"
        )
    assert os.path.getsize(tmp_path / "state" / "journal") > 0


def done(here: Lab) -> int:
    return len(here.controller.state.jobs) - len(here.controller.state.open)
