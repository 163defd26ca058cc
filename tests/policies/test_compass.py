"""Compass: upward ranks and model fetches by hand, and its latency on a small serving workload."""

import random
from statistics import fmean

from hypothesis import given, settings

from optsched import Cluster, Instance, Job, Node, Profile
from optsched.plugins.registry import policy
from optsched.simulate.run import simulate
from optsched.simulate.virtual import VirtualWorld
from optsched_solvers.policies.compass import Compass
from tests.clusters import equal_nodes, one_node
from tests.policies.verified import plan_of, times, where
from tests.simulate.random_instances import instances
from tests.verified import checked


def model(name: str, gib: float = 4.0, fetch_s: float = 5.0) -> Profile:
    return Profile(name=name, model_gib=gib, fetch_s=fetch_s)


def workers(count: int, cache: float | None) -> tuple[Node, ...]:
    return equal_nodes(count, gpus=1, model_cache_gib=cache)


def test_the_rank_is_the_longest_way_through_what_follows() -> None:
    # a (2) -> b (3) -> d (4) and a -> c (10) -> d; e (1) alone: d 4, b 3 + 4, c 10 + 4, a 2 + 14.
    after = {"b": ("a",), "c": ("a",), "d": ("b", "c")}
    jobs = tuple(
        Job(id=name, duration_s=run, after=after.get(name, ()))
        for name, run in (("a", 2.0), ("b", 3.0), ("c", 10.0), ("d", 4.0), ("e", 1.0))
    )
    world = VirtualWorld(Instance(cluster=Cluster(nodes=workers(1, None)), jobs=jobs))
    world.advance()
    rule = Compass()
    assert [rule.rank_s(world, name) for name in "abcde"] == [16.0, 7.0, 14.0, 4.0, 1.0]


def test_a_task_goes_where_its_model_is() -> None:
    jobs = [
        Job(id="m1", duration_s=1.0, profile=model("m")),
        Job(id="k1", duration_s=1.0, profile=model("k")),
        Job(id="k2", duration_s=1.0, submit_s=20.0, profile=model("k")),
    ]
    found = plan_of("compass", *jobs, nodes=workers(2, 4.0))
    assert where(found["k2"]) == where(found["k1"]) != where(found["m1"])
    assert times(found["k2"]) == [(20, 21)]


def test_queries_go_in_order_of_submission_and_their_tasks_by_rank() -> None:
    # Of the first query b (rank 5) goes before c (1), and both before the longer second query.
    jobs = [
        Job(id="a", duration_s=10.0),
        Job(id="c", duration_s=1.0, submit_s=1.0),
        Job(id="b", duration_s=2.0, submit_s=1.0),
        Job(id="d", duration_s=3.0, submit_s=1.0, after=("b",)),
        Job(id="late", duration_s=50.0, submit_s=2.0),
    ]
    found = plan_of("compass", *jobs, nodes=workers(1, 4.0))
    starts_s = {name: times(found[name])[0][0] for name in found}
    assert sorted(starts_s, key=lambda name: starts_s[name])[:3] == ["a", "b", "d"]
    assert starts_s["late"] == 16


def test_it_waits_for_its_worker_where_a_fetch_takes_longer() -> None:
    # At 20 s n0 has m and works until 23; on n1 the fetch of m would take until 25, and the task
    # until 26.
    jobs = [
        Job(id="m1", duration_s=1.0, profile=model("m")),
        Job(id="m2", duration_s=4.0, submit_s=19.0, profile=model("m")),
        Job(id="m3", duration_s=1.0, submit_s=20.0, profile=model("m")),
    ]
    found = plan_of("compass", *jobs, nodes=workers(2, 4.0))
    assert times(found["m3"]) == [(23, 24)] and where(found["m3"]) == [{"n0": 1}]
    # Had m2 been longer than the fetch, the other worker would have been first.
    jobs[1] = Job(id="m2", duration_s=40.0, submit_s=19.0, profile=model("m"))
    found = plan_of("compass", *jobs, nodes=workers(2, 4.0))
    assert times(found["m3"]) == [(20, 26)] and where(found["m3"]) == [{"n1": 1}]


def test_a_task_moves_when_its_worker_falls_behind() -> None:
    # m3 waits for n0, where its model is; n1 comes free first, as m2 outlasts what is left there.
    jobs = [
        Job(id="m1", duration_s=1.0, profile=model("m", fetch_s=2.0)),
        Job(id="m2", duration_s=10.0, submit_s=19.0, profile=model("m", fetch_s=2.0)),
        Job(id="k1", duration_s=3.0, submit_s=19.0, profile=model("k", fetch_s=1.0)),
        Job(id="m3", duration_s=1.0, submit_s=20.0, profile=model("m", fetch_s=2.0)),
    ]
    found = plan_of("compass", *jobs, nodes=workers(2, 4.0))
    assert times(found["m3"]) == [(23, 26)] and where(found["m3"]) == [{"n1": 1}]


def serving(seed: int) -> Instance:
    """Forty queries of three kinds, each a DAG, that share seven models, of which a cache of 12 GiB
    holds three."""
    rng = random.Random(seed)
    run_s = {
        "ocr": 0.8,
        "detect": 1.0,
        "caption": 1.5,
        "translate": 1.2,
        "speak": 0.9,
        "embed": 0.5,
        "answer": 2.0,
    }
    kinds = (
        {"detect": (), "caption": ("detect",), "translate": ("caption",), "speak": ("translate",)},
        {"ocr": (), "translate": ("ocr",), "embed": ("ocr",), "answer": ("translate", "embed")},
        {"detect": (), "embed": (), "answer": ("detect", "embed"), "speak": ("answer",)},
    )
    at_s, jobs = 0.0, []
    shapes = {name: model(name, 4.0, 3.0) for name in run_s}
    for query in range(40):
        at_s += rng.expovariate(1 / 1.8)
        for name, after in rng.choice(kinds).items():
            jobs.append(
                Job(
                    id=f"q{query}-{name}",
                    duration_s=run_s[name] * rng.uniform(0.8, 1.2),
                    submit_s=at_s,
                    after=tuple(f"q{query}-{one}" for one in after),
                    profile=shapes[name],
                )
            )
    return Instance(cluster=Cluster(nodes=workers(5, 12.0)), jobs=tuple(jobs))


def latency_s(instance: Instance, name: str) -> float:
    """Mean time from a query's submission to the end of its last task."""
    plan = simulate(instance, policy(name))
    checked(instance, plan)
    ends: dict[str, float] = {}
    submits = {job.id.split("-")[0]: job.submit_s for job in instance.jobs}
    for entry in plan.jobs:
        query = entry.id.split("-")[0]
        ends[query] = max(ends.get(query, 0.0), entry.completion_s)
    return fmean(ends[query] - submits[query] for query in ends)


def test_queries_are_answered_sooner_than_first_in_first_out() -> None:
    for seed in (1, 2, 3):
        assert latency_s(serving(seed), "compass") < latency_s(serving(seed), "fifo")


@given(instance=instances())
@settings(max_examples=15)
def test_ranks_never_rise_along_a_chain(instance: Instance) -> None:
    world = VirtualWorld(instance)
    world.advance()
    rule = Compass()
    known = [job for job in instance.jobs if job.submit_s <= world.now_s]
    for job in known:
        for before in job.after:
            if world.job(before).submit_s <= world.now_s:
                assert rule.rank_s(world, before) >= rule.rank_s(world, job.id)


def test_a_task_that_was_ranked_before_its_successor_was_submitted() -> None:
    # b is ranked as the successor of a before c is there; when b itself comes to wait, c is.
    jobs = (
        Job(id="a", duration_s=2.0),
        Job(id="b", submit_s=0.0, after=("a",), duration_s=2.0),
        Job(id="c", submit_s=1.0, after=("b",), duration_s=2.0),
    )
    instance = Instance(cluster=one_node(gpus=1), jobs=jobs)
    assert [entry.completion_s for entry in simulate(instance, policy("compass")).jobs] == [
        2.0,
        4.0,
        6.0,
    ]
