"""For every rule of a round, rounds broken in just that way are rejected by a sentence that says
where."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import optsched.round.verify
from optsched import Cluster, Instance, Locality, Mode, Node, Running
from optsched.model.cluster import Window
from optsched.model.instance import Placement
from optsched.round.decide import decide
from optsched.round.plan import JobRound
from optsched.round.verify import verify_round
from optsched.verify.windows import meets_window

from .round_cases import CASES, Case, holds, place

Edit = Callable[[Instance, tuple[JobRound, ...]], Case]
ONE, TWO = Mode(gpu_type="a", gpus=1), Mode(gpu_type="a", gpus=2)
START = Mode(
    gpu_type="a", gpus=2, cpus_per_gpu=2, resources={"licence": 1.0}, budgets={"money": 4.0}
)


@dataclass(frozen=True)
class Mutation:
    """`rule` is the only one broken; the messages together must contain every one of `says`."""

    rule: str
    case: str
    edit: Edit
    says: tuple[str, ...]
    blocked: tuple[Placement, ...] = ()


def to(*entries: JobRound) -> Edit:
    """Replace the entries of the jobs named, and add those of others."""

    def edit(instance: Instance, jobs: tuple[JobRound, ...]) -> Case:
        new = {entry.id: entry for entry in entries}
        known = {entry.id for entry in jobs}
        return instance, (
            *(new.get(entry.id, entry) for entry in jobs),
            *(entry for entry in entries if entry.id not in known),
        )

    return edit


def drop(job: str) -> Edit:
    return lambda instance, jobs: (instance, tuple(entry for entry in jobs if entry.id != job))


def with_job(job: str, **fields: object) -> Edit:
    return lambda instance, jobs: (
        replace(
            instance,
            jobs=tuple(
                replace(one, **fields) if one.id == job else one
                for one in instance.jobs  # type: ignore[arg-type]
            ),
        ),
        jobs,
    )


def with_profile(job: str, **fields: object) -> Edit:
    return lambda instance, jobs: with_job(
        job, profile=replace(instance.job[job].profile, **fields)
    )(instance, jobs)


def with_cluster(**fields: object) -> Edit:
    return lambda instance, jobs: (
        replace(instance, cluster=replace(instance.cluster, **fields)),
        jobs,  # type: ignore[arg-type]
    )


def with_nodes(**fields: object) -> Edit:
    """Change the nodes that have GPUs."""
    return lambda instance, jobs: with_cluster(
        nodes=tuple(
            replace(one, **fields) if one.gpus else one
            for one in instance.cluster.nodes  # type: ignore[arg-type]
        )
    )(instance, jobs)


def both(*edits: Edit) -> Edit:
    def edit(instance: Instance, jobs: tuple[JobRound, ...]) -> Case:
        for one in edits:
            instance, jobs = one(instance, jobs)
        return instance, jobs

    return edit


def with_tenant(name: str, **fields: object) -> Edit:
    return lambda instance, jobs: (
        replace(
            instance,
            tenants=tuple(
                replace(one, **fields) if one.name == name else one
                for one in instance.tenants  # type: ignore[arg-type]
            ),
        ),
        jobs,
    )


def on(job: str, *slots: str) -> Edit:
    return lambda instance, jobs: (
        instance,
        tuple(
            replace(entry, placement=place(*slots)) if entry.id == job else entry for entry in jobs
        ),
    )


def lowered(**limits: object) -> Edit:
    """Add a window that lasts now, beside one that is over."""
    now = Window(from_s=0.0, to_s=1e9, **limits)  # type: ignore[arg-type]
    over = Window(from_s=0.0, to_s=0.0, resources={"licence": 0.0}, quotas={"t": 0})
    return with_cluster(windows=(over, now))


MUTATIONS = (
    Mutation("unknown job", "busy", to(holds("ghost", "start", ONE, "n1:1g0c")), ("job ghost",)),
    Mutation(
        "duplicate job",
        "busy",
        lambda instance, jobs: (instance, (*jobs, jobs[-1])),
        ("job cores", "twice"),
    ),
    Mutation("decision", "busy", to(holds("wait", "preempt")), ("job wait", "preempt", "wait")),
    Mutation("decision", "busy", to(holds("leave", "wait")), ("job leave", "preempt")),
    Mutation(
        "decision", "busy", to(holds("resume", "start", ONE, "n1:1g0c")), ("job resume", "resume")
    ),
    Mutation(
        "decision", "busy", to(holds("move", "continue", ONE, "n0:1g0c")), ("job move", "migrate")
    ),
    Mutation(
        "decision",
        "busy",
        to(holds("stay", "resize", Mode(gpu_type="a", gpus=2, cpus_per_gpu=4), "n0:2g8c")),
        ("job stay", "continue"),
    ),
    Mutation("preemption", "busy", with_job("leave", preemptible=False), ("job leave",)),
    Mutation("preemption", "busy", with_job("move", max_preemptions=0), ("job move",)),
    Mutation("preemption", "busy", with_job("grow", min_run_s=1001.0), ("job grow", "1000 s")),
    Mutation(
        "preemption",
        "busy",
        both(with_job("leave", preemptible=False), drop("leave")),
        ("job leave",),
    ),
    Mutation(
        "placement", "busy", to(holds("wait", "wait", None, "n0:1g0c")), ("job wait", "no mode")
    ),
    Mutation("placement", "busy", on("cores"), ("job cores", "one node")),
    Mutation(
        "placement",
        "busy",
        on("resume", "n1:1g0c", "n2:0g0c"),
        ("job resume", "n2", "without a GPU"),
    ),
    Mutation("unknown node", "busy", on("resume", "n9:1g0c"), ("job resume", "n9")),
    Mutation(
        "precedence",
        "busy",
        both(to(holds("next", "start", ONE, "n1:1g0c")), drop("resume")),
        ("job next", "wait"),
    ),
    Mutation(
        "release date",
        "busy",
        both(to(holds("later", "start", ONE, "n1:1g0c")), drop("resume")),
        ("job later", "2000 s"),
    ),
    Mutation(
        "mode",
        "busy",
        to(holds("resume", "resume", Mode(gpu_type="a", gpus=1, cpus_per_gpu=3), "n1:1g3c")),
        ("job resume", "3 cores per GPU"),
    ),
    Mutation(
        "mode",
        "busy",
        to(holds("grow", "resize", Mode(gpu_type="a", gpus=3), "n2:3g0c")),
        ("job grow", "3 GPUs"),
    ),
    Mutation(
        "mode",
        "busy",
        to(holds("start", "start", replace(START, resources={}), "n1:2g4c")),
        ("job start", "licence"),
    ),
    Mutation("gang", "busy", on("grow", "n2:3g0c"), ("job grow", "3 GPUs", "gang is 4")),
    Mutation(
        "gpu type",
        "busy",
        both(
            with_cluster(
                nodes=(
                    *(
                        Node(name=f"n{i}", gpu_type="a", gpus=4, cpus=16, memory_gib=64.0)
                        for i in range(2)
                    ),
                    Node(name="n2", gpu_type="b", gpus=4),
                    Node(name="host", cpus=8, memory_gib=16.0),
                )
            )
        ),
        ("job grow", "GPUs of node n2"),
    ),
    Mutation(
        "GPU memory",
        "busy",
        with_profile("start", gpu_memory_gib=41.0),
        ("job start", "41 GiB", "n1"),
    ),
    Mutation("cores", "busy", on("start", "n1:2g5c"), ("job start", "5 cores", "takes 4")),
    Mutation(
        "progress", "busy", with_profile("resume", rate={"b": 1.0}), ("job resume", "no progress")
    ),
    Mutation(
        "progress",
        "racks",
        with_profile("one", locality=Locality(cluster=0.0)),
        ("job one", "no progress"),
    ),
    Mutation("GPUs", "busy", on("move", "n2:1g0c"), ("n2", "5 GPUs of 4")),
    Mutation(
        "GPUs", "busy", lambda *case: case, ("n0", "5 GPUs of 4"), blocked=(place("n0:2g0c"),)
    ),
    Mutation(
        "cores",
        "busy",
        with_cluster(
            nodes=(
                *(
                    Node(name=f"n{i}", gpu_type="a", gpus=4, cpus=16, memory_gib=64.0)
                    for i in range(3)
                ),
                Node(name="host", cpus=5, memory_gib=16.0),
            )
        ),
        ("host", "6 cores of 5"),
    ),
    Mutation(
        "cores", "busy", lambda *case: case, ("n1", "17 cores of 16"), blocked=(place("n1:0g13c"),)
    ),
    Mutation(
        "memory",
        "busy",
        with_profile("start", memory_gib_per_gpu=33.0),
        ("n1", "66 GiB of memory of 64"),
    ),
    Mutation(
        "memory", "busy", with_job("cores", memory_gib=17.0), ("host", "17 GiB of memory of 16")
    ),
    Mutation(
        "resource",
        "busy",
        with_cluster(resources={"licence": 0.5}),
        ("1 licence of 0.5", "job start"),
    ),
    Mutation("budget", "busy", with_cluster(budgets={"money": 3.0}), ("4 of budget money", "3")),
    Mutation(
        "uplink",
        "racks",
        with_cluster(rack_uplink_gbps={"r0": 7.5}),
        ("the uplink of rack r0", "8 Gbit/s of 7.5"),
    ),
    Mutation(
        "uplink", "racks", with_cluster(rack_uplink_gbps={"r0": 10.0, "r1": 4.0}), ("rack r1",)
    ),
    Mutation("quota", "busy", with_tenant("t", gpu_quota=1), ("tenant t", "2 GPUs", "quota of 1")),
    Mutation(
        "quota",
        "loans",
        both(with_tenant("t", gpu_quota=1), with_tenant("u", gpu_quota=3)),
        ("tenant t", "3 GPUs", "quota and loans of 2"),
    ),
    Mutation(
        "quota",
        "loans",
        both(
            with_tenant("u", gpu_quota=3),
            with_tenant("t", gpu_quota=None, parent="u", borrow_gpus=0),
        ),
        ("tenant u", "4 GPUs", "quota of 3"),
    ),
    Mutation("window", "busy", lowered(resources={"licence": 0.5}), ("1 licence of 0.5",)),
    Mutation("window", "loans", lowered(quotas={"u": 0}), ("tenant u would hold 1 GPUs of 0",)),
    Mutation("borrowing", "loans", with_tenant("u", gpu_quota=1), ("4 GPUs of all quotas of 3",)),
    Mutation("sharing", "shared", drop("q"), ("job p", "shares GPUs with q")),
    Mutation("sharing", "shared", on("q", "n1:2g0c"), ("job p", "same GPUs")),
    Mutation(
        "sharing", "shared", to(holds("q", "start", TWO, "n1:2g0c")), ("job p", "name each other")
    ),
    Mutation(
        "sharing",
        "shared",
        both(drop("q"), to(holds("p", "start", replace(TWO, share_with="p"), "n0:2g0c"))),
        ("job p",),
    ),
    Mutation(
        "sharing",
        "shared",
        to(holds("q", "start", replace(TWO, share_with="p", clock_mhz=900), "n0:2g0c")),
        ("job q", "different clocks"),
    ),
    Mutation(
        "sharing",
        "shared",
        both(
            drop("q"), to(holds("p", "start", replace(TWO, shared_gpus={"nobody": 1}), "n0:2g0c"))
        ),
        ("job p", "no round decides"),
    ),
    Mutation(
        "GPU memory", "shared", with_profile("q", gpu_memory_gib=17.5), ("32.5 GiB", "n0", "32")
    ),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.rule}-{one.case}")
def test_a_round_broken_in_one_way_is_rejected_for_it(mutation: Mutation) -> None:
    found = verify_round(*mutation.edit(*CASES[mutation.case]()), mutation.blocked)
    assert {violation.rule for violation in found} == {mutation.rule}, list(map(str, found))
    told = "\n".join(violation.message for violation in found)
    for part in mutation.says:
        assert part in told


@pytest.mark.parametrize("case", CASES)
def test_the_rounds_are_valid_before_they_are_broken(case: str) -> None:
    assert not verify_round(*CASES[case]())


def test_a_job_that_is_not_listed_holds_nothing() -> None:
    instance, jobs = CASES["busy"]()
    assert not verify_round(
        instance, tuple(entry for entry in jobs if entry.id not in ("wait", "leave", "move"))
    )


def test_what_is_being_saved_is_held() -> None:
    instance, jobs = CASES["busy"]()
    assert not verify_round(instance, jobs, (place("n0:1g8c"),))


def test_a_cluster_without_nodes() -> None:
    instance = Instance(cluster=Cluster())
    assert not verify_round(instance, ())


def test_jobs_that_no_window_is_near_are_not_asked_how_long_they_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a round of 100,000 jobs that took more time than all else."""
    monkeypatch.setitem(meets_window.__globals__, "least_stay_s", None)
    instance, jobs = CASES["busy"]()
    elsewhere = Window(nodes=("elsewhere",), from_s=0.0, to_s=1e9)
    cluster = replace(instance.cluster, windows=(elsewhere,))
    assert not verify_round(replace(instance, cluster=cluster), jobs)


def test_what_runs_may_hold_more_than_a_window_leaves_and_no_more_beside_it() -> None:
    gang = Mode(gpu_type="a", gpus=3)
    instance, jobs = CASES["loans"]()
    runs = Running(job="big", mode=gang, placement=place("n0:3g0c"), remaining_s=5.0)
    goes_on = holds("big", "continue", gang, "n0:3g0c"), jobs[1]
    instance, jobs = lowered(quotas={"t": 1})(replace(instance, running=(runs,)), goes_on)
    assert not verify_round(instance, jobs)
    both_of_t = tuple(replace(job, tenant="t") for job in instance.jobs)
    assert [fault.rule for fault in verify_round(replace(instance, jobs=both_of_t), jobs)] == [
        "quota",
        "window",
    ]


def test_a_fault_in_what_windows_leave_now_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, _ = lowered(quotas={"t": 2})(*CASES["loans"]())
    found = decide(instance)
    assert [entry.id for entry in found.jobs if entry.mode] == ["own"] and not found.notes
    monkeypatch.setattr("optsched.round.decide.at_present", lambda whole: whole)
    found = decide(instance)
    assert not any(entry.mode for entry in found.jobs if entry.id == "big")
    assert any("tenant t would hold 3 GPUs of 2" in note for note in found.notes), found.notes


def rules_in_source() -> set[str]:
    """The rule of every `Violation(...)`, and of every sum that is compared with what there is."""
    tree = ast.parse(Path(optsched.round.verify.__file__).read_text())
    found = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("Violation", "broken")
        ):
            found |= {one.value for one in node.args[:1] if isinstance(one, ast.Constant)}
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            found |= {one.elts[0].value for one in node.iter.elts}  # type: ignore[attr-defined]
    return found


def test_every_rule_has_a_mutation() -> None:
    rules = rules_in_source()
    assert len(rules) >= 11
    of_segments = {"release date", "mode", "gang", "gpu type"}  # see optsched/verify/segments.py
    of_all = {"resource", "budget", "uplink", "quota", "borrowing", "GPU memory"}  # and capacity.py
    assert {mutation.rule for mutation in MUTATIONS} == rules | of_segments | of_all
