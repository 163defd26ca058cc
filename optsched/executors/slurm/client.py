"""Slurm's own programs, each given a time to answer: some wait a minute for a controller that is
down."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
            process = subprocess.Popen(
                [self._programs[program], *words],
                env={**self._environment, **times},
                cwd="/",
                text=True,
                errors="replace",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise NoAnswerError(f"{program} cannot be run: {error.strerror}") from None
        try:
            printed, said = process.communicate(given, self.patience_s)
        except subprocess.TimeoutExpired:
            return self._give_up(program, process)
        if process.returncode == 0:
            self._deaf = None
            return str(printed)
        words_said = " ".join(
            line.partition("error: ")[2] or line for line in said.strip().splitlines()
        )
        told = words_said or f"it ended with exit status {process.returncode}"
        if process.returncode < 0 or any(word in said.lower() for word in UNSURE):
            raise NoAnswerError(f"{program}: {told}")
        raise RefusedError(f"{program}: {told}")

    def config(self) -> dict[str, str]:
        """Return Slurm's settings. Raises as `ask` does."""
        text = self.ask("scontrol", "show", "config")
        return dict(re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", text, re.MULTILINE))

    def _give_up(self, program: str, process: "subprocess.Popen[str]") -> str:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        process.wait()
        told = f"{program} did not answer within {self.patience_s:g} s"
        self._deaf = (time.monotonic() + DEAF_S, told)
        raise NoAnswerError(told)
