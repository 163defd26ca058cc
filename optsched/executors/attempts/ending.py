"""What the files of an attempt tell of it: who has which GPUs, how far it is, how it ended and
why."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..base import SAVED_AND_STOPPED, AttemptState, Observation
from ..supervision import records
from .folder import AttemptFolder

NUMBERS = ("started_s", "ended_s", "peak_memory_gib", "cpu_s")
MOST_CHARACTERS = 1000
Endings = Mapping[str, Mapping[str, Any]]


def observed(
    folder: AttemptFolder, state: AttemptState, begun: Endings, endings: Endings, given: Endings
) -> Observation:
    """Return the attempt in `state`, with what its supervisors said, by node: which GPUs they were
    `given`, when their command began (`begun`), and when it had ended (`endings`)."""
    names = [node["name"] for node in folder.nodes]
    starts = [
        number((endings.get(name) or begun.get(name) or {}).get("started_s")) for name in names
    ]
    return Observation(
        key=folder.key,
        state=state,
        gpu_ids={name: tuple(map(str, given[name].get("gpu_ids") or ())) for name in names},
        started_s=max((start for start in starts if start is not None), default=None),
        progress=folder.progress(),
        output=folder.output(),
    )


def with_ending(
    common: Observation, endings: Endings, status: int | None, reason: str | None
) -> Observation:
    """Return the observation of an attempt that has ended so, with what its commands used."""
    ends, peaks, used = (
        [ending[name] for ending in endings.values() if ending.get(name) is not None]
        for name in ("ended_s", "peak_memory_gib", "cpu_s")
    )
    return replace(
        common,
        state=AttemptState.ENDED,
        ended_s=max(ends, default=None),
        exit_status=status,
        reason=reason,
        peak_memory_gib=sum(peaks) if peaks else None,
        cpu_s=sum(used) if used else None,
    )


def by_itself(
    folder: AttemptFolder, endings: Endings, failed: Mapping[str, Any] | None
) -> tuple[int | None, str | None]:
    """Return exit status and reason of what nobody ended: those of the node that `failed` first."""
    name = None if failed is None else failed.get("node")
    if failed is not None and name in endings:
        first = endings[str(name)]
        words = (
            first["reason"]
            or (failed.get("reason") if first["status"] is None else None)
            or f"its command ended with exit status {first['status']}"
        )
        return first["status"], on(folder, str(name), str(words))
    reasons = [
        on(folder, node, ending["reason"])
        for node, ending in endings.items()
        if ending["reason"] is not None
    ]
    statuses = [ending["status"] for ending in endings.values()]
    return exit_status(statuses), reasons[0] if reasons else None


def of_the_first(folder: AttemptFolder, endings: Endings) -> tuple[int | None, str | None]:
    """Return exit status and reason by what supervisors of our own say of the node that failed
    first, which goes before what became of it."""
    failed = folder.failed()
    if failed is not None:
        name = failed["node"]
        reason = failed.get("reason") or endings[name]["reason"]
        first = {**endings[name], "status": failed["status"], "reason": reason}
        endings = {**endings, name: first}
    return by_itself(folder, endings, failed)


def failed_by_user(folder: AttemptFolder) -> dict[str, Any] | None:
    """Return which node failed first, as supervisors say that run as the user of the job."""
    return records.read(str(folder.progress_path.with_name("failed.json")))


def on(folder: AttemptFolder, node: str, reason: str) -> str:
    """Return the reason, with the node where there are several."""
    return f"on {node} {reason}" if len(folder.nodes) > 1 else reason


def checked(ending: Mapping[str, Any]) -> dict[str, Any]:
    """The ending, with None for what makes no sense."""
    status, reason = ending.get("status"), ending.get("reason")
    return {
        "status": status if isinstance(status, int) and -128 < status < 256 else None,
        "reason": reason[:MOST_CHARACTERS] if isinstance(reason, str) else None,
        **{name: number(ending.get(name)) for name in NUMBERS},
    }


def number(value: Any) -> float | None:
    """A number that can be a time, a size or an amount."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
    return float(value) if good else None


def exit_status(statuses: list[int | None]) -> int | None:
    """That of a gang nothing of which failed by itself: saved if one command saved, else the first
    not 0, else 0."""
    if SAVED_AND_STOPPED in statuses:
        return SAVED_AND_STOPPED
    return next((status for status in statuses if status != 0), 0)
