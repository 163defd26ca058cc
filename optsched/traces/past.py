"""The first jobs of a workload as its past."""

from dataclasses import replace

from ..errors import InputError
from ..model import Completed, Instance, first_come


def with_past(instance: Instance, jobs: int) -> Instance:
    """Return the instance with its first `jobs` jobs, by submission, as its past: they are neither
    scheduled nor measured, and beliefs about run times learn from them. It begins when the next one
    is submitted.

    A job of the past has completed as long after its submission as it works, that of failed
    attempts included. One that would still be at work at the beginning is left out, as nothing
    could be known of its length. Raises InputError where no job would be left, where some run or
    are suspended already, and where none of the past would be done.
    """
    if jobs >= len(instance.jobs):
        raise InputError(
            f"--past {jobs}: the workload has {len(instance.jobs)} jobs; leave at least one to be "
            "scheduled"
        )
    if instance.running or instance.suspended:
        raise InputError("--past: jobs run already; leave it or --running out")
    by_time = sorted(instance.jobs, key=first_come)
    first, rest = by_time[:jobs], by_time[jobs:]
    begin_s = max(instance.now_s, rest[0].submit_s)
    past = []
    for job in first:
        worked_s = job.work_s + instance.lost_work_s.get(job.id, 0.0)
        completed_s = round(job.submit_s + worked_s, 3)
        if completed_s <= begin_s:
            own_s = None if worked_s == job.work_s else worked_s
            past.append(Completed(job=job, completed_s=completed_s, worked_s=own_s))
    if not past:
        raise InputError(
            f"--past {jobs}: none of these jobs would be done when the next one comes; let the "
            "jobs come one by one, or over a longer time"
        )
    names = {job.id for job in rest}
    left = replace(
        instance,
        name=f"{instance.name}-past-{jobs}",
        now_s=begin_s,
        past=tuple(past),
        failures=tuple(failure for failure in instance.failures if failure.job in names),
        outages=tuple(outage for outage in instance.outages if outage.start_s >= begin_s),
    )
    return left.only(names)
