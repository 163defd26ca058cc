"""Jobs that ask for the same are one class: what is derived from their demands is derived once."""

import numpy as np

from ...frozen import entity
from ...model import Instance, Job
from ...physics.catalogue import catalogue_of
from ...physics.modes import Option, demands
from ..record import Floats, Ints


@entity
class Classes:
    """`of_job` is the class of each job; a class has one job as example and the options of all."""

    of_job: Ints
    examples: tuple[Job, ...]
    options: tuple[tuple[Option, ...], ...]


def classes(instance: Instance) -> Classes:
    """Return jobs by profile, gang, nodes, cores, memory, listed modes and tenant, in order of
    first appearance. O(jobs)."""
    known: dict[object, int] = {}
    examples: list[Job] = []
    codes = []
    for job in instance.jobs:
        key = demands(job), job.tenant
        code = known.setdefault(key, len(examples))
        if code == len(examples):
            examples.append(job)
        codes.append(code)
    return Classes(
        np.array(codes, dtype=np.int64),
        tuple(examples),
        tuple(catalogue_of(instance).options(job) for job in examples),
    )


def isolated_s(instance: Instance, job_classes: Classes, work_s: Floats, jobs: Floats) -> Floats:
    """Run time of each job with one of `jobs` equal shares of the cluster's GPUs:
    `objectives.isolated_s`, which has all jobs of the instance there, for many jobs at once."""
    most = max((len(choices) for choices in job_classes.options), default=0)
    total = instance.cluster.total_gpus
    best = np.full(len(work_s), np.inf)
    for k in range(most):
        rate = np.array(
            [choices[k].rate if k < len(choices) else 0.0 for choices in job_classes.options]
        )[job_classes.of_job]
        gpus = np.array(
            [choices[k].mode.gpus if k < len(choices) else 0 for choices in job_classes.options]
        )[job_classes.of_job]
        there = rate > 0
        stretch = np.maximum(1.0, gpus[there] * jobs[there] / total) if total else 1.0
        best[there] = np.minimum(best[there], work_s[there] / rate[there] * stretch)
    return best
