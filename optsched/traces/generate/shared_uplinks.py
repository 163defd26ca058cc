"""Rack uplinks that gangs share, for generated workloads."""

from dataclasses import replace

from ...model.instance import Instance
from ...model.job import Job, gang
from ...model.profile import Profile

GANG_GBPS = 25.0
"""What a gang over several racks sends through each uplink while it communicates: the ring enters
and leaves a rack through one network interface, however many GPUs it has there; 25 Gbit/s is a
usual one."""


def with_shared_uplinks(instance: Instance, gbps: float) -> Instance:
    """Return the instance with uplinks of `gbps` Gbit/s from every rack, shared by all gangs that
    cross them.

    What a gang loses when it is spread over racks is taken for the time that it communicates: its
    `network_duty` is the share of the step by which it is then longer. Gangs that lose nothing, or
    of which that is not known, send nothing.
    """
    uplinks = {node.rack: gbps for node in instance.cluster.nodes if node.rack is not None}
    cluster = replace(instance.cluster, rack_uplink_gbps=uplinks, uplinks="shared")
    profiles: dict[Profile, Profile] = {}
    return replace(
        instance, cluster=cluster, jobs=tuple(_job(job, profiles) for job in instance.jobs)
    )


def _job(job: Job, known: dict[Profile, Profile]) -> Job:
    if gang(job) < 2 or job.profile.locality is None or job.profile.locality.cluster is None:
        return job
    own = job.profile
    if own not in known:
        spread = job.profile.locality.cluster / job.profile.locality.node
        duty = round(max(0.0, 1.0 - spread), 4)
        known[own] = replace(own, network_gbps=GANG_GBPS, network_duty=duty) if duty else own
    return replace(job, profile=known[own])
