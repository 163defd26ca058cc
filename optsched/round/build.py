"""Builds the round model of an instance: facts of the jobs, their options, the values."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..cluster import gpu_caps
from ..errors import InputError
from ..instance import Instance, Placement, Running
from ..job import Job
from ..objectives import Objective, fastest_s, isolated_s
from ..physics import (
    TIME_TOLERANCE_S,
    hold_to_save_s,
    lost_s,
    may_preempt,
    placed_rate,
    power_w,
    remaining_after_preemption_s,
    unsaved_s,
)
from .held import Held, held_by
from .model import Floats, Ints, Kind, RoundModel, is_second
from .patterns import NodeClass, Pattern, node_classes, patterns
from .rows import build_rows
from .sharing import Pinned, pinned_options
from .spare import SpareRoom
from .value import Jobs, Ways, option_values

SHORTEST_S = 1e-3
"""No time to completion counts as less."""
SETTLE = 10.0
"""A job that was preempted before is left alone until it has run this many times what a preemption costs it."""


@dataclass(slots=True)
class _Facts:
    """Columns of the active jobs, in the order of the instance."""

    jobs: list[Job] = field(default_factory=list)
    running: list[Running | None] = field(default_factory=list)
    patterns: list[tuple[Pattern, ...]] = field(default_factory=list)
    never: list[Job] = field(default_factory=list)


def build(
    instance: Instance,
    objective: Objective,
    round_s: float,
    *,
    refill: bool = True,
    blocked: Sequence[Placement] = (),
    reserved: Sequence[tuple[Placement, float]] = (),
    keep: Collection[str] = (),
) -> RoundModel:
    """The round model of a checked instance at `now_s`.

    `round_s` is the time until jobs are looked at again. With `refill`, GPUs that come free in between are given to
    others at once (decisions are made at events); without, they stay idle (see `value`). `blocked` is held by jobs
    that are being saved and come free during the round. `reserved` are places promised to a job some seconds from
    now: until then others may use them if they are done by then (backfill); the rows do not see this, only packing.
    `keep` are running jobs that must be kept for reasons of their own.

    A running job must be kept where its own rules forbid its preemption, and where it would complete before it could
    be saved. One that was preempted before must also be kept until it has run, since it came back, `SETTLE` times as
    long as a preemption costs it (checkpoint, restore, start-up and lost work), and a move to where it runs faster
    must earn back its cost in the time that the job has had in peace. So whatever is decided, a job is preempted at
    most 1 + t / (SETTLE c) times in t seconds of running if each time costs c, and loses at most c + t / SETTLE.
    """
    facts = _facts(instance)
    classes, class_of = node_classes(instance.cluster)
    count = len(facts.jobs)
    kept = np.array([j for j, entry in enumerate(facts.running) if entry is not None], dtype=np.int64)

    # ---- what the patterns of each demand take, concatenated
    start_of: dict[int, int] = {}
    flat: list[Pattern] = []
    pattern_first = np.zeros(count, dtype=np.int64)
    pattern_count = np.zeros(count, dtype=np.int64)
    for j, own in enumerate(facts.patterns):
        at = start_of.get(id(own))
        if at is None:
            at = start_of[id(own)] = len(flat)
            flat.extend(own)
        pattern_first[j], pattern_count[j] = at, len(own)

    # ---- facts of running jobs
    cluster = instance.cluster
    is_running = np.zeros(count, dtype=bool)
    is_running[kept] = True
    held = held_by(instance, class_of, [(facts.jobs[j], facts.running[j]) for j in kept], blocked)
    save_s = np.zeros(count)
    lost_work = np.zeros(count)
    lost_time = np.zeros(count)
    setup_left = np.zeros(count)
    rate_now = np.ones(count)
    must = np.zeros(count, dtype=bool)
    profile = [one.profile for one in facts.jobs]
    load_s = np.array([one.startup_s for one in profile]) if count else np.zeros(0)
    restore_s = np.array([one.restore_s for one in profile]) if count else np.zeros(0)
    suspended = instance.suspended_job
    ran = is_running | np.array([one.id in suspended for one in facts.jobs], dtype=bool)
    load_s = load_s + np.where(ran, restore_s, 0.0)
    remaining = np.array([instance.remaining_s(one) for one in facts.jobs], dtype=float)
    for j in kept:
        entry, one = facts.running[j], facts.jobs[j]
        assert entry is not None
        rate_now[j] = placed_rate(instance, one, entry.mode, entry.placement)
        save_s[j] = hold_to_save_s(one)
        if one.profile.checkpoint_every_s is not None:
            lost_time[j] = lost_s(one, unsaved_s(entry, instance.now_s))
            lost_work[j] = remaining_after_preemption_s(instance, entry) - entry.remaining_s
        setup_left[j] = entry.setup_s
        ran_enough = not entry.preemptions or instance.now_s - entry.started_s >= (
            SETTLE * (save_s[j] + load_s[j] + lost_time[j]) - TIME_TOLERANCE_S
        )
        must[j] = (
            not may_preempt(instance, entry) or not ran_enough or not facts.patterns[j]
            or one.id in keep
        )
    finish_keep = setup_left + remaining / rate_now
    must[kept] |= finish_keep[kept] <= save_s[kept]

    # ---- options: keep first, then every pattern, unless the job must be kept
    pattern_count[must] = 0
    per_job = pattern_count + is_running
    first = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(per_job, out=first[1:])
    job = np.repeat(np.arange(count), per_job)
    position = np.arange(len(job)) - first[job] - is_running[job]
    pattern = pattern_first[job] + position
    pinned = pinned_options(instance, facts.jobs, facts.running, facts.patterns)
    pinned = [one for one in pinned if not must[one.job] and not (one.kind == Kind.ALONE and must[one.partner])]
    keeps = first[kept]
    kind = np.where(is_running[job], np.int8(Kind.MOVE), np.int8(Kind.START)).astype(np.int8)
    kind[keeps] = Kind.KEEP
    pattern[keeps] = len(flat) + np.arange(len(kept))

    # ---- seconds to completion
    rate = np.ones(len(job))
    fresh = np.ones(len(job), dtype=bool)
    fresh[keeps] = False
    flat_rate = np.array([one.option.rate for one in flat], dtype=float)
    rate[fresh] = flat_rate[pattern[fresh]]
    rate[keeps] = rate_now[kept]
    finish_s = save_s[job] + load_s[job] + (remaining + lost_work)[job] / rate
    finish_s[keeps] = finish_keep[kept]
    swap_s = finish_s - save_s[job]
    cost_s = save_s + load_s + lost_time
    extra = SpareRoom(cluster, classes, held).swap_costs(flat, (cost_s - setup_left)[kept], ~must[kept])
    swap_s[fresh] += extra[pattern[fresh]]
    swap_s[first[:-1][must]] = finish_s[first[:-1][must]]  # nothing is weighed against a job that must be kept
    finish_s, swap_s = np.maximum(finish_s, SHORTEST_S), np.maximum(swap_s, SHORTEST_S)

    # ---- options on the GPUs of running jobs, behind the others of their job
    own = np.arange(len(job))
    extra_job = np.array([one.job for one in pinned], dtype=np.int64)
    at = np.argsort(np.concatenate([job, extra_job]), kind="stable")
    where = np.empty(len(at), dtype=np.int64)
    where[at] = np.arange(len(at))
    keeps, pins = where[keeps], where[len(own):]
    extra_rate = np.array([one.rate for one in pinned])
    beside = np.array([one.kind == Kind.BESIDE for one in pinned], dtype=bool)
    extra_finish = np.where(beside, load_s[extra_job], setup_left[extra_job]) + remaining[extra_job] / extra_rate
    extra_swap = extra_finish - np.where(beside, 0.0, save_s[extra_job])

    def merged(base: np.ndarray, extra: np.ndarray) -> np.ndarray:
        return np.concatenate([base, extra])[at] if len(pinned) else base

    pattern = merged(pattern, len(flat) + len(kept) + np.arange(len(pinned)))
    kind = merged(kind, np.array([one.kind for one in pinned], dtype=np.int8))
    rate, finish_s = merged(rate, extra_rate), merged(finish_s, np.maximum(extra_finish, SHORTEST_S))
    swap_s, fresh = merged(swap_s, np.maximum(extra_swap, SHORTEST_S)), merged(fresh, np.zeros(len(pinned), dtype=bool))
    job = merged(job, extra_job)
    np.cumsum(per_job + np.bincount(extra_job, minlength=count), out=first[1:])

    # ---- values and rows
    pays = _pays(instance, facts, kept, rate_now, cost_s, job, kind, rate)
    value = np.zeros(0)
    if count:
        ways = Ways(
            job=job, first=first, finish_s=finish_s, swap_s=swap_s,
            energy_kwh=_energy_kwh(facts, flat, classes, job, pattern, fresh, keeps, kept, finish_s)
            if _asks(objective, "energy") else np.zeros(0),
            price=_price(instance, facts, flat, classes, job, pattern, fresh, keeps, kept, finish_s)
            if _asks(objective, "cost") else np.zeros(0),
        )
        value = option_values(objective, _jobs(instance, objective, facts), ways, round_s, refill=refill) * pays
    host, rival = np.full(len(job), -1, dtype=np.int64), np.full(len(job), -1, dtype=np.int64)
    if pinned:
        host[pins[beside]] = [one.partner for one in pinned if one.kind == Kind.BESIDE]
        rival[pins[~beside]] = [one.partner for one in pinned if one.kind == Kind.ALONE]
    _charge_hosts(facts, objective, pinned, pins, value, host, first, kept, swap_s, save_s, setup_left, remaining, instance)
    if pinned:
        held = held_by(
            instance, class_of,
            [(facts.jobs[j], facts.running[j]) for j in kept]
            + [(facts.jobs[one.job], _as_running(facts.jobs[one.job], one)) for one in pinned],
            blocked, guests={len(kept) + i for i, one in enumerate(pinned) if one.kind == Kind.BESIDE},
        )
    built = build_rows(instance, classes, flat, held)
    return RoundModel(
        instance=instance, objective=objective, round_s=round_s, refill=refill, blocked=tuple(blocked), reserved=tuple(reserved),
        classes=classes, class_of=class_of, jobs=tuple(facts.jobs), never=tuple(facts.never),
        running=tuple(facts.running), must=must, patterns=tuple(flat), kept=kept,
        pattern_gpus=np.concatenate([np.array([one.gpus for one in flat], dtype=float), held.gang]),
        pattern_classes=_class_sets(flat, held),
        first=first, job=job, kind=kind, pattern=pattern, host=host, rival=rival,
        pinned=tuple(pinned),
        rate=rate, finish_s=finish_s, swap_s=swap_s, value=value,
        rows=built.rows, capacity=np.array([row.capacity for row in built.rows], dtype=float),
        entry_row=built.entry_row, entry_pattern=built.entry_pattern, entry_amount=built.entry_amount,
    )


def _charge_hosts(
    facts: _Facts, objective: Objective, pinned: list[Pinned], pins: Ints, value: Floats, host: Ints, first: Ints,
    kept: Ints, swap_s: Floats, save_s: Floats, setup_left: Floats, remaining: Floats, instance: Instance,
) -> None:
    """A job that keeps its GPUs to itself is worth what it is alone; whoever shares them is charged with the
    difference. In place, in `value`, by the ratio of the times to completion."""
    for j in kept.tolist():
        entry = facts.running[j]
        assert entry is not None
        name = entry.mode.share_with
        if name is None or is_second(entry):
            continue
        mode = replace(entry.mode, share_with=None)
        alone = placed_rate(instance, facts.jobs[j], mode, entry.placement)
        shared_s = swap_s[first[j]]
        alone_s = max(SHORTEST_S, setup_left[j] + remaining[j] / alone - save_s[j])
        raised = value[first[j]] * max(1.0, shared_s / alone_s)
        second = next(k for k in kept.tolist() if facts.jobs[k].id == name)
        host[first[second]] = j
        value[first[second]] = max(0.0, value[first[second]] - (raised - value[first[j]]))
        value[first[j]] = raised
    for one, o in zip(pinned, pins.tolist(), strict=True):
        if one.kind == Kind.BESIDE:
            keep = first[one.partner]
            slowed_s = setup_left[one.partner] + remaining[one.partner] / one.partner_rate - save_s[one.partner]
            lost = value[keep] * (1.0 - min(1.0, swap_s[keep] / max(SHORTEST_S, slowed_s)))
            value[o] = max(0.0, value[o] - lost)


def _as_running(job: Job, one: Pinned) -> Running:
    return Running(job=job.id, mode=one.mode, placement=one.placement, remaining_s=1.0)


def _pays(
    instance: Instance, facts: _Facts, kept: Ints, rate_now: Floats, cost_s: Floats, job: Ints, kind: np.ndarray,
    rate: Floats,
) -> np.ndarray:
    """Which options are allowed to be worth anything: all but moves, of jobs that were preempted before, that would
    not earn back their cost within as long as the job has been left in peace so far (it may be moved again as soon)."""
    peace_s = np.full(len(facts.jobs), np.inf)
    for j in kept:
        entry = facts.running[j]
        assert entry is not None
        if entry.preemptions:
            peace_s[j] = instance.now_s - entry.started_s
    moves = np.flatnonzero((kind == Kind.MOVE) & np.isfinite(peace_s[job]))
    gain = rate[moves] / rate_now[job[moves]] - 1.0
    pays = np.ones(len(job), dtype=bool)
    pays[moves] = peace_s[job[moves]] * gain >= cost_s[job[moves]]
    return pays


def _facts(instance: Instance) -> _Facts:
    facts = _Facts()
    cluster, caps, now_s = instance.cluster, gpu_caps(instance.tenants), instance.now_s
    running = instance.running_job
    key = "patterns by job", tuple(caps.items()), tuple(cluster.budgets.values())
    known: dict[int, tuple[Job, tuple[Pattern, ...]]] = cluster.memo.get(key, {})
    kept: dict[int, tuple[Job, tuple[Pattern, ...]]] = {}
    cluster.memo[key] = kept  # of the last round only, by identity
    for job in instance.jobs:
        entry = running.get(job.id)
        if entry is None and (job.submit_s > now_s or job.after):
            continue
        found = known.get(id(job))
        if found is None:
            found = job, patterns(cluster, caps, job)
        kept[id(job)] = found
        own = found[1]
        if entry is None and not own:
            facts.never.append(job)
            continue
        facts.jobs.append(job)
        facts.running.append(entry)
        facts.patterns.append(own)
    return facts


def _class_sets(flat: list[Pattern], held: Held) -> Ints:
    number: dict[int, int] = {}
    masks = [0] * len(held.gang)
    for k, c in zip(held.owner.tolist(), held.node_class.tolist(), strict=True):
        masks[k] |= 1 << c
    return np.array([number.setdefault(mask, len(number)) for mask in (*(p.classes for p in flat), *masks)], np.int64)


def _asks(objective: Objective, name: str) -> bool:
    return any(term.name == name for level in objective.levels for _, term in level)


def _jobs(instance: Instance, objective: Objective, facts: _Facts) -> Jobs:
    jobs = facts.jobs
    none = np.zeros(0)
    needs_fastest = _asks(objective, "maxmin") or _asks(objective, "throughput")
    return Jobs(
        now_s=instance.now_s,
        weight=np.array([job.weight for job in jobs], dtype=float),
        submit_s=np.array([job.submit_s for job in jobs], dtype=float),
        deadline_s=np.array([math.inf if job.deadline_s is None else job.deadline_s for job in jobs], dtype=float),
        fastest_s=np.array([_alone_s(fastest_s, instance, job) for job in jobs]) if needs_fastest else none,
        isolated_s=(
            np.array([_alone_s(isolated_s, instance, job) for job in jobs]) if _asks(objective, "ftf") else none
        ),
    )


def _alone_s(run_s: Callable[[Instance, Job], float], instance: Instance, job: Job) -> float:
    try:
        return run_s(instance, job)
    except InputError:  # it runs where it could not be started
        return job.work_s


def _energy_kwh(
    facts: _Facts, flat: list[Pattern], classes: tuple[NodeClass, ...], job: Ints, pattern: Ints,
    fresh: np.ndarray, keeps: Ints, kept: Ints, finish_s: Floats,
) -> Floats:
    watts = np.zeros(len(job))
    for o in np.flatnonzero(fresh):
        mode = flat[pattern[o]].option.mode
        watts[o] = power_w(facts.jobs[job[o]], mode, mode.gpu_type, mode.gpus)
    for o, j in zip(keeps, kept, strict=True):
        entry = facts.running[j]
        assert entry is not None
        watts[o] = power_w(facts.jobs[j], entry.mode, entry.mode.gpu_type, entry.mode.gpus)
    return watts * finish_s / 3.6e6


def _price(
    instance: Instance, facts: _Facts, flat: list[Pattern], classes: tuple[NodeClass, ...], job: Ints, pattern: Ints,
    fresh: np.ndarray, keeps: Ints, kept: Ints, finish_s: Floats,
) -> Floats:
    per_h = np.array([
        one.gpus * min((kind.node.gpu_price_per_h for kind in classes if one.classes & kind.bit), default=0.0)
        for one in flat
    ])
    price = np.zeros(len(job))
    price[fresh] = per_h[pattern[fresh]]
    node = instance.cluster.node
    for o, j in zip(keeps, kept, strict=True):
        entry = facts.running[j]
        assert entry is not None
        price[o] = sum(node[slot.node].gpu_price_per_h * slot.gpus for slot in entry.placement)
    return price * finish_s / 3600.0
