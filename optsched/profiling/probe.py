"""Runs a command briefly, stops it, starts it again from what it saved, and says what was
measured."""

import getpass
import shlex
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ..errors import OptschedError
from .facts import Facts
from .measured import Measured
from .run import Setting, Watched, run

STEPS_AFTER_RESTORE = 5


class ProbeError(OptschedError):
    """The command could not be measured; the message says why."""


def probe(setting: Setting, *, gpu_type: str | None = None) -> Measured:
    """Measure a command: one run, and where it saved and stopped when asked, a second one that ends
    soon after its first steps and may take twice the time until then. `gpu_type` is what the
    cluster calls the GPUs, NVML's name where not given.

    Raises InputError where the command cannot be started, ProbeError where it fails.
    """
    with tempfile.TemporaryDirectory(prefix="optsched-profile-") as name:
        folder = Path(name)
        again = replace(setting, for_s=2 * setting.for_s)
        first = _run(setting, folder, 1, None)
        raise_if_failed(first)
        second = _run(again, folder, 2, STEPS_AFTER_RESTORE) if first.saved_and_stopped else None
    fault = None if second is None else failure(second)
    facts = Facts(setting, first, None if fault else second)
    if fault:
        facts.absent["restore_s"] = f"started again from what it had saved, {fault}"
    kind = gpu_type or (None if setting.nvml is None else setting.nvml.name)
    return Measured(
        **facts.values,  # type: ignore[arg-type]
        at_s=round(time.time(), 3),
        command=shlex.join(setting.argv),
        user=user_name(),
        host=socket.gethostname(),
        gpu_type=kind,
        gpus=setting.gpus,
        cpus=len(setting.cores),
        notes=tuple(facts.notes),
        absent=facts.absent,
    )


def user_name() -> str | None:
    """Return who runs this; None where the user id has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _run(setting: Setting, folder: Path, attempt: int, until_steps: int | None) -> Watched:
    scratch = folder / str(attempt)
    scratch.mkdir()
    return run(setting, scratch, folder / "checkpoints", attempt, until_steps)


def failure(watched: Watched) -> str | None:
    """Return how a command ended badly though nobody had asked it to end; None where it did not."""
    if watched.asked_s is not None or watched.exit_status == 0:
        return None
    how = (
        f"status {watched.exit_status}"
        if watched.exit_status > 0
        else f"signal {-watched.exit_status}"
    )
    said = f"; the last it printed:\n{watched.output}" if watched.output else "; it printed nothing"
    return f"the command ended with {how} after {watched.ended_s - watched.started_s:.1f} s{said}"


def raise_if_failed(watched: Watched) -> None:
    """Raise ProbeError where a command ended badly though nobody had asked it to end."""
    fault = failure(watched)
    if fault is not None:
        raise ProbeError(fault)
