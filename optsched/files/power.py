"""Running jobs in files: under a power cap their modes need not list what their GPUs draw, as the
profile says it."""

from collections.abc import Mapping
from dataclasses import replace

from ..model import POWER_CAP, Cluster, Instance, Job, Running
from ..physics import placed_resources


def with_power(
    cluster: Cluster, jobs: tuple[Job, ...], running: tuple[Running, ...]
) -> tuple[Running, ...]:
    """Return running jobs as read, with their power added where the file leaves it out."""
    if POWER_CAP not in cluster.resources or not running:
        return running
    known = {job.id: job for job in jobs}
    return tuple(_changed(cluster, known, entry, adds=True) for entry in running)


def without_power(instance: Instance) -> tuple[Running, ...]:
    """Return running jobs to be written: without what `with_power` would add."""
    if POWER_CAP not in instance.cluster.resources:
        return instance.running
    return tuple(
        _changed(instance.cluster, instance.job, entry, adds=False) for entry in instance.running
    )


def _changed(cluster: Cluster, jobs: Mapping[str, Job], entry: Running, adds: bool) -> Running:
    job = jobs.get(entry.job)
    if job is None or job.modes or not all(slot.node in cluster.node for slot in entry.placement):
        return entry
    short, full = job.resources, placed_resources(cluster, job, entry.mode, entry.placement)
    before, after = (short, full) if adds else (full, short)
    if entry.mode.resources != before:
        return entry  # it states its power, or what it states is wrong: `find_faults` tells
    return replace(entry, mode=replace(entry.mode, resources=after))
