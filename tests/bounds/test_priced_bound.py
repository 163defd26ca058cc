"""Bounds by prices on GPU time: any prices give a bound, the search finds good ones, certificates
hold."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import event, given, settings
from hypothesis import strategies as st

from optsched.bounds import lower_bounds, priced_bound
from optsched.bounds.deadlines import Deadlines
from optsched.bounds.market import Alternative, Buyer, Market, market
from optsched.bounds.master import Master
from optsched.bounds.priced import Prices
from optsched.cli import main
from optsched.errors import InputError, OptschedError
from optsched.files import dump_instance
from optsched.files.certificate import dump_certificate, load_certificate
from optsched.model.cluster import Cluster, Node, Tenant
from optsched.model.instance import Failure, Instance
from optsched.model.job import Elastic, Job
from optsched.model.plan import JobPlan, Plan
from optsched.model.profile import Locality, Profile, Sharing
from optsched.objectives import TERMS, parse, values
from optsched.plugins import registry
from optsched.simulate.run import simulate
from optsched.verify import verify
from optsched.verify_bound import recomputed
from tests.clusters import one_node
from tests.oracles import brute_force, preemptive, tiny
from tests.oracles.tiny import single_gpu
from tests.simulate.mixing_policy import Mixing
from tests.simulate.random_instances import instances

WCT, MAKESPAN, FTF = parse("wct"), parse("makespan"), parse("ftf")
RANDOM = settings(max_examples=25)
MANY = settings(RANDOM, max_examples=500)
STEPS = 12


def drawn_prices(made: Market, random: Random) -> tuple[list[float], list[list[float]]]:
    """A grid over the time in which jobs run, and prices around what jobs earn by a GPU-second
    there."""
    last = max(one.head_s + 2 * one.work_s for one in made.buyers)
    grid = [0.0, *sorted(random.uniform(0.01, last) for _ in range(random.randint(1, 6)))]
    earned = [one.weight / one.work_s for one in made.buyers]
    prices = [
        [random.choice((0.0, 1.0)) * random.uniform(0, 3) * random.choice(earned) for _ in grid[1:]]
        for _ in made.capacity
    ]
    return grid, prices


def amounts_held(
    instance: Instance, made: Market, entry: JobPlan
) -> Iterator[tuple[float, float, int, float]]:
    """From when to when, in seconds after now, a job holds how much of which row: half of the GPUs
    that it shares, but all of them of quotas."""
    types, name = instance.cluster.gpu_types, instance.job[entry.id].tenant
    names = set[str | None]()
    while name is not None:
        names |= {name, None} if name in made.tenants else set()
        name = instance.tenant[name].parent
    quotas = [k for k, name in enumerate(made.tenants) if name in names]
    for segment in entry.segments:
        start_s, end_s = segment.start_s - instance.now_s, segment.end_s - instance.now_s
        paired = 0.5 if segment.mode.share_with is not None else 1.0
        for slot in segment.placement:
            if slot.gpus:
                row = types.index(instance.cluster.node[slot.node].gpu_type)
                yield start_s, end_s, row, paired * slot.gpus
        for k in quotas:
            yield start_s, end_s, made.types + k, segment.mode.gpus


def check_plan(instance: Instance, plan: Plan, random: Random, replay: bool = False) -> None:
    """At any prices each job pays no more for its best purchases than for what it holds in the
    plan, and so no plan is below the bound, or in time where prices say that it cannot be."""
    if not instance.jobs:
        return
    made = market(instance, replay)
    grid, prices = drawn_prices(made, random)
    priced = Prices(made, grid, prices)
    slack = 1e-4 * (1 + max(map(max, prices), default=0.0) * sum(made.capacity))
    for buyer, entry in zip(made.buyers, plan.jobs, strict=True):
        held = sum(
            amount * price * max(0.0, min(end_s, grid[k + 1]) - max(start_s, grid[k]))
            for start_s, end_s, row, amount in amounts_held(instance, made, entry)
            for k, price in enumerate(prices[row])
        )
        done_s = entry.completion_s - instance.now_s
        assert priced.least(buyer) <= (buyer.weight * done_s + held) * (1 + 1e-9) + slack * (
            1 + buyer.weight
        ), entry
        assert priced.by(buyer, done_s + 1e-3) <= held * (1 + 1e-9) + slack, entry
    [value] = values(WCT, instance, plan)
    assert priced.bound() <= value + slack * len(plan.jobs) * 4
    for goal in (MAKESPAN, FTF):
        [value] = values(goal, instance, plan)
        [term] = goal.terms
        deadlines = Deadlines(instance, made, term)
        due = [at_s + 1e-3 for at_s in deadlines.at(value * (1 + 1e-6) + 1e-5)]
        if priced.worth() > 100 * slack:
            assert not priced.refutes(due), goal.name


@RANDOM
@given(
    instances(max_jobs=6),
    st.integers(0, 10**6),
    st.sampled_from(("fifo", "srsf", "optsched", "gavel")),
)
def test_any_prices_hold_for_policies(instance: Instance, seed: int, name: str) -> None:
    instance = instance.undisturbed
    try:
        plan = simulate(instance, registry.policy(name))
    except OptschedError:  # a policy may leave jobs waiting for ever, or not be installed
        return
    check_plan(instance, plan, Random(seed))


@RANDOM
@given(
    instances(max_jobs=6),
    st.integers(0, 10**6),
    st.sampled_from(("fifo", "srsf", "optsched", "las")),
)
def test_what_fails_is_work_of_every_replay(instance: Instance, seed: int, name: str) -> None:
    try:
        plan = simulate(instance, registry.policy(name))
    except OptschedError:
        return
    event("fails" if instance.failures else "does not fail")
    check_plan(instance, plan, Random(seed), replay=True)
    for goal in TERMS.keys() - {"carbon", "energy_cost"}:
        [bound] = lower_bounds(instance, parse(goal), replay=True)
        [value] = values(parse(goal), instance, plan)
        assert bound.value <= value + 1e-4 * len(plan.jobs) * (1 + abs(value)), goal


@pytest.mark.slow
@MANY
@given(instances(max_jobs=8), st.integers(0, 10**6))
def test_any_prices_hold_for_all_policies(instance: Instance, seed: int) -> None:
    instance = instance.undisturbed
    for name in registry.names("policies"):
        try:
            plan = simulate(instance, registry.policy(name))
        except OptschedError:
            continue
        check_plan(instance, plan, Random(seed))


@RANDOM
@given(instances(max_jobs=6), st.integers(0, 10**6), st.booleans())
def test_any_prices_hold_for_gangs_on_several_types(
    instance: Instance, seed: int, adds: bool
) -> None:
    jobs = tuple(
        replace(job, profile=replace(job.profile, mixing="sum" if adds else "bottleneck"))
        for job in instance.jobs
    )
    more = Node(name="more", gpu_type="b", gpus=4, rack="r0")
    cluster = replace(instance.cluster, nodes=(*instance.cluster.nodes, more))
    instance = replace(instance.undisturbed, jobs=jobs, cluster=cluster)
    try:
        plan = simulate(instance, Mixing(seed))
    except OptschedError:
        return
    mixed = [
        segment
        for entry in plan.jobs
        for segment in entry.segments
        if len({instance.cluster.node[slot.node].gpu_type for slot in segment.placement}) > 1
    ]
    event("mixed" if mixed else "not mixed")
    check_plan(instance, plan, Random(seed))


@RANDOM
@given(
    tiny.instances(most_jobs=3, most_nodes=2, uplinks=True), st.integers(0, 10**6), st.booleans()
)
def test_any_prices_hold_for_preemptive_and_shared_plans(
    instance: Instance, seed: int, share: bool
) -> None:
    random = Random(seed)
    for _ in range(8):
        plan = preemptive.random_plan(instance, WCT, random, share)
        if plan is not None and verify(instance, plan, WCT).ok:
            event(
                "shared"
                if any(s.mode.share_with for job in plan.jobs for s in job.segments)
                else "not shared"
            )
            check_plan(instance, plan, random)


def check_search(instance: Instance, name: str) -> None:
    objective = parse(name)
    found = brute_force.optimum(instance, objective)
    assert found is not None
    (best,), plan = found
    bound, certificate = priced_bound(instance, objective, STEPS)
    allowed = best + 1e-4 * len(instance.jobs) + 1e-9 * abs(best)
    assert bound.value <= allowed, plan
    assert certificate.value <= bound.value <= allowed
    assert bound.value >= lower_bounds(instance, objective)[0].value
    value, wrong = recomputed(instance, load_certificate(dump_certificate(certificate)))
    assert not wrong and value is not None
    assert value == pytest.approx(certificate.value, rel=1e-9)
    event(f"tight: {certificate.value >= best * (1 - 1e-3)}")


@settings(RANDOM, max_examples=20)
@given(tiny.instances(most_jobs=4), st.sampled_from(("wct", "makespan", "ftf")))
def test_the_search_stays_below_the_optimum(instance: Instance, name: str) -> None:
    check_search(instance, name)


@pytest.mark.slow
@MANY
@given(
    tiny.instances(most_jobs=5, most_running=3, uplinks=True),
    st.sampled_from(("wct", "makespan", "ftf")),
)
def test_the_search_stays_below_the_optimum_of_five_jobs(instance: Instance, name: str) -> None:
    check_search(instance, name)


# ---------------------------------------------------------------------------------- what a single
# job pays


def cheapest_by_lp(
    buyer: Buyer, grid: list[float], prices: list[list[float]], due_s: float | None
) -> float:
    """The same by linear programs: seconds in each way and interval; one program for each interval
    it may end in."""
    from ortools.linear_solver import pywraplp

    best = math.inf
    last = len(grid) - 1
    for end in range(last + 1) if due_s is None else [last]:
        solver = pywraplp.Solver.CreateSolver("GLOP")
        done, cost = [], []
        if due_s is None and end < last and grid[end + 1] <= buyer.head_s:
            continue
        for k in range(end + 1):
            from_s = max(grid[k], buyer.head_s)
            until_s = grid[k + 1] if k < last else 1e6
            if due_s is not None:
                until_s = min(until_s, due_s)
            if until_s <= from_s:
                continue
            seconds = [solver.NumVar(0.0, until_s - from_s, "") for _ in buyer.alternatives]
            solver.Add(sum(seconds) <= until_s - from_s)
            for x, way in zip(seconds, buyer.alternatives, strict=True):
                price = sum(prices[row][k] * held for row, held in way.uses) if k < last else 0.0
                cost.append(x * (price + (buyer.weight if due_s is None and k == end else 0.0)))
                done.append(x * way.speed)
        if not done:
            continue
        solver.Add(sum(done) == buyer.work_s)
        solver.Minimize(sum(cost))
        if solver.Solve() == pywraplp.Solver.OPTIMAL:
            start = buyer.weight * max(grid[end], buyer.head_s) if due_s is None else 0.0
            best = min(best, start + solver.Objective().Value())
    return best


amounts = st.sampled_from((0.0, 0.3, 1.0, 2.5, 7.0))


@settings(RANDOM, max_examples=60)
@given(st.data())
def test_a_job_pays_what_linear_programs_say(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    lengths = [data.draw(st.sampled_from((0.5, 1.0, 3.0))) for _ in range(count)]
    grid = [sum(lengths[:k]) for k in range(count + 1)]
    prices = [[data.draw(amounts) for _ in range(count)] for _ in range(2)]
    held = st.dictionaries(st.integers(0, 1), st.sampled_from((1.0, 2.0)), max_size=2)
    ways = [
        Alternative(tuple(data.draw(held).items()), speed)
        for speed in (1.0, *data.draw(st.lists(st.sampled_from((0.25, 0.5, 0.8, 1.0)), max_size=3)))
    ]
    buyer = Buyer(
        data.draw(st.sampled_from((0.5, 1.0, 3.0))),
        data.draw(st.sampled_from((0.0, 0.7, 2.0, 9.0))),
        data.draw(st.sampled_from((0.4, 1.0, 2.0, 6.0))),
        tuple(sorted(set(ways))),
        0.0,
    )
    priced = Prices(Market((buyer,), (1.0, 1.0), 2, (), 0.0), grid, prices)
    bought = [[0.0] * count for _ in prices]
    least = priced.least(buyer, bought)
    assert least == pytest.approx(cheapest_by_lp(buyer, grid, prices, None), rel=1e-6, abs=1e-6)
    dearer = [[price + 0.01 for price in own] for own in prices]
    more = 0.01 * sum(map(sum, bought))  # what it buys is a supergradient of what it pays
    assert (
        Prices(Market((buyer,), (1.0, 1.0), 2, (), 0.0), grid, dearer).least(buyer)
        <= least + more + 1e-9
    )
    due_s = buyer.head_s + data.draw(st.sampled_from((0.3, 1.0, 2.5, 20.0)))
    by_due = cheapest_by_lp(buyer, grid, prices, due_s)
    assert priced.by(buyer, due_s) == pytest.approx(by_due, rel=1e-6, abs=1e-6)


# ------------------------------------------------------------------------------------------- by
# hand


def test_two_jobs_on_one_gpu() -> None:
    """3 s, then 4 s: 3 + 7. At the price 1 until 3 the first job pays 3 + 3, the second waits and
    pays 7."""
    made = market(single_gpu([3.0, 4.0]))
    assert Prices(made, [0.0, 3.0, 7.0], [[1.0, 0.0]]).bound() == pytest.approx(10)
    # Dearer, the first job would rather wait: 6 + 7 - 3 x 2; free, both run at once.
    assert Prices(made, [0.0, 3.0, 7.0], [[2.0, 0.0]]).bound() == pytest.approx(6 + 7 - 6)
    assert Prices(made, [0.0, 3.0, 7.0], [[0.0, 0.0]]).bound() == pytest.approx(3 + 4)


def test_a_slow_gpu_is_worth_its_speed() -> None:
    """Eight jobs of 10 s on one fast GPU and two of half its speed: two GPUs' worth, 40 s."""
    nodes = (Node(name="fast", gpu_type="a", gpus=1), Node(name="slow", gpu_type="b", gpus=2))
    jobs = tuple(
        Job(id=f"j{k}", duration_s=10, profile=Profile(rate={"a": 1.0, "b": 0.5})) for k in range(8)
    )
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=jobs)
    made = market(instance)
    due = Deadlines(instance, made, TERMS["makespan"])
    assert Prices(made, [0.0, 39.99], [[1.0], [0.5]]).refutes(due.at(39.99))
    assert not Prices(made, [0.0, 40.01], [[1.0], [0.5]]).refutes(due.at(40.01))
    assert not Prices(made, [0.0, 39.99], [[1.0], [0.7]]).refutes(due.at(39.99)), (
        "bad prices prove nothing"
    )


def test_fairness_of_two_jobs_on_one_gpu() -> None:
    """Each would take 20 s on half of the GPU; the later of them ends at 20 s at the earliest."""
    instance = single_gpu([10.0, 10.0])
    assert lower_bounds(instance, FTF)[0].value == pytest.approx(0.5)
    bound, certificate = priced_bound(instance, FTF, 20)
    assert bound.value == certificate.value == pytest.approx(1.0, rel=1e-6)


def test_releases_and_types_together() -> None:
    """Four jobs that come at 10 s and need 10 s of the one fast GPU, at prices that fall by 1 after
    each of them: a job that ends at t pays the price of its 10 s before, 40 in all; any of them
    pays 50, and GPU time is worth 60."""
    nodes = (Node(name="fast", gpu_type="a", gpus=1), Node(name="slow", gpu_type="b", gpus=6))
    only = Profile(rate={"a": 1.0})
    jobs = (
        *(Job(id=f"j{k}", duration_s=10, submit_s=10, profile=only) for k in range(4)),
        Job(id="any", duration_s=60, profile=Profile(rate={"a": 1.0, "b": 1.0})),
    )
    made = market(Instance(cluster=Cluster(nodes=nodes), jobs=jobs))
    grid, prices = [0.0, 10.0, 20.0, 30.0, 40.0], [[0.0, 3.0, 2.0, 1.0], [0.0] * 4]
    assert Prices(made, grid, prices).bound() == pytest.approx(4 * 50 - 60 - 4 * 10 + 60)
    assert 4 * 50 - 60 - 4 * 10 == 10 + 20 + 30 + 40


def test_an_elastic_job_may_start_small() -> None:
    """10 s of start-up on one GPU and 64 s of work there are 74 GPU-seconds, not 8 x 10 + 64."""
    job = Job(id="e", duration_s=8, gpus=Elastic(min=1, max=8), profile=Profile(startup_s=10))
    made = market(Instance(cluster=one_node(gpus=8), jobs=(job,)))
    assert Prices(made, [0.0, 100.0], [[1.0]]).by(made.buyers[0], 100.0) <= 74


def speeds_on(nodes: tuple[Node, ...], job: Job) -> dict[str | None, float]:
    """The speed of the fastest alternative of a job on each GPU type, in work a second."""
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=(job,))
    [buyer] = market(instance).buyers
    found: dict[str | None, float] = {}
    for way in buyer.alternatives:
        [(row, _)] = way.uses
        own = instance.cluster.gpu_types[row]
        found[own] = max(found.get(own, 0.0), way.speed * job.work_s / buyer.work_s)
    return found


def test_a_gang_is_as_slow_as_the_types_that_have_cores_for_it() -> None:
    """Two GPUs of the fast type with a core each, or with three cores one of them and one of the
    slow type: half as fast in either case."""
    profile = Profile(rate={"a": 1.0, "b": 0.5}, cpus_per_gpu={1: 0.5, 3: 1.0})
    job = Job(id="j", gpus=Elastic(min=1, max=2), duration_s=1.0, profile=profile)
    nodes = (
        Node(name="slow", gpu_type="b", gpus=1, cpus=3),
        Node(name="fast", gpu_type="a", gpus=2, cpus=3),
    )
    assert speeds_on(nodes, job) == {"a": 0.5, "b": 0.5}
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=(job,))
    for name in ("wct", "makespan"):
        bound, certificate = priced_bound(instance, parse(name), STEPS)
        assert bound.value == pytest.approx(2.0, rel=1e-3)
        assert recomputed(instance, certificate)[0] == pytest.approx(certificate.value, rel=1e-9)


def test_a_gang_is_in_a_rack_only_where_its_type_is() -> None:
    profile = Profile(locality=Locality(node=1.0, rack=0.8, cluster=0.5))
    nodes = (
        Node(name="x", gpu_type="a", gpus=1, rack="r0"),
        Node(name="y", gpu_type="a", gpus=1, rack="r0"),
        Node(name="z", gpu_type="b", gpus=1),
    )
    speeds = speeds_on(nodes, Job(id="j", gpus=2, duration_s=1.0, profile=profile))
    assert speeds == pytest.approx({"a": 0.8, "b": 0.5})


def test_who_adds_up_over_gpu_types_still_sets_up() -> None:
    """7 s, and 7 s of work at the mean of both rates."""
    profile = Profile(rate={"a": 1.0, "b": 0.4}, mixing="sum", startup_s=7.0)
    nodes = (Node(name="x", gpu_type="a", gpus=1), Node(name="y", gpu_type="b", gpus=1))
    job = Job(id="j", gpus=2, duration_s=7.0, profile=profile)
    instance = Instance(cluster=Cluster(nodes=nodes), jobs=(job,))
    assert lower_bounds(instance, MAKESPAN)[0].value == pytest.approx(7 + 7)
    assert 7 + 7 < priced_bound(instance, WCT, STEPS)[1].value <= 7 + 7 / 0.7


def test_a_crowd_of_elastic_jobs_is_thrifty_and_slow() -> None:
    """Each works at 1 on one GPU, at 1.5 on both. Two of 30 s on two GPUs end at 30 s, or, one
    after the other on both, at 20 and 40 s, whatever each could do by itself."""
    profile = Profile(gpus={1: 1.0, 2: 1.5})
    jobs = tuple(
        Job(id=f"j{k}", duration_s=30, gpus=Elastic(min=1, max=2), profile=profile) for k in (1, 2)
    )
    instance = Instance(cluster=one_node(gpus=2), jobs=jobs)
    assert lower_bounds(instance, WCT)[0].value < 50
    assert 57 < priced_bound(instance, WCT, 40)[1].value <= 60


def test_sharing_costs_what_the_best_partner_costs() -> None:
    """Four jobs of 10 s that run at 0.6 beside another: alone one after the other they end at 10,
    20, 30 and 40 s, in pairs two each at 10 / 0.6 and 20 / 0.6 s."""
    profile = Profile(name="p", sharing=Sharing(partners={"p": 0.6}))
    jobs = tuple(Job(id=f"j{k}", duration_s=10, profile=profile) for k in range(4))
    instance = Instance(cluster=one_node(gpus=1), jobs=jobs)
    assert lower_bounds(instance, MAKESPAN)[0].value == pytest.approx(4 * 10 / 0.6 / 2)
    best = min(10 + 20 + 30 + 40, 2 * 10 / 0.6 + 2 * 20 / 0.6)
    assert 0.85 * best < priced_bound(instance, WCT, 40)[1].value <= best


def limited(count: int = 12) -> Instance:
    """The jobs of a crowd, all of one tenant that may hold one GPU and borrow one of another's;
    half of them fail once."""
    jobs = tuple(replace(job, gpus=1, tenant="t") for job in crowded(count, 5.0).jobs)
    failures = tuple(Failure(job=job.id, work_s=50.0, kept_s=5.0) for job in jobs[::2])
    tenants = (Tenant(name="t", gpu_quota=1, borrow_gpus=1), Tenant(name="u", gpu_quota=1))
    return replace(crowded(count, 5.0), jobs=jobs, tenants=tenants, failures=failures)


@pytest.mark.parametrize("name", ["wct", "makespan", "ftf"])
@pytest.mark.parametrize("is_above", [False, True])
def test_quotas_and_failures_count(name: str, is_above: bool) -> None:
    instance, goal = limited(), parse(name)
    if is_above:
        group = Tenant(name="group", gpu_quota=2)
        below = (Tenant(name="t", parent="group"), Tenant(name="u", gpu_quota=1))
        instance = replace(instance, tenants=(*below, group))
    free = replace(instance, tenants=(), jobs=tuple(replace(j, tenant=None) for j in instance.jobs))
    for replay in (False, True):
        own, other = (priced_bound(i, goal, 20, replay)[1] for i in (instance, free))
        assert own.value > 1.1 * other.value and own.quotas and own.replay == replay
        assert recomputed(instance, load_certificate(dump_certificate(own)))[1] == []
        without = replace(own, quotas=())
        assert recomputed(instance, without)[1]
        twice = replace(own.quotas[0], tenant="u" if own.quotas[0].tenant == "t" else "t")
        assert recomputed(instance, replace(own, quotas=(twice,)))[1]
        assert recomputed(instance, replace(own, quotas=(replace(twice, tenant="x"),)))[1]
    knowing = priced_bound(instance, goal, 20, True)[1]
    assert knowing.value > 1.05 * priced_bound(instance, goal, 20)[1].value
    assert recomputed(instance, replace(knowing, replay=False))[1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["wct", "makespan", "ftf"])
def test_a_quota_of_no_gpus_has_no_price(name: str) -> None:
    """Only jobs without GPUs can be below it."""
    crowd = crowded(6, 5.0)
    cpu = Job(id="c", gpus=0, duration_s=9.0, tenant="t")
    none = replace(crowd, jobs=(*crowd.jobs, cpu), tenants=(Tenant(name="t", gpu_quota=0),))
    free = replace(none, tenants=(), jobs=(*crowd.jobs, replace(cpu, tenant=None)))
    made, same = (priced_bound(instance, parse(name), 20)[1] for instance in (none, free))
    assert made.value == same.value > 0 and not made.quotas
    assert recomputed(none, load_certificate(dump_certificate(made)))[1] == []


def test_precedence_delays_who_waits() -> None:
    jobs = (Job(id="a", duration_s=30), Job(id="b", duration_s=5, after=("a",)))
    instance = Instance(cluster=one_node(gpus=2), jobs=jobs)
    assert Prices(market(instance), [0.0, 1.0], [[0.0]]).bound() == pytest.approx(30 + 35)
    assert Deadlines(instance, market(instance), TERMS["makespan"]).at(40.0) == [35.0, 40.0]


def test_nothing_to_do_and_nothing_to_hold() -> None:
    for goal in (WCT, MAKESPAN, FTF):
        bound, certificate = priced_bound(Instance(), goal, 3)
        assert bound.value == certificate.value == 0
        assert recomputed(Instance(), certificate) == (0.0, [])
    cpu = Instance(cluster=one_node(cpus=4), jobs=(Job(id="c", gpus=0, cpus=1, duration_s=9),))
    assert priced_bound(cpu, WCT, 3)[1].value == pytest.approx(9)
    weightless = single_gpu([3.0, 4.0], weights=[0.0, 0.0])
    assert priced_bound(weightless, WCT, 3)[1].value == pytest.approx(0, abs=1e-9)


def crowded(count: int = 30, every_s: float = 20.0) -> Instance:
    """Jobs of one and two GPUs that come faster than four GPUs of two types can serve them."""
    random = Random(5)
    both = Profile(rate={"a": 1.0, "b": 0.5}, startup_s=2)
    nodes = (Node(name="x", gpu_type="a", gpus=2), Node(name="y", gpu_type="b", gpus=2))
    jobs = tuple(
        Job(
            id=f"j{k}",
            gpus=random.choice((1, 1, 2)),
            duration_s=random.uniform(10, 200),
            weight=random.choice((1, 2)),
            submit_s=every_s * k,
            profile=both,
        )
        for k in range(count)
    )
    return Instance(cluster=Cluster(nodes=nodes), jobs=jobs)


def test_the_search_is_worth_it_and_repeats_itself() -> None:
    instance = crowded()
    known = lower_bounds(instance, WCT)[0].value
    bound, certificate = priced_bound(instance, WCT, 40)
    assert bound.source == "prices on GPU time" and bound.value == certificate.value
    assert bound.value > 1.05 * known
    assert dump_certificate(priced_bound(instance, WCT, 40)[1]) == dump_certificate(certificate)
    assert priced_bound(instance, WCT, 0)[0].value <= bound.value


def test_a_simplex_method_that_cycles_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = crowded()
    found = priced_bound(instance, WCT, 12)[1].value
    ends = Master._ends
    monkeypatch.setattr(Master, "_ends", lambda master, how: bool(how) and ends(master, how))
    assert priced_bound(instance, WCT, 12)[1].value == pytest.approx(found, rel=0.02)
    monkeypatch.setattr(Master, "_ends", ends)
    monkeypatch.setattr("optsched.bounds.master.MOST_ITERATIONS", 1)
    assert priced_bound(instance, WCT, 12)[1].value < 0.99 * found


@pytest.mark.parametrize("goal", ["tardiness", "wct,makespan", "2*wct", "wct+makespan"])
def test_other_objectives_are_refused(goal: str) -> None:
    with pytest.raises(InputError, match="prices bound ftf, makespan, wct"):
        priced_bound(crowded(3), parse(goal))


# -------------------------------------------------------------------------------------------
# certificates


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.output


@pytest.fixture(params=["wct", "makespan", "ftf"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, str]:
    source, target = tmp_path / "i.json", tmp_path / "c.json"
    source.write_text(dump_instance(crowded(12, 5.0)))
    status, out = run(
        "bound",
        str(source),
        "--prices",
        "--steps",
        "10",
        "--objective",
        request.param,
        "-o",
        str(target),
    )
    assert status == 0 and "prices on GPU time" in out
    return str(source), target, request.param


def test_a_certificate_holds_until_it_is_tampered_with(
    files: tuple[str, Path, str], tmp_path: Path
) -> None:
    source, path, name = files
    sound = json.loads(path.read_text())
    status, out = run("verify-bound", source, str(path))
    assert status == 0 and out.startswith(f"OK: no plan has a smaller {name}")
    status, out = run("verify-bound", source, str(path), "--json")
    assert json.loads(out)["value"] == pytest.approx(sound["value"], rel=1e-9)
    lower = {**sound, "value": sound["value"] * 0.9}

    def verified(changed: dict[str, object]) -> int:
        path.write_text(json.dumps(changed))
        return run("verify-bound", source, str(path))[0]

    assert verified(lower) == 0
    assert verified({**sound, "value": sound["value"] * 1.01}) == 1
    priced = [
        {**own, "per_gpu_s": [50 * price + 1e-3 for price in own["per_gpu_s"]]} if k == 0 else own
        for k, own in enumerate(sound["prices"])
    ]
    assert verified({**sound, "prices": priced}) == 1
    assert verified({**sound, "prices": sound["prices"][:1]}) == 1
    assert verified({**sound, "instance": {**sound["instance"], "hash": "0" * 16}}) == 1
    assert verified({**sound, "grid_s": sound["grid_s"][:-1]}) == 2
    assert verified({**sound, "grid_s": list(reversed(sound["grid_s"]))}) == 2
    negative = [{**own, "per_gpu_s": [-1.0 for _ in own["per_gpu_s"]]} for own in sound["prices"]]
    assert verified({**sound, "prices": negative}) == 2
    assert verified({**sound, "prices": [sound["prices"][0]] * 2}) == 2
    assert verified({**sound, "format": "optsched-bound/2"}) == 2
    assert verified({**sound, "objective": "energy"}) == 2
    path.write_text("{")
    assert run("verify-bound", source, str(path))[0] == 2
    assert run("verify-bound", source, str(tmp_path / "absent.json"))[0] == 2


def test_an_easier_instance_does_not_pass(files: tuple[str, Path, str]) -> None:
    """With the hash made to match, the sum itself tells."""
    from optsched.files import instance_hash

    source, path, _ = files
    jobs = tuple(
        replace(job, duration_s=(job.duration_s or 0) / 2) for job in crowded(12, 5.0).jobs
    )
    easier = replace(crowded(12, 5.0), jobs=jobs)
    Path(source).write_text(dump_instance(easier))
    changed = json.loads(path.read_text())
    changed["instance"]["hash"] = instance_hash(easier)
    path.write_text(json.dumps(changed))
    status, out = run("verify-bound", source, str(path))
    assert status == 1 and "prices" in out


def test_options_that_need_prices(tmp_path: Path) -> None:
    source = tmp_path / "i.json"
    source.write_text(dump_instance(crowded(3)))
    assert run("bound", str(source), "--steps", "3")[0] == 2
    assert run("bound", str(source), "--prices", "--steps", "3", "--time-limit", "1s")[0] == 2
    assert run("bound", str(source), "--prices", "--objective", "energy")[0] == 2
    assert run("bound", str(source), "--prices", "-o", str(source))[0] == 2
    assert run("bound", str(source), "--prices", "--time-limit", "100ms")[0] in (0, 2)


def test_the_schema_is_there() -> None:
    status, out = run("schema", "bound")
    assert status == 0 and set(json.loads(out)["required"]) >= {
        "format",
        "instance",
        "objective",
        "value",
        "grid_s",
    }
