"""Builds the round model of an instance: options, what they are worth, and the rows they draw
on."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from ..model.cluster import Cluster
from ..model.instance import Instance, Placement, Running
from ..objectives import Objective, Usage
from ..physics import placed_rate, power_w
from .deadline import NEVER, Deadline
from .facts import Facts, read_facts
from .held import Held, held_by
from .model import Bools, Floats, Ints, Kind, RoundModel, is_second
from .patterns import (
    Columns,
    NodeClass,
    Pattern,
    columns,
    joined,
    node_classes,
    without_fewer_cores,
)
from .rows import build_rows
from .sharing import Pinned, pinned_options
from .spare import SpareRoom
from .value import Ways, option_values

SHORTEST_S = 1e-3
"""No time to completion counts as less."""


def build(
    instance: Instance,
    objective: Objective,
    round_s: float,
    *,
    refill: bool = True,
    blocked: Sequence[Placement] = (),
    reserved: Sequence[tuple[Placement, float]] = (),
    keep: Collection[str] = (),
    sharing: bool = True,
    deadline: Deadline = NEVER,
) -> RoundModel:
    """The round model of a checked instance at `now_s`.

    `round_s` is the time until jobs are looked at again. With `refill`, GPUs that come free in
    between are given to others at once (decisions are made at events); without, they stay idle (see
    `value`). `blocked` is held by jobs that are being saved and come free during the round.
    `reserved` are places promised to a job some seconds from now: until then others may use them if
    they are done by then (backfill); the rows do not see this, only packing. `keep` are running
    jobs that must be kept for reasons of their own. Without `sharing` no job starts on the GPUs of
    another. Raises OutOfTimeError where the model is not ready by the `deadline`.

    A running job must be kept where its own rules forbid its preemption, and where it would
    complete before it could be saved. One that was preempted before must also be kept until it has
    run, since it came back, `facts.SETTLE` times as long as a preemption costs it (checkpoint,
    restore, start-up and lost work), and a move to where it runs faster must earn back its cost in
    the time that the job has had in peace. So whatever is decided, a job is preempted at most 1 + t
    / (SETTLE c) times in t seconds of running if each time costs c, and loses at most c + t /
    SETTLE.
    """
    facts = read_facts(instance, keep, deadline)
    deadline.check()
    classes, class_of = node_classes(instance.cluster)
    kept, must, count = facts.kept, facts.must, len(facts.jobs)
    running = [(facts.jobs[j], facts.entry(j)) for j in kept.tolist()]
    deadline.check()
    held = held_by(instance, class_of, running, blocked)
    deadline.check()
    pinned = [
        one
        for one in pinned_options(
            instance, facts.jobs, facts.running, facts.patterns, deadline, beside=sharing
        )
        if not must[one.job] and not (one.kind == Kind.ALONE and must[one.partner])
    ]
    flat, table, first_pattern, patterns_of = _flatten(
        instance.cluster, classes, facts, held, deadline, sharing=bool(pinned)
    )
    deadline.check()

    # ---- options by job: keep, every pattern (unless the job must be kept), those on the GPUs of
    # running jobs
    is_running = np.zeros(count, dtype=np.int64)
    is_running[kept] = 1
    patterns_of[must] = 0
    pins_of = np.bincount(np.array([one.job for one in pinned], dtype=np.int64), minlength=count)
    first = np.concatenate([[0], np.cumsum(is_running + patterns_of + pins_of)])
    job = np.repeat(np.arange(count), np.diff(first))
    position = np.arange(len(job)) - first[job] - is_running[job]
    keeps = first[kept]
    pins = np.flatnonzero(position >= patterns_of[job])
    pattern = first_pattern[job] + position
    pattern[keeps] = len(flat) + np.arange(len(kept))
    pattern[pins] = len(flat) + len(kept) + np.arange(len(pinned))
    kind = np.where(is_running[job] == 1, np.int8(Kind.MOVE), np.int8(Kind.START))
    kind[keeps] = Kind.KEEP
    kind[pins] = [one.kind for one in pinned]
    fresh = (kind == Kind.START) | (kind == Kind.MOVE)

    # ---- seconds to completion, and what swapping adds or spares
    rate = np.ones(len(job))
    rate[fresh] = table.rate[pattern[fresh]]
    rate[keeps], rate[pins] = facts.rate[kept], [one.rate for one in pinned]
    stays = (kind == Kind.KEEP) | (kind == Kind.ALONE)
    begins_s = np.where(stays, facts.setup_left_s[job], (facts.save_s + facts.load_s)[job])
    finish_s = (
        begins_s + (facts.remaining_s[job] + np.where(stays, 0.0, facts.lost_work_s[job])) / rate
    )
    swap_s = finish_s - facts.save_s[job]
    extra_s = SpareRoom(instance.cluster, classes, held).swap_costs(
        table, (facts.cost_s - facts.setup_left_s)[kept], ~must[kept], deadline
    )
    swap_s[fresh] += extra_s[pattern[fresh]]
    swap_s[keeps[must[kept]]] = finish_s[
        keeps[must[kept]]
    ]  # nothing is weighed against a job that must be kept
    finish_s, swap_s = np.maximum(finish_s, SHORTEST_S), np.maximum(swap_s, SHORTEST_S)
    deadline.check()

    # ---- values
    host, rival = np.full(len(job), -1, dtype=np.int64), np.full(len(job), -1, dtype=np.int64)
    for one, o in zip(pinned, pins.tolist(), strict=True):
        (host if one.kind == Kind.BESIDE else rival)[o] = one.partner
    value = none = np.zeros(0)
    if count:
        meters = {term.meter for term in objective.terms if isinstance(term, Usage)}
        ways = Ways(
            job=job,
            first=first,
            finish_s=finish_s,
            swap_s=swap_s,
            power_w=_power_w(facts, flat, pinned, job, pattern) if "power" in meters else none,
            price_per_h=_price_per_h(instance, facts, classes, flat, pinned)[pattern]
            if "price" in meters
            else none,
            longest_s=_longest_s(swap_s, keeps[~must[kept]], first),
        )
        value = option_values(objective, instance, facts.jobs, ways, round_s, refill=refill)
        value[~_pays(facts, job, kind, rate)] = 0.0
        _charge_guests(instance, facts, pinned, pins, value, host, first, swap_s)

    if pinned:
        guests = {len(kept) + i for i, one in enumerate(pinned) if one.kind == Kind.BESIDE}
        entries = [
            (
                facts.jobs[one.job],
                Running(
                    job=facts.jobs[one.job].id,
                    mode=one.mode,
                    placement=one.placement,
                    remaining_s=1.0,
                ),
            )
            for one in pinned
        ]
        held = held_by(instance, class_of, running + entries, blocked, guests)
    built = build_rows(instance, classes, flat, table, held, deadline)
    return RoundModel(
        instance=instance,
        objective=objective,
        round_s=round_s,
        refill=refill,
        blocked=tuple(blocked),
        reserved=tuple(reserved),
        classes=classes,
        class_of=class_of,
        jobs=tuple(facts.jobs),
        never=tuple(facts.never),
        running=tuple(facts.running),
        must=must,
        patterns=tuple(flat),
        table=table,
        kept=kept,
        pattern_gpus=np.concatenate([table.gpus.astype(float), held.gang]),
        pattern_classes=_class_sets(table, held),
        first=first,
        job=job,
        kind=kind,
        pattern=pattern,
        host=host,
        rival=rival,
        pinned=tuple(pinned),
        rate=rate,
        finish_s=finish_s,
        swap_s=swap_s,
        value=value,
        rows=built.rows,
        capacity=np.array([row.capacity for row in built.rows], dtype=float),
        entry_row=built.entry_row,
        entry_pattern=built.entry_pattern,
        entry_amount=built.entry_amount,
    )


def _flatten(
    cluster: Cluster,
    classes: tuple[NodeClass, ...],
    facts: Facts,
    held: Held,
    deadline: Deadline,
    *,
    sharing: bool,
) -> tuple[list[Pattern], Columns, Ints, Ints]:
    """The patterns of all demands one after the other, also as columns; where those of each job
    begin, and how many they are. Where no cores can run short, those that only take fewer cores are
    left out."""
    demands = {id(own): own for own in facts.patterns}
    tables = {}
    for key, own in demands.items():
        deadline.check()
        tables[key] = columns(cluster, own)
    if (
        not sharing
        and not any(one.hungry for one in tables.values())
        and _cores_to_spare(classes, held)
    ):
        for key, own in demands.items():
            deadline.check()
            demands[key] = without_fewer_cores(cluster, own)
            tables[key] = columns(cluster, demands[key])
    start: dict[int, tuple[int, int]] = {}
    flat: list[Pattern] = []
    for key, own in demands.items():
        start[key] = len(flat), len(own)
        flat.extend(own)
    places = np.array([start[id(own)] for own in facts.patterns], dtype=np.int64).reshape(-1, 2)
    return flat, joined(cluster, list(tables.values())), places[:, 0].copy(), places[:, 1].copy()


def _cores_to_spare(classes: tuple[NodeClass, ...], held: Held) -> bool:
    """Whether nobody holds more cores of a node for each GPU than it has for each."""
    per_gpu = np.array(
        [
            np.inf
            if one.node.cpus is None
            else one.node.cpus / one.node.gpus
            if one.node.gpus
            else 0.0
            for one in classes
        ]
    )
    taken = np.flatnonzero(held.taken_cpus)
    return bool(
        (held.cpus <= np.where(held.gpus, per_gpu[held.node_class], 0.0) * held.gpus + 1e-9).all()
        and (
            held.taken_cpus[taken]
            <= np.where(held.taken_gpus[taken], per_gpu[held.class_of[taken]], 0.0)
            * held.taken_gpus[taken]
            + 1e-9
        ).all()
    )


def _longest_s(swap_s: Floats, leaving: Ints, first: Ints) -> float:
    """Time to completion of the longest of the jobs that could be preempted, or of all where none
    could."""
    if len(leaving):
        return float(swap_s[leaving].max())
    return float(np.minimum.reduceat(swap_s, first[:-1]).max())


def _class_sets(table: Columns, held: Held) -> Ints:
    """A number for each set of node classes that a pattern may use or a running job sits on."""
    masks = [0] * len(held.gang)
    for k, c in zip(held.owner.tolist(), held.node_class.tolist(), strict=True):
        masks[k] |= 1 << c
    number = {mask: i for i, mask in enumerate(table.masks)}
    return np.concatenate(
        [table.mask, [number.setdefault(mask, len(number)) for mask in masks]]
    ).astype(np.int64)


def _pays(facts: Facts, job: Ints, kind: np.ndarray, rate: Floats) -> Bools:
    """Which options are allowed to be worth anything: all but moves, of jobs that were preempted
    before, that would not earn back their cost within as long as the job has been left in peace so
    far (it may be moved again as soon)."""
    moves = np.flatnonzero((kind == Kind.MOVE) & np.isfinite(facts.peace_s[job]))
    mover = job[moves]
    gain = rate[moves] / facts.rate[mover] - 1.0
    pays = np.ones(len(job), dtype=bool)
    pays[moves] = facts.peace_s[mover] * gain >= facts.cost_s[mover]
    return pays


def _charge_guests(
    instance: Instance,
    facts: Facts,
    pinned: list[Pinned],
    pins: Ints,
    value: Floats,
    host: Ints,
    first: Ints,
    swap_s: Floats,
) -> None:
    """A job that keeps its GPUs is worth what it is alone; whoever shares them is charged with the
    difference, by the ratio of the times to completion. Changes `value`, and `host` for jobs that
    share already."""

    def slowed_s(j: int, rate: float) -> float:
        return max(
            SHORTEST_S, float(facts.setup_left_s[j] + facts.remaining_s[j] / rate - facts.save_s[j])
        )

    position = {job.id: j for j, job in enumerate(facts.jobs)}
    for j in facts.kept.tolist():
        entry = facts.entry(j)
        if entry.mode.share_with is None or is_second(entry):
            continue
        alone = placed_rate(
            instance, facts.jobs[j], replace(entry.mode, share_with=None), entry.placement
        )
        raised = value[first[j]] * max(1.0, swap_s[first[j]] / slowed_s(j, alone))
        guest = first[position[entry.mode.share_with]]
        host[guest] = j
        value[guest] = max(0.0, value[guest] - (raised - value[first[j]]))
        value[first[j]] = raised
    for one, o in zip(pinned, pins.tolist(), strict=True):
        if one.kind == Kind.BESIDE:
            keep = first[one.partner]
            share = swap_s[keep] / slowed_s(one.partner, one.partner_rate)
            value[o] = max(0.0, value[o] - value[keep] * (1.0 - min(1.0, share)))


def _power_w(
    facts: Facts, flat: list[Pattern], pinned: list[Pinned], job: Ints, pattern: Ints
) -> Floats:
    """Return what each option draws."""
    modes = [
        *(one.option.mode for one in flat),
        *(facts.entry(j).mode for j in facts.kept.tolist()),
        *(one.mode for one in pinned),
    ]
    return np.array(
        [
            power_w(facts.jobs[j], modes[p], modes[p].gpu_type, modes[p].gpus)
            for j, p in zip(job.tolist(), pattern.tolist(), strict=True)
        ]
    )


def _price_per_h(
    instance: Instance,
    facts: Facts,
    classes: tuple[NodeClass, ...],
    flat: list[Pattern],
    pinned: list[Pinned],
) -> Floats:
    """Return the price of each pattern, at the cheapest nodes it may use."""
    node = instance.cluster.node

    def placed(placement: Placement) -> float:
        return math.fsum(node[slot.node].gpu_price_per_h * slot.gpus for slot in placement)

    return np.array(
        [
            *(
                one.gpus
                * min(
                    (kind.node.gpu_price_per_h for kind in classes if one.classes & kind.bit),
                    default=0.0,
                )
                for one in flat
            ),
            *(placed(facts.entry(j).placement) for j in facts.kept.tolist()),
            *(placed(one.placement) for one in pinned),
        ]
    )
