"""Windows of a round: on which nodes a job that starts now would meet one."""

from collections.abc import Sequence
from dataclasses import replace

from ..model.cluster import Window
from ..model.instance import Instance
from ..model.job import Job
from ..physics import TIME_TOLERANCE_S
from ..physics.windows import least_stay_s
from .patterns import Alternatives, NodeClass, Pattern


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

    def open(self, job: Job, alternatives: Alternatives) -> Alternatives:
        """Return the alternatives on the nodes where the job can stay long enough from now on."""
        windows = [(w, mask) for w, mask in self._windows if w.bars(job.tenant, job.user)]
        if not windows:
            return alternatives
        barred = tuple(self._barred(job, pattern, windows) for pattern in alternatives.patterns)
        if not any(barred):
            return alternatives
        key = alternatives, barred
        if key not in self._known:
            narrow = (
                replace(pattern, classes=pattern.classes & ~mask) if mask else pattern
                for pattern, mask in zip(alternatives.patterns, barred, strict=True)
            )
            there = (
                own
                for own, before in zip(narrow, alternatives.patterns, strict=True)
                if own.classes or not before.classes
            )
            self._known[key] = Alternatives(tuple(there))
        return self._known[key]

    def _barred(self, job: Job, pattern: Pattern, windows: list[tuple[Window, int]]) -> int:
        """Return the classes of a pattern with a window before the job could leave."""
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
        for window, classes in windows:
            if window.from_s <= now_s or window.from_s < now_s + stay_s - TIME_TOLERANCE_S:
                mask |= classes
        return mask & pattern.classes
