"""Strict priorities: rounds in tiers keep every rule, none of 10,000 has an inversion, and what is
proved of a tier no round beats."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from optsched import Cluster, Instance, Job, Mode, Node, Slot
from optsched.model.cluster import Tenant, Tier, Window
from optsched.model.instance import Running, Suspended
from optsched.objectives import MOST_TIERS, parse
from optsched.round import decide as deciding
from optsched.round import pose as posing
from optsched.round.build import build
from optsched.round.deadline import OutOfTimeError
from optsched.round.decide import decide
from optsched.round.files import dump_round, load_round
from optsched.round.plan import JobRound, RoundSolution, standing
from optsched.round.tiers import Tiers
from optsched.round.verify import verify_round
from optsched.round.verify_tiers import priority_inversions
from tests.oracles.round_brute_force import best_round, combinations_of

from .random_rounds import rounds
from .test_solvers_agree import OBJECTIVES, at_least

PRIORITIES = (0, 0, 2, 9)
PREEMPTS = ("any", "any", "lower", "never")


@st.composite
def tiered(draw: Any, most_jobs: int = 12, most_nodes: int = 5) -> Instance:
    """A sound round of several priorities, some of which say whom they preempt."""
    instance = draw(rounds(most_jobs, most_nodes))
    tiers = tuple(
        Tier(name=f"t{priority}", priority=priority, preempts=draw(st.sampled_from(PREEMPTS)))
        for priority in sorted({*PRIORITIES})
        if draw(st.booleans())
    )
    return replace(
        instance,
        cluster=replace(instance.cluster, tiers=tiers),
        jobs=tuple(
            replace(job, priority=draw(st.sampled_from(PRIORITIES))) for job in instance.jobs
        ),
    )


def decided(instance: Instance, objective: str = "wct", **options: Any) -> RoundSolution:
    return decide(instance, objective, round_s=10.0, **{"budget_s": 60.0, **options})


def no_inversion(instance: Instance, objective: str, gap: float) -> None:
    found = decided(instance, objective, gap=gap)
    assert found.fallback is None
    assert not any("rejected" in note for note in found.notes), found.notes
    assert not verify_round(instance, found.jobs)
    assert not priority_inversions(instance, found.jobs)
    order = [(not tier.borrows, tier.priority) for tier in found.tiers]
    assert order == sorted({*order}, reverse=True)
    assert all(at_least(tier.bound, tier.value) and tier.value >= 0 for tier in found.tiers)
    if found.tiers:
        assert at_least(found.bound, sum(tier.bound for tier in found.tiers))
        assert at_least(sum(tier.value for tier in found.tiers), found.value)
    assert load_round(dump_round(found)) == replace(
        found, wall_s=load_round(dump_round(found)).wall_s
    )


GAPS = st.sampled_from([0.0, 1e-6, 0.01, 0.5])


@settings(max_examples=80)
@given(tiered(), st.sampled_from(OBJECTIVES), GAPS)
def test_no_job_waits_for_what_lower_ones_hold(
    instance: Instance, objective: str, gap: float
) -> None:
    no_inversion(instance, objective, gap)


@pytest.mark.slow
@settings(max_examples=10_000)
@given(tiered(), st.sampled_from(OBJECTIVES), GAPS)
def test_no_inversion_in_10000_rounds(instance: Instance, objective: str, gap: float) -> None:
    no_inversion(instance, objective, gap)


@settings(
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], max_examples=25
)
@given(rounds(most_jobs=4, most_nodes=2, sizes=(0, 1, 2, 4)), st.data())
def test_no_round_beats_the_bound_of_the_highest_tier(instance: Instance, data: Any) -> None:
    """Brute force over all rounds of the highest tier, in which all whom it may preempt give way
    for nothing."""
    priority = [data.draw(st.sampled_from((0, 5))) for _ in instance.jobs]
    instance = replace(
        instance,
        jobs=tuple(
            replace(job, priority=p) for job, p in zip(instance.jobs, priority, strict=True)
        ),
    )
    no_round_beats_the_highest_tier(instance)


def no_round_beats_the_highest_tier(instance: Instance) -> None:
    tiers = Tiers(instance, (), ())
    part = None if tiers.is_one else tiers.next()
    assume(part is not None and not part.around)
    assert part is not None
    model = build(part.instance, parse("wct"), 10.0, give_way=part.give_way, keep=part.keep)
    value = np.where(model.depth[model.options.job] > 0, 0.0, model.options.value)
    model = replace(model, options=replace(model.options, value=value))
    assume(combinations_of(model) <= 3_000)
    best, _ = best_round(model)
    found = decided(instance, gap=0.0).tiers[0]
    assert at_least(found.bound, best)
    assert at_least(best, found.value)
    if found.bound - found.value <= 1e-9 * max(1e-12, found.value):
        assert found.value == pytest.approx(best, rel=1e-6)


@settings(max_examples=15)
@given(rounds(), st.sampled_from(OBJECTIVES))
def test_equal_priorities_decide_as_none_do(instance: Instance, objective: str) -> None:
    raised = replace(instance, jobs=tuple(replace(job, priority=7) for job in instance.jobs))
    assert replace(decided(raised, objective), wall_s=0.0) == replace(
        decided(instance, objective), wall_s=0.0
    )


def cluster(*gpus: int, **tiers: str) -> Cluster:
    """Nodes of so many GPUs; tiers by priority, as `p5="never"`."""
    return Cluster(
        nodes=tuple(Node(name=f"n{i}", gpus=count) for i, count in enumerate(gpus)),
        tiers=tuple(
            Tier(name=name, priority=int(name[1:]), preempts=whom)  # type: ignore[arg-type]
            for name, whom in tiers.items()
        ),
    )


def job(name: str, gpus: int, priority: int = 0, **fields: Any) -> Job:
    return Job(id=name, gpus=gpus, priority=priority, **{"duration_s": 1000.0, **fields})


def on(name: str, node: str, gpus: int) -> Running:
    place = (Slot(node=node, gpus=gpus),)
    return Running(
        job=name, mode=Mode(gpus=gpus), placement=place, started_s=-500.0, remaining_s=500.0
    )


def decisions(instance: Instance, **options: Any) -> dict[str, str]:
    found = decided(instance, **options)
    keep = {*options.get("keep", ())} - {*options.get("unless_higher", ())}
    reserved = [place for place, _ in options.get("reserved", ())]
    assert not verify_round(instance, found.jobs)
    assert not priority_inversions(instance, found.jobs, keep=keep, reserved=reserved)
    return {entry.id: entry.decision for entry in found.jobs}


def test_what_higher_tiers_leave_is_never_below_nothing() -> None:
    taken = {"first": (3, 0.1), "second": (3, 0.2), "low": (0, 0.1)}  # 0.3 - 0.1 - 0.2 < 0
    instance = Instance(
        cluster=replace(cluster(8), resources={"power": 0.3}),
        jobs=tuple(
            job(name, 1, priority, resources={"power": amount})
            for name, (priority, amount) in taken.items()
        ),
    )
    found = decided(instance)
    assert min(row.capacity for row in found.prices) == 0
    assert load_round(dump_round(found)).prices == found.prices


LOW_RUNS = Instance(
    cluster=cluster(4, 4),
    jobs=(job("low", 4), job("low2", 4), job("high", 4, 5, duration_s=1e6)),
    running=(on("low", "n0", 4), on("low2", "n1", 4)),
)


def inverted(instance: Instance, **options: Any) -> bool:
    """Whether to leave all as it is would be an inversion."""
    plan = standing(instance)
    assert not verify_round(instance, plan)
    return bool(priority_inversions(instance, plan, **options))


def test_a_planted_inversion_is_caught() -> None:
    assert inverted(LOW_RUNS)
    said = str(priority_inversions(LOW_RUNS, standing(LOW_RUNS))[0])
    assert "high" in said and "n0" in said and "low" in said
    # One of lower priority is started on what the higher one could have.
    free = replace(LOW_RUNS, running=())
    plan = [
        JobRound(
            id="low", decision="start", mode=Mode(gpus=4), placement=(Slot(node="n0", gpus=4),)
        ),
        JobRound(
            id="low2", decision="start", mode=Mode(gpus=4), placement=(Slot(node="n1", gpus=4),)
        ),
        JobRound(id="high", decision="wait"),
    ]
    assert not verify_round(free, plan)
    assert priority_inversions(free, plan)
    never = replace(free, cluster=cluster(4, 4, p5="never"))
    assert priority_inversions(never, plan)  # it preempts nobody, but they only start


def test_what_a_higher_job_may_not_take_is_no_inversion() -> None:
    low = LOW_RUNS.jobs[:2]
    protected = (
        replace(LOW_RUNS, jobs=(*(replace(j, preemptible=False) for j in low), LOW_RUNS.jobs[2])),
        replace(LOW_RUNS, jobs=(*(replace(j, min_run_s=600.0) for j in low), LOW_RUNS.jobs[2])),
        replace(LOW_RUNS, cluster=cluster(4, 4, p5="never")),
        replace(LOW_RUNS, jobs=(*low, job("high", 16, 5))),  # fits nowhere
        replace(LOW_RUNS, jobs=(*low, job("high", 8, 5, max_nodes=1))),
    )
    for instance in protected:
        assert not inverted(instance)
        done = decisions(instance)
        assert done["low"] == done["low2"] == "continue"
    assert not inverted(LOW_RUNS, keep=("low", "low2"))
    assert not inverted(LOW_RUNS, reserved=[entry.placement for entry in LOW_RUNS.running])


@pytest.mark.parametrize("lowers", [{"resources": {"licence": 0.0}}, {"quotas": {"team": 1}}])
def test_a_job_that_waits_for_a_window_to_end_is_no_inversion(lowers: dict[str, Any]) -> None:
    window = Window(from_s=20.0, to_s=600.0, **lowers)
    there = replace(cluster(4), resources={"licence": 1.0}, windows=(window,))
    high = replace(job("high", 4, 5), resources={"licence": 1.0}, tenant="team", preemptible=False)
    team = Tenant(name="team", gpu_quota=4)
    instance = Instance(cluster=there, tenants=(team,), jobs=(high, job("low", 4, 0)))
    found = decide(instance)
    assert {entry.id: entry.decision for entry in found.jobs} == {"high": "wait", "low": "start"}
    assert not found.notes
    short = replace(high, duration_s=10.0)  # done before it
    assert priority_inversions(replace(instance, jobs=(short, instance.jobs[1])), found.jobs)


def test_a_higher_job_takes_no_more_than_it_needs() -> None:
    done = decisions(LOW_RUNS)
    assert done["high"] == "start"
    assert sorted((done["low"], done["low2"])) == ["continue", "preempt"]


def test_of_lower_tiers_the_lowest_gives_way() -> None:
    instance = Instance(
        cluster=cluster(4, 4, 4),
        jobs=(job("a", 4, 0, weight=100.0), job("b", 4, 1), job("c", 4, 2), job("high", 4, 5)),
        running=(on("a", "n0", 4), on("b", "n1", 4), on("c", "n2", 4)),
    )
    done = decisions(instance)
    assert done == {"a": "preempt", "b": "continue", "c": "continue", "high": "start"}


def test_weight_counts_within_a_tier_only() -> None:
    instance = Instance(
        cluster=cluster(4), jobs=(job("heavy", 4, 0, weight=1e9), job("high", 4, 1, weight=1e-6))
    )
    assert decisions(instance) == {"heavy": "wait", "high": "start"}


def test_what_is_kept_unless_higher_is_kept_from_equals_alone() -> None:
    keep = {"keep": ("low", "low2"), "unless_higher": ("low", "low2")}
    assert decisions(LOW_RUNS, **keep)["high"] == "start"
    assert decisions(LOW_RUNS, keep=("low", "low2"))["high"] == "wait"
    equal = replace(LOW_RUNS, jobs=(*LOW_RUNS.jobs[:2], job("other", 4, 0, duration_s=1.0)))
    assert decisions(equal, **keep)["other"] == "wait"
    assert decisions(equal)["other"] == "start"


def test_a_tier_of_lower_preempts_no_equals_and_below_one_of_never_nobody_preempts() -> None:
    equal = (*LOW_RUNS.jobs[:2], job("short", 4, 0, duration_s=1.0))
    assert decisions(replace(LOW_RUNS, jobs=equal))["short"] == "start"
    lower = replace(LOW_RUNS, jobs=equal, cluster=cluster(4, 4, p0="lower"))
    assert decisions(lower)["short"] == "wait"
    jobs = (*equal, job("patient", 4, 9))
    never = replace(LOW_RUNS, jobs=jobs, cluster=cluster(4, 4, p9="never"))
    done = decisions(never)
    assert done["short"] == done["patient"] == "wait"


def test_a_reservation_holds_up_nobody_above_it() -> None:
    instance = Instance(cluster=cluster(4), jobs=(job("high", 4, 5), job("low", 4, 0)))
    place = (((Slot(node="n0", gpus=4),), 10.0),)
    for priority, expected in ((9, "wait"), (5, "wait"), (3, "start")):
        found = decided(instance, reserved=place, reserved_rank=priority)
        assert {entry.id: entry.decision for entry in found.jobs}["high"] == expected


def test_of_many_priorities_the_lowest_are_one_tier() -> None:
    jobs = tuple(job(f"j{p}", 1, -p) for p in range(40))
    found = decided(Instance(cluster=cluster(4), jobs=jobs))
    assert len(found.tiers) == MOST_TIERS
    assert sum(tier.jobs for tier in found.tiers) == 40
    runs = {entry.id for entry in found.jobs if entry.mode}
    assert runs == {"j0", "j1", "j2", "j3"}


def test_who_made_way_may_start_elsewhere_at_once() -> None:
    instance = Instance(
        cluster=cluster(8, 4),
        jobs=(job("low", 4, 0), job("high", 8, 5, max_nodes=1)),
        running=(on("low", "n0", 4),),
        suspended=(Suspended(job="high", remaining_s=10.0),),
    )
    assert decisions(instance) == {"low": "migrate", "high": "resume"}


def test_who_made_way_is_preempted_where_there_is_no_time_for_its_own_tier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(instance: Instance, give_way: Any, deadline: Any = None, **more: Any) -> Any:
        if not give_way:  # the lowest tier
            raise OutOfTimeError
        return build(instance, give_way=give_way, **more)

    monkeypatch.setattr(deciding, "build", slow)
    monkeypatch.setattr(posing, "FEW", 1)
    low = tuple(job(f"w{i}", 1) for i in range(4))
    instance = replace(LOW_RUNS, jobs=(*LOW_RUNS.jobs, *low))
    found = decided(instance)
    done = {entry.id: entry.decision for entry in found.jobs}
    assert found.fallback is not None and not verify_round(instance, found.jobs)
    assert done["high"] == "start" and set(done) == {j.id for j in instance.jobs}
    assert sorted((done["low"], done["low2"])) == ["continue", "preempt"]


def test_a_late_round_leaves_all_as_it_is_and_says_so() -> None:
    instance = replace(LOW_RUNS, jobs=(*LOW_RUNS.jobs, *(job(f"w{i}", 1, 5) for i in range(200))))
    found = decide(instance, budget_s=1e-9)
    assert found.fallback is not None
    assert any("waits, and could run on" in note for note in found.notes)
    assert not verify_round(instance, found.jobs)
