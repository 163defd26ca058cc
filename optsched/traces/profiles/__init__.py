"""Measured profiles for jobs of traces that have none, and what else changes those of all jobs."""

from collections.abc import Callable
from dataclasses import replace

from ...model import Instance, Job, Profile


def with_profiles(instance: Instance, profile: Callable[[Job], Profile]) -> Instance:
    """Return the instance with the profile that `profile` returns for each job."""
    jobs = tuple(replace(job, profile=profile(job)) for job in instance.jobs)
    return replace(instance, jobs=jobs)
