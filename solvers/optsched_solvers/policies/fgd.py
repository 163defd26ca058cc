"""Fragmentation gradient descent."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from optsched.driver import Fit, World
from optsched.physics import cpus, memory_gib
from optsched.physics.modes import Option
from optsched.plugins.options import PluginOptions, declared_options

from .parts.by_score import ByScore
from .parts.pair_sharing import duty

POPULAR = 0.95
"""Share of the jobs whose tasks count as typical, as in the public experiments."""
GROWN = 1.1
"""The typical tasks are counted anew when there are so many times as many jobs as the last time."""


class Task(NamedTuple):
    """What a job asks of one node: `gpus` whole GPUs, or with `part` below 1 that part of one;
    cores, host memory, and the nodes, as a mask, that can serve it."""

    gpus: int
    part: float
    cpus: int
    memory_gib: float
    nodes: int


class Idle(NamedTuple):
    """What is idle on a node: the part left of each GPU that is not full, cores and host memory."""

    gpus: tuple[float, ...]
    cpus: int
    memory_gib: float

    def holds(self, task: Task) -> bool:
        """Return whether the task could run there."""
        enough = sum(left >= task.part for left in self.gpus) >= task.gpus
        return enough and self.cpus >= task.cpus and self.memory_gib >= task.memory_gib

    def less(self, task: Task, left: float | None = None) -> "Idle":
        """Return what is idle once the task runs on the first whole GPUs, or on the first GPU of
        which `left` is left."""
        gpus = list(self.gpus)
        for _ in range(task.gpus):
            gpus.remove(1.0 if left is None else left)
        rest = (1.0 if left is None else left) - task.part
        if task.gpus and rest > 0:
            gpus.append(rest)
        return Idle(tuple(sorted(gpus)), self.cpus - task.cpus, self.memory_gib - task.memory_gib)


def typical(tasks: Counter[Task], share: float) -> tuple[tuple[Task, float], ...]:
    """Return the most popular tasks that together make up the share of all, each with its
    probability among them."""
    total, frequent, counted = sum(tasks.values()), [], 0
    for task, count in tasks.most_common():
        if counted >= share * total:
            break
        frequent.append((task, count))
        counted += count
    return tuple((task, count / counted) for task, count in frequent)


def fragmentation(idle: Idle, i: int, workload: Iterable[tuple[Task, float]]) -> float:
    """Return the GPUs idle on node number `i` that the next task of the workload is expected not to
    be able to use.

    For a task that cannot run there, or that takes no GPU, all that is idle; else the parts of GPUs
    too small for it.

    Source: Q. Weng et al., Beware of fragmentation, USENIX ATC'23, section 4.1; pkg/utils/frag.go
    of the public simulator.
    """
    every = sum(idle.gpus)
    if not every:
        return 0.0
    expectation = 0.0
    for task, probability in workload:
        if not task.gpus or not task.nodes >> i & 1 or not idle.holds(task):
            expectation += probability * every
        else:
            expectation += probability * sum(left for left in idle.gpus if left < task.part)
    return expectation


class Fgd(ByScore):
    """Each job goes where the GPUs idle on the node that typical jobs could not use grow least.

    A job with `sharing.duty` below 1 asks for that part of one GPU: it may start beside a running
    job of one GPU where both parts fit, which then is a place like any other. Two jobs at most
    share a GPU here. What typical jobs ask for is counted over the jobs seen so far, the most
    popular 95 % of them. Jobs are taken in order of priority and arrival; what does not fit is
    skipped. Of equally fast options any may be taken, of equal places the first node in the
    cluster. Gangs over several nodes go where best fit puts them.

    Source: Q. Weng et al., Beware of fragmentation: scheduling GPU-sharing workloads with
    fragmentation gradient descent, USENIX ATC'23, section 4; pkg/utils/frag.go of the public
    simulator.
    """

    name = "fgd"
    title = "each job goes where the idle GPUs that typical jobs cannot use grow least"

    @declared_options
    class Options(PluginOptions):
        tasks: Annotated[
            Literal["seen", "all"],
            "Typical jobs are those seen so far, or all of the instance, as in the public "
            "simulator, which reads its trace beforehand.",
        ] = "seen"

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.tasks = options.tasks
        self._seen: Counter[Task] = Counter()
        self._counted: dict[str, None] = {}
        self._workload: tuple[tuple[Task, float], ...] = ()
        self._due = 1.0
        self._parts: dict[int, dict[str, float]] = {}
        self._on: dict[str, int] = {}
        self._partner: dict[str, str] = {}
        self._known: dict[tuple[Idle, int], float] = {}
        self._alike: list[int] = []
        self._placed = 0
        self._grew = 0.0
        self._shared = 0

    def facts(self) -> dict[str, float]:
        """Return the mean growth of fragmentation by a placement, in GPUs, and how many jobs
        started beside another."""
        growth = self._grew / max(1, self._placed)
        return {"fragmentation_growth_mean_gpus": growth, "jobs_started_beside": self._shared}

    # ------------------------------------------------------------------------------------------
    # what is asked for

    def decide(self, world: World) -> None:
        """Start every job that fits, in order."""
        if not self._alike:
            self._begin(world)
        super().decide(world)

    def _begin(self, world: World) -> None:
        kinds: dict[object, int] = {}
        for i, node in enumerate(world.cluster.nodes):
            key = (node.gpu_type, node.gpus, node.gpu_memory_gib, node.cpus, node.memory_gib)
            self._alike.append(kinds.setdefault(key, i))
        for job_id in world.running:
            self._note(world, job_id)
        if self.tasks == "all":
            for job in world.instance.jobs:
                self._count(world, job.id)
            self._workload = typical(self._seen, POPULAR)

    def arrived(self, world: World, job_id: str) -> None:
        """Count what the job asks for, if it has not been counted."""
        if self.tasks == "all" or not self._count(world, job_id):
            return
        if len(self._counted) >= self._due:
            self._workload = typical(self._seen, POPULAR)
            self._known.clear()
            self._due = len(self._counted) * GROWN

    def _count(self, world: World, job_id: str) -> bool:
        options = world.options(job_id)
        if not options or job_id in self._counted:
            return False
        self._counted[job_id] = None
        fastest = options[0]
        nodes = 0
        for option in options:
            if option.mode.gpus == fastest.mode.gpus and option.rate == fastest.rate:
                nodes |= world.need(job_id, option).nodes
        self._seen[_task(world, job_id, fastest, nodes)] += 1
        return True

    # ------------------------------------------------------------------------------------------
    # where it goes

    def choose(self, world: World, job_id: str, places: list[Fit]) -> Fit:
        """Return the place where fragmentation grows least."""
        return min(places, key=lambda fit: self._rank(world, job_id, fit))

    def _rank(self, world: World, job_id: str, fit: Fit) -> tuple[float, int, int]:
        """Lower is better: growth of fragmentation, GPUs idle there, position of the node."""
        i = world.cluster.node_order[fit[1][0].node]
        return round(self._growth(world, job_id, fit), 9), world.free.gpus_on(fit[1][0].node), i

    def start(self, world: World, job_id: str) -> bool:
        """Start the job if it finds a place, and note the part of a GPU that it leaves."""
        if self._start_beside(world, job_id):
            return True
        fit = self.find(world, job_id)
        if fit is None:
            return False
        if len(fit[1]) == 1:
            self._placed += 1
            self._grew += self._growth(world, job_id, fit)
        world.start(job_id, *fit)
        self._note(world, job_id)
        return True

    def _start_beside(self, world: World, job_id: str) -> bool:
        """Start it beside a running job if fragmentation grows less there than on any GPU of its
        own."""
        options = world.options(job_id)
        if not self._parts or not options or (part := _part(world, job_id, options[0])) == 1.0:
            return False
        option = options[0]
        nodes = world.need(job_id, option).nodes
        beside = [
            (self._growth_beside(world, job_id, option, i, left), i, left, partner_id)
            for i, partners in self._parts.items()
            if nodes >> i & 1
            for partner_id, left in partners.items()
            if left >= part
        ]
        able = (entry for entry in sorted(beside) if world.may_share(job_id, option, entry[3]))
        best = next(able, None)
        if best is None:
            return False
        grows, partner_id = best[0], best[3]
        fitted = world.fit(job_id)
        places = [] if fitted is None else self.places(world, job_id, fitted[0])
        if any(self._growth(world, job_id, fit) < grows for fit in places):
            return False
        world.start_sharing(job_id, option, partner_id)
        self._pair(job_id, partner_id)
        self._placed += 1
        self._shared += 1
        self._grew += grows
        return True

    def released(self, world: World, job_id: str) -> None:
        """Forget the part of a GPU that it left; its partner, if it had one, leaves its own from
        now on."""
        self._forget(job_id)
        partner_id = self._partner.pop(job_id, None)
        if partner_id is not None:
            self._partner.pop(partner_id, None)
            if partner_id in world.running:
                self._note(world, partner_id)

    def _pair(self, job_id: str, partner_id: str) -> None:
        self._partner[job_id], self._partner[partner_id] = partner_id, job_id
        self._forget(partner_id)

    def _forget(self, job_id: str) -> None:
        i = self._on.pop(job_id, None)
        if i is not None:
            del self._parts[i][job_id]
            if not self._parts[i]:
                del self._parts[i]

    def _note(self, world: World, job_id: str) -> None:
        """Note a running job that may be joined by another."""
        hold = world.hold(job_id)
        if hold.partner is not None:
            self._pair(job_id, hold.partner)
        elif len(hold.placement) == 1 and hold.placement[0].gpus == 1:
            busy = duty(world, job_id)
            if busy is not None and busy < 1:
                i = self._on[job_id] = world.cluster.node_order[hold.placement[0].node]
                self._parts.setdefault(i, {})[job_id] = 1.0 - busy
                self._queue.unblock()

    def _idle(self, world: World, i: int) -> Idle:
        name = world.cluster.nodes[i].name
        parts = sorted(self._parts.get(i, {}).values())
        free = world.free
        return Idle(
            (*(left for left in parts if left > 0), *(1.0,) * free.gpus_on(name)),
            free.cpus_on(name),
            free.memory_gib_on(name),
        )

    def _fragmentation(self, idle: Idle, i: int) -> float:
        key = idle, self._alike[i]
        if key not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            self._known[key] = fragmentation(idle, i, self._workload)
        return self._known[key]

    def _growth(self, world: World, job_id: str, fit: Fit) -> float:
        """Return by how much fragmentation grows on the node of the place."""
        i = world.cluster.node_order[fit[1][0].node]
        idle = self._idle(world, i)
        after = idle.less(_task(world, job_id, fit[0], 0))
        return self._fragmentation(after, i) - self._fragmentation(idle, i)

    def _growth_beside(
        self, world: World, job_id: str, option: Option, i: int, left: float
    ) -> float:
        """Return by how much it grows if the job joins one that leaves so much of its GPU. Nothing
        of it is left then: two jobs at most share a GPU."""
        idle = self._idle(world, i)
        task = _task(world, job_id, option, 0)
        after = idle.less(task._replace(part=left), left)
        return self._fragmentation(after, i) - self._fragmentation(idle, i)


def _part(world: World, job_id: str, option: Option) -> float:
    """Return the part of a GPU that the job asks for; 1 for whole ones."""
    busy = duty(world, job_id)
    return busy if option.mode.gpus == 1 and busy is not None and 0 < busy < 1 else 1.0


def _task(world: World, job_id: str, option: Option, nodes: int) -> Task:
    job, mode = world.job(job_id), option.mode
    memory = memory_gib(job, mode, mode.gpus)
    return Task(mode.gpus, _part(world, job_id, option), cpus(mode, mode.gpus), memory, nodes)
