"""Themis: winners and hidden payments against enumeration, fairness by hand, and nobody starves."""

import math
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node, Profile
from optsched.plugins.registry import policy
from optsched.simulate.run import Simulation, simulate
from optsched_solvers.policies.themis import Bid, Themis, allocate
from tests.policies.verified import plan_of, times

ONE = (Node(name="n0", gpus=1),)
FOUR = (Node(name="n0", gpus=4),)


def best(bids: list[Bid], gpus: int) -> float:
    """The largest sum of gains of bids that fit together."""
    return max(
        sum(bid.gain for bid in chosen)
        for count in range(len(bids) + 1)
        for chosen in combinations(bids, count)
        if sum(bid.gpus for bid in chosen) <= gpus
    )


@given(
    asked=st.lists(st.tuples(st.integers(0, 5), st.floats(0.01, 3.0)), min_size=1, max_size=7),
    gpus=st.integers(0, 9),
)
@settings(max_examples=150)
def test_winners_maximise_the_product_and_pay_what_they_take_from_others(
    asked: list[tuple[int, float]], gpus: int
) -> None:
    bids = [Bid(f"j{i}", size, gain) for i, (size, gain) in enumerate(asked)]
    wins = allocate(bids, gpus)
    won = {win.job for win in wins}
    chosen = [bid for bid in bids if bid.job in won]
    assert sum(bid.gpus for bid in chosen) <= gpus
    assert sum(bid.gain for bid in chosen) == pytest.approx(best(bids, gpus))
    for win in wins:
        own = next(bid for bid in bids if bid.job == win.job)
        others = sum(bid.gain for bid in chosen) - own.gain
        alone = best([bid for bid in bids if bid is not own], gpus)
        assert win.keeps == pytest.approx(math.exp(others - alone))
        assert 0 < win.keeps <= 1


def test_who_takes_nothing_from_others_keeps_all() -> None:
    assert [win.keeps for win in allocate([Bid("a", 1, 0.5), Bid("b", 2, 0.1)], 3)] == [1, 1]
    (win,) = allocate([Bid("a", 1, 0.5), Bid("b", 1, 0.2)], 1)
    assert (win.job, win.keeps) == ("a", pytest.approx(math.exp(-0.2)))


def test_jobs_take_turns_by_fairness() -> None:
    # On one GPU, with leases of 100 s. Both ideal times are 200 x 2 = 400 s. At 100 a has (100 +
    # 100) / 400 and b (100 + 200) / 400, so that b's turn comes; at 200 a has 300 / 400 and b 300 /
    # 400: a, which came first, goes on.
    found = plan_of(
        "themis",
        Job(id="a", duration_s=200.0),
        Job(id="b", duration_s=200.0),
        nodes=ONE,
        options={"lease": "100s"},
    )
    assert times(found["a"]) == [(0, 100), (200, 300)] and times(found["b"]) == [
        (100, 200),
        (300, 400),
    ]


def test_fairness_is_time_shared_over_time_alone() -> None:
    jobs = (Job(id="a", duration_s=50.0), Job(id="b", duration_s=50.0))
    rule = policy("themis")
    assert isinstance(rule, Themis)
    Simulation(Instance(cluster=Cluster(nodes=ONE), jobs=jobs), rule).run()
    # Two jobs for one GPU: alone each would take 100 s; they are done after 50 and 100 s.
    assert rule.facts()["worst_rho"] == pytest.approx(1.0)
    assert rule.facts()["mean_rho"] == pytest.approx(0.75)


def test_a_wide_job_is_not_starved_by_narrow_ones() -> None:
    # Narrow jobs keep all four GPUs busy until 12,000 s: under WSPT the wide one, longer than any,
    # waits until then. On its share beside four others it would take 1200 x 4 / (4 / 5) = 6000 s;
    # to be done by then it begins by 4950.
    narrow = [
        Job(id=f"s{i}", duration_s=390.0, submit_s=100.0 * i, profile=Profile(checkpoint_s=5.0))
        for i in range(120)
    ]
    wide = Job(id="wide", gpus=4, duration_s=1200.0, submit_s=150.0)
    instance = Instance(cluster=Cluster(nodes=FOUR), jobs=(wide, *narrow))

    def begins_s(name: str, **options: str) -> float:
        plan = simulate(instance, policy(name, options=options))
        return next(entry for entry in plan.jobs if entry.id == "wide").segments[0].start_s

    assert begins_s("wspt") > 11_000
    assert begins_s("themis", lease="5m") < 4950


def test_who_has_no_checkpoint_yet_keeps_its_gpus() -> None:
    a = Job(id="a", duration_s=900.0, profile=Profile(checkpoint_every_s=500.0))
    found = plan_of(
        "themis", a, Job(id="b", duration_s=900.0), nodes=ONE, options={"lease": "100s"}
    )
    assert times(found["a"])[0] == (0, 500)
