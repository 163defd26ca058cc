"""`optsched run` as a process of its own, and its API."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from optsched.control.api.client import Client


class Run:
    """`optsched run` in a folder, whatever it was left like."""

    def __init__(self, folder: Path, umask: int = 0o022) -> None:
        self.state = folder / "state"
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "optsched", "run", "--web", "--json"],
                cwd=folder,
                stdout=log,
                stderr=log,
                umask=umask,
            )
        self.client = Client(path=self.state / "api.sock")
        self.until(
            lambda: (self.state / "api.sock").exists() and "dashboard" in self.log.read_text()
        )

    def until(self, there: Any) -> None:
        end_s = time.monotonic() + 90
        while not there():
            assert self.process.poll() is None and time.monotonic() < end_s, self.log.read_text()
            time.sleep(0.1)

    def job(self, name: str) -> Any:
        return self.client.get(f"/v1/jobs/{name}")["job"]

    def close(self) -> None:
        for job in self.client.get("/v1/jobs", all=True)["jobs"]:
            self.client.post(f"/v1/jobs/{job['id']}/cancel")
        self.until(lambda: not self.client.get("/v1/jobs", all=True)["jobs"])
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0
