"""What an observation tells that the journal does not hold yet."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ..executors.attempts.ending import checked, number
from ..executors.base import (
    SAVED_AND_STOPPED,
    AttemptKey,
    AttemptState,
    NodeStatus,
    Observation,
    Progress,
)
from .journal.events import AttemptEnded, AttemptFound, AttemptLost, AttemptRunning, Event, NodeSeen
from .journal.state import Attempt, LiveJob, State
from .work_left import work_left_s


def news(
    state: State,
    observations: Mapping[AttemptKey, Observation],
    now_s: float,
    steady_s: Callable[[float], float],
) -> Iterator[Event]:
    """Yield events for attempts that began, ended, were lost or found; `steady_s` turns the host's
    time into the journal's.

    An attempt that is not among the observations is lost if it was seen running; else that tells
    nothing: whether it is still to begin is for its start to find out (see `Executor.start`).
    """
    for job in state.open.values():
        attempt = job.live
        seen = None if attempt is None else observations.get(attempt.key)
        if attempt is None:
            continue
        if seen is None:
            if attempt.started_s is not None and attempt.lost is None:
                yield AttemptLost(job=job.id, number=attempt.key.number, reason=UNRECORDED)
            continue
        name = attempt.key.job
        if seen.state == AttemptState.UNREACHABLE:
            if attempt.lost is None:
                why = _text(seen.reason) or "nobody answers for it"
                yield AttemptLost(job=name, number=attempt.key.number, reason=why)
            continue
        if attempt.lost is not None and seen.state != AttemptState.ENDED:
            yield AttemptFound(job=name, number=attempt.key.number)
        if seen.state == AttemptState.RUNNING and attempt.started_s is None:
            seen = sane(seen)
            yield _began(seen, now_s if seen.started_s is None else steady_s(seen.started_s))
        elif seen.state == AttemptState.ENDED:
            seen = sane(seen)
            ended = _ended(job, attempt, seen, now_s, steady_s)
            if attempt.started_s is None and ended.started_s is not None:
                yield _began(seen, ended.started_s)  # too short to be seen while it ran
            yield ended


class SteadyReports:
    """What commands report of themselves, in the journal's time and without what cannot be; a time
    that was told before stays what it was, however far the host's clock has jumped since."""

    def __init__(self) -> None:
        self._told: dict[AttemptKey, tuple[Progress, Progress | None]] = {}

    def take(
        self, observations: Iterable[Observation], steady_s: Callable[[float], float]
    ) -> dict[AttemptKey, Observation]:
        """Return by key what is seen; `steady_s` turns the host's time into the journal's."""
        seen = {observation.key: observation for observation in observations}
        self._told = {
            key: (own.progress, self._steady(key, own.progress, steady_s))
            for key, own in seen.items()
            if own.progress is not None
        }
        told = {key: replace(seen[key], progress=steady) for key, (_, steady) in self._told.items()}
        return seen | told

    def _steady(
        self, key: AttemptKey, said: Progress, steady_s: Callable[[float], float]
    ) -> Progress | None:
        said_before, before = self._told.get(key, (None, None))
        if said == said_before:
            return before
        can_be = Progress.reported(asdict(said))
        if can_be is None:
            return None
        times: dict[str, Any] = {}
        for name in ("at_s", "began_s", "saved_at_s"):
            wall_s = getattr(can_be, name)
            if wall_s is not None:
                same = before is not None and wall_s == getattr(said_before, name)
                times[name] = getattr(before, name) if same else max(0.0, steady_s(wall_s))
        return replace(can_be, **times)


def sane(seen: Observation) -> Observation:
    """Return what an executor says of an attempt, with None for numbers that cannot be."""
    numbers = ("peak_memory_gib", "cpu_s", "started_s", "ended_s")
    said = checked(
        {
            "status": seen.exit_status,
            "reason": seen.reason,
            **{name: getattr(seen, name) for name in numbers},
        }
    )
    gpu_ids = {
        str(_text(node)): tuple(str(_text(gpu)) for gpu in gpus)
        for node, gpus in seen.gpu_ids.items()
    }
    return replace(
        seen,
        exit_status=said["status"],
        reason=said["reason"],
        gpu_ids=gpu_ids,
        output=_text(seen.output),
        retry_s=number(seen.retry_s),
        **{name: said[name] for name in numbers},
    )


def node_news(state: State, statuses: Sequence[NodeStatus]) -> Iterator[NodeSeen]:
    """Yield events for nodes that came, went, or changed."""
    there = {status.node.name: status for status in statuses}
    for name, status in there.items():
        known = state.nodes.get(name)
        if known is None or (known.usable, known.reason, known.out) != (
            status.usable,
            _text(status.reason),
            status.out,
        ):
            yield NodeSeen(
                node=name, usable=status.usable, reason=_text(status.reason), out=status.out
            )
    for name, known in state.nodes.items():
        if name not in there and (known.usable or known.reason != GONE):
            yield NodeSeen(node=name, usable=False, reason=GONE)


def _text(said: str | None) -> str | None:
    """Return a text as the journal gives it back: without what is no Unicode."""
    return None if said is None else said.encode(errors="replace").decode()


UNRECORDED = "whoever started it has no record of it"
GONE = "it is no longer among the nodes"


def _began(seen: Observation, started_s: float) -> AttemptRunning:
    return AttemptRunning(
        job=seen.key.job, number=seen.key.number, started_s=started_s, gpu_ids=dict(seen.gpu_ids)
    )


def _ended(
    job: LiveJob,
    attempt: Attempt,
    seen: Observation,
    now_s: float,
    steady_s: Callable[[float], float],
) -> AttemptEnded:
    ended_s = now_s if seen.ended_s is None else steady_s(seen.ended_s)
    began_s = attempt.started_s
    if began_s is None and seen.started_s is not None:
        began_s = min(ended_s, steady_s(seen.started_s))
        attempt = replace(attempt, started_s=began_s)
    status = seen.exit_status
    if status == 0:
        left_s = 0.0
    elif began_s is None:
        left_s = attempt.work_s
    else:
        left_s = work_left_s(
            job.submission, attempt, seen.progress, ended_s, saved=status == SAVED_AND_STOPPED
        )
    return AttemptEnded(
        job=attempt.key.job,
        number=attempt.key.number,
        exit_status=status,
        reason=_text(seen.reason),
        started_s=began_s,
        ended_s=ended_s,
        left_s=left_s,
        progress=seen.progress,
        output=seen.output,
        peak_memory_gib=seen.peak_memory_gib,
        cpu_s=seen.cpu_s,
        retry_s=seen.retry_s,
    )
