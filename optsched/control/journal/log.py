"""One line for each event, as an operator reads it."""

import os
import traceback
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from ...duration import human
from ...model import Placement
from ...noun import number_of
from ...picture.text import printable
from .events import (
    AttemptEnded,
    Cancelled,
    Event,
    Held,
    ManagerReserved,
    NodeSeen,
    RoundDecided,
    StartIntended,
    StopIntended,
    Submitted,
    Why,
    WindowSet,
)

MOST_LOG_BYTES = 1 << 20
"""A log of bugs that is longer is put aside, in place of the one before it."""
STOPS: dict[Why, str] = {
    "preempt": "preempted",
    "migrate": "to move",
    "resize": "to change its size",
    "hold": "held",
    "cancel": "cancelled",
    "limit": "its time limit is reached",
    "requeue": "to run again",
}
TEMPLATES: dict[str, str] = {
    "ControllerStarted": "controller {0.version} started, process {0.pid}",
    "Changed": "{0.submission.job.id}: what it asks for was changed in the cluster manager",
    "Released": "{0.job}: released by {0.by}",
    "StartRefused": "{0.job}: attempt {0.number} was refused: {0.reason}",
    "AttemptRunning": "{0.job}: attempt {0.number} runs",
    "KillIntended": "{0.job}: attempt {0.number} is killed: {0.reason}",
    "AttemptLost": "{0.job}: attempt {0.number} is lost: {0.reason}",
    "AttemptFound": "{0.job}: attempt {0.number} is seen again",
    "Cleared": "{0.job}: attempt {0.number} is over: {0.by} vouches for it",
    "Pruned": "no longer kept: {0.jobs} jobs, {0.rounds} rounds, {0.events} events",
    "WindowLifted": "{0.name}: not there any more, says {0.by}",
    "Noted": "{0.text}",
}
"""Events of which the fields are told as they are."""


class BugLog:
    """Writes down bugs with their tracebacks, for its owner's eyes only: the same one after the
    other once. A log that cannot be written is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last = ""

    def heard(self, what: str, error: Exception) -> None:
        """Write down an error that was met doing `what`."""
        text = f"{what}:\n{''.join(traceback.format_exception(error))}"
        if text == self._last:
            return
        self._last = text
        with suppress(OSError):
            if self.path.exists() and self.path.stat().st_size > MOST_LOG_BYTES:
                self.path.replace(self.path.with_suffix(".old"))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(self.path, flags, 0o600), "w", errors="replace") as file:
                file.write(f"{datetime.now().isoformat(timespec='seconds')}  {text}")


def line(at_s: float, event: Event) -> str | None:
    """Return the event in one line with its local time, whatever users have put into reasons; None
    where it says nothing new to anybody."""
    text = sentence(event)
    if text is None:
        return None
    return f"{datetime.fromtimestamp(at_s).strftime('%H:%M:%S')}  {printable(text)}"


def sentence(event: Event) -> str | None:
    """Return the event without its time."""
    template = TEMPLATES.get(type(event).__name__)
    if template is not None:
        return template.format(event)
    match event:
        case Submitted():
            return _submitted(event)
        case Held():
            return f"{event.job}: held: {event.reason or event.by}"
        case Cancelled():
            return f"{event.job}: cancelled: {event.reason or event.by}"
        case RoundDecided(claims=claims) if claims:
            return f"round {event.round}: {', '.join(claim.job for claim in claims)} to start"
        case StartIntended():
            return f"{event.job}: attempt {event.number} starts on {place(event.placement)}"
        case StopIntended():
            return f"{event.job}: {STOPS[event.why]}, asked to save within {human(event.grace_s)}"
        case AttemptEnded():
            return f"{event.job}: attempt {event.number} {_end(event)}"
        case NodeSeen():
            return _node(event)
        case ManagerReserved(windows=windows):
            names = ", ".join(f"{own.name} ({', '.join(own.nodes)})" for own in windows)
            return f"reserved in the cluster manager: {names or 'nothing any more'}"
        case WindowSet(window=window):
            whose = ", ".join((*window.tenants, *window.users))
            kept = f"kept for {whose}" if whose else "without jobs"
            return f"{window.name}: {', '.join(window.nodes)} {kept}, says {event.by}"
    return None


def _submitted(event: Submitted) -> str:
    job = event.submission.job
    gpus = job.gpus if isinstance(job.gpus, int) else f"{job.gpus.min}-{job.gpus.max}"
    by = f" by {job.user}" if job.user else ""
    length = human(job.work_s) + (" (estimated)" if event.submission.estimate else "")
    return f"{job.id}: submitted{by}, {gpus} GPU{'s' * (gpus != 1)}, {length}"


def _node(event: NodeSeen) -> str:
    why = event.reason or (f"without {', '.join(event.out)}" if event.out else None)
    state = "is usable" if event.usable else "takes no jobs"
    return f"node {event.node} {state}{f': {why}' if why else ''}"


def place(placement: Placement) -> str:
    """Return nodes with their GPUs or cores: `a100-0 (8 GPUs), a100-1 (8 GPUs)`."""
    if not placement:
        return "no node"
    return ", ".join(
        f"{slot.node} ({number_of(slot.gpus, 'GPU')})"
        if slot.gpus
        else f"{slot.node} ({number_of(slot.cpus, 'core')})"
        for slot in placement
    )


def _end(event: AttemptEnded) -> str:
    reason = f": {event.reason}" if event.reason else ""
    status, ran = event.exit_status, ""
    if event.started_s is not None and event.ended_s is not None:
        ran = f" after {human(event.ended_s - event.started_s)}"
    match status:
        case 0:
            return f"completed{ran}{reason}"
        case 85:
            return f"saved and stopped{ran}, {human(event.left_s)} of work left{reason}"
        case None:
            return f"ended{ran}{reason or ', it is not known how'}"
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    return f"ended{ran} with {how}{reason}"
