"""A controller in a process of its own, which kills itself at the point it is told: `python
controller_process.py CLUSTER POINT SECONDS [SUBMISSIONS]`.

Points are before and after every write to the journal and every call of the executor that changes
something; POINT 0 is none. `SUBMISSIONS` is a JSON file of jobs, submitted once. The process ends
when all jobs have, with status 0, or after SECONDS with status 3.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from optsched import Job, Profile
from optsched.control.controller import Controller
from optsched.control.journal.events import Submitted
from optsched.control.opening import opened
from optsched.control.settings import read_settings
from optsched.control.submission import Submission


class Points:
    """Counts the points and dies at one of them."""

    def __init__(self, last: int) -> None:
        self.last, self.passed = last, 0

    def pass_one(self) -> None:
        self.passed += 1
        if self.passed == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def guard(self, target: Any, *names: str) -> None:
        for name in names:
            setattr(target, name, self._guarded(getattr(target, name)))

    def _guarded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **named: Any) -> Any:
            self.pass_one()
            found = call(*args, **named)
            self.pass_one()
            return found

        return guarded


def submission(entry: dict[str, Any]) -> Submission:
    """A job of the file."""
    profile = Profile(
        checkpoint_s=entry.get("checkpoint_s", 0.2), restore_s=entry.get("restore_s", 0.2)
    )
    job = Job(id=entry["id"], gpus=entry["gpus"], duration_s=entry["duration_s"], profile=profile)
    return Submission(
        job=job,
        argv=tuple(entry["argv"]),
        directory=entry["directory"],
        grace_s=entry.get("grace_s", 20.0),
        environment=entry.get("environment", {}),
        retries=entry.get("retries", 0),
    )


def turn_until_done(controller: Controller, waiting: list[Submission], seconds: float) -> int:
    """Turns, each with one more job submitted; whether all have finished in time."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if waiting:
            one = waiting.pop(0)
            if one.job.id not in controller.state.jobs:
                controller.record(Submitted(submission=one))
        controller.step()
        if not waiting and not controller.state.open:
            return 0
        controller.executor.changes(0.05)
    return 3


def main() -> int:
    cluster, point, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    jobs = json.loads(Path(sys.argv[4]).read_text()) if len(sys.argv) > 4 else []
    points = Points(point)
    with opened(read_settings(cluster)) as controller:
        points.guard(controller.journal, "append", "add_round")
        points.guard(controller.executor, "start", "checkpoint_stop", "kill", "forget")
        status = turn_until_done(controller, [submission(entry) for entry in jobs], seconds)
    print(points.passed)
    return status


if __name__ == "__main__":
    sys.exit(main())
