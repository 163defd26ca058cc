"""Rules whose schedule is known: by theorem on one GPU, by hand on small clusters."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched import (
    Cluster,
    Instance,
    Job,
    JobPlan,
    Locality,
    Mode,
    Node,
    Plan,
    Profile,
    Running,
    Slot,
)
from optsched.files import check_instance
from optsched.files.faults import find_faults
from optsched.objectives import parse
from optsched.plugins.registry import policy
from optsched.simulate.run import simulate
from optsched_solvers.policies.las import level, threshold_gpu_s
from tests.clusters import one_node
from tests.oracles.smith import weighted_completion
from tests.oracles.srpt import total_completion
from tests.simulate.random_instances import instances
from tests.verified import checked

WCT = parse("wct")
ONE_GPU = one_node("n0", gpus=1)
TIMES = st.integers(1, 30).map(float)
SAVES = Profile(checkpoint_s=5.0)
PACKED = Profile(locality=Locality(rack=0.0, cluster=0.0))


def plan_of(name: str, *jobs: Job, nodes: tuple[Node, ...], **held: Any) -> dict[str, JobPlan]:
    """The verified plan of a policy, by job."""
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=jobs, **held)
    check_instance(instance)
    plan = simulate(instance, policy(name))
    checked(instance, plan)
    return {entry.id: entry for entry in plan.jobs}


def times(entry: JobPlan) -> list[tuple[float, float]]:
    return [(segment.start_s, segment.end_s) for segment in entry.segments]


def completions(instance: Instance, name: str) -> list[float]:
    plan: Plan = simulate(instance, policy(name))
    checked(instance, plan)
    return [entry.completion_s for entry in plan.jobs]


# -------------------------------------------------------------------------------------- by theorem


@given(st.lists(st.tuples(TIMES, st.integers(0, 60).map(float)), min_size=1, max_size=12))
def test_srtf_on_one_gpu_is_the_preemptive_optimum(jobs: list[tuple[float, float]]) -> None:
    instance = Instance(
        cluster=ONE_GPU,
        jobs=tuple(Job(id=f"j{i}", duration_s=p, submit_s=r) for i, (p, r) in enumerate(jobs)),
    )
    expected = total_completion([p for p, _ in jobs], [r for _, r in jobs])
    assert sum(completions(instance, "srtf")) == pytest.approx(expected)
    assert sum(completions(instance, "srsf")) == pytest.approx(expected)


@given(st.lists(st.tuples(TIMES, st.integers(0, 9).map(float)), min_size=1, max_size=12))
def test_wspt_on_one_gpu_is_smiths_rule(jobs: list[tuple[float, float]]) -> None:
    instance = Instance(
        cluster=ONE_GPU,
        jobs=tuple(Job(id=f"j{i}", duration_s=p, weight=w) for i, (p, w) in enumerate(jobs)),
    )
    done = completions(instance, "wspt")
    expected = weighted_completion([p for p, _ in jobs], [w for _, w in jobs])
    assert sum(w * c for (_, w), c in zip(jobs, done, strict=True)) == pytest.approx(expected)


@given(st.lists(TIMES, min_size=1, max_size=12))
def test_sjf_on_one_gpu_is_shortest_processing_time(durations: list[float]) -> None:
    instance = Instance(
        cluster=ONE_GPU, jobs=tuple(Job(id=f"j{i}", duration_s=p) for i, p in enumerate(durations))
    )
    assert sum(completions(instance, "sjf")) == pytest.approx(
        weighted_completion(durations, [1.0] * len(durations))
    )


# ---------------------------------------------------------------------------------- fifo, backfill

FOUR = (Node(name="n0", gpus=4),)
LONG_A = Job(id="a", gpus=2, duration_s=10.0)
HEAD_B = Job(id="b", gpus=4, duration_s=5.0)


def test_fifo_head_of_the_queue_blocks_it() -> None:
    found = plan_of("fifo", LONG_A, HEAD_B, Job(id="c", gpus=1, duration_s=1.0), nodes=FOUR)
    assert [times(found[name]) for name in "abc"] == [[(0, 10)], [(10, 15)], [(15, 16)]]


def test_fifo_starts_higher_priority_first() -> None:
    found = plan_of("fifo", LONG_A, replace(HEAD_B, priority=1), nodes=FOUR)
    assert [times(found[name]) for name in "ab"] == [[(5, 15)], [(0, 5)]]


def test_backfill_fills_what_ends_before_the_reservation() -> None:
    found = plan_of(
        "backfill",
        LONG_A,
        HEAD_B,
        Job(id="c", gpus=2, duration_s=11.0),
        Job(id="d", gpus=2, duration_s=10.0),
        nodes=FOUR,
    )
    assert [times(found[name]) for name in "abcd"] == [[(0, 10)], [(10, 15)], [(15, 26)], [(0, 10)]]


def test_backfill_puts_a_long_job_where_the_head_does_not_need_it() -> None:
    nodes = (Node(name="n0", gpus=4), Node(name="n1", gpus=2))
    head = replace(HEAD_B, profile=PACKED)
    found = plan_of(
        "backfill", replace(LONG_A, gpus=3), head, Job(id="c", duration_s=99.0), nodes=nodes
    )
    assert times(found["b"]) == [(10, 15)]
    assert times(found["c"]) == [(0, 99)]
    assert found["c"].segments[0].placement == (
        Slot(node="n1", gpus=1),
    )  # best fit alone would take n0


@given(instance=instances(held=False))
@settings(max_examples=50)
def test_backfill_never_delays_the_first_job_that_waits(instance: Instance) -> None:
    # Run times do not depend on who else runs: no shared channels, no caches. Else the rule
    # promises nothing.
    nodes = tuple(replace(node, memory_gbps=None) for node in instance.cluster.nodes)
    instance = replace(
        instance,
        cluster=replace(instance.cluster, nodes=nodes, uplinks="reserved"),
        jobs=tuple(
            replace(
                job, submit_s=instance.now_s, after=(), profile=replace(job.profile, fetch_s=0.0)
            )
            for job in instance.jobs
        ),
    )
    assume(not find_faults(instance))
    plans = {name: simulate(instance, policy(name)) for name in ("fifo", "backfill")}
    queue = sorted(range(len(instance.jobs)), key=lambda i: (-instance.jobs[i].priority, i))
    start_s = {
        name: [plan.jobs[i].segments[0].start_s for i in queue] for name, plan in plans.items()
    }
    waits = [i for i, time_s in enumerate(start_s["fifo"]) if time_s > instance.now_s]
    assume(waits)
    assert start_s["backfill"][waits[0]] <= start_s["fifo"][waits[0]] + 1e-4
    assert start_s["backfill"][: waits[0]] == start_s["fifo"][: waits[0]]


# -------------------------------------------------------------------------------------- preemption

TWO = (Node(name="n0", gpus=2),)


def test_only_the_job_with_most_left_is_evicted() -> None:
    found = plan_of(
        "srtf",
        Job(id="a", duration_s=100.0),
        Job(id="b", duration_s=90.0),
        Job(id="c", duration_s=10.0, submit_s=20.0),
        nodes=TWO,
    )
    assert times(found["a"]) == [(0, 20), (30, 110)]
    assert times(found["b"]) == [(0, 90)]


def test_a_needless_victim_stays() -> None:
    # in order of time left n1's job goes first, but only n0 has room for the gang once its own job
    # is gone
    nodes = (Node(name="n0", gpus=4), Node(name="n1", gpus=2))
    found = plan_of(
        "srtf",
        Job(id="a", gpus=4, duration_s=100.0),
        Job(id="b", gpus=2, duration_s=200.0),
        Job(id="c", gpus=4, duration_s=10.0, submit_s=20.0, profile=PACKED),
        nodes=nodes,
    )
    assert times(found["b"]) == [(0, 200)]
    assert times(found["a"]) == [(0, 20), (30, 110)]


def test_a_place_being_saved_is_kept_for_the_job_it_was_made_for() -> None:
    found = plan_of(
        "srtf",
        Job(id="a", duration_s=100.0, profile=SAVES),
        Job(id="b", duration_s=90.0, profile=SAVES),
        Job(id="c", duration_s=10.0, submit_s=20.0),
        Job(id="d", duration_s=50.0, submit_s=22.0),
        nodes=TWO,
    )
    assert times(found["a"])[0] == (0, 25)
    assert times(found["c"]) == [(25, 35)]
    assert times(found["b"])[0] == (0, 27)
    assert times(found["d"]) == [(27, 77)]


def test_a_job_that_comes_back_to_its_gpus_at_once_has_still_stopped() -> None:
    # a is evicted for b at 10 and saves until 15, but b finds room elsewhere at 12
    nodes = (Node(name="n0", gpu_type="x", gpus=1), Node(name="n1", gpu_type="y", gpus=1))
    only_x = replace(SAVES, rate={"x": 1.0})
    found = plan_of(
        "srtf",
        Job(id="a", duration_s=100.0, profile=only_x),
        Job(id="c", duration_s=12.0, preemptible=False, profile=Profile(rate={"y": 1.0})),
        Job(id="b", duration_s=20.0, submit_s=10.0),
        nodes=nodes,
    )
    assert times(found["b"]) == [(12, 32)]
    saved, resumed = times(found["a"])
    assert saved == (0, 15)
    assert resumed == pytest.approx((15, 105), abs=1e-3) and resumed[0] > 15


def test_a_better_job_evicts_although_a_worse_one_of_its_demand_could_not() -> None:
    nodes = (Node(name="n0", gpus=1),)
    found = plan_of(
        "srtf",
        Job(id="a", duration_s=100.0),
        Job(id="b", duration_s=200.0, submit_s=1.0),
        Job(id="c", duration_s=10.0, submit_s=2.0),
        nodes=nodes,
    )
    assert times(found["c"]) == [(2, 12)]


def test_eviction_waits_for_the_minimum_run_and_the_set_up() -> None:
    jobs = (
        Job(id="a", duration_s=100.0, min_run_s=30.0),
        Job(id="b", duration_s=10.0, submit_s=5.0),
    )
    assert times(plan_of("srtf", *jobs, nodes=(Node(name="n0", gpus=1),))["b"]) == [(30, 40)]
    starting = replace(jobs[0], min_run_s=0.0, profile=Profile(startup_s=12.0))
    assert times(plan_of("srtf", starting, jobs[1], nodes=(Node(name="n0", gpus=1),))["b"]) == [
        (12, 22)
    ]


def test_priority_evicts_before_remaining_time() -> None:
    found = plan_of(
        "srtf",
        Job(id="a", duration_s=10.0),
        Job(id="b", duration_s=100.0, submit_s=5.0, priority=1),
        nodes=(Node(name="n0", gpus=1),),
    )
    assert times(found["b"]) == [(5, 105)]


def test_running_job_is_preempted_now_and_saves_first() -> None:
    found = plan_of(
        "srtf",
        Job(id="a", duration_s=100.0, submit_s=-50.0, profile=SAVES),
        Job(id="b", duration_s=10.0),
        nodes=(Node(name="n0", gpu_type="x", gpus=1),),
        running=(
            Running(
                job="a",
                mode=Mode(gpu_type="x", gpus=1),
                placement=(Slot(node="n0", gpus=1),),
                started_s=-50.0,
                remaining_s=50.0,
            ),
        ),
    )
    assert found["a"].decision == "preempt"
    assert times(found["a"]) == [(0, 5), (15, 65)]
    assert times(found["b"]) == [(5, 15)]


# --------------------------------------------------------------------------------------------- las


def test_las_levels_double_from_one_gpu_hour() -> None:
    assert [level(hours * 3600.0) for hours in (0, 0.99, 1, 1.99, 2, 3.99, 4, 8, 1000)] == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        4,
        10,
    ]
    assert all(
        level(threshold_gpu_s(i)) == i + 1 and level(threshold_gpu_s(i) - 1) == i for i in range(30)
    )


def test_las_lets_a_new_job_in_at_the_level_boundary() -> None:
    found = plan_of(
        "las",
        Job(id="a", duration_s=10_000.0),
        Job(id="b", duration_s=1_000.0, submit_s=100.0),
        nodes=(Node(name="n0", gpus=1),),
    )
    assert times(found["a"]) == [(0, 3600), (4600, 11_000)]
    assert times(found["b"]) == [(3600, 4600)]


def test_las_takes_longer_and_longer_turns() -> None:
    found = plan_of(
        "las",
        *(Job(id=name, duration_s=20 * 3600.0) for name in "ab"),
        nodes=(Node(name="n0", gpus=1),),
    )
    hours = [time_s / 3600 for stay in times(found["a"]) for time_s in stay]
    # each stops when it passes the other's level: a at 1 h of service, b at 2, a at 4, b at 8, a at
    # 16
    assert hours == pytest.approx([0, 1, 3, 6, 12, 24, 36, 40])


def test_las_counts_gpus() -> None:
    found = plan_of(
        "las",
        Job(id="a", gpus=4, duration_s=10_000.0),
        Job(id="b", gpus=4, duration_s=100.0, submit_s=100.0),
        nodes=FOUR,
    )
    assert times(found["b"]) == [(900, 1000)]
