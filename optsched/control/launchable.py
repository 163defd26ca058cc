"""Which claims can be started now: beside all that is still held, by the independent checker of
rounds."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from ..driver.blocked import amounts, blocked_places
from ..executors.base import AttemptKey, NodeStatus, Progress
from ..frozen import record
from ..model import Cluster, Instance, Job, Node, Placement, Running, Suspended, Tenant
from ..physics import held_resources, placed_rate, uplinks
from ..physics.catalogue import catalogue_of
from ..round.plan import JobRound, going_on
from ..round.verify import verify_round
from ..round.windows import at_present
from .journal.events import Claim
from .journal.state import State
from .present import as_running, as_suspended, as_waiting, may_start, ran_before

TOLERANCE = 1e-6
"""Share of a capacity by which it may be exceeded: the rounding of sums."""


@record
class Launchable:
    """A claim that can be started, and the rate at which it will run."""

    claim: Claim
    rate: float


def launchable(
    state: State,
    cluster: Cluster,
    tenants: tuple[Tenant, ...],
    statuses: Sequence[NodeStatus],
    progress: Mapping[AttemptKey, Progress],
    now_s: float,
    strangers: Sequence[Placement] = (),
) -> list[Launchable]:
    """Return claims whose place is free now and on usable nodes, in order; each counts for those
    after it.

    Whatever is still there counts as held: attempts that are being stopped, those nobody has an
    answer for, and `strangers`, which the state does not know. Where more is held than there is,
    nobody gets any of that.
    """
    usable = {status.node.name for status in statuses if status.usable}
    wanted = [
        claim
        for claim in state.claims.values()
        if may_start(state, state.jobs[claim.job], now_s)
        and all(slot.node in usable for slot in claim.placement)
    ]
    if not wanted:
        return []
    jobs: list[Job] = []
    running: list[Running] = []
    suspended: list[Suspended] = []
    for live_job in state.open.values():
        attempt = live_job.live
        if attempt is not None:
            job, entry = as_running(live_job, attempt, progress.get(attempt.key), now_s)
            jobs.append(job)
            running.append(entry)
    for claim in wanted:
        live_job = state.jobs[claim.job]
        jobs.append(as_waiting(live_job))
        if ran_before(live_job):
            suspended.append(as_suspended(live_job))
    gone = _gone(running, {status.node.name for status in statuses})
    instance = Instance(
        now_s=now_s,
        cluster=replace(cluster, nodes=(*(_in_order(state, own) for own in statuses), *gone)),
        tenants=tenants,
        jobs=tuple(jobs),
        running=tuple(running),
        suspended=tuple(suspended),
    )
    instance = at_present(instance)
    held = [going_on(entry) for entry in running]
    blocked = blocked_places(amounts(strangers), instance.cluster.node_order)
    known = {str(fault) for fault in verify_round(instance, held, blocked)}
    if known:
        wanted = _beside_excess(instance, wanted)
    free: list[Launchable] = []

    def begin(claims: Sequence[Claim]) -> None:
        """Take all claims if they are free together, else those of each half that are: what is held
        only grows, so that these are the claims which one after the other would be taken."""
        begun = [
            JobRound(
                id=claim.job,
                decision="resume" if claim.job in instance.suspended_job else "start",
                mode=claim.mode,
                placement=claim.placement,
            )
            for claim in claims
        ]
        faults = verify_round(instance, [*held, *begun], blocked)
        if all(str(fault) in known for fault in faults):
            held.extend(begun)
            for claim in claims:
                job = instance.job[claim.job]
                rate = placed_rate(instance, job, claim.mode, claim.placement)
                free.append(Launchable(claim, rate))
        elif len(claims) > 1:
            begin(claims[: len(claims) // 2])
            begin(claims[len(claims) // 2 :])

    begin(wanted)
    return free


def _beside_excess(instance: Instance, claims: list[Claim]) -> list[Claim]:
    """Return the claims that draw on no quota, resource or uplink of which more is held than there
    is: the checker tells only who was the first to go beyond it."""
    cluster, table = instance.cluster, catalogue_of(instance).capacity
    limit: dict[object, float] = dict(cluster.rack_uplink_gbps.items())
    limit |= {number: row.capacity for number, row in enumerate(table.rows)}

    def drawn(holder: Running | Claim) -> dict[object, float]:
        job, mode = instance.job[holder.job], holder.mode
        resources = held_resources(cluster, job, mode, mode.gpu_type)
        demand = table.together(job, replace(mode, resources=resources))
        return dict([*demand, *uplinks(cluster, job, holder.placement).items()])

    held: Counter[object] = Counter()
    for entry in instance.running:
        held.update(drawn(entry))
    full = {row for row in held if held[row] > limit[row] * (1 + TOLERANCE)}
    return [claim for claim in claims if full.isdisjoint(drawn(claim))]


def _gone(running: Sequence[Running], there: Container[str]) -> list[Node]:
    """Return the nodes that are no longer there, but on which jobs run as far as is known, with no
    more than these hold."""
    held = amounts(entry.placement for entry in running)
    types = {slot.node: entry.mode.gpu_type for entry in running for slot in entry.placement}
    return [
        Node(name=name, gpu_type=types[name], gpus=gpus)
        for name, (gpus, _) in held.items()
        if name not in there
    ]


def _in_order(state: State, status: NodeStatus) -> Node:
    """Return the node without GPUs that are out and that nobody holds."""
    node = status.node
    if not status.out:
        return node
    held = amounts(attempt.placement for attempt in state.live_attempts())
    idle = node.gpus - held.get(node.name, [0])[0]
    return replace(node, gpus=node.gpus - state.idle_out(node.name, idle))
