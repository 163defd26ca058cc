"""What is kept of one attempt on disk, and what that says about where it is.

`attempts/<job>/<number>/` holds `spec.json` (there before anything starts), `stop.json` (it is to
end), `signal.json` (the last signal for its commands), `failed.json` (which node of a gang failed
first), `progress/progress.json` (written by the command) and a folder a node with `pid.json`,
`exit.json`, `stdout` and `stderr`. Only `progress` belongs to the command's user: nobody else's
decisions hang on files that a user can change.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..base import AttemptKey, Entry, Progress, Record
from ..supervision import cgroups, processes, records

RESTARTED = "the host was restarted"
SUPERVISOR_KILLED = "its supervisor was killed"
NEVER_STARTED = "was never started"


def folder_mode() -> int:
    """Return the mode of folders of attempts: below root's, users reach their own output."""
    return 0o711 if os.geteuid() == 0 else 0o700


def keys(folder: Path) -> Iterator[AttemptKey]:
    """Yield attempts that were started or killed below `folder` and are not forgotten."""
    for job in sorted(_folders(folder)):
        for number in sorted(int(name) for name in _folders(folder / job) if name.isdecimal()):
            key = AttemptKey.parse(f"optsched:{job}:{number}")
            path = folder / job / str(number)
            if key and any((path / name).exists() for name in ("spec.json", "stop.json")):
                yield key


def _folders(folder: Path) -> list[str]:
    return [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]


def _make_for(folder: Path, user: Entry) -> None:
    """Make a folder of a user's own where that user could make none. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:  # of an attempt before, or the user's own
        return
    os.chown(folder, user["uid"], user["gid"])


def _clear_of_others(folder: Path) -> None:
    """Remove a folder that is a user's: one that was left of another job of this name, in which
    there may be links. Raises OSError."""
    with suppress(FileNotFoundError):
        if folder.lstat().st_uid != os.geteuid():
            shutil.rmtree(folder)


def _make_passable(folder: Path) -> None:
    """Make a folder for output, and the two above it, which are of the attempt and the job. Raises
    OSError."""
    for each in (folder.parent.parent, folder.parent, folder):
        each.mkdir(mode=folder_mode(), exist_ok=True)


class Report:
    """The file in which a command reports its progress."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[tuple[int, int], Progress | None] | None = None

    def progress(self) -> Progress | None:
        """Return what it last reported, read again when it has changed; None where that is nothing
        or makes no sense."""
        try:
            there = os.lstat(self._path)
        except OSError:
            return None
        stamp = (there.st_mtime_ns, there.st_ino)
        if self._read is None or self._read[0] != stamp:
            self._read = (stamp, None)
            with suppress(OSError):
                self._read = (stamp, Progress.reported(records.read(self._path) or {}))
        return self._read[1]


class AttemptFolder:
    """The files of one attempt."""

    def __init__(self, attempts: Path, key: AttemptKey) -> None:
        self.key = key
        self.path = attempts / key.job / str(key.number)
        self.spec: Record = records.read(self.path / "spec.json") or {}
        self.damaged = not self.spec and (self.path / "spec.json").exists()
        self._report = Report(self.progress_path)

    @property
    def nodes(self) -> list[Record]:
        return list(self.spec.get("nodes", ()))

    @property
    def progress_path(self) -> Path:
        return self.path / "progress" / "progress.json"

    def output(self) -> str | None:
        """Return where rank 0 prints."""
        return f"{self.output_folder(self.nodes[0])}/stdout" if self.nodes else None

    def output_folder(self, node: Entry) -> str:
        """Return where a node's command prints."""
        return str(node.get("output") or self.path / node["name"])

    def prepare(self, spec: Record) -> None:
        """Make folders, take room on the disk, and last write `spec`, from where on the attempt
        exists.

        Raises OSError; then nothing is left.
        """
        try:
            own = [self.path / node["name"] for node in spec["nodes"]]
            for folder in own:
                _clear_of_others(folder)
            for folder in (self.path.parent, self.path, *own):
                folder.mkdir(mode=folder_mode(), exist_ok=True)
                folder.chmod(folder_mode())  # whatever the umask is
            for folder, node in zip(own, spec["nodes"], strict=True):
                _make_passable(Path(self.output_folder(node)))
                records.reserve(folder / "pid.json")
                records.reserve(folder / "exit.json")
            self.progress_path.parent.mkdir(mode=0o700, exist_ok=True)
            user, checkpoints = spec["user"], spec["checkpoint_directory"]
            if user is not None:
                os.chown(self.progress_path.parent, user["uid"], user["gid"])
            if user is not None and checkpoints:
                _make_for(Path(checkpoints), user)
            records.reserve(self.path / "stop.json")
            records.write(self.path / "spec.json", spec)
            records.sync_folder(self.path.parent)
        except OSError:
            self.spec = spec
            self.remove(outputs=True)
            self.spec = {}
            raise
        self.spec = spec

    def give(self, user: Entry) -> None:
        """Let supervisors that run as `user` read what to run, and write how it ended. Raises
        OSError.

        Each node has a copy of what to run: groups have other members, and the one read here stays
        out of reach.
        """
        for node in self.nodes:
            folder = self.path / node["name"]
            records.write(folder / "spec.json", self.spec)
            folder.chmod(0o700)
            for path in (*folder.iterdir(), folder):  # it last, or others could be put there
                os.chown(path, user["uid"], user["gid"], follow_symlinks=False)
        os.chmod(self.path / "stop.json.reserve", 0o644)

    def stop_record(self) -> Record | None:
        return records.read(self.path / "stop.json")

    def write_stop(self, record: Record) -> None:
        """Say that the attempt is to end. Raises OSError."""
        for folder in (self.path.parent, self.path):
            folder.mkdir(mode=folder_mode(), exist_ok=True)
        records.write_reserved(self.path / "stop.json", record)

    def write_signal(self, number: int) -> None:
        """Say that the commands are to get a signal, after those that were said before. Raises
        OSError."""
        path = self.path / "signal.json"
        before = records.read(path) or {"count": 0}
        made = path.with_suffix(".tmp")
        made.write_text(json.dumps({"count": before["count"] + 1, "signal": number}))
        made.chmod(0o644)  # supervisors may be the job's user
        made.replace(path)

    def exit(self, node: str) -> Record | None:
        return records.read(self.path / node / "exit.json")

    @contextmanager
    def locked(self, node: str) -> Iterator[bool]:
        """Keep supervisors of a node from beginning; False while there is one."""
        descriptor = os.open(self.path / node, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        try:
            yield alone
        finally:
            os.close(descriptor)

    def write_exit(
        self, node: str, reason: str | None, started_s: float | None, status: int | None = None
    ) -> None:
        """Say in its supervisor's stead how a command ended. Raises OSError."""
        ending = records.ending(status, reason, started_s)
        records.write_reserved(self.path / node / "exit.json", ending)

    def kill_leftovers(self, node: Record, shim: processes.Identity | None) -> bool:
        """Kill what runs on although its supervisor is gone; True once nothing does."""
        groups = cgroups.Groups(dict(node["cgroups"]))
        return processes.kill_leftovers(groups, shim, str(self.path), node["name"])

    def progress(self) -> Progress | None:
        """Return what the command last reported."""
        return self._report.progress()

    def remove(self, outputs: bool) -> None:
        """Remove it all; without `outputs` what the command printed stays."""
        kept = () if outputs else ("stdout", "stderr")
        shutil.rmtree(
            self.progress_path.parent, ignore_errors=True
        )  # another user's: safe against links put there
        # some of the folders are another user's, who may put a link in the place of one meanwhile
        with suppress(OSError):
            for folder, folders, files, at in os.fwalk(self.path, topdown=False):
                for name in files:
                    if name not in kept or folder == str(self.path):
                        with suppress(OSError):
                            os.unlink(name, dir_fd=at)
                for name in folders:
                    with suppress(OSError):
                        os.rmdir(name, dir_fd=at)
        for node in self.nodes if outputs else ():
            if node.get("output"):
                shutil.rmtree(node["output"], ignore_errors=True)
        for folder_path in (self.path, self.path.parent):
            with suppress(OSError):
                folder_path.rmdir()
