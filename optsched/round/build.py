"""Builds the round model of an instance: options, what they are worth, and the rows they draw
on."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from ..model import Instance, Job, Placement, Running
from ..objectives import Objective, Usage
from ..physics import placed_rate, power_w
from .deadline import NEVER, Deadline
from .facts import Facts
from .held import Held, held_by
from .model import Bools, Floats, Ints, Kind, Options, Patterns, RoundModel, is_second
from .patterns import Alternatives, Columns, NodeClass, columns
from .rows import build_rows
from .sharing import holds_on_others
from .spare import swap_costs
from .value import Valuation

SHORTEST_S = 1e-3
"""No time to completion counts as less."""
MOST_TYPES = 63
"""GPU types that the bits of a 64-bit number tell apart; with more, jobs are valued as if somebody
waited."""
NOBODY: Mapping[str, int] = {}
GIVE_WAY, DEEPER = 1e-7, 1e-3
"""All jobs that give way to others are together worth this part of the least of these, those
another tier below so much less."""


def build(
    instance: Instance,
    objective: Objective,
    round_s: float,
    *,
    refill: bool = True,
    blocked: Sequence[Placement] = (),
    reserved: Sequence[tuple[Placement, float]] = (),
    reserved_for: str | None = None,
    keep: Collection[str] = (),
    around: Sequence[tuple[Job, Running]] = (),
    give_way: Mapping[str, int] = NOBODY,
    deadline: Deadline = NEVER,
) -> RoundModel:
    """Return the round model of a checked instance at `now_s`.

    `round_s` is the time until jobs are looked at again. With `refill`, GPUs that come free in
    between are given to others at once (decisions are made at events); without, they stay idle (see
    `value`). `blocked` is held by jobs that are being saved and come free during the round.
    `reserved` are places promised to a job some seconds from now, `reserved_for`: until then others
    may use them if they are done by then (backfill), and that job may start there if it is worth
    more than who still runs there; the rows do not see this, only packing. `keep` are running
    jobs that must be kept for reasons of their own. Jobs `around` are not those of the instance:
    they go on, and what they hold is not to be had. Running jobs that `give_way` to the others, as
    of so many tiers below, go on where they are or leave: all together they are worth less than any
    other. Raises OutOfTimeError where the model is not
    ready by the `deadline`.

    A running job must be kept where its own rules forbid its preemption, and where it would
    complete before it could be saved. One that was preempted before must also be kept until it has
    run, since it came back, `facts.SETTLE` times (an elastic one `facts.ELASTIC_SETTLE` times) as
    long as a preemption costs it (checkpoint, restore, start-up and lost work), and a move to where
    it runs faster must earn back its cost in the time that the job has had in peace. So whatever is
    decided, a job is preempted at most 1 + t / (s c) times in t seconds of running if each time
    costs c and s is that number, and loses at most c + t / s.
    """
    facts = Facts(instance, keep, deadline, give_way, around)
    classes, class_of = facts.classes, facts.class_of
    holds = [*zip(facts.kept.tolist(), facts.holds, strict=True), *holds_on_others(facts)]
    deadline.check()
    running = len(facts.kept)
    held = held_by(instance, holds, running, class_of, facts.minds, blocked, around)
    deadline.check()
    patterns, own = _numbered(classes, facts, held)
    options = _listed(facts, patterns, own, held)
    cost_s = (facts.cost_s - facts.setup_left_s)[facts.kept]
    leaves = ~facts.must[facts.kept]
    extra_s = swap_costs(classes, held, patterns.table, cost_s, leaves, deadline)
    options = _timed(facts, patterns, options, extra_s)
    deadline.check()
    if facts.jobs:
        _value(objective, facts, classes, patterns, options, round_s, refill=refill)
        _charge_guests(facts, patterns, options)
        _give_way(facts, options)
    return RoundModel(
        instance=instance,
        objective=objective,
        blocked=tuple(blocked),
        reserved=tuple(reserved),
        reserved_for=reserved_for,
        classes=classes,
        class_of=class_of,
        jobs=tuple(facts.jobs),
        never=tuple(facts.never),
        running=tuple(facts.running),
        waits=facts.waits,
        must=facts.must,
        depth=facts.depth,
        options=options,
        patterns=patterns,
        held=held,
        rows=build_rows(facts, classes, patterns, held),
    )


def _numbered(classes: tuple[NodeClass, ...], facts: Facts, held: Held) -> tuple[Patterns, Ints]:
    """Return the patterns of all demands one after the other, and for each job where its own begin
    and how many they are. Where no cores can run short, those that only take fewer cores are left
    out."""
    number: dict[Alternatives, int] = {}
    which = [number.setdefault(own, len(number)) for own in facts.alternatives]
    demands = list(number)
    table = columns(demands, facts.deadline)
    if held.running == len(held.holds) and _cores_to_spare(classes, table, held):
        demands = [own.fastest for own in demands]
        table = columns(demands, facts.deadline)
    sizes = np.array([len(own.patterns) for own in demands], dtype=np.int64)
    patterns = Patterns(
        fresh=tuple(pattern for own in demands for pattern in own.patterns),
        table=table,
        kept=facts.kept,
        holds=held.holds,
        gpus=np.concatenate([table.gpus.astype(float), held.gang]),
        class_sets=_class_sets(table, held),
    )
    first_and_count = np.stack([np.cumsum(sizes) - sizes, sizes], axis=1)
    return patterns, first_and_count[np.array(which, dtype=np.int64)]


def _cores_to_spare(classes: tuple[NodeClass, ...], table: Columns, held: Held) -> bool:
    """Return whether nobody takes more cores of a node for each GPU than it has for each."""
    least = [
        min((kind.cpus_per_gpu for kind in classes if kind.bit & mask), default=math.inf)
        for mask in table.masks
    ]
    per_gpu = np.array([kind.cpus_per_gpu for kind in classes])[held.class_of]
    return (
        _within(table.cpus, table.gpus, np.array(least)[table.mask])
        and _within(held.cpus, held.gpus, per_gpu[held.node])
        and _within(held.taken_cpus, held.taken_gpus, per_gpu)
    )


def _within(cpus: Ints, gpus: Ints, per_gpu: Floats) -> bool:
    """Return whether cores are at most so many for each GPU."""
    limit = np.where(np.isinf(per_gpu), np.inf, np.where(gpus > 0, per_gpu, 0.0) * gpus)
    return bool((cpus <= limit + 1e-9).all())


def _class_sets(table: Columns, held: Held) -> Ints:
    """Return a number for each set of node classes that a pattern may use or a job sits on."""
    begins = np.flatnonzero(np.diff(held.owner, prepend=-1))
    bits = np.array([1 << c for c in held.node_class.tolist()], dtype=object)
    masks = np.zeros(len(held.gang), dtype=object)
    masks[held.owner[begins]] = np.bitwise_or.reduceat(bits, begins)
    number = {mask: i for i, mask in enumerate(table.masks)}
    sets = [number.setdefault(mask, len(number)) for mask in masks.tolist()]
    return np.concatenate([table.mask, np.array(sets, dtype=np.int64)])


def _listed(facts: Facts, patterns: Patterns, own: Ints, holdings: Held) -> Options:
    """Return the options by job, without times and values: keep, every pattern (unless the job must
    be kept), those on the GPUs of running jobs."""
    kept, count, fresh = facts.kept, len(facts.jobs), len(patterns.fresh)
    on_others = patterns.holds[len(kept) :]
    is_running = np.zeros(count, dtype=np.int64)
    is_running[kept] = 1
    first_pattern, patterns_of = own[:, 0], np.where(facts.must, 0, own[:, 1])
    pins_of = np.bincount(np.array(holdings.job[len(kept) :], dtype=np.int64), minlength=count)
    first = np.concatenate([[0], np.cumsum(is_running + patterns_of + pins_of)])
    job = np.repeat(np.arange(count), np.diff(first))
    position = np.arange(len(job)) - first[job] - is_running[job]
    pattern = first_pattern[job] + position
    kind = np.where(is_running[job] == 1, np.int8(Kind.MOVE), np.int8(Kind.START))
    held = np.concatenate([first[kept], np.flatnonzero(position >= patterns_of[job])])
    pattern[held] = fresh + np.arange(len(patterns.holds))
    kind[held] = [hold.kind for hold in patterns.holds]
    host, rival = np.full((2, len(job)), -1, dtype=np.int64)
    for hold, o in zip(on_others, held[len(kept) :].tolist(), strict=True):
        (host if hold.kind == Kind.BESIDE else rival)[o] = hold.partner
    rate, finish_s, swap_s, value = np.ones((4, len(job)))
    rate[held] = [hold.rate for hold in patterns.holds]
    return Options(first, job, kind, pattern, host, rival, rate, finish_s, swap_s, value)


def _timed(facts: Facts, patterns: Patterns, options: Options, extra_s: Floats) -> Options:
    """Return the options with their seconds to completion, and with what swapping adds (`extra_s`
    by pattern) or spares. Nothing is weighed against a job that must be kept."""
    job, pattern, rate = options.job, options.pattern, options.rate.copy()
    fresh = pattern < len(patterns.fresh)
    rate[fresh] = patterns.table.rate[pattern[fresh]]
    stays = (options.kind == Kind.KEEP) | (options.kind == Kind.ALONE)
    begins_s = np.where(stays, facts.setup_left_s[job], (facts.save_s + facts.load_s)[job])
    work_s = facts.remaining_s[job] + np.where(stays, 0.0, facts.lost_work_s[job])
    finish_s = begins_s + work_s / rate
    swap_s = finish_s - np.where(
        (options.kind == Kind.KEEP) & facts.must[job], 0.0, facts.save_s[job]
    )
    swap_s[fresh] += extra_s[pattern[fresh]]
    return replace(
        options,
        rate=rate,
        finish_s=np.maximum(finish_s, SHORTEST_S),
        swap_s=np.maximum(swap_s, SHORTEST_S),
    )


def _value(
    objective: Objective,
    facts: Facts,
    classes: tuple[NodeClass, ...],
    patterns: Patterns,
    options: Options,
    round_s: float,
    *,
    refill: bool,
) -> None:
    """Say what each option is worth."""
    meters = {term.meter for term in objective.terms if isinstance(term, Usage)}
    none = np.zeros(0)
    prices = _price_per_h(facts.instance, classes, patterns) if "price" in meters else none
    valuation = Valuation(
        instance=facts.instance,
        jobs=facts.jobs,
        options=options,
        round_s=round_s,
        refill=refill,
        longest_s=_longest_s(facts, options),
        weight=facts.weight,
        elastic=facts.elastic,
        chooses_type=_choose_type(facts, classes, patterns, options) & ~facts.elastic,
        cost_s=facts.cost_s,
        gpus=patterns.gpus[options.pattern],
        power_w=_power_w(facts, patterns, options) if "power" in meters else none,
        price_per_h=prices[options.pattern] if len(prices) else none,
    )
    options.value[:] = valuation.of(objective)
    options.value[~_pays(facts, options)] = 0.0


def _choose_type(
    facts: Facts, classes: tuple[NodeClass, ...], patterns: Patterns, options: Options
) -> Bools:
    """Return which jobs choose their GPU type as if nobody waited for it: those that need no more
    than one node, where each can use GPUs of the same several types, of which there are enough for
    all. Who makes way for another goes on elsewhere then; whether nodes have the room is not looked
    at, which is why larger gangs do not."""
    cluster, first = facts.instance.cluster, options.first[:-1]
    if not 2 <= len(cluster.gpu_types) <= MOST_TYPES:
        return np.zeros(len(facts.jobs), dtype=bool)
    bit = {gpu_type: 1 << k for k, gpu_type in enumerate(cluster.gpu_types)}

    @cache
    def types_of(mask: int) -> int:
        of = {kind.node.gpu_type for kind in classes if mask & kind.bit}
        return sum(bit.get(gpu_type, 0) for gpu_type in of)

    types = [types_of(pattern.classes) for pattern in patterns.fresh]
    types += [0] * len(patterns.holds)
    usable = np.bitwise_or.reduceat(np.array(types, dtype=np.int64)[options.pattern], first)
    alone = np.where(options.host < 0, patterns.gpus[options.pattern], np.inf)
    fewest = np.minimum.reduceat(alone, first)
    moved = usable[~facts.must]
    mask = int(np.bitwise_and.reduce(moved)) if len(moved) else 0
    there = sum(node.gpus for node in cluster.nodes if bit.get(node.gpu_type, 0) & mask)
    enough = mask.bit_count() > 1 and bool(np.all(moved == mask)) and fewest.sum() <= there
    return np.asarray(enough & (fewest <= max(node.gpus for node in cluster.nodes)), dtype=bool)


def _longest_s(facts: Facts, options: Options) -> float:
    """Return the time to completion of the longest of the jobs that could be preempted, or of all
    where none could."""
    leaving = options.first[facts.kept[~facts.must[facts.kept]]]
    if len(leaving):
        return float(options.swap_s[leaving].max())
    return float(np.minimum.reduceat(options.swap_s, options.first[:-1]).max())


def _pays(facts: Facts, options: Options) -> Bools:
    """Return which options are allowed to be worth anything: all but moves, of jobs that were
    preempted before, that would not earn back their cost within as long as the job has been left in
    peace so far (it may be moved again as soon). While nobody waits, a job may also move to where
    it is no faster, for one that gains more by its place."""
    moves = np.flatnonzero((options.kind == Kind.MOVE) & np.isfinite(facts.peace_s[options.job]))
    mover = options.job[moves]
    gain = options.rate[moves] / facts.rate[mover] - 1.0
    pays = np.ones(len(options.job), dtype=bool)
    earns_back = facts.peace_s[mover] * gain >= facts.cost_s[mover]
    nobody_waits = len(facts.kept) == len(facts.jobs)
    pays[moves] = earns_back | ((gain <= 0) & nobody_waits)
    return pays


def _charge_guests(facts: Facts, patterns: Patterns, options: Options) -> None:
    """Count a job that keeps its GPUs as what it is alone; charge whoever shares them with the
    difference, by the ratio of the times to completion. Changes values, and `host` for jobs that
    share already."""
    value, first, swap_s = options.value, options.first, options.swap_s

    def slowed_s(j: int, rate: float) -> float:
        return max(
            SHORTEST_S, float(facts.setup_left_s[j] + facts.remaining_s[j] / rate - facts.save_s[j])
        )

    for j in facts.paired:
        entry = facts.entry(j)
        if entry.mode.share_with is None or is_second(entry):
            continue
        mode = entry.mode.unshared
        alone = placed_rate(facts.instance, facts.jobs[j], mode, entry.placement)
        raised = value[first[j]] * max(1.0, swap_s[first[j]] / slowed_s(j, alone))
        guest = first[facts.position[entry.mode.share_with]]
        options.host[guest] = j
        value[guest] = max(0.0, value[guest] - (raised - value[first[j]]))
        value[first[j]] = raised
    for o in np.flatnonzero(options.kind == Kind.BESIDE).tolist():
        hold = patterns.holds[int(options.pattern[o]) - len(patterns.fresh)]
        keep = first[hold.partner]
        share = swap_s[keep] / slowed_s(hold.partner, hold.partner_rate)
        value[o] = max(0.0, value[o] - value[keep] * (1.0 - min(1.0, share)))


def _give_way(facts: Facts, options: Options) -> None:
    """Count those who give way as next to nothing beside the others: of two rounds that are worth
    the same to these, the one in which they go on is better."""
    depth = facts.depth[options.job]
    if not depth.any():
        return
    best = np.maximum.reduceat(options.value, options.first[:-1])[facts.depth == 0]
    least = float(best[best > 0].min(initial=1.0))
    for k, below in enumerate(np.unique(depth[depth > 0]).tolist()):
        there = depth == below
        total = float(options.value[there].sum())
        if total > 0:
            options.value[there] *= GIVE_WAY * DEEPER**k * least / total


def _power_w(facts: Facts, patterns: Patterns, options: Options) -> Floats:
    """Return what each option draws."""
    modes = [pattern.option.mode for pattern in patterns.fresh]
    modes += [hold.mode for hold in patterns.holds]
    return np.array(
        [
            power_w(facts.jobs[j], modes[p], modes[p].gpu_type, modes[p].gpus)
            for j, p in zip(options.job.tolist(), options.pattern.tolist(), strict=True)
        ]
    )


def _price_per_h(instance: Instance, classes: tuple[NodeClass, ...], patterns: Patterns) -> Floats:
    """Return the price of each pattern, at the cheapest nodes it may use."""
    node = instance.cluster.node

    def cheapest(mask: int) -> float:
        return min((kind.node.gpu_price_per_h for kind in classes if mask & kind.bit), default=0.0)

    def placed(placement: Placement) -> float:
        return math.fsum(node[slot.node].gpu_price_per_h * slot.gpus for slot in placement)

    return np.array(
        [
            *(pattern.gpus * cheapest(pattern.classes) for pattern in patterns.fresh),
            *(placed(hold.placement) for hold in patterns.holds),
        ]
    )
