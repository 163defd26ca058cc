"""From jobs, attempts and rounds to what the API shows of them."""

from dataclasses import fields
from typing import Any, TypeVar

from ...executors.base import Progress
from ..controller import Controller
from ..expected import LiveForecast, expected
from ..explain.blocked import Obstacles
from ..journal.events import AttemptEnded
from ..journal.journal import RoundEntry
from ..journal.state import PREEMPTIONS, Attempt, LiveJob
from ..work_left import work_left_s
from .answers import AttemptView, ForecastView, HeldOnNode, JobView, RoundView

View = TypeVar("View")
GOING_ON = AttemptEnded(job="", number=0, left_s=0.0)
"""The end of an attempt of which something is left: nothing is known of it."""


def view(kind: type[View], *sources: object, **stated: Any) -> View:
    """Return a view with these fields, the others as the first of `sources` that has them says."""
    for name in (field.name for field in fields(kind)):  # type: ignore[arg-type]
        if name not in stated:
            stated[name] = next(getattr(own, name) for own in sources if hasattr(own, name))
    return kind(**stated)


def placement_of(attempt: Attempt) -> tuple[HeldOnNode, ...]:
    """Return where an attempt is or was."""
    return tuple(
        view(HeldOnNode, slot, gpu_ids=tuple(attempt.gpu_ids.get(slot.node, ())))
        for slot in attempt.placement
    )


def job_view(
    controller: Controller, job: LiveJob, now_s: float, obstacles: Obstacles | None = None
) -> JobView:
    """Return a job as it is at `now_s`."""
    gpus = job.submission.job.gpus
    last = job.attempts[-1] if job.attempts else None
    ended = None if last is None else last.ended
    progress = _progress(controller, job)
    total_steps = None if progress is None else progress.total_steps
    return view(
        JobView,
        job,
        job.submission.job,
        job.submission,
        reason=reason_of(controller, job, now_s, obstacles),
        min_gpus=gpus if isinstance(gpus, int) else gpus.min,
        max_gpus=gpus if isinstance(gpus, int) else gpus.max,
        gpu_type=None if last is None else last.mode.gpu_type,
        placement=() if last is None else placement_of(last),
        started_s=started_s(job),
        waited_s=waited_s(job, now_s),
        ran_s=ran_s(job, now_s),
        remaining_s=remaining_s(controller, job, now_s),
        step=None if progress is None else progress.step,
        total_steps=total_steps or job.submission.total_steps,
        attempts=len(job.attempts),
        exit_status=None if ended is None else ended.exit_status,
        **expected(controller.forecast, job, now_s)._asdict(),
    )


def attempt_view(attempt: Attempt) -> AttemptView:
    """Return an attempt as it is or was."""
    ended = attempt.ended
    return view(
        AttemptView,
        attempt.key,
        attempt,
        ended or GOING_ON,
        gpus=sum(slot.gpus for slot in attempt.placement),
        placement=placement_of(attempt),
        asked_to_stop=attempt.stop_why,
        reason=attempt.lost or attempt.killed if ended is None else ended.reason,
    )


def round_view(entry: RoundEntry) -> RoundView:
    """Return a round as it is listed."""
    return view(RoundView, entry, gap=None if entry.gap == float("inf") else entry.gap)


def forecast_view(forecast: LiveForecast | None) -> ForecastView | None:
    """Return what is shown of the last forecast."""
    return None if forecast is None else view(ForecastView, forecast)


def reason_of(
    controller: Controller, job: LiveJob, now_s: float, obstacles: Obstacles | None = None
) -> str | None:
    """Return why it is where it is, in a clause; None where there is nothing to say. For several
    jobs make the `obstacles` once."""
    if job.finished is not None:
        return None if job.finished == "completed" else job.reason
    if job.live is not None:
        return _why_it_holds(controller, job, job.live)
    if job.held is not None:
        return job.held
    obstacles = obstacles or Obstacles(controller)
    for obstacle in obstacles.of(job, now_s):
        return obstacle.why
    made_way = bool(job.attempts) and job.attempts[-1].stop_why in PREEMPTIONS
    if not made_way and (job.waits_from_s or job.submit_s) > controller.decided_s:
        return "the next round decides"
    if obstacles.highest is not None and obstacles.highest > job.submission.job.priority:
        return "jobs of a higher priority go first"
    if (tenant := obstacles.borrower(job)) is not None:
        return f"tenant {tenant} would have to borrow GPUs for it, and others go before those"
    return "the last round gave its place to others"


def _why_it_holds(controller: Controller, job: LiveJob, live: Attempt) -> str | None:
    if live.lost is not None:
        return live.lost
    unwanted = job.cancelled or job.held
    if live.leaving:
        return live.killed or unwanted or f"it is asked to stop ({live.stop_why})"
    if unwanted:
        return unwanted
    why = controller.left_out.get(job.id)
    if why is not None:
        return f"it goes on, and rounds are decided without it: {why}"
    broken = controller.state.out_of(live)
    if broken:
        return f"some of what it runs on is out of order: {', '.join(broken)}"
    seen = controller.observed.get(live.key)
    return None if live.started_s is not None or seen is None else seen.reason


def _progress(controller: Controller, job: LiveJob) -> Progress | None:
    for attempt in reversed(job.attempts):
        for seen in (controller.observed.get(attempt.key), attempt.ended):
            if seen is not None and seen.progress is not None:
                return seen.progress
    return None


def started_s(job: LiveJob) -> float | None:
    """Return when it was first seen running."""
    started = (attempt.started_s for attempt in job.attempts)
    return next((at_s for at_s in started if at_s is not None), None)


def ran_s(job: LiveJob, now_s: float) -> float:
    """Return the seconds that it ran."""
    return sum(attempt.ran_s(now_s) for attempt in job.attempts)


def waited_s(job: LiveJob, now_s: float) -> float:
    """Return the seconds since its submission that it did not run."""
    until_s = now_s if job.finished_s is None else job.finished_s
    return max(0.0, until_s - job.submit_s - job.gone_s - ran_s(job, now_s))


def remaining_s(controller: Controller, job: LiveJob, now_s: float) -> float | None:
    """Return the seconds that it is believed to run yet."""
    live = job.live
    if job.finished is not None:
        return None
    if live is None or live.rate <= 0:
        return job.left_s
    seen = controller.observed.get(live.key)
    progress = None if seen is None else seen.progress
    left_s = work_left_s(job.submission, live, progress, now_s)
    return left_s / live.rate + max(0.0, live.setup_s - live.ran_s(now_s))
