"""CrossoverScheduler: the period of a pair from taking turns step by step, and the pairs of largest
total gain."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched import Job, Node, Profile, Sharing
from optsched_solvers.policies.crossover import Iteration, gain, period_s
from optsched_solvers.policies.parts.pair_sharing import heaviest_matching
from tests.clusters import equal_nodes
from tests.policies.verified import plan_of, times

SECONDS = st.integers(1, 20)


def last_period_s(jobs: tuple[Iteration, Iteration]) -> float:
    """Two jobs on one GPU strictly in turn: each computes when the other has computed and its own
    communication of the iteration before is over, and communicates meanwhile. Seconds from one
    iteration of the first to its next, once that no longer changes."""
    gpu_free_s, ready_s, starts = 0.0, [0.0, 0.0], []
    for turn in range(400):
        one = turn % 2
        start_s = max(gpu_free_s, ready_s[one])
        gpu_free_s = start_s + jobs[one].compute_s
        ready_s[one] = gpu_free_s + jobs[one].communicate_s
        if one == 0:
            starts.append(start_s)
    return starts[-1] - starts[-2]


@given(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS))
@settings(max_examples=300)
def test_the_period_is_that_of_taking_turns(seconds: tuple[int, int, int, int]) -> None:
    # A job's next computation waits for its own communication (compute + communicate), and for the
    # other's computation after its own (compute + compute): the longest of the three cycles sets
    # the pace.
    one, other = Iteration(*seconds[:2]), Iteration(*seconds[2:])
    assert period_s(one, other) == pytest.approx(last_period_s((one, other)))
    assert gain(one, other) == pytest.approx((sum(seconds)) / last_period_s((one, other)))
    assert 1 <= gain(one, other) <= 2


def test_communication_hides_under_the_others_computation() -> None:
    assert (
        gain(Iteration(6, 4), Iteration(4, 6)) == 2.0
    )  # each computes just while the other communicates
    assert gain(Iteration(10, 0), Iteration(10, 0)) == 1.0  # nothing to hide
    assert gain(Iteration(8, 2), Iteration(8, 2)) == pytest.approx(20 / 16)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=12
    )
)
@settings(max_examples=100)
def test_the_matching_is_the_best_of_all(edges: list[tuple[int, int, int]]) -> None:
    weights = {(f"w{i}", f"r{j}"): float(weight) for i, j, weight in edges}
    found = heaviest_matching(weights)
    assert len({one for one, _ in found}) == len({other for _, other in found}) == len(found)
    best = max(
        sum(weights.get((f"w{i}", f"r{j}"), 0.0) for i, j in enumerate(order))
        for order in permutations(range(4))
    )
    assert sum(weights[edge] for edge in found) == best


def job(
    name: str, duty: float | None, submit_s: float = 0.0, gib: float = 0.0, gpus: int = 1
) -> Job:
    sharing = None if duty is None else Sharing(duty=duty)
    return Job(
        id=name,
        gpus=gpus,
        duration_s=100.0,
        submit_s=submit_s,
        profile=Profile(name=name, sharing=sharing, gpu_memory_gib=gib),
    )


TWO = equal_nodes(2, gpus=1, gpu_memory_gib=40.0)


def test_the_pairs_together_gain_most() -> None:
    # gains 2 / max(1, sum of shares): c + a 2 / 1.3, d + a 2 / 1.0; c + b 2 / 1.5, d + b 2 / 1.2.
    # First come, first served would give c its best, a; all four gain 3.205 by c + a, d + b and
    # 3.333 by c + b, d + a.
    found = plan_of(
        "crossover", job("a", 0.5), job("b", 0.7), job("c", 0.8, 1.0), job("d", 0.5, 1.0), nodes=TWO
    )
    assert 2 / 1.3 + 2 / 1.2 < 2 / 1.5 + 2 / 1.0
    assert [found[name].segments[0].mode.share_with for name in "cd"] == ["b", "a"]
    assert times(found["d"]) == [(1, 100), (100, 101)]  # 0.5 + 0.5: at full speed


@pytest.mark.parametrize(
    "other", [job("c", None, 1.0), job("c", 0.3, 1.0, gib=31.0), job("c", 0.3, 1.0, gpus=2)]
)
def test_without_a_measurement_memory_or_as_many_gpus_nobody_joins(other: Job) -> None:
    one = (Node(name="n0", gpus=2, gpu_memory_gib=40.0),)
    found = plan_of("crossover", job("a", 0.5, gib=10.0), job("b", 0.5, gib=10.0), other, nodes=one)
    assert times(found["c"]) == [(100, 200)]


def test_jobs_that_always_compute_gain_nothing_together() -> None:
    found = plan_of("crossover", job("a", 1.0), job("b", 1.0, 1.0), nodes=TWO[:1])
    assert times(found["b"]) == [(100, 200)]
