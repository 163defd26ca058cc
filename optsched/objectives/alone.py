"""Run times of a job by itself, to which some objectives relate its time."""

from ..errors import InputError
from ..model.instance import Instance
from ..model.job import Job
from ..physics.catalogue import catalogue_of
from ..physics.modes import Option


def fastest_s(instance: Instance, job: Job) -> float:
    """Return the run time of the whole job alone on the empty cluster in its fastest mode, without
    start-up.

    Raises InputError where the job fits nowhere.
    """
    return min(
        (option.run_s(job, job.work_s) for option in _options_that_fit(instance, job)),
        default=job.work_s,
    )


def isolated_s(instance: Instance, job: Job) -> float:
    """Return the run time of the whole job with a 1/n share of the cluster's GPUs for n jobs
    (finish-time fairness, Mahajan et al., Themis, NSDI 2020): a gang larger than the share runs
    proportionally slower. Raises InputError as `fastest_s`."""
    share = instance.cluster.total_gpus / max(1, len(instance.jobs))
    return min(
        (
            option.run_s(job, job.work_s)
            * (max(1.0, option.mode.gpus / share) if option.mode.gpus else 1.0)
            for option in _options_that_fit(instance, job)
        ),
        default=job.work_s,
    )


def _options_that_fit(instance: Instance, job: Job) -> tuple[Option, ...]:
    """Return the options of a job; none of one that runs where it could not be started."""
    fitting = catalogue_of(instance).options(job)
    if not fitting and job.id not in instance.running_job:
        raise InputError(f"job {job.id} fits nowhere on the cluster")
    return fitting
