"""Jobs that users gave to the cluster manager: taken into the journal, and what becomes of them
there followed."""

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..estimates.history import gang
from ..executors.base import JOB_NAME, Arrival, Arrivals, NoAnswerError, Request
from ..files import check_instance
from ..model.cluster import Cluster
from ..model.instance import Instance
from ..model.job import Job
from ..model.profile import Profile
from .journal.events import Cancelled, Changed, Event, Held, Noted, Released, Submitted
from .journal.state import LiveJob
from .learned import NEVER_S
from .learning import believed
from .limits import limits_of
from .submission import Submission

if TYPE_CHECKING:
    from .core import ControllerCore

AGAIN_S = 5.0
"""How often the manager is told again that a job is not wanted."""
FORGOTTEN = "the cluster manager no longer knows it, and nobody knows how it ended"
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
        NoAnswerError."""
        arrivals = self._source.arrivals()
        for arrival in arrivals:
            self._take(arrival)
        there = {arrival.origin for arrival in arrivals}
        state = self._controller.state
        state.barred = {
            self._ids[arrival.origin]: arrival.barred
            for arrival in arrivals
            if arrival.barred is not None and arrival.origin in self._ids
        }
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
        why = arrival.unplanned
        if arrival.request is not None:
            submission = self._submission(job.id, arrival, arrival.request)
            why = self._fault(submission.job)
            if why is None:
                yield Changed(submission=submission)
                return
        with suppress(NoAnswerError):  # else at the next turn
            self._source.leave(arrival.origin, str(why))
            yield Cancelled(job=job.id, reason=f"it was changed in the cluster manager: {why}")

    def _changed(self, job: LiveJob, arrival: Arrival) -> bool:
        """Whether it asks for something else than it did. What it is given of memory when it starts
        is no change."""
        known, request = job.submission, arrival.request
        if request is None:
            return arrival.unplanned is not None
        asked = _demands(request.job, bool(job.attempts)), self._weight(request), request.limit_s
        return asked != (_demands(known.job, bool(job.attempts)), known.job.weight, known.limit_s)

    def _weight(self, request: Request) -> float:
        return request.job.weight * min(request.asked_weight, self._most_weight(request))

    def _most_weight(self, request: Request) -> float:
        """Return the weight that its user may ask for, besides that of its QOS and account."""
        if request.user_id == 0:
            return math.inf
        most, _ = limits_of(
            self._controller.settings, request.job.user or "", self._tenant(request)
        )
        return most

    def _withdraw(self, origin: str) -> None:
        if time.monotonic() < self._told_s.get(origin, -float("inf")) + AGAIN_S:
            return
        self._told_s[origin] = time.monotonic()
        with suppress(NoAnswerError):
            self._source.withdraw(origin)

    def _submit(self, arrival: Arrival) -> None:
        why = arrival.unplanned
        if arrival.request is not None:
            name = self._free_name(arrival.name)
            submission = self._submission(name, arrival, arrival.request)
            why = self._fault(submission.job)
            if why is None:
                faults = [*arrival.request.faults, *self._too_heavy(arrival.request)]
                notes = [Noted(text=f"{name}: in its comment {fault}") for fault in faults]
                held = [Held(job=name, reason=ON_HOLD)] if arrival.held else []
                self._controller.record(Submitted(submission=submission), *held, *notes)
                self._ids[arrival.origin] = name
                return
        if (
            why is not None
            and time.monotonic() >= self._told_s.get(arrival.origin, -float("inf")) + AGAIN_S
        ):
            self._told_s[arrival.origin] = time.monotonic()
            with suppress(NoAnswerError):
                self._source.leave(arrival.origin, why)
                self._controller.record(Noted(text=f"{arrival.name} is left alone: {why}"))

    def _too_heavy(self, request: Request) -> list[str]:
        asked = request.asked_weight
        return (
            []
            if self._weight(request) == request.job.weight * asked
            else [
                f"weight={asked:g}: its user may ask for {self._most_weight(request):g} at the "
                "most (max_weight in cluster.toml); QOS and account may weigh more"
            ]
        )

    def _free_name(self, name: str) -> str:
        """The manager's name for it, with a number where the manager has used that before."""
        stem = name if JOB_NAME.fullmatch(name) else "job"
        jobs = self._controller.state.jobs
        return next(
            one
            for one in (stem, *(f"{stem}-{i}" for i in range(2, len(jobs) + 3)))
            if one not in jobs
        )

    def _submission(self, name: str, arrival: Arrival, request: Request) -> Submission:
        job, settings, learning = request.job, self._controller.settings, self._controller.learning
        work_s, estimate = believed(
            learning,
            float(settings.runs),
            job.user,
            job.command,
            gang(job),
            stated_s=job.duration_s,
            limit_s=request.limit_s,
        )
        profile = job.profile
        if learning is not None:
            profile = _with_costs(profile, learning.costs(job.user, job.command))
        if (
            request.saves is not True
            and not profile.checkpoint_s
            and profile.checkpoint_every_s is None
        ):
            profile = replace(profile, checkpoint_every_s=NEVER_S)
        planned = replace(
            job,
            id=name,
            tenant=self._tenant(request),
            duration_s=work_s,
            profile=profile,
            weight=self._weight(request),
        )
        return Submission(
            job=planned,
            argv=request.argv,
            directory=request.directory,
            user_id=request.user_id or None,
            grace_s=float(settings.grace) if request.grace_s is None else request.grace_s,
            total_steps=request.total_steps,
            estimate=estimate,
            stated_s=job.duration_s,
            limit_s=request.limit_s,
            origin=arrival.origin,
            preempt_unsaved=request.preempt_unsaved,
        )

    def _tenant(self, request: Request) -> str | None:
        tenants = self._controller.settings.tenants
        may = [one for one in tenants if not one.users or request.job.user in one.users]
        named = next((one.name for one in may if one.name == request.account), None)
        return named or next((one.name for one in may if one.users), None)

    def _fault(self, job: Job) -> str | None:
        """Why no round could take the job, None where all can."""
        controller = self._controller
        alone = Instance(
            name="arrival",
            cluster=Cluster(resources=controller.cluster.resources),
            tenants=controller.tenants,
            jobs=(job,),
        )
        try:
            check_instance(alone, accept_never=True)
        except InputError as error:
            return str(error).replace("\n", " ")
        return None


def _with_costs(stated: Profile, learned: Profile) -> Profile:
    """The profile with what starting and saving took jobs alike, where its user says nothing of
    that."""
    found = {name: getattr(learned, name) for name in ("checkpoint_s", "restore_s", "startup_s")}
    profile = replace(
        stated, **{name: value for name, value in found.items() if not getattr(stated, name)}
    )
    return (
        profile
        if stated.checkpoint_s
        else replace(profile, checkpoint_every_s=learned.checkpoint_every_s)
    )


def _demands(job: Job, started: bool) -> tuple[Any, ...]:
    """What it asks for, in numbers."""
    profile = job.profile
    memory = () if started else (job.memory_gib, profile.memory_gib_per_gpu)
    return (
        job.gpus,
        job.cpus,
        job.min_nodes,
        job.max_nodes,
        profile.rate,
        profile.cpus_per_gpu,
        job.preemptible,
        job.min_run_s,
        job.max_preemptions,
        *memory,
    )
