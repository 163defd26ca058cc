"""A-SRPT: the virtual machine against SRPT's optimum, the order of dispatch and the bounded delay
by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched import Job, Locality, Mode, Node, Profile, Running, Slot
from optsched_solvers.policies.a_srpt import VirtualMachine, is_heavy
from tests.oracles.srpt import total_completion
from tests.policies.verified import plan_of, times

FOUR = (Node(name="n0", gpus=4),)


@given(
    st.lists(
        st.tuples(st.integers(1, 30).map(float), st.integers(0, 60).map(float)),
        min_size=1,
        max_size=12,
    )
)
def test_the_virtual_machine_is_the_preemptive_optimum(jobs: list[tuple[float, float]]) -> None:
    machine = VirtualMachine(0.0)
    arrivals = sorted((release_s, i, work_s) for i, (work_s, release_s) in enumerate(jobs))
    done_s: dict[str, float] = {}
    now_s = 0.0

    def go_on(until_s: float) -> None:
        while (next_s := machine.next_s()) <= until_s and next_s < math.inf:
            done_s.update(dict.fromkeys(machine.advance(next_s), next_s))
        if until_s < math.inf:
            machine.advance(until_s)

    for release_s, i, work_s in arrivals:
        go_on(release_s)
        now_s = max(now_s, release_s)
        machine.add(f"j{i}", work_s)
    go_on(math.inf)
    assert len(done_s) == len(jobs)
    assert sum(done_s.values()) == pytest.approx(
        total_completion([work_s for work_s, _ in jobs], [release_s for _, release_s in jobs])
    )


def test_jobs_are_dispatched_as_the_virtual_machine_completes_them() -> None:
    # Work there: a 40 x 4 / 4 = 40, b 8 x 2 / 4 = 4, c 12 x 1 / 4 = 3. b comes at 2 and is done at
    # 6, c comes at 5, when b has 1 left, and is done at 9; a has 38 left at 2 and is done at 2 + 4
    # + 3 + 38 = 47.
    found = plan_of(
        "a-srpt",
        Job(id="a", gpus=4, duration_s=40.0),
        Job(id="b", gpus=2, duration_s=8.0, submit_s=2.0),
        Job(id="c", gpus=1, duration_s=12.0, submit_s=5.0),
        nodes=FOUR,
    )
    assert [times(found[name]) for name in "abc"] == [[(47, 87)], [(6, 14)], [(9, 21)]]


def test_a_dispatched_job_is_not_preempted() -> None:
    found = plan_of(
        "a-srpt",
        Job(id="a", gpus=4, duration_s=40.0),
        Job(id="b", duration_s=4.0, submit_s=41.0),
        nodes=FOUR,
    )
    assert times(found["a"]) == [(40, 80)] and times(found["b"]) == [(80, 84)]


def test_early_jobs_use_what_is_idle() -> None:
    found = plan_of(
        "a-srpt",
        Job(id="a", gpus=4, duration_s=40.0),
        Job(id="b", duration_s=4.0),
        nodes=FOUR,
        options={"early": "yes"},
    )
    assert times(found["b"]) == [(0, 4)] and times(found["a"]) == [(4, 44)]


@pytest.mark.parametrize(("cluster_rate", "start_s"), [(0.5, 100.0), (0.9, 0.25)])
def test_a_gang_that_suffers_from_spreading_waits_for_a_node_for_so_long(
    cluster_rate: float, start_s: float
) -> None:
    profile = Profile(locality=Locality(node=1.0, cluster=cluster_rate))
    busy = tuple(
        Running(
            job=f"r{i}",
            mode=Mode(gpus=1),
            placement=(Slot(node=f"n{i}", gpus=1),),
            remaining_s=999.0,
        )
        for i in range(2)
    )
    jobs = [Job(id=f"r{i}", duration_s=999.0) for i in range(2)]
    found = plan_of(
        "a-srpt",
        *jobs,
        Job(id="w", gpus=2, duration_s=0.5, profile=profile),
        nodes=(Node(name="n0", gpus=2, rack="x"), Node(name="n1", gpus=2, rack="y")),
        running=busy,
        options={"tau": "100s"},
    )
    # Dispatched after 0.5 x 2 / 4 s; the one that loses half its rate waits for tau then.
    assert found["w"].segments[0].start_s == pytest.approx(
        start_s + (0.25 if cluster_rate == 0.5 else 0.0)
    )


def test_heavy_is_faster_on_one_node_by_more_than_theta() -> None:
    job = Job(
        id="j", gpus=2, duration_s=1.0, profile=Profile(locality=Locality(node=1.0, cluster=0.8))
    )
    assert (
        is_heavy(job, 1.2)
        and not is_heavy(job, 1.25)
        and not is_heavy(Job(id="k", duration_s=1.0), 1.0)
    )
