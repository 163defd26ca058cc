"""Which claims are started: all that fit one after the other, found by few checks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Job, Mode, Node, Profile, Slot, Tenant
from optsched.control import launchable as module
from optsched.control.journal.events import Claim, RoundDecided, StartIntended, Submitted
from optsched.control.journal.state import State
from optsched.control.launchable import launchable
from optsched.control.submission import Submission
from optsched.executors.base import NodeStatus

NAMES = ("n0", "n1", "n2")
TENANTS = (Tenant(name="a", gpu_quota=3, borrow_gpus=1), Tenant(name="b", gpu_quota=3))
DEMANDS = st.tuples(
    st.sampled_from(NAMES),
    st.integers(1, 4),
    st.integers(0, 4),
    st.sampled_from([0.0, 20.0]),
    st.sampled_from([None, "a", "b"]),
    st.sampled_from([0.0, 0.4]),
)
Demand = tuple[str, int, int, float, str | None, float]


def state_of(running: list[Demand], claimed: list[Demand]) -> State:
    state = State()
    claims = []
    for i, (node, gpus, cpus, memory_gib, tenant, licences) in enumerate((*running, *claimed)):
        uses = {"licence": licences} if licences else {}
        profile = Profile(memory_gib_per_gpu=memory_gib, cpus_per_gpu={cpus: 1.0})
        job = Job(
            id=f"j{i}", gpus=gpus, duration_s=10.0, tenant=tenant, resources=uses, profile=profile
        )
        state.apply(0.0, Submitted(submission=Submission(job=job, argv=("x",), directory="/")))
        mode = Mode(gpu_type="a", gpus=gpus, cpus_per_gpu=cpus, resources=uses)
        placement = (Slot(node=node, gpus=gpus, cpus=cpus * gpus),)
        if i < len(running):
            state.apply(
                1.0,
                StartIntended(
                    job=job.id,
                    number=1,
                    mode=mode,
                    placement=placement,
                    work_s=10.0,
                    rate=1.0,
                    setup_s=0.0,
                ),
            )
        else:
            claims.append(Claim(job=job.id, mode=mode, placement=placement))
    state.apply(2.0, RoundDecided(round=1, claims=tuple(claims)))
    return state


def found(state: State, gpus: int = 4) -> list[str]:
    statuses = [
        NodeStatus(node=Node(name=name, gpu_type="a", gpus=gpus, cpus=16, memory_gib=64.0))
        for name in NAMES
    ]
    cluster = Cluster(resources={"licence": 1.0})
    return [one.claim.job for one in launchable(state, cluster, TENANTS, statuses, {}, 3.0)]


@given(running=st.lists(DEMANDS, max_size=4), claimed=st.lists(DEMANDS, max_size=9))
@settings(max_examples=150)
def test_they_are_those_that_fit_one_after_the_other(
    running: list[Demand], claimed: list[Demand]
) -> None:
    """Also where more is held than there is."""
    taken: list[Demand] = []
    expected = []
    for i, demand in enumerate(claimed, len(running)):
        if found(state_of([*running, *taken], [demand])):
            taken.append(demand)
            expected.append(f"j{i}")
    assert found(state_of(running, claimed)) == expected


def test_all_are_checked_at_once_and_a_fault_is_searched_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    check = module.verify_round

    def counted(*given: Any) -> Any:
        calls.append(1)
        return check(*given)

    monkeypatch.setattr(module, "verify_round", counted)
    each: Demand = ("n0", 1, 0, 0.0, None, 0.0)
    assert len(found(state_of([], [each] * 200), gpus=200)) == 200 and len(calls) == 2
    calls.clear()
    assert (
        len(
            found(
                state_of([], [*[each] * 100, ("n1", 4, 0, 0.0, "b", 0.0), *[each] * 100]), gpus=200
            )
        )
        == 200
    )
    assert len(calls) <= 2 + 2 * 8


def test_what_is_beyond_a_node_keeps_nobody_from_the_others() -> None:
    state = state_of(
        [("n0", 4, 0, 0.0, None, 0.0)], [("n0", 1, 0, 0.0, None, 0.0), ("n1", 1, 0, 0.0, None, 0.0)]
    )
    assert found(state, gpus=3) == ["j2"]


def test_nothing_more_is_started_over_an_uplink_of_which_too_much_is_held() -> None:
    """The claims need 2 nodes each but for the last; `j0` runs over both uplinks, and that of rack
    r0 has been lowered below what it takes."""
    pairs = [("n0", "n1"), ("n0", "n2"), ("n2",)]
    mode = {1: Mode(gpu_type="a", gpus=1), 2: Mode(gpu_type="a", gpus=2)}
    state, claims = State(), []
    for i, names in enumerate(pairs):
        job = Job(id=f"j{i}", gpus=len(names), duration_s=10.0, profile=Profile(network_gbps=10.0))
        state.apply(0.0, Submitted(submission=Submission(job=job, argv=("x",), directory="/")))
        placement = tuple(Slot(node=name, gpus=1) for name in names)
        held = {"job": job.id, "mode": mode[len(names)], "placement": placement}
        if i:
            claims.append(Claim(**held))
        else:
            began = {"number": 1, "work_s": 10.0, "rate": 1.0, "setup_s": 0.0}
            state.apply(1.0, StartIntended(**held, **began))
    state.apply(2.0, RoundDecided(round=1, claims=tuple(claims)))
    statuses = [
        NodeStatus(node=Node(name=name, gpu_type="a", gpus=4, rack=rack))
        for name, rack in zip(NAMES, ("r0", "r1", "r1"), strict=True)
    ]

    def started(gbps: float) -> list[str]:
        cluster = Cluster(rack_uplink_gbps={"r0": gbps, "r1": 100.0})
        return [own.claim.job for own in launchable(state, cluster, (), statuses, {}, 3.0)]

    assert started(20.0) == ["j1", "j2"]
    assert started(10.0) == started(5.0) == ["j2"]
