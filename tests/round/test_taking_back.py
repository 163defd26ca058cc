"""Borrowed GPUs: whoever is within the quotas of his tenant takes them back, in one round, and what
may not be preempted stays."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from optsched import Instance, Job, Mode, Profile, Sharing, Tenant
from optsched.driver.borrowing import BELOW_ALL, borrowers
from optsched.explain import Explainer
from optsched.files.faults import MAX_PRIORITY
from optsched.model.job import Elastic
from optsched.objectives import MOST_TIERS, parse
from optsched.round.build import build
from optsched.round.plan import JobRound, standing
from optsched.round.verify import verify_round
from optsched.round.verify_tiers import _beyond_quota, priority_inversions

from .random_rounds import rounds
from .test_solvers_agree import OBJECTIVES
from .test_tiers import (
    GAPS,
    PREEMPTS,
    cluster,
    decided,
    decisions,
    inverted,
    job,
    no_inversion,
    no_round_beats_the_highest_tier,
    on,
)


@st.composite
def lending(draw: Any, most_jobs: int = 12, most_nodes: int = 5, **more: Any) -> Instance:
    """A sound round in which tenants of a tree hold more than their quotas, as one that has come
    back leaves much of its own; of several priorities, some of which say whom they preempt."""
    instance = draw(rounds(most_jobs, most_nodes, **more))
    tenants = []
    for tenant in instance.tenants:
        if tenant.gpu_quota is not None:
            less = draw(st.integers(0, tenant.gpu_quota))
            most = tenant.gpu_quota + tenant.borrow_gpus
            tenant = replace(tenant, gpu_quota=less, borrow_gpus=most - less)
        tenants.append(tenant)
    gpus = instance.cluster.total_gpus
    tenants.append(Tenant(name="lender", gpu_quota=40))
    tenants.append(Tenant(name="borrower", gpu_quota=draw(st.integers(0, 6)), borrow_gpus=gpus))
    names = ["lender", "lender", "borrower", *(tenant.name for tenant in tenants), None]
    priority = st.sampled_from(draw(st.sampled_from([(0,), (0, 0, 3)])))
    whom = draw(st.sampled_from(PREEMPTS))
    tiers = cluster(p3=whom, p0=draw(st.sampled_from(PREEMPTS))).tiers
    free = {None: "borrower"}

    def given_to(job: Job) -> str | None:
        if job.id in instance.running_job:
            return free.get(job.tenant, job.tenant)
        return draw(st.sampled_from(names)) if job.tenant is None else job.tenant

    return replace(
        instance,
        cluster=replace(instance.cluster, tiers=draw(st.sampled_from([(), tiers]))),
        tenants=tuple(tenants),
        jobs=tuple(
            replace(job, tenant=given_to(job), priority=draw(priority)) for job in instance.jobs
        ),
    )


def nothing_is_withheld(instance: Instance, objective: str, gap: float) -> None:
    no_inversion(instance, objective, gap)
    now_s, runs = instance.now_s, instance.running_job
    active = [
        job for job in instance.jobs if job.id in runs or (job.submit_s <= now_s and not job.after)
    ]
    assert borrowers(instance) == _beyond_quota(instance, active)
    event(
        f"as it is, something would be: {bool(priority_inversions(instance, standing(instance)))}"
    )


@settings(max_examples=40)
@given(lending(), st.sampled_from(OBJECTIVES), GAPS)
def test_nobody_within_a_quota_waits_for_what_others_borrow(
    instance: Instance, objective: str, gap: float
) -> None:
    nothing_is_withheld(instance, objective, gap)


@pytest.mark.slow
@settings(max_examples=10_000)
@given(lending(), st.sampled_from(OBJECTIVES), GAPS)
def test_nobody_in_10000_rounds(instance: Instance, objective: str, gap: float) -> None:
    nothing_is_withheld(instance, objective, gap)


@settings(max_examples=15)
@given(lending(most_jobs=4, most_nodes=2, sizes=(1, 2, 4)))
def test_no_round_beats_the_bound_of_those_within(instance: Instance) -> None:
    no_round_beats_the_highest_tier(instance)


TENANTS = (Tenant(name="a", gpu_quota=4, borrow_gpus=4), Tenant(name="b", gpu_quota=4))
LENT = Instance(
    cluster=cluster(4, 4),
    tenants=TENANTS,
    jobs=(
        job("first", 4, tenant="a", submit_s=-900.0),
        job("second", 4, tenant="a", submit_s=-800.0, weight=1e6),
        job("owner", 4, tenant="b", duration_s=1e6),
    ),
    running=(on("first", "n0", 4), on("second", "n1", 4)),
)


def with_job(instance: Instance, name: str, **fields: Any) -> Instance:
    """The instance with other fields of one job."""
    return replace(
        instance,
        jobs=tuple(replace(job, **fields) if job.id == name else job for job in instance.jobs),
    )


def test_who_came_last_gives_back_whatever_it_is_worth() -> None:
    assert inverted(LENT)
    assert "if jobs that borrow left (second)" in str(priority_inversions(LENT, standing(LENT))[0])
    back = {"first": "continue", "second": "preempt", "owner": "start"}
    assert decisions(LENT) == back
    high = replace(LENT, jobs=(*(replace(j, priority=9) for j in LENT.jobs[:2]), LENT.jobs[2]))
    assert decisions(high) == back
    tiers = decided(high).tiers
    assert [(tier.borrows, tier.priority) for tier in tiers] == [(False, 9), (False, 0), (True, 9)]
    one = with_job(LENT, "second", priority=1)  # of a tenant's jobs the highest are within
    assert decisions(one) == {"first": "preempt", "second": "continue", "owner": "start"}


def test_where_nobody_may_borrow_nothing_changes() -> None:
    assert borrowers(LENT) == {"second"}
    strict = replace(LENT, tenants=tuple(replace(t, borrow_gpus=0) for t in TENANTS))
    assert not borrowers(strict)
    alone = replace(LENT, tenants=())
    assert not decided(replace(alone, jobs=tuple(replace(j, tenant=None) for j in LENT.jobs))).tiers


@pytest.mark.parametrize(
    "fields", [{"preemptible": False}, {"min_run_s": 600.0}, {"max_preemptions": 0}]
)
def test_what_may_not_be_preempted_is_not_taken_back(fields: dict[str, Any]) -> None:
    stays = with_job(LENT, "second", **fields)
    assert not inverted(stays)
    assert decisions(stays) == {"first": "continue", "second": "continue", "owner": "wait"}


def test_whoever_preempts_nobody_takes_nothing_back() -> None:
    patient = replace(LENT, cluster=cluster(4, 4, p0="never"))
    assert not inverted(patient)
    assert decisions(patient)["owner"] == "wait"
    lower = replace(LENT, cluster=cluster(4, 4, p0="lower"))
    assert decisions(lower)["owner"] == "start"
    assert not inverted(LENT, keep=("second",))
    assert decisions(LENT, keep=("second",))["owner"] == "wait"
    assert decisions(LENT, keep=("second",), unless_higher=("second",))["owner"] == "start"


def test_no_more_is_taken_back_than_the_quota() -> None:
    more = replace(LENT, jobs=(*LENT.jobs, job("more", 4, tenant="b", weight=1e3)))
    for instance in (more, with_job(more, "more", priority=9)):
        done = decisions(instance)
        assert done["first"] == "continue" and done["second"] == "preempt"
        assert sorted((done["owner"], done["more"])) == ["start", "wait"]
    assert decisions(more)["more"] == "start"  # less GPU time for its weight


def test_jobs_without_a_quota_borrow_nothing() -> None:
    free = with_job(LENT, "owner", tenant=None)
    assert decisions(free) == {"first": "continue", "second": "preempt", "owner": "start"}


def test_who_borrows_takes_nothing_back_for_itself() -> None:
    instance = Instance(
        cluster=cluster(8),
        tenants=(Tenant(name="a", gpu_quota=4, borrow_gpus=4), Tenant(name="b", gpu_quota=4)),
        jobs=(
            job("large", 8, tenant="a", submit_s=-900.0, weight=1e3),
            job("small", 1, tenant="a"),
        ),
        running=(on("large", "n0", 8),),
    )
    assert borrowers(instance) == {"large", "small"}
    assert decisions(instance) == {"large": "continue", "small": "wait"}
    assert decisions(with_job(instance, "small", tenant="b"))["large"] == "preempt"


def test_in_a_tree_each_quota_gets_back_its_own() -> None:
    tenants = (
        Tenant(name="lab", gpu_quota=8, borrow_gpus=4),
        Tenant(name="left", parent="lab", gpu_quota=4, borrow_gpus=8),
        Tenant(name="right", parent="lab", gpu_quota=4),
        Tenant(name="other", gpu_quota=4),
    )
    runs = ("one", "two", "three")
    instance = Instance(
        cluster=cluster(4, 4, 4),
        tenants=tenants,
        jobs=tuple(job(name, 4, tenant="left", submit_s=-900.0 + k) for k, name in enumerate(runs)),
        running=tuple(on(name, f"n{k}", 4) for k, name in enumerate(runs)),
    )
    assert borrowers(instance) == {"two", "three"}  # beyond left, and beyond left and lab
    for owners in (("right",), ("other",), ("right", "other")):
        come = tuple(job(f"for-{name}", 4, tenant=name, duration_s=1e5) for name in owners)
        done = decisions(replace(instance, jobs=(*instance.jobs, *come)))
        assert done["one"] == "continue"
        assert sorted(done.values()).count("start") == len(owners)
        assert sorted(done.values()).count("preempt") == len(owners)


def test_an_elastic_borrower_is_made_smaller() -> None:
    elastic = replace(
        with_job(LENT, "first", gpus=Elastic(min=2, max=8)),
        cluster=cluster(8),
        running=(on("first", "n0", 8),),
    )
    elastic = replace(elastic, jobs=(elastic.jobs[0], elastic.jobs[2]))
    assert borrowers(elastic) == {"first"}
    assert decisions(elastic) == {"first": "resize", "owner": "start"}


def test_those_who_share_gpus_give_them_back_together() -> None:
    shared = tuple(
        replace(entry, mode=Mode(gpus=4, share_with=other), placement=LENT.running[0].placement)
        for entry, other in zip(LENT.running, ("second", "first"), strict=True)
    )
    half = Profile(sharing=Sharing(duty=0.4))
    jobs = (*(replace(job, profile=half) for job in LENT.jobs[:2]), LENT.jobs[2])
    pair = replace(LENT, cluster=cluster(4), running=shared, jobs=jobs)
    assert decisions(pair)["owner"] == "wait"  # one of the two is within the quota
    both = replace(pair, tenants=(replace(TENANTS[0], gpu_quota=0, borrow_gpus=8), TENANTS[1]))
    assert borrowers(both) == {"first", "second"}
    done = decisions(both)
    assert done["owner"] == "start" and done["first"] == done["second"] == "preempt"


def test_of_many_priorities_those_that_borrow_stay_below() -> None:
    many = tuple(job(f"j{p}", 1, -p, tenant="b") for p in range(4, 30))
    lent = replace(LENT, tenants=(TENANTS[0], replace(TENANTS[1], gpu_quota=26)), jobs=LENT.jobs)
    done = decisions(replace(lent, jobs=(*LENT.jobs[:2], *many)))
    assert done["first"] == "continue" and done["second"] == "preempt"
    found = decided(replace(lent, jobs=(*LENT.jobs[:2], *many)))
    assert len([tier for tier in found.tiers if not tier.borrows]) == MOST_TIERS


def test_no_priority_is_as_low_as_those_that_borrow() -> None:
    assert BELOW_ALL > 2 * MAX_PRIORITY


def test_a_loan_that_starts_before_the_lender_is_caught() -> None:
    free = replace(LENT, cluster=cluster(4), running=(), jobs=LENT.jobs[1:])
    free = replace(free, tenants=(replace(TENANTS[0], gpu_quota=0, borrow_gpus=4), TENANTS[1]))
    taken = JobRound(
        id="second", decision="start", mode=Mode(gpus=4), placement=LENT.running[0].placement
    )
    plan = (taken, JobRound(id="owner", decision="wait"))
    assert not verify_round(free, plan)
    assert priority_inversions(free, plan)
    assert decisions(free) == {"second": "wait", "owner": "start"}


def test_the_sentences_say_who_borrowed() -> None:
    instance = replace(LENT, jobs=(*LENT.jobs, job("late", 4, tenant="a")))
    model = build(instance, parse("wct"), 10.0)
    explained = Explainer(model, decided(instance))
    assert explained.job("second").sentence.startswith(
        "second is preempted and makes way for owner: what it held, tenant a had borrowed, and it "
        "is taken back; this costs it nothing"
    )
    assert explained.job("late").sentence.startswith(
        "late waits: tenant a would have to borrow GPUs for it, and 2 jobs that may go first have"
    )
