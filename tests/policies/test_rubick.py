"""Rubick: the least GPUs with which a job is as fast as asked for, and what is left by slope."""

import pytest

import optsched as opt
from optsched import Job, JobPlan, Mode, Node, Profile
from optsched.errors import InputError
from optsched.traces.generate.even import generate
from optsched.traces.generate.plans import MODELS, plans, with_plans
from tests.policies.verified import plan_of, times

FOUR = (Node(name="n0", gpus=4, cpus=16),)


def job(name: str, *modes: tuple[int, float], at_s: float = 0.0, cost_s: float = 0.0) -> Job:
    """A job with modes of so many GPUs and run times, the first asked for."""
    listed = tuple(Mode(gpus=gpus, duration_s=run_s) for gpus, run_s in modes)
    return Job(id=name, submit_s=at_s, modes=listed, profile=Profile(checkpoint_s=cost_s))


def gpus_of(entry: JobPlan) -> list[int]:
    return [segment.mode.gpus for segment in entry.segments]


def test_a_plan_on_fewer_gpus_as_fast_as_the_one_asked_for_leaves_room() -> None:
    slow = (4, 100.0), (2, 100.0), (1, 500.0)
    plan = plan_of("rubick-style", job("a", *slow), job("b", *slow), nodes=FOUR)
    assert gpus_of(plan["a"]) == gpus_of(plan["b"]) == [2]
    assert times(plan["a"]) == times(plan["b"]) == [(0.0, 100.0)]


def test_a_job_waits_for_what_it_was_promised() -> None:
    first = job("a", (3, 100.0))
    plan = plan_of("rubick-style", first, job("b", (2, 100.0), (1, 150.0)), nodes=FOUR)
    assert times(plan["b"])[0][0] == 0.0, "more throughput for each GPU"
    assert times(plan["a"])[0][0] == 100.0
    plan = plan_of("rubick-style", first, job("b", (3, 100.0), (1, 101.0)), nodes=FOUR)
    assert times(plan["b"]) == [(100.0, 200.0)], "on one GPU it would be slower than asked for"


def test_what_is_left_goes_where_throughput_grows_most_for_each_gpu() -> None:
    """`a` gains 0.2 by a second GPU, `b` nothing by a second but 1.0 by a second and third."""
    a, b = job("a", (1, 120.0), (2, 100.0)), job("b", (1, 200.0), (2, 200.0), (3, 100.0))
    plan = plan_of("rubick-style", a, b, nodes=FOUR)
    assert gpus_of(plan["b"]) == [3]
    assert gpus_of(plan["a"])[0] == 1


@pytest.mark.parametrize(("overhead", "changes"), [("0", False), ("0.5", True)])
def test_a_job_changes_its_plan_only_within_its_overhead(overhead: str, changes: bool) -> None:
    """When `b` has gone `a` could use its GPUs; a change takes 10 s, and it has run for 100 s."""
    a, b = job("a", (2, 1000.0), (4, 500.0), cost_s=10.0), job("b", (2, 100.0))
    plan = plan_of("rubick-style", a, b, nodes=FOUR, options={"overhead": overhead})
    assert gpus_of(plan["a"]) == ([2, 4] if changes else [2])


def test_without_cores_for_the_fastest_plan_the_next_is_taken() -> None:
    modes = Mode(gpus=2, cpus_per_gpu=4, duration_s=100.0), Mode(gpus=2, duration_s=110.0)
    nodes = (Node(name="n0", gpus=4, cpus=8),)
    jobs = (Job(id=name, modes=modes) for name in "ab")
    plan = plan_of("rubick-style", *jobs, nodes=nodes)
    assert sorted(times(entry)[0] for entry in plan.values()) == [(0.0, 100.0), (0.0, 110.0)]


def test_a_faster_plan_on_as_many_gpus_is_taken_once_there_are_cores() -> None:
    """`b` runs without cores until `a`, which has them all, has gone."""
    modes = Mode(gpus=2, cpus_per_gpu=4, duration_s=300.0), Mode(gpus=2, duration_s=600.0)
    a = Job(id="a", modes=(Mode(gpus=2, cpus_per_gpu=4, duration_s=150.0),))
    nodes = (Node(name="n0", gpus=4, cpus=8),)
    plan = plan_of("rubick-style", a, Job(id="b", modes=modes, submit_s=1.0), nodes=nodes)
    assert [segment.mode.cpus_per_gpu for segment in plan["b"].segments] == [0, 4]


def test_plans_of_models() -> None:
    llama = MODELS["llama-7b"]
    assert {cores for cores, _ in plans(llama, 1)} == {12, 24}, "its states fit no GPU"
    assert not list(plans(MODELS["llama-30b"], 4))
    assert min(s for _, s in plans(llama, 8)) > min(s for _, s in plans(llama, 16))
    for model in MODELS.values():
        for gpus in model.asked:
            assert all(0 < seconds < 600 for _, seconds in plans(model, gpus))


@pytest.mark.parametrize("asked", ["random", "best"])
def test_the_first_mode_is_what_was_asked_for(asked: str) -> None:
    before = generate(jobs=40, gpus=64, seed=3, gangs=(1, 8, 32), cores_per_gpu=12)
    after = with_plans(before, 3, "best" if asked == "best" else "random")
    for old, new in zip(before.jobs, after.jobs, strict=True):
        first = new.modes[0]
        assert (first.gpus, first.duration_s, new.submit_s) == (
            old.gpus,
            old.duration_s,
            old.submit_s,
        )
        if asked == "best":
            alike = [mode.duration_s or 0.0 for mode in new.modes if mode.gpus == first.gpus]
            assert min(alike) == first.duration_s


def test_plans_that_cannot_be_made() -> None:
    with pytest.raises(InputError, match="--plans: no model is trained on 3 GPUs"):
        opt.generate("even", jobs=2, gpus=8, gangs="3", plans="best")
    with pytest.raises(InputError, match="leave --elastic"):
        opt.generate("even", jobs=2, gpus=8, elastic=True, plans="best")
