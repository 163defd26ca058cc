"""Jobs that can never run: what they ask for that does not exist, and the nearest thing that
does."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..model import POWER_CAP, Job, Mode, Node
from ..model.value import Table
from . import (
    Span,
    gpu_memory_gib,
    gpu_memory_levels,
    gpu_type_rate,
    memory_gib_per_gpu,
    node_counts,
    rate,
)
from .capacity import Capacity, or_inf
from .catalogue import Catalogue
from .modes import WIDEST_FIRST, Option, base_modes, demands, room_on, spreads

LIMITS = ("gpu_memory_gib", "cpus", "memory_gib")
"""Fields of a node that may keep a job from GPUs that are there."""
UPLINKS = "rack_uplink_gbps"
WITHIN: dict[Span, str] = {"node": " on one node", "rack": " in one rack", "cluster": ""}


def why_never(catalogue: Catalogue, job: Job) -> str | None:
    """Return why `job` could not run even if it had the whole cluster to itself, in one clause, or
    None where it could.

    Nothing that runs now, no release date and no predecessor is looked at. Jobs of equal demands
    share the work.
    """
    key = "why never", demands(job), job.tenant, tuple(job.profile.rate)
    return catalogue.once(key, lambda: _why_never(catalogue, job))


def _why_never(catalogue: Catalogue, job: Job) -> str | None:
    if not catalogue.fits_somewhere(job):
        return _nothing_fits(catalogue, job)
    table = catalogue.capacity
    most = min((table.rows[row].capacity for row in table.quotas_of(job)), default=None)
    uses = job.modes or job.resources or job.budgets or POWER_CAP in table.resources
    if not uses and (most is None or (isinstance(job.gpus, int) and job.gpus <= most)):
        return None
    return _beyond_shares(table, job, catalogue.options(job))


def _beyond_shares(table: Capacity, job: Job, fitting: tuple[Option, ...]) -> str | None:
    """Return why quota, resources and budgets leave none of the options that fit the nodes."""
    if any(table.allows(job, option.mode) for option in fitting):
        return None
    demands = [
        dict([*table.together(job, option.mode), *table.used_up(option.mode)]) for option in fitting
    ]
    for kind in ("quota", "resource", "budget"):
        for number, row in enumerate(table.rows[: table.shared]):
            need = min(demand.get(number, 0.0) for demand in demands)
            if row.kind != kind or need <= row.capacity:
                continue
            if kind != "quota":
                return f"it needs {need:.12g} of {row.of}, there is {row.capacity:.12g}"
            loans = " with what it may borrow" if row.of in table.borrowers else ""
            whose = "all quotas together are" if row.of is None else f"the quota of {row.of} is"
            return f"it needs {_gpus(int(need))}, {whose} {row.capacity}{loans}"
    return "each of its modes needs more of some resource, budget or quota than there is"


def _nothing_fits(catalogue: Catalogue, job: Job) -> str:
    """Return what the nodes lack; one demand is named where it alone, whatever the others, keeps
    the job from running."""
    if job.node_labels and catalogue.fits_somewhere(replace(job, node_labels=Table())):
        labels = ", ".join(f"{label} ({wanted})" for label, wanted in job.node_labels.items())
        return f"no node on which it would fit is as its node_labels say: {labels}"
    modes = base_modes(catalogue.cluster, job)
    if modes and all(mode.gpus == 0 for mode in modes):
        return _no_host(catalogue, job, min(mode.cpus for mode in modes))
    types = catalogue.cluster.gpu_types
    on_gpus = [mode for mode in modes if mode.gpus]
    there = [mode for mode in on_gpus if mode.gpu_type in types]
    able = [mode for mode in there if _widest(job, mode) is not None]
    if not able:
        return _no_mode(job, types, on_gpus, there)
    return _too_large(catalogue, job, able) or _limited(catalogue, job, able)


def _no_mode(
    job: Job, types: tuple[str | None, ...], on_gpus: list[Mode], there: list[Mode]
) -> str:
    """Return why none of the modes on GPUs makes progress on those that are there."""
    if not types:
        return "it asks for GPUs, no node has any"
    have = ", ".join(str(name or "GPUs of no named type") for name in types)
    if not there:
        wanted = ", ".join(sorted({str(mode.gpu_type) for mode in on_gpus}))
        return f"it asks for {wanted}, the cluster has {have}"
    if not job.modes and all(gpu_type_rate(job.profile, mode.gpu_type) == 0 for mode in there):
        return f"its profile has rates for {', '.join(job.profile.rate)}, the cluster has {have}"
    if job.max_nodes is not None and all(node_counts(job, mode.gpus) == () for mode in there):
        wanted = ", ".join([*dict.fromkeys(_gpus(mode.gpus) for mode in there)][:3])
        return f"{wanted} cannot be split equally over {_nodes(job)}"
    return "its profile gives it the rate 0 in every mode"


def _too_large(catalogue: Catalogue, job: Job, able: list[Mode]) -> str | None:
    """Return why the smallest gang is larger than what there is of GPUs of one type, or where it
    makes progress; None where it is not."""
    types = dict.fromkeys(mode.gpu_type for mode in able)
    smallest = min(mode.gpus for mode in able)
    most = max(
        sum(own.node.gpus * own.count for own in catalogue.shapes if own.node.gpu_type == gpu_type)
        for gpu_type in types
    )
    if smallest > most:
        only = (
            next(iter(types)) if len(types) == 1 and len(catalogue.cluster.gpu_types) > 1 else None
        )
        kind = only or "one type"
        return f"it needs {_gpus(smallest)} of {kind}, the cluster has at most {most}"
    if job.max_nodes is not None and catalogue.fits_somewhere(
        replace(job, min_nodes=1, max_nodes=None)
    ):
        largest = max(room_on(shape.node, job, mode) for mode in able for shape in catalogue.shapes)
        needs = f"it needs {_gpus(smallest)} on {_nodes(job)}"
        return f"{needs}, one node has room for at most {largest}"
    bare = _without(catalogue, *LIMITS, UPLINKS)
    if bare.fits_somewhere(job):
        return None
    spread = _span(job, able)
    largest = max(bare.most_gpus(job, replace(mode, gpus=most))[spread] for mode in able)
    needs = f"it makes progress{WITHIN[spread]} only and needs {_gpus(smallest)} there"
    return f"{needs}, the most GPUs{WITHIN[spread]} are {largest}"


def _limited(catalogue: Catalogue, job: Job, able: list[Mode]) -> str:
    """Return which limits of nodes or uplinks keep a gang from GPUs of which there are enough."""
    for limit in LIMITS:
        others = tuple(other for other in LIMITS if other != limit)
        if not _without(catalogue, *others, UPLINKS).fits_somewhere(job):
            return _short_of(catalogue, job, able, limit)
    if not _without(catalogue, UPLINKS).fits_somewhere(job):
        return _combined(catalogue, job, able)
    gang = f"a gang of {_gpus(min(mode.gpus for mode in able))}"
    gbps = f"{job.profile.network_gbps:.12g} Gbit/s"
    return f"{gang} must span racks, whose uplinks are too slow for its {gbps}"


def _no_host(catalogue: Catalogue, job: Job, cpus: int) -> str:
    """Return why no node holds a job without GPUs."""
    nodes = [shape.node for shape in catalogue.shapes]
    if not nodes:
        return "it asks for cores and memory, there is no node"
    gib = f"{job.memory_gib:.12g} GiB of memory"
    for limit, need, needs in (
        ("cpus", cpus, f"{cpus} cores"),
        ("memory_gib", job.memory_gib, gib),
    ):
        largest, most = _largest(nodes, limit)
        if most < need:
            return f"it needs {needs} on one node, the most are the {most:.12g} of {largest.name}"
    nearest, _ = _largest(
        [node for node in nodes if or_inf(node.memory_gib) >= job.memory_gib], "cpus"
    )
    return (
        f"no node has both the {cpus} cores and the {gib} it asks for, of those with the memory "
        f"{nearest.name} has most cores, {nearest.cpus}"
    )


def _largest(nodes: Iterable[Node], limit: str) -> tuple[Node, float]:
    """Return the node with most of something, and how much that is."""
    largest = max(nodes, key=lambda node: or_inf(getattr(node, limit)))
    return largest, or_inf(getattr(largest, limit))


def _needs(job: Job, able: list[Mode]) -> dict[str, tuple[float, str]]:
    """Return what each GPU needs at least of what `LIMITS` limits, with its unit."""
    smallest = replace(able[0], gpu_memory_gib=None if job.modes else gpu_memory_levels(job)[-1])
    return {
        "gpu_memory_gib": (gpu_memory_gib(job, smallest), "GiB of GPU memory"),
        "cpus": (min(mode.cpus_per_gpu for mode in able), "cores"),
        "memory_gib": (min(memory_gib_per_gpu(job, mode) for mode in able), "GiB of memory"),
    }


def _short_of(catalogue: Catalogue, job: Job, able: list[Mode], limit: str) -> str:
    """Return in which way the nodes have too little of one thing beside, or in, their GPUs."""
    types = {mode.gpu_type for mode in able}
    nodes = (shape.node for shape in catalogue.shapes if shape.node.gpus)
    nearest, most = _largest([node for node in nodes if node.gpu_type in types], limit)
    (need, unit), is_inside = _needs(job, able)[limit], limit == "gpu_memory_gib"
    if need > most:
        if is_inside:
            return f"it needs {need:.12g} {unit}, the largest GPU has {most:.12g}"
        needs = f"it needs {need:.12g} {unit} beside each GPU"
        return f"{needs}, the most on one node are the {most:.12g} of {nearest.name}"
    each = f"{need:.12g} {unit} {'each' if is_inside else 'beside each'}"
    spread, smallest = _span(job, able), min(mode.gpus for mode in able)
    bare = _without(catalogue, *(other for other in LIMITS if other != limit), UPLINKS)
    have = max(bare.most_gpus(job, mode)[spread] for mode in able if mode.gpus == smallest)
    return f"it needs {_gpus(smallest)}{WITHIN[spread]} with {each}, there are at most {have}"


def _combined(catalogue: Catalogue, job: Job, able: list[Mode]) -> str:
    """Return what all demands together ask for, as none alone is to blame, and the node that comes
    nearest."""
    each = " and ".join(f"{need:.12g} {unit}" for need, unit in _needs(job, able).values() if need)
    spread, smallest = _span(job, able), min(mode.gpus for mode in able)
    says = f"it needs {_gpus(smallest)}{WITHIN[spread]}" + (
        f" with {each} for each" if each else ""
    )
    have = max(catalogue.most_gpus(job, mode)[spread] for mode in able)
    if not have:
        return f"{says}, no node has that for one GPU"
    room = {
        shape.node.name: max(room_on(shape.node, job, mode) for mode in able)
        for shape in catalogue.shapes
    }
    nearest = max(room, key=lambda name: room[name])
    return f"{says}, there are at most {have}, and at most {room[nearest]} on one node, {nearest}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' if count != 1 else ''}"


def _nodes(job: Job) -> str:
    """Return on how many nodes it may be."""
    if job.min_nodes == job.max_nodes:
        return "one node" if job.max_nodes == 1 else f"{job.max_nodes} nodes"
    return f"{job.min_nodes} to {job.max_nodes} nodes"


def _widest(job: Job, mode: Mode) -> Span | None:
    """Return the widest spread over which a job makes progress in a mode."""
    able = (
        WIDEST_FIRST if job.max_nodes is None else spreads(mode.gpus, node_counts(job, mode.gpus))
    )
    return next((spread for spread in able if rate(job, mode, mode.gpu_type, spread) > 0), None)


def _span(job: Job, modes: Iterable[Mode]) -> Span:
    spans = {_widest(job, mode) for mode in modes}
    return next(spread for spread in WIDEST_FIRST if spread in spans)


def _without(catalogue: Catalogue, *fields: str) -> Catalogue:
    """Return the catalogue of the cluster without the limits of these names."""

    def make() -> Catalogue:
        cluster = catalogue.cluster
        free: Any = {field: None for field in fields if field in LIMITS}
        nodes = tuple(replace(node, **free) for node in cluster.nodes) if free else cluster.nodes
        uplinks = {} if UPLINKS in fields else cluster.rack_uplink_gbps
        return Catalogue(replace(cluster, nodes=nodes, rack_uplink_gbps=uplinks))

    return catalogue.once(("without", fields), make)
