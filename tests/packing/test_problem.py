"""What is read from an instance, in which order jobs arrive, and what is refused."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.errors import InputError
from optsched.model.job import Elastic, Job, Mode
from optsched.model.profile import Profile, Sharing
from optsched.packing.arrivals import arrivals
from optsched.packing.problem import WHOLE, Request, problem, request_of
from tests.packing.cases import instance, job, node


def test_requests() -> None:
    assert request_of(job("a", 0, cpus=3, gib=2)) == Request(cpus=3, memory_kib=2 << 20, gpus=0)
    assert request_of(job("a", 1, 0.47, cpus=8, types="v100 t4")) == Request(
        cpus=8, memory_kib=0, gpus=1, part=470_000, gpu_types=("t4", "v100")
    )
    assert request_of(job("a", 4, cpus=6, gib=64)) == Request(cpus=24, memory_kib=64 << 20, gpus=4)
    assert request_of(job("a", 1, 1.0)).part == 0  # all of a GPU


def test_the_fewest_cores_with_the_best_rate() -> None:
    one = Job(id="a", gpus=2, duration_s=1, profile=Profile(cpus_per_gpu={2: 0.5, 4: 1.0, 8: 1.0}))
    assert request_of(one).cpus == 8


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (Job(id="x", modes=(Mode(duration_s=1, gpus=1),)), "job x: lists modes"),
        (Job(id="x", gpus=Elastic(min=1, max=2), duration_s=1), "job x: is elastic"),
        (Job(id="x", duration_s=1, resources={"licence": 1}), "job x: uses resources"),
        (
            Job(id="x", duration_s=1, profile=Profile(sharing=Sharing(duty=0.5), gpu_memory_gib=8)),
            "and for GPU memory",
        ),
    ],
)
def test_jobs_that_are_refused(bad: Job, says: str) -> None:
    with pytest.raises(InputError, match=says):
        problem(instance([node("n", 1)], [bad]))


def test_instances_that_are_refused() -> None:
    with pytest.raises(InputError, match="has no GPU"):
        problem(instance([node("n", 0, 4)], [job("a", 0, cpus=1)]))
    with pytest.raises(InputError, match="no job asks for a GPU"):
        problem(instance([node("n", 1, 4)], [job("a", 0, cpus=1)]))


def test_equal_requests_are_one_kind() -> None:
    found = problem(instance([node("n", 4)], [job("b"), job("a"), job("c", 1, 0.5)]))
    assert found.names == ("a", "b", "c")
    assert len(found.requests) == 2
    assert found.kinds[0] == found.kinds[1] != found.kinds[2]
    assert found.job_units.tolist() == [WHOLE, WHOLE, WHOLE // 2]
    assert sorted(found.shares) == pytest.approx([1 / 3, 2 / 3])


@settings(max_examples=50)
@given(st.integers(1, 8), st.integers(1, 12), st.floats(0.2, 4), st.integers(0, 5))
def test_arrivals_ask_for_the_load(gpus: int, jobs: int, load: float, seed: int) -> None:
    found = problem(
        instance([node("n", gpus)], [job(f"j{i}", 1, 0.5 if i % 2 else None) for i in range(jobs)])
    )
    order = arrivals(found, load, seed)
    asked, most = int(found.job_units[order].sum()), load * found.gpu_units
    assert asked <= most
    if asked == most or len(order) >= jobs:
        # Every job comes once before any comes twice, and less than a GPU is left to the load.
        assert len(set(order[:jobs].tolist())) == min(jobs, len(order))
        assert most - asked < WHOLE or asked == most
    else:  # all jobs ask for more: some were left out, none comes twice
        assert len(set(order.tolist())) == len(order) < jobs


def test_arrivals_depend_on_the_seed_only() -> None:
    found = problem(instance([node("n", 8)], [job(f"j{i}") for i in range(20)]))
    assert np.array_equal(arrivals(found, 1.3, 7), arrivals(found, 1.3, 7))
    assert not np.array_equal(arrivals(found, 1.3, 7), arrivals(found, 1.3, 8))


@pytest.mark.parametrize("load", [0.0, -1.0, float("nan"), 101.0])
def test_loads_that_are_refused(load: float) -> None:
    with pytest.raises(InputError, match="--load"):
        arrivals(problem(instance([node("n", 1)], [job("a")])), load, 0)


def test_a_job_of_several_gpus_may_exceed_the_load() -> None:
    """As published: the last job is measured by what it asks for on each GPU."""
    found = problem(instance([node("n", 8)], [job("a", 8)]))
    assert len(arrivals(found, 1.25, 0)) == 2  # 8 GPUs, and 8 more as 1 <= 10 - 8
    assert len(arrivals(found, 1.1, 0)) == 1  # 1 > 8.8 - 8


def test_names_order_the_jobs() -> None:
    """The order in the file does not matter."""
    jobs = [job(f"j{i}", 1, 0.1 * (i + 1)) for i in range(5)]
    one, other = instance([node("n", 2)], jobs), instance([node("n", 2)], jobs[::-1])
    assert dataclasses.replace(problem(one), nodes=()).names == problem(other).names
    assert problem(one).kinds.tolist() == problem(other).kinds.tolist()
