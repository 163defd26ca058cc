"""SJF-BSBF: its pair condition against both schedules, and whom it joins."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node, Plan, Profile, Sharing
from optsched.objectives import parse
from optsched.plugins.registry import policy
from optsched.simulate.run import simulate
from optsched_solvers.policies.sjf_bsbf import mean_finish_in_turn_s, mean_finish_shared_s
from tests.clusters import equal_nodes
from tests.policies.verified import plan_of, times
from tests.simulate.test_beside import Scripted, begin, beside
from tests.verified import checked

WCT = parse("wct")
ONE = (Node(name="n0", gpus=1),)
LENGTHS = st.floats(1.0, 1000.0)
SLOWDOWNS = st.floats(1.0, 4.0)


def finishes(lengths: tuple[float, float], slowdowns: tuple[float, float]) -> tuple[float, float]:
    """When two jobs that start together on one GPU are done: step by step, each at 1 / slowdown
    while both run."""
    left, done, now_s = list(lengths), [0.0, 0.0], 0.0
    rates = [1 / slowdown for slowdown in slowdowns]
    first = 0 if left[0] / rates[0] <= left[1] / rates[1] else 1
    now_s = left[first] / rates[first]
    done[first] = now_s
    other = 1 - first
    done[other] = now_s + left[other] - now_s * rates[other]
    return done[0], done[1]


@given(lengths=st.tuples(LENGTHS, LENGTHS), slowdowns=st.tuples(SLOWDOWNS, SLOWDOWNS))
@settings(max_examples=300)
def test_the_means_are_those_of_the_two_schedules(
    lengths: tuple[float, float], slowdowns: tuple[float, float]
) -> None:
    assert mean_finish_shared_s(*lengths, *slowdowns) == pytest.approx(
        sum(finishes(lengths, slowdowns)) / 2
    )
    new_s, running_s = lengths
    assert mean_finish_in_turn_s(new_s, running_s) == pytest.approx(
        (running_s + running_s + new_s) / 2
    )


@given(
    lengths=st.tuples(LENGTHS, LENGTHS),
    slowdowns=st.tuples(SLOWDOWNS, SLOWDOWNS),
    part=st.floats(0.01, 0.99),
)
@settings(max_examples=300)
def test_a_partner_that_is_not_good_enough_never_becomes_so(
    lengths: tuple[float, float], slowdowns: tuple[float, float], part: float
) -> None:
    new_s, running_s = lengths
    loss_s = mean_finish_shared_s(*lengths, *slowdowns) - mean_finish_in_turn_s(*lengths)
    later = new_s, running_s * part
    if loss_s >= 0:
        assert mean_finish_shared_s(*later, *slowdowns) - mean_finish_in_turn_s(
            *later
        ) >= -1e-9 * sum(lengths)


def pair(new_s: float, running_s: float, new_rate: float, running_rate: float) -> Instance:
    """`new` comes 5 s after `running` has begun on the only GPU."""
    new = Profile(name="new", sharing=Sharing(partners={"running": new_rate}))
    running = Profile(name="running", sharing=Sharing(partners={"new": running_rate}))
    return Instance(
        cluster=Cluster(nodes=ONE),
        jobs=(
            Job(id="running", duration_s=running_s, profile=running),
            Job(id="new", duration_s=new_s, submit_s=5.0, profile=new),
        ),
    )


def mean_completion_s(plan: Plan) -> float:
    return sum(entry.completion_s for entry in plan.jobs) / len(plan.jobs)


@given(
    new_s=st.floats(1.0, 100.0),
    running_s=st.floats(6.0, 100.0),
    rates=st.tuples(*[st.floats(0.2, 1.0)] * 2),
)
@settings(max_examples=100)
def test_it_shares_where_the_simulated_pair_is_done_earlier_on_average(
    new_s: float, running_s: float, rates: tuple[float, float]
) -> None:
    instance = pair(new_s, running_s, *rates)
    shared = simulate(
        instance,
        Scripted(at0=lambda w: begin(w, "running"), at5=lambda w: beside(w, "new", "running")),
    )
    in_turn = simulate(instance, policy("fifo"))
    gain_s = mean_completion_s(in_turn) - mean_completion_s(shared)
    assume(abs(gain_s) > 1e-6)
    chosen = simulate(instance, policy("sjf-bsbf"))
    checked(instance, chosen)
    assert mean_completion_s(chosen) == pytest.approx(
        mean_completion_s(shared if gain_s > 0 else in_turn)
    )


def job(name: str, duration_s: float, submit_s: float = 0.0, **change: object) -> Job:
    profile = {"name": name, "sharing": Sharing(duty=0.6), "gpu_memory_gib": 10.0} | change
    return Job(id=name, duration_s=duration_s, submit_s=submit_s, profile=Profile(**profile))


def test_free_gpus_come_first_then_the_partner_with_the_earlier_mean() -> None:
    two = equal_nodes(2, gpus=1, gpu_memory_gib=40.0)
    found = plan_of(
        "sjf-bsbf", job("long", 100.0), job("short", 60.0), job("new", 10.0, 1.0), nodes=two
    )
    # beside either, at 1 / 1.2, new ends 12 s later: the mean is 59/2 + (1 - 1/2.4) 12 = 36.5 s
    # beside short and 99/2 + 7 = 56.5 s beside long
    partners = {
        name: {part.mode.share_with for part in entry.segments} for name, entry in found.items()
    }
    assert partners == {"long": {None}, "short": {None, "new"}, "new": {"short"}}
    assert (
        times(found["new"]) == [(1, 13)] and times(found["short"])[-1][1] == 62
    )  # it lost 12 - 10 s


def test_first_fit_shares_where_waiting_would_be_better() -> None:
    slow = Sharing(duty=1.0)
    jobs = (job("a", 100.0, sharing=slow), job("b", 200.0, 1.0, sharing=slow))
    one = (Node(name="n0", gpus=1, gpu_memory_gib=40.0),)
    assert times(plan_of("sjf-bsbf", *jobs, nodes=one)["b"])[0][0] == 100
    found = plan_of("sjf-bsbf", *jobs, nodes=one, options={"share": "first-fit"})
    assert found["b"].segments[0].mode.share_with == "a"


def test_jobs_that_the_memory_does_not_hold_wait() -> None:
    one = (Node(name="n0", gpus=1, gpu_memory_gib=40.0),)
    found = plan_of(
        "sjf-bsbf", job("a", 100.0), job("b", 10.0, 1.0, gpu_memory_gib=31.0), nodes=one
    )
    assert times(found["b"]) == [(100, 110)]


def test_smaller_batches_where_the_memory_does_not_hold_whole_ones() -> None:
    one = (Node(name="n0", gpus=1, gpu_memory_gib=40.0),)
    rates = {8.0: 0.5, 4.0: 0.25}
    a = job("a", 100.0, sharing=Sharing(duty=0.5))
    b = job("b", 10.0, 1.0, sharing=Sharing(duty=0.5), gpu_memory_gib=31.0, gpu_memory_rates=rates)
    found = plan_of("sjf-bsbf", a, b, nodes=one)
    assert times(found["b"]) == [(1, 21)] and times(found["a"])[-1][1] == 100
    assert found["b"].segments[0].mode.gpu_memory_gib == 8.0  # the largest that fits beside a
    whole = plan_of("sjf-bsbf", a, b, nodes=one, options={"batches": "whole"})
    assert times(whole["b"]) == [(100, 110)]
    room = (Node(name="n0", gpus=1, gpu_memory_gib=41.0),)
    assert plan_of("sjf-bsbf", a, b, nodes=room)["b"].segments[0].mode.gpu_memory_gib is None


def test_smaller_batches_must_be_worth_it() -> None:
    # b would take 40 s beside a, which is done in 14: (15 + 41) / 2 is later than (15 + 25) / 2.
    one = (Node(name="n0", gpus=1, gpu_memory_gib=40.0),)
    slow = {8.0: 0.25}
    a = job("a", 15.0, sharing=Sharing(duty=0.5))
    b = job("b", 10.0, 1.0, sharing=Sharing(duty=0.5), gpu_memory_gib=31.0, gpu_memory_rates=slow)
    found = plan_of("sjf-bsbf", a, b, nodes=one)
    assert times(found["b"]) == [(15, 25)]
    joined = plan_of("sjf-bsbf", a, b, nodes=one, options={"share": "first-fit"})
    assert times(joined["b"])[0][0] == 1 and times(joined["b"])[-1][1] == 41


def test_a_pair_that_is_slower_than_in_turn_waits_and_a_third_job_may_still_join() -> None:
    slow = Sharing(duty=1.0)
    # both at half speed: A/2 + 3/4 x 2 B = A/2 + 1.5 B for the longer A, later than B + A/2
    found = plan_of(
        "sjf-bsbf", job("a", 20.0, sharing=slow), job("b", 30.0, 1.0, sharing=slow), nodes=ONE
    )
    assert times(found["b"]) == [(20, 50)]
    # much shorter: 1/2 x 19 + 3/4 x 2 x 2 = 12.5 s, earlier than 19 + 1 s; the skipped b does not
    # keep c from joining
    found = plan_of(
        "sjf-bsbf",
        job("a", 20.0, sharing=slow),
        job("b", 30.0, 1.0, sharing=slow),
        job("c", 2.0, 1.0, sharing=slow),
        nodes=ONE,
    )
    assert times(found["c"]) == [(1, 5)] and times(found["b"]) == [(22, 52)]


def test_a_gang_shares_with_the_best_partners() -> None:
    """Two GPUs short it joins the two of three jobs beside which the mean finish is earliest, and
    is as slow as on the slowest of its GPUs; with whole gangs it waits."""
    node = (Node(name="n0", gpus=4, gpu_memory_gib=40.0),)
    jobs = [*(job(name, s) for name, s in (("a", 300.0), ("b", 90.0), ("c", 60.0)))]
    gang = replace(job("new", 10.0, 1.0), gpus=3)
    found = plan_of("sjf-bsbf", *jobs, gang, nodes=node)
    assert found["new"].segments[0].mode.shared_gpus == {"c": 1, "b": 1}
    assert times(found["new"])[0] == (1, 13)  # at 1 / 1.2
    assert found["a"].segments[0].mode.shared_gpus == {} and times(found["a"]) == [(0, 300)]
    whole = plan_of("sjf-bsbf", *jobs, gang, nodes=node, options={"gangs": "whole"})
    assert times(whole["new"])[0][0] == 90
