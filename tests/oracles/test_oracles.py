"""The textbook algorithms against exhaustive search."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.model.cluster import Cluster, Node
from optsched.model.instance import Instance
from optsched.model.job import Job
from optsched.model.profile import Profile
from optsched.objectives import parse
from optsched.verify import verify
from tests.oracles import brute_force, edd, mcnaughton, moore_hodgson, smith, spt, srpt, unrelated
from tests.oracles.tiny import single_gpu

FEW = settings(max_examples=40)
few_lengths = st.lists(st.integers(1, 9).map(float), min_size=1, max_size=5)


def optimum(instance: Instance, goal: str) -> float:
    found = brute_force.optimum(instance, parse(goal))
    assert found is not None
    value, plan = found
    report = verify(instance, plan, parse(goal))
    assert report.values == pytest.approx(value), report.violations
    return value[0]


@FEW
@given(few_lengths, st.data())
def test_smith(processing: list[float], data: st.DataObject) -> None:
    weights = [float(data.draw(st.integers(0, 4))) for _ in processing]
    expected = optimum(single_gpu(processing, weights=weights), "wct")
    assert smith.weighted_completion(processing, weights) == expected


@FEW
@given(few_lengths, st.integers(1, 3))
def test_spt(processing: list[float], machines: int) -> None:
    assert spt.total_completion(processing, machines) == optimum(
        single_gpu(processing, gpus=machines), "wct"
    )


@FEW
@given(few_lengths, st.data())
def test_edd_and_moore_hodgson(processing: list[float], data: st.DataObject) -> None:
    due = [float(data.draw(st.integers(0, 25))) for _ in processing]
    instance = single_gpu(processing, due=due)
    assert edd.largest_lateness(processing, due) == optimum(instance, "lateness")
    assert moore_hodgson.late_jobs(processing, due) == optimum(instance, "deadline")


@FEW
@given(few_lengths, st.data())
def test_srpt_is_no_worse_than_without_preemption(
    processing: list[float], data: st.DataObject
) -> None:
    releases = [float(data.draw(st.integers(0, 12))) for _ in processing]
    least = optimum(single_gpu(processing, releases), "wct") + sum(releases)
    assert srpt.total_completion(processing, releases) <= least
    apart = [40.0 * k for k in range(len(processing))]  # nothing to preempt
    assert srpt.total_completion(processing, apart) == sum(processing) + sum(apart)
    assert srpt.total_completion(processing, [0.0] * len(processing)) == spt.total_completion(
        processing, 1
    )


@pytest.mark.parametrize(
    ("processing", "releases", "expected"),
    [([5.0, 1.0], [0.0, 1.0], 8.0), ([4.0, 1.0, 1.0], [0.0, 1.0, 3.0], 12.0)],
)
def test_srpt_by_hand(processing: list[float], releases: list[float], expected: float) -> None:
    assert srpt.total_completion(processing, releases) == expected


@FEW
@given(few_lengths, st.integers(1, 3))
def test_mcnaughton_is_no_worse_than_without_preemption(
    processing: list[float], machines: int
) -> None:
    least = optimum(single_gpu(processing, gpus=machines), "makespan")
    assert mcnaughton.makespan(processing, machines) <= least
    assert mcnaughton.makespan(processing, 1) == optimum(single_gpu(processing), "makespan")


@FEW
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4
    )
)
def test_unrelated(processing: list[tuple[int, int, int]]) -> None:
    nodes = tuple(Node(name=f"n{i}", gpu_type=f"t{i}", gpus=1) for i in range(3))
    profiles = [
        Profile(rate={f"t{i}": 1 / length for i, length in enumerate(row)}) for row in processing
    ]
    jobs = tuple(
        Job(id=f"j{j}", duration_s=1.0, profile=profile) for j, profile in enumerate(profiles)
    )
    expected = optimum(Instance(cluster=Cluster(nodes=nodes), jobs=jobs), "wct")
    assert unrelated.total_completion([list(row) for row in processing]) == pytest.approx(expected)
