"""Seconds that a job yet takes: where it goes on, and from a fresh start."""

from optsched.model import Instance, Job, Mode
from optsched.physics import placed_rate, remaining_after_preemption_s, run_s, setup_s


def continue_s(instance: Instance, job: Job) -> float:
    """Return the seconds until a running job is done if it continues, beside its partner if it
    shares GPUs."""
    entry = instance.running_job[job.id]
    speed = placed_rate(instance, job, entry.mode, entry.placement)
    return entry.setup_s + run_s(job, entry.mode, entry.remaining_s, speed)


def fresh_s(instance: Instance, job: Job, mode: Mode, speed: float) -> float:
    """Return the seconds that `job` takes from a start in `mode` at rate `speed`, with start-up
    and, if it ran before, restore; a running job is taken to be preempted now."""
    entry = instance.running_job.get(job.id)
    ran_before = entry is not None or job.id in instance.suspended_job
    work_s = (
        instance.remaining_s(job)
        if entry is None
        else remaining_after_preemption_s(instance, entry)
    )
    return setup_s(job, ran_before) + run_s(job, mode, work_s, speed)
