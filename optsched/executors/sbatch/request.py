"""What a job of Slurm's asks for, as planners see it; and what they cannot see."""

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...model import Job, Node, Profile
from ..base import Entry, Request
from ..slurm.nodes import number, words
from ..slurm.others import MIB_PER_GIB
from ..slurm.rules import NONE, Rules
from .hints import Hints, hints_of
from .jobs_json import HeldJob

GPUS = re.compile(r"(?:gres[:/])?gpu(?::([A-Za-z_][^:=]*))?(?:[:=](\d+))?")
NO_GRES = re.compile(r"(cpu|mem|node|billing)[=:]")
"""Cores and memory, which later releases list among these."""
LEAST_OF_LIMIT = 0.1
"""Of its time limit, what a job is at least believed to take."""
CANNOT = {
    "features": "it asks for features of nodes",
    "licenses": "it asks for licences",
    "excluded_nodes": "it excludes nodes",
    "burst_buffer": "it asks for a burst buffer",
    "resv_name": "it is for a reservation",
    "tres_per_socket": "it asks for GPUs by socket",
}
"""Fields of Slurm's that a plan does not keep."""


class UnplannableError(Exception):
    """No order can start such a job; says why in a clause."""


def request_of(job: HeldJob, nodes: Sequence[Node], rules: Rules = NONE) -> Request:
    """Return what `job` asks for, on a cluster of `nodes`, by the `rules` of the site. Raises
    UnplannableError."""
    entry = job.entry
    hints = hints_of(f"{entry.get('comment') or ''} {entry.get('extra') or ''}")
    command = str(entry.get("command") or "")
    limit_min = number(entry.get("time_limit"))
    limit_s = limit_min * 60.0 if limit_min else None
    batch = entry.get("batch_flag") is not False
    stoppable, unsaved = rules.may_be_stopped(entry, hints.preempt)
    stated = _job(job, nodes, hints, command or str(entry.get("name") or ""))
    return Request(
        job=replace(
            stated,
            duration_s=_believed_s(hints.duration_s, limit_s),
            weight=rules.weight(entry),
            min_run_s=rules.min_run_s,
            max_preemptions=rules.max_preemptions,
            # what may not be requeued, or has somebody at its terminal, is not to be stopped
            preemptible=batch and bool(entry.get("requeue")) and stoppable,
        ),
        argv=(
            "sbatch" if batch else "salloc",
            *(_split(command) or [str(entry.get("name") or "")]),
        ),
        directory=str(entry.get("current_working_directory") or "/"),
        user_id=job.uid,
        account=str(entry.get("account") or "") or None,
        qos=str(entry.get("qos") or "") or None,
        limit_s=limit_s,
        saves=True if hints.save_s is not None else None,
        preempt_unsaved=unsaved,
        grace_s=hints.grace_s,
        total_steps=hints.steps,
        asked_weight=hints.weight,
        faults=hints.faults,
    )


def _believed_s(hint_s: float | None, limit_s: float | None) -> float | None:
    """Return what is believed of a run time that somebody hopes for: not more than the time limit,
    which ends it, and not less than a part of that, so that who wants to be believed to be short
    says so by a limit."""
    if hint_s is None or limit_s is None:
        return hint_s
    return min(limit_s, max(LEAST_OF_LIMIT * limit_s, hint_s))


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _check_plannable(held: HeldJob) -> None:
    """Raise UnplannableError where it asks for what a plan does not keep."""
    entry = held.entry
    cannot = {
        **{why: entry.get(field) for field, why in CANNOT.items()},
        "it is heterogeneous": number(entry.get("het_job_id")),
        "it names several partitions": "," in str(entry.get("partition") or ""),
        "it names its nodes": entry.get("required_nodes") and held.key is None,
    }
    for why, is_so in cannot.items():
        if is_so:
            raise UnplannableError(why)


def _job(held: HeldJob, nodes: Sequence[Node], hints: Hints, command: str) -> Job:
    _check_plannable(held)
    entry = held.entry
    common: dict[str, Any] = {
        "id": held.target,
        "user": str(entry.get("user_name") or held.uid),
        "command": command[:1000],
    }
    profile = Profile(
        checkpoint_s=hints.save_s or 0.0,
        restore_s=hints.restore_s or 0.0,
        startup_s=hints.start_s or 0.0,
    )
    count = node_count(held)
    gpu_type, gpus = gpus_per_node(entry, count)
    cpus = _cpus(entry, count)
    memory_gib = (stated_memory_mib(entry, gpus, count) or 0) / MIB_PER_GIB
    if "NONE" in words(entry.get("shared") or ""):  # it has its nodes for itself
        gpus, kinds = _whole_nodes(gpu_type, gpus, nodes)
        per_gpu = max(1, math.ceil(min((node.cpus or 0 for node in kinds), default=0) / gpus))
        rates = {node.gpu_type: 1.0 for node in kinds if node.gpu_type is not None}
    elif not gpus:
        if count > 1:
            raise UnplannableError("it needs several nodes without GPUs")
        return Job(gpus=0, cpus=cpus, memory_gib=memory_gib, profile=profile, **common)
    else:
        if nodes and not any(_has(node, gpu_type, gpus) for node in nodes):
            raise _no_node(gpu_type, gpus)
        per_gpu = number_per_gpu(entry.get("cpus_per_tres")) or math.ceil(cpus / gpus)
        rates = {} if gpu_type is None else {gpu_type: 1.0}
    profile = replace(
        profile, rate=rates, cpus_per_gpu={per_gpu: 1.0}, memory_gib_per_gpu=memory_gib / gpus
    )
    return Job(gpus=count * gpus, min_nodes=count, max_nodes=count, profile=profile, **common)


def _cpus(entry: Entry, count: int) -> int:
    """Return the cores on each of its `count` nodes."""
    return math.ceil((number(entry.get("cpus")) or 1) / count)


def _whole_nodes(gpu_type: str | None, gpus: int, nodes: Sequence[Node]) -> tuple[int, list[Node]]:
    """Return how many GPUs each node has that an exclusive job gets as a whole, and those nodes:
    the smallest ones that will do. Raises UnplannableError."""
    fit = [node for node in nodes if _has(node, gpu_type, max(1, gpus))]
    if not fit:
        raise _no_node(gpu_type, max(1, gpus))
    size = min(node.gpus for node in fit)
    other_sizes = {node.gpu_type for node in nodes if node.gpus not in (0, size)}
    alike = [node for node in fit if node.gpus == size and node.gpu_type not in other_sizes]
    if not alike:
        raise UnplannableError(
            "it needs whole nodes, and those with such GPUs have different numbers of them"
        )
    return size, alike


def _has(node: Node, gpu_type: str | None, gpus: int) -> bool:
    return node.gpus >= gpus and gpu_type in (None, node.gpu_type)


def _no_node(gpu_type: str | None, gpus: int) -> UnplannableError:
    return UnplannableError(
        f"no node has {gpus} GPUs{'' if gpu_type is None else f' of type {gpu_type}'}"
    )


def node_count(job: HeldJob) -> int:
    """Return nodes that it gets: the fewest that it asks for. (`node_count` of one that waits is an
    estimate.)"""
    entry = job.entry
    asked = re.search(r"(?:^|,)node=(\d+)", str(entry.get("tres_req_str") or ""))
    count = int(asked[1]) if asked else number(entry.get("node_count")) or 1
    each = number(entry.get("tasks_per_node"))
    return max(1, count, math.ceil((number(entry.get("tasks")) or 1) / each) if each else 1)


def gpus_per_node(entry: Entry, count: int) -> tuple[str | None, int]:
    """Return type and number of the GPUs on each of its `count` nodes. Raises UnplannableError."""
    tasks = number(entry.get("tasks")) or 1
    for field, share in (
        ("tres_per_node", 1.0),
        ("tres_per_job", 1 / count),
        ("tres_per_task", tasks / count),
    ):
        listed = str(entry.get(field) or "").split(",")
        text = ",".join(gres for gres in listed if gres and not NO_GRES.match(gres))
        if not text:
            continue
        match = GPUS.fullmatch(text)
        if match is None:
            raise UnplannableError(
                f"it asks for {text}, of which only GPUs of one type are planned"
            )
        gpus = int(match[2] or 1) * share
        if not gpus.is_integer():
            raise UnplannableError("its nodes would have different numbers of GPUs")
        return match[1], int(gpus)
    return None, 0


def number_per_gpu(text: Any) -> int | None:
    """Return the number in "gres:gpu:8" or "gres/gpu:8"."""
    match = GPUS.fullmatch(str(text or ""))
    return int(match[2]) if match is not None and match[2] else None


def stated_memory_mib(entry: Entry, gpus: int, count: int) -> int | None:
    """Return what it takes of each node's memory; None where neither the user nor a default of
    Slurm's says."""
    per_gpu = number_per_gpu(entry.get("memory_per_tres"))
    if per_gpu is not None:
        return per_gpu * gpus
    per_node, per_cpu = number(entry.get("memory_per_node")), number(entry.get("memory_per_cpu"))
    if per_node:
        return per_node
    if per_cpu:
        return per_cpu * _cpus(entry, count)
    return None


def memory_share_mib(job: HeldJob, nodes: Sequence[Node]) -> int | None:
    """Return its GPUs' share of a node's memory, or its cores', where nothing is said of it: Slurm
    would give it all. None where something is, or Slurm does not give out memory."""
    entry, count = job.entry, node_count(job)
    try:
        _, gpus = gpus_per_node(entry, count)
    except UnplannableError:
        return None
    if stated_memory_mib(entry, gpus, count) is not None or "mem=" not in str(
        entry.get("tres_req_str")
    ):
        return None
    cpus = _cpus(entry, count)
    shares = [
        node.memory_gib * (gpus / node.gpus if gpus else cpus / max(cpus, node.cpus or 0))
        for node in nodes
        if node.memory_gib is not None and node.gpus >= gpus
    ]
    return max(1, int(min(shares) * MIB_PER_GIB)) if shares else None
