"""The independent checker of a round: what all jobs hold at one instant, in plain sums."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ..model import Instance, JobPlan, Mode, Placement, Plan, Segment, Window
from ..physics import TIME_TOLERANCE_S, may_preempt, memory_gib, placed_rate
from ..physics.contention import planned_uplinks_gbps
from ..verify.capacity import (
    budgets,
    minds_neighbours,
    neighbours,
    quotas,
    quotas_over,
    rack_uplinks,
    resources,
    sharing,
)
from ..verify.segments import check_segment, same_hold, same_place
from ..verify.violation import Violation, broken
from ..verify.windows import meets_window, needed_until_s
from .plan import JobRound, decision

AMOUNT_TOLERANCE = 1e-6
"""Relative excess of a fractional amount that counts as rounding."""
What = tuple[str, str]
"""A resource, or the GPUs of a tenant."""


def verify_round(
    instance: Instance, jobs: Sequence[JobRound], blocked: Sequence[Placement] = ()
) -> tuple[Violation, ...]:
    """Check every rule of DESIGN 4 and 5 that can be broken at `now_s`. Jobs that are not listed
    hold nothing.

    `blocked` is held by jobs that are being saved. `instance` is as it was given: what its windows
    leave at `now_s` is worked out here.
    """
    seen = {entry.id for entry in jobs}
    violations = list(_misnamed(instance, jobs, seen))
    if not violations:
        for entry in _anew(instance, jobs):
            violations.extend(_job(instance, entry))
    if not violations:
        for running in () if instance.running_job.keys() <= seen else instance.running:
            if running.job not in seen and not may_preempt(instance, running):
                violations.append(
                    Violation("preemption", f"job {running.job} may not be preempted", running.job)
                )
        holding = [entry for entry in jobs if entry.mode is not None]
        violations.extend(_too_much_of_nodes(instance, holding, blocked))
        checks = _together(instance, holding)
        planned = _with_planned_uplinks(instance) if checks else instance
        for check, some in checks:
            violations.extend(check(planned, _as_plan(instance.now_s, some)))
        violations.extend(_beyond_windows(instance, holding))
    return tuple(violations)


def _misnamed(instance: Instance, jobs: Sequence[JobRound], seen: Set[str]) -> Iterator[Violation]:
    """Check that each job is one of the instance and decided once."""
    strangers = () if seen <= instance.job.keys() else seen - instance.job.keys()
    for name in sorted(strangers):
        yield Violation("unknown job", f"job {name} is not in the instance", name)
    if len(seen) < len(jobs):
        for name, times in Counter(entry.id for entry in jobs).items():
            if times > 1:
                yield Violation("duplicate job", f"job {name} is decided twice", name)


def _anew(instance: Instance, jobs: Sequence[JobRound]) -> list[JobRound]:
    """Return all but the jobs that hold the very things that they held already, which were checked
    with the instance, or go on waiting."""
    before = instance.running_job.get
    changed, waiting, ran = [], [], 0
    for entry in jobs:
        if entry.mode is None and entry.decision == "wait" and not entry.placement:
            waiting.append(entry)
            continue
        running = before(entry.id)
        ran += running is not None
        if (
            running is None
            or entry.mode is not running.mode
            or entry.placement is not running.placement
            or entry.decision != "continue"
        ):
            changed.append(entry)
    if ran < len(instance.running_job):  # each is decided once: some that ran wait, or are left out
        changed += [entry for entry in waiting if entry.id in instance.running_job]
    return changed


def _goes_on(instance: Instance, entry: JobRound) -> bool:
    """Return whether a job holds what it held already."""
    running = instance.running_job.get(entry.id)
    return (
        running is not None
        and entry.mode is not None
        and same_place(entry.placement, running.placement)
        and same_hold(entry.mode, running.mode)
    )


def _together(
    instance: Instance, holding: Sequence[JobRound]
) -> list[tuple[Callable[[Instance, Plan], Iterator[Violation]], Sequence[JobRound]]]:
    """Return the plan verifier's checks of what jobs do to each other, other than on single nodes,
    each with those jobs that could break it."""
    held = [mode for entry in holding if (mode := entry.mode) is not None]
    modes = dict(zip(map(id, held), held, strict=True)).values()
    gangs = holding if instance.cluster.rack_uplink_gbps else ()
    checks = (
        (sharing, holding if any(mode.share_with is not None for mode in modes) else ()),
        (resources, holding if any(mode.resources for mode in modes) else ()),
        (rack_uplinks, [own for own in gangs if len(own.placement) > 1]),
        (quotas, holding if instance.tenants else ()),
        (neighbours, holding if minds_neighbours(instance) else ()),
        (budgets, holding if any(mode.budgets for mode in modes) else ()),
    )
    return [(check, some) for check, some in checks if some]


def _beyond_windows(instance: Instance, holding: Sequence[JobRound]) -> Iterator[Violation]:
    """Check that all hold together no more of a resource or quota than a window leaves now, or than
    those that run held before; nor more than one leaves later, if any of them start who would meet
    it before they are done or could have saved."""
    now_s = instance.now_s
    windows = [own for own in instance.cluster.windows if own.lowers and own.to_s > now_s]
    if not windows:
        return
    before = drawn(instance, ((entry.job, entry.mode) for entry in instance.running))
    stay = [entry for entry in holding if _goes_on(instance, entry)]
    starts = [entry for entry in holding if not _goes_on(instance, entry)]
    until_s = {entry.id: _until_s(instance, entry) for entry in starts}
    for window in windows:
        begun = window.from_s <= now_s
        met = [entry for entry in starts if begun or window.from_s < until_s[entry.id]]
        new, after = (drawn(instance, ((e.id, e.mode) for e in own)) for own in (met, stay + met))
        for what, most in limits(window):
            used, limit = after[what], max(most, before[what]) if begun else most
            if used > limit + AMOUNT_TOLERANCE * max(1.0, limit) and new[what]:
                name, tenant = what
                who = f"tenant {tenant}" if tenant else "the cluster"
                when = f"while {window.name} lasts"
                if not begun:
                    when = f"when {window.name} begins at {window.from_s:.12g} s"
                left = f"{used:.12g} {name} of {limit:.12g} {when}"
                yield Violation("window", f"{who} would hold {left}", None, None, now_s)


def _until_s(instance: Instance, entry: JobRound) -> float:
    """Return until when a job that starts now must be able to stay."""
    assert entry.mode is not None
    return needed_until_s(instance, instance.job[entry.id], entry.mode, entry.placement)


def limits(window: Window) -> Iterator[tuple[What, float]]:
    """Return what a window lowers, and to how much."""
    for name, most in window.resources.items():
        yield (name, ""), most
    for tenant, gpus in window.quotas.items():
        yield ("GPUs", tenant), gpus


def drawn(instance: Instance, holding: Iterable[tuple[str, Mode | None]]) -> dict[What, float]:
    """Return what these jobs hold of each resource, and in GPUs of each quota by its tenant."""
    over = {own.name: quotas_over(instance, own) for own in instance.tenants}
    held: dict[What, float] = defaultdict(float)
    for job_id, mode in holding:
        if mode is None:
            continue
        for name, amount in mode.resources.items():
            held[name, ""] += amount
        for tenant in over.get(instance.job[job_id].tenant or "", ()):
            held["GPUs", tenant] += mode.gpus
    return held


def _with_planned_uplinks(instance: Instance) -> Instance:
    """Return the instance with uplinks that hold as much as those who plan may fill."""
    cluster = instance.cluster
    if cluster.uplinks == "reserved" or not cluster.rack_uplink_gbps:
        return instance
    links = dict(planned_uplinks_gbps(instance))
    return replace(instance, cluster=replace(cluster, uplinks="reserved", rack_uplink_gbps=links))


def _now(entry: JobRound, now_s: float) -> Segment:
    """Return what a job holds, for a second."""
    assert entry.mode is not None
    return Segment(start_s=now_s, end_s=now_s + 1.0, mode=entry.mode, placement=entry.placement)


def _as_plan(now_s: float, holding: Sequence[JobRound]) -> Plan:
    return Plan(
        jobs=tuple(
            JobPlan(id=entry.id, decision="start", segments=(_now(entry, now_s),))
            for entry in holding
        )
    )


def _job(instance: Instance, entry: JobRound) -> Iterator[Violation]:
    now_s, job = instance.now_s, instance.job[entry.id]
    running, goes_on = instance.running_job.get(entry.id), _goes_on(instance, entry)
    expected = decision(instance, entry.id, entry.mode, entry.placement)
    if entry.decision != expected:
        says = f"is said to {entry.decision}, what it holds says {expected}"
        yield broken("decision", job.id, says, now_s)
    if running is not None and not goes_on and not may_preempt(instance, running):
        yield broken("preemption", job.id, f"may not be preempted at {now_s:.12g} s", now_s)
    if entry.mode is not None:
        yield from _held(instance, entry, goes_on)
    elif entry.placement:
        yield broken("placement", job.id, "has a placement but no mode", now_s)


def _held(instance: Instance, entry: JobRound, goes_on: bool) -> Iterator[Violation]:
    """Check what a job holds by itself."""
    now_s, job, now = instance.now_s, instance.job[entry.id], _now(entry, instance.now_s)
    for slot in entry.placement:
        if slot.node not in instance.cluster.node:
            says = f"is placed on node {slot.node}, which does not exist"
            yield broken("unknown node", job.id, says, now_s, slot.node)
            return
    if entry.id not in instance.running_job and job.after:
        says = f"starts before {job.after[0]} has completed"
        yield broken("precedence", job.id, says, now_s)
    if now.mode.shared_gpus:
        yield broken("sharing", job.id, "shares some of its GPUs, which no round decides", now_s)
        return
    partner = now.mode.share_with
    if partner == job.id:
        yield broken("sharing", job.id, "shares GPUs with itself", now_s)
    wrong = list(check_segment(instance, job, now, now_s - TIME_TOLERANCE_S, goes_on))
    yield from wrong
    is_known = partner is None or partner in instance.job
    if not wrong and is_known and placed_rate(instance, job, now.mode, now.placement) <= 0:
        yield broken("progress", job.id, "would make no progress", now_s)
    elif not wrong and is_known and not goes_on:
        yield from meets_window(instance, job, now.mode, now.placement)


def _too_much_of_nodes(
    instance: Instance, holding: Sequence[JobRound], blocked: Sequence[Placement]
) -> Iterator[Violation]:
    """Check GPUs, cores and memory of each node, as plain sums: a sweep over time is slower."""
    nodes = instance.cluster.nodes
    slots = [slot for entry in holding for slot in entry.placement]
    owner = np.repeat(
        np.arange(len(holding)), np.array([len(own.placement) for own in holding], dtype=int)
    )
    modes = [mode for entry in holding if (mode := entry.mode) is not None]
    # the GPUs of a pair count once, with the first of it
    partner = [mode.share_with for mode in modes]
    once = [name is None or own.id < name for name, own in zip(partner, holding, strict=True)]
    gpus, cores = _amounts([slot.gpus for slot in slots]), _amounts([slot.cpus for slot in slots])
    gib = np.zeros(len(slots))
    if any(node.memory_gib is not None for node in nodes):
        jobs = [instance.job[entry.id] for entry in holding]
        one_gib = _amounts(
            [memory_gib(job, mode, 1) for job, mode in zip(jobs, modes, strict=True)]
        )
        alone = np.array([mode.gpus == 0 for mode in modes], dtype=bool)
        gib = one_gib[owner] * np.where(alone[owner], 1.0, gpus)
    saving = [*chain.from_iterable(blocked)]
    number = instance.cluster.node_order
    where = np.array([number[slot.node] for slot in (*slots, *saving)], dtype=int)
    gpus = np.where(np.array(once, dtype=bool)[owner], gpus, 0.0)
    for rule, unit, amounts, saved, limits in (
        ("GPUs", "GPUs", gpus, [slot.gpus for slot in saving], [node.gpus for node in nodes]),
        ("cores", "cores", cores, [slot.cpus for slot in saving], [node.cpus for node in nodes]),
        ("memory", "GiB of memory", gib, [0] * len(saving), [node.memory_gib for node in nodes]),
    ):
        used = np.bincount(where, np.concatenate([amounts, _amounts(saved)]), minlength=len(nodes))
        most = _amounts([np.inf if limit is None else limit for limit in limits])
        for n in np.flatnonzero(used > most + AMOUNT_TOLERANCE * np.maximum(1.0, most)).tolist():
            text = f"node {nodes[n].name} would hold {used[n]:.12g} {unit} of {most[n]:.12g}"
            yield Violation(rule, text, None, nodes[n].name)


def _amounts(of_slots: Sequence[float]) -> NDArray[np.float64]:
    return np.array(of_slots, dtype=float)
