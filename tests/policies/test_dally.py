"""Dally: timers by hand, who moves and who does not, and makespans under congested networks."""

from typing import Any

import pytest

from optsched import Job, Locality, Mode, Node, Profile, Running, Slot
from optsched.errors import InputError
from optsched.plugins.registry import policy
from optsched_solvers.policies.dally import DelayTimers
from tests.policies.congested import ConsolidationOnly, congested, makespan_s, run
from tests.policies.verified import plan_of, times, where

TIMERS = {"machine": "30", "rack": "60", "review": "0"}


def pair(*racks: str) -> tuple[Node, ...]:
    return tuple(Node(name=f"n{i}", gpus=2, rack=rack) for i, rack in enumerate(racks))


def one_each(remaining_s: float = 500.0) -> dict[str, Any]:
    """A job on one GPU of each of two nodes, so that a gang of two fits neither."""
    return {
        "running": tuple(
            Running(
                job=f"r{i}",
                mode=Mode(gpus=1),
                placement=(Slot(node=f"n{i}", gpus=1),),
                remaining_s=remaining_s + 100 * i,
            )
            for i in range(2)
        )
    }


ALONE = tuple(Job(id=f"r{i}", gpus=1, duration_s=1000.0) for i in range(2))


@pytest.mark.parametrize(
    ("racks", "remaining_s", "start_s", "nodes"),
    [
        (
            ("r0", "r0"),
            500.0,
            30.0,
            {"n0": 1, "n1": 1},
        ),  # one rack, once it has waited for the machine timer
        (
            ("r0", "r1"),
            500.0,
            60.0,
            {"n0": 1, "n1": 1},
        ),  # over the network, once it has waited for the rack timer
        (("r0", "r1"), 20.0, 20.0, {"n0": 2}),  # a machine at once, when it comes free
    ],
)
def test_a_gang_declines_until_its_timer_has_run_out(
    racks: tuple[str, str], remaining_s: float, start_s: float, nodes: dict[str, int]
) -> None:
    found = plan_of(
        "dally-style",
        Job(id="gang", gpus=2, duration_s=10.0),
        *ALONE,
        nodes=pair(*racks),
        options=TIMERS,
        **one_each(remaining_s),
    )
    assert times(found["gang"]) == [(start_s, start_s + 10)] and where(found["gang"]) == [nodes]


def test_a_gang_too_large_for_a_machine_does_not_wait_for_one() -> None:
    found = plan_of(
        "dally-style",
        Job(id="gang", gpus=3, duration_s=10.0),
        nodes=pair("r0", "r0"),
        options=TIMERS,
    )
    assert times(found["gang"]) == [(0, 10)]
    found = plan_of(
        "dally-style",
        Job(id="gang", gpus=3, duration_s=10.0),
        nodes=pair("r0", "r1"),
        options=TIMERS,
    )
    assert times(found["gang"]) == [(0, 10)]


def test_a_job_behind_one_that_declines_is_offered_what_it_declined() -> None:
    jobs = (
        Job(id="gang", gpus=2, duration_s=10.0),
        Job(id="small", gpus=1, duration_s=5.0),
        *ALONE,
    )
    found = plan_of("dally-style", *jobs, nodes=pair("r0", "r0"), options=TIMERS, **one_each())
    assert times(found["small"]) == [(0, 5)] and times(found["gang"]) == [(30, 40)]


def test_timers_are_moving_averages_by_gang_size_and_level() -> None:
    timers = DelayTimers(100.0, 200.0, history=2)
    assert (timers.patience(4).rack_s, timers.patience(4).cluster_s) == (100.0, 200.0)
    for wait_s in (90.0, 10.0, 20.0):
        timers.accepted(4, "node", wait_s)
    timers.accepted(4, "rack", 6.0)
    timers.accepted(4, "cluster", 1e6)
    assert (timers.patience(4).rack_s, timers.patience(4).cluster_s) == (15.0, 15.0), (
        "the mean of 10 and 20; of 6"
    )
    assert timers.patience(8).rack_s == 100.0
    assert timers.facts() == {"timer_machine_4_s": 15.0, "timer_rack_4_s": 6.0}


SPLIT = Profile(
    locality=Locality(node=1.0, rack=0.8, cluster=0.5), checkpoint_s=10.0, restore_s=20.0
)


@pytest.mark.parametrize(
    ("remaining_s", "segments"),
    [
        # 200 s at 1/2 would take until 400 s; it saves until 10 s, restores until 30 s and is done
        # at 230 s
        (200.0, [(0, 10), (10, 230)]),
        (30.0, [(0, 60)]),  # 60 s are no more than 30 s of pause and 30 s
    ],
)
def test_a_hurt_job_moves_where_that_pays(
    remaining_s: float, segments: list[tuple[float, float]]
) -> None:
    nodes = (*pair("r0", "r1"), Node(name="n2", gpus=2, rack="r2"))
    held = Running(
        job="hurt",
        mode=Mode(gpus=2),
        placement=(Slot(node="n0", gpus=1), Slot(node="n1", gpus=1)),
        remaining_s=remaining_s,
        started_s=-100.0,
    )
    hurt = Job(id="hurt", gpus=2, duration_s=1000.0, submit_s=-100.0, profile=SPLIT)
    found = plan_of("dally-style", hurt, nodes=nodes, running=(held,), now_s=0.0)
    assert times(found["hurt"]) == segments


def test_a_less_sensitive_job_gives_way() -> None:
    """`hurt` goes at 1/2 over two racks, `calm` does not care and holds the only machine: it makes
    room at once and takes what `hurt` leaves, once it has waited for its rack timer."""
    nodes = (
        Node(name="n0", gpus=1, rack="r0"),
        Node(name="n1", gpus=1, rack="r1"),
        Node(name="n2", gpus=2, rack="r2"),
    )
    jobs = (
        Job(id="hurt", gpus=2, duration_s=2000.0, submit_s=-100.0, profile=SPLIT),
        Job(id="calm", gpus=2, duration_s=2000.0, submit_s=-100.0),
    )
    running = (
        Running(
            job="hurt",
            mode=Mode(gpus=2),
            placement=(Slot(node="n0", gpus=1), Slot(node="n1", gpus=1)),
            remaining_s=1000.0,
            started_s=-100.0,
        ),
        Running(
            job="calm",
            mode=Mode(gpus=2),
            placement=(Slot(node="n2", gpus=2),),
            remaining_s=1000.0,
            started_s=-100.0,
        ),
    )
    found = plan_of(
        "dally-style", *jobs, nodes=nodes, running=running, options=TIMERS | {"review": "600"}
    )
    assert times(found["hurt"]) == [(0, 10), (10, 1030)] and where(found["hurt"])[1] == {"n2": 2}
    assert where(found["calm"])[-1] == {"n0": 1, "n1": 1} and times(found["calm"])[-1] == (60, 1060)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"wait": "1"}, "has no option wait"),
        ({"machine": "-1"}, "'-1' is not a duration"),
        ({"history": "0"}, "at least 1"),
    ],
)
def test_options_are_checked(options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        policy("dally-style", options=options)


def test_makespan_under_congested_networks_against_consolidation_alone_and_fifo() -> None:
    """The direction of the published claim, summed over five workloads: shorter than both."""
    totals = dict.fromkeys(("dally-style", "fifo", "consolidation-only"), 0.0)
    for seed in range(1, 6):
        instance = congested(seed)
        for name in totals:
            rule = ConsolidationOnly() if name == "consolidation-only" else policy(name)
            totals[name] += makespan_s(run(instance, rule))
    assert totals["dally-style"] < totals["consolidation-only"] < totals["fifo"]
