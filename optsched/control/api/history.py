"""The last hours of the cluster: which attempt held what, and when it started up or saved."""

from ..controller import Controller
from ..journal.state import Attempt, LiveJob
from .answers import History, Stay
from .bodies import HistoryQuery
from .peer import Caller
from .service import Service, between_turns
from .views import GOING_ON, placement_of, view


@between_turns
def history(
    service: Service, controller: Controller, caller: Caller, query: HistoryQuery
) -> History:
    """Return what was where in the last hours. Jobs that the caller does not see have no name."""
    now_s = controller.clock.now_s()
    from_s = now_s - 3600.0 * query.hours
    stays = [
        _stay(caller, job, attempt)
        for job in controller.state.jobs.values()
        if job.finished_s is None or job.finished_s >= from_s
        for attempt in job.attempts
        if attempt.started_s is not None and (attempt.ended_s is None or attempt.ended_s >= from_s)
    ]
    pruned = controller.journal.last_pruned()
    return History(
        from_s=from_s,
        now_s=now_s,
        stays=tuple(sorted(stays, key=lambda stay: stay.started_s)),
        dropped_before_s=None if pruned is None else pruned.jobs_before_s,
    )


def _stay(caller: Caller, job: LiveJob, attempt: Attempt) -> Stay:
    assert attempt.started_s is not None
    end_s, work_from_s = attempt.end_s, attempt.started_s + attempt.setup_s
    return view(
        Stay,
        attempt,
        attempt.ended or GOING_ON,
        job=job.id if caller.sees(job) else None,
        attempt=attempt.key.number,
        placement=placement_of(attempt),
        work_from_s=work_from_s if end_s is None else min(work_from_s, end_s),
        asked_s=attempt.stop_s,
        why=attempt.stop_why,
        ended_s=end_s,
    )
