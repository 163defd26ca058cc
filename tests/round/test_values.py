"""What each objective makes of two jobs that want the same GPU, or of one job that may choose its
GPU."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Elastic, Instance, Job, Mode, Node, Profile, Running, Slot
from optsched.model.cluster import Window
from optsched.objectives import TERMS, parse
from optsched.physics.catalogue import Catalogue
from optsched.round.build import build
from optsched.round.decide import decide
from optsched.round.patterns import node_classes
from tests.clusters import equal_nodes, one_node

from .random_rounds import rounds

ONE_GPU = one_node("n0", gpu_type="a", gpus=1)
NOW_S = 10_000.0
SECONDS = st.integers(10, 1000)
ORDER = st.booleans()


def job(name: str, duration_s: float, **fields: object) -> Job:
    return Job(
        **{"id": name, "submit_s": NOW_S - 100.0, "gpus": 1, "duration_s": duration_s} | fields
    )  # type: ignore


def first(objective: str, turned: bool, *jobs: Job) -> str:
    """The job that runs, whatever the order in which they are given."""
    instance = Instance(now_s=NOW_S, cluster=ONE_GPU, jobs=jobs[::-1] if turned else jobs)
    runs = [
        entry.id
        for entry in decide(instance, objective, budget_s=60.0, gap=0.0).jobs
        if entry.mode is not None
    ]
    assert len(runs) == 1
    return runs[0]


@pytest.mark.parametrize("refill", [True, False])
@pytest.mark.parametrize(
    "objective", [*TERMS, "tail:0.5", "deadline,wct", "energy,cost", "0.5*wct+2*tardiness"]
)
def test_values_are_finite_and_never_negative(objective: str, refill: bool) -> None:
    @settings(max_examples=8)
    @given(rounds())
    def check(instance: Instance) -> None:
        value = build(instance, parse(objective), 60.0, refill=refill).options.value
        assert np.all(np.isfinite(value)) and np.all(value >= 0)
        found = decide(instance, objective, round_s=60.0, refill=refill, budget_s=60.0)
        assert (
            math.isfinite(found.value)
            and math.isfinite(found.bound)
            and 0 <= found.value <= found.bound
        )
        assert found.fallback is None and found.objective == objective

    check()


@settings(max_examples=30)
@given(SECONDS, st.integers(1, 500), ORDER)
def test_wct_and_throughput_run_the_shorter_job(
    duration_s: int, longer_s: int, turned: bool
) -> None:
    jobs = job("short", duration_s), job("long", duration_s + longer_s)
    assert first("wct", turned, *jobs) == "short"
    assert first("throughput", turned, *jobs) == "short"


@settings(max_examples=30)
@given(SECONDS, SECONDS, st.integers(1, 9), st.integers(1, 9), ORDER)
def test_wct_is_smiths_rule(p: int, q: int, v: int, w: int, turned: bool) -> None:
    if v * q != w * p:
        expected = "one" if v * q > w * p else "two"
        assert first("wct", turned, job("one", p, weight=v), job("two", q, weight=w)) == expected


FOUR_GPUS = one_node("n0", gpu_type="a", gpus=4)
SCALING = Profile(gpus={1: 1.0, 2: 1.6, 3: 1.8, 4: 1.9}, startup_s=30.0)


def test_elastic_jobs_share_gpus_although_one_is_shorter() -> None:
    jobs = [
        job(name, duration_s, gpus=Elastic(min=1, max=4), profile=SCALING)
        for name, duration_s in (("short", 1000.0), ("long", 10000.0))
    ]
    instance = Instance(now_s=NOW_S, cluster=FOUR_GPUS, jobs=tuple(jobs))
    found = decide(instance, "wct", budget_s=60.0, gap=0.0)
    assert [entry.mode and entry.mode.gpus for entry in found.jobs] == [2, 2]


@settings(max_examples=40, deadline=None)
@given(
    lengths_s=st.lists(st.floats(1e3, 1e6), min_size=2, max_size=6, unique=True),
    power=st.floats(0.45, 0.6),
)
def test_elastic_jobs_get_about_what_is_best_for_their_mean(
    lengths_s: list[float], power: float
) -> None:
    """With speed-ups g^p the k-th longest of n jobs best holds (k/n)^q - ((k-1)/n)^q of all GPUs,
    q = 1 / (1 - p), however long they are (Berg, Vesilo and Harchol-Balter, 2020)."""
    total, n = 64, len(lengths_s)
    scaling = Profile(gpus={g: g**power for g in range(1, total + 1)})
    jobs = tuple(
        job(f"j{k}", length_s, gpus=Elastic(min=1, max=total), profile=scaling)
        for k, length_s in enumerate(sorted(lengths_s, reverse=True), 1)
    )
    cluster = Cluster(nodes=(Node(name="n", gpu_type="a", gpus=total),))
    found = decide(Instance(now_s=NOW_S, cluster=cluster, jobs=jobs), "wct", budget_s=60.0, gap=0.0)
    held = {entry.id: entry.mode.gpus / total for entry in found.jobs if entry.mode is not None}
    q = 1.0 / (1.0 - power)
    best = {f"j{k}": (k / n) ** q - ((k - 1) / n) ** q for k in range(1, n + 1)}
    assert all(abs(held.get(name, 0.0) - share) < 0.12 for name, share in best.items())


@pytest.mark.parametrize(("waiting", "expected"), [(0, "b"), (1, "a")])
def test_the_shorter_job_takes_the_faster_gpu_that_another_needs_more_only_while_someone_waits(
    waiting: int, expected: str
) -> None:
    nodes = tuple(Node(name=kind, gpu_type=kind, gpus=1) for kind in "ab")
    sizes = [("short", 1000.0, 0.5), ("long", 5000.0, 0.2), ("more", 5000.0, 0.99)]
    jobs = tuple(
        job(name, duration_s, profile=Profile(rate={"a": 1.0, "b": rate}))
        for name, duration_s, rate in sizes[: 2 + waiting]
    )
    cluster = Cluster(nodes=nodes, reference_gpu="a")
    found = decide(Instance(now_s=NOW_S, cluster=cluster, jobs=jobs), "wct", budget_s=60.0, gap=0.0)
    [entry] = [entry for entry in found.jobs if entry.id == "short"]
    assert entry.mode is not None and entry.mode.gpu_type == expected


@pytest.mark.parametrize("waiting", [0, 1])
def test_running_jobs_trade_places_while_nobody_waits(waiting: int) -> None:
    """Also if they were preempted before: one loses a little, the other gains much."""
    slow = {"little": ("a", 0.9), "much": ("b", 0.25)}
    jobs = [
        job(name, 5000.0, profile=Profile(rate={"a": 1.0, "b": rate}))
        for name, (_, rate) in slow.items()
    ]
    jobs += [job("waits", 1e6, weight=1e-6)] * waiting
    running = tuple(
        Running(
            job=name,
            mode=Mode(gpu_type=kind, gpus=1),
            placement=(Slot(node=kind, gpus=1),),
            started_s=NOW_S - 1000.0,
            remaining_s=5000.0,
            preemptions=1,
        )
        for name, (kind, _) in slow.items()
    )
    nodes = (Node(name="a", gpu_type="a", gpus=1), Node(name="b", gpu_type="b", gpus=1))
    cluster = Cluster(nodes=nodes, reference_gpu="a")
    instance = Instance(now_s=NOW_S, cluster=cluster, jobs=tuple(jobs), running=running)
    found = decide(instance, "wct", budget_s=60.0, gap=0.0)
    decided = {entry.id: entry.decision for entry in found.jobs if entry.id in slow}
    assert set(decided.values()) == {"continue" if waiting else "migrate"}


def test_there_may_be_any_number_of_gpu_types() -> None:
    rate = {f"type{k}": 1.0 for k in range(70)}
    nodes = tuple(Node(name=name, gpu_type=name, gpus=1) for name in rate)
    cluster = Cluster(nodes=nodes, reference_gpu="type0")
    waits = (job("waits", 1000.0, profile=Profile(rate=rate)),)
    found = decide(Instance(now_s=NOW_S, cluster=cluster, jobs=waits), "wct")
    assert [entry.decision for entry in found.jobs] == ["start"]


@pytest.mark.parametrize(("others", "expected"), [(0, 4), (12, 2)])
def test_an_elastic_job_grows_only_where_it_keeps_its_size_for_long(
    others: int, expected: int
) -> None:
    nodes = [Node(name=f"n{k}", gpu_type="a", gpus=4 if k == 0 else 1) for k in range(others + 1)]
    grows = job("grows", 5000.0, gpus=Elastic(min=2, max=4), profile=SCALING, max_nodes=1)
    ends = [job(f"ends-{k}", 300.0) for k in range(others)]
    running = [
        Running(
            job=one.id,
            mode=Mode(gpus=gpus, gpu_type="a"),
            placement=(Slot(node=node.name, gpus=gpus),),
            remaining_s=one.duration_s,
            started_s=NOW_S - 1000.0,
        )
        for one, node, gpus in zip([grows, *ends], nodes, [2] + [1] * others, strict=True)
    ]
    instance = Instance(
        now_s=NOW_S,
        cluster=Cluster(nodes=tuple(nodes)),
        jobs=(grows, *ends),
        running=tuple(running),
    )
    [entry] = [
        entry
        for entry in decide(instance, "wct", budget_s=60.0, gap=0.0).jobs
        if entry.id == "grows"
    ]
    assert entry.mode is not None and entry.mode.gpus == expected


@settings(max_examples=30)
@given(SECONDS, st.integers(1, 500), ORDER)
def test_makespan_runs_the_longer_job(duration_s: int, longer_s: int, turned: bool) -> None:
    assert (
        first("makespan", turned, job("short", duration_s), job("long", duration_s + longer_s))
        == "long"
    )


@pytest.mark.parametrize("objective", ["tardiness", "deadline", "lateness"])
def test_of_two_that_can_be_in_time_the_one_due_first_runs(objective: str) -> None:
    @settings(max_examples=20)
    @given(SECONDS, st.floats(1.0, 20.0), st.floats(0.1, 20.0), ORDER)
    def check(duration_s: int, tightness: float, more: float, turned: bool) -> None:
        due_s = NOW_S + duration_s * tightness
        jobs = (
            job("soon", duration_s, deadline_s=due_s),
            job("later", duration_s, deadline_s=due_s + duration_s * more),
        )
        assert first(objective, turned, *jobs) == "soon"
        assert first(objective, turned, jobs[0], job("whenever", duration_s)) == "soon"

    check()


@settings(max_examples=20)
@given(SECONDS, st.floats(0.1, 0.9), st.floats(1.0, 20.0), ORDER)
def test_a_job_that_misses_its_deadline_anyway_gives_way(
    duration_s: int, missed: float, tightness: float, turned: bool
) -> None:
    late = job("late", duration_s, deadline_s=NOW_S + missed * duration_s)
    in_time = job("in time", duration_s, deadline_s=NOW_S + tightness * duration_s)
    assert first("deadline", turned, late, in_time) == "in time"
    assert first("tardiness", turned, late, replace_deadline(in_time, 1.1)) == "late"


def replace_deadline(one: Job, slack: float) -> Job:
    assert one.duration_s is not None
    return job(one.id, one.duration_s, deadline_s=NOW_S + slack * one.duration_s)


@pytest.mark.parametrize("objective", ["tail", "tail:0.5", "ftf", "maxmin"])
def test_of_two_alike_the_one_that_has_waited_longest_runs(objective: str) -> None:
    @settings(max_examples=20)
    @given(SECONDS, st.integers(0, 2000), st.integers(10, 2000), ORDER)
    def check(duration_s: int, waited_s: int, longer_s: int, turned: bool) -> None:
        jobs = (
            job("new", duration_s, submit_s=NOW_S - waited_s),
            job("old", duration_s, submit_s=NOW_S - waited_s - longer_s),
        )
        assert first(objective, turned, *jobs) == "old"

    check()


@pytest.mark.parametrize("objective", ["ftf", "maxmin"])
def test_of_two_that_have_waited_as_long_the_worst_off_runs(objective: str) -> None:
    @settings(max_examples=20)
    @given(SECONDS, st.integers(2, 5), st.integers(1, 20), ORDER)
    def check(duration_s: int, times: int, waited: int, turned: bool) -> None:
        submit_s = NOW_S - waited * duration_s
        jobs = (
            job("short", duration_s, submit_s=submit_s),
            job("long", duration_s * times, submit_s=submit_s),
        )
        assert first(objective, turned, *jobs) == "short"

    check()


@settings(max_examples=30)
@given(st.integers(50, 500), st.integers(1, 500), st.floats(0.6, 1.0), ORDER)
def test_energy_takes_the_efficient_gpus_and_cost_the_cheap_ones(
    watts: int, more: int, rate: float, turned: bool
) -> None:
    nodes = (
        Node(name="n0", gpu_type="good", gpus=1, gpu_price_per_h=0.5),
        Node(name="n1", gpu_type="bad", gpus=1),
    )
    shape = Profile(
        rate={"good": rate, "bad": 1.0}, power_w={"good": watts * rate, "bad": watts + more}
    )
    instance = Instance(
        now_s=NOW_S,
        cluster=Cluster(nodes=nodes[::-1] if turned else nodes),
        jobs=(job("one", 100.0, profile=shape),),
    )
    for objective in ("energy", "cost"):
        (entry,) = decide(instance, objective, budget_s=60.0, gap=0.0).jobs
        assert [slot.node for slot in entry.placement] == ["n0"]


@settings(max_examples=20)
@given(SECONDS, st.integers(1, 500), ORDER)
def test_a_later_objective_decides_between_equals(
    duration_s: int, longer_s: int, turned: bool
) -> None:
    jobs = job("short", duration_s), job("long", duration_s + longer_s)
    assert first("deadline,wct", turned, *jobs) == "short"
    assert first("deadline,makespan", turned, *jobs) == "long"


def test_classes_have_the_names_of_their_windows() -> None:
    """Not their times, so that prices keep their names from one week to the next."""
    nodes = equal_nodes(6, gpu_type="a100", gpus=8)
    windows = (
        *(Window(nodes=("n1",), from_s=i * 7e5, to_s=i * 7e5 + 9, name="weekly") for i in (1, 2)),
        Window(nodes=("n2",), from_s=5e5, to_s=6e5, name="weekly"),
        Window(nodes=("n3", "n4"), from_s=1e5, to_s=2e5, name="course"),
    )
    classes, _ = node_classes(Catalogue.of(Cluster(nodes=nodes, windows=windows)))
    names = {tuple(nodes[i].name for i in own.nodes): own.name for own in classes}
    assert names == {
        ("n0", "n5"): "a100 x 8",
        ("n1",): "a100 x 8 with weekly (n1)",
        ("n2",): "a100 x 8 with weekly (n2)",
        ("n3", "n4"): "a100 x 8 with course",
    }
