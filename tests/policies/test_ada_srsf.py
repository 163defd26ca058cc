"""Ada-SRSF: the gate against two transfers by brute force, placement by load, and contention in
small clusters."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node, Profile
from optsched.plugins.registry import policy
from optsched_solvers.policies.ada_srsf import worth_contending
from tests.policies.congested import congested, mean_jct_s, run
from tests.policies.verified import plan_of, where

SIZES = st.floats(0.01, 100.0)


def ends_s(new: float, old: float, eta: float, start_s: float) -> float:
    """Sum of completion times of a transfer with `old` left and one of `new` that starts at
    `start_s`: alone a unit takes 1 s, beside the other 2 + eta s. Played through from event to
    event."""
    left = {"old": old, "new": new}
    now_s = total = 0.0
    while left:
        active = [name for name in left if name == "old" or now_s >= start_s]
        pace = 1.0 if len(active) == 1 else 1.0 / (2.0 + eta)
        if not active:
            now_s = start_s
            continue
        step_s = min(left[name] / pace for name in active)
        if "new" in left and now_s < start_s:
            step_s = min(step_s, start_s - now_s)
        for name in active:
            left[name] -= step_s * pace
        now_s += step_s
        if "new" in left and abs(now_s - start_s) < 1e-9:
            now_s = max(now_s, start_s)
        for name in [name for name in left if left[name] <= 1e-9]:
            total += now_s
            del left[name]
    return total


@given(SIZES, SIZES, st.sampled_from([0.0, 0.3, 1.0]))
def test_the_gate_opens_exactly_where_contending_ends_sooner_in_sum(
    new: float, old: float, eta: float
) -> None:
    now, later = ends_s(new, old, eta, 0.0), ends_s(new, old, eta, old)
    assume(abs(now - later) > 1e-6)
    assert worth_contending(new, old, eta) == (now < later)


@given(SIZES, SIZES, st.floats(0.0, 1.0))
def test_no_start_in_between_is_better_than_now_or_after(
    new: float, old: float, part: float
) -> None:
    between = ends_s(new, old, 0.0, part * old)
    assert between >= min(ends_s(new, old, 0.0, 0.0), ends_s(new, old, 0.0, old)) - 1e-6


RACKS = tuple(Node(name=f"n{i}", gpus=2, rack=f"r{i}") for i in range(3))


def both(old_s: float, new_s: float, gate: str, **fields: Any) -> list[float]:
    """Completions of two gangs of three on three racks of two GPUs: they meet on the uplink of one
    rack, which holds one of them. The second comes at 10 s."""
    network = Profile(network_gbps=10.0, **fields)
    cluster = Cluster(
        nodes=RACKS, rack_uplink_gbps=dict.fromkeys(("r0", "r1", "r2"), 10.0), uplinks="shared"
    )
    jobs = (
        Job(id="old", gpus=3, duration_s=old_s, profile=network),
        Job(id="new", gpus=3, duration_s=new_s, submit_s=10.0, profile=network),
    )
    plan = run(Instance(cluster=cluster, jobs=jobs), policy("ada-srsf", options={"gate": gate}))
    return [round(entry.completion_s, 6) for entry in plan.jobs]


@pytest.mark.parametrize(
    ("new_s", "gate", "ends"),
    [
        (
            40.0,
            "adadual",
            [150.0, 90.0],
        ),  # 40 < 100 / 2: together until 90 s, `old` then has 60 s left
        (60.0, "adadual", [110.0, 170.0]),  # 60 > 100 / 2: it waits
        (60.0, "accept", [170.0, 130.0]),  # together until 130 s, `old` then has 40 s left
        (40.0, "avoid", [110.0, 150.0]),
    ],
)
def test_two_gangs_on_one_uplink(new_s: float, gate: str, ends: list[float]) -> None:
    assert both(110.0, new_s, gate) == ends


def test_only_traffic_counts() -> None:
    """A tenth of a step on the network: 4 s of traffic either way, but both are slowed by a tenth
    only."""
    ends = both(110.0, 40.0, "adadual", network_duty=0.1)
    assert ends == [round(110 + 0.1 * 40, 6), round(10 + 40 * 1.1, 6)]


def test_small_gangs_go_where_least_work_is_left() -> None:
    """Best fit would fill the node that is in use."""
    found = plan_of(
        "ada-srsf",
        Job(id="a", gpus=1, duration_s=100.0),
        Job(id="b", gpus=1, duration_s=200.0),
        Job(id="c", gpus=1, duration_s=300.0),
        nodes=RACKS[:2],
    )
    assert where(found["a"]) == [{"n0": 1}] and where(found["b"]) == [{"n1": 1}], (
        "n1 has nothing to do yet"
    )
    assert where(found["c"]) == [{"n0": 1}], "100 s are left there, 200 s on n1"


def test_best_fit_fills_the_node_that_is_in_use() -> None:
    found = plan_of(
        "ada-srsf",
        Job(id="a", gpus=1, duration_s=100.0),
        Job(id="b", gpus=1, duration_s=200.0),
        nodes=RACKS[:2],
        options={"placement": "best-fit"},
    )
    assert where(found["a"]) == where(found["b"]) == [{"n0": 1}]


def test_a_gang_stays_on_one_node_or_rack_if_it_can() -> None:
    nodes = (
        *(Node(name=f"a{i}", gpus=2, rack="r0") for i in range(2)),
        Node(name="b", gpus=4, rack="r1"),
    )
    found = plan_of(
        "ada-srsf",
        Job(id="long", gpus=1, duration_s=900.0),
        Job(id="gang", gpus=4, duration_s=1000.0),
        Job(id="next", gpus=3, duration_s=2000.0),
        nodes=nodes,
    )
    assert where(found["long"]) == [{"a0": 1}]
    assert where(found["gang"]) == [{"b": 4}]
    assert where(found["next"]) == [{"a0": 1, "a1": 2}]


@pytest.mark.parametrize(
    ("placement", "nodes"), [("lwf", {"b2": 1, "c2": 1}), ("first-fit", {"c0": 1, "c1": 1})]
)
def test_a_gang_over_racks_takes_the_least_loaded_ones(
    placement: str, nodes: dict[str, int]
) -> None:
    """Two single jobs load rack a with 1,000 GPU-seconds; gangs of two load b with 920 and c with
    960. First fit has put them on what came first."""
    racks = tuple(Node(name=f"{rack}{i}", gpus=1, rack=rack) for rack in "abc" for i in range(3))
    sizes = {"one": (1, 100.0), "two": (1, 900.0), "x": (2, 460.0), "y": (2, 480.0)}
    found = plan_of(
        "ada-srsf",
        *(Job(id=name, gpus=gpus, duration_s=s) for name, (gpus, s) in sizes.items()),
        Job(id="last", gpus=2, duration_s=3000.0),
        nodes=racks,
        options={"placement": placement},
    )
    assert where(found["last"]) == [nodes]


def test_mean_completion_against_avoiding_and_accepting_contention() -> None:
    """Summed over five workloads: better than accepting contention, as published. Avoiding it is as
    good here, as gangs that meet on an uplink in racks of four nodes are few."""
    totals = dict.fromkeys(("adadual", "avoid", "accept"), 0.0)
    for seed in range(1, 6):
        instance = congested(seed)
        for gate in totals:
            totals[gate] += mean_jct_s(
                instance, run(instance, policy("ada-srsf", options={"gate": gate}))
            )
    assert totals["adadual"] < totals["accept"]
    assert totals["adadual"] == pytest.approx(totals["avoid"], rel=0.02)
