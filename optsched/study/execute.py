"""One run of a study in a process of its own: limited in time and memory, on one thread."""

import json
import signal
import tempfile
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from ..duration import human
from ..frozen import frozen
from .commands import PLAN, TRACE
from .machine import made_on
from .process import Warm


@frozen
class Task:
    """What a run needs to be the same elsewhere: its command, limits and the version that it is
    for; `instance` is where the instance lies, or is to be written by a command that makes one."""

    command: str
    instance: str
    time_limit_s: float
    memory_gib: float
    plans: bool = False
    version: str = ""


@frozen
class Outcome:
    """What a run left: `answer` is what the command said, or None where it failed; `reason` then
    says why. `wall_s` and `cpu_s` are the run's own, start of Python not included; `memory_gib` is
    the most it held. `made_on` says with which versions and machine; `kept` holds files that are
    kept beside the answer, by the ending of their name."""

    answer: dict[str, Any] | None
    reason: str | None
    wall_s: float
    cpu_s: float
    memory_gib: float
    made_on: dict[str, str] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return all but the files."""
        return {name: value for name, value in asdict(self).items() if name != "kept"}


def run_task(task: Task, warm: Warm) -> Outcome:
    """Run a task as a fork of a warm process."""
    with tempfile.TemporaryDirectory(prefix="optsched-study-") as name:
        folder = Path(name)
        ended = warm.run(
            {"command": task.command, "instance": task.instance, "plans": task.plans},
            folder,
            time_limit_s=task.time_limit_s,
            memory_gib=task.memory_gib,
        )
        answer = reason = None
        if ended.status is None:
            reason = f"stopped after {human(task.time_limit_s)}"
        elif ended.status != 0:
            reason = _why(ended.status, ended.errors, task.memory_gib)
        else:
            answer = json.loads(ended.answer)
        return Outcome(
            answer=answer,
            reason=reason,
            wall_s=ended.wall_s,
            cpu_s=ended.cpu_s,
            memory_gib=ended.memory_gib,
            made_on=made_on(),
            kept={
                kept: path.read_bytes()
                for kept in (TRACE, PLAN)
                if answer is not None and (path := folder / kept).exists()
            },
        )


def _why(status: int, errors: str, memory_gib: float) -> str:
    """Return why a run failed, from its exit status and what it wrote to stderr."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    if "MemoryError" in errors or "bad_alloc" in errors:
        return f"needs more than {memory_gib:g} GiB of memory"
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[0] if lines else f"exit status {status}"
