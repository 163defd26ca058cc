"""Jobs that can never run: what they ask for that does not exist, and the nearest thing that
does."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..model.cluster import POWER_CAP, Node
from ..model.job import Job, Mode
from ..model.value import Table
from . import Span, gpu_type_rate, node_counts, rate
from .capacity import Capacity
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
    quota = table.quotas.get(job.tenant or "")
    uses = job.modes or job.resources or job.budgets or POWER_CAP in table.resources
    if not uses and (
        quota is None or (isinstance(job.gpus, int) and job.gpus <= table.rows[quota].capacity)
    ):
        return None
    return _beyond_shares(table, job, catalogue.options(job))


def _beyond_shares(table: Capacity, job: Job, fitting: tuple[Option, ...]) -> str | None:
    """Why quota, resources and budgets leave none of the options that fit the nodes."""
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
            loans = " with what it may borrow" if job.tenant in table.borrowers else ""
            return (
                f"it needs {_gpus(int(need))}, the quota of {job.tenant} is {row.capacity}{loans}"
            )
    return "each of its modes needs more of some resource, budget or quota than there is"


def _nothing_fits(catalogue: Catalogue, job: Job) -> str:
    """What the nodes lack; one demand is named where it alone, whatever the others, keeps the job
    from running."""
    cluster = catalogue.cluster
    if job.node_labels and catalogue.fits_somewhere(replace(job, node_labels=Table())):
        labels = ", ".join(f"{label} ({wanted})" for label, wanted in job.node_labels.items())
        return f"no node on which it would fit is as its node_labels say: {labels}"
    modes = base_modes(cluster, job)
    if modes and all(mode.gpus == 0 for mode in modes):
        return _no_host(catalogue, job, min(mode.cpus for mode in modes))
    if not cluster.gpu_types:
        return "it asks for GPUs, no node has any"
    on_gpus = [mode for mode in modes if mode.gpus]
    have = ", ".join(str(name or "GPUs of no named type") for name in cluster.gpu_types)
    there = [mode for mode in on_gpus if mode.gpu_type in cluster.gpu_types]
    if not there:
        wanted = ", ".join(sorted({str(mode.gpu_type) for mode in on_gpus}))
        return f"it asks for {wanted}, the cluster has {have}"
    if not job.modes and all(gpu_type_rate(job.profile, mode.gpu_type) == 0 for mode in there):
        return f"its profile has rates for {', '.join(job.profile.rate)}, the cluster has {have}"
    if job.max_nodes is not None and all(node_counts(job, mode.gpus) == () for mode in there):
        wanted = ", ".join([*dict.fromkeys(_gpus(mode.gpus) for mode in there)][:3])
        return f"{wanted} cannot be split equally over {_nodes(job)}"
    able = [mode for mode in there if _widest(job, mode) is not None]
    if not able:
        return "its profile gives it the rate 0 in every mode"
    types = dict.fromkeys(mode.gpu_type for mode in able)
    smallest = min(mode.gpus for mode in able)
    most = max(
        sum(
            shape.node.gpus * shape.count
            for shape in catalogue.shapes
            if shape.node.gpu_type == gpu_type
        )
        for gpu_type in types
    )
    if smallest > most:
        only = next(iter(types)) if len(types) == 1 and len(cluster.gpu_types) > 1 else None
        kind = only or "one type"
        return f"it needs {_gpus(smallest)} of {kind}, the cluster has at most {most}"
    if job.max_nodes is not None and catalogue.fits_somewhere(
        replace(job, min_nodes=1, max_nodes=None)
    ):
        largest = max(room_on(shape.node, job, mode) for mode in able for shape in catalogue.shapes)
        return (
            f"it needs {_gpus(smallest)} on {_nodes(job)}, one node has room for at most {largest}"
        )
    spread = _span(job, able)
    bare = _without(catalogue, *LIMITS, UPLINKS)
    if not bare.fits_somewhere(job):
        largest = max(bare.most_gpus(job, replace(mode, gpus=most))[spread] for mode in able)
        return (
            f"it makes progress{WITHIN[spread]} only and needs {_gpus(smallest)} there, the most "
            "GPUs"
            f"{WITHIN[spread]} are {largest}"
        )
    for limit in LIMITS:
        others = tuple(other for other in LIMITS if other != limit)
        if not _without(catalogue, *others, UPLINKS).fits_somewhere(job):
            return _short_of(catalogue, job, able, limit)
    if _without(catalogue, UPLINKS).fits_somewhere(job):
        return (
            f"a gang of {_gpus(smallest)} must span racks, whose uplinks are too slow for its "
            f"{job.profile.network_gbps:.12g} Gbit/s"
        )
    return _combined(catalogue, job, able)


def _no_host(catalogue: Catalogue, job: Job, cpus: int) -> str:
    """Why no node holds a job without GPUs."""
    memory = job.memory_gib
    if not catalogue.cluster.nodes:
        return "it asks for cores and memory, there is no node"
    nodes = [shape.node for shape in catalogue.shapes]
    cores = max(nodes, key=lambda node: _or_inf(node.cpus))
    if _or_inf(cores.cpus) < cpus:
        return f"it needs {cpus} cores on one node, the most are the {cores.cpus} of {cores.name}"
    largest = max(nodes, key=lambda node: _or_inf(node.memory_gib))
    if _or_inf(largest.memory_gib) < memory:
        return (
            f"it needs {memory:.12g} GiB of memory on one node, the most are the "
            f"{largest.memory_gib:.12g} of "
            f"{largest.name}"
        )
    nearest = max(
        (node for node in nodes if _or_inf(node.memory_gib) >= memory),
        key=lambda node: _or_inf(node.cpus),
    )
    return (
        f"no node has both the {cpus} cores and the {memory:.12g} GiB of memory it asks for, of "
        "those with the "
        f"memory {nearest.name} has most cores, {nearest.cpus}"
    )


def _short_of(catalogue: Catalogue, job: Job, able: list[Mode], limit: str) -> str:
    """The nodes have too little of one thing beside, or in, their GPUs."""
    types = {mode.gpu_type for mode in able}
    nodes = [
        shape.node for shape in catalogue.shapes if shape.node.gpus and shape.node.gpu_type in types
    ]
    nearest: Node = max(nodes, key=lambda node: _or_inf(getattr(node, limit)))
    most = _or_inf(getattr(nearest, limit))
    if limit == "gpu_memory_gib":
        need, unit = job.profile.gpu_memory_gib, "GiB of GPU memory"
        if need > most:
            return f"it needs {need:.12g} {unit}, the largest GPU has {most:.12g}"
        each = f"{need:.12g} {unit} each"
    elif limit == "cpus":
        need, unit = min(mode.cpus_per_gpu for mode in able), "cores"
        each = f"{need} cores beside each"
    else:
        need, unit = job.profile.memory_gib_per_gpu, "GiB of memory"
        each = f"{need:.12g} GiB of memory beside each"
    if need > most:
        return (
            f"it needs {need:.12g} {unit} beside each GPU, the most on one node are the "
            f"{most:.12g} of "
            f"{nearest.name}"
        )
    spread, smallest = _span(job, able), min(mode.gpus for mode in able)
    bare = _without(catalogue, *(other for other in LIMITS if other != limit), UPLINKS)
    have = max(bare.most_gpus(job, mode)[spread] for mode in able if mode.gpus == smallest)
    return f"it needs {_gpus(smallest)}{WITHIN[spread]} with {each}, there are at most {have}"


def _combined(catalogue: Catalogue, job: Job, able: list[Mode]) -> str:
    """No one demand is to blame: all of them, and the node that comes nearest."""
    profile = job.profile
    smallest, cores = min(mode.gpus for mode in able), min(mode.cpus_per_gpu for mode in able)
    needs = [
        text
        for need, text in (
            (profile.gpu_memory_gib, f"{profile.gpu_memory_gib:.12g} GiB of GPU memory"),
            (cores, f"{cores} cores"),
            (profile.memory_gib_per_gpu, f"{profile.memory_gib_per_gpu:.12g} GiB of memory"),
        )
        if need
    ]
    have = max(catalogue.most_gpus(job, mode)[_span(job, able)] for mode in able)
    nearest = max(
        (shape.node for shape in catalogue.shapes),
        key=lambda node: max(room_on(node, job, m) for m in able),
    )
    room = max(room_on(nearest, job, mode) for mode in able)
    each = " and ".join(needs)
    says = f"it needs {_gpus(smallest)}{WITHIN[_span(job, able)]}" + (
        f" with {each} for each" if each else ""
    )
    if not have:
        return f"{says}, no node has that for one GPU"
    return f"{says}, there are at most {have}, and at most {room} on one node, {nearest.name}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' if count != 1 else ''}"


def _nodes(job: Job) -> str:
    """On how many nodes it may be."""
    if job.min_nodes == job.max_nodes:
        return "one node" if job.max_nodes == 1 else f"{job.max_nodes} nodes"
    return f"{job.min_nodes} to {job.max_nodes} nodes"


def _widest(job: Job, mode: Mode) -> Span | None:
    """The widest spread over which a job makes progress in a mode."""
    able = (
        WIDEST_FIRST if job.max_nodes is None else spreads(mode.gpus, node_counts(job, mode.gpus))
    )
    return next((spread for spread in able if rate(job, mode, mode.gpu_type, spread) > 0), None)


def _span(job: Job, modes: Iterable[Mode]) -> Span:
    found = {_widest(job, mode) for mode in modes}
    return next(spread for spread in WIDEST_FIRST if spread in found)


def _without(catalogue: Catalogue, *fields: str) -> Catalogue:
    """Return the catalogue of the cluster without the limits of these names."""

    def make() -> Catalogue:
        cluster = catalogue.cluster
        free: Any = {field: None for field in fields if field in LIMITS}
        nodes = tuple(replace(node, **free) for node in cluster.nodes) if free else cluster.nodes
        uplinks = {} if UPLINKS in fields else cluster.rack_uplink_gbps
        return Catalogue(replace(cluster, nodes=nodes, rack_uplink_gbps=uplinks))

    return catalogue.once(("without", fields), make)


def _or_inf(amount: float | None) -> float:
    return float("inf") if amount is None else amount
