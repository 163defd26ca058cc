"""Windows in which nodes are not there: nobody runs into one unsaved, the time before is used."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings

from optsched import Cluster, Instance, Job, Node, Profile, Running, Slot
from optsched.bounds import lower_bounds
from optsched.driver.snapshot import snapshot
from optsched.driver.world import World
from optsched.engine import solve
from optsched.explain.inactive import explain_inactive
from optsched.files import check_instance, dump_instance, load_instance
from optsched.files.shape_faults import FaultyFileError
from optsched.model.cluster import Tenant, Window
from optsched.model.job import Mode
from optsched.objectives import parse
from optsched.plugins.registry import policy, solver
from optsched.round.decide import decide
from optsched.simulate.run import Simulation, simulate
from optsched.verify import verify
from tests.clusters import equal_nodes
from tests.policies.test_looking_ahead import drawn
from tests.verified import checked

from .windowed import windowed

WCT = parse("wct")
EVERYONE_OUT = Window(nodes=("n0",), from_s=100.0, to_s=200.0)


def one_node(*jobs: Job, windows: tuple[Window, ...] = (EVERYONE_OUT,), **held: object) -> Instance:
    cluster = Cluster(nodes=(Node(name="n0", gpus=4),), windows=windows)
    instance = Instance(cluster=cluster, jobs=jobs, **held)  # type: ignore[arg-type]
    check_instance(instance)
    return instance


def stays(instance: Instance, name: str = "backfill") -> dict[str, list[tuple[float, float]]]:
    """Return start and end of each stay of each job, in a plan that the verifier accepts."""
    plan = simulate(instance, policy(name))
    checked(instance, plan)
    return {
        entry.id: [(round(own.start_s, 3), round(own.end_s, 3)) for own in entry.segments]
        for entry in plan.jobs
    }


@pytest.mark.parametrize("name", ["backfill", "wspt", "optsched"])
def test_plain_jobs_wait_and_others_fill_the_time(name: str) -> None:
    saves = Job(id="saves", gpus=1, duration_s=300.0, profile=Profile(checkpoint_s=10.0))
    plain = Job(id="plain", gpus=1, duration_s=300.0, preemptible=False)
    short = Job(id="short", gpus=1, duration_s=100.0, preemptible=False)
    assert stays(one_node(saves, plain, short), name) == {
        "saves": [(0.0, 100.0), (200.0, 410.0)],
        "plain": [(200.0, 500.0)],
        "short": [(0.0, 100.0)],
    }


def test_for_whom_a_window_is_kept_it_is_none() -> None:
    reserved = replace(EVERYONE_OUT, users=("ann",), name="reservation")
    own = Job(id="own", gpus=2, user="ann", duration_s=150.0, preemptible=False)
    other = Job(id="other", gpus=2, user="bob", duration_s=150.0, preemptible=False)
    assert stays(one_node(own, other, windows=(reserved,))) == {
        "own": [(0.0, 150.0)],
        "other": [(200.0, 350.0)],
    }


def test_the_window_begins_late_for_who_runs_already_and_cannot_save() -> None:
    mode = Mode(gpus=1)
    held = Running(job="plain", mode=mode, placement=(Slot(node="n0", gpus=1),), remaining_s=150.0)
    plain = Job(id="plain", gpus=1, duration_s=150.0, preemptible=False)
    assert stays(one_node(plain, running=(held,))) == {"plain": [(0.0, 150.0)]}
    saves = replace(plain, preemptible=True)
    assert stays(one_node(saves, running=(held,))) == {"plain": [(0.0, 100.0), (200.0, 250.0)]}


def test_who_is_believed_shorter_than_it_is_saves_in_time_if_it_can() -> None:
    saves = Job(id="saves", gpus=1, duration_s=150.0, profile=Profile(checkpoint_s=10.0))
    plain = Job(id="plain", gpus=1, duration_s=150.0, preemptible=False)
    instance = one_node(saves, plain)
    simulation = Simulation(instance, policy("backfill"), estimates=_Halved())
    simulation.run()
    plan = simulation.record().plan()
    ends = {entry.id: [own.end_s for own in entry.segments] for entry in plan.jobs}
    assert ends["saves"][0] == 100.0 and ends["plain"] == [150.0]
    checked(instance, plan, replay=True)
    assert not verify(instance, plan, WCT).ok  # no plan may intend that


class _Halved:
    """Jobs are believed to be half as long as they are."""

    def work_s(self, job: Job, now_s: float) -> float:
        return job.work_s / 2

    def completed(self, job: Job, work_s: float, now_s: float) -> None:
        pass


@given(instance=windowed())
@settings(max_examples=40)
def test_no_plan_beats_the_bounds_and_the_verifier_finds_who_stays(instance: Instance) -> None:
    bound = lower_bounds(instance, WCT)[0].value
    for name in ("backfill", "srtf"):
        plan = simulate(instance, policy(name))
        report = verify(instance, plan, WCT)
        if report.values is not None:
            assert bound <= report.values[0] + 1e-6 * max(1.0, abs(report.values[0]))


@given(instance=windowed())
@settings(max_examples=40)
def test_a_round_starts_nobody_who_would_meet_a_window(instance: Instance) -> None:
    seen = snapshot(World(instance)).instance
    solution = decide(seen, budget_s=5.0)
    assert not [note for note in solution.notes if "rejected" in note]


@pytest.mark.parametrize("seed", [3, 6, 14, 26])
def test_a_batch_that_is_planned_ahead_obeys_windows(seed: int) -> None:
    draw = random.Random(seed)
    batch = drawn(seed, draw.choice([30.0, 300.0]), jobs=draw.randint(4, 14))
    windows = []
    for _ in range(draw.randint(1, 3)):
        from_s = draw.choice([0.0, 60.0, 400.0, 1500.0])
        nodes = tuple(draw.sample(["n0", "n1"], draw.randint(1, 2)))
        to_s = from_s + draw.choice([80.0, 220.0, 1000.0])
        windows.append(Window(nodes=nodes, from_s=from_s, to_s=to_s))
    instance = replace(batch, cluster=replace(batch.cluster, windows=tuple(windows)))
    checked(instance, simulate(instance, policy("optsched")))


def test_the_verifier_tells_node_job_and_window() -> None:
    saves = Job(id="saves", gpus=1, duration_s=50.0)
    instance = one_node(saves)
    plan = simulate(instance, policy("fifo"))
    entry = plan.jobs[0]
    late = replace(entry.segments[0], start_s=80.0, end_s=130.0)
    moved = replace(plan, jobs=(replace(entry, segments=(late,), decision="wait"),))
    (violation,) = verify(instance, moved, WCT).violations
    assert violation.rule == "window" and "from 100 to 200 s (maintenance)" in violation.message


@pytest.mark.parametrize("name", ["wspt", "fifo", "srtf", "backfill", "optsched"])
def test_the_end_of_a_window_of_less_of_a_resource_is_seen_where_nothing_runs(name: str) -> None:
    cluster = Cluster(
        nodes=(Node(name="n0", gpus=2),),
        resources={"licence": 1.0},
        windows=(Window(from_s=0.0, to_s=7.0, resources={"licence": 0.0}),),
    )
    job = Job(id="j", duration_s=5.0, resources={"licence": 1.0})
    plan = simulate(Instance(cluster=cluster, jobs=(job,)), policy(name))
    assert [segment.start_s for segment in plan.jobs[0].segments] == [7.0]


def test_a_round_says_which_window_a_job_would_meet() -> None:
    plain = Job(id="plain", gpus=1, duration_s=150.0, preemptible=False)
    instance = one_node(plain)
    assert decide(instance).jobs == ()
    explanation = explain_inactive(instance, "plain")
    assert explanation is not None and explanation.sentence == (
        "plain waits: it would run into a window wherever it fits, first into maintenance on n0 in "
        "1 min 40 s."
    )


def test_solvers_of_whole_horizons_plan_beside_windows_or_leave_them_to_policies() -> None:
    plain = Job(id="plain", gpus=1, duration_s=150.0, preemptible=False)
    solution = solve(one_node(plain), solver="milp", time_limit_s=5.0, isolate=False)
    assert solution.value == 350.0 and "there are windows" in str(solution.fallback)
    solution = solve(one_node(plain), solver="cpsat", time_limit_s=60.0, isolate=False)
    assert (solution.value, solution.status, solution.fallback) == (350.0, "optimal", None)


def test_files_name_nodes_as_lists_and_faults_are_told() -> None:
    instance = one_node(Job(id="j", duration_s=1.0))
    assert load_instance(dump_instance(instance)) == instance
    text = dump_instance(instance).replace('"n0"]', '"n[0-1]"]')
    with pytest.raises(FaultyFileError, match=r"'n1' is not in cluster\.nodes"):
        load_instance(text)
    for window, problem in (
        (Window(nodes=(), from_s=0.0, to_s=1.0), "a window of no nodes"),
        (Window(nodes=("n0",), from_s=1.0, to_s=1.0), "over before it begins"),
        (Window(nodes=("n0",), from_s=0.0, to_s=1.0, tenants=("x",)), "'x' is not in tenants"),
        (Window(nodes=("n0",), from_s=math.nan, to_s=1.0), "from_s"),
    ):
        with pytest.raises(FaultyFileError, match=problem):
            one_node(Job(id="j", duration_s=1.0), windows=(window,))


def powered(seed: int) -> Instance:
    """Return 16 GPUs of 300 W under a cap that is 25 % lower for three hours, and 60 jobs."""
    rng = random.Random(seed)
    cluster = Cluster(
        nodes=equal_nodes(4, gpu_type="a", gpus=4),
        resources={"power_w": 4800.0},
        windows=(Window(from_s=3600.0, to_s=14400.0, name="dim", resources={"power_w": 3600.0}),),
    )
    jobs = tuple(
        Job(
            id=f"j{i}",
            submit_s=float(rng.randrange(0, 12000, 100)),
            gpus=rng.choice([1, 1, 2, 4, 8]),
            duration_s=float(rng.choice([300, 1200, 3600, 9000])),
            preemptible=rng.random() < 0.6,
            profile=Profile(checkpoint_s=rng.choice([0.0, 30.0]), power_w={"a": 300.0}),
        )
        for i in range(60)
    )
    return Instance(cluster=cluster, jobs=jobs)


@pytest.mark.parametrize("name", ["backfill", "srtf", "optsched", "tiresias"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_lower_power_cap_is_held_to_the_second(name: str, seed: int) -> None:
    instance = powered(seed)
    check_instance(instance)
    plan = simulate(instance, policy(name))
    checked(instance, plan)
    stays = [segment for entry in plan.jobs for segment in entry.segments]
    drawn = [
        sum(300.0 * own.mode.gpus for own in stays if own.start_s <= at_s < own.end_s)
        for at_s in sorted({own.start_s for own in stays if 3600 <= own.start_s < 14400} | {3600})
    ]
    assert max(drawn) == 3600.0  # no more, and all of it is used


def test_the_verifier_finds_who_holds_more_than_a_window_leaves() -> None:
    instance = powered(1)
    bare = replace(instance, cluster=replace(instance.cluster, windows=()))
    report = verify(instance, simulate(bare, policy("backfill")), WCT)
    assert {violation.rule for violation in report.violations} == {"window"}
    assert "of which" in report.violations[0].message and "3600 are there until 14400 s (dim)" in (
        report.violations[0].message
    )


def test_who_cannot_have_saved_yet_may_hold_more_than_a_window_leaves_until_then() -> None:
    """`short` is done before either can have saved; from then on `long` holds no more than there is
    left, and need not make way. Who does so at first is told by the verifier if another starts."""
    dip = Window(from_s=0.0, to_s=9.0, resources={"power_w": 600.0})
    profile = Profile(power_w={"a": 300.0})
    jobs = tuple(
        Job(id=name, gpus=gpus, duration_s=6.0, min_run_s=least_s, profile=profile)
        for name, gpus, least_s in (("long", 2, 4.0), ("short", 1, 4.0), ("new", 1, 0.0))
    )
    held = tuple(
        Running(
            job=job.id,
            mode=Mode(gpu_type="a", gpus=gpus, resources={"power_w": 300.0 * gpus}),
            placement=(Slot(node="n0", gpus=gpus),),
            remaining_s=left_s,
        )
        for job, gpus, left_s in ((jobs[0], 2, 6.0), (jobs[1], 1, 1.0))
    )
    cluster = Cluster(
        nodes=(Node(name="n0", gpus=4, gpu_type="a"),),
        resources={"power_w": 1500.0},
        windows=(dip,),
    )
    instance = Instance(cluster=cluster, jobs=jobs, running=held)
    check_instance(instance)
    plan = simulate(instance, policy("fifo"))
    checked(instance, plan, replay=True)
    starts_s = {entry.id: entry.segments[0].start_s for entry in plan.jobs}
    assert starts_s == {"long": 0.0, "short": 0.0, "new": 6.0}
    bare = replace(instance, cluster=replace(cluster, windows=()))
    faults = verify(instance, simulate(bare, policy("fifo")), WCT, replay=True).violations
    assert faults[0].job == "new" and "and 600 are there until 9 s" in faults[0].message


def test_others_go_on_while_one_saves_too_late_for_a_window() -> None:
    """What `saves` holds until 2 s is above what is left; `stays` could have left at once, but does
    not need to, and nobody may start beside both."""
    dip = Window(from_s=-1.0, to_s=9.0, quotas={"t": 1})
    jobs = tuple(
        Job(
            id=name,
            submit_s=submit_s,
            gpus=gpus,
            duration_s=6.0,
            tenant="t",
            profile=Profile(checkpoint_s=save_s),
        )
        for name, submit_s, gpus, save_s in (
            ("stays", -9.0, 1, 0.0),
            ("saves", -8.0, 2, 2.0),
            ("new", 0.0, 1, 0.0),
        )
    )
    held = tuple(
        Running(
            job=job.id,
            mode=Mode(gpus=job.gpus),
            placement=(Slot(node="n0", gpus=job.gpus),),
            remaining_s=left_s,
        )
        for job, left_s in ((jobs[0], 1.5), (jobs[1], 6.0))
    )
    cluster = Cluster(nodes=(Node(name="n0", gpus=4),), windows=(dip,))
    tenants = (Tenant(name="t", gpu_quota=4),)
    instance = Instance(cluster=cluster, jobs=jobs, running=held, tenants=tenants)
    check_instance(instance)
    assert isinstance(solver("cpsat").supports(instance, WCT), str)
    plan = simulate(instance, policy("fifo"))
    checked(instance, plan, replay=True)
    ends_s = {entry.id: [segment.end_s for segment in entry.segments] for entry in plan.jobs}
    assert (ends_s["stays"], ends_s["saves"][0], ends_s["new"]) == ([1.5], 2.0, [15.0])
    longer = replace(instance, running=(replace(held[0], remaining_s=6.0), held[1]))
    overlapping = simulate(replace(longer, cluster=replace(cluster, windows=())), policy("fifo"))
    faults = verify(longer, overlapping, WCT, replay=True).violations
    assert {"new", "saves"} >= {fault.job for fault in faults} >= {"new"}


@pytest.mark.parametrize("name", ["backfill", "srtf", "optsched", "philly", "pollux"])
def test_a_lower_quota_is_held_to_the_second(name: str) -> None:
    rng = random.Random(3)
    jobs = tuple(
        Job(
            id=f"j{i}",
            submit_s=float(rng.randrange(0, 6000, 100)),
            tenant=rng.choice(["a", "a", "b"]),
            gpus=rng.choice([1, 1, 2, 4]),
            duration_s=float(rng.choice([300, 1200, 3600])),
            preemptible=rng.random() < 0.6,
            profile=Profile(checkpoint_s=rng.choice([0.0, 30.0])),
        )
        for i in range(40)
    )
    night = Window(from_s=3600.0, to_s=9000.0, name="night", quotas={"a": 5})
    cluster = Cluster(nodes=(Node(name="n0", gpus=8), Node(name="n1", gpus=8)), windows=(night,))
    tenants = (
        Tenant(name="a", gpu_quota=8, borrow_gpus=4),
        Tenant(name="b", gpu_quota=4, borrow_gpus=8),
    )
    instance = Instance(cluster=cluster, tenants=tenants, jobs=jobs)
    plan = simulate(instance, policy(name))
    checked(instance, plan)
    bare = replace(instance, cluster=replace(cluster, windows=()))
    before = verify(instance, simulate(bare, policy(name)), WCT).violations
    assert {violation.rule for violation in before} == {"window"}
    assert "and 5 are there until 9000 s (night)" in before[0].message


def test_others_may_borrow_what_a_lower_quota_leaves() -> None:
    """The round sees it as the simulator does, and leaves what must run where it is."""
    night = Window(from_s=0.0, to_s=90.0, quotas={"a": 1})
    cluster = Cluster(nodes=(Node(name="n0", gpus=8),), windows=(night,))
    tenants = (Tenant(name="a", gpu_quota=4), Tenant(name="b", gpu_quota=2, borrow_gpus=4))
    jobs = (
        *(Job(id=f"a{i}", tenant="a", duration_s=60.0, preemptible=False) for i in range(3)),
        *(Job(id=f"b{i}", tenant="b", duration_s=60.0) for i in range(8)),
    )
    running = tuple(
        Running(job=f"a{i}", mode=Mode(gpus=1), placement=(Slot(node="n0", gpus=1),), remaining_s=9)
        for i in range(2)
    )
    alone = Instance(now_s=10.0, cluster=cluster, tenants=tenants, jobs=jobs)
    for instance, most in ((alone, {"a": 1, "b": 5}), (replace(alone, running=running), {"b": 4})):
        plan = simulate(instance, policy("wspt"))
        decided = decide(instance).jobs
        begun = Counter(
            instance.job[entry.id].tenant for entry in decided if entry.decision == "start"
        )
        assert verify(instance, plan, WCT).ok and begun == most


def test_explain_names_the_window_that_leaves_too_little_and_never_says_never() -> None:
    ahead = "it would run into a window wherever it fits, first into night"
    for begin_s, says in (
        (20.0, f"{ahead} (less of quota of a) in 10 s"),
        (0.0, "window night leaves too little of quota of a for another 1 min 30 s"),
    ):
        night = Window(from_s=begin_s, to_s=100.0, name="night", quotas={"a": 1})
        instance = Instance(
            now_s=10.0,
            cluster=Cluster(nodes=(Node(name="n0", gpus=4),), windows=(night,)),
            tenants=(Tenant(name="a", gpu_quota=4),),
            jobs=(Job(id="j", tenant="a", gpus=2, duration_s=50.0, preemptible=False),),
        )
        explanation = explain_inactive(instance, "j")
        assert explanation is not None and explanation.sentence == f"j waits: {says}."
        assert decide(instance).never == ()


def test_a_lower_cap_is_of_a_resource_that_there_is() -> None:
    lower = Window(from_s=0.0, to_s=1.0, resources={"power_w": 1.0})
    with pytest.raises(FaultyFileError, match="the cluster has no 'power_w'"):
        one_node(Job(id="j", duration_s=1.0), windows=(lower,))
