"""Running a job on GPUs of several types: no list of options has that, whoever wants it builds it
for a placement."""

from collections.abc import Mapping
from dataclasses import replace

from ..model import Cluster, Mode, Placement, Slot
from ..physics import cpus, gang_sizes, placed_rate, placed_resources, span
from ..physics.capacity import serves
from ..physics.modes import Option
from .view import ClusterView, PolicyError


def mixed_option(
    view: ClusterView, job_id: str, like: Option, gpus_on: Mapping[str, int]
) -> tuple[Option, Placement]:
    """Return the way to run a job on so many GPUs of each node, whatever their types, and the
    placement, for which alone it holds: `ClusterView` and `World.start` take both as any other
    option.

    `like` is one of the job's options, which has the cores of each GPU and the clock, of a job that
    lists its modes also the duration. Raises PolicyError where the job may not run on as many GPUs
    or not on these nodes.
    """
    job, cluster = view.job(job_id), view.cluster
    gpus = sum(gpus_on.values())
    mode = replace(like.mode, gpu_type=None, gpus=gpus)
    if not may_mix(view, job_id, like) or gpus not in (
        (like.mode.gpus,) if job.modes else gang_sizes(job)
    ):
        raise PolicyError(f"job {job_id} has no mode with {gpus} GPUs of any type")
    for name in gpus_on:
        if not serves(cluster.node[name], job, mode):
            raise PolicyError(f"job {job_id} cannot run on the GPUs of node {name}")
    placement = placement_on(cluster, gpus_on, mode)
    types = {cluster.node[name].gpu_type for name in gpus_on}
    mode = replace(mode, gpu_type=None if len(types) > 1 else types.pop())
    if not job.modes:
        mode = replace(mode, resources=placed_resources(cluster, job, mode, placement))
    speed = placed_rate(view.instance, job, mode, placement)
    return Option(
        mode=mode, spread=span(cluster, placement), rate=speed, needs_node=True
    ), placement


def placement_on(cluster: Cluster, gpus_on: Mapping[str, int], mode: Mode) -> Placement:
    """Return a placement of so many GPUs of each node, with the cores that `mode` takes beside
    them."""
    return tuple(
        Slot(node=name, gpus=gpus_on[name], cpus=cpus(mode, gpus_on[name]))
        for name in sorted(gpus_on, key=cluster.node_order.__getitem__)
    )


def may_mix(view: ClusterView, job_id: str, like: Option) -> bool:
    """Return whether the job may run like that on GPUs of any type: not where it lists its modes,
    and for one type only."""
    mode, listed = like.mode, view.job(job_id).modes
    return mode.gpus > 0 and (
        not listed or any(_is_of(listed_mode, mode) for listed_mode in listed)
    )


def _is_of(listed: Mode, mode: Mode) -> bool:
    return (
        listed.gpu_type is None
        and listed.duration_s == mode.duration_s
        and listed.size == mode.size
    )
