"""Elastic jobs as gangs of the GPUs that their users asked for."""

from dataclasses import replace

from ..model.instance import Instance
from ..model.job import Elastic, Job
from . import interpolate


def rigid(instance: Instance) -> Instance:
    """Return the instance whose elastic jobs run on one number of GPUs: that at which their run
    time was told, where their rate is 1."""
    return replace(instance, jobs=tuple(map(_rigid, instance.jobs)))


def _rigid(job: Job) -> Job:
    if not isinstance(job.gpus, Elastic):
        return job
    table = job.profile.gpus
    if not table:
        return replace(job, gpus=job.gpus.max)
    counts = range(job.gpus.min, job.gpus.max + 1)
    asked = min(counts, key=lambda gpus: (abs(interpolate(table, gpus) - 1.0), gpus))
    return replace(job, gpus=asked)
