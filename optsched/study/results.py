"""The folder of a study: instances it made, one file a finished run, each written whole or not at
all."""

import json
from dataclasses import field
from pathlib import Path
from typing import Any

from .. import files
from ..errors import InputError
from ..frozen import record
from .address import code_version, digest
from .design import Run, arguments

MARK = "study.json"
KIND = "optsched-study-results/1"
STORED = ("answer", "reason", "wall_s", "cpu_s", "memory_gib", "made_on")
"""What is written down of a result, beside the run that it is of."""


@record
class Result:
    """A run with what it left; `answer` is None where it failed. `address` names its files in the
    folder, and is empty where it was not run because it has no instance; `made_on` has versions and
    machine."""

    run: Run
    answer: dict[str, Any] | None
    reason: str | None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_gib: float = 0.0
    made_on: dict[str, str] = field(default_factory=dict)
    address: str = ""

    @property
    def failed(self) -> bool:
        return self.answer is None


class Results:
    """Finished runs by what they depend on, so that none is ever repeated and a changed one always
    is.

    Raises InputError for a folder that holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        mark = folder / MARK
        if folder.exists() and not folder.is_dir():
            raise InputError(f"-o {folder} is a file; name a directory")
        if folder.exists() and any(folder.iterdir()) and not mark.exists():
            raise InputError(
                f"-o {folder} holds other files and no study; name a new or an empty directory"
            )
        try:
            for name in ("runs", "instances"):
                (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"-o {folder}: cannot be written: {error.strerror or error}") from None
        files.write_text(mark, json.dumps({"format": KIND}) + "\n")

    def instance_path(self, make: str) -> Path:
        """Return where the instance that a command makes is kept: it is made anew when the command,
        the code, or a file that the command reads changes."""
        reads = _read_by(make)
        return self.folder / "instances" / f"{digest(make, reads, code_version(make))}.json.gz"

    def address(
        self, run: Run, instance_hash: str, limits: tuple[float, float], plans: bool = False
    ) -> str:
        """Return what the result of a run depends on, as one name; runs that keep their plans have
        names of their own."""
        return digest(
            instance_hash,
            run.command,
            limits,
            code_version(run.command),
            *_read_by(run.command),
            *(["plans"] if plans else []),
        )

    def beside(self, address: str, name: str) -> Path:
        """Return where a file of a run is kept beside its answer."""
        return self.folder / "runs" / f"{address}.{name}"

    def find(self, run: Run, address: str) -> Result | None:
        """Return the result of a run that has been finished before."""
        try:
            stored = json.loads((self.folder / "runs" / f"{address}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return Result(run=run, address=address, **{name: stored[name] for name in STORED})

    def keep(self, result: Result, kept: dict[str, bytes]) -> None:
        """Write a result down, the files beside it first. Raises InputError naming the file that
        cannot be written."""
        run, address = result.run, result.address
        for name, data in kept.items():
            files.write_bytes(self.beside(address, name), data)
        files.write_text(
            self.folder / "runs" / f"{address}.json",
            json.dumps(
                {
                    "instance": run.instance,
                    "method": run.method,
                    "parameters": dict(run.parameters),
                    "command": run.command,
                    "version": code_version(run.command),
                    **{name: getattr(result, name) for name in STORED},
                }
            )
            + "\n",
        )


def _read_by(command: str) -> list[tuple[str, int, int]]:
    """Return the files that a command names, also as the value of an option (`weights=FILE`), as
    they are now."""
    reads = []
    for word in arguments(command):
        for name in dict.fromkeys((word, word.rpartition("=")[2])):
            path = Path(name)
            if name and path.exists():
                status = path.stat()
                reads.append((name, status.st_size, status.st_mtime_ns))
    return reads
