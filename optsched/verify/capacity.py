"""Capacities that all jobs hold together: nodes, cluster resources, uplinks, budgets, quotas, and
GPUs shared by pairs."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from operator import attrgetter

from ..model import Instance, Job, JobPlan, Mode, Plan, Segment, Slot, Tenant
from ..physics import TIME_TOLERANCE_S, beyond_gpu_memory, gpu_memory_gib, memory_gib, uplinks
from .progress import fills_memory_s, goes_on_at_once
from .violation import Violation, broken

AMOUNT_TOLERANCE = 1e-6
"""Relative excess of a fractional amount (GiB, budgets) that counts as rounding."""

MOMENT_S = 1e-3
"""Jobs that start so close together start at one moment."""

Holder = tuple[str, ...]
"""Who holds an amount: one job, or the two of a pair that hold the same GPUs."""

Piece = tuple[float, float, Holder, str, float]
"""start_s, end_s, holder, job id, amount held in between."""


Pieces = dict[str, list[Piece]]
"""The pieces in which jobs hold something, by its name."""


def _pieces(
    instance: Instance,
    plan: Plan,
    amounts: Callable[[Job, Segment], Iterable[tuple[str, float]]],
    pairs: bool = False,
) -> Pieces:
    """Return what jobs hold of things by name; with `pairs` two jobs that name each other hold it
    together, so that it counts once."""
    pieces: Pieces = defaultdict(list)
    entries = {entry.id: entry for entry in plan.jobs}
    for entry in plan.jobs:
        job = instance.job[entry.id]
        for segment in entry.segments:
            partner = segment.mode.share_with if pairs else None
            own = (entry.id,)
            holder = own if partner is None else (min(entry.id, partner), max(entry.id, partner))
            shared = _shared_on(entries, segment) if pairs and segment.mode.shared_gpus else {}
            for name, amount in amounts(job, segment):
                alone = amount
                for other, gpus in shared.get(name, {}).items():
                    both = (min(entry.id, other), max(entry.id, other))
                    pieces[name].append((segment.start_s, segment.end_s, both, entry.id, gpus))
                    alone -= gpus
                if alone:
                    pieces[name].append((segment.start_s, segment.end_s, holder, entry.id, alone))
    return pieces


def _shared_on(entries: Mapping[str, JobPlan], segment: Segment) -> dict[str, dict[str, int]]:
    """Return by node how many GPUs a segment shares there with whom; with nobody who shares no node
    with it, or several, which `sharing` finds."""
    shared: dict[str, dict[str, int]] = defaultdict(dict)
    for name, gpus in segment.mode.shared_gpus.items():
        nodes = {
            node
            for other in entries[name].segments
            if _overlap_s(segment, other) > TIME_TOLERANCE_S
            for node in _common_nodes(segment, other)
        }
        if len(nodes) == 1:
            shared[nodes.pop()][name] = gpus
    return shared


def _overlap_s(a: Segment, b: Segment) -> float:
    return min(a.end_s, b.end_s) - max(a.start_s, b.start_s)


def _common_nodes(a: Segment, b: Segment) -> set[str]:
    return {slot.node for slot in a.placement} & {slot.node for slot in b.placement}


def node_capacity(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Check GPUs, cores and memory of each node at every instant, and none of them while it is
    lost."""

    def held(amount: Callable[[Job, Mode, Slot], float], pairs: bool = False) -> Pieces:
        def on_nodes(job: Job, own: Segment) -> Iterator[tuple[str, float]]:
            return ((slot.node, amount(job, own.mode, slot)) for slot in own.placement)

        return _pieces(instance, plan, on_nodes, pairs)

    stays = held(lambda *_: 1) if instance.outages else {}
    gpus = held(lambda _, __, slot: slot.gpus, pairs=True)
    cores = held(lambda _, __, slot: slot.cpus)
    memory = held(lambda job, mode, slot: memory_gib(job, mode, slot.gpus))
    for node in instance.cluster.nodes:
        name, where = node.name, f"node {node.name}"
        for outage in instance.node_outages.get(name, ()):
            for start_s, end_s, _, job, _ in stays.get(name, ()):
                from_s, until_s = max(start_s, outage.start_s), min(end_s, outage.end_s)
                if until_s - from_s > TIME_TOLERANCE_S:
                    lost = f"which is lost until {outage.end_s:.12g} s"
                    says = f"is on node {name} at {from_s:.12g} s, {lost}"
                    yield broken("outage", job, says, from_s, name)
        yield from _overfull(gpus.get(name), node.gpus, "GPUs", "GPUs", where, name)
        yield from _overfull(cores.get(name), node.cpus, "cores", "cores", where, name)
        unit = "GiB of memory"
        yield from _overfull(memory.get(name), node.memory_gib, "memory", unit, where, name)


def _overfull(
    pieces: Iterable[Piece] | None,
    capacity: float | None,
    rule: str,
    unit: str,
    where: str,
    node: str | None = None,
) -> Iterator[Violation]:
    """Sweep over time; report the first instant of each stretch above capacity, if there is a
    limit."""
    if pieces is None or capacity is None:
        return
    events: list[tuple[float, int, Holder, str, float]] = []
    for start_s, end_s, holder, job, amount in pieces:
        if end_s - start_s > TIME_TOLERANCE_S:
            events.append((start_s, 1, holder, job, amount))
            events.append((end_s - TIME_TOLERANCE_S, 0, holder, job, amount))
    limit = capacity + AMOUNT_TOLERANCE * max(1.0, capacity)
    held: dict[Holder, dict[str, float]] = {}
    used = 0.0
    above = False
    for time_s, starts, holder, job, amount in sorted(events):
        amounts = held.setdefault(holder, {})
        before = max(amounts.values(), default=0.0)
        amounts[job] = amounts.get(job, 0.0) + (amount if starts else -amount)
        if abs(amounts[job]) < 1e-9:
            del amounts[job]
        used += max(amounts.values(), default=0.0) - before
        if not amounts:
            del held[holder]
        if not held:
            used = 0.0  # no rounding survives an idle moment
        if used > limit and starts and not above:
            names = ", ".join(sorted({name for jobs in held.values() for name in jobs}))
            would = f"{where} would hold {used:.12g} {unit} of {capacity:.12g}"
            yield broken(rule, job, f"at {time_s:.12g} s: {would} ({names})", time_s, node)
        above = used > limit


def resources(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Check cluster resources at every instant."""
    held = _pieces(instance, plan, lambda _, own: own.mode.resources.items())
    for name, pieces in sorted(held.items()):
        capacity = instance.cluster.resources.get(name, 0.0)
        yield from _overfull(pieces, capacity, "resource", name, "the cluster")


def rack_uplinks(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Check uplinks of racks at every instant; where they are shared each gang must find room, but
    only for itself."""
    cluster = instance.cluster
    if not cluster.rack_uplink_gbps:
        return
    traffic = _pieces(instance, plan, lambda job, own: uplinks(cluster, job, own.placement).items())
    for rack, pieces in sorted(traffic.items()):
        capacity, where = cluster.rack_uplink_gbps[rack], f"the uplink of rack {rack}"
        for part in [[piece] for piece in pieces] if cluster.uplinks == "shared" else [pieces]:
            yield from _overfull(part, capacity, "uplink", "Gbit/s", where)


def budgets(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Check budgets over the whole plan: a job uses those of the mode in which it completes."""
    users: dict[str, list[tuple[float, JobPlan]]] = defaultdict(list)
    for entry in plan.jobs:
        for name, amount in entry.segments[-1].mode.budgets.items():
            users[name].append((amount, entry))
    for name, entries in sorted(users.items()):
        used = sum(amount for amount, _ in entries)
        budget = instance.cluster.budgets.get(name, 0.0)
        if used > budget + AMOUNT_TOLERANCE * max(1.0, budget):
            most, user = max(entries, key=lambda pair: pair[0])
            start_s = user.segments[-1].start_s
            message = (
                f"the plan uses {used:.12g} of budget {name}, there is {budget:.12g}; "
                f"job {user.id} at {start_s:.12g} s uses most ({most:.12g})"
            )
            yield Violation("budget", message, user.id, None, start_s)


def minds_neighbours(instance: Instance) -> bool:
    """Return whether any job says near whom it may be."""
    jobs = instance.jobs
    return any(map(attrgetter("affinity"), jobs)) or any(map(attrgetter("anti_affinity"), jobs))


def neighbours(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Check jobs that keep apart, unless both have been there since before now, and jobs that need
    others near, when they start."""
    if not minds_neighbours(instance):
        return
    stays = [
        _Stay(instance, entry.id, k, entry.segments)
        for entry in plan.jobs
        for k in range(len(entry.segments))
    ]
    for before, stay in pairwise(stays):
        if stay.job is before.job and not stay.starts:
            stay.from_s = before.from_s
    having: dict[str, list[_Stay]] = defaultdict(list)
    for stay in stays:
        for label in stay.job.labels:
            having[label].append(stay)
    for stay in stays:
        for label, level in stay.job.anti_affinity.items():
            yield from _too_near(instance, stay, label, level, having[label])
    first: set[tuple[str, float]] = set()
    for stay in sorted(stays, key=lambda stay: stay.from_s):
        for label, level in stay.job.affinity.items() if stay.starts else ():
            if stay.segment.placement:
                yield from _too_far(instance, stay, label, level, having[label], first)


class _Stay:
    """A segment of a plan, with since when its job has been there; `starts` unless it goes on."""

    def __init__(
        self, instance: Instance, job_id: str, k: int, segments: tuple[Segment, ...]
    ) -> None:
        self.job, self.segment = instance.job[job_id], segments[k]
        nodes = {slot.node for slot in self.segment.placement}
        self.from_s = self.segment.start_s
        if k:
            before, self.starts = segments[k - 1], True
            if self.from_s - before.end_s <= TIME_TOLERANCE_S:
                self.starts = nodes != {slot.node for slot in before.placement}
            return
        running = instance.running_job.get(job_id)
        self.starts = (
            running is None
            or self.from_s > instance.now_s + TIME_TOLERANCE_S
            or nodes != {slot.node for slot in running.placement}
        )
        if not self.starts:
            self.from_s = float("-inf")


def _places(instance: Instance, segment: Segment, level: str) -> set[str | None]:
    """Return the nodes, or racks, of a segment; None stands for nodes in no rack."""
    if level == "node":
        return {slot.node for slot in segment.placement}
    return {instance.cluster.node[slot.node].rack for slot in segment.placement}


def _too_near(
    instance: Instance, stay: _Stay, label: str, level: str, others: Iterable[_Stay]
) -> Iterator[Violation]:
    own = stay.segment
    places = _places(instance, own, level) - {None}
    for other in others:
        from_s = max(own.start_s, other.segment.start_s)
        until_s = min(own.end_s, other.segment.end_s)
        shared = places & _places(instance, other.segment, level)
        came_s = max(stay.from_s, other.from_s)
        if (
            other.job is not stay.job
            and shared
            and until_s - from_s > TIME_TOLERANCE_S
            and came_s > float("-inf")
        ):
            shares = f"at {from_s:.12g} s shares {level} {min(map(str, shared))}"
            says = f"{shares} with {other.job.id}, which has label {label}"
            yield broken("anti-affinity", stay.job.id, says, from_s)
            return


def _too_far(
    instance: Instance,
    stay: _Stay,
    label: str,
    level: str,
    others: Iterable[_Stay],
    first: set[tuple[str, float]],
) -> Iterator[Violation]:
    """Check that a job has another with the label in each of its places when it starts, unless it
    is the `first` of them at that moment, has the label itself and is in one place."""
    at_s = stay.from_s
    near: set[str | None] = set()
    is_first = label in stay.job.labels and all(
        label != other or abs(at_s - then_s) > MOMENT_S for other, then_s in first
    )
    for other in others:
        if other.job is stay.job or other.segment.end_s <= at_s + TIME_TOLERANCE_S:
            continue
        if other.from_s <= at_s + MOMENT_S:
            near |= _places(instance, other.segment, level)
        if other.from_s < at_s - MOMENT_S:
            is_first = False
    places = _places(instance, stay.segment, level)
    if None not in places and places <= near:
        return
    if is_first and None not in places and len(places) == 1:
        first.add((label, at_s))
        return
    says = f"starts at {at_s:.12g} s in a {level} without a job that has label {label}"
    yield broken("affinity", stay.job.id, says, at_s)


def quotas(instance: Instance, plan: Plan) -> Iterator[Violation]:
    """Check that each tenant with a quota holds no more than that and what it may borrow, together
    with all tenants below it; and those that are below no other quota no more than all of
    theirs."""
    over = {own.name: quotas_over(instance, own) for own in instance.tenants}
    if not any(over.values()):
        return
    held = _pieces(
        instance,
        plan,
        lambda job, own: [(name, own.mode.gpus) for name in over.get(job.tenant or "", ())],
    )
    for name, pieces in sorted(held.items()):
        borrows = instance.tenant[name].borrow_gpus
        limit = (instance.tenant[name].gpu_quota or 0) + borrows
        unit = "GPUs of its quota and loans" if borrows else "GPUs of its quota"
        yield from _overfull(pieces, limit, "quota", unit, f"tenant {name}")
    topmost = [instance.tenant[name] for name, names in over.items() if names == [name]]
    if any(own.borrow_gpus for own in topmost):
        together = [piece for own in topmost for piece in held.get(own.name, ())]
        every = sum(own.gpu_quota or 0 for own in topmost)
        unit, where = "GPUs of all quotas", "the tenants with a quota"
        yield from _overfull(together, every, "borrowing", unit, where)


def quotas_over(instance: Instance, own: Tenant) -> list[str]:
    """Return the tenants whose quotas limit the jobs of a tenant: it and those above it."""
    names = []
    for _ in instance.tenants:
        if own.gpu_quota is not None:
            names.append(own.name)
        if own.parent not in instance.tenant:
            break
        own = instance.tenant[own.parent]
    return names


def sharing(instance: Instance, plan: Plan, *, replay: bool = False) -> Iterator[Violation]:
    """Check that jobs that share GPUs name each other, sit on the same GPUs, or on as many of one
    node, at one clock all the while, and fit their memory.

    In a replay they may exceed it while one of them, just started, fills it.
    """
    entries = {entry.id: entry for entry in plan.jobs}
    for entry in plan.jobs:
        for segment in entry.segments:
            on = {slot.node: slot.gpus for slot in segment.placement}
            for node, shared in _shared_on(entries, segment).items():
                if sum(shared.values()) > on[node]:
                    says = (
                        f"shares more GPUs of node {node} at {segment.start_s:.12g} s than it holds"
                    )
                    yield broken("sharing", entry.id, says, segment.start_s, node)
            whole = segment.mode.share_with
            for name in (*([whole] if whole is not None else []), *segment.mode.shared_gpus):
                partner = entries.get(name)
                yield from _shared_segment(instance, entry, segment, name, partner, replay)


def _gpus(segment: Segment) -> list[tuple[str, int]]:
    return sorted((slot.node, slot.gpus) for slot in segment.placement)


def _share(job: str, own: Segment, partner: str, other: Segment) -> bool:
    """Return whether two segments name each other on the same GPUs, or on as many of one node."""
    if own.mode.share_with == partner:
        return other.mode.share_with == job and _gpus(own) == _gpus(other)
    shared = own.mode.shared_gpus.get(partner), other.mode.shared_gpus.get(job)
    return len(_common_nodes(own, other)) == 1 and shared[0] == shared[1]


def _shared_segment(
    instance: Instance,
    entry: JobPlan,
    segment: Segment,
    name: str,
    partner: JobPlan | None,
    replay: bool,
) -> Iterator[Violation]:
    node = segment.placement[0].node if segment.placement else None

    def wrong(at_s: float, says: str) -> Violation:
        where = f"shares GPUs with {name} on node {node} at {at_s:.12g} s"
        return broken("sharing", entry.id, f"{where}, but {says}", at_s, node)

    beside: list[Segment] = []
    beside_s = segment.start_s  # up to here the partner has been found beside it
    for other in partner.segments if partner else ():
        at_s = max(segment.start_s, other.start_s)
        if min(segment.end_s, other.end_s) - at_s <= TIME_TOLERANCE_S:
            continue
        if not _share(entry.id, segment, name, other):
            yield wrong(at_s, "they do not name each other on the same GPUs")
            return
        if other.mode.clock_mhz != segment.mode.clock_mhz:
            yield wrong(at_s, "they set different clocks")
            return
        if at_s > beside_s + TIME_TOLERANCE_S:
            break
        beside_s = other.end_s
        beside.append(other)
    if beside_s < segment.end_s - TIME_TOLERANCE_S:
        yield wrong(beside_s, f"{name} does not run then")
        return
    if partner is None:
        return
    job, other_job = instance.job[entry.id], instance.job[name]
    suffices = True
    for other in beside:
        short = beyond_gpu_memory(
            instance.cluster, job, segment.mode, other_job, other.mode, segment.placement
        )
        suffices = short is None
        if short is not None and not (replay and _is_filling(instance, entry, segment, partner)):
            both = gpu_memory_gib(job, segment.mode) + gpu_memory_gib(other_job, other.mode)
            memory = instance.cluster.node[short].gpu_memory_gib or 0.0
            need = f"and {name} need {both:.12g} GiB together on each GPU of node {short}"
            says = f"{need} at {segment.start_s:.12g} s, there are {memory:.12g}"
            yield broken("GPU memory", entry.id, says, segment.start_s, short)
            return
    if suffices and segment.stopped_by == "out_of_memory":
        when = f"at {segment.end_s:.12g} s on node {node}"
        says = f"is stopped by want of GPU memory, but that suffices {when}"
        yield broken("incident", entry.id, says, segment.end_s, node)


def _is_filling(instance: Instance, entry: JobPlan, segment: Segment, partner: JobPlan) -> bool:
    """Return whether throughout a segment one of the pair, just started, fills the memory of the
    GPUs."""
    return any(
        _fills(instance, entry, segment, partner, other)
        or _fills(instance, partner, other, entry, segment)
        for other in partner.segments
        if _spans(other, segment)
    )


def _spans(other: Segment, segment: Segment) -> bool:
    return (
        other.start_s <= segment.start_s + TIME_TOLERANCE_S
        and other.end_s >= segment.end_s - TIME_TOLERANCE_S
    )


def _fills(
    instance: Instance, entry: JobPlan, segment: Segment, partner: JobPlan, other: Segment
) -> bool:
    """Return whether a job that has just been started fills the memory until it runs out of it,
    unless something else ends that before; its preemption does not, where the partner stays."""
    may_last_s = fills_memory_s(instance, entry, segment)
    if may_last_s is None or segment.end_s - segment.start_s > may_last_s + TIME_TOLERANCE_S:
        return False
    ended = segment.stopped_by is not None or segment is entry.segments[-1]
    job, beside = instance.job[entry.id], instance.job[partner.id]
    return (
        ended or goes_on_at_once(job, entry, segment) or not goes_on_at_once(beside, partner, other)
    )
