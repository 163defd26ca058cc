"""The live cluster as an instance that a simulation can play on to its end."""

from collections.abc import Iterator
from dataclasses import replace

from ...driver.blocked import amounts
from ...errors import InputError
from ...frozen import record
from ...model import Instance, Job, Node, Placement, Running, Suspended
from ..journal.state import LiveJob
from ..present import LEAST_WORK_S, as_running, as_suspended, as_waiting, guarded, ran_before
from .snapshot import Snapshot


@record
class Outlook:
    """`instance` has what waits and what runs; `submit_s` is when each job was really submitted
    (Unix time), which for one that pauses is before its `Job.submit_s`. `left_out` are the jobs
    that are not in it, each with the reason, and `notes` say what is seen more simply than it
    is."""

    instance: Instance
    submit_s: dict[str, float]
    left_out: dict[str, str]
    notes: tuple[str, ...]


def outlook(snapshot: Snapshot) -> Outlook:
    """Return the present, made whole: claims are open again, what is being preempted has saved, a
    job that nobody can tell of goes on, and nodes that take no jobs have only what runs there. Jobs
    on hold, those being cancelled, and those that come after one of these are left out. Jobs that
    can never run are among the jobs: nodes may be added.

    Raises InputError where no node takes jobs.
    """
    jobs: dict[str, Job] = {}
    running: list[Running] = []
    suspended: list[Suspended] = []
    left_out: dict[str, str] = {}
    aside: list[Placement] = []
    state, now_s = snapshot.state, snapshot.now_s
    nodes = {status.node.name for status in snapshot.statuses}
    lost = 0
    for job in state.open.values():
        attempt = job.live
        reason = _left_out(snapshot, job)
        if reason is not None:
            left_out[job.id] = reason
            if attempt is not None and job.id in snapshot.left_out:
                aside.append(attempt.placement)
        elif attempt is not None:
            known, entry = as_running(job, attempt, snapshot.progress.get(attempt.key), now_s)
            jobs[job.id] = known
            if attempt.leaving or not all(slot.node in nodes for slot in attempt.placement):
                # it is being saved, and back in the queue within seconds
                saved = replace(as_suspended(job), remaining_s=entry.remaining_s)
                suspended.append(replace(saved, preemptions=job.preemptions + 1))
                continue
            running.append(entry)
            if attempt.lost is not None:
                lost += 1
                jobs[job.id] = replace(known, preemptible=False)
        else:
            turn = [
                name
                for name in snapshot.turns.get(job.id, ())
                if _left_out(snapshot, state.open[name]) is None
            ]
            before = dict.fromkeys((*job.submission.predecessors, *turn))
            after = tuple(name for name in before if name in state.open)
            pauses = job.ready_s > now_s
            jobs[job.id] = replace(_pausing(job) if pauses else as_waiting(job), after=after)
            if pauses:
                continue
            if ran_before(job) and not after:
                suspended.append(as_suspended(job))
            elif turn:
                jobs[job.id] = replace(_pausing(job), after=after, submit_s=job.submit_s)
    drop_orphans(jobs, left_out)
    jobs = {
        name: guarded(job, state.jobs[name], snapshot.preempt_unsaved) for name, job in jobs.items()
    }
    if not any(status.usable for status in snapshot.statuses):
        raise InputError("no node takes jobs now, so nothing can be predicted")
    instance = Instance(
        name="what if",
        now_s=now_s,
        cluster=replace(snapshot.cluster, nodes=tuple(_nodes(snapshot, running, aside))),
        tenants=snapshot.tenants,
        shares=snapshot.shares,
        jobs=tuple(jobs.values()),
        running=tuple(running),
        suspended=tuple(suspended),
    )
    notes = tuple(_notes(snapshot, lost, len(left_out)))
    return Outlook(instance, {name: state.jobs[name].submit_s for name in jobs}, left_out, notes)


def _notes(snapshot: Snapshot, lost: int, left_out: int) -> Iterator[str]:
    """Yield what is seen more simply than it is."""
    if lost:
        verb = "are" if lost > 1 else "is"
        yield f"{lost} job{'s' * (lost != 1)} of unknown state {verb} assumed to run on"
    if snapshot.turns:
        yield "jobs that limits hold back start when one before them ends"
    closed = [status.node.name for status in snapshot.statuses if not status.usable]
    if closed:
        yield f"nodes that take no jobs now never do: {', '.join(closed)}"
    if left_out:
        many = f"{left_out} job{'s' * (left_out != 1)}"
        why = "on hold, being cancelled, left out of rounds, over a budget, or after such"
        yield f"left out: {many} ({why})"


def _pausing(job: LiveJob) -> Job:
    """Return a job that is tried again later: what it has to do is all its work, and it restores
    whenever it starts."""
    known = as_waiting(job)
    profile = known.profile
    if ran_before(job):
        profile = replace(profile, startup_s=profile.startup_s + profile.restore_s)
    return replace(
        known, submit_s=job.ready_s, duration_s=max(LEAST_WORK_S, job.left_s), profile=profile
    )


def _left_out(snapshot: Snapshot, job: LiveJob) -> str | None:
    if job.cancelled is not None:
        return "it is being cancelled"
    if job.held is not None:
        return "it is on hold"
    if job.id in snapshot.left_out:
        return snapshot.left_out[job.id]
    hopes = [name for name in job.submission.after_not_ok if name in snapshot.state.open]
    if hopes:
        return f"it starts only if {hopes[0]} fails"
    predecessor = snapshot.state.lost_predecessor(job)
    if predecessor is not None:
        return f"{predecessor[0]}, which it comes after, will never complete"
    return None


def drop_orphans(jobs: dict[str, Job], left_out: dict[str, str]) -> None:
    """Leave out jobs after one that is left out, too."""
    while orphans := {
        name: before for name, job in jobs.items() for before in job.after if before not in jobs
    }:
        for name, before in orphans.items():
            left_out[name] = f"{before}, which it comes after, is left out"
            del jobs[name]


def _nodes(snapshot: Snapshot, running: list[Running], aside: list[Placement]) -> Iterator[Node]:
    """Yield the nodes, with what is left of them beside jobs that rounds are decided without; of
    one that takes no jobs what is held of it, and none of those of which nothing is."""
    held, gone = amounts(entry.placement for entry in running), amounts(aside)
    for status in snapshot.statuses:
        node = status.node
        gpus, cpus = held.get(node.name, (0, 0))
        if status.usable:
            out = snapshot.state.idle_out(node.name, node.gpus - gpus)
            gpus, cpus = node.gpus - out, node.cpus or 0
        elif node.name not in held:
            continue
        gone_gpus, gone_cpus = gone.get(node.name, (0, 0))
        left_cpus = None if node.cpus is None else max(0, cpus - gone_cpus)
        yield replace(node, gpus=max(0, gpus - gone_gpus), cpus=left_cpus)
