"""PowerFlow: exact against brute force and the greedy, the greedy's steps by hand, and limits that
hold."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Node, Profile
from optsched.model.job import Elastic
from optsched.model.profile import Clock
from optsched.plugins.registry import policy
from optsched.simulate.run import simulate
from optsched_solvers.policies.powerflow import Way, exact, greedy
from tests.policies.verified import plan_of, times, where
from tests.verified import checked

GPUS, WATTS = 0, 1


def ways(work: float, rates: dict[int, float], clocks: dict[int, tuple[float, int]]) -> list[Way]:
    """Counts with their rates times clocks (by rank) with their rate and draw of a GPU."""
    return [
        Way(
            work / (rate * speed),
            GPUS,
            gpus,
            rank,
            gpus * watts,
            ((GPUS, gpus), (WATTS, gpus * watts)),
        )
        for gpus, rate in rates.items()
        for rank, (speed, watts) in clocks.items()
    ]


def total(
    jobs: list[list[Way]], room: list[int], chosen: tuple[int, ...]
) -> tuple[int, float] | None:
    """Jobs that do not run, and the run times of the others; None beyond the room."""
    picked = [own[i] for own, i in zip(jobs, chosen, strict=True) if i < len(own)]
    for row, most in enumerate(room):
        if sum(dict(way.use).get(row, 0) for way in picked) > most:
            return None
    return len(jobs) - len(picked), sum(way.run_s for way in picked)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[Way]], list[int]]:
    jobs = []
    for _ in range(draw(st.integers(1, 3))):
        rates = {1: 1.0, 2: draw(st.sampled_from([1.2, 1.6, 2.0]))}
        slow = draw(st.sampled_from([0.5, 0.8]))
        jobs.append(
            ways(
                draw(st.integers(50, 500)),
                rates,
                {0: (slow, draw(st.integers(80, 150))), 1: (1.0, 250)},
            )
        )
    return jobs, [draw(st.integers(1, 5)), draw(st.integers(50, 1200))]


@given(problem=problems())
@settings(max_examples=50)
def test_exact_is_the_best_of_all_and_no_worse_than_the_greedy(
    problem: tuple[list[list[Way]], list[int]],
) -> None:
    jobs, room = problem
    every = itertools.product(*(range(len(own) + 1) for own in jobs))
    waiting, run_s = min(
        found for chosen in every if (found := total(jobs, room, chosen)) is not None
    )
    found, theirs = (
        total(jobs, room, exact(jobs, room).chosen),
        total(jobs, room, greedy(jobs, room)),
    )
    assert found is not None
    assert theirs is not None
    assert found[0] == waiting
    if waiting == 0:  # else it also matters who waits
        assert found[1] == pytest.approx(run_s, rel=1e-4)
    assert found[0] <= theirs[0]
    if waiting == theirs[0] == 0:
        assert found[1] <= theirs[1] * (1 + 1e-4)


def test_the_greedy_by_hand() -> None:
    # Energy of a: 1 GPU slow 100 x 200 = 20,000, 2 GPUs slow 200 x 125 = 25,000, 1 fast 250 x 100 =
    # 25,000: it starts slow on one, as does b, which is half as long. Steps of a: one GPU more
    # saves 75 s for 100 W (0.75), the clock 100 s for 150 W (0.67); of b half of both. So a's GPU
    # first. Then a's clock on two saves 62.5 s for 300 W (0.21), b's GPU 37.5 s for 100 W (0.375),
    # b's clock 0.33: b's GPU. Then there are no GPUs; a's clock (0.21) does not fit into the 100 W
    # that are left of 500, nor does b's, 31 s for 300 W.
    rates, clocks = {1: 1.0, 2: 1.6}, {0: (0.5, 100), 1: (1.0, 250)}
    jobs = [ways(100, rates, clocks), ways(50, rates, clocks)]
    assert [jobs[j][i].use for j, i in enumerate(greedy(jobs, [4, 500]))] == [
        ((0, 2), (1, 200)),
        ((0, 2), (1, 200)),
    ]
    # With 700 W a's clock fits: 200 + 300 + 200.
    assert [jobs[j][i].use for j, i in enumerate(greedy(jobs, [4, 700]))] == [
        ((0, 2), (1, 500)),
        ((0, 2), (1, 200)),
    ]


def test_the_greedy_can_be_beaten() -> None:
    # One job of two GPUs at a time fits; the greedy starts both on one and then has no room for the
    # better pair.
    rates, clocks = {1: 1.0, 2: 2.0}, {0: (0.5, 100), 1: (1.0, 150)}
    jobs = [ways(400, rates, clocks), ways(100, {1: 1.0}, clocks)]
    room = [3, 400]
    best, found = total(jobs, room, exact(jobs, room).chosen), total(jobs, room, greedy(jobs, room))
    assert best is not None
    assert found is not None
    assert best <= found


PROFILE = Profile(
    gpus={1: 1.0, 2: 1.6, 3: 2.0, 4: 2.4},
    rate={"a100": 1.0},
    power_w={"a100": 250.0},
    clocks={900: Clock(rate=0.5, power=0.4)},
)
FOUR = (Node(name="n0", gpus=4, gpu_type="a100"),)


def job(name: str, work_s: float) -> Job:
    return Job(id=name, duration_s=work_s, gpus=Elastic(min=1, max=4), profile=PROFILE)


def test_power_is_a_limit() -> None:
    found = plan_of("powerflow", job("a", 600.0), nodes=FOUR, options={"power": "500"})["a"]
    # Within 500 W: two fast GPUs (1.6), four slow ones (400 W) 1.2, one fast 1.0. Three are not a
    # power of two.
    assert where(found) == [{"n0": 2}]
    assert times(found) == [(0, 375)]
    assert (
        plan_of("powerflow", job("a", 600.0), nodes=FOUR, options={"power": "450"})[
            "a"
        ].completion_s
        == 500
    )


def test_without_a_limit_only_gpus_count() -> None:
    assert times(plan_of("powerflow", job("a", 600.0), nodes=FOUR)["a"]) == [(0, 250)]


@pytest.mark.parametrize("solve", ["exact", "greedy"])
def test_the_power_cap_of_the_cluster_holds(solve: str) -> None:
    instance = Instance(
        cluster=Cluster(nodes=FOUR, resources={"power_w": 350.0}),
        jobs=tuple(job(name, 300.0) for name in "abc"),
    )
    plan = simulate(instance, policy("powerflow", options={"solve": solve}))
    checked(instance, plan)
    # Three slow GPUs draw 300 W: all run at once.
    assert all(entry.segments[0].start_s == 0 for entry in plan.jobs)


def test_energy_is_a_limit() -> None:
    # 600 s of work: on one slow GPU 1200 s x 100 W = 33.3 Wh, on two 750 s x 200 W = 41.7 Wh, on
    # one fast 600 s x 250 W = 41.7 Wh. Two fast take 375 s x 500 W = 52.1 Wh.
    kwh = {"0.040": 1200.0, "0.045": 600.0, "0.053": 375.0}
    for limit, end_s in kwh.items():
        options = {"energy": limit, "interval": "2h"}
        assert times(plan_of("powerflow", job("a", 600.0), nodes=FOUR, options=options)["a"]) == [
            (0, end_s)
        ]
