"""Why a live job does not run, and what would change that."""

from dataclasses import replace
from typing import Any

from ...duration import human
from ...model.job import Job
from ...physics.catalogue import Catalogue
from ..journal.log import place
from ..journal.state import LiveJob, State
from ..names import Names
from ..present import as_running, as_waiting
from ..room_now import RoomNow
from ..what_if.snapshot import Snapshot
from .blocked import Bars
from .round_says import round_says


def why_it_waits(snapshot: Snapshot, job: LiveJob, facts: dict[str, Any], names: bool) -> list[str]:
    """What a job that holds nothing and is not on hold waits for; its numbers go into `facts`."""
    state, seen = snapshot.state, Names(snapshot.state, job, names)
    before = [one for one in job.submission.job.after if _unfinished(state, one)]
    if before:
        facts["after"] = before
        return [
            f"{job.id} waits for {', '.join(_with_status(snapshot, one) for one in before)} to "
            "complete."
        ]
    if job.id in state.barred:
        facts["barred"] = state.barred[job.id]
        return [
            f"{job.id} waits because the cluster manager would not start it: "
            f"{state.barred[job.id]}."
        ]
    if job.ready_s > snapshot.now_s:
        facts["pause_s"] = job.ready_s - snapshot.now_s
        left = job.submission.retries - job.failures
        tries = (
            f"; it may fail {left} more time{'s' * (left != 1)} after that"
            if job.failures and left >= 0
            else ""
        )
        return [
            f"{job.id} pauses for another {human(job.ready_s - snapshot.now_s)} before it is tried "
            f"again, because {job.reason or 'its last attempt came to nothing'}{tries}."
        ]
    if not snapshot.statuses:
        return [f"{job.id} waits; the controller has not seen its nodes yet."]
    if job.id in snapshot.left_out:
        facts["left_out"] = snapshot.left_out[job.id]
        return [
            f"{job.id} waits, and rounds are decided without it: {snapshot.left_out[job.id]}.",
            "It has its turn again once that is otherwise; cancel it if that will not be.",
        ]
    known = as_waiting(job)
    cluster = replace(snapshot.cluster, nodes=tuple(status.node for status in snapshot.statuses))
    bar = Bars(state, snapshot.cluster, snapshot.tenants, snapshot.statuses).of(known, facts)
    if bar is not None and bar.never:
        facts["never"] = bar.why
        return [
            f"{job.id} can never run on this cluster: {bar.why}.",
            "It waits in case nodes are added; cancel it, or submit it with less.",
        ]
    if job.id in state.claims:
        return _claimed(snapshot, job, seen)
    said = [
        f"{job.id} waits since {human(snapshot.now_s - _since_s(job))} with {human(job.left_s)} of "
        "work to do."
    ]
    if bar is not None:
        facts["bar"] = bar.why
        said.append(f"{bar.why[0].upper()}{bar.why[1:]}.")
    if snapshot.short is not None:
        facts["short"] = snapshot.short
        said.append(f"No job is started now: {snapshot.short}.")
    room = RoomNow(snapshot)
    said += _free(snapshot, room, known, facts)
    said += round_says(snapshot, job, facts, names)
    soonest_s = room.soonest_s(Catalogue.of(cluster).options(known))
    if soonest_s is not None and soonest_s > 0:
        facts["room_by_itself_s"] = soonest_s
        said.append(
            "If nothing else starts there, enough for it comes free by itself in about "
            f"{human(soonest_s)}."
        )
    return said


def _with_status(snapshot: Snapshot, name: str) -> str:
    other = snapshot.state.jobs.get(name)
    if other is None:
        return f"{name} (which is unknown)"
    live = other.live
    if live is not None and live.started_s is not None and live.lost is None and not live.leaving:
        _, entry = as_running(other, live, snapshot.progress.get(live.key), snapshot.now_s)
        return f"{name} (running, expected to end in {human(entry.setup_s + entry.remaining_s / live.rate)})"  # noqa: E501
    return f"{name} ({other.status})"


def _claimed(snapshot: Snapshot, job: LiveJob, seen: Names) -> list[str]:
    """It has a place, which somebody has yet to leave."""
    claim = snapshot.state.claims[job.id]
    nodes = {slot.node for slot in claim.placement}
    leaving = [
        one
        for one in snapshot.state.live_attempts()
        if (one.leaving or one.key.job not in snapshot.state.stay)
        and nodes & {slot.node for slot in one.placement}
    ]
    said = [
        f"{job.id} has been given {place(claim.placement)} and starts there as soon as that is "
        "free."
    ]
    if leaving:
        who = seen.text([one.key.job for one in leaving])
        until_s = (
            max((one.stop_s or snapshot.now_s) + one.grace_s for one in leaving) - snapshot.now_s
        )
        latest = f", which takes {human(until_s)} at the most" if until_s > 0 else ""
        said.append(f"The place is being freed by {who}, saving now{latest}.")
    return said


def _free(snapshot: Snapshot, room: RoomNow, known: Job, facts: dict[str, Any]) -> list[str]:
    """How many GPUs that it can use are free, and how they are scattered."""
    cluster = replace(snapshot.cluster, nodes=tuple(status.node for status in snapshot.statuses))
    able = Catalogue.of(cluster).options(known)
    least = min((one.mode.gpus for one in able), default=0)
    if not least:
        return []
    free = room.free(able)
    facts["free"] = {
        "gpus": free.total,
        "most_on_one_node": free.most,
        "of": free.there,
        "needs": least,
    }
    types = " or ".join(dict.fromkeys(str(one.mode.gpu_type) for one in able if one.mode.gpu_type))
    closed = room.closed
    down = f" ({closed} node{'s take' if closed > 1 else ' takes'} no jobs)" if closed else ""
    kind = f"{types} GPUs" if types else "GPUs"
    if not free.total:
        return [
            f"It needs {least} GPU{'s' * (least != 1)}, and none of the {free.there} {kind} it "
            f"could use is free{down}."
        ]
    if free.total < least:
        return [
            f"It needs {least} GPUs, and only {free.total} of the {free.there} {kind} it could use "
            f"{'are' if free.total > 1 else 'is'} free{down}."
        ]
    if all(one.spread == "node" for one in able) and free.most < least:
        return [
            f"It needs {least} GPUs on one node; {free.total} of the {free.there} {kind} are free, "
            f"but scattered over {free.nodes} nodes, at most {free.most} on one{down}."
        ]
    return [
        f"{free.total} of the {free.there} {kind} it could use are free, at most {free.most} on "
        f"one node{down}; it needs {least}."
    ]


def _unfinished(state: State, name: str) -> bool:
    return name not in state.jobs or state.jobs[name].finished != "completed"


def _since_s(job: LiveJob) -> float:
    """Since when it holds nothing."""
    ended = [one.ended_s for one in job.attempts if one.ended_s is not None]
    return max([job.submit_s, *ended])
