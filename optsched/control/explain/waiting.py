"""Why a live job does not run, and what would change that."""

from collections.abc import Sequence
from dataclasses import replace

from ...driver.shares import account_of
from ...duration import human
from ...physics.catalogue import Catalogue
from ...physics.modes import Option
from ..journal.log import place
from ..journal.state import LiveJob
from ..names import Names
from ..present import as_running, as_waiting
from ..room_now import RoomNow
from ..shares import share_rows
from ..what_if.snapshot import Snapshot
from .blocked import Facts, Obstacle, Obstacles
from .round_says import round_says


def why_it_waits(snapshot: Snapshot, job: LiveJob, facts: Facts, names: bool) -> list[str]:
    """Return what a job that holds nothing and is not on hold waits for; its numbers go into
    `facts`."""
    said: list[str] = []
    for obstacle in Obstacles(snapshot).of(job, snapshot.now_s, facts):
        reason = _alone(snapshot, job, obstacle, facts, Names(snapshot.state, job, names))
        if reason:
            return reason
        if obstacle.kind == "short":
            facts["short"] = obstacle.why
            said.append(f"No job is started now: {obstacle.why}.")
        else:
            facts["bar"] = obstacle.why
            said.append(f"{obstacle.why[0].upper()}{obstacle.why[1:]}.")
    known = as_waiting(job)
    since_s, left_s = snapshot.now_s - _since_s(job), job.left_s
    said.insert(
        0, f"{job.id} has been waiting for {human(since_s)} with {human(left_s)} of work to do."
    )
    room = RoomNow(snapshot)
    cluster = replace(snapshot.cluster, nodes=tuple(status.node for status in snapshot.statuses))
    able = Catalogue.of(cluster).options(known)
    said += _free(room, able, facts)
    said += round_says(snapshot, job, facts, names)
    said += _more_than_its_share(snapshot, job, facts)
    soonest_s = room.soonest_s(known)
    if soonest_s is not None and soonest_s > 0:
        facts["room_by_itself_s"] = soonest_s
        said.append(
            f"If nothing else starts there, enough becomes free for it in about {human(soonest_s)}."
        )
    return said


def _more_than_its_share(snapshot: Snapshot, job: LiveJob, facts: Facts) -> list[str]:
    """Return by how much use has lowered the weight of a job, where it has."""
    noun, shares = job.submission.job, snapshot.shares
    if shares is None or noun.tenant not in {None, *(own.name for own in snapshot.tenants)}:
        return []
    rows = [
        *share_rows(snapshot.state, snapshot.tenants, snapshot.statuses, shares, snapshot.now_s)
    ]
    factor = next(
        (row.factor for row in rows if row.is_user and (row.tenant, row.user) == account_of(noun)),
        None,
    )
    above = {own.name: own.parent for own in snapshot.tenants}
    over = []
    name: str | None = noun.tenant
    for row in reversed(rows):
        mine = row.user == noun.user and row.tenant == noun.tenant if row.is_user else False
        if not row.is_user and row.tenant == name:
            mine, name = True, above.get(name or "")
        if mine and row.effective > row.share:
            who = f"user {row.user}" if row.is_user else f"tenant {row.tenant}"
            over.append(f"{who} has had {row.effective:.0%} and is entitled to {row.share:.0%}")
    facts["shares"] = {"factor": factor}
    if factor is None or factor >= 1 or not over:
        return []
    return [
        f"It counts {factor:.3g} times its weight, because of what was used lately "
        f"{' and '.join(reversed(over))} (`optsched shares`)."
    ]


def _alone(
    snapshot: Snapshot, job: LiveJob, obstacle: Obstacle, facts: Facts, seen: Names
) -> list[str]:
    """Return sentences on an obstacle that says it all; none on another."""
    state = snapshot.state
    match obstacle.kind:
        case "after":
            facts["after"] = state.awaited(job)
            before = ", ".join(_with_status(snapshot, name) for name in facts["after"])
            return [f"{job.id} waits for {before} to {_how(job)}."]
        case "barred":
            facts["barred"] = obstacle.why
            return [
                f"{job.id} waits because the cluster manager would not start it: {obstacle.why}."
            ]
        case "pause":
            return [_pause(job, snapshot.now_s, facts)]
        case "unseen":
            return [f"{job.id} waits; {obstacle.why}."]
        case "left_out":
            facts["left_out"] = snapshot.left_out[job.id]
            return [
                f"{job.id} waits, and {obstacle.why}.",
                "It gets its turn again once that changes; cancel it if it never will.",
            ]
        case "limit":
            facts["limit"] = obstacle.why
            return [f"{job.id} waits because {obstacle.why}."]
        case "claim":
            return _claimed(snapshot, job, seen)
        case "never":
            facts["never"] = obstacle.why.partition(": ")[2]
            return [
                f"{job.id} {obstacle.why.removeprefix('it ')}.",
                "It waits in case nodes are added; cancel it, or submit it with less.",
            ]
    return []


def _how(job: LiveJob) -> str:
    """Return how the predecessors of a job are to end."""
    kinds = {"complete": job.submission.job.after, "end": job.submission.after_any}
    kinds["fail"] = job.submission.after_not_ok
    return ", or ".join(how for how, names in kinds.items() if names)


def _pause(job: LiveJob, now_s: float, facts: Facts) -> str:
    facts["pause_s"] = job.ready_s - now_s
    if job.submission.begin_s == job.ready_s:
        return f"{job.id} waits for another {human(job.ready_s - now_s)}: its user wants it to begin then."  # noqa: E501
    left = job.submission.retries - job.failures
    tries = ""
    if job.failures and left >= 0:
        tries = f"; it may fail {left} more time{'s' * (left != 1)} after that"
    return (
        f"{job.id} pauses for another {human(job.ready_s - now_s)} before it is tried again, "
        f"because {job.reason or 'its last attempt came to nothing'}{tries}."
    )


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
    """Return what is to be said of a job that has a place, which somebody has yet to leave."""
    claim = snapshot.state.claims[job.id]
    nodes = {slot.node for slot in claim.placement}
    leaving = [
        attempt
        for attempt in snapshot.state.live_attempts()
        if (attempt.leaving or attempt.key.job not in snapshot.state.stay)
        and nodes & {slot.node for slot in attempt.placement}
    ]
    said = [
        f"{job.id} has been given {place(claim.placement)} and starts there as soon as that is "
        "free."
    ]
    if leaving:
        who = seen.text([attempt.key.job for attempt in leaving])
        now_s = snapshot.now_s
        until_s = max((attempt.stop_s or now_s) + attempt.grace_s for attempt in leaving) - now_s
        latest = f", which takes {human(until_s)} at the most" if until_s > 0 else ""
        said.append(f"The place is being freed by {who}, saving now{latest}.")
    return said


def _free(room: RoomNow, able: Sequence[Option], facts: Facts) -> list[str]:
    """Return how many GPUs that it can use are free, and how they are scattered."""
    least = min((option.mode.gpus for option in able), default=0)
    if not least:
        return []
    free = room.free(able)
    facts["free"] = {
        "gpus": free.total,
        "most_on_one_node": free.most,
        "of": free.there,
        "needs": least,
    }
    types = " or ".join(dict.fromkeys(filter(None, (option.mode.gpu_type for option in able))))
    closed = room.closed
    down = f" ({closed} node{'s take' if closed > 1 else ' takes'} no jobs)" if closed else ""
    kind = f"{types} GPUs" if types else "GPUs"
    total, there = free.total, free.there
    if not total:
        said = f"It needs {least} GPU{'s' * (least != 1)}, and none of the {there} {kind} it could use is free{down}."  # noqa: E501
    elif total < least:
        verb = "are" if total > 1 else "is"
        said = f"It needs {least} GPUs, and only {total} of the {there} {kind} it could use {verb} free{down}."  # noqa: E501
    elif all(option.spread == "node" for option in able) and free.most < least:
        said = (
            f"It needs {least} GPUs on one node; {total} of the {there} {kind} are free, but "
            f"scattered over {free.nodes} nodes, at most {free.most} on one{down}."
        )
    else:
        said = (
            f"{total} of the {there} {kind} it could use are free, at most {free.most} on one "
            f"node{down}; it needs {least}."
        )
    return [said]


def _since_s(job: LiveJob) -> float:
    """Return since when it holds nothing."""
    return max(job.submit_s, *(attempt.ended_s or 0.0 for attempt in job.attempts), 0.0)
