"""`benchmarks/flagship.py`: windows of a trace, and means over them."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.flagship import LEAST_WINDOW, OWN, Setting, Workload, compared, in_window
from optsched.model.instance import Instance
from optsched.model.job import Job
from tests.clusters import one_node


def trace_of(count: int, most: int) -> Workload:
    jobs = tuple(Job(id=f"{i}", gpus=1, duration_s=60.0, submit_s=float(i)) for i in range(count))
    whole = Instance(name="trace", cluster=one_node(gpus=1), jobs=jobs)
    return Workload("test", lambda first, seed: replace(whole, jobs=jobs[:first]), most=most)


@pytest.mark.parametrize(
    ("count", "most", "size", "apart"),
    [(800, 130, 130, True), (600, 130, 120, True), (2 * LEAST_WINDOW, 130, LEAST_WINDOW, False)],
)
def test_windows_are_as_many_jobs_in_a_row_from_equally_distant_places(
    count: int, most: int, size: int, apart: bool
) -> None:
    workload = trace_of(count, most)
    windows = [
        [int(job.id) for job in in_window(workload, None, None, (i, 5)).jobs] for i in range(5)
    ]
    assert all(window == [*range(window[0], window[0] + size)] for window in windows)
    assert windows[0][0] == 0 and windows[-1][-1] == count - 1
    assert len({b[0] - a[0] for a, b in pairwise(windows)}) <= 2
    assert apart == all(a[-1] < b[0] for a, b in pairwise(windows))


def test_the_difference_to_the_best_comes_with_its_interval() -> None:
    def runs(*means_s: float) -> list[dict[str, float]]:
        same = dict.fromkeys(("p99_s", "makespan_s"), 3600.0)
        rest = ("jobs", "gpus", "slowdown", "preemptions", "rounds", "cpu_s", "gap_median")
        return [
            {"mean_s": mean_s, **same, **dict.fromkeys((*rest, "gap_p99"), 1)} for mean_s in means_s
        ]

    setting = Setting("lublin", "own", "history", None, True, 1, 2)
    wins = compared(
        {OWN: runs(2200, 110), "xion": runs(2000, 100), "las": runs(1000, 900)}, setting
    )
    assert (wins["best"], wins["change"], wins["half"]) == ("xion", 0.1, 0.0)
    assert wins["p99_change"] == wins["p99_half"] == 0.0
    # ratios of 0.5 and 2: logarithms a distance d = log 4 apart have the interval 12.706 d / 2
    level = compared({OWN: runs(1000, 1000), "las": runs(2000, 500)}, setting)
    assert level["change"] == 0.0
    assert level["half"] == pytest.approx(12.706 * math.log(4) / 2, abs=1e-4)
