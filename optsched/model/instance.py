"""The only input of every solver, simulation and controller."""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

from ..frozen import frozen
from .cluster import Cluster, Name, Tenant
from .job import Job, Mode
from .quantity import Count, Duration, Instant, Seconds
from .quotas import Quotas
from .shares import Shares
from .value import Value

T = TypeVar("T")


@frozen
class Slot:
    """The GPUs and cores that one job holds on one node."""

    node: str
    gpus: Count = 0
    cpus: Count = 0


Placement = tuple[Slot, ...]
"""What one job holds on all its nodes, in the order of `cluster.nodes`; empty for a job that needs
no node."""


@frozen
class Running(Value):
    """A job that holds GPUs now.

    `remaining_s` is reference work still to do, `setup_s` start-up seconds still to go before it
    goes on, `preemptions` how often it was preempted before.
    """

    job: Name
    mode: Mode
    placement: Placement = ()
    started_s: Instant = 0.0
    remaining_s: Seconds
    setup_s: Seconds = 0.0
    last_checkpoint_s: Instant | None = None
    preemptions: Count = 0


@frozen
class Suspended:
    """A job that ran before, was preempted or failed, and waits with `remaining_s` of reference
    work to do."""

    job: Name
    remaining_s: Seconds
    preemptions: Count = 1


@frozen
class Completed:
    """A job that was done before `now_s`, after `worked_s` of reference work (None: its own; more
    where attempts failed). Beliefs about run times learn from it; nobody schedules or measures
    it."""

    job: Job
    completed_s: Instant
    worked_s: Duration | None = None

    @property
    def work_s(self) -> float:
        """Return the reference work that it did."""
        return self.job.work_s if self.worked_s is None else self.worked_s


@frozen
class Failure:
    """An attempt of a job that will fail: nobody who plans may know of it, a simulation lets it
    happen.

    The entries of one job are its first attempts, in order; the attempt after them completes. A
    failing attempt does `work_s` of reference work, of which `kept_s` counts towards the job, then
    gives its GPUs back at once and the job waits for the next attempt, which pays start-up and
    restore. `kind` says why it failed.
    """

    job: Name
    work_s: Duration
    kept_s: Seconds = 0.0
    kind: str | None = None


@frozen
class Outage:
    """A node that will be lost for a while: nobody who plans may know of it, a simulation lets it
    happen.

    Jobs on the node stop at `start_s`, lose the work since their last checkpoint (without periodic
    ones since they started or came back) and wait again.
    """

    node: str
    start_s: Instant
    end_s: Instant


@dataclass(frozen=True, kw_only=True)
class Instance(Value):
    """A cluster, its jobs, and who runs at `now_s`. No plan may use time before `now_s`.

    `shares` says by what use rounds favour jobs; plans and their bounds do not look at it. `past`
    are jobs that were done before `now_s`, of which only beliefs about run times know.
    `failures` and `outages` are what only a simulation learns, when it happens.
    """

    name: Name = "instance"
    now_s: Instant = 0.0
    cluster: Cluster = field(default_factory=Cluster)
    tenants: tuple[Tenant, ...] = ()
    shares: Shares | None = None
    jobs: tuple[Job, ...] = ()
    running: tuple[Running, ...] = ()
    suspended: tuple[Suspended, ...] = ()
    past: tuple[Completed, ...] = ()
    failures: tuple[Failure, ...] = ()
    outages: tuple[Outage, ...] = ()

    @cached_property
    def job(self) -> dict[str, Job]:
        """Return the jobs by id."""
        return {job.id: job for job in self.jobs}

    @cached_property
    def running_job(self) -> dict[str, Running]:
        """Return the running entries by job id."""
        return {entry.job: entry for entry in self.running}

    @cached_property
    def suspended_job(self) -> dict[str, Suspended]:
        """Return the suspended entries by job id."""
        return {entry.job: entry for entry in self.suspended}

    @cached_property
    def position(self) -> dict[str, int]:
        """Return the position of each job in `jobs`, by id."""
        return {job.id: i for i, job in enumerate(self.jobs)}

    @cached_property
    def tenant(self) -> dict[str, Tenant]:
        """Return the tenants by name."""
        return {tenant.name: tenant for tenant in self.tenants}

    @cached_property
    def quotas(self) -> Quotas:
        """Return the quotas of the tenants, and whose jobs count against each."""
        return Quotas.of(self.tenants)

    @cached_property
    def attempts(self) -> dict[str, tuple[Failure, ...]]:
        """Return the attempts that fail, by job, in order."""
        return _alike(self.failures, attrgetter("job"))

    @cached_property
    def lost_work_s(self) -> dict[str, float]:
        """Return the reference work that attempts do in vain, by job with any that fail."""
        return {
            job: math.fsum(attempt.work_s - attempt.kept_s for attempt in failing)
            for job, failing in self.attempts.items()
        }

    @cached_property
    def node_outages(self) -> dict[str, tuple[Outage, ...]]:
        """Return the outages of each node that has any."""
        return _alike(self.outages, attrgetter("node"))

    @cached_property
    def undisturbed(self) -> "Instance":
        """Return the instance as those know it who plan: without failures and outages."""
        return replace(self, failures=(), outages=()) if self.failures or self.outages else self

    def release_s(self, job: Job) -> float:
        """Return the earliest instant at which `job` may hold anything."""
        return max(job.submit_s, self.now_s)

    def only(self, names: Collection[str]) -> "Instance":
        """Return the instance with these jobs alone, as if the others had completed."""
        jobs = (job for job in self.jobs if job.id in names)
        return replace(
            self,
            jobs=tuple(
                replace(job, after=tuple(name for name in job.after if name in names))
                if job.after
                else job
                for job in jobs
            ),
            running=tuple(entry for entry in self.running if entry.job in names),
            suspended=tuple(entry for entry in self.suspended if entry.job in names),
        )

    def remaining_s(self, job: Job) -> float:
        """Return the reference work of `job` still to do at `now_s`."""
        entry = self.running_job.get(job.id) or self.suspended_job.get(job.id)
        return job.work_s if entry is None else entry.remaining_s

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: nothing derived travels between processes."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}


def _alike(entries: Iterable[T], key: Callable[[T], str]) -> dict[str, tuple[T, ...]]:
    """Return the entries of each key, in order."""
    groups: dict[str, list[T]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return {name: tuple(group) for name, group in groups.items()}
