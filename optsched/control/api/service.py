"""What requests do. Everything that touches the controller is done on its loop's thread."""

import heapq
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, TypeVar

from ... import __version__
from ...executors.base import JOB_NAME, AttemptKey
from ..controller import Controller
from ..journal.events import Cancelled, Cleared, Event, Held, Released, Submitted
from ..journal.journal import JournalError
from ..journal.state import LiveJob
from ..loop import Loop, LoopStoppedError
from ..submission import Submission
from ..work_left import work_left_s
from .bodies import JobsQuery, OutputQuery, RoundsQuery, SubmitBody
from .output import read_output
from .peer import Access, Caller
from .refusal import HttpError
from .submitting import stem_of, submission_of
from .views import (
    Holder,
    JobDetail,
    JobPage,
    JobView,
    Nodes,
    NodeView,
    Output,
    Price,
    Rounds,
    RoundView,
    StateView,
    attempt_view,
    bars,
    job_view,
    placement_of,
    round_view,
)

if TYPE_CHECKING:
    from .routes import Route

Answer = TypeVar("Answer")
MOST_ROUNDS = 10_000
"""Older rounds are in the journal only."""
Change = Literal["hold", "release", "cancel"]


@dataclass
class Service:
    """Answers requests of callers against the controller of `loop`; `routes` are the requests there
    are."""

    loop: Loop
    access: Access
    routes: "tuple[Route, ...]" = ()
    _requests: dict[tuple[str, str], str] | None = None
    _numbers: dict[str, int] = field(default_factory=dict)

    def ask(self, call: Callable[[Controller], Answer]) -> Answer:
        """Have `call` done between two turns. Raises HttpError 503 where the controller does not
        answer."""
        try:
            return self.loop.ask(call)
        except JournalError as error:
            raise HttpError(
                503, f"it could not be written down, so it was not done: {error}"
            ) from None
        except (LoopStoppedError, CancelledError):
            raise HttpError(503, "the controller is stopping; ask again when it is back") from None
        except TimeoutError:
            raise HttpError(
                503, "the controller is busy and did not get to it; ask again later"
            ) from None

    # ----------------------------------------------------------------------------------------------
    # jobs

    def submit(self, caller: Caller, body: SubmitBody) -> tuple[JobView, bool]:
        """The job, and whether it is new: a request that was made before makes no second one."""

        def submitted(controller: Controller) -> tuple[JobView, bool]:
            before = self._made_before(controller, caller, body)
            if before is None:
                if controller.short_of_disk is not None:
                    raise HttpError(503, f"no job is taken now: {controller.short_of_disk}")
                name = body.name or self._new_name(controller, body)
                if self._taken(controller, name):
                    raise HttpError(
                        409, f"there is, or was, a job named {name!r}; choose another name"
                    )
                submission = submission_of(body, name, caller, controller, self.access.own_uid)
                controller.record(Submitted(submission=submission))
                self._remember(submission)
            job = controller.state.jobs[before or name]
            return job_view(controller, job, controller.clock.now_s()), before is None

        return self.ask(submitted)

    def _made_before(self, controller: Controller, caller: Caller, body: SubmitBody) -> str | None:
        if self._requests is None:
            self._requests = {}
            for job in controller.state.jobs.values():
                self._remember(job.submission)
        if body.request_id is None:
            return None
        name = self._requests.get((caller.name, body.request_id))
        if name is None or name not in controller.state.jobs:
            return None
        made = controller.state.jobs[name].submission
        if (made.argv, made.directory) != (body.argv, body.directory) or body.name not in (
            None,
            name,
        ):
            raise HttpError(
                409, f"request_id {body.request_id!r} was another request, which made {name}"
            )
        return name

    def _remember(self, submission: Submission) -> None:
        if submission.request_id is not None and self._requests is not None:
            self._requests[submission.job.user or "", submission.request_id] = submission.job.id

    def _new_name(self, controller: Controller, body: SubmitBody) -> str:
        stem = stem_of(body.argv)
        number = self._numbers.get(stem, 0) + 1
        while self._taken(controller, f"{stem}-{number}"):
            number += 1
        self._numbers[stem] = number
        return f"{stem}-{number}"

    def _taken(self, controller: Controller, name: str) -> bool:
        """By a job, or by an attempt that the journal does not know: to start under its name would
        start nothing. Or by a job that was dropped, from whose checkpoints this one would go on."""
        return (
            name in controller.state.jobs
            or AttemptKey(name, 1) in controller.observed
            or controller.checkpoints(name).exists()
        )

    def jobs(self, caller: Caller, query: JobsQuery) -> JobPage:
        """Jobs that have not finished in the order of their submission, or finished ones, the last
        first."""
        if query.all and not caller.all_jobs:
            raise HttpError(403, "only administrators see the jobs of all users; leave `all` out")
        after = None if query.page is None else _page(query.page)

        def listed(controller: Controller) -> JobPage:
            now_s = controller.clock.now_s()
            mine = [
                job
                for job in (
                    controller.state.jobs if query.finished else controller.state.open
                ).values()
                if (job.finished is not None) == query.finished
                and (query.all or _owns(caller, job))
            ]
            order = _last_first if query.finished else _first_first
            rest = mine if after is None else [job for job in mine if order(job) > after]
            found = heapq.nsmallest(query.limit, rest, key=order)
            at_s, name = order(found[-1]) if len(rest) > len(found) else (0.0, "")
            barred = bars(controller)
            return JobPage(
                jobs=tuple(job_view(controller, job, now_s, barred) for job in found),
                total=len(mine),
                next=f"{at_s!r},{name}" if name else None,
            )

        return self.ask(listed)

    def job(self, caller: Caller, name: str) -> JobDetail:
        """One job with its attempts."""

        def shown(controller: Controller) -> JobDetail:
            job = _visible(controller, caller, name)
            return JobDetail(
                job=job_view(controller, job, controller.clock.now_s()),
                argv=job.submission.argv,
                directory=job.submission.directory,
                attempts=tuple(attempt_view(one) for one in job.attempts),
            )

        return self.ask(shown)

    def change(self, caller: Caller, name: str, change: Change) -> JobView:
        """Hold, release or cancel a job; nothing happens where it is so already."""

        def changed(controller: Controller) -> JobView:
            job = _visible(controller, caller, name)
            if job.finished is not None and not (
                change == "cancel" and job.finished == "cancelled"
            ):
                was = "was cancelled" if job.finished == "cancelled" else f"has {job.finished}"
                raise HttpError(409, f"{name} {was}; nothing of it can be changed any more")
            if job.cancelled is not None and change != "cancel":
                raise HttpError(409, f"{name} is being cancelled")
            event: Event | None = None
            if change == "hold" and job.held is None:
                event = Held(job=name, by=caller.name)
            elif change == "release" and job.held is not None:
                event = Released(job=name, by=caller.name)
            elif change == "cancel" and job.cancelled is None:
                event = Cancelled(job=name, by=caller.name)
            if event is not None:
                controller.record(event)
            return job_view(controller, job, controller.clock.now_s())

        return self.ask(changed)

    def clear(self, caller: Caller, name: str) -> JobView:
        """Take a caller's word that nothing of an attempt is left which cannot be seen to end: what
        it holds is free.

        Who owns the job may give it where whoever starts attempts has no record of it; else only
        administrators.
        """

        def cleared(controller: Controller) -> JobView:
            job = _visible(controller, caller, name)
            attempt = job.live
            if attempt is None:
                raise HttpError(409, f"{name} holds nothing, so there is nothing to clear")
            if attempt.lost is None and not attempt.leaving:
                raise HttpError(
                    409,
                    f"attempt {attempt.key.number} of {name} is not lost; cancel or hold {name} "
                    "to end it",
                )
            if controller.may_go_on(attempt) and not caller.all_jobs:
                raise HttpError(
                    403,
                    f"attempt {attempt.key.number} of {name} may still run, so only administrators "
                    "may clear it",
                )
            now_s = controller.clock.now_s()
            seen = controller.observed.get(attempt.key)
            progress = None if seen is None else seen.progress
            left_s = attempt.work_s
            if progress is not None:
                left_s = work_left_s(job.submission, attempt, progress, now_s, saved=False)
            controller.record(
                Cleared(job=name, number=attempt.key.number, by=caller.name, left_s=left_s)
            )
            return job_view(controller, job, now_s)

        return self.ask(cleared)

    def output(self, caller: Caller, name: str, query: OutputQuery) -> Output:
        """Part of what an attempt printed; only its owner reads it, and who can read every file
        anyway."""

        def found(controller: Controller) -> tuple[int, str | None, int, bool]:
            job = _visible(controller, caller, name)
            if not (_owns(caller, job) or caller.all_output):
                raise HttpError(
                    403, f"only its user, {job.submission.job.user}, may read what {name} prints"
                )
            if not job.attempts or (query.attempt or 1) > len(job.attempts):
                which = (
                    "it has not been started yet"
                    if not job.attempts
                    else f"it had {len(job.attempts)} attempts"
                )
                raise HttpError(404, f"{name} has printed nothing: {which}")
            attempt = job.attempts[(query.attempt or 0) - 1]
            seen = controller.observed.get(attempt.key)
            path = attempt.ended.output if attempt.ended is not None else None
            if path is None and seen is not None:
                path = seen.output
            uid = job.submission.user_id
            over = attempt.ended is not None
            return attempt.key.number, path, self.access.own_uid if uid is None else uid, over

        number, path, uid, ended = self.ask(found)
        if path is not None and query.stream == "stderr":
            place = PurePosixPath(path)
            path = str(place.with_name("stderr")) if place.name == "stdout" else None
        if path is None and not ended and query.stream == "stdout":
            return Output(job=name, attempt=number, text="", start=0, next=0, size=0, ended=False)
        if path is None:
            raise HttpError(404, f"nothing is kept of what attempt {number} of {name} printed")
        text, start, end, size = read_output(
            path, uid, tail_bytes=query.tail * 1024, start=query.start
        )
        return Output(
            job=name, attempt=number, text=text, start=start, next=end, size=size, ended=ended
        )

    # ----------------------------------------------------------------------------------------------
    # the cluster

    def nodes(self, caller: Caller) -> Nodes:
        """All nodes; jobs are named to those who see them."""

        def listed(controller: Controller) -> Nodes:
            held: dict[str, list[Holder]] = {}
            for attempt in controller.state.live_attempts():
                shown = _owns(caller, controller.state.jobs[attempt.key.job]) or caller.all_jobs
                for slot in placement_of(attempt):
                    held.setdefault(slot.node, []).append(
                        Holder(
                            job=attempt.key.job if shown else None,
                            gpus=slot.gpus,
                            cpus=slot.cpus,
                            gpu_ids=slot.gpu_ids,
                        )
                    )
            return Nodes(
                nodes=tuple(
                    NodeView(
                        name=node.name,
                        gpu_type=node.gpu_type,
                        gpus=node.gpus,
                        gpus_in_use=sum(holder.gpus for holder in held.get(node.name, ())),
                        gpu_memory_gib=node.gpu_memory_gib,
                        cpus=node.cpus,
                        memory_gib=node.memory_gib,
                        rack=node.rack,
                        usable=status.usable,
                        reason=status.reason,
                        out=status.out,
                        holders=tuple(held.get(node.name, ())),
                    )
                    for status in controller.statuses
                    for node in (status.node,)
                )
            )

        return self.ask(listed)

    def rounds(self, query: RoundsQuery) -> Rounds:
        """Rounds, the newest first."""

        def listed(controller: Controller) -> Rounds:
            last = controller.journal.last_round()
            before = last + 1 if query.before is None else min(query.before, last + 1)
            most = last + 1 - before + query.limit
            if most > MOST_ROUNDS + query.limit:
                raise HttpError(
                    422,
                    f"before: only the last {MOST_ROUNDS} rounds are shown here; "
                    "`optsched rounds` has all",
                )
            entries = [
                entry
                for entry in reversed(controller.journal.rounds(most))
                if entry.number < before
            ]
            return Rounds(rounds=tuple(round_view(entry) for entry in entries))

        return self.ask(listed)

    def state(self) -> StateView:
        """The cluster in short."""
        return self.ask(_state)


def _state(controller: Controller) -> StateView:
    state, statuses = controller.state, controller.statuses
    counts: dict[str, int] = {}
    for job in state.open.values():
        counts[job.status] = counts.get(job.status, 0) + 1
    in_use = sum(slot.gpus for attempt in state.live_attempts() for slot in attempt.placement)
    entries = controller.journal.rounds(1)
    last: RoundView | None = round_view(entries[-1]) if entries else None
    prices = () if controller.last_round is None else controller.last_round.prices
    return StateView(
        cluster=controller.settings.name,
        version=__version__,
        now_s=controller.clock.now_s(),
        objective=controller.settings.objective,
        nodes=len(statuses),
        nodes_usable=sum(status.usable for status in statuses),
        gpus=sum(status.node.gpus for status in statuses),
        gpus_usable=sum(status.node.gpus - len(status.out) for status in statuses if status.usable),
        gpus_in_use=in_use,
        queued=counts.get("waiting", 0),
        jobs=dict(sorted(counts.items())),
        finished=len(state.jobs) - len(state.open),
        round=last,
        prices=tuple(
            Price(name=row.name, capacity=row.capacity, used=row.used, price=row.price)
            for row in prices
            if row.price > 0
        ),
    )


def _owns(caller: Caller, job: LiveJob) -> bool:
    return job.submission.job.user == caller.name


def _visible(controller: Controller, caller: Caller, name: str) -> LiveJob:
    job = controller.state.jobs.get(name) if JOB_NAME.fullmatch(name) else None
    if job is None or not (caller.all_jobs or _owns(caller, job)):
        raise HttpError(404, f"there is no job {name[:80]!r}")
    return job


def _first_first(job: LiveJob) -> tuple[float, str]:
    return job.submit_s, job.id


def _last_first(job: LiveJob) -> tuple[float, str]:
    return -(job.finished_s or 0.0), job.id


def _page(text: str) -> tuple[float, str]:
    at, _, name = text.partition(",")
    return float(at), name
