"""Jobs that no round decides: those that can never run, and those that cannot run yet."""

from dataclasses import replace

from ..duration import human
from ..errors import InputError
from ..model import FOR_EVER_S, Instance, Job
from ..physics.catalogue import Catalogue, catalogue_of
from ..physics.unschedulable import why_never
from ..physics.windows import barred_nodes
from ..round.patterns import alternatives_of, node_classes
from ..round.windows import Openings, at_present
from .facts import Explanation
from .words import sentence


def explain_inactive(instance: Instance, job_id: str) -> Explanation | None:
    """Return of a job that can never run, or cannot run yet, why; None of the others, which a round
    decides. Needs no round.

    Raises InputError where the instance has no such job.
    """
    job, running = instance.job.get(job_id), instance.running_job
    if job is None:
        raise InputError(f"job {job_id!r} is not in the instance")
    if job_id in running:
        return None
    catalogue = catalogue_of(instance)
    explanation = None
    if reason := why_never(catalogue, job):
        explanation = Explanation(id=job_id, state="never", reason=reason)
    elif job.after:
        lost = (
            before
            for before in job.after
            if before not in running and why_never(catalogue, instance.job[before])
        )
        reason = next((f"{before} can never run" for before in lost), None)
        explanation = Explanation(id=job_id, state="later", waits_for=job.after, reason=reason)
    elif job.submit_s > instance.now_s:
        explanation = Explanation(id=job_id, state="later")
    elif reason := window_ahead(instance, job):
        explanation = Explanation(id=job_id, state="later", reason=reason)
    return explanation and with_sentence(instance, explanation)


def window_ahead(instance: Instance, job: Job) -> str | None:
    """Return which window a job would run into wherever it could start now, in one clause; None
    where it could start somewhere."""
    cluster, catalogue, present = instance.cluster, catalogue_of(instance), at_present(instance)
    patterns = alternatives_of(catalogue, job).patterns if cluster.windows else ()
    classes, _ = node_classes(catalogue)
    now = alternatives_of(catalogue_of(present), job)
    opened = Openings(present, classes).open(job, now).patterns if patterns else ()
    if not patterns or (opened and _has_room(present, job)):
        return None
    on = 0
    for pattern in patterns:
        on |= pattern.classes
    nodes = {cluster.nodes[i].name for kind in classes if kind.bit & on for i in kind.nodes}
    takes = {row for pattern in patterns for row, _ in pattern.shared}
    ahead = []
    for window in sorted(cluster.windows, key=lambda window: window.from_s):
        if window.to_s > instance.now_s:
            less = [row for row, _ in catalogue.capacity.left_in(window) if row in takes]
            short = [catalogue.capacity.rows[row].name for row in less]
            is_barred = window.bars(job.tenant, job.user)
            ahead += [(window, name) for name in window.nodes if is_barred and name in nodes]
            ahead += [(window, name) for name in short]
    first, name = ahead[0]
    if first.from_s > instance.now_s:
        where = f"on {name}" if name in first.nodes else f"(less of {name})"
        when = f"in {human(first.from_s - instance.now_s)}"
        return (
            f"it would run into a window wherever it fits, first into {first.name} {where} {when}"
        )
    until = (
        "until it is lifted"
        if first.to_s >= FOR_EVER_S
        else f"for another {human(first.to_s - instance.now_s)}"
    )
    if name not in first.nodes:
        return f"window {first.name} leaves too little of {name} {until}"
    return f"window {first.name} closes {name} to it {until}"


def _has_room(instance: Instance, job: Job) -> bool:
    """Return whether a job fits the nodes together on which it would meet no window."""
    cluster, entry = instance.cluster, instance.suspended_job.get(job.id)
    barred = barred_nodes(
        cluster.windows,
        job,
        catalogue_of(instance).options(job),
        instance.now_s,
        instance.remaining_s(job),
        ran_before=entry is not None,
        preemptions=0 if entry is None else entry.preemptions,
    )
    if not barred:
        return True
    left = tuple(node for node in cluster.nodes if node.name not in barred)
    there = Catalogue.of(replace(cluster, nodes=left), instance.tenants)
    return bool(left) and why_never(there, job) is None


def with_sentence(instance: Instance, explanation: Explanation) -> Explanation:
    """Return an explanation whose numbers are complete, put in words."""
    return replace(explanation, sentence=sentence(instance, explanation))
