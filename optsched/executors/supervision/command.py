"""The process a shim starts: made, held back until it is recorded, then become the user's command.

The shim imports this file by itself, without the package: standard library only, and little of it.
"""

import errno
import os
import signal
from contextlib import suppress

TYPE_CHECKING = False  # importing `typing` would cost each shim milliseconds
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from .output import Output

NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Exit status where the command could not be run, as of a shell."""
ALL_SIGNALS = signal.valid_signals()


class Command:
    """A process that waits for `go` before it becomes the command; it ends if the shim ends
    before."""

    def __init__(self, output: "Output", spec: "dict[str, Any]", node: "dict[str, Any]") -> None:
        held, self._gate = os.pipe()
        self._said, say = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            _become(held, say, output, spec, node)
        os.close(held)
        os.close(say)
        output.keep()
        with suppress(OSError):  # the child was faster
            os.setpgid(self.pid, self.pid)

    def go(self) -> str | None:
        """Let it become the command; why it could not, else None."""
        os.write(self._gate, b".")
        os.close(self._gate)
        words = b""
        while more := os.read(self._said, 4096):  # ends when the command's program is in place
            words += more
        os.close(self._said)
        return words.decode(errors="replace") or None

    def cancel(self) -> None:
        """Do not let it."""
        os.kill(
            self.pid, signal.SIGKILL
        )  # before the gate closes, which would end it too, with another status
        os.close(self._gate)
        os.close(self._said)

    def signal(self, number: int) -> None:
        """Send a signal to its process group, stopped processes included."""
        for each in (number, signal.SIGCONT):
            try:
                os.killpg(self.pid, each)
            except ProcessLookupError:
                return


def _become(
    held: int, say: int, output: "Output", spec: "dict[str, Any]", node: "dict[str, Any]"
) -> "NoReturn":
    words, status = "", NOT_RUNNABLE
    try:
        os.setpgid(0, 0)
        if os.read(held, 1) != b".":
            os._exit(NOT_RUNNABLE)
        argv, environment = spec["argv"], {**spec["environment"], **node["environment"]}
        words = "its cores cannot be used"
        if node["cores"] is not None:
            os.sched_setaffinity(0, node["cores"])
        words = "its output files cannot be made"
        output.attach()
        os.get_exec_path(
            environment
        )  # imports what a search needs while Python's own files can be read
        words = "it cannot run as its user"
        if spec["user"] is not None:
            os.setgroups(spec["user"]["groups"])
            os.setgid(spec["user"]["gid"])
            os.setuid(spec["user"]["uid"])
        words = f"its folder for checkpoints {spec['checkpoint_directory']} cannot be made"
        if spec["checkpoint_directory"]:
            os.makedirs(spec["checkpoint_directory"], mode=0o700, exist_ok=True)
        words = f"its directory {spec['directory']} cannot be entered"
        os.chdir(spec["directory"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL_SIGNALS)
        words = f"its command {argv[0]} cannot be run"
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and words.startswith("its command"):
            words, status = f"its command {argv[0]} is not found", NOT_FOUND
        else:
            words += f": {error.strerror}"
    except Exception as error:
        words += f": {error}"
    os.write(say, words.encode(errors="replace")[:1000])
    os._exit(status)
