"""Stands in for PBS where there is none: `python pbs_stand_in.py STATE COMMAND WORDS...`.

Its commands keep jobs in files below STATE, and give out GPUs and memory as a server would. There
is no server: whoever calls starts what can run, and so does each job that ends.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

GPUS = 4


class Server:
    def __init__(self, state: Path) -> None:
        self.state = state

    @contextmanager
    def jobs(self) -> Iterator[dict[str, dict[str, Any]]]:
        """All jobs, to be looked at and changed by one process at a time."""
        with (self.state / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.state / "jobs.json"
            found = json.loads(path.read_text()) if path.exists() else {}
            yield found
            path.with_suffix(".new").write_text(json.dumps(found))
            path.with_suffix(".new").replace(path)

    def nodes(self) -> list[str]:
        return json.loads((self.state / "nodes.json").read_text())

    def is_down(self, node: str) -> bool:
        return (self.state / f"down-{node}").exists()

    def run_what_can(self, jobs: dict[str, dict[str, Any]]) -> None:
        for number, job in jobs.items():
            held = [
                gpu
                for other in jobs.values()
                if other["job_state"] == "R" and other["node"] == job["node"]
                for gpu in other["gpus"]
            ]
            free = [str(gpu) for gpu in range(GPUS) if str(gpu) not in held]
            if job["job_state"] != "Q" or self.is_down(job["node"]):
                continue
            if len(free) < job["wanted"]:
                job["comment"] = "not enough free GPUs"
                continue
            job["gpus"], job["job_state"] = free[: job["wanted"]], "R"
            words = [sys.executable, __file__, str(self.state), "run", number]
            job["pid"] = subprocess.Popen(
                words,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ).pid

    # the commands

    def qsub(self, *words: str) -> None:
        given = dict(zip(words[::2], words[1::2], strict=False))
        chunk = re.fullmatch(r"select=1:host=(\w+):ncpus=\d+:ngpus=(\d+)(:mem=\d+mb)?", given["-l"])
        if chunk is None or chunk[1] not in self.nodes():
            sys.exit("qsub: Unknown resource")
        with self.jobs() as jobs:
            number = f"{len(jobs) + 1}.stand-in"
            (self.state / f"{number}.sh").write_text(sys.stdin.read())
            jobs[number] = {
                "Job_Name": given["-N"],
                "job_state": "Q",
                "node": chunk[1],
                "wanted": int(chunk[2]),
                "gpus": [],
            }
            self.run_what_can(jobs)
        print(number)

    def qstat(self, *_: str) -> None:
        with self.jobs() as jobs:
            self.run_what_can(jobs)
            print(json.dumps({"Jobs": jobs}))

    def qdel(self, *words: str) -> None:
        with self.jobs() as jobs:
            for number in words[2:]:
                self.end(jobs[number], "it was deleted")
            self.run_what_can(jobs)

    def pbsnodes(self, *_: str) -> None:
        resources = {"ngpus": GPUS, "ncpus": 64, "mem": "67108864kb"}
        print(
            json.dumps(
                {
                    "nodes": {
                        node: {
                            "state": "down" if self.is_down(node) else "free",
                            "resources_available": resources,
                        }
                        for node in self.nodes()
                    }
                }
            )
        )

    def run(self, number: str) -> None:
        """Stands in for the daemon of a node: runs a job to its end."""
        with self.jobs() as jobs:
            job = jobs[number]
        gpus = ",".join(job["gpus"])
        environment = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": gpus}
        script = str(self.state / f"{number}.sh")
        status = subprocess.run(["/bin/sh", script], env=environment).returncode
        with self.jobs() as jobs:
            jobs[number] |= {"job_state": "F", "comment": f"it ended with {status}"}
            self.run_what_can(jobs)

    def end(self, job: dict[str, Any], comment: str) -> None:
        """Have nothing of a job be left."""
        if job["job_state"] == "R":
            while below := descendants(job["pid"]):
                for pid in below:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)
        job |= {"job_state": "F", "comment": comment}


def descendants(pid: int) -> list[int]:
    """The process and all below it that are alive."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(entry.name)] = int(fields[1])
    found = [pid] if pid in parents else []
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def install(folder: Path, nodes: list[str]) -> Path:
    """Put the commands below `folder`, for nodes of those names; where they are."""
    state, programs = folder / "pbs", folder / "bin"
    state.mkdir()
    programs.mkdir()
    (state / "nodes.json").write_text(json.dumps(nodes))
    for name in ("qsub", "qstat", "qdel", "pbsnodes"):
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {state} {name} "$@"\n')
        path.chmod(0o755)
    return programs


if __name__ == "__main__":
    server = Server(Path(sys.argv[1]))
    if sys.argv[2] != "run" and (server.state / "stopped").exists():
        sys.exit(f"{sys.argv[2]}: cannot connect to server stand-in (errno=15010)")
    getattr(server, sys.argv[2])(*sys.argv[3:])
