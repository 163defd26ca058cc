"""Orders of starts against brute force: what is least is the optimum, and a bound of it where times
are rounded."""

import math

import pytest
from hypothesis import assume, given, settings

from optsched import Cluster, Instance, Job, Locality, Node, Profile
from optsched.objectives import parse
from optsched_solvers.scheduling.evaluate import Evaluator
from optsched_solvers.scheduling.orders import Orders
from optsched_solvers.scheduling.problem import Problem
from optsched_solvers.scheduling.schedule_generation import replay
from tests.clusters import one_node
from tests.oracles import brute_force, tiny


def check(instance: Instance, objective: str) -> None:
    goal = parse(objective)
    problem = Problem(instance, goal)
    orders = Orders.of(problem)
    assume(orders is not None)
    assert orders is not None
    best = brute_force.optimum(instance, goal)
    answer = orders.least(math.inf, lambda: False)
    assert answer is not None
    if best is None:
        return
    least, schedule = answer
    slack = 1e-6 * (1 + abs(best[0][0]))
    assert best[0][0] - slack <= least <= best[0][0] + slack
    assert schedule is not None
    realised = replay(problem, schedule)
    assert realised is None or Evaluator(problem).values(realised)[0] >= least - slack
    again = orders.least(least, lambda: False)
    assert again == (least, None)


@pytest.mark.parametrize("objective", ["wct", "tardiness", "wct+3*deadline", "tardiness2", "flow2"])
@settings(max_examples=60)
@given(instance=tiny.instances(most_jobs=4, most_nodes=2))
def test_least_is_the_optimum(objective: str, instance: Instance) -> None:
    check(instance, objective)


@pytest.mark.slow
@settings(max_examples=1000)
@given(instance=tiny.instances(most_jobs=6, most_running=3, most_nodes=3))
def test_least_is_the_optimum_of_six_jobs(instance: Instance) -> None:
    check(instance, "wct")


def test_a_gang_within_a_rack_lies_in_one() -> None:
    """Over two nodes of no rack at the rate within one, the longer gang would not have to wait."""
    nodes = (Node(name="n0", gpus=1), Node(name="n1", gpus=2, rack="r"), Node(name="n2", gpus=1))
    gang = Profile(locality=Locality(rack=0.8, cluster=0.5))
    jobs = tuple(Job(id=f"{s:g} s", gpus=2, duration_s=s, profile=gang) for s in (4.0, 2.0))
    orders = Orders.of(Problem(Instance(cluster=Cluster(nodes=nodes), jobs=jobs), parse("wct")))
    assert orders is not None
    answer = orders.least(math.inf, lambda: False)
    assert answer is not None and answer[0] == pytest.approx(2.0 + 6.0)


def test_stops_when_told() -> None:
    instance = tiny.single_gpu([3.0, 1.0, 2.0])
    orders = Orders.of(Problem(instance, parse("wct")))
    assert orders is not None
    assert orders.least(math.inf, lambda: True) is None


def test_leaves_makespan_alone() -> None:
    assert Orders.of(Problem(tiny.single_gpu([3.0, 1.0]), parse("makespan"))) is None


def test_a_rate_counts_from_the_true_release_where_times_are_rounded_down() -> None:
    """On a grid of hours the short job could end before it is submitted."""
    instance = Instance(
        cluster=one_node(gpu_type="a", gpus=2),
        jobs=(Job(id="long", duration_s=2e8), Job(id="short", duration_s=0.5, submit_s=1000.7)),
    )
    problem = Problem(instance, parse("throughput"))
    orders = Orders.of(problem)
    assert orders is not None and not problem.tick.exact
    answer = orders.least(math.inf, lambda: False)
    assert answer is not None and answer[0] == pytest.approx(-2.0)  # each as early as it can
