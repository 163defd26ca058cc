"""A-SRPT: jobs are dispatched in the order in which one virtual machine would complete them."""

import math
from bisect import insort
from heapq import heappop, heappush
from typing import Annotated

from annotated_types import Ge

from optsched.driver import World
from optsched.model import Job
from optsched.physics import TIME_TOLERANCE_S, locality_rate
from optsched.plugins.options import Duration, PluginOptions, declared_options

from .parts.locality_gate import LocalityGate, Patience
from .parts.starting import wake

ANYWHERE = Patience(rack_s=0.0, cluster_s=0.0)


ROUNDING_S = 1e-6


class VirtualMachine:
    """Preemptive shortest remaining processing time on one machine with arrivals (Schrage,
    Operations Research 16, 1968). O(log n) for each arrival and completion."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._left: list[tuple[float, int, str]] = []
        self._arrived = 0

    def add(self, job_id: str, work_s: float) -> None:
        """Add a job that arrives now with so much work."""
        heappush(self._left, (work_s, self._arrived, job_id))
        self._arrived += 1

    def advance(self, to_s: float) -> list[str]:
        """Let the time pass; the jobs that the machine completes until then, in order."""
        done = []
        while self._left:
            work_s, arrived, job_id = self._left[0]
            if work_s > to_s - self._now_s + ROUNDING_S:
                heappop(self._left)
                heappush(self._left, (work_s - (to_s - self._now_s), arrived, job_id))
                break
            heappop(self._left)
            self._now_s += work_s
            done.append(job_id)
        self._now_s = max(self._now_s, to_s)
        return done

    def next_s(self) -> float:
        """Return when the machine completes a job if nobody else arrives; infinite when it is
        idle."""
        return self._now_s + self._left[0][0] if self._left else math.inf

    def first(self) -> str | None:
        """Take the job with the least left off the machine; return None where it is idle."""
        return heappop(self._left)[2] if self._left else None


class ASrpt:
    """A virtual machine as fast as all GPUs together serves each job with predicted run time x GPUs
    / all GPUs of work, preemptively, the least remaining first. A job that it completes joins the
    end of the real queue, which is served in order without preemption; what does not fit is
    skipped.

    A gang that is faster by more than `theta` on one node than anywhere waits for one node for up
    to `tau` after it was dispatched; all others take the fewest nodes there are.
    """

    name = "a-srpt"
    title = "non-preemptive, in the order in which a virtual single machine under SRPT completes the predicted jobs"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        tau_s: Annotated[
            Duration, "How long a gang waits for one node after it was dispatched."
        ] = 600.0
        theta: Annotated[
            float, Ge(1), "How much faster a gang must be on one node to wait for it, as a factor."
        ] = 1.2
        early: Annotated[
            bool,
            "While the real queue is empty, jobs that the virtual machine has not completed yet "
            "may start, those with the least left there first.",
        ] = False

    def __init__(self, options: Options) -> None:
        self.tau_s, self.theta = options.tau_s, options.theta
        self._early = options.early
        self._for_one_node = Patience(rack_s=self.tau_s, cluster_s=self.tau_s)
        self._gate = LocalityGate()
        self._machine: VirtualMachine | None = None
        self._queue: list[tuple[int, int, str]] = []
        self._since_s: dict[str, float] = {}
        self._dispatched = 0

    def decide(self, world: World) -> None:
        """Let the virtual machine work until now, then start from the head of the real queue."""
        machine = self._machine = self._machine or VirtualMachine(world.now_s)
        self._dispatch(world, machine.advance(world.now_s))
        for job_id in world.take_arrived():
            machine.add(job_id, virtual_work_s(world, job_id))
        self._dispatch(world, machine.advance(world.now_s))
        opens_s = self._serve(world)
        while self._early and not self._queue and (first := machine.first()) is not None:
            self._dispatch(world, [first])
            opens_s = self._serve(world)
        if world.waiting:
            wake(world, min(opens_s, machine.next_s()))

    def _dispatch(self, world: World, done: list[str]) -> None:
        for job_id in done:
            self._since_s[job_id] = world.now_s
            insort(self._queue, (-world.job(job_id).priority, self._dispatched, job_id))
            self._dispatched += 1

    def _serve(self, world: World) -> float:
        """Start whoever may; return when the next one may be placed more widely."""
        opens_s = math.inf
        passed = 0
        refused: set[tuple[int, bool, bool]] = set()
        while passed < len(self._queue):
            job_id = self._queue[passed][2]
            heavy, wait_s = (
                is_heavy(world.job(job_id), self.theta),
                world.now_s - self._since_s[job_id],
            )
            patience = self._for_one_node if heavy else ANYWHERE
            opens_s = min(opens_s, self._gate.opens_s(world, job_id, patience, wait_s))
            alike = world.demand(job_id).number, heavy, wait_s >= self.tau_s - TIME_TOLERANCE_S
            fit = None if alike in refused else self._gate.find(world, job_id, patience, wait_s)
            if fit is None:
                refused.add(alike)
                passed += 1
                continue
            world.start(job_id, *fit)
            del self._queue[passed]
        return opens_s


def virtual_work_s(world: World, job_id: str) -> float:
    """Return seconds that the job takes on one machine as fast as all GPUs together."""
    return (
        world.fastest_finish_s(job_id)
        * world.service_gpus(job_id)
        / max(1, world.cluster.total_gpus)
    )


def is_heavy(job: Job, theta: float) -> bool:
    """Return whether the job is faster on one node than spread anywhere by more than this
    factor."""
    profile = job.profile
    return locality_rate(profile, "node") > theta * locality_rate(profile, "cluster")
