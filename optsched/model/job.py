"""Jobs, and the modes in which they can run."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal

from ..frozen import frozen
from .cluster import Label, Name
from .profile import UNMEASURED, Profile
from .quantity import (
    Amount,
    Count,
    Duration,
    Gib,
    Instant,
    PositiveCount,
    PositiveGib,
    Seconds,
    Weight,
)
from .value import Value, empty


@frozen
class Mode(Value):
    """One way to run a job.

    `gpu_type` None runs on any type. `cpus_per_gpu` goes with GPUs, `cpus` with a CPU-only job.
    `duration_s` is given in modes listed explicitly in a job and is the whole job's run time in
    this mode. `share_with` names the job that runs on the same GPUs; `shared_gpus` says how many of
    its GPUs, all on one node, a job shares with each of others that hold more, or less. `clock_mhz`
    is a measured GPU clock, None the default one. `memory_gib_per_gpu` (host memory) and
    `gpu_memory_gib` are measured amounts below those that the profile asks for, None all of them.
    Listed modes have none of the three.
    """

    duration_s: Duration | None = None
    gpu_type: Name | None = None
    gpus: Count = 0
    cpus_per_gpu: Count = 0
    cpus: Count = 0
    share_with: Name | None = None
    shared_gpus: Mapping[str, PositiveCount] = field(default_factory=empty)
    clock_mhz: PositiveCount | None = None
    memory_gib_per_gpu: PositiveGib | None = None
    gpu_memory_gib: PositiveGib | None = None
    resources: Mapping[str, Amount] = field(default_factory=empty)
    budgets: Mapping[str, Amount] = field(default_factory=empty)

    __hash__ = Value.__hash__

    @property
    def size(self) -> tuple[int, int, int, int | None, float | None, float | None]:
        """Return GPUs, cores, clock and memory: what a job changes only by a new start, but
        for cores that it changes in place."""
        memory = self.memory_gib_per_gpu, self.gpu_memory_gib
        return self.gpus, self.cpus_per_gpu, self.cpus, self.clock_mhz, *memory

    @property
    def unshared(self) -> "Mode":
        """Return the same mode on GPUs of its own."""
        return replace(self, share_with=None, shared_gpus=empty())

    @property
    def without_cores(self) -> "Mode":
        """Return what a job that changes its cores in place keeps: the mode on GPUs of its own, but
        for cores and the duration that goes with them."""
        return replace(self.unshared, cpus_per_gpu=0, cpus=0, duration_s=None)


@frozen
class Elastic:
    """A gang whose size may be chosen between `min` and `max`; `duration_s` refers to `max` unless
    the profile's `gpus` table says otherwise (without one the rate is proportional to the count).
    It is started at a measured count, a power of two, or an end of the range."""

    min: PositiveCount
    max: PositiveCount


@frozen
class Job(Value):
    """One training (or CPU-only) job.

    `duration_s` is reference work: seconds at rate 1. `gpus` 0 makes a CPU-only job that takes
    `cpus` cores and `memory_gib` on one node. `after` lists jobs that must have completed before
    this one starts. `resources` and `budgets` are what it uses of the cluster's. A job may list
    `modes` instead of `duration_s` and `gpus`. With `max_nodes` its gang takes equally many GPUs on
    each of `min_nodes` to `max_nodes` nodes, without it any numbers on any nodes. `priority` orders
    jobs under the policies (higher first); `weight` counts in the objectives. `user` and `command`
    say who submitted what: jobs that share them tend to run alike. With `cores_in_place` a job that
    runs may go on, without a new start, in another of its modes that differs in cores alone.
    `node_labels` are the labels that its nodes must have and those that they must not have. A job
    starts only where each node, or rack, that it takes has another job with each label of
    `affinity`; it shares no node, or rack, with other jobs that have a label of `anti_affinity`,
    nor they with it.
    """

    id: Name
    submit_s: Instant = 0.0
    tenant: Name | None = None
    user: Name | None = None
    command: str | None = None
    weight: Weight = 1.0
    priority: int = 0
    deadline_s: Instant | None = None
    after: tuple[Name, ...] = ()
    gpus: Count | Elastic = 1
    cpus: Count = 0
    memory_gib: Gib = 0.0
    duration_s: Duration | None = None
    modes: tuple[Mode, ...] = ()
    resources: Mapping[str, Amount] = field(default_factory=empty)
    budgets: Mapping[str, Amount] = field(default_factory=empty)
    preemptible: bool = True
    min_run_s: Seconds = 0.0
    max_preemptions: Count | None = None
    cores_in_place: bool = False
    min_nodes: PositiveCount = 1
    max_nodes: PositiveCount | None = None
    labels: tuple[Label, ...] = ()
    node_labels: Mapping[Label, Literal["required", "forbidden"]] = field(default_factory=empty)
    affinity: Mapping[Label, Literal["node", "rack"]] = field(default_factory=empty)
    anti_affinity: Mapping[Label, Literal["node", "rack"]] = field(default_factory=empty)
    profile: Profile = UNMEASURED

    __hash__ = Value.__hash__

    @property
    def work_s(self) -> float:
        """Return the reference work of the whole job: `duration_s`, or the run time of the first
        listed mode."""
        if self.duration_s is not None:
            return self.duration_s
        duration_s = self.modes[0].duration_s
        assert duration_s is not None
        return duration_s


def first_come(job: Job) -> tuple[float, str]:
    """Return the order among equal jobs, wherever one has to be first: submission, then id as text
    (`job-10` before `job-2`). The order in which jobs are listed plays no role."""
    return job.submit_s, job.id


def gang(job: Job) -> int:
    """Return the GPUs a job asks for: the most of an elastic one, those of the first listed
    mode."""
    return job.modes[0].gpus if job.modes else most_gpus(job)


def most_gpus(job: Job) -> int:
    """Return the GPUs of a job without listed modes, the most of an elastic one."""
    return job.gpus.max if isinstance(job.gpus, Elastic) else job.gpus
