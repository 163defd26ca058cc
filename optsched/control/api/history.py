"""The last hours of the cluster: which attempt held what, and when it started up or saved."""

from ..controller import Controller
from ..journal.state import Attempt, LiveJob
from .bodies import HistoryQuery
from .peer import Caller
from .service import Service
from .views import History, Stay, placement_of


def history(service: Service, caller: Caller, query: HistoryQuery) -> History:
    """What was where in the last hours. Jobs that the caller does not see have no name."""

    def told(controller: Controller) -> History:
        now_s = controller.clock.now_s()
        from_s = now_s - 3600.0 * query.hours
        stays = [
            _stay(caller, job, attempt)
            for job in controller.state.jobs.values()
            if job.finished_s is None or job.finished_s >= from_s
            for attempt in job.attempts
            if attempt.started_s is not None
            and (attempt.ended_s is None or attempt.ended_s >= from_s)
        ]
        pruned = controller.journal.last_pruned()
        return History(
            from_s=from_s,
            now_s=now_s,
            stays=tuple(sorted(stays, key=lambda stay: stay.started_s)),
            dropped_before_s=None if pruned is None else pruned.jobs_before_s,
        )

    return service.ask(told)


def _stay(caller: Caller, job: LiveJob, attempt: Attempt) -> Stay:
    assert attempt.started_s is not None
    seen = caller.all_jobs or job.submission.job.user == caller.name
    ended = attempt.ended
    ended_s = attempt.ended_s if ended is None or ended.ended_s is None else ended.ended_s
    work_from_s = attempt.started_s + attempt.setup_s
    return Stay(
        job=job.id if seen else None,
        attempt=attempt.key.number,
        placement=placement_of(attempt),
        started_s=attempt.started_s,
        work_from_s=work_from_s if ended_s is None else min(work_from_s, ended_s),
        asked_s=attempt.stop_s,
        why=attempt.stop_why,
        ended_s=ended_s,
        exit_status=None if ended is None else ended.exit_status,
    )
