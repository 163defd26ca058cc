"""A controller and real processes in a folder, turned by the test."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from optsched import Job, Profile
from optsched.control.controller import Controller
from optsched.control.journal.events import Submitted
from optsched.control.journal.state import LiveJob
from optsched.control.opening import opened
from optsched.control.settings import read_settings
from optsched.control.submission import Submission

TOML = """
format = "optsched-cluster/1"
budget = "5s"
keep_free_gib = {keep_free_gib}
[[nodes]]
name = "n0"
gpus = {gpus}
emulate = true
memory_gib = 8
"""
PYTHON = (sys.executable, "-S", "-E", "-c")


class Lab:
    """The controller, and what a test asks of it."""

    def __init__(self, controller: Controller, folder: Path) -> None:
        self.controller, self.folder = controller, folder

    def submit(
        self,
        name: str,
        *argv: str,
        gpus: int = 1,
        believed_s: float = 10.0,
        grace_s: float = 20.0,
        retries: int = 0,
        directory: Path | None = None,
        memory_gib: float = 0.0,
    ) -> None:
        profile = Profile(checkpoint_s=0.1, memory_gib_per_gpu=memory_gib)
        self.controller.record(
            Submitted(
                submission=Submission(
                    job=Job(id=name, gpus=gpus, duration_s=believed_s, profile=profile),
                    argv=argv,
                    grace_s=grace_s,
                    directory=str(directory or self.folder),
                    retries=retries,
                )
            )
        )

    def job(self, name: str) -> LiveJob:
        return self.controller.state.jobs[name]

    def until(self, done: Callable[[], bool], timeout_s: float = 90.0) -> None:
        """Turns until `done`."""
        end_s = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < end_s, {
                name: job.status for name, job in self.controller.state.jobs.items()
            }
            self.controller.step()
            self.controller.executor.changes(0.05)

    def until_finished(self, *names: str, timeout_s: float = 90.0) -> None:
        self.until(lambda: all(self.job(name).finished is not None for name in names), timeout_s)


def _raised(what: str, error: Exception) -> None:
    raise error


@contextmanager
def lab(folder: Path, gpus: int = 4, keep_free_gib: float = 0.25) -> Iterator[Lab]:
    """A controller over one node with emulated GPUs."""
    (folder / "cluster.toml").write_text(TOML.format(gpus=gpus, keep_free_gib=keep_free_gib))
    with opened(read_settings(folder / "cluster.toml")) as controller:
        controller.bug = _raised
        yield Lab(controller, folder)
