"""Rack uplinks that gangs share, for generated workloads."""

from dataclasses import replace
from functools import cache

from ...model import Instance, Profile, gang
from ..profiles import with_profiles
from ..profiles.attach import spread_rate
from ..profiles.measured import family_of

GANG_GBPS = 25.0
"""What a gang over several racks sends through each uplink while it communicates: the ring enters
and leaves a rack through one network interface, however many GPUs it has there; 25 Gbit/s is a
usual one."""


def with_shared_uplinks(instance: Instance, gbps: float) -> Instance:
    """Return the instance with uplinks of `gbps` Gbit/s from every rack, shared by all gangs that
    cross them.

    What a gang loses when it is spread over racks is taken for the time that it communicates: its
    `network_duty` is the share of the step by which it is then longer. Of one that is always spread
    over nodes, so that its own rate has that in it, it is what was measured of its family. Gangs
    that lose nothing, or of which that is not known, send nothing.
    """
    uplinks = {node.rack: gbps for node in instance.cluster.nodes if node.rack is not None}
    cluster = replace(instance.cluster, rack_uplink_gbps=uplinks, uplinks="shared")

    @cache
    def changed(own: Profile, gpus: int) -> Profile:
        duty = round(max(0.0, 1.0 - _spread(own, gpus)), 4) if gpus > 1 else 0.0
        return replace(own, network_gbps=GANG_GBPS, network_duty=duty) if duty else own

    sending = with_profiles(instance, lambda job: changed(job.profile, gang(job)))
    return replace(sending, cluster=cluster)


def _spread(profile: Profile, gpus: int) -> float:
    """Return the rate of a gang over racks relative to one node; 1 where that is not known."""
    locality = profile.locality
    if locality is not None and locality.cluster is not None:
        return locality.cluster / locality.node
    family = family_of(profile.name)
    return 1.0 if family is None else spread_rate(family, gpus)
