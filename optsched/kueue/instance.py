"""Queues and Workloads as an instance, as one round sees it: quota is the cluster.

ClusterQueues that share quota (a cohort) are one pool. The GPUs of a flavor in a pool are one node,
whatever hosts they are on, as Kueue itself counts quota and not hosts; every other resource of a
flavor is a resource of the cluster. What a single queue may have of a pool is one more resource.
Quota that Workloads hold which are not decided on is taken off; that of those which are being
evicted counts as free, so that nobody else gives way to those it is for.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..control.present import LEAST_WORK_S, impatience
from ..control.settings import MOST_PRIORITY
from ..control.work_left import OVERRUN
from ..frozen import frozen
from ..model import Cluster, Instance, Job, Mode, Node, Profile, Running, Slot, Suspended, Tier
from .objects import Flavor, Queue, Share, Workload

NEVER_SAVES_S = 1e9
"""How often a Workload saves that says nothing of it: preempted, it begins again."""
MOST_MODES = 32
MOST_WEIGHT = 1e9
TINY = 1e-9


@frozen
class Site:
    """All there is: `gpu` is the resource that is a GPU. `steered` are the names of the queues
    whose Workloads are decided on, `step` is what a step between two priorities in use counts in
    weight, where they are not strict, `runs_s` how long a Workload is believed to run that says
    nothing of it. Those that do not say that they save give way only with `preempt_unsaved`;
    `tiers` say whom others may preempt."""

    queues: Mapping[str, Queue]
    flavors: Mapping[str, Flavor]
    workloads: Sequence[Workload]
    steered: Sequence[str]
    gpu: str
    step: float | None
    runs_s: float
    preempt_unsaved: bool = False
    tiers: tuple[Tier, ...] = ()


@frozen
class View:
    """The instance, and why Workloads of steered queues are not among its jobs, by id."""

    instance: Instance
    left_out: Mapping[str, str]


def view(site: Site, now_s: float) -> View:
    """Return what is to be decided at `now_s`, Unix time."""
    left_out: dict[str, str] = {}
    decided: list[Workload] = []
    others: list[Workload] = []
    for workload in site.workloads:
        why = _why_not(site, workload, now_s)
        if why is None:
            decided.append(workload)
        elif workload.queue in site.steered:
            left_out[workload.id] = why
        if why is not None and workload.held is not None and not workload.evicted:
            others.append(workload)
    capacity = _Capacity(
        site, others, [workload for workload in decided if workload.held is not None]
    )
    weights = {} if site.step is None else _weights(decided, site.step)
    jobs, running, suspended = [], [], []
    for workload in decided:
        job, entry = capacity.job(workload, weights.get(workload.priority, 1.0), now_s)
        if not job.modes:
            left_out[workload.id] = "no flavor of its queue has all that it asks for"
            continue
        jobs.append(job)
        if isinstance(entry, Running):
            running.append(entry)
        elif entry is not None:
            suspended.append(entry)
    return View(
        instance=Instance(
            name="kueue",
            now_s=now_s,
            cluster=capacity.cluster(),
            jobs=tuple(jobs),
            running=tuple(running),
            suspended=tuple(suspended),
        ),
        left_out=left_out,
    )


def _why_not(site: Site, workload: Workload, now_s: float) -> str | None:
    queue = site.queues.get(workload.queue)
    if queue is None or workload.queue not in site.steered:
        return "its queue is not among those to be decided on"
    if workload.evicted and workload.held is not None:
        return "is being evicted"
    if workload.held is None:
        if queue.stopped:
            return f"queue {queue.name} is stopped"
        if workload.again_s is not None and workload.again_s > now_s:
            return "waits until Kueue tries it again"
    elif len({flavor for flavor, resource in workload.held if resource == site.gpu}) > 1:
        return "holds GPUs of several flavors"
    return None


def _weights(workloads: Iterable[Workload], step: float) -> dict[int, float]:
    """Return the weight of each priority: `step` times that of the next lower one that somebody
    has."""
    present = sorted({workload.priority for workload in workloads})
    return {priority: min(MOST_WEIGHT, step**rank) for rank, priority in enumerate(present)}


def _strict(workload: Workload) -> int:
    """Return the priority of a Workload, within what rounds tell apart."""
    return max(-MOST_PRIORITY, min(MOST_PRIORITY, workload.priority))


class _Capacity:
    """Quota by pool and flavor, less what others hold."""

    def __init__(self, site: Site, others: Sequence[Workload], holders: Sequence[Workload]) -> None:
        self._site = site
        self._pool = {name: queue.pool for name, queue in site.queues.items()}
        self._members: dict[str, list[Queue]] = {}
        for queue in site.queues.values():
            self._members.setdefault(queue.pool, []).append(queue)
        taken, mine = _usage(others, self._pool), _usage(holders, self._pool)
        total: dict[tuple[str, Share], float] = defaultdict(float)
        for queue in site.queues.values():
            for share, quota in queue.quotas.items():
                total[queue.pool, share] += quota.nominal
        # Quota may have been lowered below what is held: nothing must go because of that.
        self._shared = {
            key: max(amount - taken.get(key, 0.0), mine.get(key, 0.0), 0.0)
            for key, amount in total.items()
        }
        for key, amount in mine.items():
            self._shared.setdefault(key, amount)
        self._own: dict[tuple[str, Share], float] = {}
        taken_of, mine_of = _usage(others, None), _usage(holders, None)
        for queue in site.queues.values():
            for share in queue.quotas:
                limit = self._limit(queue, share)
                if limit < total[queue.pool, share] - TINY:
                    key = queue.name, share
                    self._own[key] = max(limit - taken_of.get(key, 0.0), mine_of.get(key, 0.0), 0.0)

    def _limit(self, queue: Queue, share: Share) -> float:
        """Return the most that a queue can ever have of it."""
        quota = queue.quotas[share]
        lent = 0.0
        for other in self._members[queue.pool]:
            theirs = other.quotas.get(share)
            if other is not queue and theirs is not None:
                lent += (
                    theirs.nominal
                    if theirs.lending is None
                    else min(theirs.lending, theirs.nominal)
                )
        return quota.nominal + (lent if quota.borrowing is None else min(lent, quota.borrowing))

    def cluster(self) -> Cluster:
        """Return Flavors as nodes and resources."""
        nodes, resources = [], {}
        for (pool, (flavor, resource)), amount in self._shared.items():
            if resource == self._site.gpu:
                name = f"{pool}/{flavor}"
                nodes.append(Node(name=name, gpu_type=name, gpus=math.floor(amount + TINY)))
            else:
                resources[_resource(pool, (flavor, resource))] = amount
        for (queue, share), amount in self._own.items():
            resources[_resource(f"queue:{queue}", share) + " limit"] = amount
        return Cluster(nodes=tuple(nodes), resources=resources, tiers=self._site.tiers)

    def job(
        self, workload: Workload, weight: float, now_s: float
    ) -> tuple[Job, Running | Suspended | None]:
        """Return a Workload as a job, without modes where it cannot run, and what it holds or did
        before."""
        site = self._site
        queue = site.queues[workload.queue]
        believed_s = workload.duration_s or site.runs_s
        every_s = workload.checkpoint_every_s
        ran_s = (
            0.0
            if workload.held is None or workload.admitted_s is None
            else max(0.0, now_s - workload.admitted_s)
        )
        past_s = (
            0.0
            if every_s is None
            else max(0.0, workload.past_s - every_s * max(1, workload.evictions))
        )
        left_s = max(believed_s - past_s - ran_s, OVERRUN * ran_s, LEAST_WORK_S)
        work_s = max(believed_s, left_s)
        modes = [self._mode(queue, usage, work_s) for usage in self._ways(queue, workload)]
        current = None if workload.held is None else self._mode(queue, workload.held, work_s)
        if current is not None:
            modes = [current, *(mode for mode in modes if mode != current)]
        else:
            waited_s = now_s - workload.created_s - workload.past_s
            weight = min(MOST_WEIGHT, weight * impatience(left_s, waited_s))
        job = Job(
            id=workload.id,
            submit_s=min(workload.created_s, now_s),
            user=workload.namespace,
            weight=weight,
            priority=_strict(workload) if site.step is None else 0,
            modes=tuple(modes),
            preemptible=queue.preempts and (every_s is not None or site.preempt_unsaved),
            profile=Profile(checkpoint_every_s=every_s or NEVER_SAVES_S),
        )
        if current is None:
            again = (
                Suspended(job=workload.id, remaining_s=left_s, preemptions=workload.evictions)
                if workload.evictions
                else None
            )
            return job, again
        started_s = now_s - ran_s
        saved_s = (
            started_s + math.floor(ran_s / every_s) * every_s if every_s is not None else started_s
        )
        placement = (Slot(node=str(current.gpu_type), gpus=current.gpus),) if current.gpus else ()
        return job, Running(
            job=workload.id,
            mode=current,
            placement=placement,
            started_s=started_s,
            remaining_s=left_s,
            last_checkpoint_s=saved_s if saved_s > started_s else None,
            preemptions=workload.evictions,
        )

    def _ways(self, queue: Queue, workload: Workload) -> list[dict[Share, float]]:
        """Return what it can hold, one flavor for each group of resources. Resources of which the
        queue has no quota do not count, except GPUs."""
        asks = (
            {what: amount for what, amount in workload.asks.items() if amount > 0}
            if workload.held is None
            else _summed(workload)
        )
        covered = {resource for resources, _ in queue.groups for resource in resources}
        if self._site.gpu in asks and self._site.gpu not in covered:
            return []
        groups = [
            (
                [what for what in resources if what in asks],
                [name for name in flavors if workload.fits(self._site.flavors.get(name))],
            )
            for resources, flavors in queue.groups
        ]
        groups = [(wanted, flavors) for wanted, flavors in groups if wanted]
        choices = itertools.islice(
            itertools.product(*(flavors for _, flavors in groups)), MOST_MODES
        )
        return [
            {
                (flavor, what): asks[what]
                for flavor, (wanted, _) in zip(choice, groups, strict=True)
                for what in wanted
            }
            for choice in choices
        ]

    def _mode(self, queue: Queue, usage: Mapping[Share, float], duration_s: float) -> Mode:
        mode, resources = Mode(duration_s=duration_s), {}
        for share, amount in usage.items():
            flavor, what = share
            if what == self._site.gpu:
                mode = replace(
                    mode, gpu_type=f"{queue.pool}/{flavor}", gpus=math.ceil(amount - TINY)
                )
            else:
                resources[_resource(queue.pool, share)] = amount
            if (queue.name, share) in self._own:
                resources[_resource(f"queue:{queue.name}", share) + " limit"] = amount
        if not mode.gpus:
            mode = replace(mode, gpu_type=None)
        return replace(mode, resources=resources)


def _usage(
    workloads: Iterable[Workload], pools: Mapping[str, str] | None
) -> dict[tuple[str, Share], float]:
    """Return the quota held by pool, or where there are none by queue."""
    total: dict[tuple[str, Share], float] = defaultdict(float)
    for workload in workloads:
        where = workload.queue if pools is None else pools.get(workload.queue, "")
        for share, amount in (workload.held or {}).items():
            total[where, share] += amount
    return total


def _summed(workload: Workload) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for (_, what), amount in (workload.held or {}).items():
        total[what] += amount
    return {what: amount for what, amount in total.items() if amount > 0}


def _resource(where: str, share: Share) -> str:
    return f"{share[1]} of {where}/{share[0]}"
