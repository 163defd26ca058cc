"""Makes a training loop preemptible: it saves and stops when asked to, goes on where it was, and
reports its steps.

    from optsched.training import Training

    training = Training(total_steps=1000, save=save, load=load)  # save(path) writes, load(path)
    reads for step in training.steps():
        ...

Under a controller the environment says where checkpoints and reports go (docs/jobs.md); without one
the loop just runs, with `checkpoint_directory` as the place for checkpoints. Standard library only.
"""

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

SAVED_AND_STOPPED = 85
"""Exit status that says: saved as asked, start me again."""
REPORT_EVERY_S = 0.5
REPORT_SHARE = 0.01
"""Of the time at most goes into reports; on a slow disk they become rarer."""
CHECKPOINT = re.compile(r"checkpoint-(\d{1,18})")


class Training:
    """The steps of one training job, through any number of attempts.

    A checkpoint counts once it is complete: `save` gets a path where nothing is, makes a file or a
    folder there, and that is synced, renamed to `checkpoint-<steps done>`, and only then are older
    ones removed.
    """

    def __init__(
        self,
        *,
        save: Callable[[Path], object] | None = None,
        load: Callable[[Path], object] | None = None,
        total_steps: int | None = None,
        checkpoint_directory: str | Path | None = None,
        every_s: float | None = None,
        agree: Callable[[bool], bool] | None = None,
    ) -> None:
        """Read the latest checkpoint, if any, and from now on remember a request to stop.

        `save` without `load`, or the other way round, raises ValueError; without both nothing is
        saved, and a request to stop ends the process as usual. `total_steps` None goes on until the
        loop is left. `every_s` saves that many seconds after the last time as well. In a gang only
        rank 0 (`RANK`, else `OPTSCHED_NODE_RANK`) saves and reports, all ranks load; `agree` is
        called by every rank before each step and is to return whether any of them was given True,
        so that all stop before the same step. Must be made in the main thread.
        """
        if (save is None) != (load is None):
            raise ValueError(
                "save and load belong together: give both, or neither for a loop that cannot be "
                "resumed"
            )
        where = checkpoint_directory or os.environ.get("OPTSCHED_CHECKPOINT_DIR")
        if save is not None and not where:
            raise ValueError(
                "nothing says where to save: give checkpoint_directory or set "
                "OPTSCHED_CHECKPOINT_DIR"
            )
        self._save, self._load, self._agree = save, load, agree
        self._folder = Path(where or ".")
        self._every_s = every_s
        self._report_to = os.environ.get("OPTSCHED_PROGRESS")
        self._report_due_s = 0.0
        self.rank = int(os.environ.get("RANK") or os.environ.get("OPTSCHED_NODE_RANK") or 0)
        self.total_steps = total_steps
        self.step = 0
        """Steps done, those of earlier attempts included."""
        self.asked = False
        """Whether this process was asked to save and stop; a long step may look and end early."""
        self._progress: dict[str, Any] = {}
        if save is not None:
            for number in (signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, self._ask)
            self._restore()
        self._saved_at_s = time.monotonic()
        self._progress |= {
            "first_step": self.step,
            "began_s": time.time(),
            "total_steps": total_steps,
        }
        if save is not None:
            self._progress["saves"] = True

    def steps(self) -> Iterator[int]:
        """Yield the numbers of the steps to do, from 0 or where the last checkpoint was.

        A request to stop, once the step at hand is done, saves and raises SystemExit with status
        85. After the last step a checkpoint is written, so that a job that is started once more has
        nothing left to do.
        """
        self._report()
        while self.total_steps is None or self.step < self.total_steps:
            if self.asked if self._agree is None else self._agree(self.asked):
                self.checkpoint()
                sys.exit(SAVED_AND_STOPPED)
            yield self.step
            self.step += 1
            now_s = time.monotonic()
            if self._every_s is not None and now_s >= self._saved_at_s + self._every_s:
                self.checkpoint()
            elif now_s >= self._report_due_s:
                self._report()
        self.checkpoint()
        self._report()

    def checkpoint(self) -> None:
        """Save now, between two steps; nothing where these steps are saved already, or without
        `save`."""
        self._saved_at_s = time.monotonic()
        if self._save is None or self.rank != 0 or self._progress.get("saved_step") == self.step:
            return
        began_s = time.monotonic()
        self._folder.mkdir(parents=True, exist_ok=True)
        for stale in self._folder.glob(".checkpoint-*.part"):
            _remove(stale)
        part = self._folder / f".checkpoint-{self.step}.part"
        done = self._folder / f"checkpoint-{self.step}"
        try:
            self._save(part)
            _sync(part)
            _remove(done)
            part.rename(done)
        except BaseException:
            _remove(part)
            raise
        _sync_folder(self._folder)
        for step, older in self._checkpoints():
            if step != self.step:
                _remove(older)
        self._saved_at_s = time.monotonic()
        self._progress |= {
            "saved_step": self.step,
            "saved_at_s": time.time(),
            "checkpoint_s": self._saved_at_s - began_s,
        }
        self._report()

    def _restore(self) -> None:
        checkpoints = self._checkpoints()
        if not checkpoints or self._load is None:
            return
        step, path = max(checkpoints)
        began_s = time.monotonic()
        self._load(path)
        self.step = step
        self._progress |= {"restore_s": time.monotonic() - began_s, "saved_step": step}

    def _checkpoints(self) -> list[tuple[int, Path]]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        matches = [(CHECKPOINT.fullmatch(name), name) for name in names]
        return [(int(match.group(1)), self._folder / name) for match, name in matches if match]

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def _report(self) -> None:
        """Say how far it is; a report that cannot be written is left out, for training goes on."""
        if self._report_to is None or self.rank != 0:
            self._report_due_s = float("inf")
            return
        began_s = time.monotonic()
        record = {"step": self.step, "at_s": time.time(), **self._progress}
        made = f"{self._report_to}.{os.getpid()}.tmp"
        with suppress(OSError):
            with open(made, "w") as file:
                json.dump(record, file)
            os.replace(made, self._report_to)
        cost_s = time.monotonic() - began_s
        self._report_due_s = began_s + max(REPORT_EVERY_S, cost_s / REPORT_SHARE)


def _sync(path: Path) -> None:
    """Make a file, or a folder and all in it, survive a power failure."""
    if path.is_dir():
        for folder, _, files in os.walk(path, topdown=False):
            for name in files:
                _sync_folder(Path(folder) / name)
            _sync_folder(Path(folder))
    else:
        _sync_folder(path)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
