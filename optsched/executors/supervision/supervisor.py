"""What a shim does: run one command, pass signals on, and say how it ended once nothing of it is
left.

Files in its folder: `pid.json` before the command runs, `exit.json` when nothing of it is left,
`stdout`, `stderr`. In the attempt's folder above: `spec.json` (what to run), `stop.json` (that it
is to end, and until when), `signal.json` (the last signal for the command) and `failed.json` (which
node of a gang failed first).
"""

import os
import resource
import signal
import sys
import time

TYPE_CHECKING = False  # importing `typing` would cost each shim milliseconds
if TYPE_CHECKING:
    from typing import Any

    from . import cgroups, memory, output, processes, records
    from .command import Command
else:
    import cgroups
    import memory
    import output
    import processes
    import records
    from command import Command

LOOK = signal.SIGUSR2
"""Sent to a shim: look at `stop.json` and `failed.json`."""
KILL_NOW = signal.SIGQUIT
"""Sent to a shim: end everything at once."""
PASSED_ON = (signal.SIGTERM, signal.SIGUSR1)
HEARD = (*PASSED_ON, LOOK, KILL_NOW, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)

LINGER_S = 0.5
"""Processes that outlive their command by less are no trouble: helpers end when they see it
gone."""
TERM_GRACE_S = 2.0
"""Between asking those that were left behind to end and killing them."""
GANG_GRACE_S = 5.0
"""Between asking the rest of a gang to end, one command of which failed, and killing it."""
LOOK_EVERY_S = 1.0
KILL_EVERY_S = 0.01
SAVED_AND_STOPPED = 85
NEVER = float("inf")


def supervise(folder: str) -> None:
    """Run what the attempt's spec says for this node, unless that was done before."""
    alone()
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return  # forgotten
    if not records.lock(lock):
        return  # another shim is at it
    above = os.path.dirname(folder)
    spec = records.read(f"{above}/spec.json")
    if spec is None or any(os.path.lexists(f"{folder}/{name}.json") for name in ("pid", "exit")):
        return
    node = next(node for node in spec["nodes"] if node["name"] == os.path.basename(folder))
    Supervisor(folder, spec, node).run()
    sys.stderr.flush()
    os._exit(0)  # all is written; taking the interpreter down would only take time


def alone() -> None:
    """Hear what supervisors are told, and let go of whatever was open."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(3, 1 << 20)


class Supervisor:
    """One command on one node."""

    def __init__(self, folder: str, spec: "dict[str, Any]", node: "dict[str, Any]") -> None:
        self.folder, self.spec, self.node = folder, spec, node
        self.above = os.path.dirname(folder)
        self.failed_path = f"{self.above}/failed.json"
        self.groups = cgroups.Groups(dict(node["cgroups"]))
        self.limit_bytes = int(node["memory_gib"] * (1 << 30))
        self.status: int | None = None
        self.reason: str | None = None
        self.asked = False  # to save and stop
        self.stopping = False  # SIGTERM was sent for whatever cause
        self.kill_at_s = NEVER  # of the monotonic clock
        self.overdue: str | None = None  # what to say if it is killed then
        self.signals = 0  # how many were passed on that the controller was asked for
        self.running = False
        self.started_s = 0.0

    def run(self) -> None:
        """Run from the first process to the last."""
        processes.become_subreaper()
        self.groups.make(self.limit_bytes, self.node["cores"])
        limit_bytes = self.spec.get("output_bytes", output.LIMIT_BYTES)
        printed = output.Output(
            self.node.get("output") or self.folder, self.spec["user"], limit_bytes
        )
        command = Command(printed, self.spec, self.node)
        self.groups.add(command.pid)
        watch = memory.Watch(0 if self.groups.limits_memory() else self.limit_bytes)
        self.started_s = time.time()
        own = processes.identity(os.getpid())
        record = {
            "boot": processes.boot_id(),
            "shim": own,
            "command": command.pid,
            "started_s": self.started_s,
        }
        records.write_reserved(f"{self.folder}/pid.json", record, durable=False)
        self.command = command
        self.look()  # after pid.json is there: whoever writes later finds us by it
        if self.asked or self.stopping:
            command.cancel()
        else:
            self.running = True
            self.reason = command.go()
        while self.status is None:
            self.step(watch)
        if self.reason is None and self.groups.memory_exceeded():  # seen only now
            self.reason = watch.exceeded(self.limit_bytes)
        self.fail_gang()
        left = self.clear()
        if self.reason is None and left:
            self.reason = (
                f"left {left} {'process' if left == 1 else 'processes'} behind, which were killed"
            )
        printed.close()
        self.groups.remove()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        ending = {
            **records.ending(self.status, self.reason, self.started_s, self.asked),
            "peak_memory_gib": max(watch.peak_bytes, used.ru_maxrss << 10) / (1 << 30),
            "cpu_s": used.ru_utime + used.ru_stime,
        }
        records.write_reserved(f"{self.folder}/exit.json", ending)

    def step(self, watch: "memory.Watch") -> None:
        """Wait for the next thing to happen while the command runs, and deal with it."""
        if not self.reap():
            return
        now_s = time.monotonic()
        if now_s >= self.kill_at_s:
            self.reason = self.reason or self.overdue
            self.groups.kill()
            processes.send_all(processes.descendants(os.getpid()), signal.SIGKILL)
            self.wait(KILL_EVERY_S)
            return
        if (now_s >= watch.due_s and watch.look(os.getpid())) or self.groups.memory_exceeded():
            self.reason, self.kill_at_s = watch.exceeded(self.limit_bytes), 0
            return
        self.wait(min(watch.due_s, self.kill_at_s, now_s + LOOK_EVERY_S) - now_s)
        self.look()

    def wait(self, seconds: float) -> None:
        """Wait until a signal comes, which is dealt with, or time is up."""
        told = signal.sigtimedwait(HEARD, max(0.0, seconds))
        if told is None:
            return
        if told.si_signo in PASSED_ON and self.running:
            self.command.signal(told.si_signo)
        elif told.si_signo == KILL_NOW:
            self.asked, self.kill_at_s, self.overdue = True, 0, None

    def look(self) -> None:
        """See whether somebody wants it to end, or to get a signal."""
        self.pass_signal()
        stop = self.stop_record()
        if stop is not None and stop["until_monotonic_s"] < self.kill_at_s:
            self.asked, self.kill_at_s, self.overdue = (
                True,
                stop["until_monotonic_s"],
                stop["overdue"],
            )
        failed = None if self.asked or self.stopping else records.read(self.failed_path)
        if failed is not None:
            self.kill_at_s = min(self.kill_at_s, time.monotonic() + GANG_GRACE_S)
        if (self.asked or failed is not None) and not self.stopping:
            self.stopping = True
            if self.running and self.kill_at_s > 0:
                self.command.signal(signal.SIGTERM)

    def pass_signal(self) -> None:
        """Send the command the last signal that the controller was asked for, once."""
        try:
            told = records.read(f"{self.above}/signal.json")
        except OSError:
            return
        if told is not None and told["count"] > self.signals:
            self.signals = told["count"]
            if self.running:
                self.command.signal(told["signal"])

    def stop_record(self) -> "dict[str, Any] | None":
        """Return that it is to end, and until when."""
        return records.read(f"{self.above}/stop.json")

    def reap(self) -> bool:
        """Take in those that ended; False when none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.command.pid:
                self.status, self.running = os.waitstatus_to_exitcode(status), False

    def fail_gang(self) -> None:
        """Have the rest of the gang stop if this command failed."""
        ended_well = (0, SAVED_AND_STOPPED, -signal.SIGTERM) if self.asked else (0,)
        peers = [node["name"] for node in self.spec["nodes"] if node["name"] != self.node["name"]]
        if not peers or self.status in ended_well or (self.stopping and not self.asked):
            return
        if self.asked and time.monotonic() >= self.kill_at_s:  # all of the gang are killed alike
            return
        failure = {"node": self.node["name"], "status": self.status}
        try:
            records.write_first(self.failed_path, failure)
            told = LOOK
        except OSError:  # a full disk: no time for courtesies
            told = KILL_NOW
        for peer in peers:
            record = records.read(f"{self.above}/{peer}/pid.json")
            if record is not None and record["boot"] == processes.boot_id():
                processes.send(tuple(record["shim"]), told)

    def clear(self) -> int:
        """End what the command left behind; return how many processes that were."""
        end_s = time.monotonic()
        count, told = 0, False
        while self.reap():
            self.look()
            now_s = time.monotonic()
            rest = processes.descendants(os.getpid())
            if now_s >= min(end_s + LINGER_S + TERM_GRACE_S, self.kill_at_s):
                count = max(count, len(rest))
                self.groups.kill()
                processes.send_all(rest, signal.SIGKILL)
            elif now_s >= end_s + LINGER_S and not told:
                count, told = max(count, len(rest)), True
                processes.send_all(rest, signal.SIGTERM)
                processes.send_all(rest, signal.SIGCONT)
            self.wait(KILL_EVERY_S)
        return 0 if self.asked and self.kill_at_s == 0 else count
