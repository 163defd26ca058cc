"""Which jobs limits keep from being taken in, and from starting beside those that run, whichever
way they come."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from math import inf, isfinite
from operator import itemgetter

from ..frozen import record
from ..model import Job, Node
from ..physics import count_rate, gang_sizes
from ..picture.text import hours
from .budgets import Spent, period_s
from .caps import Cap, caps_of, caps_on_labels, has_budgets, upwards
from .journal.state import Attempt, LiveJob, State
from .present import may_start
from .settings import Settings, UserLimits

LEAST_GPU_S = 1.0
"""What a job is expected to use at least, so that nothing starts on a budget that is used up."""


def look_at_labels(settings: Settings, state: State, nodes: Iterable[Node]) -> None:
    """Note on each job which labels it is kept off, and on which it counts.

    Who has a limit on nodes with a label gets them for jobs that require the label, which are held
    to the limit; his others stay off, as nobody knows beforehand on which nodes they come to be.
    Those that run there already go on, and count.
    """
    known = settings.limits.labels
    if not known:
        for job in state.open.values():
            if job.kept_off or job.counted_on:
                job.kept_off = job.counted_on = frozenset()
        return
    labels = {node.name: known.keys() & node.labels for node in nodes}
    limited: dict[tuple[str | None, ...], bool] = {}
    for job in state.open.values():
        noun, on = job.submission.job, set[str]()
        required = {name for name, wanted in noun.node_labels.items() if wanted == "required"}
        held = job.live or state.claims.get(job.id)
        if held is not None:
            on = set().union(*(labels.get(slot.node, set()) for slot in held.placement))
        off = set()
        for label in known.keys() - noun.node_labels.keys() - on:
            key = noun.user, noun.tenant, label
            if key not in limited:
                limited[key] = any(caps_on_labels(settings, noun.user or "", noun.tenant, [label]))
            if limited[key]:
                off.add(label)
        job.kept_off, job.counted_on = frozenset(off), frozenset(on | (required & known.keys()))


def why_refused(
    settings: Settings, state: State, job: Job, *, privileged: bool, jobs: int = 1
) -> str | None:
    """Return why so many jobs as this one are not taken in; None where they are."""
    required = [name for name, wanted in job.node_labels.items() if wanted == "required"]
    on_labels = caps_on_labels(settings, job.user or "", job.tenant, required)
    for cap in (*caps_of(settings, job.user or "", job.tenant), *on_labels):
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
            more = f": {jobs} more are too many" if jobs > 1 else ""
            remedy = "submit again when some have started, or cancel some"
            if jobs > cap.queued:
                remedy = f"submit {cap.queued} at a time" if cap.queued else "ask an administrator"
            return (
                f"{cap.whose} has {_jobs(waiting)} waiting or on hold, and may have {cap.queued} "
                f"(max_queued in cluster.toml){more}; {remedy}"
            )
    return None


def _jobs(count: int) -> str:
    return f"{count} job{'s' * (count != 1)}"


def least_gpus(job: Job) -> int:
    """Return the fewest GPUs that it runs on."""
    return job.gpus if isinstance(job.gpus, int) else job.gpus.min


@record
class Withheld:
    """Waiting jobs that limits keep from starting, each with the reason, and the most GPUs that
    elastic ones may have; those `over_budget` wait for another period."""

    jobs: dict[str, str]
    most_gpus: dict[str, int]
    over_budget: frozenset[str] = frozenset()


class Budgets:
    """What jobs are expected to use of budgets until the period ends, beside what was used."""

    def __init__(self, settings: Settings, spent: Callable[[float], Spent], now_s: float) -> None:
        self.per = settings.limits.gpu_hours_per
        self.from_s, self.until_s = period_s(self.per, now_s)
        self._now_s = now_s
        self._spent_gpu_s: defaultdict[str, float] = defaultdict(float)
        self._due_gpu_s: defaultdict[str, float] = defaultdict(float)
        for (user, tenant), gpu_s in spent(self.from_s).items():
            self._spent_gpu_s[user] += gpu_s
            for named in upwards(settings, tenant):
                self._spent_gpu_s[f"tenant {named.name}"] += gpu_s

    def take(self, caps: tuple[Cap, ...], job: LiveJob, gpus: int) -> None:
        """Count what a job is expected to use."""
        for cap in caps:
            self._due_gpu_s[cap.whose] += self._expected_gpu_s(job, gpus)

    def used_and_due_gpu_s(self, whose: str) -> tuple[float, float]:
        """Return what was used of a budget, and what is expected of the jobs that were counted."""
        return self._spent_gpu_s[whose], self._due_gpu_s[whose]

    def why_not(self, caps: tuple[Cap, ...], job: LiveJob, gpus: int) -> str | None:
        """Return which budget a start would go beyond."""
        for cap in caps if gpus else ():
            if cap.gpu_hours is None:
                continue
            spent, due = self.used_and_due_gpu_s(cap.whose)
            expected = self._expected_gpu_s(job, gpus)
            if spent + due + max(expected, LEAST_GPU_S) > cap.gpu_hours * 3600:
                when = "in all" if self.per == "forever" else f"a {self.per}"
                return (
                    f"{cap.whose} may use {_hours(cap.gpu_hours * 3600)} GPU-hours {when} "
                    f"(max_gpu_hours in cluster.toml): {_hours(spent)} are used, {_hours(due)} are "
                    "expected of jobs that run or come before it, and "
                    f"{_hours(expected)} of it; {self._until(expected > cap.gpu_hours * 3600)}"
                )
        return None

    def _until(self, never: bool) -> str:
        """Return for what a job waits that would go beyond, or even alone beyond the whole."""
        if never:
            return "that is more than the whole budget"
        if self.per == "forever":
            return "it is never renewed"
        return f"the next {self.per} begins on {datetime.fromtimestamp(self.until_s, UTC):%Y-%m-%d}"

    def _expected_gpu_s(self, job: LiveJob, gpus: int) -> float:
        """Return the GPU-seconds that a job is believed to use yet in this period."""
        if job.live is not None:
            left_s = _end_s(job.live) - self._now_s
        else:
            rate = count_rate(job.submission.job, gpus)
            left_s = job.left_s / rate if rate else inf
        left_s = min(left_s, job.limit_left_s(self._now_s), self.until_s - self._now_s)
        return gpus * max(0.0, left_s) if isfinite(left_s) else 0.0


class _Held:
    """What the jobs of each user and tenant hold together."""

    def __init__(self, settings: Settings, budgets: Budgets | None = None) -> None:
        self._settings, self._budgets = settings, budgets
        self._running: Counter[str] = Counter()
        self._gpus: Counter[str] = Counter()
        self._caps: dict[object, tuple[Cap, ...]] = {}

    def caps_on(self, live_job: LiveJob) -> tuple[Cap, ...]:
        """Return the caps on a job."""
        job, array = live_job.submission.job, live_job.submission.array
        key = job.user, job.tenant, array, live_job.counted_on
        if key not in self._caps:
            user, on = job.user or "", live_job.counted_on
            caps = caps_of(self._settings, user, job.tenant)
            caps = (*caps, *caps_on_labels(self._settings, user, job.tenant, on))
            if live_job.submission.at_once is not None:
                of_array = Cap(f"array {array}", None, live_job.submission.at_once, where="")
                caps = (*caps, of_array)
            self._caps[key] = caps
        return self._caps[key]

    def take(self, job: LiveJob, gpus: int, jobs: int = 1) -> None:
        """Count what a job holds, or is going to."""
        for cap in self.caps_on(job):
            self._running[cap.whose] += jobs
            self._gpus[cap.whose] += gpus
        if self._budgets is not None and jobs:
            self._budgets.take(self.caps_on(job), job, gpus)

    def room(self, job: LiveJob) -> int | None:
        """Return how many GPUs are left to a job; None: any number."""
        left = [
            cap.gpus - self._gpus[cap.whose] for cap in self.caps_on(job) if cap.gpus is not None
        ]
        return min(left, default=None)

    def why_not(self, job: LiveJob) -> str | None:
        """Return which limit a start would go beyond."""
        for cap in self.caps_on(job):
            running, gpus = self._running[cap.whose], self._gpus[cap.whose]
            if cap.running is not None and running >= cap.running:
                return (
                    f"{cap.whose} may run {_jobs(cap.running)} at once{cap.where}, and as many run "
                    "or come before it"
                )
            if cap.gpus is not None and gpus + least_gpus(job.submission.job) > cap.gpus:
                return (
                    f"{cap.whose} may hold {cap.gpus} GPUs at once (max_gpus in cluster.toml), and "
                    f"{gpus} are held or go to jobs before it"
                )
        return None

    def why_over_budget(self, job: LiveJob) -> str | None:
        """Return which budget a start would go beyond."""
        if self._budgets is None:
            return None
        return self._budgets.why_not(self.caps_on(job), job, least_gpus(job.submission.job))


Able = Callable[[LiveJob], bool]
"""Whether nodes that take jobs now could run a job if nothing else did: one that they could not
keeps nobody else from his turn."""


def withheld(
    settings: Settings, state: State, now_s: float, able: Able, spent: Callable[[float], Spent]
) -> Withheld:
    """Return which jobs are not to start beside those that run, where `spent` is the GPU time that
    was used since an instant.

    The waiting jobs of a user are let through by priority, then in the order of their submission
    and, in an array, of their index, past those that do not fit. What is let through fits all at
    once, so that no decision goes beyond a limit. Running jobs go on where a limit was lowered, and
    elastic ones grow into what waiting ones leave.
    """
    budgeted = has_budgets(settings)
    if not (budgeted or _limits_what_runs(settings, state)):
        return Withheld({}, {})
    held = _Held(settings, Budgets(settings, spent, now_s) if budgeted else None)
    over_budget = set()
    why_not: dict[str, str] = {}
    most_gpus: dict[str, int] = {}
    holders = holders_of(state)
    for live_job, gpus in holders:
        held.take(live_job, gpus)
    for live_job in _waiting(state, now_s, able):
        job = live_job.submission.job
        why, left, gpus = held.why_not(live_job), held.room(live_job), least_gpus(job)
        if why is None and (why := held.why_over_budget(live_job)) is not None:
            over_budget.add(job.id)
        if why is not None:
            why_not[job.id] = why
            continue
        if left is not None and not isinstance(job.gpus, int):
            gpus = most_gpus[job.id] = _size_within(job, left, gpus)
        held.take(live_job, gpus)
    for live_job, gpus in holders:
        job = live_job.submission.job
        left = None if isinstance(job.gpus, int) else held.room(live_job)
        if left is not None:
            most = most_gpus[job.id] = _size_within(job, gpus + left, gpus)
            held.take(live_job, most - gpus, jobs=0)
    return Withheld(why_not, most_gpus, frozenset(over_budget))


def turns(settings: Settings, state: State, now_s: float, able: Able) -> dict[str, tuple[str, ...]]:
    """Return the jobs after which waiting ones come because of limits, where jobs of a user, a
    tenant or an array end in the order in which they are believed to start: for who looks ahead."""
    if not _limits_what_runs(settings, state):
        return {}
    held, behind = _Held(settings), dict[str, tuple[str, ...]]()
    lines: dict[str, tuple[list[str], list[int]]] = {}
    holders = holders_of(state)
    waiting = ((job, least_gpus(job.submission.job)) for job in _waiting(state, now_s, able))
    line = [*holders, *waiting]
    for number, (live_job, gpus) in enumerate(line):
        before = []
        for cap in held.caps_on(live_job):
            names, before_gpus = lines.setdefault(cap.whose, ([], [0]))
            if number >= len(holders):
                before += _last_in_the_way(cap, gpus, names, before_gpus)
            names.append(live_job.id)
            before_gpus.append(before_gpus[-1] + gpus)
        if before:
            behind[live_job.id] = tuple(dict.fromkeys(before))
    return behind


def _last_in_the_way(cap: Cap, gpus: int, names: list[str], before_gpus: list[int]) -> list[str]:
    """Return the jobs of a line that must have ended before one more is within a limit;
    `before_gpus` are the GPUs of all before each."""
    last = []
    if cap.running and len(names) >= cap.running:
        last.append(names[-cap.running])
    if cap.gpus is not None and gpus <= cap.gpus:
        number = bisect_left(before_gpus, before_gpus[-1] - (cap.gpus - gpus)) - 1
        if number >= 0:
            last.append(names[number])
    return last


def holders_of(state: State) -> list[tuple[LiveJob, int]]:
    """Return the jobs that hold GPUs or are about to, with how many, by when they are believed to
    end."""
    holders: list[tuple[float, LiveJob, int]] = []
    for job in state.open.values():
        if job.live is not None:
            holders.append((_end_s(job.live), job, job.live.mode.gpus))
        elif job.id in state.claims:
            holders.append((inf, job, state.claims[job.id].mode.gpus))
    holders.sort(key=itemgetter(0))
    return [(job, gpus) for _, job, gpus in holders]


def _waiting(state: State, now_s: float, able: Able) -> list[LiveJob]:
    """Return the waiting jobs that are free to start, by priority, submission and index."""

    def place(live_job: LiveJob) -> tuple[int, float, int, str]:
        index = live_job.submission.index or 0
        return -live_job.submission.job.priority, live_job.submit_s, index, live_job.id

    free = (job for job in state.open.values() if job.live is None and job.id not in state.claims)
    return sorted((job for job in free if may_start(state, job, now_s) and able(job)), key=place)


def _end_s(live: Attempt) -> float:
    """Return when an attempt is believed to end."""
    return live.intended_s + live.setup_s + live.work_s / live.rate if live.rate else inf


def _hours(gpu_s: float) -> str:
    return hours(gpu_s / 3600).removesuffix(".0")


def _size_within(job: Job, most: int, least: int) -> int:
    """Return the largest size at which a job may be started within a limit, at least `least`."""
    return max((gpus for gpus in gang_sizes(job) if least <= gpus <= most), default=least)


def _named(job: LiveJob) -> str:
    return f"tenant {job.submission.job.tenant}"


def _limits_what_runs(settings: Settings, state: State) -> bool:
    if any(job.submission.at_once is not None for job in state.open.values()):
        return True
    limits = settings.limits
    if limits.labels:
        return True
    users: list[UserLimits] = [limits, *limits.users.values()]
    return any((own.max_running, own.max_gpus) != (None, None) for own in users) or any(
        own.max_running is not None for own in settings.tenants
    )
