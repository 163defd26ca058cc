"""The independent checker of a round: what all jobs hold at one instant, in plain loops."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

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
    by_id = {entry.id: entry for entry in jobs if entry.mode is not None}
    held = _Sums(instance)
    for slot in chain.from_iterable(blocked):
        held.gpus[slot.node] += slot.gpus
        held.cores[slot.node] += slot.cpus
    for entry in by_id.values():
        if entry.mode is not None and entry.mode.share_with is not None:
            fault = _pair(instance, entry, by_id.get(entry.mode.share_with))
            if fault is not None:
                yield fault
        held.add(entry)
    yield from held.too_much_of_nodes()
    yield from held.too_much_together()
    yield from held.too_much_of_quotas()


class _Sums:
    """What all jobs hold at one instant."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self.gpus: dict[str, int] = defaultdict(int)
        self.cores: dict[str, int] = defaultdict(int)
        self._memory: dict[str, float] = defaultdict(float)
        self._resources: dict[str, float] = defaultdict(float)
        self._budgets: dict[str, float] = defaultdict(float)
        self._tenants: dict[str, int] = defaultdict(int)
        self._links: dict[str, float] = defaultdict(float)

    def add(self, entry: JobRound) -> None:
        """Add a job that holds something."""
        mode, job = entry.mode, self._instance.job[entry.id]
        assert mode is not None
        counts = mode.share_with is None or entry.id < mode.share_with  # once for a pair
        has_memory = job.profile.memory_gib_per_gpu or not mode.gpus
        for slot in entry.placement:
            if counts:
                self.gpus[slot.node] += slot.gpus
            self.cores[slot.node] += slot.cpus
            if has_memory:
                self._memory[slot.node] += memory_gib(job, mode, slot.gpus)
        for name, amount in mode.resources.items():
            self._resources[name] += amount
        for name, amount in mode.budgets.items():
            self._budgets[name] += amount
        if job.tenant is not None:
            self._tenants[job.tenant] += mode.gpus
        if self._instance.cluster.rack_uplink_gbps:
            for rack, amount in uplinks(self._instance.cluster, job, entry.placement).items():
                self._links[rack] += amount

    def too_much_of_nodes(self) -> Iterator[Violation]:
        """GPUs, cores and memory."""
        for node in self._instance.cluster.nodes:
            for rule, unit, used, most in (
                ("GPUs", "GPUs", self.gpus.get(node.name, 0), node.gpus),
                ("cores", "cores", self.cores.get(node.name, 0), node.cpus),
                ("memory", "GiB of memory", self._memory.get(node.name, 0.0), node.memory_gib),
            ):
                if most is not None and _is_more(used, most):
                    text = f"node {node.name} would hold {used:.12g} {unit} of {most:.12g}"
                    yield Violation(rule, text, None, node.name)

    def too_much_together(self) -> Iterator[Violation]:
        """Resources, budgets and uplinks."""
        cluster = self._instance.cluster
        links = planned_uplinks_gbps(self._instance)
        for rule, what, held, capacity, otherwise in (
            ("resource", "", self._resources, cluster.resources, 0.0),
            ("budget", "budget ", self._budgets, cluster.budgets, 0.0),
            ("uplink", "the uplink of rack ", self._links, links, float("inf")),
        ):
            for name, amount in held.items():
                most = capacity.get(name, otherwise)
                if _is_more(amount, most):
                    yield Violation(
                        rule,
                        f"the round would hold {amount:.12g} of {what}{name}, there is {most:.12g}",
                    )

    def too_much_of_quotas(self) -> Iterator[Violation]:
        """Each tenant's own with what it may borrow, and all together."""
        capped = [tenant for tenant in self._instance.tenants if tenant.gpu_quota is not None]
        for tenant in capped:
            limit = (tenant.gpu_quota or 0) + tenant.borrow_gpus
            used = self._tenants[tenant.name]
            if used > limit:
                yield Violation(
                    "quota", f"tenant {tenant.name} would hold {used} GPUs, it may hold {limit}"
                )
        total = sum(self._tenants[tenant.name] for tenant in capped)
        quotas = sum(tenant.gpu_quota or 0 for tenant in capped)
        if total > quotas:
            yield Violation(
                "borrowing",
                f"tenants with quotas would hold {total} GPUs together, their quotas are {quotas}",
            )


def _is_more(used: float, most: float) -> bool:
    return used > most + AMOUNT_TOLERANCE * max(1.0, most)


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
