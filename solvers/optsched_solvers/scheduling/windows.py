"""Windows for planners of whole horizons: from when until when nodes are not there for a job, and
how much less there is of a resource or quota.

In the plan class a job runs in one piece beside the windows that bar it. A running job goes on
where none comes before its end, or where it cannot have saved by then, so that the window begins
late for it; else it is preempted now.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from optsched.frozen import record
from optsched.model import Instance, Job, Running, Window
from optsched.physics import TIME_TOLERANCE_S, hold_to_save_s, may_preempt
from optsched.physics.catalogue import catalogue_of
from optsched.physics.unschedulable import why_never
from optsched.physics.windows import leaves_saved

from .lengths import continue_s
from .ticks import Tick

BEYOND = 100.0
"""A window that ends later than this many times when all jobs can be done is not planned to its
end."""

Span = tuple[float, float]
"""From when until when, in seconds from now."""
Ticks = tuple[tuple[int, int], ...]
"""From when until when, in ticks, in order and apart."""


@record
class Closing:
    """A window's nodes, by their positions, and its time."""

    nodes: frozenset[int]
    span: Span


@record
class Dip:
    """How much less there is of a row of the table of capacity in a time."""

    row: int
    span: Span
    amount: float


def unplanned_window(instance: Instance) -> str | None:
    """Return which window the model does not know, in one clause, or None."""
    now_s, table = instance.now_s, catalogue_of(instance).capacity
    ahead = [window for window in instance.cluster.windows if window.to_s > now_s]
    for window in ahead:
        left = dict(table.left_in(window))
        drawn, caught = dict.fromkeys(left, 0.0), dict.fromkeys(left, False)
        for entry in instance.running:
            if entry.mode.share_with is not None:
                return f"job {entry.job} shares its GPUs, and a window is known: not both at once"
            job, saved_s = instance.job[entry.job], _saved_s(instance, entry)
            end_s = now_s + continue_s(instance, job)
            on = any(slot.node in window.nodes for slot in entry.placement)
            held = {row: own for row, own in table.together(job, entry.mode) if row in left}
            is_met = (on and window.bars(job.tenant, job.user)) or bool(held)
            if not is_met or end_s <= window.from_s:
                continue
            if saved_s < min(end_s, window.to_s) and not may_preempt(instance, entry):
                return (
                    f"running job {job.id} may not be preempted yet, but is to make way for the "
                    f"window {window.name}: its model preempts now or never"
                )
            for row, amount in held.items():
                drawn[row] += amount
                caught[row] |= saved_s > window.from_s
        for row, most in left.items():
            if caught[row] and drawn[row] > most:
                name = table.rows[row].name
                return (
                    f"running jobs hold more {name} than {window.name} leaves, and not all of them "
                    "can save in time"
                )
    return None


def may_stay(instance: Instance, entry: Running, seconds: float) -> bool:
    """Return whether a running job may go on until it is done, so many seconds from now."""
    job, saved_s = instance.job[entry.job], _saved_s(instance, entry)
    on, end_s = {slot.node for slot in entry.placement}, instance.now_s + seconds
    return all(
        on.isdisjoint(window.nodes)
        or not window.bars(job.tenant, job.user)
        or min(end_s, window.to_s) <= max(window.from_s, saved_s) + TIME_TOLERANCE_S / 2
        for window in instance.cluster.windows
    )


def _saved_s(instance: Instance, entry: Running) -> float:
    """Return when a running job can first have saved; infinite if it never can."""
    job = instance.job[entry.job]
    catalogue = catalogue_of(instance)
    if not leaves_saved(job, entry.preemptions) or why_never(catalogue, job) is not None:
        return math.inf
    ready_s = instance.now_s + entry.setup_s + job.profile.fetch_s
    return max(ready_s, entry.started_s + job.min_run_s) + hold_to_save_s(job)


class Windows:
    """The windows of an instance that are not over. By `reach_s` all jobs can be done that need not
    wait for the end of a window that lies `BEYOND` it; `is_whole` says that none does, or begins
    after that time."""

    def __init__(self, instance: Instance, latest_s: float, total_s: float) -> None:
        self._order, self._now_s = instance.cluster.node_order, instance.now_s
        self._table = catalogue_of(instance).capacity
        self._windows = sorted(
            (w for w in instance.cluster.windows if w.to_s > instance.now_s),
            key=lambda window: (window.from_s, window.to_s),
        )
        self._closings: dict[tuple[str | None, str | None], list[Closing]] = {}
        self._ticks: dict[tuple[str | None, str | None], Mapping[int, Ticks]] = {}
        self.reach_s, self.is_whole = latest_s + total_s, True
        self.instants_s: list[float] = []
        for window in self._windows:
            from_s, to_s = self._span(window.from_s, window.to_s)
            if from_s > self.reach_s:
                self.is_whole = False
                continue
            self.instants_s.append(from_s)
            if to_s > BEYOND * self.reach_s:
                self.is_whole = False
                continue
            self.instants_s.append(to_s)
            self.reach_s = max(self.reach_s, to_s + total_s)

    def __bool__(self) -> bool:
        return bool(self._windows)

    def _span(self, from_s: float, to_s: float) -> Span:
        return max(0.0, from_s - self._now_s), to_s - self._now_s

    def closings(self, job: Job) -> list[Closing]:
        """Return the windows that bar a job from nodes, those of the same nodes together."""
        who = job.tenant, job.user
        if who not in self._closings:
            self._closings[who] = self._of(w for w in self._windows if w.bars(*who))
        return self._closings[who]

    @cached_property
    def for_all(self) -> list[Closing]:
        """Return the windows that bar everybody."""
        return self._of(w for w in self._windows if not w.tenants and not w.users)

    def _of(self, windows: Iterable[Window]) -> list[Closing]:
        return [
            Closing(
                frozenset(map(self._order.__getitem__, window.nodes)),
                self._span(window.from_s, window.to_s),
            )
            for window in windows
            if window.nodes
        ]

    def ticks(self, job: Job, tick: Tick) -> Mapping[int, Ticks]:
        """Return when each node is closed for a job, rounded outwards."""
        who = job.tenant, job.user
        if who not in self._ticks:
            spans: dict[int, list[tuple[int, int]]] = {}
            for closing in self.closings(job):
                from_s, to_s = closing.span
                for node in closing.nodes:
                    spans.setdefault(node, []).append((tick.floor(from_s), tick.ceil(to_s)))
            self._ticks[who] = {node: merged(own) for node, own in spans.items()}
        return self._ticks[who]

    def dips(self) -> Iterator[Dip]:
        """Yield by how much less there is of resources and quotas, in times apart."""
        for row, dips in self._table.dips.items():
            for from_s, to_s, less in dips:
                if less > 0 and to_s > self._now_s:
                    yield Dip(row, self._span(from_s, to_s), less)

    def splits(self, members: set[int]) -> bool:
        """Return whether a window is of some of these nodes and not of others."""
        return any(
            not members.isdisjoint(window) and not members <= window
            for window in (
                {self._order[name] for name in own.nodes} for own in self._windows if own.nodes
            )
        )


def merged(spans: Iterable[tuple[int, int]]) -> Ticks:
    """Return the union of spans, in order and apart."""
    apart: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if apart and start <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        elif start < end:
            apart.append((start, end))
    return tuple(apart)


def past(closed: Ticks, start: int, length: int) -> int:
    """Return the first start at or after `start` from which nothing of `length` is closed."""
    for begin, end in closed:
        if start < end and start + length > begin:
            start = end
    return start
