"""What is free on the live nodes now, and what comes free by itself when."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from ..driver import Room
from ..driver.demand import Demands
from ..driver.layout import Layout
from ..frozen import record
from ..model import Instance, Job
from ..physics.modes import Option
from .journal.state import Attempt
from .present import as_running
from .what_if.snapshot import Snapshot


@record
class Free:
    """GPUs of some kinds: `total` are free, on `nodes` nodes, at most `most` on one; `there` are so
    many."""

    total: int
    most: int
    nodes: int
    there: int


class RoomNow:
    """Free is what no attempt holds and no claim waits for, on nodes that take jobs."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, state = snapshot, snapshot.state
        self._nodes = [status.node for status in snapshot.statuses]
        usable = tuple(status.node for status in snapshot.statuses if status.usable)
        self.closed = len(self._nodes) - len(usable)
        cluster = replace(snapshot.cluster, nodes=usable)
        layout = Layout(cluster, snapshot.tenants)
        self._room = Room(layout)
        self._demands = Demands(
            Instance(cluster=cluster, tenants=snapshot.tenants, jobs=()), layout
        )
        held = [(inf, claim.placement) for claim in state.claims.values()]
        held += [(self._until_s(attempt), attempt.placement) for attempt in state.live_attempts()]
        held.sort(key=lambda held: -held[0])  # claims are on what comes free first
        self._coming = [
            (until_s, slot.node, *self._room.seize(slot.node, slot.gpus, slot.cpus))
            for until_s, placement in held
            for slot in placement
            if slot.node in layout.order
        ]
        self._coming.reverse()
        for name in layout.names:
            self._room.seize(name, state.idle_out(name, self._room.gpus_on(name)), 0)

    def _until_s(self, attempt: Attempt) -> float:
        """Return in how many seconds an attempt gives back what it holds; infinite where nobody
        can tell."""
        snapshot = self._snapshot
        if attempt.stop_s is not None:
            return max(0.0, attempt.stop_s + attempt.grace_s - snapshot.now_s)
        on_usable = all(slot.node in self._room.layout.order for slot in attempt.placement)
        if attempt.lost is not None or not on_usable:
            return inf
        job = snapshot.state.jobs[attempt.key.job]
        _, entry = as_running(job, attempt, snapshot.progress.get(attempt.key), snapshot.now_s)
        return entry.setup_s + entry.remaining_s / attempt.rate

    def free(self, able: Sequence[Option]) -> Free:
        """Return the GPUs that some of the options can use."""
        kinds = {option.mode.gpu_type for option in able}
        nodes = [
            node for node in self._nodes if node.gpus and (None in kinds or node.gpu_type in kinds)
        ]
        order = self._room.layout.order
        free = [self._room.gpus_on(node.name) for node in nodes if node.name in order]
        return Free(
            sum(free),
            max(free, default=0),
            sum(1 for gpus in free if gpus),
            sum(node.gpus for node in nodes),
        )

    def soonest_s(self, job: Job) -> float | None:
        """Return in how many seconds a job finds its GPUs and cores if nobody else gets any; None
        for never. Memory is not looked at."""
        _, demand = self._demands.of(job)
        room = self._room.copy()
        if demand.fit(room) is not None:
            return 0.0
        for at_s, node, gpus, cpus in self._coming:
            room.let_go(node, gpus, cpus)
            if at_s < inf and demand.fit(room) is not None:
                return at_s
        return None
