"""The set `instances/preempt-or-continue-large/`: what proves its optima, and what first decisions
cost on it."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from benchmarks.preempt_or_continue import (
    best_plan,
    check_plan,
    decided,
    load,
    loss,
    names,
    number,
    stored,
    write_optima,
    write_table,
)
from optsched.files import instance_hash
from optsched.model.cluster import Node
from optsched.model.instance import Instance, Placement, Slot
from optsched.model.job import Mode
from optsched.model.plan import Decision, JobPlan, Plan, Segment
from tests.oracles import time_indexed
from tests.oracles.time_indexed import Hold, Optimum

SET = Path(__file__).parents[1] / "instances" / "preempt-or-continue-large"
POLICIES = ("optsched", "srsf", "srtf", "xion", "sjf")
"""Their plans limit the search, and their first decisions are stored with what they cost."""


def oracle(name: str) -> time_indexed.Instance:
    """An instance as the oracle reads it."""
    return time_indexed.Instance(SET / f"{name}.json")


def entry_of(name: str) -> dict[str, Any]:
    """The entry of `optima.json`: the optimum by both solvers, and what the first decisions of
    policies cost at least. Raises AssertionError where the two disagree or the plan breaks a
    rule."""
    instance, own = load(name, SET), oracle(name)
    plans = [best_plan(instance, policy, 10.0) for policy in POLICIES]
    at_most = min(value for value, _ in plans) + 1e-3
    best = time_indexed.optimum(own, at_most=at_most, solver="HIGHS")
    assert best is not None
    again = time_indexed.optimum(own, at_most=best.value, solver="GSCIP")
    assert again is not None and again.value == best.value
    check_plan(instance, plan_of(instance, best), best.value)
    first = {decided(best.decisions): number(best.value)}
    for value, plan in plans:
        assert plan is not None
        decisions: dict[str, str] = {job.id: job.decision for job in plan.jobs}
        if decided(decisions) not in first:
            first[decided(decisions)] = number(value_of(own, decisions, value))
    return {
        "hash": instance_hash(instance),
        "value": number(best.value),
        "first": first,
        "certified_by": ["time-indexed program, HiGHS", "time-indexed program, SCIP"],
    }


def value_of(own: time_indexed.Instance, decisions: Mapping[str, str], value: float) -> float:
    """The best value of a plan with these first decisions, sought up to `value`, and above only
    where there is none: what has it then preempts later as well. A job that starts again where it
    was as soon as it is saved counts as preempted."""
    able = {(choice.job, choice.decision) for choice in own.program(own.horizon_s()).choices}
    fixed = {
        job: decision if (job, decision) in able else "preempt"
        for job, decision in decisions.items()
    }
    best = time_indexed.optimum(own, fixed=fixed, at_most=value + 1e-3)
    best = best or time_indexed.optimum(own, fixed=fixed)
    assert best is not None
    return best.value


def regret(
    name: str, entry: dict[str, Any], decisions: dict[str, str], value: float
) -> tuple[bool, float]:
    """Whether first decisions are optimal: whether some plan that has them costs no more than the
    optimum; and the least loss of one that is known. `value` is that of a verified plan, which may
    preempt later as well, what no plan of the oracle does."""
    best = entry["first"].get(decided(decisions))
    if best is None and value > entry["value"]:
        best = value_of(oracle(name), decisions, value)
    least = max(0.0, loss(value if best is None else min(value, best), entry))
    return least < 1e-9, least


def certify(wanted: list[str], write: bool) -> int:
    """Solve again and compare, or write; returns how many instances fail."""
    known, failed = stored(SET), 0
    for name in names(wanted, SET):
        begun_s = time.process_time()
        entry = entry_of(name)
        differs = {**known.get(name, {}), "first": None} != {**entry, "first": None}
        if write:
            known[name] = entry
            write_optima(SET, {name: known[name] for name in names((), SET) if name in known})
        failed += differs and not write
        print(
            f"{name:13} {entry['value']:10.10g} {next(iter(entry['first']))} "
            f"{time.process_time() - begun_s:.1f} s"
            + ("  !! optima.json says otherwise" if differs and not write else ""),
            flush=True,
        )
    if write:
        write_table(SET, [row(name, load(name, SET), entry) for name, entry in known.items()])
    return failed


def row(name: str, instance: Instance, entry: dict[str, Any]) -> str:
    """One line of the README's table."""
    return (
        f"| {name} | {len(instance.jobs)} | {len(instance.running)} | "
        f"{instance.cluster.total_gpus} | {entry['value']:.10g} | {next(iter(entry['first']))} |"
    )


def plan_of(instance: Instance, best: Optimum) -> Plan:
    """The oracle's plan with the nodes of each job: of those of its place the first that have GPUs
    left."""
    free = _Free(instance.cluster.nodes)
    segments: dict[str, list[Segment]] = defaultdict(list)
    for run in instance.running:
        hold = best.holds[run.job][0]
        free.take(run.placement, hold.end)
        if hold.end > hold.start:
            segments[run.job].append(_segment(hold, run.mode, run.placement))
    for hold, job in sorted(_starts(instance, best), key=lambda pair: (pair[0].start, pair[1])):
        placement = free.place(hold)
        mode = Mode(gpu_type=instance.cluster.node[placement[0].node].gpu_type, gpus=hold.gpus)
        segments[job].append(_segment(hold, mode, placement))
    return Plan(
        jobs=tuple(
            JobPlan(
                id=job.id,
                decision=cast(Decision, best.decisions[job.id]),
                segments=tuple(segments[job.id]),
            )
            for job in instance.jobs
        )
    )


def _starts(instance: Instance, best: Optimum) -> Iterable[tuple[Hold, str]]:
    for job, holds in best.holds.items():
        for hold in holds[job in instance.running_job :]:
            yield hold, job


def _segment(hold: Hold, mode: Mode, placement: Placement) -> Segment:
    return Segment(start_s=hold.start, end_s=hold.end, mode=mode, placement=placement)


class _Free:
    """GPUs of nodes, held until some second."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes
        self.left = {node.name: node.gpus for node in nodes}
        self.held: list[tuple[float, Placement]] = []

    def take(self, placement: Placement, until_s: float) -> None:
        """Hold GPUs."""
        self.held.append((until_s, placement))
        for slot in placement:
            self.left[slot.node] -= slot.gpus

    def place(self, hold: Hold) -> Placement:
        """Return and hold GPUs for a start."""
        for until_s, placement in self.held:
            if until_s <= hold.start:
                for slot in placement:
                    self.left[slot.node] += slot.gpus
        self.held = [entry for entry in self.held if entry[0] > hold.start]
        wanted, slots = hold.gpus, []
        for node in self.nodes:
            if hold.place in (node.name, node.gpu_type or "") and wanted and self.left[node.name]:
                slots.append(Slot(node=node.name, gpus=min(wanted, self.left[node.name])))
                wanted -= slots[-1].gpus
        assert not wanted
        self.take(tuple(slots), hold.end)
        return tuple(slots)
