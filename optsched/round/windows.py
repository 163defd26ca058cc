"""Windows of a round: on which nodes a job that starts now would meet one."""

from collections.abc import Sequence
from dataclasses import replace

from ..model.cluster import Window
from ..model.instance import Instance
from ..model.job import Job
from ..physics import TIME_TOLERANCE_S
from ..physics.windows import least_stay_s
from .patterns import Alternatives, NodeClass, Pattern


def at_present(instance: Instance) -> Instance:
    """Return the instance with what there is of the resources now, or what running jobs hold of
    them where that is more."""
    cluster = instance.cluster
    there = dict(cluster.resources_at(instance.now_s))
    if there == cluster.resources:
        return instance
    for name, most in there.items():
        held = sum(entry.mode.resources.get(name, 0.0) for entry in instance.running)
        there[name] = min(cluster.resources[name], max(most, held))
    return replace(instance, cluster=replace(cluster, resources=there))


EVERYWHERE = -1
"""The mask of all classes."""
AMOUNT_SLACK = 1e-7
"""Relative excess of an amount that is taken for rounding."""


class Openings:
    """The windows that have not passed, with the node classes that each is about: nodes of a class
    have all their windows in common. Equal answers are one object."""

    def __init__(self, instance: Instance, classes: Sequence[NodeClass]) -> None:
        self._instance = instance
        nodes = instance.cluster.nodes
        self._windows: list[tuple[Window, int]] = [
            (window, sum(c.bit for c in classes if nodes[c.nodes[0]].name in window.nodes))
            for window in instance.cluster.windows
            if window.to_s > instance.now_s
        ]
        self._known: dict[object, Alternatives] = {}
        self._held: dict[str, float] = {}
        for entry in instance.running:
            for name, amount in entry.mode.resources.items():
                self._held[name] = self._held.get(name, 0.0) + amount

    def open(self, job: Job, alternatives: Alternatives) -> Alternatives:
        """Return the alternatives on the nodes where the job can stay long enough from now on."""
        if not self._windows:
            return alternatives
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
        where one leaves too little of a resource beside those that run."""
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
        mask = 0
        for window, classes in self._windows:
            if now_s < window.from_s and window.from_s >= now_s + stay_s - TIME_TOLERANCE_S:
                continue
            if window.bars(job.tenant, job.user):
                mask |= classes
            for name, most in window.resources.items() if window.from_s > now_s else ():
                amount = option.mode.resources.get(name, 0.0)
                if amount and amount > most - self._held.get(name, 0.0) + AMOUNT_SLACK * most:
                    return EVERYWHERE
        return mask & pattern.classes
