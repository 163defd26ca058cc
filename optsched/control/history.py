"""What really happened, as an instance and a plan: for pictures, and to be compared with what could
have been."""

from dataclasses import replace

from ..model import Cluster, Instance, Job, JobPlan, Plan, Segment, Tenant
from .journal.state import LiveJob, State
from .present import LEAST_WORK_S


def history(
    state: State, cluster: Cluster, tenants: tuple[Tenant, ...], *, name: str = "what happened"
) -> tuple[Instance, Plan]:
    """Return the jobs of a state that have ended after they ran, with a segment for each attempt;
    times are seconds since the first of them was submitted, profiles and work as they were
    measured.

    The work of a job is what its attempts did at their rates, set-up and saving excepted; what was
    done twice counts twice. `cluster` has the nodes.
    """
    done = [job for job in state.jobs.values() if job.finished is not None and _segments(job, 0.0)]
    start_s = min((job.submit_s for job in done), default=0.0)
    jobs = tuple(_job(job, start_s) for job in done)
    plans = tuple(
        JobPlan(
            id=job.id,
            decision="start" if job.submit_s == start_s else "wait",
            segments=_segments(job, start_s),
        )
        for job in done
    )
    return Instance(name=name, cluster=cluster, tenants=tenants, jobs=jobs), Plan(jobs=plans)


def _segments(job: LiveJob, start_s: float) -> tuple[Segment, ...]:
    return tuple(
        Segment(
            start_s=attempt.started_s - start_s,
            end_s=max(attempt.started_s, attempt.end_s or 0.0) - start_s,
            mode=attempt.mode,
            placement=attempt.placement,
        )
        for attempt in job.attempts
        if attempt.started_s is not None and attempt.ended is not None
    )


def work_done_s(job: LiveJob) -> float:
    """Return the reference work that the attempts of a job did, set-up and saving excepted; what
    was done twice counts twice."""
    work_s = 0.0
    for i, attempt in enumerate(job.attempts):
        if attempt.started_s is None or attempt.ended is None:
            continue
        profile = job.profile
        setup_s = profile.startup_s + (profile.restore_s if i else 0.0)
        save_s = profile.checkpoint_s if attempt.leaving else 0.0
        work_s += (
            max(0.0, (attempt.end_s or 0.0) - attempt.started_s - setup_s - save_s) * attempt.rate
        )
    return max(LEAST_WORK_S, work_s)


def _job(job: LiveJob, start_s: float) -> Job:
    return replace(
        job.submission.job,
        submit_s=job.submit_s - start_s,
        after=(),
        profile=replace(job.profile, sharing=None),
        duration_s=work_done_s(job),
    )
