"""Jobs as their users asked for them: elastic ones as gangs, of listed modes the first."""

from dataclasses import replace

from ..model import Elastic, Instance, Job
from . import interpolate


def rigid(instance: Instance) -> Instance:
    """Return the instance whose elastic jobs run on one number of GPUs, that at which their run
    time was told, where their rate is 1, and whose jobs with listed modes have the first alone,
    unless they run already."""
    return replace(
        instance,
        jobs=tuple(
            replace(job, modes=job.modes[:1])
            if job.modes and job.id not in instance.running_job
            else _rigid(job)
            for job in instance.jobs
        ),
    )


def _rigid(job: Job) -> Job:
    if not isinstance(job.gpus, Elastic):
        return job
    table = job.profile.gpus
    if not table:
        return replace(job, gpus=job.gpus.max)
    counts = range(job.gpus.min, job.gpus.max + 1)
    asked = min(counts, key=lambda gpus: (abs(interpolate(table, gpus) - 1.0), gpus))
    return replace(job, gpus=asked)
