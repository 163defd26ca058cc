"""Features of an instance that planners of whole horizons do not know; rounds and the simulator
do."""

from ..model import Instance
from .capacity import Domains
from .catalogue import on_uplinks
from .contention import crowded_memory
from .model_caches import fetching
from .modes import split_jobs


def unplanned(instance: Instance) -> str | None:
    """Return the first thing that such a planner's model does not know, in one clause, or None."""
    if (job := split_jobs(instance)) is not None:
        return f"job {job} is to be split equally over nodes, which its model does not know"
    if (job := on_uplinks(instance)) is not None:
        return f"job {job} may use the uplinks of racks, which its model does not know"
    if (crowded := crowded_memory(instance)) is not None:
        return f"{crowded}: its model does not know how that slows them down"
    if (job := fetching(instance)) is not None:
        return f"job {job} fetches its model: which nodes have it in their caches is not planned"
    if job := next((job for job in instance.running_job if instance.job[job].cores_in_place), None):
        return f"job {job} runs and may change its cores in place, which its model does not know"
    domains = Domains(instance.cluster, {}, 0.0)
    if (job := next((job.id for job in instance.jobs if domains.minds(job)), None)) is not None:
        return f"job {job} minds which others are near it, which its model does not know"
    return None
