"""What is free on the live nodes now, and what comes free by itself when."""

from collections.abc import Iterable, Sequence

from ..frozen import record
from ..model.cluster import Node
from ..physics.modes import Option
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
        self._usable = [status.node for status in snapshot.statuses if status.usable]
        self.closed = len(snapshot.statuses) - len(self._usable)
        self._nodes = [status.node for status in snapshot.statuses]
        self._free = {node.name: node.gpus for node in self._usable}
        self._coming: list[tuple[float, str, int]] = []
        for attempt in snapshot.state.live_attempts():
            job = snapshot.state.jobs[attempt.key.job]
            until_s = float("inf")
            if attempt.stop_s is not None:
                until_s = max(0.0, attempt.stop_s + attempt.grace_s - snapshot.now_s)
            elif attempt.lost is None and all(
                slot.node in self._free for slot in attempt.placement
            ):
                _, entry = as_running(
                    job, attempt, snapshot.progress.get(attempt.key), snapshot.now_s
                )
                until_s = entry.setup_s + entry.remaining_s / attempt.rate
            for slot in attempt.placement:
                if slot.node in self._free:
                    self._free[slot.node] -= slot.gpus
                    self._coming.append((until_s, slot.node, slot.gpus))
        for claim in snapshot.state.claims.values():
            for slot in claim.placement:
                if slot.node in self._free:
                    self._free[slot.node] -= slot.gpus
        for name, gpus in self._free.items():
            self._free[name] = gpus - snapshot.state.idle_out(name, max(0, gpus))
        self._coming.sort()

    def free(self, able: Sequence[Option]) -> Free:
        """Return the GPUs that some of the options can use."""
        kinds = {option.mode.gpu_type for option in able}
        free = [max(0, self._free[node.name]) for node in _of(self._usable, kinds)]
        return Free(
            sum(free),
            max(free, default=0),
            sum(1 for gpus in free if gpus),
            sum(node.gpus for node in _of(self._nodes, kinds)),
        )

    def soonest_s(self, able: Sequence[Option]) -> float | None:
        """Return in how many seconds some option finds its GPUs if nobody else gets any; None for
        never, or without GPUs. Cores and memory are not looked at."""
        waits_s = [self._when_s(option) for option in able if option.mode.gpus]
        return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)

    def _when_s(self, option: Option) -> float | None:
        free = {
            node.name: self._free[node.name] for node in _of(self._usable, {option.mode.gpu_type})
        }
        regions = self._regions(option, free)
        if any(_sum(free, region) >= option.mode.gpus for region in regions):
            return 0.0
        for at_s, node, gpus in self._coming:
            if at_s == float("inf"):
                return None
            if node in free:
                free[node] += gpus
                if any(
                    _sum(free, region) >= option.mode.gpus for region in regions if node in region
                ):
                    return at_s
        return None

    def _regions(self, option: Option, free: dict[str, int]) -> list[list[str]]:
        if option.spread == "cluster":
            return [[*free]]
        if option.spread == "node":
            return [[name] for name in free]
        racks: dict[str | None, list[str]] = {}
        for node in self._usable:
            if node.name in free:
                racks.setdefault(node.rack, []).append(node.name)
        return [*racks.values()]


def _of(nodes: Iterable[Node], kinds: set[str | None]) -> list[Node]:
    return [node for node in nodes if node.gpus and (None in kinds or node.gpu_type in kinds)]


def _sum(free: dict[str, int], region: list[str]) -> int:
    return sum(max(0, free[name]) for name in region)
