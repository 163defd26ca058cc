"""The independent checker of a round: what all jobs hold at one instant, in plain loops."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..model.instance import Instance, Placement
from ..model.plan import JobPlan, Plan, Segment
from ..physics import TIME_TOLERANCE_S, may_preempt, memory_gib, placed_rate, uplinks
from ..physics.contention import planned_uplinks_gbps
from ..verify.capacity import minds_neighbours, neighbours
from ..verify.segments import check_segment, same_hold, same_place
from ..verify.violation import Violation
from .plan import JobRound, decision

AMOUNT_TOLERANCE = 1e-6
"""Relative excess of a fractional amount that counts as rounding."""


def verify_round(
    instance: Instance, jobs: Sequence[JobRound], blocked: Sequence[Placement] = ()
) -> tuple[Violation, ...]:
    """Every rule of DESIGN 4 and 5 that can be broken at `now_s`. Jobs that are not listed hold
    nothing.

    `blocked` is held by jobs that are being saved.
    """
    found: list[Violation] = []
    seen: set[str] = set()
    for entry in jobs:
        if entry.id not in instance.job:
            found.append(
                Violation("unknown job", f"job {entry.id} is not in the instance", entry.id)
            )
        elif entry.id in seen:
            found.append(Violation("duplicate job", f"job {entry.id} is decided twice", entry.id))
        elif not _goes_on_as_before(instance, entry):
            found.extend(_job(instance, entry))
        seen.add(entry.id)
    if not found:
        for running in instance.running:
            if running.job not in seen and not may_preempt(instance, running):
                found.append(
                    Violation("preemption", f"job {running.job} may not be preempted", running.job)
                )
        found.extend(_together(instance, jobs, blocked))
        if minds_neighbours(instance):
            found.extend(neighbours(instance, _as_plan(instance.now_s, jobs)))
    return tuple(found)


def _goes_on_as_before(instance: Instance, entry: JobRound) -> bool:
    """Return whether a job holds the very things that it held already, which were checked with the
    instance, or goes on waiting."""
    running = instance.running_job.get(entry.id)
    if running is None:
        return entry.decision == "wait" and entry.mode is None and not entry.placement
    return (
        entry.mode is running.mode
        and entry.placement is running.placement
        and entry.decision == "continue"
    )


def _as_plan(now_s: float, jobs: Sequence[JobRound]) -> Plan:
    """What a round holds, for a second."""
    return Plan(
        jobs=tuple(
            JobPlan(
                id=entry.id,
                decision="start",
                segments=(
                    Segment(
                        start_s=now_s, end_s=now_s + 1.0, mode=entry.mode, placement=entry.placement
                    ),
                ),
            )
            for entry in jobs
            if entry.mode is not None
        )
    )


def _job(instance: Instance, entry: JobRound) -> Iterator[Violation]:
    now_s = instance.now_s
    job = instance.job[entry.id]
    running = instance.running_job.get(entry.id)
    expected = decision(instance, entry.id, entry.mode, entry.placement)
    if entry.decision != expected:
        yield Violation(
            "decision",
            f"job {entry.id} is said to {entry.decision}, what it holds says {expected}",
            entry.id,
            None,
            now_s,
        )
    goes_on = (
        running is not None
        and entry.mode is not None
        and same_place(entry.placement, running.placement)
        and same_hold(entry.mode, running.mode)
    )
    if running is not None and not goes_on and not may_preempt(instance, running):
        yield Violation(
            "preemption",
            f"job {entry.id} may not be preempted at {now_s:.12g} s",
            entry.id,
            None,
            now_s,
        )
    if entry.mode is None:
        if entry.placement:
            yield Violation("placement", f"job {entry.id} has a placement but no mode", entry.id)
        return
    for slot in entry.placement:
        if slot.node not in instance.cluster.node:
            yield Violation(
                "unknown node",
                f"job {entry.id} is placed on node {slot.node}, which does not exist",
                entry.id,
                slot.node,
                now_s,
            )
            return
    if running is None and job.after:
        yield Violation(
            "precedence", f"job {entry.id} starts before {job.after[0]} has completed", entry.id
        )
    now = Segment(start_s=now_s, end_s=now_s + 1.0, mode=entry.mode, placement=entry.placement)
    wrong = False
    for violation in check_segment(instance, job, now, now_s - TIME_TOLERANCE_S, goes_on):
        wrong = True
        yield violation
    partner = entry.mode.share_with
    known = partner is None or partner in instance.job
    if not wrong and known and placed_rate(instance, job, entry.mode, entry.placement) <= 0:
        yield Violation("progress", f"job {entry.id} would make no progress", entry.id, None, now_s)


def _together(
    instance: Instance, jobs: Sequence[JobRound], blocked: Sequence[Placement]
) -> Iterator[Violation]:
    cluster = instance.cluster
    gpus: dict[str, int] = defaultdict(int)
    cores: dict[str, int] = defaultdict(int)
    memory: dict[str, float] = defaultdict(float)
    resources: dict[str, float] = defaultdict(float)
    budgets: dict[str, float] = defaultdict(float)
    tenants: dict[str, int] = defaultdict(int)
    links: dict[str, float] = defaultdict(float)
    by_id = {entry.id: entry for entry in jobs if entry.mode is not None}
    for placement in blocked:
        for slot in placement:
            gpus[slot.node] += slot.gpus
            cores[slot.node] += slot.cpus
    for entry in by_id.values():
        mode = entry.mode
        assert mode is not None
        job = instance.job[entry.id]
        counts = True
        if mode.share_with is not None:
            fault = _pair(instance, entry, by_id.get(mode.share_with))
            if fault is not None:
                yield fault
            counts = entry.id < mode.share_with  # the GPUs of a pair count once
        has_memory = job.profile.memory_gib_per_gpu or not mode.gpus
        for slot in entry.placement:
            if counts:
                gpus[slot.node] += slot.gpus
            cores[slot.node] += slot.cpus
            if has_memory:
                memory[slot.node] += memory_gib(job, mode, slot.gpus)
        for name, amount in mode.resources.items():
            resources[name] += amount
        for name, amount in mode.budgets.items():
            budgets[name] += amount
        if job.tenant is not None:
            tenants[job.tenant] += mode.gpus
        if cluster.rack_uplink_gbps:
            for rack, amount in uplinks(cluster, job, entry.placement).items():
                links[rack] += amount
    for node in cluster.nodes:
        for rule, unit, used, most in (
            ("GPUs", "GPUs", gpus.get(node.name, 0), node.gpus),
            ("cores", "cores", cores.get(node.name, 0), node.cpus),
            ("memory", "GiB of memory", memory.get(node.name, 0.0), node.memory_gib),
        ):
            if most is not None and used > most + AMOUNT_TOLERANCE * max(1.0, most):
                yield Violation(
                    rule,
                    f"node {node.name} would hold {used:.12g} {unit} of {most:.12g}",
                    None,
                    node.name,
                )
    for rule, what, held, capacity in (
        ("resource", "", resources, cluster.resources),
        ("budget", "budget ", budgets, cluster.budgets),
        ("uplink", "the uplink of rack ", links, planned_uplinks_gbps(instance)),
    ):
        for name, amount in held.items():
            most = capacity.get(name, float("inf") if rule == "uplink" else 0.0)
            if amount > most + AMOUNT_TOLERANCE * max(1.0, most):
                yield Violation(
                    rule,
                    f"the round would hold {amount:.12g} of {what}{name}, there is {most:.12g}",
                )
    capped = [tenant for tenant in instance.tenants if tenant.gpu_quota is not None]
    for tenant in capped:
        limit = (tenant.gpu_quota or 0) + tenant.borrow_gpus
        used = tenants[tenant.name]
        if used > limit:
            yield Violation(
                "quota", f"tenant {tenant.name} would hold {used} GPUs, it may hold {limit}"
            )
    total, quotas = (
        sum(tenants[one.name] for one in capped),
        sum(one.gpu_quota or 0 for one in capped),
    )
    if total > quotas:
        yield Violation(
            "borrowing",
            f"tenants with quotas would hold {total} GPUs together, their quotas are {quotas}",
        )


def _pair(instance: Instance, entry: JobRound, partner: JobRound | None) -> Violation | None:
    assert entry.mode is not None
    name = entry.mode.share_with
    gpus = sorted((slot.node, slot.gpus) for slot in entry.placement)
    if (
        partner is None
        or partner is entry
        or partner.mode is None
        or partner.mode.share_with != entry.id
        or gpus != sorted((slot.node, slot.gpus) for slot in partner.placement)
    ):
        return Violation(
            "sharing",
            f"job {entry.id} shares GPUs with {name}, but they do not name each other on the "
            "same GPUs",
            entry.id,
        )
    if partner.mode.clock_mhz != entry.mode.clock_mhz:
        return Violation(
            "sharing",
            f"job {entry.id} shares GPUs with {name}, but they set different clocks",
            entry.id,
        )
    both = (
        instance.job[entry.id].profile.gpu_memory_gib
        + instance.job[partner.id].profile.gpu_memory_gib
    )
    for slot in entry.placement:
        most = instance.cluster.node[slot.node].gpu_memory_gib
        if most is not None and both > most * (1 + AMOUNT_TOLERANCE):
            return Violation(
                "GPU memory",
                f"jobs {entry.id} and {name} need {both:.12g} GiB of each GPU of node "
                f"{slot.node}, there are {most:.12g}",
                entry.id,
                slot.node,
            )
    return None
