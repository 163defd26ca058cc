"""Lucid: sharing scores, and which waiting jobs are packed beside which running ones."""

import pytest

from optsched import Job, Node, Profile, Sharing
from optsched_solvers.policies.lucid import sharing_score
from tests.policies.verified import plan_of, times

ONE = (Node(name="n0", gpus=1),)
TWO = (Node(name="n0", gpus=2),)


def busy(duty: float) -> Profile:
    return Profile(sharing=Sharing(duty=duty))


@pytest.mark.parametrize(
    ("profile", "score"),
    [
        (busy(0.3), 0),
        (busy(0.55), 1),
        (busy(0.9), 2),
        (Profile(), 2),
        (Profile(sharing=Sharing(partners={"a": 1.0, "b": 0.92})), 0),
        (Profile(sharing=Sharing(duty=0.1, partners={"a": 0.9, "b": 0.86})), 1),
        (Profile(sharing=Sharing(duty=0.1, partners={"a": 1.0, "b": 0.5})), 2),
    ],
)
def test_scores_are_by_the_mean_rate_beside_others(profile: Profile, score: int) -> None:
    assert sharing_score(profile) == score


def starts_s(duty: float, second_s: float, second_duty: float = 0.2) -> float:
    """When a job starts that comes 10 s after one of 100 s on the only GPU."""
    plan = plan_of(
        "lucid-style",
        Job(id="first", duration_s=100.0, profile=busy(duty)),
        Job(id="second", duration_s=second_s, submit_s=10.0, profile=busy(second_duty)),
        nodes=ONE,
    )
    return times(plan["second"])[0][0]


def test_a_pair_needs_scores_of_two_at_most() -> None:
    assert starts_s(0.9, 50.0) == 10.0
    assert starts_s(0.9, 50.0, second_duty=0.55) == 100.0


def test_a_job_joins_none_of_less_than_half_its_gpu_time() -> None:
    assert starts_s(0.3, 200.0) == 10.0
    assert starts_s(0.3, 201.0) == 100.0


def test_jobs_share_only_while_more_gpus_are_asked_for_than_are_free() -> None:
    jobs = [
        Job(id=name, duration_s=100.0, submit_s=at_s, profile=busy(0.2))
        for name, at_s in (("a", 0.0), ("b", 10.0), ("c", 20.0))
    ]
    plan = plan_of("lucid-style", *jobs, nodes=TWO)
    partners = {
        job_id: {segment.mode.share_with for segment in entry.segments} - {None}
        for job_id, entry in plan.items()
    }
    assert times(plan["c"])[0][0] == 20.0
    assert partners == {"a": {"c"}, "b": set(), "c": {"a"}}


def test_the_least_gpu_time_goes_first() -> None:
    jobs = [
        Job(id="now", duration_s=100.0),
        Job(id="wide", gpus=1, duration_s=60.0, submit_s=1.0),
        Job(id="short", gpus=1, duration_s=50.0, submit_s=2.0),
    ]
    plan = plan_of("lucid-style", *jobs, nodes=ONE)
    assert times(plan["short"]) == [(100.0, 150.0)] and times(plan["wide"]) == [(150.0, 210.0)]
