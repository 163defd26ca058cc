"""Jobs that users gave to the cluster manager: taken into the journal, and what becomes of them
there followed."""

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..executors.base import JOB_NAME, Arrival, Arrivals, NoAnswerError, Request
from ..model import Job, Profile
from .accepting import accepted, check_alone
from .caps import limits_of, priority_in_manager
from .journal.events import Cancelled, Changed, Event, Held, Noted, Released, Submitted
from .journal.state import LiveJob
from .learned import NEVER_S
from .submission import Submission

if TYPE_CHECKING:
    from .core import ControllerCore

AGAIN_S = 5.0
"""How often the manager is told again that a job is not wanted."""
MOST_DROPPED = 1000
"""So many jobs that were dropped are remembered here."""
COSTS = ("checkpoint_s", "restore_s", "startup_s")
FORGOTTEN = "the cluster manager no longer knows it, and it is not known how it ended"
ON_HOLD = "its user has it on hold in the cluster manager"


class Intake:
    """Compares what the manager has with what the journal holds."""

    def __init__(self, controller: "ControllerCore", source: Arrivals) -> None:
        self._controller, self._source = controller, source
        jobs = controller.state.jobs.values()
        self._ids = {
            job.submission.origin: job.id for job in jobs if job.submission.origin is not None
        }
        self._told_s: dict[str, float] = {}

    def take(self) -> None:
        """Record what is new, and tell the manager of jobs that are not wanted any more. Raises
        NoAnswerError.

        A bug about one of them keeps nobody from the others.
        """
        arrivals = self._source.arrivals()
        for arrival in arrivals:
            what = f"taking in {arrival.name} of the cluster manager"
            self._controller._part(what, partial(self._take, arrival), (NoAnswerError, OSError))
        there = {arrival.origin for arrival in arrivals}
        state = self._controller.state
        state.barred = {
            self._ids[arrival.origin]: arrival.barred
            for arrival in arrivals
            if arrival.barred is not None and arrival.origin in self._ids
        }
        if len(self._ids) > 2 * len(state.jobs) + MOST_DROPPED:
            self._ids = {own: name for own, name in self._ids.items() if name in state.jobs}
            self._told_s = {own: at_s for own, at_s in self._told_s.items() if own in there}
        for job in [*state.open.values()]:
            if (
                job.submission.origin is not None
                and job.submission.origin not in there
                and job.live is None
            ):
                self._controller.record(Cancelled(job=job.id, reason=FORGOTTEN))

    def _take(self, arrival: Arrival) -> None:
        name = self._ids.get(arrival.origin)
        job = None if name is None else self._controller.state.jobs.get(name)
        if job is not None and job.finished in ("completed", "failed") and arrival.ready:
            try:
                if self._source.forgot_end(arrival.origin, job.finished_s or 0.0):
                    self._withdraw(arrival.origin)
                    return
            except NoAnswerError:
                return  # asked again for as long as it is ready
            job = None  # its user has requeued it
        if job is None:
            if arrival.ready:
                self._submit(arrival)
        elif job.finished is None:
            self._controller.record(*self._news(job, arrival))
        elif job.finished == "cancelled" and arrival.gone is None:
            self._withdraw(arrival.origin)

    def _news(self, job: LiveJob, arrival: Arrival) -> Iterator[Event]:
        if (
            arrival.gone is not None
            and job.cancelled is None
            and (arrival.cancelled or job.live is None)
        ):
            yield Cancelled(job=job.id, reason=arrival.gone)
        elif job.live is None and arrival.ready and self._changed(job, arrival):
            yield from self._change(job, arrival)
        elif job.live is None and arrival.held and job.held is None:
            yield Held(job=job.id, reason=ON_HOLD)
        elif job.live is None and not arrival.held and job.held == ON_HOLD:
            yield Released(job=job.id, by=job.submission.job.user or "its user")

    def _change(self, job: LiveJob, arrival: Arrival) -> Iterator[Event]:
        """Take over what it asks for now, or leave it alone where no order can start that."""
        submission, why = self._planned(job.id, arrival)
        if submission is not None:
            yield Changed(submission=submission)
            return
        with suppress(NoAnswerError):  # else at the next turn
            self._source.leave(arrival.origin, str(why))
            yield Cancelled(job=job.id, reason=f"it was changed in the cluster manager: {why}")

    def _changed(self, job: LiveJob, arrival: Arrival) -> bool:
        """Tell whether it asks for something else than it did. What it is given of memory when it
        starts is not a change."""
        known, request, started = job.submission, arrival.request, bool(job.attempts)
        if request is None:
            return arrival.unplanned is not None
        demands = _demands(request.job, started), _demands(known.job, started)
        asked = self._weight(request), self._priority(request), request.limit_s
        before = known.job.weight, known.job.priority, known.limit_s
        return demands[0] != demands[1] or asked != before

    def _weight(self, request: Request) -> float:
        return request.job.weight * min(request.asked_weight, self._most_weight(request))

    def _priority(self, request: Request) -> int:
        tiers = self._controller.settings.tiers
        return priority_in_manager(tiers, request.qos, request.account)

    def _most_weight(self, request: Request) -> float:
        """Return the weight that its user may ask for, besides that of its QOS and account."""
        if request.user_id == 0:
            return math.inf
        settings, user = self._controller.settings, request.job.user or ""
        return limits_of(settings, user, self._tenant(request)).weight

    def _is_time(self, origin: str) -> bool:
        """Tell whether the manager is to be told something of a job again; then it was now."""
        now_s = time.monotonic()
        if now_s < self._told_s.get(origin, -math.inf) + AGAIN_S:
            return False
        self._told_s[origin] = now_s
        return True

    def _withdraw(self, origin: str) -> None:
        if self._is_time(origin):
            with suppress(NoAnswerError):
                self._source.withdraw(origin)

    def _submit(self, arrival: Arrival) -> None:
        name = self._free_name(arrival.name)
        submission, why = self._planned(name, arrival)
        if submission is not None and arrival.request is not None:
            faults = [*arrival.request.faults, *self._too_heavy(arrival.request)]
            notes = [Noted(text=f"{name}: in its comment {fault}") for fault in faults]
            held = [Held(job=name, reason=ON_HOLD)] if arrival.held else []
            self._controller.record(Submitted(submission=submission), *held, *notes)
            self._ids[arrival.origin] = name
        elif why is not None and self._is_time(arrival.origin):
            with suppress(NoAnswerError):
                self._source.leave(arrival.origin, why)
                self._controller.record(Noted(text=f"{arrival.name} is left alone: {why}"))

    def _too_heavy(self, request: Request) -> list[str]:
        asked = request.asked_weight
        if self._weight(request) == request.job.weight * asked:
            return []
        return [
            f"weight={asked:g}: its user may ask for {self._most_weight(request):g} at the most "
            "(max_weight in cluster.toml); QOS and account may weigh more"
        ]

    def _free_name(self, name: str) -> str:
        """Return the manager's name for it, with a number where the manager has used that
        before."""
        stem = name if JOB_NAME.fullmatch(name) else "job"
        jobs = self._controller.state.jobs
        if stem not in jobs:
            return stem
        return next(f"{stem}-{i}" for i in count(2) if f"{stem}-{i}" not in jobs)

    def _submission(self, name: str, arrival: Arrival, request: Request) -> Submission:
        job, learning = request.job, self._controller.learning
        profile = job.profile
        if learning is not None:
            profile = _with_costs(profile, learning.costs(job.user, job.command))
        saves = profile.checkpoint_s or profile.checkpoint_every_s is not None
        if request.saves is not True and not saves:
            profile = replace(profile, checkpoint_every_s=NEVER_S)
        return accepted(
            self._controller,
            replace(
                job,
                id=name,
                tenant=self._tenant(request),
                profile=profile,
                weight=self._weight(request),
                priority=self._priority(request),
            ),
            limit_s=request.limit_s,
            grace_s=request.grace_s,
            argv=request.argv,
            directory=request.directory,
            user_id=request.user_id or None,
            total_steps=request.total_steps,
            origin=arrival.origin,
            preempt_unsaved=request.preempt_unsaved,
        )

    def _tenant(self, request: Request) -> str | None:
        tenants = self._controller.settings.tenants
        may = [own for own in tenants if not own.users or request.job.user in own.users]
        named = next((own.name for own in may if own.name == request.account), None)
        return named or next((own.name for own in may if own.users), None)

    def _planned(self, name: str, arrival: Arrival) -> tuple[Submission | None, str | None]:
        """Return what to write down of an arrival, or why no round could take it."""
        if arrival.request is None:
            return None, arrival.unplanned
        submission = self._submission(name, arrival, arrival.request)
        try:
            check_alone(self._controller, submission.job)
        except InputError as error:
            return None, str(error).replace("\n", " ")
        return submission, None


def _with_costs(stated: Profile, learned: Profile) -> Profile:
    """Return the profile with what starting and saving took jobs alike, where its user says nothing
    of that."""
    names = [name for name in COSTS if not getattr(stated, name)]
    if not stated.checkpoint_s:
        names.append("checkpoint_every_s")
    return replace(stated, **{name: getattr(learned, name) for name in names})


def _demands(job: Job, started: bool) -> tuple[Any, ...]:
    """Return what it asks for, in numbers."""
    names = ["gpus", "cpus", "min_nodes", "max_nodes", "preemptible", "min_run_s"]
    names += ["max_preemptions", "profile.rate", "profile.cpus_per_gpu"]
    names += [] if started else ["memory_gib", "profile.memory_gib_per_gpu"]
    return attrgetter(*names)(job)
