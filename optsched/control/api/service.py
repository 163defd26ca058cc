"""Doing what requests ask for. What touches the controller is done on its loop's thread."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, TypeVar

from ... import __version__
from ...errors import InputError
from ...executors.base import NoAnswerError, RefusedError, Shells
from ..budgets_left import BudgetsView, budgets_view
from ..controller import Controller
from ..journal.events import (
    Cancelled,
    Changed,
    Cleared,
    Event,
    Held,
    Released,
    Requeued,
    Signalled,
    Submitted,
)
from ..journal.journal import JournalError
from ..journal.state import OPEN, LiveJob
from ..loop import Loop, LoopStoppedError
from ..reloading import Reloaded
from ..shares import SharesView, shares_view
from ..submission import Submission
from ..warning import number_of
from ..work_left import work_left_s
from .answers import (
    Holder,
    JobDetail,
    JobPage,
    JobView,
    Names,
    Nodes,
    NodeView,
    Output,
    Price,
    Rounds,
    Shell,
    StateView,
)
from .bodies import (
    AmendBody,
    BatchBody,
    ChangeBody,
    JobsQuery,
    OutputQuery,
    RoundsQuery,
    ShellQuery,
    SignalBody,
    SubmitBody,
)
from .naming import argv_of
from .output import read_output
from .peer import Access, Caller, visible
from .refusal import HttpError, unsound
from .selecting import matching, page_of
from .submitting import Taking, amended
from .views import attempt_view, forecast_view, job_view, placement_of, round_view, view

if TYPE_CHECKING:
    from .routes import Route

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
MOST_ROUNDS = 10_000
"""Older rounds are in the journal only."""
MOST_DROPPED = 1000
"""Requests for so many jobs that were dropped are remembered."""
Change = Literal["hold", "release", "cancel", "requeue"]


def between_turns(
    call: "Callable[Concatenate[Service, Controller, Arguments], Answer]",
) -> "Callable[Concatenate[Service, Arguments], Answer]":
    """Have something done with a service and its controller between two turns of that. Raises
    HttpError 503 where the controller does not answer."""

    @wraps(call)
    def asked(service: "Service", /, *given: Arguments.args, **named: Arguments.kwargs) -> Answer:
        return service.ask(lambda controller: call(service, controller, *given, **named))

    return asked


@dataclass
class Service:
    """Answers requests of callers against the controller of `loop`; `routes` are the requests there
    are."""

    loop: Loop
    access: Access
    routes: "tuple[Route, ...]" = ()
    _requests: dict[tuple[str, str], list[str]] | None = None
    _numbers: dict[str, int] = field(default_factory=dict)

    def ask(self, call: Callable[[Controller], Answer]) -> Answer:
        """Have `call` done between two turns. Raises HttpError 503 where the controller does not
        answer."""
        try:
            return self.loop.ask(call)
        except JournalError as error:
            why = f"it could not be written down, so it was not done: {error}"
        except (LoopStoppedError, CancelledError):
            why = "the controller is stopping; ask again when it is back"
        except TimeoutError:
            why = "the controller is busy and did not get to it; ask again later"
        raise HttpError(503, why)

    # ----------------------------------------------------------------------------------------------
    # jobs

    @between_turns
    def submit(
        self, controller: Controller, caller: Caller, body: SubmitBody
    ) -> tuple[int, JobView]:
        """Return the job, the first one of an array, after the status that says whether it is new:
        a request that was made before makes no second one."""
        status, names = self._take(controller, caller, (body,), body.request_id)
        job = controller.state.jobs[names[0]]
        return status, job_view(controller, job, controller.clock.now_s())

    @between_turns
    def submit_all(
        self, controller: Controller, caller: Caller, body: BatchBody
    ) -> tuple[int, Names]:
        """Return the names of many jobs, after the status that says whether they are new."""
        status, names = self._take(controller, caller, body.jobs, body.request_id)
        return status, Names(jobs=tuple(names))

    def _take(
        self,
        controller: Controller,
        caller: Caller,
        bodies: tuple[SubmitBody, ...],
        request_id: str | None,
    ) -> tuple[int, list[str]]:
        """Take all jobs of a request, or none; return 201 with their names, 200 where they were
        there before."""
        before = self._made_before(controller, caller, bodies[0], request_id)
        if before:
            return 200, before
        if controller.short_of_disk is not None:
            raise HttpError(503, f"no job is taken now: {controller.short_of_disk}")
        taking = Taking(controller, caller, self.access.own_uid, self._numbers)
        for number, body in enumerate(bodies):
            if len(bodies) > 1 and body.request_id is not None:
                raise HttpError(422, f"jobs[{number}].request_id is for all jobs; leave it out")
            try:
                taking.take(replace(body, request_id=request_id))
            except HttpError as error:
                which = f"jobs[{number}]: " if len(bodies) > 1 else ""
                raise HttpError(error.status, f"{which}{error}") from None
        made = taking.submissions
        controller.record(*(Submitted(submission=submission) for submission in made))
        for submission in made:
            self._remember(submission)
        self._forget_dropped(controller)
        return 201, [submission.job.id for submission in made]

    def _made_before(
        self, controller: Controller, caller: Caller, body: SubmitBody, request_id: str | None
    ) -> list[str]:
        if self._requests is None:
            self._requests = {}
            for job in controller.state.jobs.values():
                self._remember(job.submission)
        if request_id is None:
            return []
        known = self._requests.get((caller.name, request_id), [])
        names = [name for name in known if name in controller.state.jobs]
        if names:
            made = controller.state.jobs[names[0]].submission
            argv, called = argv_of(body.argv, made.index), made.array or made.job.id
            if (made.argv, made.directory) != (argv, body.directory) or body.name not in (
                None,
                called,
            ):
                raise HttpError(
                    409, f"request_id {request_id!r} was another request, which made {called}"
                )
        return names

    def _forget_dropped(self, controller: Controller) -> None:
        jobs, known = controller.state.jobs, self._requests
        if known is not None and len(known) > 2 * len(jobs) + MOST_DROPPED:
            self._requests = {
                asked: names for asked, names in known.items() if not jobs.keys().isdisjoint(names)
            }

    def _remember(self, submission: Submission) -> None:
        if submission.request_id is not None and self._requests is not None:
            request = submission.job.user or "", submission.request_id
            self._requests.setdefault(request, []).append(submission.job.id)

    def jobs(self, caller: Caller, query: JobsQuery) -> JobPage:
        """Return the jobs that are asked for, a page of them; without their commands, in which
        secrets may be, to whom may only look."""
        page = self.ask(lambda controller: page_of(controller, caller, query))
        if not caller.views_only:
            return page
        return replace(page, jobs=tuple(replace(job, command=None) for job in page.jobs))

    @between_turns
    def job(self, controller: Controller, caller: Caller, name: str) -> JobDetail:
        """Return one job with its attempts."""
        job = visible(controller.state, caller, name)
        return view(
            JobDetail,
            job.submission,
            job=job_view(controller, job, controller.clock.now_s()),
            attempts=tuple(attempt_view(attempt) for attempt in job.attempts),
        )

    @between_turns
    def change(self, controller: Controller, caller: Caller, name: str, change: Change) -> JobView:
        """Hold, release or cancel a job; nothing happens where it is so already."""
        job = visible(controller.state, caller, name)
        controller.record(*_changes(job, change, caller))
        return job_view(controller, job, controller.clock.now_s())

    @between_turns
    def change_all(
        self, controller: Controller, caller: Caller, body: ChangeBody, change: Change
    ) -> Names:
        """Hold, release or cancel all jobs that are chosen, at once; those of which nothing can be
        changed stay as they are."""
        if {body.user, body.tenant, body.state, body.name, body.array} == {None}:
            raise HttpError(422, "say which jobs: give user, tenant, state, name or array")
        chosen = matching(controller.state, caller, body, everybody=body.all, usual=OPEN)
        changed, events = [], []
        for job in chosen:
            with suppress(HttpError):
                events += _changes(job, change, caller)
                changed.append(job.id)
        controller.record(*events)
        return Names(jobs=tuple(changed))

    @between_turns
    def amend(self, controller: Controller, caller: Caller, name: str, body: AmendBody) -> JobView:
        """Change what a job asks for."""
        job = visible(controller.state, caller, name)
        if job.finished is not None:
            raise HttpError(409, f"{name} has finished; it can no longer be changed")
        submission = amended(body, job, caller, controller)
        if submission != job.submission:
            controller.record(Changed(submission=submission))
        return job_view(controller, job, controller.clock.now_s())

    @between_turns
    def shell(self, controller: Controller, caller: Caller, name: str, query: ShellQuery) -> Shell:
        """Return how to start a shell beside a running job; only its owner is told, and who can be
        every user anyway."""
        job = visible(controller.state, caller, name)
        if not (caller.owns(job) or caller.all_output):
            whose = job.submission.job.user
            raise HttpError(403, f"only its user, {whose}, may have a shell beside {name}")
        executor, attempt = controller.executor, job.live
        if not isinstance(executor, Shells):
            executor_name = controller.settings.executor
            raise HttpError(422, f"the executor {executor_name} starts no shell beside a job")
        if attempt is None or job.status != "running":
            raise HttpError(
                409, f"{name} is not running, so there is nothing to start a shell beside"
            )
        try:
            beside = executor.shell(attempt.key, query.terminal, query.node)
        except RefusedError as error:
            raise HttpError(409, str(error)) from None
        return view(Shell, beside, environment=dict(beside.environment), uid=beside.user)

    @between_turns
    def signal(
        self, controller: Controller, caller: Caller, name: str, body: SignalBody
    ) -> JobView:
        """Send a signal to the running attempt of a job."""
        job = visible(controller.state, caller, name)
        attempt = job.live
        if attempt is None or job.status not in ("running", "stopping"):
            raise HttpError(409, f"{name} is not running, so there is nothing to send a signal to")
        try:
            controller.executor.signal(attempt.key, number_of(body.signal))
        except RefusedError as error:
            raise HttpError(409, f"{name} got no signal: {error}") from None
        except (NoAnswerError, OSError) as error:
            raise HttpError(
                503, f"it is not known whether {name} got the signal: {error}"
            ) from None
        number, short = attempt.key.number, body.signal.removeprefix("SIG")
        controller.record(Signalled(job=name, number=number, signal=short, by=caller.name))
        return job_view(controller, job, controller.clock.now_s())

    @between_turns
    def clear(self, controller: Controller, caller: Caller, name: str) -> JobView:
        """Take a caller's word that nothing of an attempt is left which cannot be seen to end: what
        it holds is free.

        Who owns the job may give it where whoever starts attempts has no record of it; else only
        administrators.
        """
        job = visible(controller.state, caller, name)
        attempt = job.live
        if attempt is None:
            raise HttpError(409, f"{name} holds nothing, so there is nothing to clear")
        which = f"attempt {attempt.key.number} of {name}"
        if attempt.lost is None and not attempt.leaving:
            raise HttpError(409, f"{which} is not lost; cancel or hold {name} to end it")
        if controller.may_go_on(attempt) and not caller.all_jobs:
            raise HttpError(403, f"{which} may still run, so only administrators may clear it")
        now_s = controller.clock.now_s()
        seen = controller.observed.get(attempt.key)
        left_s = attempt.work_s
        if seen is not None and seen.progress is not None:
            left_s = work_left_s(job.submission, attempt, seen.progress, now_s, saved=False)
        controller.record(
            Cleared(job=name, number=attempt.key.number, by=caller.name, left_s=left_s)
        )
        return job_view(controller, job, now_s)

    def output(self, caller: Caller, name: str, query: OutputQuery) -> Output:
        """Return part of what an attempt printed; only its owner reads it, and who can read every
        file anyway."""
        number, path, uid, ended = self._printed(caller, name, query)
        if path is not None and query.stream == "stderr":
            place = PurePosixPath(path)
            path = str(place.with_name("stderr")) if place.name == "stdout" else None
        text, start, end, size = "", 0, 0, 0
        if path is not None:
            text, start, end, size = read_output(
                path, uid, tail_bytes=query.tail * 1024, start=query.start
            )
        elif ended or query.stream == "stderr":
            raise HttpError(404, f"nothing is kept of what attempt {number} of {name} printed")
        return Output(
            job=name, attempt=number, text=text, start=start, next=end, size=size, ended=ended
        )

    @between_turns
    def _printed(
        self, controller: Controller, caller: Caller, name: str, query: OutputQuery
    ) -> tuple[int, str | None, int, bool]:
        """Return the attempt that is meant, the file of what it printed, whose that is, and whether
        no more will come."""
        job = visible(controller.state, caller, name)
        if not (caller.owns(job) or caller.all_output):
            whose = job.submission.job.user
            raise HttpError(403, f"only its user, {whose}, may read what {name} prints")
        had = len(job.attempts)
        if had < (query.attempt or 1):
            which = f"it had {had} attempts" if had else "it has not been started yet"
            raise HttpError(404, f"{name} has printed nothing: {which}")
        attempt = job.attempts[(query.attempt or 0) - 1]
        tellers = attempt.ended, controller.observed.get(attempt.key)
        path = next((own.output for own in tellers if own is not None and own.output), None)
        uid = job.submission.user_id
        own_uid = self.access.own_uid if uid is None else uid
        return attempt.key.number, path, own_uid, attempt.ended is not None

    # ----------------------------------------------------------------------------------------------
    # the cluster

    def reload(self, caller: Caller) -> Reloaded:
        """Have cluster.toml read again. Raises HttpError: 403 for who may not, 422 for a file that
        cannot be taken over."""
        if not caller.all_jobs:
            raise HttpError(403, "only administrators can reload cluster.toml")
        try:
            return self.ask(self.loop.reload_now)
        except InputError as error:
            raise unsound(error) from None

    @between_turns
    def nodes(self, controller: Controller, caller: Caller) -> Nodes:
        """Return all nodes; jobs are named to those who see them."""
        held: dict[str, list[Holder]] = {status.node.name: [] for status in controller.statuses}
        for attempt in controller.state.live_attempts():
            name = attempt.key.job
            shown = name if caller.sees(controller.state.jobs[name]) else None
            for slot in placement_of(attempt):
                held.setdefault(slot.node, []).append(view(Holder, slot, job=shown))
        return Nodes(
            nodes=tuple(
                view(
                    NodeView,
                    status.node,
                    status,
                    gpus_in_use=sum(holder.gpus for holder in held[status.node.name]),
                    holders=tuple(held[status.node.name]),
                )
                for status in controller.statuses
            )
        )

    @between_turns
    def shares(self, controller: Controller, caller: Caller) -> SharesView:
        """Return who is entitled to what; other users than himself only to who sees all jobs."""
        return shares_view(controller, None if caller.all_jobs else caller.name)

    @between_turns
    def budgets(self, controller: Controller, caller: Caller) -> BudgetsView:
        """Return what is left of budgets; those of other users than himself only to who sees all
        jobs."""
        return budgets_view(controller, None if caller.all_jobs else caller.name)

    @between_turns
    def rounds(self, controller: Controller, query: RoundsQuery) -> Rounds:
        """Return rounds, the newest first."""
        last = controller.journal.last_round()
        before = last + 1 if query.before is None else min(query.before, last + 1)
        most = last + 1 - before + query.limit
        if most > MOST_ROUNDS + query.limit:
            shown = f"only the last {MOST_ROUNDS} rounds are shown here"
            raise HttpError(422, f"before: {shown}; `optsched rounds` has all")
        entries = reversed(controller.journal.rounds(most))
        return Rounds(rounds=tuple(round_view(entry) for entry in entries if entry.number < before))

    @between_turns
    def state(self, controller: Controller, caller: Caller) -> StateView:
        """Return the cluster in short."""
        state, statuses = controller.state, controller.statuses
        usable = [status for status in statuses if status.usable]
        counts = Counter(job.status for job in state.open.values())
        attempts, rounds = state.live_attempts(), controller.journal.rounds(1)
        prices = () if controller.last_round is None else controller.last_round.prices
        return StateView(
            cluster=controller.settings.name,
            version=__version__,
            now_s=controller.clock.now_s(),
            objective=controller.settings.objective,
            nodes=len(statuses),
            nodes_usable=len(usable),
            gpus=sum(status.node.gpus for status in statuses),
            gpus_usable=sum(status.node.gpus - len(status.out) for status in usable),
            gpus_in_use=sum(slot.gpus for attempt in attempts for slot in attempt.placement),
            queued=counts["waiting"],
            jobs=dict(sorted(counts.items())),
            finished=len(state.jobs) - len(state.open),
            round=round_view(rounds[-1]) if rounds else None,
            prices=tuple(view(Price, row) for row in prices if row.price > 0),
            forecast=forecast_view(controller.forecast),
            events=controller.journal.last,
            views_only=caller.views_only,
        )


def _changes(job: LiveJob, change: Change, caller: Caller) -> list[Event]:
    """Return what is to be written down so that a job is as asked; nothing where it is so already.
    Raises HttpError 409."""
    if change == "requeue":
        return _requeue(job, caller)
    if job.finished is not None and (change, job.finished) != ("cancel", "cancelled"):
        was = f"{'was' if job.finished == 'cancelled' else 'has'} {job.finished}"
        raise HttpError(409, f"{job.id} {was}; it can no longer be changed")
    if job.cancelled is not None and change != "cancel":
        raise HttpError(409, f"{job.id} is being cancelled")
    match change:
        case "hold" if job.held is None:
            return [Held(job=job.id, by=caller.name)]
        case "release" if job.held is not None:
            return [Released(job=job.id, by=caller.name)]
        case "cancel" if job.cancelled is None:
            return [Cancelled(job=job.id, by=caller.name)]
    return []


def _requeue(job: LiveJob, caller: Caller) -> list[Event]:
    if job.submission.origin is not None:
        raise HttpError(409, f"{job.id} is a job of the cluster manager; requeue it there")
    if job.finished is None and job.cancelled is not None:
        raise HttpError(409, f"{job.id} is being cancelled; requeue it once it is")
    if job.finished is None and job.live is None:
        does = "waits for its turn" if job.held is None else "is on hold: release it"
        raise HttpError(409, f"{job.id} has not finished and does not run; it {does}")
    return [] if job.requeued else [Requeued(job=job.id, by=caller.name)]
