"""Slurm's own programs, each given a time to answer: some wait a minute for a controller that is
down."""

import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from ...errors import InputError
from ..base import NoAnswerError, RefusedError, in_one_line

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
UNSURE = (
    "unable to contact",
    "timed out",
    "zero bytes",
    "communication",
    "connection",
    "connect failure",
    "transport",
    "temporarily",
    "slurmctld",
    "slurm_load",
    "standby",
    "authentication",
    "resource busy",
)
"""Words of Slurm's messages after which it is not known whether it was done."""
NOT_UNDERSTOOD = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading something else than was expected ends with."""
DEAF_S = 5.0
"""After no answer came for so long nobody is asked again."""
MOST_BYTES, PIECE_BYTES = 256 << 20, 1 << 20
"""So much of an answer is read: users fill it with jobs, names and comments."""


@contextmanager
def answered() -> Iterator[None]:
    """Raise NoAnswerError where Slurm refuses to say something, or what can be asked again."""
    try:
        yield
    except RefusedError as error:
        raise NoAnswerError(str(error)) from None


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Raise NoAnswerError where what Slurm says of `what` is something else."""
    try:
        yield
    except NOT_UNDERSTOOD as error:
        said = in_one_line(repr(error))
        raise NoAnswerError(f"what Slurm says of its {what} is not understood: {said}") from None


class SlurmClient:
    """Runs Slurm's programs. `patience_s` is what each gets."""

    def __init__(
        self, patience_s: float, conf: Path | None = None, programs: Path | None = None
    ) -> None:
        """Take `conf`, the slurm.conf to use, and `programs`, the folder of Slurm's programs, where
        they are not to be found as usual. Raises InputError where a program or that file is
        missing."""
        self.patience_s = patience_s
        if conf is not None and not conf.is_file():
            raise InputError(
                f"slurm.conf: there is no file {conf}; name that of the cluster, or leave it out"
            )
        path = os.environ.get("PATH", os.defpath) if programs is None else str(programs)
        self.srun = "srun" if programs is None else str(programs / "srun")
        self._programs = {name: shutil.which(name, path=path) or "" for name in PROGRAMS}
        missing = [name for name, at in self._programs.items() if not at]
        if missing:
            raise InputError(
                f"Slurm's programs {', '.join(missing)} are not found; install Slurm's client, "
                "or name their folder as programs in [slurm]"
            )
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "SLURM_BITSTR_LEN": "0",  # tasks of arrays are listed whole
        }
        named = conf or os.environ.get("SLURM_CONF")
        self.where = {} if named is None else {"SLURM_CONF": str(named)}
        """Variables that lead users' own programs to this cluster."""
        self._environment |= self.where
        self._deaf: tuple[float, str] | None = None

    def ask(self, program: str, *words: str, given: str = "", unix_times: bool = False) -> str:
        """Return what a program prints that reads `given`, its times as people read them or in
        seconds since the epoch.

        Raises NoAnswerError where it is not known whether it was done, RefusedError where it
        certainly was not.
        """
        if self._deaf is not None and time.monotonic() < self._deaf[0]:
            raise NoAnswerError(self._deaf[1])
        times = {"SLURM_TIME_FORMAT": "%s"} if unix_times else {}
        try:
            with open(os.memfd_create(program), "w+b", buffering=0) as file:
                file.write(given.encode())
                file.seek(0)
                process = subprocess.Popen(
                    [self._programs[program], *words],
                    env={**self._environment, **times},
                    cwd="/",
                    stdin=file,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
        except OSError as error:
            raise NoAnswerError(f"{program} cannot be run: {error.strerror}") from None
        with process:
            printed, said = self._answer(program, process)
        if process.returncode == 0:
            self._deaf = None
            return printed
        lines = said.strip().splitlines()
        words_said = in_one_line(" ".join(line.partition("error: ")[2] or line for line in lines))
        told = words_said or f"it ended with exit status {process.returncode}"
        if process.returncode < 0 or any(word in said.lower() for word in UNSURE):
            raise NoAnswerError(f"{program}: {told}")
        raise RefusedError(f"{program}: {told}")

    def config(self) -> dict[str, str]:
        """Return Slurm's settings. Raises as `ask` does."""
        text = self.ask("scontrol", "show", "config")
        return dict(re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", text, re.MULTILINE))

    def _answer(self, program: str, process: "subprocess.Popen[bytes]") -> tuple[str, str]:
        """Return what a program prints, and says of errors, once it has ended. Raises
        NoAnswerError."""
        printed, said = bytearray(), bytearray()
        until_s = time.monotonic() + self.patience_s
        late = f"{program} did not answer within {self.patience_s:g} s"
        with selectors.DefaultSelector() as selector:
            for pipe, read in ((process.stdout, printed), (process.stderr, said)):
                assert pipe is not None
                selector.register(pipe, selectors.EVENT_READ, read)
            while selector.get_map():
                ready = selector.select(max(0.0, until_s - time.monotonic()))
                if not ready or time.monotonic() > until_s:
                    self._give_up(process, late)
                for key, _ in ready:
                    piece = os.read(key.fd, PIECE_BYTES)
                    if not piece:
                        selector.unregister(key.fileobj)
                    key.data.extend(piece)
                if len(printed) + len(said) > MOST_BYTES:
                    self._give_up(process, f"{program} printed more than {MOST_BYTES >> 20} MiB")
        try:
            process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._give_up(process, late)
        return printed.decode(errors="replace"), said.decode(errors="replace")

    def _give_up(self, process: "subprocess.Popen[bytes]", told: str) -> NoReturn:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._deaf = (time.monotonic() + DEAF_S, told)
        raise NoAnswerError(told)
