"""Windows of a round: on which nodes a job that starts now would meet one, and what it would then
take of what that leaves of resources and quotas."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..frozen import record
from ..model import Instance, Job, Mode, Running, Window
from ..model.quotas import capped
from ..physics import TIME_TOLERANCE_S
from ..physics.capacity import Demand
from ..physics.catalogue import catalogue_of
from ..physics.windows import least_stay_s
from .patterns import Alternatives, NodeClass


def at_present(instance: Instance) -> Instance:
    """Return the instance with what there is of resources and quotas now, or what running jobs hold
    of them where that is more."""
    cluster = instance.cluster
    if not any(window.lowers for window in cluster.windows):
        return instance
    table = catalogue_of(instance).capacity
    left = table.left_at(instance.now_s)
    if not left:
        return instance
    held, resources, gpus = _held(instance), dict(cluster.resources), dict[str, int]()
    for row, most in left.items():
        own = table.rows[row]
        there = min(own.capacity, max(most, held[row]))
        if own.kind == "quota":
            gpus[str(own.of)] = int(there)
        else:
            resources[str(own.of)] = there
    return replace(
        instance,
        cluster=replace(cluster, resources=resources),
        tenants=capped(instance.tenants, gpus),
    )


def _held(instance: Instance, around: Sequence[tuple[Job, Running]] = ()) -> Counter[int]:
    """Return what running jobs, and those `around`, hold of the rows that all nodes share."""
    table, held = catalogue_of(instance).capacity, Counter[int]()
    for job, entry in (*((instance.job[own.job], own) for own in instance.running), *around):
        held.update(dict(table.together(job, entry.mode)))
    return held


AMOUNT_SLACK = 1e-7
"""Relative excess of an amount that is taken for rounding."""


@record
class Later:
    """What a window that has not begun leaves of a resource or quota (`row` of the table of
    capacity) beside those that run. `number` follows those of the rows that all nodes share."""

    number: int
    row: int
    window: str
    left: float


class Openings:
    """The windows that have not passed, with the node classes that each is about: nodes of a class
    have all their windows in common. Equal answers are one object."""

    def __init__(
        self,
        instance: Instance,
        classes: Sequence[NodeClass],
        around: Sequence[tuple[Job, Running]] = (),
    ) -> None:
        """Read the windows of an instance; jobs `around` hold something besides those that run."""
        self._instance, table = instance, catalogue_of(instance).capacity
        nodes, now_s = instance.cluster.nodes, instance.now_s
        windows = [window for window in instance.cluster.windows if window.to_s > now_s]
        self.later: list[Later] = []
        self._first = table.shared
        self._windows: list[tuple[Window, int, list[Later]]] = []
        held = _held(instance, around) if windows else Counter[int]()
        for window in windows:
            begin = len(self.later)
            for row, most in table.left_in(window) if window.from_s > now_s else ():
                number = self._first + len(self.later)
                left = max(0.0, most - held[row] + AMOUNT_SLACK * most)
                self.later.append(Later(number, row, window.name, left))
            mask = sum(c.bit for c in classes if nodes[c.nodes[0]].name in window.nodes)
            self._windows.append((window, mask, self.later[begin:]))
        self.any = bool(windows)
        self._known: dict[object, Alternatives] = {}

    def open(self, job: Job, alternatives: Alternatives) -> Alternatives:
        """Return the alternatives on the nodes where the job can stay long enough from now on, with
        what they take of what windows leave until then."""
        met = []
        for own in alternatives.patterns:
            mask, later = self.met(job, own.option.mode, own.option.rate, own.shared)
            met.append((mask & own.classes, later))
        if not any(mask or later for mask, later in met):
            return alternatives
        key = alternatives, tuple(met)
        if key not in self._known:
            self._known[key] = Alternatives(
                tuple(
                    replace(
                        pattern, classes=pattern.classes & ~mask, shared=[*pattern.shared, *later]
                    )
                    for pattern, (mask, later) in zip(alternatives.patterns, met, strict=True)
                    if (pattern.classes & ~mask or not pattern.classes)
                    and all(amount <= self.later[r - self._first].left for r, amount in later)
                )
            )
        return self._known[key]

    def met(
        self, job: Job, mode: Mode, rate: float, takes: Demand
    ) -> tuple[int, tuple[tuple[int, float], ...]]:
        """Return the node classes with a window before a job that starts now could leave, and what
        it then takes of what windows leave."""
        instance = self._instance
        now_s = instance.now_s
        entry = instance.running_job.get(job.id) or instance.suspended_job.get(job.id)
        stay_s = least_stay_s(
            job,
            mode,
            rate,
            instance.remaining_s(job),
            ran_before=entry is not None,
            preemptions=0 if entry is None else entry.preemptions,
        )
        mask, later, amounts = 0, list[tuple[int, float]](), dict(takes)
        for window, classes, left in self._windows:
            if now_s < window.from_s and window.from_s >= now_s + stay_s - TIME_TOLERANCE_S:
                continue
            if window.bars(job.tenant, job.user):
                mask |= classes
            later += [(own.number, amounts[own.row]) for own in left if amounts.get(own.row)]
        return mask, tuple(later)
