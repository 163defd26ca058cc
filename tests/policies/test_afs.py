"""AFS: the comparison of two jobs by hand, and whole allocations."""

from statistics import fmean

from optsched import Job, JobPlan, Node, Profile
from optsched.model.job import Elastic
from tests.policies.verified import plan_of, times, where

FOUR = (Node(name="n0", gpus=4),)


def elastic(name: str, work_s: float, rates: dict[int, float], submit_s: float = 0.0) -> Job:
    return Job(
        id=name,
        duration_s=work_s,
        submit_s=submit_s,
        gpus=Elastic(min=min(rates), max=max(rates)),
        profile=Profile(gpus=rates),
    )


def first(found: dict[str, JobPlan]) -> dict[str, int]:
    """GPUs of the first stay of each job."""
    return {name: sum(where(entry)[0].values()) for name, entry in found.items()}


LINEAR = {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
BENT = {1: 1.0, 2: 1.5, 3: 1.8, 4: 2.0}


def test_equally_efficient_jobs_leave_it_to_the_shorter() -> None:
    # Of linear jobs with one GPU each: the shorter gains 1 / 1, the longer 1 / 2 of its new rate;
    # with two against one it gains 1 / 2, which is not more than 1 / 2, so that the fourth goes to
    # the longer.
    assert first(
        plan_of("afs", elastic("s", 100, LINEAR), elastic("l", 1000, LINEAR), nodes=FOUR)
    ) == {"s": 2, "l": 2}


def test_an_inefficient_short_job_yields() -> None:
    # The shorter gains 0.5 / 1, which is no more than the 1 / 2 of the longer, then against 1 / 3:
    # 0.5 is more.
    assert first(
        plan_of("afs", elastic("s", 100, BENT), elastic("l", 1000, LINEAR), nodes=FOUR)
    ) == {"s": 2, "l": 2}
    # A third step of the longer comes before one of 0.3 / 1.5 of the shorter (0.2 against 1 / 3).
    five = (Node(name="n0", gpus=5),)
    assert first(
        plan_of("afs", elastic("s", 100, BENT), elastic("l", 1000, LINEAR), nodes=five)
    ) == {"s": 2, "l": 3}


def test_a_short_efficient_job_takes_from_a_long_inefficient_one() -> None:
    # 1 / 1 against 0.5 / 1.5, then 1 / 2 against the same: both to the shorter.
    assert first(
        plan_of("afs", elastic("s", 100, LINEAR), elastic("l", 1000, BENT), nodes=FOUR)
    ) == {"s": 3, "l": 1}


def test_without_room_for_all_the_shortest_come_first() -> None:
    jobs = [
        elastic(name, work_s, {2: 1.0, 4: 1.9})
        for name, work_s in (("a", 300), ("b", 100), ("c", 200))
    ]
    found = plan_of("afs", *jobs, nodes=FOUR)
    assert [times(found[name])[0][0] == 0 for name in "abc"] == [False, True, True]


def test_a_step_that_gains_nothing_is_not_taken() -> None:
    assert first(plan_of("afs", elastic("a", 100, {1: 1.0, 2: 1.0, 4: 3.0}), nodes=FOUR)) == {
        "a": 1
    }


def test_it_beats_running_one_after_the_other_on_average() -> None:
    # The published direction: efficient use and short jobs first. Three concave jobs, one of them
    # short.
    jobs = [elastic("a", 600, BENT), elastic("b", 600, BENT), elastic("c", 60, BENT, submit_s=30.0)]
    mean = {
        name: fmean(entry.completion_s for entry in plan_of(name, *jobs, nodes=FOUR).values())
        for name in ("afs", "srtf")
    }
    assert mean["afs"] < mean["srtf"]
