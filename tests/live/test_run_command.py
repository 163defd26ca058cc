"""`optsched run` and the commands around it, as people use them: real processes, sockets, and a
browser."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from optsched.control.api.client import Client
from tests.browser import CHROMIUM, Browser

TOML = """
format = "optsched-cluster/1"
name = "live test"
budget = "5s"
[[nodes]]
name = "n[0-1]"
gpu_type = "a100"
gpus = 4
emulate = true
"""
JOB = str(Path(__file__).parents[2] / "examples" / "train_plain.py")
UNTIL_TOLD = """
import os, runpy, sys, time
sleep = time.sleep
time.sleep = lambda seconds: None if os.path.exists("go") else sleep(seconds)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script whose sleeps end once there is a file `go`."""


class Live:
    """A folder with a cluster, and a controller that may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "cluster.toml").write_text(TOML)
        self.controller: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        log = (self.folder / "log").open("w")
        self.controller = subprocess.Popen(
            [sys.executable, "-m", "optsched", "run", "--web"],
            cwd=self.folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        log.close()
        self.until(lambda: re.search(r"dashboard: (\S+)", self.log()))
        found = re.search(r"dashboard: (\S+#)TOKEN,", self.log())
        assert found is not None, self.log()
        token = (self.folder / "state" / "token").read_text().strip()
        assert token not in self.log()
        looks = (self.folder / "state" / "view-token").read_text().strip()
        assert "to look only: http" in self.log() and looks not in self.log()
        self.url = found.group(1) + token

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def stop(self, number: int) -> int:
        assert self.controller is not None
        self.controller.send_signal(number)
        return self.controller.wait(60)

    def run(self, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "optsched", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def jobs(self) -> dict[str, str]:
        client = Client(path=self.folder / "state" / "api.sock")
        found = [client.get("/v1/jobs", finished=finished)["jobs"] for finished in (False, True)]
        return {job["id"]: job["status"] for jobs in found for job in jobs}

    def until(self, done: object, timeout_s: float = 120.0) -> None:
        end_s = time.monotonic() + timeout_s
        while not done():  # type: ignore[operator]
            assert time.monotonic() < end_s, self.log()
            time.sleep(0.2)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    found = Live(tmp_path)
    found.start()
    yield found
    subprocess.run(["pkill", "-9", "-f", str(tmp_path)], check=False)
    if found.controller is not None and found.controller.poll() is None:
        found.controller.kill()


def test_a_day_in_short(live: Live) -> None:
    train = (sys.executable, "-c", UNTIL_TOLD, JOB, "--step-s", "0.1")
    live.run(
        "submit",
        "--name",
        "long",
        "--gpus",
        "8",
        "--nodes",
        "2",
        "--time",
        "1h",
        "--",
        *train,
        "--steps",
        "10000",
    )
    live.until(lambda: live.jobs() == {"long": "running"})
    assert json.loads(live.run("queue", "--json"))["jobs"][0]["id"] == "long"
    live.run(
        "submit",
        "--name",
        "waits",
        "--gpus",
        "8",
        "--nodes",
        "2",
        "--time",
        "2h",
        "--",
        *train,
        "--steps",
        "10000",
    )
    assert "waits has been waiting" in live.run(
        "explain", "waits"
    ) and "long has been running for" in live.run("explain", "long")
    assert "expected to start" in live.run("what-if", "when", "waits")
    live.run(
        "submit",
        "--name",
        "short",
        "--gpus",
        "8",
        "--nodes",
        "2",
        "--time",
        "5s",
        "--",
        *train,
        "--steps",
        "4",
    )
    live.until(lambda: live.jobs()["short"] == "completed")

    assert live.stop(signal.SIGKILL) == -9
    assert "optsched run" in live.run("queue", status=1)  # says what to do
    live.start()
    live.run("cancel", "waits")
    assert live.jobs()["waits"] == "cancelled"
    (live.folder / "go").touch()
    live.until(lambda: live.jobs()["long"] == "completed")
    finished = json.loads(live.run("queue", "--finished", "--json"))["jobs"]
    assert {job["id"] for job in finished} == {"long", "short", "waits"}
    assert "weights" in live.run("output", "long")

    host, _, token = live.url.partition("/#")
    asked = urllib.request.Request(f"{host}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        metrics = answer.read().decode()
    assert 'optsched_gpus{gpu_type="a100",node="n0"} 4.0' in metrics
    assert 'optsched_jobs_finished_total{status="completed"} 2.0' in metrics
    assert re.search(r"^optsched_preemptions_total [1-9]", metrics, re.M)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{host}/metrics", timeout=60)

    assert live.stop(signal.SIGTERM) == 0
    rounds = json.loads(live.run("rounds", "--json"))
    assert len(rounds) >= 3
    live.run("replay", str(rounds[0]["number"]))
    regret = json.loads(live.run("regret", "--json"))
    assert regret["gap"] is None or 0 <= regret["gap"] <= 1


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here to show the dashboard in")
def test_the_dashboard_in_a_browser(live: Live) -> None:
    live.run("submit", "--name", "runs", "--gpus", "6", "--nodes", "2", "--", "sleep", "600")
    live.until(lambda: live.jobs() == {"runs": "running"})
    live.run("submit", "--name", "waits", "--gpus", "8", "--nodes", "2", "--", "sleep", "600")
    browser = Browser(live.folder / "browser")
    try:
        browser.open(live.url)
        browser.until("document.body?.dataset.ready === 'yes'")
        browser.until("document.querySelectorAll('#jobs tr[data-job]').length === 2")
        assert browser.run("document.title") == "live test: 6 of 8 GPUs"
        assert browser.run("document.querySelectorAll('.gpu').length") == 8
        assert browser.run("document.querySelectorAll('.gpu[data-job=runs]').length") == 6
        assert browser.run("at('fault').hidden") and browser.errors == []
    finally:
        browser.close()


def test_cluster_toml_is_read_again_while_jobs_run(live: Live) -> None:
    file = live.folder / "cluster.toml"
    live.run("submit", "--name", "runs", "--gpus", "4", "--", "sleep", "600")
    live.until(lambda: live.jobs()["runs"] == "running")
    wide = TOML.replace("n[0-1]", "n[0-2]")
    file.write_text(wide + "[limits]\nmax_running = 7\n")
    assert "changed: nodes, limits" in live.run("reload")
    live.run("submit", "--name", "large", "--gpus", "12", "--nodes", "3", "--", "sleep", "600")
    assert len(json.loads(live.run("top", "--once", "--json"))["nodes"]) == 3
    file.write_text(TOML.replace("gpus = 4", "gpus = -4"))
    assert "gpus" in live.run("reload", status=2)
    file.write_text('executor = "slurm"\n' + TOML)
    assert "executor changes only when the controller is restarted" in live.run("reload", status=2)
    file.write_text(TOML.replace("n[0-1]", "n0"))
    assert "large cannot run any more" in live.run("reload")
    assert live.jobs()["runs"] == "running"
    file.write_text(wide)
    assert live.controller is not None
    live.controller.send_signal(signal.SIGHUP)
    client = Client(path=live.folder / "state" / "api.sock")
    live.until(lambda: len(client.get("/v1/nodes")["nodes"]) == 3)
    live.run("cancel", "runs")
    live.until(lambda: live.jobs()["runs"] == "cancelled")
    live.until(lambda: live.jobs()["large"] == "running")
    assert live.stop(signal.SIGTERM) == 0


def test_it_ends_with_its_terminal(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(TOML)
    ours, theirs = os.openpty()
    controller = subprocess.Popen(
        [sys.executable, "-m", "optsched", "run"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    while not (tmp_path / "state" / "api.sock").exists():
        assert controller.poll() is None
        time.sleep(0.05)
    Client(path=tmp_path / "state" / "api.sock").get("/v1/state")  # its loop turns
    os.close(ours)
    assert controller.wait(60) == 0
