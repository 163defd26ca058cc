"""For every kind of violation, plans broken in just that way are rejected by a sentence that says
where."""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import optsched.verify
from optsched import Clock, Instance, JobPlan, Mode, Node, Plan, Segment, Tenant
from optsched.model.cluster import Window
from optsched.objectives import parse
from optsched.verify import verify
from tests.plan_cases import CASES, entry, place, segment

WCT = parse("wct")


def change(plan: Plan, job: str, edit: Callable[[JobPlan], JobPlan]) -> Plan:
    assert any(one.id == job for one in plan.jobs)
    return Plan(jobs=tuple(edit(one) if one.id == job else one for one in plan.jobs))


def segments(*indices: int, **fields: object) -> Callable[[JobPlan], JobPlan]:
    """Replace fields of the segments named (all of them when none is)."""

    def edit(one: JobPlan) -> JobPlan:
        return replace(
            one,
            segments=tuple(
                replace(old, **fields) if not indices or i in indices else old  # type: ignore[arg-type]
                for i, old in enumerate(one.segments)
            ),
        )

    return edit


def mode(**fields: object) -> Callable[[JobPlan], JobPlan]:
    """Replace fields of the mode of every segment."""

    def edit(one: JobPlan) -> JobPlan:
        return replace(
            one,
            segments=tuple(replace(old, mode=replace(old.mode, **fields)) for old in one.segments),
        )

    return edit


def on(*slots: str, at: int = 0) -> Callable[[JobPlan], JobPlan]:
    return segments(at, placement=place(*slots))


def become(decision: str, *parts: Segment) -> Callable[[JobPlan], JobPlan]:
    return lambda one: entry(one.id, decision, *parts)


def shift(by_s: float, decision: str | None = None) -> Callable[[JobPlan], JobPlan]:
    def edit(one: JobPlan) -> JobPlan:
        return JobPlan(
            id=one.id,
            decision=decision or one.decision,
            segments=tuple(  # type: ignore[arg-type]
                replace(old, start_s=old.start_s + by_s, end_s=old.end_s + by_s)
                for old in one.segments
            ),
        )

    return edit


def both(*edits: Callable[[JobPlan], JobPlan]) -> Callable[[JobPlan], JobPlan]:
    def edit(one: JobPlan) -> JobPlan:
        for each in edits:
            one = each(one)
        return one

    return edit


@dataclass(frozen=True)
class Mutation:
    """`rule` is the only one broken; the message must contain every one of `says`, besides the
    job."""

    rule: str
    case: str
    job: str
    edit: Callable[[JobPlan], JobPlan] | None
    says: tuple[str, ...]
    node: str | None = None
    time_s: float | None = None
    plan: Callable[[Plan], Plan] | None = None
    instance: Callable[[Instance], Instance] = lambda instance: instance
    replay: bool = True


def with_job(job: str, **fields: object) -> Callable[[Instance], Instance]:
    return lambda instance: replace(
        instance,
        jobs=tuple(
            replace(one, **fields) if one.id == job else one
            for one in instance.jobs  # type: ignore[arg-type]
        ),
    )


def with_profile(job: str, **fields: object) -> Callable[[Instance], Instance]:
    return lambda instance: with_job(job, profile=replace(instance.job[job].profile, **fields))(
        instance
    )


def with_cluster(**fields: object) -> Callable[[Instance], Instance]:
    return lambda instance: replace(instance, cluster=replace(instance.cluster, **fields))


ONE, TWO, FOUR = Mode(gpus=1), Mode(gpus=2), Mode(gpus=4)
NAN = math.nan

MUTATIONS = (
    Mutation(
        "unknown job",
        "gangs",
        "ghost",
        None,
        (),
        plan=lambda plan: Plan(
            jobs=(*plan.jobs, entry("ghost", "start", segment(0, 1, ONE, "n0:1g0c")))
        ),
    ),
    Mutation(
        "duplicate job",
        "gangs",
        "two",
        None,
        ("two entries",),
        plan=lambda plan: Plan(jobs=(*plan.jobs, plan.jobs[1])),
    ),
    Mutation("no segments", "gangs", "two", become("start"), ("never runs",)),
    Mutation(
        "no segments",
        "gangs",
        "two",
        None,
        ("missing",),
        plan=lambda plan: Plan(jobs=tuple(one for one in plan.jobs if one.id != "two")),
    ),
    Mutation("time", "gangs", "two", segments(end_s=NAN), ("segment 1 goes", "nan", "finite")),
    Mutation("time", "gangs", "two", segments(end_s=math.inf), ("inf", "finite")),
    Mutation("time", "shared", "token", segments(0, end_s=0.0), ("0 s", "end"), time_s=0),
    Mutation("time", "gangs", "two", segments(0, end_s=-3.0), ("0 s", "end"), time_s=0),
    Mutation("unknown node", "gangs", "two", on("n9:2g8c"), ("n9", "0 s"), "n9", 0),
    Mutation(
        "overlap",
        "held",
        "again",
        both(segments(0, end_s=1031.0), segments(1, end_s=1110.0)),
        ("1030 s", "1031 s"),
        time_s=1030,
    ),
    Mutation("past", "held", "back", shift(-1), ("999 s", "now (1000 s)"), time_s=999),
    Mutation("past", "held", "stay", shift(-1), ("999 s", "now (1000 s)"), time_s=999),
    Mutation("release date", "gangs", "late", shift(-3), ("52 s", "55 s"), time_s=52),
    Mutation(
        "mode", "gangs", "two", both(mode(gpus=1), on("n1:1g4c")), ("1 GPUs", "gang is 2"), time_s=0
    ),
    Mutation("mode", "gangs", "two", mode(duration_s=50.0), ("duration", "0 s"), time_s=0),
    Mutation(
        "mode",
        "kinds",
        "grow",
        become("start", segment(0, 6, Mode(gpus=5), "v1:5g0c")),
        ("5 GPUs", "1 to 4"),
        time_s=0,
        instance=with_cluster(
            nodes=tuple(replace(one, gpus=8) for one in CASES["kinds"]()[0].cluster.nodes)
        ),
    ),
    Mutation("mode", "kinds", "list", mode(duration_s=24.0), ("none of those it lists",), time_s=0),
    Mutation(
        "mode",
        "kinds",
        "list",
        become("start", segment(0, 10, Mode(duration_s=10.0, gpus=4), "a1:4g0c")),
        ("none of those it lists",),
        time_s=0,
    ),
    Mutation(
        "mode",
        "shared",
        "cores",
        both(mode(cpus=3), on("n0:0g3c")),
        ("3 cores", "asks for 4"),
        time_s=0,
    ),
    Mutation("mode", "shared", "a", mode(resources={}), ("resources", "licence", "0 s"), time_s=0),
    Mutation(
        "mode",
        "shared",
        "b",
        mode(budgets={"energy": 1.0}),
        ("budgets", "energy", "10 s"),
        time_s=10,
    ),
    Mutation("mode", "shared", "c", mode(budgets={}), ("none of those it lists",), time_s=0),
    Mutation(
        "mode",
        "gangs",
        "two",
        mode(clock_mhz=900),
        ("900 MHz", "measured are none", "0 s"),
        time_s=0,
    ),
    Mutation(
        "mode",
        "clocked",
        "slow",
        mode(clock_mhz=901),
        ("901 MHz", "measured are 900, 1200", "0 s"),
        time_s=0,
    ),
    Mutation(
        "mode",
        "clocked",
        "stay",
        mode(clock_mhz=901),
        ("901 MHz", "measured are 900, 1200", "0 s"),
        time_s=0,
    ),
    Mutation(
        "mode", "clocked", "cool", mode(clock_mhz=900), ("900 MHz", "measured are none"), time_s=0
    ),
    Mutation("mode", "clocked", "list", mode(clock_mhz=900), ("none of those it lists",), time_s=0),
    Mutation(
        "mode",
        "lean",
        "less",
        mode(memory_gib_per_gpu=6.0),
        ("6 GiB of memory beside each GPU", "measured", "are 4, 8", "0 s"),
        time_s=0,
    ),
    Mutation(
        "mode",
        "lean",
        "all",
        mode(memory_gib_per_gpu=12.0),
        ("12 GiB of memory beside each GPU", "measured below", "are 4, 8"),
        time_s=0,
    ),
    Mutation(
        "mode",
        "lean",
        "small",
        mode(gpu_memory_gib=10.0),
        ("10 GiB of each GPU", "measured", "are 12, 16"),
        time_s=0,
    ),
    Mutation(
        "mode", "lean", "grow", mode(gpu_memory_gib=8.0), ("8 GiB of each GPU", "none"), time_s=0
    ),
    Mutation(
        "mode", "lean", "list", mode(memory_gib_per_gpu=4.0), ("none of those it lists",), time_s=25
    ),
    Mutation(
        "mode", "lean", "list", mode(gpu_memory_gib=16.0), ("none of those it lists",), time_s=25
    ),
    Mutation(
        "work",
        "lean",
        "less",
        mode(memory_gib_per_gpu=4.0),
        ("25 s", "7.5 s of its 20 s", "n0"),
        "n0",
        25,
    ),
    Mutation(
        "work",
        "lean",
        "small",
        mode(gpu_memory_gib=12.0),
        ("25 s", "10 s of its 20 s", "n1"),
        "n1",
        25,
    ),
    Mutation(
        "work",
        "lean",
        "guest",
        mode(gpu_memory_gib=5.0),
        ("20 s", "5 s of its 10 s", "n1"),
        "n1",
        20,
    ),
    Mutation(
        "memory",
        "lean",
        "least",
        become("wait", segment(1, 11, Mode(gpus=1, cpus_per_gpu=2), "n0:1g2c")),
        ("40 GiB of memory of 32", "n0", "1 s"),
        "n0",
        1,
    ),
    Mutation(
        "GPU memory",
        "lean",
        "small",
        become("start", segment(0, 20, Mode(gpus=1), "n1:1g0c")),
        ("24 GiB of each GPU", "n1", "16"),
        "n1",
        0,
    ),
    Mutation(
        "GPU memory",
        "lean",
        "guest",
        None,
        ("guest and host need 17 GiB together", "n1", "16"),
        "n1",
        0,
        instance=with_profile("host", gpu_memory_gib=11.0),
    ),
    Mutation(
        "decision",
        "lean",
        "grow",
        lambda one: replace(one, decision="continue"),
        ("0 s", "resize"),
        time_s=0,
    ),
    Mutation(
        "mode",
        "clocked",
        "plain",
        mode(resources={}),
        ("resources {}", "asks for {'power_w': 900.0}"),
        time_s=0,
    ),
    Mutation(
        "mode",
        "clocked",
        "slow",
        mode(resources={"power_w": 150.0}),
        ("asks for {'power_w': 300.0}",),
        time_s=0,
    ),
    Mutation(
        "mode",
        "clocked",
        "fast",
        mode(resources={"power_w": 900.0}),
        ("asks for {'power_w': 950.0}", "32 s"),
        time_s=32,
    ),
    Mutation(
        "placement", "gangs", "two", on("n1:1g4c", "n1:1g4c"), ("n1", "twice", "0 s"), "n1", 0
    ),
    Mutation("placement", "gangs", "two", segments(placement=()), ("no node", "0 s"), time_s=0),
    Mutation("placement", "shared", "cores", segments(placement=()), ("one node", "0 s"), time_s=0),
    Mutation("placement", "shared", "token", on("n0:0g0c"), ("n0", "no node", "0 s"), "n0", 0),
    Mutation(
        "placement",
        "gangs",
        "two",
        on("n0:0g0c", "n1:2g8c"),
        ("n0", "without a GPU", "0 s"),
        "n0",
        0,
    ),
    Mutation(
        "gang",
        "gangs",
        "six",
        on("n0:4g12c", "n1:1g3c"),
        ("5 GPUs", "gang is 6", "n0, n1", "0 s"),
        "n0",
        0,
    ),
    Mutation("gang", "gangs", "two", on("n1:1g4c"), ("1 GPUs", "n1", "0 s"), "n1", 0),
    Mutation("gang", "shared", "cores", on("n0:1g4c"), ("1 GPUs", "n0", "0 s"), "n0", 0),
    Mutation(
        "nodes",
        "gangs",
        "six",
        None,
        ("2 nodes (n0, n1)", "may be on 1 to 1", "0 s"),
        "n0",
        0,
        instance=with_job("six", max_nodes=1),
    ),
    Mutation(
        "nodes",
        "gangs",
        "six",
        None,
        ("different numbers of GPUs", "n0, n1", "equally many"),
        "n0",
        0,
        instance=with_job("six", max_nodes=2),
    ),
    Mutation(
        "gpu type",
        "kinds",
        "small",
        on("a2:2g0c", "v0:2g0c"),
        ("mixes", "a2, v0", "v100", "0 s"),
        "a2",
        0,
    ),
    Mutation(
        "work",
        "kinds",
        "small",
        both(mode(gpu_type=None), on("a2:2g0c", "v0:2g0c"), segments(end_s=30.0)),
        ("30 s", "15 s of its 30 s", "a2"),
        "a2",
        30,
    ),
    Mutation(
        "work",
        "kinds",
        "small",
        both(mode(gpu_type=None), on("a2:2g0c", "v0:2g0c")),
        ("60 s", "although its work is done", "a2"),
        "a2",
        60,
        instance=with_profile("small", mixing="sum"),
    ),
    Mutation(
        "rate",
        "kinds",
        "small",
        both(mode(gpu_type=None), on("a2:2g0c", "v0:2g0c")),
        ("no progress", "a2"),
        "a2",
        0,
        instance=with_profile("small", rate={"a100": 1.0}),
    ),
    Mutation("gpu type", "kinds", "small", on("a2:4g0c"), ("a2", "0 s"), "a2", 0),
    Mutation("gpu type", "shared", "a", mode(gpu_type="a100"), ("n0", "0 s"), "n0", 0),
    Mutation("cores", "gangs", "two", on("n1:2g7c"), ("7 cores", "n1", "takes 8", "0 s"), "n1", 0),
    Mutation(
        "cores",
        "gangs",
        "two",
        both(mode(cpus_per_gpu=6), on("n1:2g12c")),
        ("18 cores of 16", "n1", "0 s"),
        "n1",
        0,
    ),
    Mutation(
        "cores",
        "shared",
        "more",
        None,
        ("8 cores of 7", "n0", "0 s", "cores, more"),
        "n0",
        0,
        instance=with_cluster(nodes=(replace(CASES["shared"]()[0].cluster.nodes[0], cpus=7),)),
    ),
    Mutation(
        "GPU memory",
        "kinds",
        "small",
        None,
        ("20 GiB", "v0", "16", "0 s"),
        "v0",
        0,
        instance=with_profile("small", gpu_memory_gib=20.0),
    ),
    Mutation(
        "GPU memory",
        "pairs",
        "p",
        None,
        ("p and q", "20.5 GiB", "n0", "0 s"),
        "n0",
        0,
        instance=with_profile("q", gpu_memory_gib=12.5),
    ),
    Mutation(
        "rate",
        "kinds",
        "only",
        both(mode(gpu_type="v100"), on("v1:1g0c")),
        ("no progress", "v1", "0 s"),
        "v1",
        0,
    ),
    Mutation(
        "mode",
        "gangs",
        "six",
        both(mode(cpus_per_gpu=0), on("n0:4g0c", "n1:2g0c")),
        ("0 cores per GPU", "1, 2, 3", "0 s"),
        time_s=0,
    ),
    Mutation(
        "rate",
        "pairs",
        "p",
        None,
        ("no progress", "n0", "0 s"),
        "n0",
        0,
        instance=with_profile("p", sharing=None),
    ),
    Mutation(
        "overhead",
        "held",
        "again",
        become("start", segment(1000, 1005, ONE, "n5:1g0c"), segment(1030, 1135, ONE, "n4:1g0c")),
        ("n5", "1000 to 1005 s", "shorter"),
        "n5",
        1000,
        instance=with_job("again", min_run_s=0.0),
    ),
    Mutation(
        "work", "gangs", "two", segments(end_s=49.0), ("49 s", "1 s of its 50 s", "n1"), "n1", 49
    ),
    Mutation(
        "work",
        "gangs",
        "two",
        segments(end_s=50.001),
        ("50.001 s", "n1", "still holds"),
        "n1",
        50.001,
    ),
    Mutation("work", "gangs", "late", segments(end_s=75.0), ("75 s", "5 s of its 20 s"), "n1", 75),
    Mutation("work", "gangs", "apart", segments(end_s=220.0), ("220 s", "n0"), "n0", 220),
    Mutation("work", "held", "stay", segments(end_s=1100.0), ("1100 s", "n0"), "n0", 1100),
    Mutation("work", "held", "back", segments(end_s=1052.0), ("1052 s", "n4"), "n4", 1052),
    Mutation(
        "work",
        "periodic",
        "lose",
        segments(end_s=1045.0),
        ("1045 s", "15 s of its 100 s"),
        "n1",
        1045,
    ),
    Mutation(
        "work",
        "periodic",
        "fresh",
        segments(1, end_s=1067.0),
        ("1067 s", "13 s of its"),
        "n0",
        1067,
    ),
    Mutation(
        "work",
        "periodic",
        "later",
        segments(1, end_s=1070.0),
        ("1070 s", "10 s of its"),
        "n2",
        1070,
    ),
    Mutation("work", "pairs", "r", segments(2, end_s=30.0), ("30 s", "7 s of its 25 s"), "n1", 30),
    Mutation(
        "work",
        "held",
        "again",
        become("start", segment(1000, 1106, ONE, "n5:1g0c"), segment(1110, 1115, ONE, "n4:1g0c")),
        ("1106 s", "n5", "its work is done"),
        "n5",
        1106,
    ),
    Mutation(
        "decision",
        "gangs",
        "two",
        lambda one: replace(one, decision="wait"),
        ("0 s", "wait", "start"),
        time_s=0,
    ),
    Mutation(
        "decision",
        "held",
        "move",
        lambda one: replace(one, decision="continue"),
        ("1000 s", "continue", "migrate"),
        time_s=1000,
    ),
    Mutation(
        "decision",
        "clocked",
        "turn",
        lambda one: replace(one, decision="migrate"),
        ("0 s", "resize"),
        time_s=0,
    ),
    Mutation(
        "decision",
        "held",
        "back",
        lambda one: replace(one, decision="start"),
        ("resume",),
        time_s=1000,
    ),
    Mutation(
        "preemptions",
        "held",
        "stop",
        None,
        ("3 times", "1 are allowed", "1045 s"),
        time_s=1045,
        instance=lambda instance: replace(
            instance,
            running=tuple(
                replace(one, preemptions=2) if one.job == "stop" else one
                for one in instance.running
            ),
        ),
    ),
    Mutation(
        "preemptions",
        "held",
        "back",
        become("resume", segment(1000, 1017, ONE, "n4:1g0c"), segment(1020, 1067, ONE, "n3:1g0c")),
        ("3 times", "2 are allowed", "1067 s"),
        time_s=1067,
        instance=with_job("back", max_preemptions=2),
    ),
    Mutation(
        "preemption",
        "held",
        "move",
        None,
        ("n1", "1000 s", "not preemptible"),
        "n1",
        1000,
        instance=with_job("move", preemptible=False),
    ),
    Mutation(
        "preemption",
        "held",
        "fixed",
        become("wait", segment(1005, 1010, ONE, "n5:1g0c"), segment(1020, 1025, ONE, "n5:1g0c")),
        ("n5", "1010 s", "not preemptible"),
        "n5",
        1010,
    ),
    Mutation(
        "minimum run",
        "held",
        "stop",
        None,
        ("n1", "at 1000 s after 100 s", "is 150 s"),
        "n1",
        1000,
        instance=with_job("stop", min_run_s=150.0),
    ),
    Mutation(
        "minimum run",
        "held",
        "again",
        None,
        ("n5", "at 1022 s after 22 s", "is 23 s"),
        "n5",
        1022,
        instance=with_job("again", min_run_s=23.0),
    ),
    Mutation(
        "checkpoint",
        "held",
        "stop",
        become("preempt", segment(1000, 1002, TWO, "n1:2g0c"), segment(1010, 1045, TWO, "n1:2g0c")),
        ("n1", "1002 s", "1004 s"),
        "n1",
        1002,
    ),
    Mutation(
        "checkpoint",
        "held",
        "move",
        become("migrate", segment(1000, 1035, TWO, "n3:2g0c")),
        ("n1", "1000 s", "1004 s"),
        "n1",
        1000,
    ),
    Mutation(
        "precedence",
        "shared",
        "wait",
        shift(-1),
        ("19 s", "before b", "20 s"),
        time_s=19,
        instance=with_cluster(resources={"licence": 9.0}),
    ),
    Mutation(
        "GPUs",
        "gangs",
        "two",
        both(mode(cpus_per_gpu=1), on("n0:2g2c")),
        ("6 GPUs of 4", "n0", "0 s", "six, two"),
        "n0",
        0,
    ),
    Mutation("GPUs", "gangs", "late", on("n0:2g0c"), ("6 GPUs of 4", "n0", "55 s"), "n0", 55),
    Mutation(
        "GPUs",
        "pairs",
        "q",
        None,
        ("4 GPUs of 2", "n0", "0 s", "p, q"),
        "n0",
        0,
        plan=lambda plan: change(
            change(plan, "p", mode(share_with=None)), "q", mode(share_with=None)
        ),
    ),
    Mutation(
        "memory",
        "gangs",
        "two",
        None,
        ("66 GiB of memory of 64", "n1", "0 s", "six, two"),
        "n1",
        0,
        instance=with_profile("two", memory_gib_per_gpu=25.0),
    ),
    Mutation(
        "memory",
        "shared",
        "more",
        None,
        ("36 GiB of memory of 32", "n0", "0 s"),
        "n0",
        0,
        instance=with_job("more", memory_gib=20.0),
    ),
    Mutation(
        "resource",
        "shared",
        "token",
        None,
        ("0 s", "the cluster", "2 licence of 1", "a, token"),
        time_s=0,
        instance=with_cluster(resources={"licence": 1.0}),
    ),
    Mutation(
        "quota",
        "shared",
        "c",
        None,
        ("0 s", "tenant blue", "3 GPUs", "of 2", "a, c"),
        time_s=0,
        instance=lambda instance: replace(
            instance, tenants=(replace(instance.tenants[0], gpu_quota=2),)
        ),
    ),
    Mutation(
        "resource",
        "clocked",
        "turn",
        None,
        ("0 s", "the cluster", "1950 power_w of 1949"),
        time_s=0,
        instance=with_cluster(resources={"power_w": 1949.0}),
    ),
    Mutation(
        "node label",
        "racks",
        "wide",
        None,
        ("0 s", "label ssd is required"),
        node="n0",
        time_s=0,
        instance=with_job("wide", node_labels={"ssd": "required"}),
    ),
    Mutation(
        "anti-affinity",
        "racks",
        "wide",
        None,
        ("0 s", "rack r0", "two", "label x"),
        time_s=0,
        instance=lambda instance: with_job("two", labels=("x",))(
            with_job("wide", anti_affinity={"x": "rack"})(instance)
        ),
    ),
    Mutation(
        "affinity",
        "racks",
        "next",
        None,
        ("starts at 20 s", "in a rack without", "label x"),
        time_s=20,
        instance=with_job("next", affinity={"x": "rack"}),
    ),
    Mutation(
        "uplink",
        "racks",
        "wide",
        None,
        ("0 s", "the uplink of rack r0", "10 Gbit/s of 9.5", "two, wide"),
        time_s=0,
        instance=with_cluster(rack_uplink_gbps={"r0": 9.5, "r1": 6.0}),
    ),
    Mutation(
        "uplink",
        "racks",
        "next",
        shift(-1),
        ("19 s", "rack r0 would hold 15.5 Gbit/s of 10", "two, wide"),
        time_s=19,
    ),
    Mutation(
        "uplink",
        "racks",
        "inside",
        on("n3:2g0c", "n5:2g0c"),
        ("0 s", "rack r1", "50 Gbit/s of 6"),
        time_s=0,
    ),
    Mutation(
        "uplink",
        "racks",
        "free",
        None,
        ("0 s", "rack r2", "50 Gbit/s of 49"),
        time_s=0,
        instance=with_cluster(rack_uplink_gbps={"r2": 49.0}),
    ),
    Mutation(
        "work",
        "contended",
        "much",
        None,
        ("n0", "35 s", "although its work is done"),
        "n0",
        35,
        plan=lambda plan: change(plan, "half", shift(35, "wait")),
    ),
    Mutation(
        "work",
        "contended",
        "half",
        None,
        ("n1", "30 s", "5 s of its 20 s"),
        "n1",
        30,
        instance=with_profile("half", network_duty=1.0),
    ),
    Mutation(
        "work",
        "contended",
        "much",
        None,
        ("n0", "35 s", "although its work is done"),
        "n0",
        35,
        instance=with_cluster(rack_uplink_gbps={"r0": 12.5, "r1": 20.0}),
    ),
    Mutation(
        "work",
        "contended",
        "busy",
        None,
        ("n1", "57.5 s", "although its work is done"),
        "n1",
        57.5,
        instance=with_profile("busy", memory_duty=0.9),
    ),
    Mutation(
        "work",
        "contended",
        "busy",
        None,
        ("n1", "57.5 s", "1.25 s of its 10 s"),
        "n1",
        57.5,
        plan=lambda plan: change(plan, "host", segments(end_s=60.0)),
        instance=with_job("host", duration_s=12.5),
    ),
    Mutation(
        "work",
        "cached",
        "a2",
        segments(end_s=32.0),
        ("n0", "32 s", "although its work is done"),
        "n0",
        32,
    ),
    Mutation(
        "work", "cached", "c2", segments(end_s=43.0), ("n0", "43 s", "5 s of its 10 s"), "n0", 43
    ),
    Mutation(
        "work", "cached", "c1", segments(end_s=11.0), ("n0", "11 s", "5 s of its 10 s"), "n0", 11
    ),
    Mutation(
        "work",
        "cached",
        "a2",
        None,
        ("n0", "27 s", "5 s of its 10 s"),
        "n0",
        27,
        plan=lambda plan: change(plan, "a1", shift(16, "wait")),
        instance=with_cluster(
            nodes=(
                replace(CASES["cached"]()[0].cluster.nodes[0], gpus=4),
                *CASES["cached"]()[0].cluster.nodes[1:],
            )
        ),
    ),
    Mutation(
        "work",
        "cached",
        "c2",
        None,
        ("n0", "48 s", "although its work is done"),
        "n0",
        48,
        instance=with_cluster(
            nodes=(
                replace(CASES["cached"]()[0].cluster.nodes[0], model_cache_gib=16.0),
                *CASES["cached"]()[0].cluster.nodes[1:],
            )
        ),
    ),
    Mutation(
        "work",
        "cached",
        "b3",
        None,
        ("n1", "15 s", "5 s of its 10 s"),
        "n1",
        15,
        instance=with_cluster(
            nodes=(
                CASES["cached"]()[0].cluster.nodes[0],
                replace(CASES["cached"]()[0].cluster.nodes[1], model_cache_gib=None),
                CASES["cached"]()[0].cluster.nodes[2],
            )
        ),
    ),
    Mutation(
        "work",
        "cached",
        "a4",
        None,
        ("n2", "32 s", "although its work is done"),
        "n2",
        32,
        instance=with_cluster(
            nodes=(
                *CASES["cached"]()[0].cluster.nodes[:2],
                Node(name="n2", gpus=1, model_cache_gib=6.0),
            )
        ),
    ),
    Mutation(
        "quota",
        "loans",
        "more",
        None,
        ("0 s", "tenant blue", "4 GPUs of its quota and loans of 3"),
        time_s=0,
        instance=lambda instance: replace(
            instance, tenants=(replace(instance.tenants[0], borrow_gpus=1), *instance.tenants[1:])
        ),
    ),
    Mutation(
        "quota",
        "loans",
        "more",
        None,
        ("0 s", "tenant all", "4 GPUs of its quota of 3"),
        time_s=0,
        instance=lambda instance: replace(
            instance,
            tenants=(
                replace(instance.tenants[0], parent="group"),
                replace(instance.tenants[1], parent="all"),
                Tenant(name="all", gpu_quota=3),
                Tenant(name="group", parent="all"),
                instance.tenants[2],
            ),
        ),
    ),
    Mutation(
        "borrowing",
        "loans",
        "own",
        shift(-1, "wait"),
        ("9 s", "the tenants with a quota", "5 GPUs of all quotas of 4", "more, own"),
        time_s=9,
    ),
    Mutation(
        "borrowing",
        "loans",
        "more",
        None,
        ("0 s", "4 GPUs of all quotas of 3"),
        time_s=0,
        instance=lambda instance: replace(
            instance,
            tenants=(
                instance.tenants[0],
                replace(instance.tenants[1], gpu_quota=1),
                instance.tenants[2],
            ),
        ),
    ),
    Mutation(
        "budget",
        "shared",
        "c",
        become(
            "start", segment(0, 5, Mode(duration_s=5.0, gpus=1, budgets={"energy": 7.0}), "n0:1g0c")
        ),
        ("15 of budget energy", "there is 10", "0 s"),
        time_s=0,
    ),
    Mutation(
        "sharing",
        "pairs",
        "p",
        mode(share_with="nobody"),
        ("nobody", "0 s", "not in the instance"),
        time_s=0,
    ),
    Mutation("sharing", "pairs", "p", mode(share_with="p"), ("itself", "0 s"), time_s=0),
    Mutation(
        "sharing",
        "pairs",
        "p",
        None,
        ("with q", "n0", "20 s", "q does not run then"),
        "n0",
        20,
        plan=lambda plan: change(plan, "q", segments(end_s=20.0)),
        instance=with_job("q", duration_s=20.0),
    ),
    Mutation(
        "sharing",
        "pairs",
        "p",
        None,
        ("with q", "n0", "0 s", "q does not run then"),
        "n0",
        0,
        plan=lambda plan: change(plan, "q", shift(40, "wait")),
    ),
    Mutation(
        "sharing",
        "pairs",
        "p",
        None,
        ("with q", "n0", "0 s", "q does not run then"),
        "n0",
        0,
        plan=lambda plan: change(
            plan, "q", lambda one: replace(segments(start_s=20.0)(one), decision="wait")
        ),
        instance=with_job("q", duration_s=20.0),
    ),
    Mutation(
        "sharing",
        "pairs",
        "q",
        on("n2:2g0c"),
        ("with p", "n2", "0 s", "same GPUs"),
        "n2",
        0,
        instance=with_cluster(nodes=(*CASES["pairs"]()[0].cluster.nodes, Node(name="n2", gpus=2))),
    ),
    Mutation(
        "sharing",
        "pairs",
        "q",
        None,
        ("with p", "n0", "0 s", "name each other"),
        "n0",
        0,
        plan=lambda plan: change(plan, "p", mode(share_with=None)),
        instance=with_cluster(
            nodes=tuple(replace(one, gpus=4) for one in CASES["pairs"]()[0].cluster.nodes)
        ),
    ),
    Mutation(
        "sharing",
        "pairs",
        "p",
        mode(clock_mhz=900),
        ("with q", "n0", "0 s", "different clocks"),
        "n0",
        0,
        instance=with_profile("p", clocks={900: Clock(rate=1.0, power=1.0)}),
    ),
    Mutation(
        "incident",
        "incidents",
        "lost",
        segments(0, stopped_by="failure"),
        ("does not have", "6 s"),
        "n1",
        6,
    ),
    Mutation(
        "incident",
        "incidents",
        "fails",
        segments(0, stopped_by="outage"),
        ("none of its nodes", "7 s"),
        "n0",
        7,
    ),
    Mutation(
        "incident",
        "incidents",
        "fails",
        segments(1, stopped_by="failure"),
        ("never completes",),
        "n0",
        23,
    ),
    Mutation(
        "incident",
        "incidents",
        "fails",
        become("start", segment(0, 7, ONE, "n0:1g0c")),
        ("completes in an attempt that fails", "7 s"),
        "n0",
        7,
    ),
    Mutation(
        "incident",
        "crowded",
        "dies",
        segments(0, stopped_by="failure"),
        ("does not have", "13 s"),
        "n0",
        13,
    ),
    Mutation(
        "incident",
        "crowded",
        "dies",
        lambda one: replace(one, segments=one.segments[:1]),
        ("want of GPU memory and never completes", "13 s"),
        "n0",
        13,
    ),
    Mutation(
        "incident",
        "crowded",
        "dies",
        None,
        ("want of GPU memory", "that suffices", "13 s"),
        "n0",
        13,
        instance=with_profile("dies", gpu_memory_gib=30.0),
    ),
    Mutation(
        "incident",
        "crowded",
        "dies",
        None,
        ("no plan may intend", "13 s"),
        "n0",
        13,
        replay=False,
        instance=with_profile("dies", gpu_memory_gib=30.0),
    ),
    Mutation(
        "incident",
        "crowded",
        "dies",
        segments(1, end_s=46.0),
        ("3 s after its start, not 4 s", "13 s"),
        "n0",
        13,
        instance=with_profile("dies", startup_s=4.0),
    ),
    Mutation(
        "GPU memory",
        "crowded",
        "dies",
        segments(0, stopped_by=None),
        ("stays", "100 GiB", "80"),
        "n0",
        10,
    ),
    Mutation(
        "outage",
        "incidents",
        "lost",
        lambda one: replace(one, segments=(one.segments[0], segment(15, 25, ONE, "n1:1g0c"))),
        ("n1", "15 s", "lost until 20 s"),
        "n1",
        15,
    ),
    Mutation(
        "window",
        "incidents",
        "lost",
        None,
        ("from 3 to 5 s (new switch)",),
        "n1",
        3,
        instance=with_cluster(
            windows=(Window(nodes=("n1",), from_s=3.0, to_s=5.0, name="new switch"),)
        ),
    ),
    Mutation(
        "objective", "gangs", "", None, ("wct", "finite"), instance=with_job("two", weight=math.inf)
    ),
)


def named(mutation: Mutation) -> str:
    return f"{mutation.rule}-{mutation.case}-{mutation.job}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=named)
def test_a_plan_broken_in_one_way_is_rejected_for_it(mutation: Mutation) -> None:
    instance, plan = CASES[mutation.case]()
    if mutation.edit is not None:
        plan = change(plan, mutation.job, mutation.edit)
    if mutation.plan is not None:
        plan = mutation.plan(plan)
    report = verify(mutation.instance(instance), plan, WCT, replay=mutation.replay)
    assert report.values is None and not report.ok
    assert {violation.rule for violation in report.violations} == {mutation.rule}, list(
        map(str, report.violations)
    )
    told = [one for one in report.violations if one.job == (mutation.job or None)]
    assert told, [str(one) for one in report.violations]
    first = told[0]
    for part in (*([f"job {mutation.job}"] if mutation.job else []), *mutation.says):
        assert part in first.message
    assert first.node == mutation.node
    if mutation.time_s is not None:
        assert first.time_s == pytest.approx(mutation.time_s, abs=1e-4)
    if mutation.node is not None:
        assert mutation.node in first.message


@pytest.mark.parametrize("case", CASES)
def test_the_plans_are_valid_before_they_are_broken(case: str) -> None:
    report = verify(*CASES[case](), WCT, replay=True)
    assert report.ok and report.values is not None


RULE_AT = {"Violation": 0, "broken": 0, "wrong": 0, "_at_node": 0, "_overfull": 2}
"""The position of the rule among the arguments of what makes a violation."""


def rules_in_source() -> set[str]:
    """Return the rule of every violation and of every capacity that is swept, as written in the
    source."""
    found = set()
    for path in Path(optsched.verify.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                at = RULE_AT.get(call.func.id)
                if at is not None and isinstance(call.args[at], ast.Constant):
                    found.add(call.args[at].value)
    return found


def test_every_rule_has_a_mutation() -> None:
    rules = rules_in_source()
    assert len(rules) >= 34
    assert {mutation.rule for mutation in MUTATIONS} == rules
