"""Windows of a round: on which nodes a job that starts now would meet one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..model.cluster import Window
from ..model.instance import Instance
from ..model.job import Job
from ..model.quotas import capped
from ..physics import TIME_TOLERANCE_S
from ..physics.catalogue import catalogue_of
from ..physics.windows import least_stay_s
from .patterns import Alternatives, NodeClass, Pattern


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


def _held(instance: Instance) -> Counter[int]:
    """Return what running jobs hold of the rows that all nodes share."""
    table, held = catalogue_of(instance).capacity, Counter[int]()
    for entry in instance.running:
        held.update(dict(table.together(instance.job[entry.job], entry.mode)))
    return held


EVERYWHERE = -1
"""The mask of all classes."""
AMOUNT_SLACK = 1e-7
"""Relative excess of an amount that is taken for rounding."""


class Openings:
    """The windows that have not passed, with the node classes that each is about: nodes of a class
    have all their windows in common. Equal answers are one object."""

    def __init__(self, instance: Instance, classes: Sequence[NodeClass]) -> None:
        self._instance, self._table = instance, catalogue_of(instance).capacity
        nodes = instance.cluster.nodes
        self._windows: list[tuple[Window, int]] = [
            (window, sum(c.bit for c in classes if nodes[c.nodes[0]].name in window.nodes))
            for window in instance.cluster.windows
            if window.to_s > instance.now_s
        ]
        self.any = bool(self._windows)
        self._known: dict[object, Alternatives] = {}
        self._held = _held(instance) if self._windows else Counter[int]()

    def open(self, job: Job, alternatives: Alternatives) -> Alternatives:
        """Return the alternatives on the nodes where the job can stay long enough from now on."""
        barred = tuple(self._barred(job, pattern) for pattern in alternatives.patterns)
        if not any(barred):
            return alternatives
        key = alternatives, barred
        if key not in self._known:
            self._known[key] = Alternatives(
                tuple(
                    replace(pattern, classes=pattern.classes & ~mask) if mask else pattern
                    for pattern, mask in zip(alternatives.patterns, barred, strict=True)
                    if mask != EVERYWHERE and (pattern.classes & ~mask or not pattern.classes)
                )
            )
        return self._known[key]

    def _barred(self, job: Job, pattern: Pattern) -> int:
        """Return the classes of a pattern with a window before the job could leave; everywhere,
        where one leaves too little of a resource or quota beside those that run."""
        instance = self._instance
        now_s, option = instance.now_s, pattern.option
        entry = instance.running_job.get(job.id) or instance.suspended_job.get(job.id)
        stay_s = least_stay_s(
            job,
            option.mode,
            option.rate,
            instance.remaining_s(job),
            ran_before=entry is not None,
            preemptions=0 if entry is None else entry.preemptions,
        )
        mask, takes = 0, dict(pattern.shared)
        for window, classes in self._windows:
            if now_s < window.from_s and window.from_s >= now_s + stay_s - TIME_TOLERANCE_S:
                continue
            if window.bars(job.tenant, job.user):
                mask |= classes
            for row, most in self._table.left_in(window) if window.from_s > now_s else ():
                if takes.get(row, 0) > max(0.0, most - self._held[row] + AMOUNT_SLACK * most):
                    return EVERYWHERE
        return mask & pattern.classes
