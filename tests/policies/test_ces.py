"""CES: the number of powered nodes against the published loop, and powering off and waking by
hand."""

import random
from itertools import pairwise
from statistics import fmean

import pytest

from optsched import Cluster, Instance, Job
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation, simulate
from optsched_solvers.policies.ces import Constants, NodeCount, forecast
from tests.clusters import equal_nodes

EARTH = Constants(history=6, fall_before=1, least=5, buffer=5)
URANUS = Constants(history=3, fall_before=1, least=1, buffer=7)


def published(
    used: list[int], expected: list[list[float]], total: int, own: Constants
) -> list[int]:
    """The loop of CES_Helios.py over a whole series."""
    active = [0] * len(used)
    stable = 0
    for i in range(len(used)):
        if i < 6:
            active[i] = min(total, used[i] + own.buffer)
            continue
        active[i] = active[i - 1]
        if active[i] < used[i]:
            active[i] = used[i] + own.buffer
            stable = i + own.keep
        active[i] = min(active[i], total)
        future = fmean(expected[i][:18])
        if (
            fmean(used[i - own.history : i]) - used[i] < own.fall_before
            or used[i] - future < own.fall_after
        ):
            continue
        if i < stable or future < fmean(expected[i][:36]):
            continue
        if active[i] - min(active[i], used[i] + own.buffer) >= own.least:
            active[i] = min(active[i], used[i] + own.buffer)
    return active


@pytest.mark.parametrize("own", [EARTH, URANUS, Constants()])
def test_the_number_of_nodes_is_that_of_the_published_loop(own: Constants) -> None:
    for seed in range(20):
        drawn = random.Random(seed)
        used = [60]
        while len(used) < 200:
            used.append(min(100, max(0, used[-1] + drawn.choice([-9, -4, -1, -1, 0, 1, 3, 8]))))
        expected = [
            [max(0.0, (used + used)[i + k] + drawn.uniform(-3, 1)) for k in range(36)]
            for i in range(len(used))
        ]
        rule = NodeCount(100, own)
        found = [rule.step(now, expected[i]) for i, now in enumerate(used)]
        assert found == published(used, expected, 100, own)
        assert min(found) < 100 and any(a != b for a, b in pairwise(found))


def test_the_forecast_is_the_trend_and_after_a_day_the_day_before() -> None:
    assert forecast([10, 8, 6], 3) == pytest.approx([6, 4, 2])
    assert forecast([10, 8, 6], 6) == pytest.approx([6, 4, 2, 0, 0, 0])
    day = [i % 7 for i in range(144)]
    assert forecast([*day, 3], 4) == [3, 4, 5, 6]  # yesterday 0, 1, 2, 3; now three more


NODES = equal_nodes(4, gpus=1)


def run(*jobs: Job, **options: str) -> tuple[list[float], dict[str, float]]:
    """When each job starts, and the facts."""
    rule = policy("ces", options={"buffer": "1", "boot": "2m", **options})
    simulation = Simulation(Instance(cluster=Cluster(nodes=NODES), jobs=jobs), rule)
    simulation.run()
    facts: dict[str, float] = rule.facts()  # type: ignore[attr-defined]
    return [entry.segments[0].start_s for entry in simulation.record().plan().jobs], facts


def test_nodes_are_woken_for_who_waits_and_the_buffer_with_them() -> None:
    # At 0 nothing has run: one node stays. a takes it; b and c need two, with the buffer all three
    # others boot.
    jobs = [Job(id=name, duration_s=1000.0) for name in "abc"]
    starts, facts = run(*jobs)
    assert starts == [0, 120, 120]
    assert facts["wakeups"] == 3 and facts["wakeup_delay_s"] == 240
    assert facts["powered_node_h"] * 3600 == pytest.approx(
        4 * 1120
    )  # booting counts; all four are needed or spare
    assert facts["saved_share"] == pytest.approx(0)


def test_idle_nodes_are_off_for_the_rest_of_the_first_hour() -> None:
    # Two nodes, the buffer among them, are on from 600 on; until then one, with all three others
    # woken at 0.
    starts, facts = run(Job(id="a", duration_s=3000.0), Job(id="b", duration_s=10.0))
    assert starts == [0, 120]
    # 0-600: one was on, two boot at 0 for b (it and one more). Most in use until 600: two, so three
    # stay until 1200, then two: the one in use and the buffer.
    assert facts["powered_node_h"] * 3600 == pytest.approx(3 * 1200 + 2 * 1800)
    # a is at work for 3000 s, b for 10 s
    assert facts["powered_use"] == pytest.approx(3010 / (3 * 1200 + 2 * 1800))
    assert facts["saved_share"] == pytest.approx(1 - (3 * 1200 + 2 * 1800) / (4 * 3000))


def test_backfill_order_fills_on_powered_nodes() -> None:
    jobs = [
        Job(id="a", duration_s=1000.0),
        Job(id="wide", gpus=4, duration_s=10.0, submit_s=1.0),
        Job(id="short", duration_s=10.0, submit_s=2.0),
    ]
    fifo, _ = run(*jobs)
    backfill, _ = run(*jobs, order="backfill")
    assert fifo[2] >= fifo[1] >= 1000 and backfill[2] < 200


def test_with_all_nodes_in_the_buffer_it_is_fifo() -> None:
    jobs = tuple(
        Job(id=f"j{i}", gpus=1 + i % 3, duration_s=50.0 + 7 * i, submit_s=20.0 * i)
        for i in range(12)
    )
    instance = Instance(cluster=Cluster(nodes=NODES), jobs=jobs)
    assert simulate(instance, policy("ces", options={"buffer": "4"})) == simulate(
        instance, policy("fifo")
    )


def test_nobody_is_starved_as_under_fifo() -> None:
    # The wide job is first in order from 1 s on: as under FIFO nobody passes it, so that it starts
    # when the others end.
    narrow = [Job(id=f"s{i}", duration_s=300.0, submit_s=30.0 * i) for i in range(60)]
    starts, _ = run(Job(id="wide", gpus=4, duration_s=10.0, submit_s=1.0, priority=0), *narrow)
    assert starts[0] <= 300 + 2 * 120 and starts[0] <= min(starts[2:])
