"""The scheduler of the Philly clusters: quotas with borrowing, gangs, locality relaxed by
waiting."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Annotated

from annotated_types import Ge

from optsched.driver import Fit, Outlook, World
from optsched.physics import TIME_TOLERANCE_S
from optsched.plugins.options import PluginOptions, PositiveDuration, Share, declared_options

from .parts.demand_queue import DemandQueue, arrival_key
from .parts.locality_gate import LocalityGate, Patience
from .parts.starting import wake

SIZES = ((1, "1"), (4, "2_4"), (8, "5_8"))
"""Gang size classes of the paper: at most so many GPUs, and their name."""
CLASSES = ("1", "2_4", "5_8", "over_8")

Group = tuple[str | None, int]
"""Tenant and GPUs: jobs that wait for the same reason."""


def size_class(gpus: int) -> str:
    """Return the name of a gang's class."""
    return next((name for most, name in SIZES if gpus <= most), "over_8")


class QueueingDelay:
    """Adds up the waiting of groups of jobs: O(groups) for each step in time, however many jobs
    wait.

    A waiting job is in fair-share delay while its GPUs and those its tenant holds exceed the
    tenant's quota, else in fragmentation delay (M. Jeon et al., USENIX ATC 2019, section 3.1).
    """

    def __init__(self, quotas: dict[str, int]) -> None:
        self._quotas = quotas
        self._waiting = Counter[Group]()
        self._last_s: float | None = None
        self._delay_s: defaultdict[tuple[str, str], float] = defaultdict(float)

    def advance(self, now_s: float, held: Counter[str | None]) -> None:
        """Advance to `now_s`; tenants have held so many GPUs since the last step."""
        if self._last_s is not None and now_s > self._last_s:
            for (tenant, gpus), count in self._waiting.items():
                quota = None if tenant is None else self._quotas.get(tenant)
                over = quota is not None and held[tenant] + gpus > quota
                self._delay_s["fair_share" if over else "fragmentation", size_class(gpus)] += (
                    count * (now_s - self._last_s)
                )
        self._last_s = now_s

    def comes(self, group: Group) -> None:
        """Count one more waiting job of the group."""
        self._waiting[group] += 1

    def goes(self, group: Group) -> None:
        """Count one waiting job of the group less."""
        self._waiting[group] -= 1
        if not self._waiting[group]:
            del self._waiting[group]

    def facts(self) -> dict[str, float]:
        """Return both delays, in total and by gang size class."""
        facts: dict[str, float] = {}
        for kind in ("fair_share", "fragmentation"):
            facts[f"{kind}_delay_s"] = sum((self._delay_s[kind, name] for name in CLASSES), 0.0)
            for name in CLASSES:
                facts[f"{kind}_delay_{name}_gpus_s"] = float(self._delay_s[kind, name])
        return facts


class Philly:
    """First in, first out within each tenant's GPU quota; who does not fit is overtaken.

    A gang insists on one node until it has waited `tau`, on one rack for `tau` more, and then goes
    anywhere. Idle quota may be borrowed as far as the instance allows (`tenant.borrow_gpus`), after
    all who are within their quota have been served. If a job within its tenant's quota finds no
    place while more than `reclaim` of all GPUs are in use, jobs of tenants above their quota are
    preempted for it, the latest arrivals first, and none of a tenant that is down to its quota;
    until it has started nobody borrows.

    A job that has failed more than `retries` times comes after all others. The default `tau` lies
    between the two and three minutes of the paper.
    """

    name = "philly"
    title = "quotas with borrowing and reclaim, gangs whose locality is relaxed by waiting, out-of-order starts"  # noqa: E501

    @declared_options
    class Options(PluginOptions):
        tau_s: Annotated[
            PositiveDuration, "How long a gang waits for one node, and then for one rack."
        ] = 150.0
        reclaim: Annotated[
            Share, "The share of all GPUs in use above which borrowed ones are reclaimed."
        ] = 0.9
        retries: Annotated[
            int, Ge(0), "Failures after which a job comes after all that have failed less often."
        ] = 3

    def __init__(self, options: Options) -> None:
        self.tau_s, self.retries = options.tau_s, options.retries
        self.reclaim_above = options.reclaim
        self._patience = Patience(rack_s=self.tau_s, cluster_s=2 * self.tau_s)
        self._gate = LocalityGate()
        self._queue = DemandQueue()
        self._group: dict[str, tuple[int, float]] = {}
        self._since_s: dict[str, float] = {}
        self._opens: list[tuple[float, str]] = []
        self._holds: dict[str, tuple[str | None, int]] = {}
        self._held = Counter[str | None]()
        self._failures = Counter[str]()
        self._preempted: dict[str, None] = {}
        self._refused: dict[tuple[int, float], str] = {}
        self._over = False
        self._reclaims: str | None = None
        self._reclaimed = 0
        self._delay: QueueingDelay | None = None

    def decide(self, world: World) -> None:
        """Serve those within their quota, reclaim for them, then let others borrow."""
        self._note(world)
        self._serve(world, borrow=False)
        if self._reclaims is not None and (self._reclaims not in world.waiting or not world.saving):
            self._reclaims = None
        self._reclaim_and_serve(world)
        if self._reclaims is None and self._over:
            self._over = False
            self._serve(world, borrow=True)
            self._reclaim_and_serve(
                world
            )  # what has just been borrowed may have made the cluster busy
        if self._opens:
            wake(world, self._opens[0][0])

    def facts(self) -> dict[str, float]:
        """Return fair-share and fragmentation delay, in total and by gang size class, and jobs
        preempted to reclaim GPUs."""
        delays = {} if self._delay is None else self._delay.facts()
        return {**delays, "reclaimed_jobs": self._reclaimed}

    # ---------------------------------------------------------------------------------------- who
    # waits

    def _note(self, world: World) -> None:
        if self._delay is None:
            self._delay = QueueingDelay(_quotas(world))
            for job_id in world.running:
                self._takes(world, job_id)
        self._delay.advance(world.now_s, self._held)
        released = world.take_released()
        for job_id in released:
            if job_id not in self._holds:
                continue  # a node that came back
            tenant, gpus = self._holds.pop(job_id)
            self._held[tenant] -= gpus
            if job_id in self._preempted:
                del self._preempted[job_id]
            elif job_id in world.waiting:
                self._failures[job_id] += 1
        for job_id in world.take_arrived():
            self._since_s[job_id] = world.now_s
            self._delay.comes(_group(world, job_id))
            self._enqueue(world, job_id)
        while self._opens and self._opens[0][0] <= world.now_s + TIME_TOLERANCE_S:
            job_id = heappop(self._opens)[1]
            if job_id in world.waiting:
                self._enqueue(world, job_id)
        if released:
            self._look_again()

    def _look_again(self) -> None:
        self._queue.unblock()
        self._refused.clear()

    def _enqueue(self, world: World, job_id: str) -> None:
        """Queue a job by its demand and level, and note when the next level opens."""
        wait_s = world.now_s - self._since_s[job_id]
        opens_s = self._gate.opens_s(world, job_id, self._patience, wait_s)
        levels = math.floor((wait_s + TIME_TOLERANCE_S) / self.tau_s)
        level = min(2, levels) if opens_s < math.inf else math.inf
        group = self._group[job_id] = world.demand(job_id).number, level
        last = float(self._failures[job_id] > self.retries)
        self._queue.push(arrival_key(world, job_id, last), job_id, group, reconsider=True)
        if opens_s < math.inf:
            heappush(self._opens, (opens_s, job_id))

    def _takes(self, world: World, job_id: str) -> None:
        held = world.job(job_id).tenant, world.hold(job_id).need.gpus
        self._holds[job_id] = held
        self._held[held[0]] += held[1]

    # ---------------------------------------------------------------------------------------- who
    # starts

    def _serve(self, world: World, *, borrow: bool) -> None:
        """Start whoever fits, in order."""
        if borrow:
            self._look_again()
        self._queue.serve(lambda job_id: self._serve_one(world, job_id, borrow))

    def _serve_one(self, world: World, job_id: str, borrow: bool) -> bool:
        """Start the job that the queue has just named if it fits; return whether it leaves the
        queue, as it does too where its entry is one of an earlier level."""
        if job_id not in world.waiting or self._queue.group() != self._group[job_id]:
            return True
        within = self._within(world, job_id)
        fit = self._find(world, job_id) if borrow or within else None
        if fit is not None:
            self._start(world, job_id, fit)
        elif within:
            self._refused[self._group[job_id]] = job_id
        else:
            self._over = True
        return fit is not None

    def _find(self, world: World, job_id: str, room: Outlook | None = None) -> Fit | None:
        wait_s = world.now_s - self._since_s[job_id]
        return self._gate.find(
            world, job_id, self._patience, wait_s, None if room is None else room.room
        )

    def _start(self, world: World, job_id: str, fit: Fit) -> None:
        assert self._delay is not None
        self._delay.goes(_group(world, job_id))
        world.start(job_id, *fit)
        self._takes(world, job_id)

    def _within(self, world: World, job_id: str) -> bool:
        """Return whether the job keeps its tenant within its quota."""
        tenant, gpus = _group(world, job_id)
        quota = _quotas(world).get(tenant) if tenant is not None else None
        return quota is None or self._held[tenant] + gpus <= quota

    # ----------------------------------------------------------------------------------------
    # reclaim

    def _reclaim_and_serve(self, world: World) -> None:
        if self._reclaims is None and self._reclaim(world):
            self._serve(world, borrow=False)

    def _reclaim(self, world: World) -> bool:
        """Preempt borrowers for the first job within its quota for which that makes room; return
        whether there was one."""
        quotas = _quotas(world)
        over = {
            name: self._held[name] - quota
            for name, quota in quotas.items()
            if self._held[name] > quota
        }
        if not over or not world.waiting or not self._is_busy(world):
            return False
        lenders = sorted(
            (
                job_id
                for job_id in world.running
                if world.job(job_id).tenant in over and world.may_preempt(job_id)
            ),
            key=world.order,
            reverse=True,
        )
        for job_id in sorted(self._refused.values(), key=world.order) if lenders else ():
            if (
                job_id not in world.waiting
                or world.job(job_id).tenant not in quotas
                or not self._within(world, job_id)
            ):
                continue
            victims = self._victims(world, job_id, lenders, dict(over))
            if victims:
                for victim in victims:
                    self._preempted[victim] = None
                    world.preempt(victim)
                self._reclaimed += len(victims)
                self._reclaims = job_id
                self._note(world)
                return True
        return False

    def _victims(
        self, world: World, job_id: str, lenders: list[str], over: dict[str, int]
    ) -> list[str]:
        """Return the latest borrowers with whose GPUs the job fits; none where their borrowing does
        not suffice."""
        outlook = Outlook(world, world.saving)

        def fits() -> bool:
            return self._find(world, job_id, outlook) is not None

        if fits():
            return []  # it need only wait until they are saved
        victims, enough = outlook.release_until(fits, _borrowers(world, lenders, over))
        return outlook.only_needed(fits, victims) if enough else []

    def _is_busy(self, world: World) -> bool:
        """Return whether more than the given share of all GPUs is in use."""
        there = sum(node.gpus for node in world.cluster.nodes if node.name not in world.lost)
        return there - sum(world.free.pool_gpus) > self.reclaim_above * there


def _borrowers(world: World, lenders: list[str], over: dict[str, int]) -> Iterator[str]:
    """Yield the jobs whose tenants are `over` their quota, less what those before them free."""
    for job_id in lenders:
        tenant = world.job(job_id).tenant
        if tenant is not None and over[tenant] > 0:
            over[tenant] -= world.hold(job_id).need.gpus
            yield job_id


def _group(world: World, job_id: str) -> tuple[str | None, int]:
    return world.job(job_id).tenant, world.fastest(job_id).mode.gpus


def _quotas(world: World) -> dict[str, int]:
    return {
        tenant.name: tenant.gpu_quota
        for tenant in world.instance.tenants
        if tenant.gpu_quota is not None
    }
