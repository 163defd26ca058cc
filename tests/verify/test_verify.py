"""The verifier against a slow second opinion, and the fine points of starting, stopping and
sharing."""

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optsched import (
    Cluster,
    Elastic,
    Instance,
    Job,
    JobPlan,
    Mode,
    Plan,
    Profile,
    Running,
    Segment,
    Sharing,
    Slot,
)
from optsched.objectives import parse
from optsched.verify import Report, decision_now, held_faults, running_faults, verify
from tests.clusters import equal_nodes, one_node
from tests.plan_cases import CASES, SLOW, entry, place, segment
from tests.slow_check import is_valid, why_not

ON_THE_GRID = sorted(set(CASES) - {"incidents", "crowded"})
"""The check on a grid knows nothing of what nobody planned; tests/simulate/test_incidents.py and
test_out_of_memory.py hold these."""
WCT = parse("wct")
ONE = Mode(gpus=1)


def said(report: Report) -> str:
    return "\n".join(map(str, report.violations))


def with_true_decisions(instance: Instance, plan: Plan) -> Plan:
    return Plan(
        jobs=tuple(
            replace(one, decision=decision_now(instance, instance.job[one.id], one.segments))
            if one.segments
            else one
            for one in plan.jobs
        )
    )


# ------------------------------------------------------------------------------------------ second
# opinion

HALVES = st.integers(-40, 40).map(lambda n: n / 2)


@st.composite
def bent(draw: st.DrawFn) -> tuple[Instance, Plan]:
    """A valid plan with a few segments changed, sometimes for a slightly different instance."""
    instance, plan = CASES[draw(st.sampled_from(ON_THE_GRID))]()
    if draw(st.integers(0, 3)) == 0:
        instance = draw(bent_instance(instance))
    for _ in range(draw(st.integers(0, 3))):
        j = draw(st.integers(0, len(plan.jobs) - 1))
        parts = list(plan.jobs[j].segments)
        if parts:
            parts = draw(bent_segments(instance, parts))
        jobs = list(plan.jobs)
        jobs[j] = replace(jobs[j], segments=tuple(parts))
        plan = Plan(jobs=tuple(jobs))
    return instance, plan


@st.composite
def bent_instance(draw: st.DrawFn, instance: Instance) -> Instance:
    what = draw(st.sampled_from(["node", "job", "nodes", "profile", "setup", "limits"]))
    if what == "node" and instance.cluster.nodes:
        changed = list(instance.cluster.nodes)
        n = draw(st.integers(0, len(changed) - 1))
        changed[n] = replace(
            changed[n], gpus=draw(st.integers(0, 8)), cpus=draw(st.sampled_from([None, 4, 8, 20]))
        )
        return replace(instance, cluster=replace(instance.cluster, nodes=tuple(changed)))
    if what == "limits":
        part = draw(st.sampled_from([0.5, 0.9, 0.95, 1.1]))
        cluster = replace(
            instance.cluster,
            resources={name: most * part for name, most in instance.cluster.resources.items()},
            rack_uplink_gbps={
                rack: most * part for rack, most in instance.cluster.rack_uplink_gbps.items()
            },
        )
        return replace(
            instance,
            cluster=cluster,
            tenants=tuple(
                replace(
                    one, borrow_gpus=draw(st.integers(0, 3)) if one.gpu_quota is not None else 0
                )
                for one in instance.tenants
            ),
        )
    jobs = list(instance.jobs)
    j = draw(st.integers(0, len(jobs) - 1))
    if what == "job":
        jobs[j] = replace(
            jobs[j],
            preemptible=draw(st.booleans()),
            min_run_s=draw(st.sampled_from([0.0, 5.0, 30.0])),
            max_preemptions=draw(st.sampled_from([None, 0, 1, 2])),
        )
    elif what == "nodes":
        least = draw(st.integers(1, 2))
        jobs[j] = replace(jobs[j], min_nodes=least, max_nodes=draw(st.integers(least, 3)))
    elif what == "profile":
        jobs[j] = replace(
            jobs[j],
            profile=replace(
                jobs[j].profile,
                checkpoint_s=draw(st.sampled_from([0.0, 2.0, 4.0])),
                checkpoint_every_s=draw(st.sampled_from([None, 5.0, 20.0])),
            ),
        )
    elif instance.running:
        return replace(
            instance,
            running=tuple(
                replace(
                    run,
                    setup_s=draw(st.sampled_from([0.0, 1.0, 2.0])),
                    preemptions=draw(st.integers(0, 2)),
                )
                for run in instance.running
            ),
        )
    return replace(instance, jobs=tuple(jobs))


@st.composite
def bent_segments(draw: st.DrawFn, instance: Instance, parts: list[Segment]) -> list[Segment]:
    k = draw(st.integers(0, len(parts) - 1))
    old = parts[k]
    by = draw(HALVES)
    match draw(
        st.sampled_from(
            [
                "shift",
                "all",
                "end",
                "start",
                "drop",
                "double",
                "split",
                "cut",
                "node",
                "size",
                "clock",
                "memory",
            ]
        )
    ):
        case "shift":
            parts[k] = replace(old, start_s=old.start_s + by, end_s=old.end_s + by)
        case "all":
            parts = [replace(one, start_s=one.start_s + by, end_s=one.end_s + by) for one in parts]
        case "end":
            parts[k] = replace(old, end_s=old.end_s + by)
        case "start":
            parts[k] = replace(old, start_s=old.start_s + by)
        case "drop":
            del parts[k]
        case "double":
            length = old.end_s - old.start_s
            parts.insert(k + 1, replace(old, start_s=old.end_s, end_s=old.end_s + length))
        case "split":  # in two that touch: still the same plan
            half = old.start_s + math.floor(old.end_s - old.start_s) / 2
            parts[k : k + 1] = [replace(old, end_s=half), replace(old, start_s=half)]
        case "cut":  # in two with a gap and what the second start costs
            half = old.start_s + math.floor(old.end_s - old.start_s) / 2
            gap, more = draw(st.integers(0, 4)) / 2, draw(st.integers(0, 24)) / 2
            again = replace(old, start_s=half + gap, end_s=old.end_s + gap + more)
            parts[k : k + 1] = [replace(old, end_s=half), again]
        case "node":
            node = draw(st.sampled_from([one.name for one in instance.cluster.nodes]))
            parts[k] = replace(
                old, placement=tuple(replace(slot, node=node) for slot in old.placement[:1])
            )
        case "clock":
            parts[k] = replace(
                old, mode=replace(old.mode, clock_mhz=draw(st.sampled_from([None, 900, 1200])))
            )
        case "memory":
            gib, gpu_gib = draw(st.sampled_from([(None, None), (4.0, None), (8.0, 12.0)]))
            less = replace(old.mode, memory_gib_per_gpu=gib, gpu_memory_gib=gpu_gib)
            parts[k] = replace(old, mode=less)
        case "size":
            gpus = draw(st.integers(0, 4))
            slots = [
                replace(slot, gpus=gpus, cpus=gpus * old.mode.cpus_per_gpu)
                for slot in old.placement
            ]
            parts[k] = replace(
                old, placement=tuple(slots), mode=replace(old.mode, gpus=gpus * len(slots))
            )
    return parts


@settings(max_examples=200)
@given(bent())
@example(CASES["held"]())
@example(CASES["pairs"]())
def test_verifier_agrees_with_a_check_on_a_grid(case: tuple[Instance, Plan]) -> None:
    instance, plan = case
    if any(
        slot.node not in instance.cluster.node
        for one in plan.jobs
        for s in one.segments
        for slot in s.placement
    ):
        return
    plan = with_true_decisions(instance, plan)
    report = verify(instance, plan, WCT)
    reason = why_not(instance, plan)
    assert report.ok == (reason is None), (
        f"verifier: {said(report) or 'valid'}; grid: {reason or 'valid'}"
    )


@pytest.mark.slow
@settings(max_examples=20_000)
@given(bent())
def test_verifier_agrees_with_a_check_on_a_grid_for_long(case: tuple[Instance, Plan]) -> None:
    instance, plan = case
    plan = with_true_decisions(instance, plan)
    assert verify(instance, plan, WCT).ok == is_valid(instance, plan)


@pytest.mark.parametrize("case", ON_THE_GRID)
def test_the_grid_accepts_the_valid_plans(case: str) -> None:
    assert why_not(*CASES[case]()) is None


# ----------------------------------------------------------------------------------------------
# fine points


def check(
    job: Job,
    *parts: Segment,
    cluster: Cluster | None = None,
    running: Running | None = None,
    now_s: float = 0.0,
    beside: tuple[tuple[Job, JobPlan], ...] = (),
) -> Report:
    """Verify the plan of one job, with others beside it."""
    instance = Instance(
        now_s=now_s,
        cluster=cluster or Cluster(nodes=equal_nodes(2, gpus=4)),
        jobs=(job, *(other for other, _ in beside)),
        running=() if running is None else (running,),
    )
    plan = Plan(jobs=(entry(job.id, "start", *parts), *(one for _, one in beside)))
    return verify(instance, with_true_decisions(instance, plan), WCT)


def test_segments_that_touch_pay_nothing_but_a_gap_does() -> None:
    job = Job(id="a", duration_s=100.0, profile=SLOW)  # 2 to start, 3 to restore, 4 to save
    assert check(job, segment(0, 50, ONE, "n0:1g0c"), segment(50, 102, ONE, "n0:1g0c")).ok
    gap = check(job, segment(0, 50, ONE, "n0:1g0c"), segment(50.5, 102.5, ONE, "n0:1g0c"))
    assert "9 s of its 100 s of reference work left" in said(gap)
    assert check(job, segment(0, 50, ONE, "n0:1g0c"), segment(50.5, 111.5, ONE, "n0:1g0c")).ok


def test_touching_segments_on_another_node_are_a_migration() -> None:
    job = Job(id="a", duration_s=100.0, profile=SLOW)
    assert not check(job, segment(0, 50, ONE, "n0:1g0c"), segment(50, 102, ONE, "n1:1g0c")).ok
    assert check(job, segment(0, 50, ONE, "n0:1g0c"), segment(50, 111, ONE, "n1:1g0c")).ok


def test_the_order_of_nodes_in_a_placement_does_not_matter() -> None:
    job = Job(id="a", gpus=2, duration_s=100.0, profile=SLOW)
    two = Mode(gpus=2)
    assert check(
        job, segment(0, 50, two, "n0:1g0c", "n1:1g0c"), segment(50, 102, two, "n1:1g0c", "n0:1g0c")
    ).ok
    running = Running(job="a", mode=two, placement=place("n0:1g0c", "n1:1g0c"), remaining_s=100.0)
    assert check(job, segment(0, 100, two, "n1:1g0c", "n0:1g0c"), running=running).ok


def test_gaps_within_rounding_are_no_gaps_also_at_unix_time() -> None:
    now_s = 1.5e9
    job = Job(id="a", duration_s=100.0, submit_s=now_s, profile=SLOW)
    third = now_s + 100 / 3
    parts = (
        segment(now_s, third, ONE, "n0:1g0c"),
        segment(math.nextafter(third, 2e9), now_s + 102, ONE, "n0:1g0c"),
    )
    assert check(job, *parts, now_s=now_s).ok


@pytest.mark.parametrize("wrong_s", [-0.01, 0.01])
def test_a_hundredth_of_a_second_of_missing_work_is_found_at_unix_time(wrong_s: float) -> None:
    now_s = 1.5e9
    job = Job(id="a", duration_s=100.0, submit_s=now_s)
    assert check(job, segment(now_s, now_s + 100, ONE, "n0:1g0c"), now_s=now_s).ok
    report = check(job, segment(now_s, now_s + 100 + wrong_s, ONE, "n0:1g0c"), now_s=now_s)
    assert [one.rule for one in report.violations] == ["work"]
    assert f"at {now_s + 100 + wrong_s:.12g} s" in said(report)


def test_messages_tell_unix_times_to_the_fraction() -> None:
    job = Job(id="a", duration_s=10.0, submit_s=1_500_000_007.5)
    report = check(job, segment(1_500_000_001.25, 1_500_000_011.25, ONE, "n0:1g0c"))
    assert said(report) == "job a runs at 1500000001.25 s, before its submission at 1500000007.5 s"


def test_preempted_now_without_a_checkpoint_needs_no_first_segment() -> None:
    running = Running(
        job="a", mode=ONE, placement=place("n0:1g0c"), started_s=-50.0, remaining_s=50.0
    )
    free = Job(id="a", duration_s=100.0, profile=Profile(startup_s=2.0))
    later = segment(10, 62, ONE, "n1:1g0c")
    assert check(free, later, running=running).ok
    saves = replace(free, profile=Profile(startup_s=2.0, checkpoint_s=1.0))
    report = check(saves, later, running=running)
    assert [one.rule for one in report.violations] == ["checkpoint"]
    assert check(saves, segment(0, 1, ONE, "n0:1g0c"), later, running=running).ok


def test_a_checkpoint_held_for_too_long_is_work() -> None:
    """Two seconds for a checkpoint of one: the job works for one more second before it saves."""
    running = Running(
        job="a", mode=ONE, placement=place("n0:1g0c"), started_s=-50.0, remaining_s=50.0
    )
    job = Job(id="a", duration_s=100.0, profile=Profile(checkpoint_s=1.0))
    parts = segment(0, 2, ONE, "n0:1g0c"), segment(10, 59, ONE, "n1:1g0c")
    assert check(job, *parts, running=running).ok
    instance = Instance(
        cluster=Cluster(nodes=equal_nodes(2, gpus=4)), jobs=(job,), running=(running,)
    )
    assert decision_now(instance, job, parts) == "continue"


def test_a_job_that_ends_within_the_time_of_a_checkpoint_just_goes_on() -> None:
    running = Running(
        job="a", mode=ONE, placement=place("n0:1g0c"), started_s=-50.0, remaining_s=2.0
    )
    job = Job(id="a", duration_s=100.0, preemptible=False, profile=SLOW)
    assert check(job, segment(0, 2, ONE, "n0:1g0c"), running=running).ok


def test_a_minimum_run_that_has_just_passed_is_enough() -> None:
    running = Running(
        job="a", mode=ONE, placement=place("n0:1g0c"), started_s=-50.0, remaining_s=50.0
    )
    job = Job(id="a", duration_s=100.0, min_run_s=50.0)
    assert check(job, segment(10, 60, ONE, "n1:1g0c"), running=running).ok
    report = check(replace(job, min_run_s=50.5), segment(10, 60, ONE, "n1:1g0c"), running=running)
    assert "after 50 s, its minimum run is 50.5 s" in said(report)


def test_no_more_than_all_work_is_lost() -> None:
    """It has run for 100 s, at first without progress: stopped after 10 s more, it starts from
    nothing."""
    running = Running(
        job="a", mode=ONE, placement=place("n0:1g0c"), started_s=-100.0, remaining_s=95.0
    )
    job = Job(id="a", duration_s=100.0, profile=Profile(checkpoint_every_s=1e6))
    assert check(
        job, segment(0, 10, ONE, "n0:1g0c"), segment(20, 120, ONE, "n1:1g0c"), running=running
    ).ok


def test_the_rounding_of_long_work_is_no_violation() -> None:
    job = Job(id="a", duration_s=1e8)
    assert check(job, segment(0, 1e8 + 0.05, ONE, "n0:1g0c")).ok
    assert check(job, segment(0, 1e8 - 0.05, ONE, "n0:1g0c")).ok
    assert not check(job, segment(0, 1e8 + 0.2, ONE, "n0:1g0c")).ok


def test_a_running_job_first_finishes_its_set_up_also_across_segments() -> None:
    job = Job(id="a", duration_s=100.0, profile=SLOW)
    running = Running(job="a", mode=ONE, placement=place("n0:1g0c"), remaining_s=100.0, setup_s=1.5)
    assert check(job, segment(0, 101.5, ONE, "n0:1g0c"), running=running).ok
    assert not check(job, segment(0, 100, ONE, "n0:1g0c"), running=running).ok
    assert check(
        job, segment(0, 1, ONE, "n0:1g0c"), segment(1, 101.5, ONE, "n0:1g0c"), running=running
    ).ok


def test_a_checkpoint_may_reach_over_two_touching_segments() -> None:
    job = Job(id="a", duration_s=100.0, profile=SLOW)
    parts = (segment(0, 50, ONE, "n0:1g0c"), segment(50, 53, ONE, "n0:1g0c"))  # saves from 49 to 53
    assert check(job, *parts, segment(60, 60 + 5 + 53, ONE, "n1:1g0c")).ok


def test_minimum_run_counts_all_touching_segments_and_not_the_checkpoint() -> None:
    job = Job(id="a", duration_s=100.0, min_run_s=49.0, profile=SLOW)
    parts = (segment(0, 30, ONE, "n0:1g0c"), segment(30, 53, ONE, "n0:1g0c"))
    rest = segment(60, 60 + 5 + 53, ONE, "n1:1g0c")
    assert check(job, *parts, rest).ok
    assert not check(replace(job, min_run_s=49.5), *parts, rest).ok


def test_a_job_may_not_be_stopped_when_its_work_is_done() -> None:
    job = Job(id="a", duration_s=10.0, profile=Profile(startup_s=1.0))
    report = check(job, segment(0, 11, ONE, "n0:1g0c"), segment(20, 21, ONE, "n0:1g0c"))
    assert (
        said(report) == "job a stops on node n0 at 11 s and starts again although its work is done"
    )


def test_a_count_that_was_not_measured_may_go_on_but_not_start() -> None:
    job = Job(
        id="a",
        gpus=Elastic(min=1, max=8),
        duration_s=120.0,
        profile=Profile(cpus_per_gpu={2: 0.5, 4: 1.0}),
    )
    three = Mode(gpus=3, cpus_per_gpu=4)  # rate 3/8
    cluster = Cluster(nodes=equal_nodes(2, gpus=4))
    running = Running(
        job="a", mode=three, placement=place("n0:3g12c"), started_s=-10.0, remaining_s=30.0
    )
    goes_on = segment(0, 80, three, "n0:3g12c")
    assert check(job, goes_on, cluster=cluster, running=running).ok
    assert [
        v.rule for v in check(job, segment(0, 320, three, "n0:3g12c"), cluster=cluster).violations
    ] == ["mode"]
    again = check(
        job,
        segment(0, 40, three, "n0:3g12c"),
        segment(50, 90, three, "n0:3g12c"),
        cluster=cluster,
        running=running,
    )
    assert said(again) == "job a at 50 s: it runs on 3 GPUs, it may be started on 1, 2, 4, 8"
    cores = Mode(gpus=2, cpus_per_gpu=3)
    report = check(job, segment(0, 640, cores, "n0:2g6c"), cluster=cluster)
    assert said(report) == "job a at 0 s: it takes 3 cores per GPU, measured are 2, 4"


def test_a_running_job_does_not_slip_into_another_listed_mode() -> None:
    """Two listed modes of equal size and different speed: going from one to the other is a new
    start."""
    fast, slow = Mode(duration_s=50.0, gpus=1), Mode(duration_s=100.0, gpus=1)
    job = Job(id="a", modes=(slow, fast), profile=Profile(startup_s=2.0))
    running = Running(
        job="a", mode=slow, placement=place("n0:1g0c"), started_s=-20.0, remaining_s=80.0
    )
    assert check(job, segment(0, 80, slow, "n0:1g0c"), running=running).ok
    assert not check(job, segment(0, 40, fast, "n0:1g0c"), running=running).ok
    assert check(job, segment(0, 42, fast, "n0:1g0c"), running=running).ok


# -------------------------------------------------------------------------------------------------
# sharing

HALF = Profile(sharing=Sharing(duty=0.75))
A = Job(id="a", duration_s=60.0, profile=HALF)
B = Job(id="b", duration_s=20.0, profile=HALF)
ONE_GPU = one_node("n0", gpus=1)


def beside(job: str | None) -> Mode:
    return Mode(gpus=1, share_with=job)


def test_a_pair_that_parts_goes_on_without_a_restart() -> None:
    """Two duties of 0.75 give two thirds of the speed each; b needs 30 s, a then has 40 s of work
    left."""
    b = entry("b", "start", segment(0, 30, beside("a"), "n0:1g0c"))
    together, alone = segment(0, 30, beside("b"), "n0:1g0c"), segment(30, 70, ONE, "n0:1g0c")
    a = replace(A, profile=replace(HALF, restore_s=7.0))
    assert check(a, together, alone, cluster=ONE_GPU, beside=((B, b),)).ok


def test_two_jobs_that_have_stopped_sharing_do_not_fit_one_gpu() -> None:
    b = replace(B, duration_s=30.0)
    plan = entry(
        "b", "start", segment(0, 30, beside("a"), "n0:1g0c"), segment(30, 40, ONE, "n0:1g0c")
    )
    report = check(
        A,
        segment(0, 30, beside("b"), "n0:1g0c"),
        segment(30, 70, ONE, "n0:1g0c"),
        cluster=ONE_GPU,
        beside=((b, plan),),
    )
    assert {one.rule for one in report.violations} == {"GPUs"}
    assert "at 30 s: node n0 would hold 2 GPUs of 1 (a, b)" in said(report)


def test_partners_may_change() -> None:
    """a runs beside b, then beside c, on one GPU that always holds two jobs."""
    c = replace(B, id="c")
    b_plan = entry("b", "start", segment(0, 30, beside("a"), "n0:1g0c"))
    c_plan = entry("c", "wait", segment(30, 60, beside("a"), "n0:1g0c"))
    report = check(
        A,
        segment(0, 30, beside("b"), "n0:1g0c"),
        segment(30, 60, beside("c"), "n0:1g0c"),
        segment(60, 80, ONE, "n0:1g0c"),
        cluster=ONE_GPU,
        beside=((B, b_plan), (c, c_plan)),
    )
    assert report.ok, said(report)


def test_a_job_does_not_share_with_itself() -> None:
    report = check(A, segment(0, 90, beside("a"), "n0:1g0c"), cluster=ONE_GPU)
    assert [one.rule for one in report.violations] == ["sharing"]


def test_three_jobs_do_not_fit_the_gpu_of_a_pair() -> None:
    c = replace(B, id="c")
    b_plan = entry("b", "start", segment(0, 30, beside("a"), "n0:1g0c"))
    c_plan = entry("c", "wait", segment(5, 25, ONE, "n0:1g0c"))
    report = check(
        A,
        segment(0, 30, beside("b"), "n0:1g0c"),
        segment(30, 70, ONE, "n0:1g0c"),
        cluster=ONE_GPU,
        beside=((B, b_plan), (c, c_plan)),
    )
    assert [one.rule for one in report.violations] == ["GPUs"]


def test_a_pair_may_fill_the_memory_of_a_gpu_to_the_last_bit() -> None:
    cluster = one_node("n0", gpus=1, gpu_memory_gib=0.3)
    a = replace(A, profile=replace(HALF, gpu_memory_gib=0.1))
    b = replace(B, duration_s=60.0, profile=replace(HALF, gpu_memory_gib=0.2))
    plan = entry("b", "start", segment(0, 90, beside("a"), "n0:1g0c"))
    report = check(a, segment(0, 90, beside("b"), "n0:1g0c"), cluster=cluster, beside=((b, plan),))
    assert report.ok, said(report)


def test_large_amounts_may_be_rounded() -> None:
    def use(each: float) -> Report:
        made = [
            Job(id=name, gpus=0, duration_s=5.0, resources={"r": each}, budgets={"b": each})
            for name in "abc"
        ]
        mode = Mode(resources={"r": each}, budgets={"b": each})
        plan = Plan(jobs=tuple(entry(job.id, "start", segment(0, 5, mode)) for job in made))
        cluster = Cluster(resources={"r": 3e8}, budgets={"b": 3e8})
        return verify(Instance(cluster=cluster, jobs=tuple(made)), plan, WCT)

    assert use(1e8 + 0.001).ok
    assert {violation.rule for violation in use(1e8 + 1000).violations} == {"resource", "budget"}


def test_a_segment_shorter_than_rounding_holds_nothing() -> None:
    end_s = 50 + 4e-6
    b = (
        Job(id="b", duration_s=10.0),
        entry("b", "wait", segment(end_s, end_s + 10, ONE, "n0:1g0c")),
    )
    job = Job(id="a", duration_s=50.0)
    parts = segment(0, 50, ONE, "n0:1g0c"), segment(50, end_s, ONE, "n0:1g0c")
    assert check(job, *parts, cluster=ONE_GPU, beside=(b,)).ok


def test_only_jobs_that_hold_something_are_named() -> None:
    one = Job(id="b", duration_s=10.0)
    beside_it = tuple(
        (replace(one, id=name), entry(name, "start", segment(start, start + 10, ONE, "n0:1g0c")))
        for name, start in (("b", 0), ("c", 12), ("d", 30))
    )
    report = check(
        replace(one, id="a", duration_s=50.0),
        segment(0, 50, ONE, "n0:1g0c"),
        cluster=ONE_GPU,
        beside=beside_it,
    )
    assert [violation.message for violation in report.violations] == [
        "job b at 0 s: node n0 would hold 2 GPUs of 1 (a, b)",
        "job c at 12 s: node n0 would hold 2 GPUs of 1 (a, c)",
        "job d at 30 s: node n0 would hold 2 GPUs of 1 (a, d)",
    ]


# ------------------------------------------------------------------------------------------------
# what runs now


def test_running_faults_name_what_is_wrong() -> None:
    job = Job(id="a", gpus=2, duration_s=10.0)
    instance = Instance(cluster=Cluster(nodes=equal_nodes(1, gpus=4)), jobs=(job,))
    good = Running(job="a", mode=Mode(gpus=2), placement=place("n0:2g0c"), remaining_s=5.0)
    assert running_faults(instance, good) == []
    assert "its gang is 2" in running_faults(instance, replace(good, mode=ONE))[0]
    assert (
        "holds 1 GPUs on n0"
        in running_faults(instance, replace(good, placement=place("n0:1g0c")))[0]
    )
    early = replace(instance, jobs=(replace(job, submit_s=5.0),))
    assert running_faults(early, good) == [], "a submission after now is told by itself"
    stuck = replace(instance, jobs=(replace(job, profile=Profile(gpus={2: 0.0})),))
    assert running_faults(stuck, good) == ["job a makes no progress where it runs"]


def test_held_faults_count_pairs_once_and_only_true_pairs() -> None:
    pair = tuple(
        Running(job=name, mode=beside(other), placement=place("n0:1g0c"), remaining_s=5.0)
        for name, other in (("a", "b"), ("b", "a"))
    )
    instance = Instance(cluster=ONE_GPU, jobs=(A, B), running=pair)
    assert held_faults(instance) == []
    one_sided = replace(instance, running=(pair[0], replace(pair[1], mode=ONE)))
    assert any("2 GPUs of 1" in fault for fault in held_faults(one_sided))
    alone = replace(instance, running=pair[:1])
    assert held_faults(alone) == [
        "job a shares GPUs with b on node n0 at 0 s, but b does not run then"
    ]
    memory = one_node("n0", gpus=1, memory_gib=10.0)
    heavy = replace(A, profile=replace(HALF, memory_gib_per_gpu=11.0))
    assert any(
        "memory" in fault
        for fault in held_faults(replace(instance, cluster=memory, jobs=(heavy, B)))
    )


def test_slots_of_cpu_only_jobs_count_their_memory() -> None:
    cluster = one_node("n0", memory_gib=10.0)
    one = Job(id="a", gpus=0, memory_gib=6.0, duration_s=10.0)
    part = Segment(start_s=0.0, end_s=10.0, mode=Mode(), placement=(Slot(node="n0"),))
    other = (replace(one, id="b"), entry("b", "start", part))
    assert check(one, part, cluster=cluster).ok
    assert [v.rule for v in check(one, part, cluster=cluster, beside=(other,)).violations] == [
        "memory"
    ]
