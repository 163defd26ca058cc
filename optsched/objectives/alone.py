"""Run times of a job by itself, to which some objectives relate its time."""

from collections.abc import Callable

from ..errors import InputError
from ..model import Instance, Job
from ..physics.catalogue import catalogue_of


def fastest_s(instance: Instance, job: Job) -> float:
    """Return the run time of the whole job alone on the empty cluster in its fastest mode, without
    start-up.

    Raises InputError where the job fits nowhere.
    """
    return _least_s(instance, job, lambda gpus: 1.0)


def isolated_s(instance: Instance, job: Job) -> float:
    """Return the run time of the whole job with a 1/n share of the cluster's GPUs for n jobs
    (finish-time fairness, Mahajan et al., Themis, NSDI 2020): a gang larger than the share runs
    proportionally slower. Raises InputError as `fastest_s`."""
    share = instance.cluster.total_gpus / max(1, len(instance.jobs))
    return _least_s(instance, job, lambda gpus: max(1.0, gpus / share) if gpus else 1.0)


def _least_s(instance: Instance, job: Job, slower: Callable[[int], float]) -> float:
    """Return the least run time of the options, times `slower` for a gang of so many GPUs; that of
    the reference for a job that runs where it could not be started."""
    fitting = catalogue_of(instance).options(job)
    if not fitting and job.id not in instance.running_job:
        raise InputError(f"job {job.id} fits nowhere on the cluster")
    times_s = (option.run_s(job, job.work_s) * slower(option.mode.gpus) for option in fitting)
    return min(times_s, default=job.work_s)
