"""The present of the cluster as an instance: what a live round decides, and what is written down of
it."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..driver.blocked import Amounts, amounts, beneath, blocked_places
from ..executors.base import AttemptKey, NodeStatus, Progress
from ..frozen import record
from ..model import (
    Cluster,
    Instance,
    Job,
    Mode,
    Node,
    Placement,
    Profile,
    Quotas,
    Running,
    Shares,
    Slot,
    Suspended,
    Tenant,
    Window,
)
from ..physics import TIME_TOLERANCE_S, hold_to_save_s, memory_gib, setup_s
from .journal.state import Attempt, LiveJob, State
from .learned import NEVER_S, learned
from .work_left import work_left_s

PATIENCE_S, PATIENCE_RUNS = 86400.0, 20.0
MOST_DOUBLINGS = 30.0
ASKED_S, ASKED_EACH_S = 2.0, 0.05
"""So long it may take until a job hears that it is to save, and for each that runs: they are asked
one after the other."""
LEAST_WORK_S, MOST_WORK_S = 0.001, 1e9
"""No job that runs has less to do, and none is believed to have more (30 years)."""
MOST_WEIGHT = 1e9
"""The largest weight that an instance may name."""


@record
class Present:
    """The instance of a round, and what is not there to be given away: places of attempts that are
    being stopped, places that were given to jobs which wait for these, and all that is free on
    nodes that take no new jobs."""

    instance: Instance
    blocked: tuple[Placement, ...]


def present(
    state: State,
    cluster: Cluster,
    tenants: tuple[Tenant, ...],
    statuses: Sequence[NodeStatus],
    progress: Mapping[AttemptKey, Progress],
    now_s: float,
    *,
    preempt_unsaved: bool = False,
    left_out: Collection[str] = (),
    withheld: Collection[str] = (),
    most_gpus: Mapping[str, int] = MappingProxyType({}),
    strangers: Sequence[Placement] = (),
    before: Cluster | None = None,
    shares: Shares | None = None,
) -> Present:
    """Return the jobs that wait (and may start) and jobs that run, at `now_s` (Unix time, as all
    times of a live instance).

    `cluster` has what all nodes share; its nodes are those of `statuses`. Jobs that are held, are
    being stopped, have a claim, or wait for others to complete are not among the jobs. No job
    shares GPUs with another. Jobs that have waited very long weigh more than they say
    (`impatience`). Those not known to save are not preemptible, unless `preempt_unsaved`.

    Waiting jobs of `withheld` are not among the jobs, and elastic ones of `most_gpus` have no more.
    Jobs of `left_out` are not among the jobs either: what they hold stays theirs, of nodes,
    resources and quotas. `strangers` is what is held by attempts that the state does not know.
    The cluster is the very one of `before` where nothing of it has changed, and so are jobs.
    """
    nodes = tuple(status.node for status in statuses)
    order = {node.name: i for i, node in enumerate(nodes)}
    jobs: list[Job] = []
    running: list[Running] = []
    suspended: list[Suspended] = []
    taken: Amounts = {}
    aside: list[LiveJob] = []
    closed = {status.node.name for status in statuses if not status.usable}
    early_s = asked_s(sum(1 for _ in state.live_attempts()))
    for live_job in state.open.values():
        attempt = live_job.live
        if attempt is not None:
            if live_job.id in left_out:
                aside.append(live_job)
            elif _stays(attempt, order):
                job, entry = as_running(live_job, attempt, progress.get(attempt.key), now_s)
                job = _no_larger(guarded(job, live_job, preempt_unsaved), live_job, most_gpus)
                if job.preemptible and any(slot.node in closed for slot in attempt.placement):
                    job = _staying(live_job, job, entry, cluster.windows, early_s)
                jobs.append(job)
                running.append(entry)
            else:
                amounts([attempt.placement], taken)
        elif (
            may_start(state, live_job, now_s)
            and live_job.id not in state.claims
            and live_job.id not in left_out
            and live_job.id not in withheld
        ):
            job = _no_larger(as_waiting(live_job), live_job, most_gpus)
            factor = impatience(live_job.left_s, state.waited_s(live_job, now_s))
            if factor > 1:
                job = live_job.form(job, weight=min(MOST_WEIGHT, job.weight * factor))
            jobs.append(job)
            if ran_before(live_job):
                suspended.append(as_suspended(live_job))
    taken = beneath(taken, amounts(claim.placement for claim in state.claims.values()))
    amounts(strangers, taken)
    amounts((holder.live.placement for holder in aside if holder.live is not None), taken)
    _leave_out(state, statuses, running, taken)
    _close(statuses, running, taken)
    _cut(nodes, running, taken)
    there = replace(_left(cluster, tenants, aside), nodes=nodes)
    instance = Instance(
        name=f"round {state.round + 1}",
        now_s=now_s,
        cluster=before if before is not None and before == there else there,
        tenants=_less(tenants, _gpus_aside(tenants, aside)),
        shares=shares,
        jobs=tuple(jobs),
        running=tuple(running),
        suspended=tuple(suspended),
    )
    return Present(instance, blocked_places(taken, order))


def asked_s(jobs: int) -> float:
    """Return how long it may take until each of so many jobs hears that it is to save."""
    return ASKED_S + ASKED_EACH_S * jobs


def _staying(
    live_job: LiveJob, job: Job, entry: Running, windows: Sequence[Window], early_s: float
) -> Job:
    """Return a job on a node that takes no jobs, not to be preempted, as nobody could have its
    place, before it must be for a window: asked so much before it has to save."""
    begins_s = min(
        (
            window.from_s
            for window in windows
            if window.bars(job.tenant, job.user)
            and any(slot.node in window.nodes for slot in entry.placement)
        ),
        default=math.inf,
    )
    if begins_s == math.inf:
        return live_job.form(job, preemptible=False)
    stays_s = begins_s - hold_to_save_s(job) - early_s - entry.started_s
    return live_job.form(job, min_run_s=max(job.min_run_s, stays_s))


def shares_now(
    state: State, tenants: Sequence[Tenant], half_life_s: float | None, now_s: float
) -> Shares | None:
    """Return the use of the tenants that there are; None where it is not counted."""
    if half_life_s is None:
        return None
    known = {None, *(tenant.name for tenant in tenants)}
    used = tuple(use for use in state.used(now_s) if use.tenant in known)
    return Shares(half_life_s=half_life_s, used=used)


def _no_larger(job: Job, live_job: LiveJob, most_gpus: Mapping[str, int]) -> Job:
    """Return the job with no more GPUs than it may have."""
    most = most_gpus.get(job.id)
    if most is None or isinstance(job.gpus, int) or most >= job.gpus.max:
        return job
    return live_job.form(job, gpus=replace(job.gpus, max=most))


def may_start(state: State, job: LiveJob, now_s: float) -> bool:
    """Tell whether a job that does not run is free to: not held, its pause after a failure over,
    its predecessors done, and its manager not known to decline it."""
    return (
        job.live is None
        and job.held is None
        and job.finished is None
        and job.ready_s <= now_s
        and job.id not in state.barred
        and next(state.awaits(job), None) is None
    )


def impatience(left_s: float, waited_s: float) -> float:
    """Return by how much the weight of a waiting job is raised: 1 until it has waited, not on hold,
    in all `PATIENCE_S` and `PATIENCE_RUNS` times the work it has to do; doubled with each
    `PATIENCE_S` after that.

    So nobody waits for ever, however much is asked for: of two jobs the one that came long enough
    before the other weighs more."""
    over_s = waited_s - PATIENCE_S - PATIENCE_RUNS * left_s
    return float(2.0 ** min(MOST_DOUBLINGS, max(0.0, over_s / PATIENCE_S)))


def as_waiting(live_job: LiveJob) -> Job:
    """Return the job as a round sees it: no predecessors any more, alone on its GPUs, as long as it
    is believed to be."""
    left_s = min(live_job.left_s, live_job.limit_left_s(live_job.submit_s))
    return _known(live_job, left_s, live_job.profile)


def as_running(
    live_job: LiveJob, attempt: Attempt, progress: Progress | None, now_s: float
) -> tuple[Job, Running]:
    """Return the job and what it holds now."""
    left_s = work_left_s(live_job.submission, attempt, progress, now_s)
    left_s = _within(min(left_s, live_job.limit_left_s(now_s) * attempt.rate))
    began_s = attempt.intended_s if attempt.started_s is None else attempt.started_s
    over = now_s - began_s if attempt.started_s is not None else 0.0
    if progress is not None and progress.step > progress.first_step:
        over = attempt.setup_s
    setup_left_s = max(0.0, attempt.setup_s - over)
    saved_s = None if progress is None else progress.saved_at_s
    entry = Running(
        job=live_job.id,
        mode=attempt.mode,
        placement=attempt.placement,
        started_s=min(began_s, now_s),
        remaining_s=left_s,
        setup_s=0.0 if setup_left_s < TIME_TOLERANCE_S else setup_left_s,
        last_checkpoint_s=None if saved_s is None else min(max(saved_s, began_s), now_s),
        preemptions=live_job.preemptions,
    )
    return _known(live_job, left_s, learned(live_job.profile, progress, attempt.started_s)), entry


def guarded(job: Job, live_job: LiveJob, preempt_unsaved: bool) -> Job:
    """Return the job, not to be preempted where it would lose all it did.

    `preempt_unsaved` allows that, unless the job's own manager decides it.
    """
    said = live_job.submission.preempt_unsaved
    allowed = preempt_unsaved if said is None else said
    if allowed or not job.preemptible or job.profile.checkpoint_every_s != NEVER_S:
        return job
    return live_job.form(job, preemptible=False)


def ran_before(job: LiveJob) -> bool:
    """Tell whether a new attempt goes on from a checkpoint: it has less to do than the whole job,
    or was preempted."""
    return job.preemptions > 0 or job.left_s < job.submission.job.work_s


def start_setup_s(job: LiveJob) -> float:
    """Return the seconds that a start of it takes before work goes on."""
    return setup_s(replace(job.submission.job, profile=job.profile), ran_before(job))


def memory_of(job: Job, mode: Mode, placement: Placement) -> tuple[float, ...]:
    """Return host memory of the job on each node of its place, in GiB; 0 where it states none."""
    return tuple(memory_gib(job, mode, slot.gpus) for slot in placement)


def as_suspended(job: LiveJob) -> Suspended:
    """Return what a job that ran before has to do yet."""
    left_s = min(job.left_s, job.limit_left_s(job.submit_s))
    return Suspended(job=job.id, remaining_s=_within(left_s), preemptions=job.preemptions)


def _within(work_s: float) -> float:
    return min(MOST_WORK_S, max(LEAST_WORK_S, work_s))


def _known(live_job: LiveJob, left_s: float, profile: Profile) -> Job:
    job = live_job.submission.job
    if profile.sharing is not None:
        profile = replace(profile, sharing=None)
    work_s = max(_within(left_s), job.work_s)
    if live_job.kept_off:
        off = dict.fromkeys(sorted(live_job.kept_off), "forbidden")
        job = live_job.form(job, node_labels={**job.node_labels, **off})
    return live_job.form(
        job, after=(), duration_s=work_s, profile=profile, submit_s=live_job.submit_s
    )


def _left(cluster: Cluster, tenants: tuple[Tenant, ...], aside: Sequence[LiveJob]) -> Cluster:
    """Return the cluster with what the jobs of `aside` leave of its resources, and of what windows
    leave of resources and quotas."""
    held: dict[str, float] = {}
    for job in aside:
        for name, amount in {} if job.live is None else job.live.mode.resources.items():
            held[name] = held.get(name, 0.0) + amount
    gpus = _gpus_aside(tenants, aside)

    def beside(there: Mapping[str, float]) -> dict[str, float]:
        return {name: max(0.0, amount - held.get(name, 0.0)) for name, amount in there.items()}

    windows = (
        replace(
            window,
            resources=beside(window.resources),
            quotas={name: max(0, most - gpus[name]) for name, most in window.quotas.items()},
        )
        for window in cluster.windows
    )
    if not aside:
        return cluster
    return replace(cluster, resources=beside(cluster.resources), windows=tuple(windows))


def _gpus_aside(tenants: tuple[Tenant, ...], aside: Sequence[LiveJob]) -> Mapping[str | None, int]:
    """Return the GPUs that the jobs of `aside` hold of each quota."""
    held: Counter[str | None] = Counter()
    over = Quotas.of(tenants).over if aside else {}
    for job in aside:
        for name in over.get(job.submission.job.tenant or "", ()):
            held[name] += 0 if job.live is None else job.live.mode.gpus
    return held


def _less(tenants: tuple[Tenant, ...], held: Mapping[str | None, int]) -> tuple[Tenant, ...]:
    """Return the tenants with what so many held GPUs leave of their quotas."""
    return tuple(
        tenant
        if tenant.gpu_quota is None or not held[tenant.name]
        else replace(
            tenant,
            gpu_quota=max(0, tenant.gpu_quota - held[tenant.name]),
            borrow_gpus=max(0, tenant.borrow_gpus - max(0, held[tenant.name] - tenant.gpu_quota)),
        )
        for tenant in tenants
    )


def _stays(attempt: Attempt, nodes: Mapping[str, int]) -> bool:
    return (
        not attempt.leaving
        and attempt.lost is None
        and all(slot.node in nodes for slot in attempt.placement)
    )


def _cut(nodes: Sequence[Node], running: list[Running], taken: Amounts) -> None:
    """Block no more than there is beside running jobs: a node may have become smaller than what is
    held of it."""
    held = amounts(entry.placement for entry in running)
    for node in nodes:
        if node.name in taken:
            gpus, cpus = held.get(node.name, (0, 0))
            taken[node.name][0] = max(0, min(taken[node.name][0], node.gpus - gpus))
            if node.cpus is not None:
                taken[node.name][1] = max(0, min(taken[node.name][1], node.cpus - cpus))


def _leave_out(
    state: State, statuses: Sequence[NodeStatus], running: list[Running], taken: Amounts
) -> None:
    """Block GPUs that are out."""
    held = amounts(entry.placement for entry in running)
    for node in (status.node for status in statuses if status.out):
        used = held.get(node.name, [0, 0])[0] + taken.get(node.name, [0, 0])[0]
        out = state.idle_out(node.name, node.gpus - used)
        amounts([(Slot(node=node.name, gpus=out),)] if out else [], taken)


def _close(statuses: Sequence[NodeStatus], running: list[Running], taken: Amounts) -> None:
    """Block what no running job holds of nodes that take no new jobs."""
    closed: dict[str, Node] = {
        status.node.name: status.node for status in statuses if not status.usable
    }
    if not closed:
        return
    held = amounts(entry.placement for entry in running)
    for name, node in closed.items():
        gpus, cpus = held.get(name, [0, 0])
        taken[name] = [max(0, node.gpus - gpus), max(0, (node.cpus or 0) - cpus)]
