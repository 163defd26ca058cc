"""Histograms of rounds and of jobs by tenant, counted while a controller runs."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from .journal.events import AttemptEnded, Event, StartIntended
from .journal.state import LiveJob, State
from .settings import Settings

ROUND_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WAIT_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 604800.0)
NO_TENANT, OTHER = "", "other"
"""The label of jobs without a tenant, and of those whose tenant is not in cluster.toml (any more):
there are never more labels than tenants there and these."""


class Histogram:
    """How often values were at most each of some bounds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return each bound with the number of values up to it."""
        names = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        return [*zip(names, map(float, accumulate(self._counts)), strict=True)]


class Measures:
    """What has been measured since the controller started: `rounds` (seconds of a turn that decided
    one), and by tenant the seconds that jobs waited before their first start and took from their
    submission to their completion."""

    def __init__(self, settings: Settings, state: State) -> None:
        self._state = state
        self.rounds = Histogram(ROUND_S)
        self.waited: dict[str, Histogram] = {}
        self.completed: dict[str, Histogram] = {}
        self.reload(settings)

    def reload(self, settings: Settings) -> None:
        """Take over which tenants there are."""
        self._tenants = frozenset(tenant.name for tenant in settings.tenants)

    def label(self, job: LiveJob) -> str:
        """Return the tenant as a label."""
        tenant = job.submission.job.tenant or NO_TENANT
        return tenant if tenant in (NO_TENANT, *self._tenants) else OTHER

    def heard(self, at_s: float, event: Event) -> None:
        """Count what an event tells."""
        if isinstance(event, StartIntended) and event.number == 1:
            job = self._state.jobs[event.job]
            self._of(self.waited, job).observe(job.waited_s)
        elif isinstance(event, AttemptEnded) and event.exit_status == 0:
            job = self._state.jobs[event.job]
            self._of(self.completed, job).observe(max(0.0, at_s - job.submit_s))

    def _of(self, histograms: dict[str, Histogram], job: LiveJob) -> Histogram:
        return histograms.setdefault(self.label(job), Histogram(WAIT_S))

    def by_label(self, jobs: Iterable[tuple[LiveJob, float]]) -> dict[str, float]:
        """Return sums of amounts of jobs by tenant, 0 for a tenant that has none."""
        sums = dict.fromkeys(sorted(self._tenants), 0.0)
        for job, amount in jobs:
            label = self.label(job)
            sums[label] = sums.get(label, 0.0) + amount
        return sums
