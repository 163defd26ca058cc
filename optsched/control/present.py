"""The present of the cluster as an instance: what a live round decides, and what is written down of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..cluster import Cluster, Node, Tenant
from ..executors.base import AttemptKey, NodeStatus, Progress
from ..instance import Instance, Placement, Running, Slot, Suspended
from ..job import Job, Mode
from ..physics import TIME_TOLERANCE_S, memory_gib, setup_s
from ..profile import Profile
from .learned import learned
from .out_of_order import idle_out
from .state import Attempt, LiveJob, State
from .work_left import work_left_s

PATIENCE_S, PATIENCE_RUNS = 86400.0, 20.0
MOST_DOUBLINGS = 30.0
LEAST_WORK_S = 0.001
"""No job that runs has less to do."""


@dataclass(frozen=True, slots=True)
class Present:
    """The instance of a round, and what is not there to be given away: places of attempts that are being stopped,
    places that were given to jobs which wait for these, and all that is free on nodes that take no new jobs."""

    instance: Instance
    blocked: tuple[Placement, ...]


def present(
    state: State, cluster: Cluster, tenants: tuple[Tenant, ...], statuses: Sequence[NodeStatus],
    progress: Mapping[AttemptKey, Progress], now_s: float,
) -> Present:
    """Jobs that wait (and may start) and jobs that run, at `now_s` (Unix time, as all times of a live instance).

    `cluster` has what all nodes share; its nodes are those of `statuses`. Jobs that are held, are being stopped, have a
    claim, or wait for others to complete are not among the jobs. No job shares GPUs with another. Jobs that have
    waited very long weigh more than they say (`impatience`).
    """
    nodes = tuple(status.node for status in statuses)
    order = {node.name: i for i, node in enumerate(nodes)}
    jobs: list[Job] = []
    running: list[Running] = []
    suspended: list[Suspended] = []
    taken: dict[str, list[int]] = {}
    for live_job in state.open.values():
        attempt = live_job.live
        if attempt is not None:
            if _stays(attempt, order):
                job, entry = as_running(live_job, attempt, progress.get(attempt.key), now_s)
                jobs.append(job)
                running.append(entry)
            else:
                _add(taken, attempt.placement)
        elif may_start(state, live_job, now_s) and live_job.id not in state.claims:
            job = as_waiting(live_job)
            jobs.append(replace(job, weight=job.weight * impatience(live_job, now_s)))
            if ran_before(live_job):
                suspended.append(_suspended(live_job))
    claimed: dict[str, list[int]] = {}
    for claim in state.claims.values():
        _add(claimed, claim.placement)
    for name, (gpus, cpus) in claimed.items():
        held = taken.setdefault(name, [0, 0])
        held[0], held[1] = max(held[0], gpus), max(held[1], cpus)
    _leave_out(state, statuses, running, taken)
    _close(statuses, running, taken)
    blocked = tuple(
        (Slot(node=name, gpus=gpus, cpus=cpus),)
        for name, (gpus, cpus) in sorted(taken.items(), key=lambda item: order.get(item[0], math.inf))
        if name in order
    )
    instance = Instance(
        name=f"round {state.round + 1}", now_s=now_s, cluster=replace(cluster, nodes=nodes), tenants=tenants,
        jobs=tuple(jobs), running=tuple(running), suspended=tuple(suspended),
    )
    return Present(instance, blocked)


def may_start(state: State, job: LiveJob, now_s: float) -> bool:
    """Whether a job that does not run is free to: not held, its pause after a failure over, its predecessors done."""
    return (
        job.live is None and job.held is None and job.finished is None and job.ready_s <= now_s
        and all(name in state.jobs and state.jobs[name].finished == "completed" for name in job.submission.job.after)
    )


def impatience(job: LiveJob, now_s: float) -> float:
    """By how much the weight of a waiting job is raised: 1 until it has waited, since it last held anything,
    `PATIENCE_S` and `PATIENCE_RUNS` times the work it has to do; doubled with each `PATIENCE_S` after that.

    So nobody waits for ever, however much is asked for: of two jobs the one that came long enough before the other
    weighs more."""
    last = job.attempts[-1].ended_s if job.attempts else None
    waited_s = now_s - (job.submit_s if last is None else last)
    over_s = waited_s - PATIENCE_S - PATIENCE_RUNS * job.left_s
    return float(2.0 ** min(MOST_DOUBLINGS, max(0.0, over_s / PATIENCE_S)))


def as_waiting(live_job: LiveJob) -> Job:
    """The job as a round sees it: no predecessors any more, alone on its GPUs, as long as it is believed to be."""
    return _known(live_job, live_job.left_s, live_job.profile)


def as_running(live_job: LiveJob, attempt: Attempt, progress: Progress | None, now_s: float) -> tuple[Job, Running]:
    """The job and what it holds now."""
    left_s = max(LEAST_WORK_S, work_left_s(live_job.submission, attempt, progress, now_s))
    began_s = attempt.intended_s if attempt.started_s is None else attempt.started_s
    over = now_s - began_s if attempt.started_s is not None else 0.0
    if progress is not None and progress.step > progress.first_step:
        over = attempt.setup_s
    setup_left_s = max(0.0, attempt.setup_s - over)
    saved_s = None if progress is None else progress.saved_at_s
    entry = Running(
        job=live_job.id, mode=attempt.mode, placement=attempt.placement, started_s=min(began_s, now_s),
        remaining_s=left_s, setup_s=0.0 if setup_left_s < TIME_TOLERANCE_S else setup_left_s,
        last_checkpoint_s=None if saved_s is None else min(saved_s, now_s), preemptions=live_job.preemptions,
    )
    return _known(live_job, left_s, learned(live_job.profile, progress, attempt.started_s)), entry


def ran_before(job: LiveJob) -> bool:
    """Whether a new attempt goes on from a checkpoint: it has less to do than the whole job, or was preempted."""
    return job.preemptions > 0 or job.left_s < job.submission.job.work_s


def start_setup_s(job: LiveJob) -> float:
    """Seconds that a start of it takes before work goes on."""
    return setup_s(replace(job.submission.job, profile=job.profile), ran_before(job))


def memory_of(job: Job, mode: Mode, placement: Placement) -> tuple[float, ...]:
    """Host memory of the job on each node of its place, in GiB; 0 where it states none."""
    return tuple(memory_gib(job, mode, slot.gpus) for slot in placement)


def _suspended(job: LiveJob) -> Suspended:
    return Suspended(job=job.id, remaining_s=max(LEAST_WORK_S, job.left_s), preemptions=job.preemptions)


def _known(live_job: LiveJob, left_s: float, profile: Profile) -> Job:
    job = live_job.submission.job
    if profile.sharing is not None:
        profile = replace(profile, sharing=None)
    work_s = max(LEAST_WORK_S, job.work_s, left_s)
    return replace(job, after=(), duration_s=work_s, profile=profile, submit_s=live_job.submit_s)


def _stays(attempt: Attempt, nodes: Mapping[str, int]) -> bool:
    return not attempt.leaving and attempt.lost is None and all(slot.node in nodes for slot in attempt.placement)


def _add(into: dict[str, list[int]], placement: Placement) -> None:
    for slot in placement:
        held = into.setdefault(slot.node, [0, 0])
        held[0] += slot.gpus
        held[1] += slot.cpus


def _leave_out(
    state: State, statuses: Sequence[NodeStatus], running: list[Running], taken: dict[str, list[int]]
) -> None:
    """Block GPUs that are out."""
    held: dict[str, list[int]] = {}
    for entry in running:
        _add(held, entry.placement)
    for node in (status.node for status in statuses if status.out):
        used = held.get(node.name, [0, 0])[0] + taken.get(node.name, [0, 0])[0]
        out = idle_out(state, node.name, node.gpus - used)
        _add(taken, (Slot(node=node.name, gpus=out),) if out else ())


def _close(statuses: Sequence[NodeStatus], running: list[Running], taken: dict[str, list[int]]) -> None:
    """Block what no running job holds of nodes that take no new jobs."""
    closed: dict[str, Node] = {status.node.name: status.node for status in statuses if not status.usable}
    if not closed:
        return
    held: dict[str, list[int]] = {}
    for entry in running:
        _add(held, tuple(slot for slot in entry.placement if slot.node in closed))
    for name, node in closed.items():
        gpus, cpus = held.get(name, [0, 0])
        taken[name] = [node.gpus - gpus, max(0, (node.cpus or 0) - cpus)]
