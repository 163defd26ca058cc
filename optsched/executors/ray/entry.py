"""The entrypoint of a Ray job: `python3 -S -E entry.py FOLDER_OF_THE_NODE`.

It holds what Ray gave the job, for as long as the supervisor runs that it starts. Ray's SIGTERM (to
it and all below it) and SIGKILL do not reach the supervisor, which is a child of its own session:
it is told to look, and ends what it supervises when this process is gone.

Runs on nodes without the package (see `program`): standard library only.
"""

import os
import select
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..supervision import cgroups, processes, records
    from ..supervision.supervisor import HEARD, LOOK
    from .supervising import RaySupervisor
else:
    import cgroups
    import processes
    import records
    from supervising import RaySupervisor
    from supervisor import HEARD, LOOK

TOLD = (signal.SIGTERM, signal.SIGINT)
CLEAR_EVERY_S = 0.05
SUPERVISOR_KILLED = "its supervisor was killed"


def hold(folder: str) -> int:
    """Supervise the node's command unless that was done before or must not be done any more; its
    exit status."""
    above = os.path.dirname(folder)
    spec = records.read(f"{above}/spec.json")
    if spec is None:
        return 0  # forgotten
    if not records.write_first(
        f"{folder}/claim.json", {"by": "ray", "pid": os.getpid(), "at_s": time.time()}
    ):
        return 0  # nobody runs a claim that another has
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in TOLD:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TOLD)
    supervisor = _start_supervisor(folder, spec)
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 1024)
            stop = records.stop(spec["grace_s"])
            records.write_first(f"{above}/stop.json", stop)  # somebody used `ray job stop`
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(supervisor, LOOK)
        if supervisor in ready:
            break
    ending = records.read(f"{folder}/exit.json")
    if ending is None:
        _clear(folder, spec)
    return processes.shell_status(None if ending is None else ending["status"])


def _clear(folder: str, spec: "dict[str, Any]") -> None:
    """End what runs on although its supervisor was killed, and say so."""
    above, name = os.path.split(folder)
    began = records.read(f"{folder}/pid.json") or {}
    groups = cgroups.Groups(cgroups.below(cgroups.parents(), spec["job"], folder))
    shim = tuple(began["shim"]) if "shim" in began else None
    while not processes.kill_leftovers(groups, shim, above, name):
        time.sleep(CLEAR_EVERY_S)
    records.write_first(
        f"{above}/failed.json", {"node": name, "status": None, "reason": SUPERVISOR_KILLED}
    )
    ending = records.ending(None, SUPERVISOR_KILLED, began.get("started_s"))
    records.write_reserved(f"{folder}/exit.json", ending)


def _start_supervisor(folder: str, spec: "dict[str, Any]") -> int:
    """Return a descriptor of the supervisor, which is no descendant of this process."""
    tether, hold_it = os.pipe()
    told, tell = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(hold_it)
            os.close(told)
            _supervise(folder, spec, tether, tell)
        os._exit(0)
    os.waitpid(middle, 0)
    os.close(tether)
    os.close(tell)
    pid = int(os.read(told, 32))
    os.close(told)
    supervisor = os.pidfd_open(pid)
    os.write(hold_it, b".")
    return supervisor


def _supervise(folder: str, spec: "dict[str, Any]", tether: int, tell: int) -> None:
    try:
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
        for number in (*TOLD, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.write(tell, str(os.getpid()).encode())
        os.close(tell)
        if os.read(tether, 1) == b".":
            node = next(node for node in spec["nodes"] if node["name"] == os.path.basename(folder))
            processes.become_subreaper()
            RaySupervisor(folder, spec, node, tether).run()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    sys.exit(hold(sys.argv[1]))
