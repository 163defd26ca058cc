"""One run of a study in a process of its own: limited in time and memory, on one thread."""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..duration import human
from .design import arguments

ONE_THREAD = {name: "1" for name in (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "POLARS_MAX_THREADS",
)}
PR_SET_PDEATHSIG = 1
GIB = 1 << 30
POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run left: `answer` is what the command printed, or None where it failed; `reason` then says why.
    `wall_s` and `cpu_s` are the run's own, start of Python included; `memory_gib` is the most it held."""

    answer: dict[str, Any] | None
    reason: str | None
    wall_s: float
    cpu_s: float
    memory_gib: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_command(command: str, instance: Path | None, *, time_limit_s: float, memory_gib: float,
                output: Path | None = None) -> Outcome:
    """Run `optsched COMMAND [INSTANCE]`; with `output` it writes an instance there, else its JSON is the answer."""
    words = arguments(command)
    line = [sys.executable, "-m", "optsched", words[0]]
    if instance is not None:
        line.append(str(instance))
    line += words[1:]
    if output is not None:
        line += ["-o", str(output), "--quiet"]
    else:
        line.append("--json")
        if words[0] == "solve" and "--workers" not in words:
            line += ["--workers", "1"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started_s = time.perf_counter()
        process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            env={**os.environ, **ONE_THREAD}, preexec_fn=lambda: _limit(memory_gib),
        )
        try:
            status, used = _wait(process, started_s + time_limit_s)
        except BaseException:
            _kill(process)
            raise
        spent = {"wall_s": time.perf_counter() - started_s, "cpu_s": used.ru_utime + used.ru_stime,
                 "memory_gib": used.ru_maxrss * 1024 / GIB}
        for file in (out, err):
            file.seek(0)
        if status is None:
            return Outcome(answer=None, reason=f"stopped after {human(time_limit_s)}", **spent)
        if status != 0:
            return Outcome(answer=None, reason=_why(status, err.read(), memory_gib), **spent)
        if output is not None:
            return Outcome(answer={}, reason=None, **spent)
        try:
            return Outcome(answer=json.loads(out.read()), reason=None, **spent)
        except ValueError:
            return Outcome(answer=None, reason="printed no JSON", **spent)


def _wait(process: subprocess.Popen[bytes], until_s: float) -> tuple[int | None, resource.struct_rusage]:
    """The exit status, None for a run that had to be stopped, and what it has used with all its children."""
    stopped = False
    while True:
        pid, status, used = os.wait4(process.pid, 0 if stopped else os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)  # so that nobody waits for it again
            return (None if stopped else process.returncode), used
        if time.perf_counter() > until_s:
            _kill(process)
            stopped = True
        time.sleep(POLL_S)


def _limit(memory_gib: float) -> None:
    """In the child: die with the parent, and hold no more memory than allowed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    most = int(memory_gib * GIB)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the run with all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()


def _why(status: int, err: bytes, memory_gib: float) -> str:
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    if any("MemoryError" in line or "bad_alloc" in line for line in lines):
        return f"needs more than {memory_gib:g} GiB of memory"
    return lines[0].removeprefix("optsched: ") if lines else f"exit status {status}"
