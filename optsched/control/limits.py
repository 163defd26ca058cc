"""What the jobs of a user may ask for at most, and how many of them may wait and run, whichever way
they come."""

from collections import Counter
from operator import itemgetter
from typing import NamedTuple

from ..frozen import record
from ..model.job import Job
from ..physics import gang_sizes
from .journal.state import LiveJob, State
from .present import may_start
from .settings import LimitSettings, Settings, UserLimits


class Limits(NamedTuple):
    """The largest weight and the highest priority of a job."""

    weight: float
    priority: int


def limits_of(settings: Settings, user: str, tenant: str | None) -> Limits:
    """Return those of the user where cluster.toml has any, else those of the tenant, else those of
    all."""
    weight, priority = settings.limits.max_weight, settings.limits.max_priority
    theirs = next((own for own in settings.tenants if own.name == tenant), None)
    for own in (theirs, settings.limits.users.get(user)):
        if own is not None:
            weight = weight if own.max_weight is None else own.max_weight
            priority = priority if own.max_priority is None else own.max_priority
    return Limits(weight, priority)


@record
class Cap:
    """How many jobs `whose`, a user's or a tenant's, may wait and run, and GPUs be held, at once;
    None: any number."""

    whose: str
    queued: int | None
    running: int | None
    gpus: int | None = None


def caps_of(settings: Settings, user: str, tenant: str | None) -> tuple[Cap, ...]:
    """Return the caps on the jobs of a user in a tenant, those that limit nothing left out."""
    limits, theirs = settings.limits, settings.limits.users.get(user)

    def own(name: str) -> int | None:
        said: int | None = None if theirs is None else getattr(theirs, name)
        return getattr(limits, name) if said is None else said

    caps = [Cap(user, own("max_queued"), own("max_running"), own("max_gpus"))]
    caps += [
        Cap(f"tenant {named.name}", named.max_queued, named.max_running)
        for named in settings.tenants
        if named.name == tenant
    ]
    return tuple(cap for cap in caps if (cap.queued, cap.running, cap.gpus) != (None,) * 3)


def why_refused(
    settings: Settings, state: State, job: Job, *, privileged: bool, jobs: int = 1
) -> str | None:
    """Return why so many jobs as this one are not taken in; None where they are."""
    for cap in caps_of(settings, job.user or "", job.tenant):
        if cap.gpus is not None and least_gpus(job) > cap.gpus:
            return (
                f"it needs {least_gpus(job)} GPUs, and {cap.whose} may hold {cap.gpus} at once "
                "(max_gpus in cluster.toml)"
            )
        if cap.queued is None or privileged:
            continue
        waiting = sum(
            own.live is None and cap.whose in (own.submission.job.user, _named(own))
            for own in state.open.values()
        )
        if waiting + jobs > cap.queued:
            return (
                f"{cap.whose} has {waiting} jobs waiting or on hold, and may have {cap.queued} "
                "(max_queued in cluster.toml); submit again when some have started, or cancel some"
            )
    return None


def least_gpus(job: Job) -> int:
    """Return the fewest GPUs that it runs on."""
    return job.gpus if isinstance(job.gpus, int) else job.gpus.min


@record
class Withheld:
    """Waiting jobs that limits keep from starting, each with the reason, and the most GPUs that
    elastic ones may have."""

    jobs: dict[str, str]
    most_gpus: dict[str, int]


class _Held:
    """What the jobs of each user and tenant hold together."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running: Counter[str] = Counter()
        self._gpus: Counter[str] = Counter()
        self._caps: dict[tuple[str | None, str | None], tuple[Cap, ...]] = {}

    def _caps_on(self, job: Job) -> tuple[Cap, ...]:
        key = job.user, job.tenant
        if key not in self._caps:
            self._caps[key] = caps_of(self._settings, job.user or "", job.tenant)
        return self._caps[key]

    def take(self, job: Job, gpus: int, jobs: int = 1) -> None:
        """Count what a job holds, or is going to."""
        for cap in self._caps_on(job):
            self._running[cap.whose] += jobs
            self._gpus[cap.whose] += gpus

    def room(self, job: Job) -> int | None:
        """Return how many GPUs are left to a job; None: any number."""
        left = [
            cap.gpus - self._gpus[cap.whose] for cap in self._caps_on(job) if cap.gpus is not None
        ]
        return min(left, default=None)

    def why_not(self, job: Job) -> str | None:
        """Return which limit a start would go beyond."""
        for cap in self._caps_on(job):
            running, gpus = self._running[cap.whose], self._gpus[cap.whose]
            if cap.running is not None and running >= cap.running:
                return (
                    f"{cap.whose} may run {cap.running} jobs at once (max_running in "
                    "cluster.toml), and as many run or come before it"
                )
            if cap.gpus is not None and gpus + least_gpus(job) > cap.gpus:
                return (
                    f"{cap.whose} may hold {cap.gpus} GPUs at once (max_gpus in cluster.toml), and "
                    f"{gpus} are held or go to jobs before it"
                )
        return None


def withheld(settings: Settings, state: State, now_s: float) -> Withheld:
    """Return which jobs are not to start beside those that run.

    The waiting jobs of a user are let through by priority, then in the order of their submission,
    past those that do not fit. What is let through fits all at once, so that no decision goes
    beyond a limit. Running jobs go on where a limit was lowered, and elastic ones grow into what
    waiting ones leave.
    """
    if not _limits_what_runs(settings):
        return Withheld({}, {})
    held = _Held(settings)
    why_not: dict[str, str] = {}
    most_gpus: dict[str, int] = {}
    waiting, elastic = [], []
    for live_job in state.open.values():
        job, holder = live_job.submission.job, live_job.live or state.claims.get(live_job.id)
        if holder is None:
            if may_start(state, live_job, now_s):
                waiting.append((-job.priority, live_job.submit_s, job.id, job))
            continue
        held.take(job, holder.mode.gpus)
        if not isinstance(job.gpus, int):
            elastic.append((job, holder.mode.gpus))
    for *_, job in sorted(waiting, key=itemgetter(0, 1, 2)):
        why, left, gpus = held.why_not(job), held.room(job), least_gpus(job)
        if why is not None:
            why_not[job.id] = why
            continue
        if left is not None and not isinstance(job.gpus, int):
            gpus = most_gpus[job.id] = _size_within(job, left, gpus)
        held.take(job, gpus)
    for job, gpus in elastic:
        left = held.room(job)
        if left is not None:
            most = most_gpus[job.id] = _size_within(job, gpus + left, gpus)
            held.take(job, most - gpus, jobs=0)
    return Withheld(why_not, most_gpus)


def _size_within(job: Job, most: int, least: int) -> int:
    """Return the largest size at which a job may be started within a limit, at least `least`."""
    return max((gpus for gpus in gang_sizes(job) if least <= gpus <= most), default=least)


def _named(job: LiveJob) -> str:
    return f"tenant {job.submission.job.tenant}"


def _limits_what_runs(settings: Settings) -> bool:
    limits = settings.limits
    users: list[LimitSettings | UserLimits] = [limits, *limits.users.values()]
    return any((own.max_running, own.max_gpus) != (None, None) for own in users) or any(
        own.max_running is not None for own in settings.tenants
    )
