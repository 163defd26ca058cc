"""One pass: look, decide a round, and tell Kueue the order."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from ..errors import InputError
from ..files import check_instance
from ..frozen import frozen
from ..model import Cluster, Instance
from ..objectives import parse, wanted
from ..round.decide import decide
from ..round.plan import RoundSolution
from .instance import Site, view
from .objects import Flavor, Queue, Workload
from .order import Ranked, ranked

if TYPE_CHECKING:
    from ..control.settings import Settings


class Kueue(Protocol):
    """What is asked of it."""

    def read(self) -> tuple[list[Queue], list[Flavor], list[Workload]]:
        """Return all queues, flavors and Workloads."""
        ...

    def boost(self, workload: Workload, boost: int) -> None:
        """Write a boost."""
        ...


@frozen
class Pass:
    """What was decided at `at_s` (Unix time): all Workloads in order, those left out with why, and
    the round with its `instance` (None where there was nothing to decide)."""

    at_s: float
    order: Sequence[Ranked] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)
    round: RoundSolution | None = None
    instance: Instance | None = None

    @property
    def changed(self) -> list[Ranked]:
        return [entry for entry in self.order if entry.changed]


class Handover:
    """Decides again and again; nothing is kept between two passes but the prices of the last
    round."""

    def __init__(self, settings: "Settings", kueue: Kueue) -> None:
        if settings.policy is not None:
            raise InputError("policy: Kueue is handed the order of rounds; leave the policy out")
        wanted(settings.objective, Cluster())  # Workloads have no power: no rate matters to them
        self._settings, self._kueue = settings, kueue
        self._last: RoundSolution | None = None

    def decide(self, now_s: float) -> Pass:
        """Look and decide; nothing is written. Raises NoAnswerError, and InputError for queues
        that are not there."""
        given = self._settings
        queues, flavors, workloads = self._kueue.read()
        names = [queue.name for queue in queues]
        unknown = next((name for name in given.kueue.queues if name not in names), None)
        if unknown is not None:
            raise InputError(
                f"kueue.queues: there is no ClusterQueue {unknown!r}; there are "
                f"{', '.join(sorted(names)) or 'none'}"
            )
        site = Site(
            queues={queue.name: queue for queue in queues},
            flavors={flavor.name: flavor for flavor in flavors},
            workloads=workloads,
            steered=given.kueue.queues or names,
            gpu=given.table("kubernetes").gpu,
            step=given.kueue.step,
            runs_s=given.runs,
            preempt_unsaved=given.preempt_unsaved,
            tiers=tuple(tier.tier() for tier in given.tiers),
        )
        seen = view(site, now_s)
        faults = {
            workload.id: workload.faults
            for workload in workloads
            if workload.faults and workload.queue in site.steered
        }
        if not seen.instance.jobs:
            return Pass(at_s=now_s, left_out=seen.left_out, faults=faults)
        instance = seen.instance
        check_instance(instance, now_only=True)
        objective, round_s = parse(given.objective), given.length
        solution = decide(
            instance,
            objective,
            round_s=round_s,
            solver=given.solver,
            budget_s=given.budget,
            last=self._last,
        )
        self._last = solution
        never = dict.fromkeys(
            solution.never, "its queue has too little quota for it, all that it may borrow included"
        )
        return Pass(
            at_s=now_s,
            order=ranked(site, seen, solution, objective, round_s),
            left_out={**seen.left_out, **never},
            faults=faults,
            round=solution,
            instance=instance,
        )

    def write(self, decided: Pass) -> None:
        """Write the boosts that are others than before. Raises NoAnswerError.

        Those that rise come first, from the top down, then those that fall, from the bottom up: so
        nobody is above another meanwhile, who was not before and is not to be.
        """
        changed = decided.changed
        rise = [entry for entry in changed if entry.boost > entry.workload.boost]
        for entry in (
            *rise,
            *(entry for entry in reversed(changed) if entry.boost <= entry.workload.boost),
        ):
            self._kueue.boost(entry.workload, entry.boost)
