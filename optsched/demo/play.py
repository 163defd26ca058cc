"""Plays the scenario: real processes on an emulated cluster, driven by the controller."""

import time
from collections.abc import Callable
from pathlib import Path

from ..control.controller import Controller
from ..control.journal.events import Event, Submitted
from ..control.opening import opened
from ..control.settings import read_settings
from ..errors import OptschedError
from ..files import write_text
from .scenario import ARRIVALS, CLUSTER

LONGEST_S = 240.0
"""A machine that needs longer is too slow to show anything."""


def play(folder: Path, listener: Callable[[float, Event], None] | None = None) -> Controller:
    """Run all jobs of the scenario below `folder` to their end; the controller as it is then,
    closed.

    Raises InputError where the folder cannot be used, OptschedError where the jobs take far too
    long.
    """
    folder = folder.absolute()
    write_text(folder / "cluster.toml", CLUSTER)
    with opened(read_settings(folder / "cluster.toml")) as controller:
        if listener is not None:
            controller.listeners.append(listener)
        controller.step()
        controller.decide()  # loads what deciding needs before the first job comes
        try:
            _turn(controller, folder)
        finally:
            for attempt in (
                controller.state.live_attempts()
            ):  # interrupted: nothing of a demonstration goes on
                controller.executor.kill(attempt.key)
        return controller


def _turn(controller: Controller, folder: Path) -> None:
    """Take turns until all that comes has come and ended. Later jobs come as long after the first
    ones run as they come after the start of the scenario, however slow the machine is."""
    begun_s, first_run_s = time.monotonic(), None
    coming = list(ARRIVALS)
    while coming or controller.state.open:
        now_s = time.monotonic()
        if now_s - begun_s > LONGEST_S:
            raise OptschedError(
                f"the jobs of the demo did not end within {LONGEST_S:g} s; is this machine very "
                "busy?"
            )
        jobs = controller.state.jobs.values()
        if first_run_s is None and jobs and all(job.status == "running" for job in jobs):
            first_run_s = now_s
        passed_s = 0.0 if first_run_s is None else now_s - first_run_s
        due = [arrival for arrival in coming if arrival.at_s <= passed_s]
        controller.record(*(Submitted(submission=arrival.submission(folder)) for arrival in due))
        coming = [arrival for arrival in coming if arrival not in due]
        wait_s = controller.step()
        next_s = min((arrival.at_s for arrival in coming), default=LONGEST_S) - passed_s
        controller.executor.changes(max(0.0, min(wait_s, next_s, 1.0)))
