"""One segment by itself: its times, a mode the job has, and a placement that fits the mode."""

import math
from collections.abc import Iterator, Mapping

from ..model import Elastic, Instance, Job, Mode, Node, Placement, Running, Segment, Slot
from ..physics import (
    TIME_TOLERANCE_S,
    core_levels,
    cpus,
    fits_type,
    gang_sizes,
    gpu_memory_gib,
    placed_rate,
    placed_resources,
)
from .violation import Violation, broken


def same_size(a: Mode, b: Mode) -> bool:
    """Return whether two modes hold equally many GPUs and cores, at the same clock and
    with as much memory."""
    return a.size == b.size


def same_hold(a: Mode, b: Mode) -> bool:
    """Return whether going from one mode to the other changes nothing but the sharing partner."""
    return (
        same_size(a, b)
        and a.duration_s == b.duration_s
        and a.resources == b.resources
        and a.budgets == b.budgets
    )


def same_stay(job: Job, a: Mode, on_a: Placement, b: Mode, on_b: Placement) -> bool:
    """Return whether a job that goes from one mode and placement to the other without a pause is
    not started anew: only the sharing partner changes, or cores that it changes in place."""
    if not job.cores_in_place:
        return same_place(on_a, on_b) and same_hold(a, b)
    gpus_a, gpus_b = (
        tuple(Slot(node=slot.node, gpus=slot.gpus) for slot in on) for on in (on_a, on_b)
    )
    return same_place(gpus_a, gpus_b) and same_hold(a.without_cores, b.without_cores)


def same_place(a: Placement, b: Placement) -> bool:
    """Return whether two placements are equal, in whatever order they name their nodes."""
    return a == b or (len(a) == len(b) and set(a) == set(b))


def running_faults(instance: Instance, entry: Running) -> list[str]:
    """Return what is wrong with the mode and placement a running job is said to have; empty when
    nothing is."""
    job = instance.job[entry.job]
    start_s = max(instance.now_s, job.submit_s)
    now = Segment(start_s=start_s, end_s=math.inf, mode=entry.mode, placement=entry.placement)
    faults = [
        violation.message for violation in check_segment(instance, job, now, -math.inf, kept=True)
    ]
    if not faults and placed_rate(instance, job, entry.mode, entry.placement) <= 0:
        faults.append(f"job {job.id} makes no progress where it runs")
    return faults


def check_segment(
    instance: Instance, job: Job, segment: Segment, before_s: float, kept: bool
) -> Iterator[Violation]:
    """Check everything about a segment whose predecessor ended at `before_s`, except how much work
    it does.

    `kept` says that the job has run like this since before now.
    """
    start_s = segment.start_s
    at = f"at {start_s:.12g} s"
    if segment.end_s <= start_s:
        says = f"has a segment {at} that does not end after it starts"
        yield broken("time", job.id, says, start_s)
    if start_s < before_s - TIME_TOLERANCE_S:
        says = f"starts a segment {at} before the last one ended at {before_s:.12g} s"
        yield broken("overlap", job.id, says, start_s)
    if start_s < instance.now_s - TIME_TOLERANCE_S:
        says = f"runs {at}, before now ({instance.now_s:.12g} s)"
        yield broken("past", job.id, says, start_s)
    if start_s < job.submit_s - TIME_TOLERANCE_S:
        says = f"runs {at}, before its submission at {job.submit_s:.12g} s"
        yield broken("release date", job.id, says, start_s)
    wrong = _wrong_mode(instance, job, segment, kept)
    if wrong is not None:
        yield broken("mode", job.id, f"{at}: {wrong}", start_s)
        return
    yield from _placement(instance, job, segment)


def _wrong_mode(instance: Instance, job: Job, segment: Segment, kept: bool) -> str | None:
    """Return why a mode is none of the job's, or None; a kept one need not be one in which it could
    be started."""
    mode = segment.mode
    if job.modes:
        if any(_is_listed(job, listed, mode) for listed in job.modes):
            return None
        return "its mode is none of those it lists"
    if mode.duration_s is not None:
        return "its mode has a duration of its own, but the job lists no modes"
    if isinstance(job.gpus, Elastic):
        if not job.gpus.min <= mode.gpus <= job.gpus.max:
            return f"it runs on {mode.gpus} GPUs, its gang is {job.gpus.min} to {job.gpus.max}"
        if not kept and mode.gpus not in gang_sizes(job):
            return f"it runs on {mode.gpus} GPUs, it may be started on {', '.join(map(str, gang_sizes(job)))}"  # noqa: E501
    elif mode.gpus != job.gpus:
        return f"it runs on {mode.gpus} GPUs, its gang is {job.gpus}"
    if mode.gpus and not kept and mode.cpus_per_gpu not in core_levels(job):
        return f"it takes {mode.cpus_per_gpu} cores per GPU, measured are {', '.join(map(str, core_levels(job)))}"  # noqa: E501
    if mode.clock_mhz is not None and not (mode.gpus and mode.clock_mhz in job.profile.clocks):
        measured = ", ".join(map(str, sorted(job.profile.clocks))) if mode.gpus else ""
        return f"it runs at a clock of {mode.clock_mhz} MHz, measured are {measured or 'none'}"
    for what, gib, known in (
        ("GiB of memory beside each GPU", mode.memory_gib_per_gpu, job.profile.memory_rates),
        ("GiB of each GPU", mode.gpu_memory_gib, job.profile.gpu_memory_rates),
    ):
        if gib is not None and not (mode.gpus and gib in known):
            measured = ", ".join(f"{own:.12g}" for own in sorted(known)) if mode.gpus else ""
            return f"it takes {gib:.12g} {what}, measured below what it asks for are {measured or 'none'}"  # noqa: E501
    if mode.gpus == 0 and mode.cpus != job.cpus:
        return f"it holds {mode.cpus} cores, it asks for {job.cpus}"
    held = placed_resources(instance.cluster, job, mode, segment.placement)
    if mode.resources != held:
        return f"it holds resources {mode.resources}, it asks for {held}"
    if mode.budgets != job.budgets:
        return f"it uses budgets {mode.budgets}, it asks for {job.budgets}"
    return None


def _is_listed(job: Job, listed: Mode, mode: Mode) -> bool:
    """Return whether `mode` is `listed` plus the job's own resources and budgets, on a type that
    `listed` allows."""

    def merged(own: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
        return {name: own.get(name, 0.0) + more.get(name, 0.0) for name in {**own, **more}}

    return (
        listed.gpu_type in (None, mode.gpu_type)
        and listed.duration_s == mode.duration_s
        and mode.clock_mhz is mode.memory_gib_per_gpu is mode.gpu_memory_gib is None
        and same_size(listed, mode)
        and merged(job.resources, listed.resources) == mode.resources
        and merged(job.budgets, listed.budgets) == mode.budgets
    )


def _placement(instance: Instance, job: Job, segment: Segment) -> Iterator[Violation]:
    mode, placement, node = segment.mode, segment.placement, instance.cluster.node
    names = [slot.node for slot in placement]
    on, first = ", ".join(names) or "no node", names[0] if names else None

    def wrong(rule: str, says: str) -> Violation:
        at_s = segment.start_s
        return broken(rule, job.id, f"at {at_s:.12g} s {says}", at_s, first)

    if len(set(names)) < len(names):
        yield wrong("placement", f"names a node twice ({on})")
        return
    needs_node = mode.gpus > 0 or mode.cpus > 0 or job.memory_gib > 0
    if needs_node != bool(names) or (mode.gpus == 0 and len(names) > 1):
        what = "one node" if mode.gpus == 0 and needs_node else "nodes" if needs_node else "no node"
        yield wrong("placement", f"is on {on}, it needs {what}")
        return
    placed = sum(slot.gpus for slot in placement)
    if placed != mode.gpus:
        yield wrong("gang", f"holds {placed} GPUs on {on}, its gang is {mode.gpus}")
    if mode.gpus and mode.gpu_type is not None and len({node[name].gpu_type for name in names}) > 1:
        yield wrong("gpu type", f"mixes GPU types on {on}, its mode is for {mode.gpu_type}")
        return
    if mode.gpus and job.max_nodes is not None:
        if not job.min_nodes <= len(names) <= job.max_nodes:
            may = f"it may be on {job.min_nodes} to {job.max_nodes}"
            yield wrong("nodes", f"is on {len(names)} nodes ({on}), {may}")
        if len({slot.gpus for slot in placement}) > 1:
            takes = "it takes equally many on each"
            yield wrong("nodes", f"has different numbers of GPUs on its nodes ({on}), {takes}")
    for slot in placement:
        yield from _wrong_on(node[slot.node], job, segment, slot)


def _wrong_on(node: Node, job: Job, segment: Segment, slot: Slot) -> Iterator[Violation]:
    """Check what a job holds on one node."""
    mode, at_s = segment.mode, segment.start_s

    def wrong(rule: str, says: str) -> Violation:
        return broken(rule, job.id, f"at {at_s:.12g} s {says}", at_s, node.name)

    if mode.gpus and slot.gpus < 1:
        yield wrong("placement", f"is on node {node.name} without a GPU there")
    wanted = cpus(mode, slot.gpus)
    if slot.cpus != wanted:
        holds = f"holds {slot.cpus} cores on node {node.name}, its mode takes {wanted}"
        yield wrong("cores", holds)
    if not fits_type(job, mode, node):
        need, have = gpu_memory_gib(job, mode), node.gpu_memory_gib
        if have is not None and need > have:
            needs = f"needs {need:.12g} GiB of each GPU"
            yield wrong("GPU memory", f"{needs}, those of node {node.name} have {have:.12g}")
        else:
            yield wrong("gpu type", f"cannot run its mode on the GPUs of node {node.name}")
    for label, of_node in job.node_labels.items():
        if (label in node.labels) != (of_node == "required"):
            says = f"is on node {node.name}, for which label {label} is {of_node}"
            yield wrong("node label", says)
