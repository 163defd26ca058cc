"""What the files of an attempt tell of it: who has which GPUs, how far it is, how it ended and
why."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..base import SAVED_AND_STOPPED, AttemptState, Observation
from ..local import records
from ..local.attempt import exit_status
from ..local.attempt_folder import NEVER_STARTED, AttemptFolder
from ..local.endings import number

Endings = Mapping[str, Mapping[str, Any]]


def observed(
    folder: AttemptFolder, state: AttemptState, begun: Endings, endings: Endings, claims: Endings
) -> Observation:
    """The attempt in `state`, with what its supervisors said, by node: when they came (`claims`),
    when their command began (`begun`), and when it had ended (`endings`)."""
    names = [node["name"] for node in folder.nodes]
    starts = [
        number((endings.get(name) or begun.get(name) or {}).get("started_s")) for name in names
    ]
    common = Observation(
        key=folder.key,
        state=state,
        gpu_ids={
            name: tuple(map(str, (claims.get(name) or {}).get("gpu_ids") or ())) for name in names
        },
        started_s=max((start for start in starts if start is not None), default=None),
        progress=folder.progress(),
        output=folder.output(),
    )
    return common if state is not AttemptState.ENDED else _ended(folder, common, endings)


def _ended(folder: AttemptFolder, common: Observation, endings: Endings) -> Observation:
    status, reason = _told(folder, endings)
    ends = [ending["ended_s"] for ending in endings.values() if ending.get("ended_s") is not None]
    peaks = [
        ending["peak_memory_gib"]
        for ending in endings.values()
        if ending.get("peak_memory_gib") is not None
    ]
    used = [ending["cpu_s"] for ending in endings.values() if ending.get("cpu_s") is not None]
    return replace(
        common,
        ended_s=max(ends, default=None),
        exit_status=status,
        reason=reason,
        peak_memory_gib=sum(peaks) if peaks else None,
        cpu_s=sum(used) if used else None,
    )


def _told(folder: AttemptFolder, endings: Endings) -> tuple[int | None, str | None]:
    """Exit status and reason."""
    statuses = [ending["status"] for ending in endings.values()]
    lost = _lost(folder)
    if lost is not None:
        if SAVED_AND_STOPPED in statuses or not any(one is None or one for one in statuses):
            return exit_status(statuses), lost
        return None, lost
    failed = records.read(str(folder.progress_path.with_name("failed.json")))
    name = None if failed is None else failed.get("node")
    if failed is not None and name in endings:
        first = endings[str(name)]
        by_itself = f"its command ended with exit status {first['status']}"
        words = (
            first["reason"]
            or (failed.get("reason") if first["status"] is None else None)
            or by_itself
        )
        return first["status"], _on(folder, str(name), str(words))
    if all(ending["started_s"] is None and ending["status"] is None for ending in endings.values()):
        reasons = [ending["reason"] for ending in endings.values() if ending["reason"] is not None]
        return None, reasons[0] if reasons else NEVER_STARTED
    reasons = [
        _on(folder, node, ending["reason"])
        for node, ending in endings.items()
        if ending["reason"] is not None
    ]
    return exit_status(statuses), reasons[0] if reasons else None


def _lost(folder: AttemptFolder) -> str | None:
    """Why it was ended although nobody had asked for it."""
    stop = folder.stop_record() or records.read(str(folder.progress_path.with_name("told.json")))
    lost = None if stop is None else stop.get("lost")
    return lost[:1000] if isinstance(lost, str) else None


def _on(folder: AttemptFolder, node: str, reason: str) -> str:
    return f"on {node} {reason}" if len(folder.nodes) > 1 else reason
