"""Real GPUs as a stand-in for NVIDIA's library lists them: one that dies, a driver that hangs, and
MIG."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from optsched import Job
from optsched.control.api.views import reason_of
from optsched.control.clock import SteadyClock
from optsched.control.controller import Controller
from optsched.control.explain.explaining import explain_job
from optsched.control.journal.events import NodeSeen, Submitted
from optsched.control.journal.journal import Journal
from optsched.control.settings import Settings
from optsched.control.submission import Submission
from optsched.control.what_if.snapshot import snapshot
from optsched.errors import InputError
from optsched.executors.base import AttemptState, RefusedError
from optsched.executors.local import LocalNode, driver
from optsched.model.cluster import Node

from .conftest import Host, until

pytestmark = [
    pytest.mark.skipif(
        shutil.which("cc") is None, reason="there is no C compiler to build the stand-in for NVML"
    ),
    pytest.mark.skipif(find_spec("pynvml") is None, reason="nvidia-ml-py is not installed"),
]
NVML = Path(__file__).parents[1] / "profiling" / "nvml.c"


class Bus:
    """The GPUs of this host."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._monkeypatch = folder, monkeypatch
        monkeypatch.setenv("GPU_STATE", str(folder / "state"))
        monkeypatch.setattr(driver, "EVERY_S", 0.05)
        self.have(4)

    def have(self, count: int) -> None:
        self._monkeypatch.setenv("GPU_COUNT", str(count))

    def state(self, name: str) -> Path:
        return self.folder / f"state-{name}"

    def lose(self, index: int) -> None:
        self.state(f"lost-{index}").touch()

    def divide(self, index: int, parts: int) -> None:
        self.state(f"mig-{index}").write_text(str(parts))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, NVML], check=True)
    return made


@pytest.fixture
def bus(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bus:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    folder = tmp_path / "bus"
    folder.mkdir()
    return Bus(folder, monkeypatch)


def real(name: str = "n0", gpus: int = 4, gpu_type: str | None = "t") -> LocalNode:
    return LocalNode(node=Node(name=name, gpu_type=gpu_type, gpus=gpus))


@pytest.fixture
def gpus(bus: Bus, tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "run", [real()])
    yield host
    host.clear()


def out(host: Host) -> tuple[str, ...]:
    return host.executor.inventory()[0].out


def test_one_dead_gpu_leaves_the_others(gpus: Host, bus: Bus) -> None:
    first = gpus.shell("first", "sleep 600", gpus=2)
    assert gpus.reach(first, AttemptState.RUNNING).gpu_ids == {"n0": ("GPU-0", "GPU-1")}
    bus.lose(2)
    bus.lose(1)
    until(lambda: out(gpus) == ("GPU-1", "GPU-2"))
    [status] = gpus.executor.inventory()
    assert status.usable and status.node.gpus == 4
    assert status.reason == "the driver no longer lists GPU-1, GPU-2"
    with pytest.raises(RefusedError, match="1 of its 4 GPUs free, not 2"):
        gpus.shell("wide", "sleep 600", gpus=2)
    assert gpus.reach(gpus.shell("other", "sleep 600"), AttemptState.RUNNING).gpu_ids == {
        "n0": ("GPU-3",)
    }
    bus.state("lost-2").unlink()
    until(lambda: out(gpus) == ("GPU-1",))
    assert gpus.reach(gpus.shell("again", "sleep 600"), AttemptState.RUNNING).gpu_ids == {
        "n0": ("GPU-2",)
    }


def test_a_gpu_that_a_stranger_uses_is_given_to_nobody(gpus: Host, bus: Bus) -> None:
    """A job that got it would fail for want of memory, and be blamed."""
    own = gpus.shell("own", "sleep 600")
    gpus.reach(own, AttemptState.RUNNING)
    stranger = subprocess.Popen(["sleep", "600"])
    for index in (0, 1, 2):
        bus.state(str(index)).write_text(f"90 {8000 if index != 1 else 500} 1 {stranger.pid}")
    until(lambda: out(gpus) == ("GPU-2",))
    [status] = gpus.executor.inventory()
    assert status.usable
    assert status.reason == (
        f"GPU-2 is used by process {stranger.pid}, which no job on it started"
    ), "neither GPU-0, which a job holds, nor GPU-1, where 500 MiB are a bare context"
    with pytest.raises(RefusedError, match="2 of its 4 GPUs free, not 3"):
        gpus.shell("wide", "sleep 600", gpus=3)
    gpus.executor.kill(own)
    gpus.end(own)
    until(lambda: out(gpus) == ("GPU-0", "GPU-2"))
    stranger.kill()
    stranger.wait()
    assert out(gpus) == (), "who has ended counts no more, whatever the driver said last"


def test_neither_mps_nor_who_lives_elsewhere_is_a_stranger(
    gpus: Host, bus: Bus, tmp_path: Path
) -> None:
    server = tmp_path / "nvidia-cuda-mps-server"
    server.symlink_to(str(shutil.which("sleep")))
    with subprocess.Popen([server, "600"]) as process:
        bus.state("0").write_text(f"90 8000 1 {process.pid}")
        bus.state("1").write_text("90 8000 1 0")
        bus.lose(2)
        until(lambda: out(gpus) == ("GPU-2",))
        process.kill()


def test_a_start_without_it_goes_on_and_names_it(gpus: Host, bus: Bus) -> None:
    bus.have(3)  # as after the host was restarted
    gpus.restart()
    assert out(gpus) == ("GPU-3",) and gpus.executor.inventory()[0].usable
    gpus.reach(gpus.shell("job", "sleep 600", gpus=3), AttemptState.RUNNING)
    for index in range(3):
        bus.lose(index)
    bus.have(4)
    gpus.restart()
    [status] = gpus.executor.inventory()
    assert status.usable and status.out == ("GPU-0", "GPU-1", "GPU-2")
    bus.lose(3)
    until(lambda: not gpus.executor.inventory()[0].usable)
    assert "no longer lists GPU-0, GPU-1, GPU-2, GPU-3" in str(gpus.executor.inventory()[0].reason)


def test_a_new_gpu_takes_the_place_of_a_dead_one(gpus: Host, bus: Bus, tmp_path: Path) -> None:
    (tmp_path / "run" / "gpus.json").write_text(
        json.dumps({"n0": ["GPU-0", "GPU-9", "GPU-2", "GPU-3"]})
    )
    gpus.restart()
    assert out(gpus) == ()
    assert sorted(json.loads((tmp_path / "run" / "gpus.json").read_text())["n0"]) == [
        f"GPU-{i}" for i in range(4)
    ]


def test_a_driver_that_hangs_holds_up_nobody(
    gpus: Host, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LIMIT_S", 0.3)
    key = gpus.shell("job", "sleep 600")
    gpus.reach(key, AttemptState.RUNNING)
    bus.state("hang").touch()
    longest_s, end_s = 0.0, time.monotonic() + 60
    while gpus.executor.inventory()[0].usable:
        assert time.monotonic() < end_s
        began_s = time.monotonic()
        gpus.executor.inventory()
        longest_s = max(longest_s, time.monotonic() - began_s)
        time.sleep(0.02)
    assert longest_s < 1.0
    assert "NVIDIA's driver has not answered since 20" in str(gpus.executor.inventory()[0].reason)
    assert gpus.see(key).state is AttemptState.RUNNING
    monkeypatch.setattr(driver, "FIRST_S", 0.3)
    gpus.restart()  # it knows which GPUs there were
    until(lambda: "has not answered since" in str(gpus.executor.inventory()[0].reason))
    bus.state("hang").unlink()
    until(lambda: gpus.executor.inventory()[0].usable)
    assert out(gpus) == ()


def test_a_first_start_without_a_driver_is_refused(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "FIRST_S", 0.3)
    bus.state("hang").touch()
    with pytest.raises(
        InputError,
        match=r"4 GPUs are declared here but NVIDIA's driver does not answer within 0.3 s",
    ):
        Host(tmp_path / "run", [real()])
    bus.state("hang").unlink()
    with pytest.raises(
        InputError, match="5 GPUs are declared on this host, which has 4; declare no more"
    ):
        Host(tmp_path / "run", [real(gpus=5)])


def test_a_divided_gpu_without_instances_is_not_offered(bus: Bus, tmp_path: Path) -> None:
    bus.divide(0, 0)
    with pytest.raises(InputError, match="4 GPUs are declared on this host, which has 3"):
        Host(tmp_path / "run", [real()])
    host = Host(tmp_path / "other", [real(gpus=3)])
    seen = host.reach(host.shell("job", "sleep 600", gpus=3), AttemptState.RUNNING)
    assert seen.gpu_ids == {"n0": ("GPU-1", "GPU-2", "GPU-3")}
    host.clear()


def test_gangs_do_not_mix_instances_and_whole_gpus(bus: Bus, tmp_path: Path) -> None:
    bus.divide(1, 2)
    with pytest.raises(
        InputError,
        match=r"node n0 declares 4 GPUs, all of one kind; this host has 3 whole, 2 1g.10gb",
    ):
        Host(tmp_path / "a", [real()])
    with pytest.raises(
        InputError, match="nodes n0 and n1 have the same gpu_type but GPUs of different kinds"
    ):
        Host(tmp_path / "b", [real(gpus=3), real("n1", gpus=2)])
    host = Host(tmp_path / "c", [real("parts", 2, "t-1g.10gb"), real("whole", 3)])
    parts = host.shell("parts", "sleep 600", nodes=("parts",), gpus=2)
    whole = host.shell("whole", "sleep 600", nodes=("whole",), gpus=3)
    assert host.reach(parts, AttemptState.RUNNING).gpu_ids == {"parts": ("MIG-1-0", "MIG-1-1")}
    assert host.reach(whole, AttemptState.RUNNING).gpu_ids == {"whole": ("GPU-0", "GPU-2", "GPU-3")}
    host.clear()


def test_rounds_go_on_with_the_others_and_all_is_told(gpus: Host, bus: Bus, tmp_path: Path) -> None:
    settings = Settings(format="optsched-cluster/1", every=60.0, budget=5.0, state=tmp_path / "run")
    controller = Controller(
        settings, gpus.executor, Journal(tmp_path / "journal"), SteadyClock(0.0)
    )

    def submit(name: str, wanted: int) -> None:
        job = Job(id=name, gpus=wanted, duration_s=1000.0, preemptible=False, max_nodes=1)
        controller.record(
            Submitted(submission=Submission(job=job, argv=("sleep", "600"), directory="/"))
        )

    def status(name: str) -> str:
        controller.step()
        time.sleep(0.02)
        return str(controller.state.jobs[name].status)

    submit("holds", 2)
    until(lambda: status("holds") == "running")
    bus.lose(1)  # which it holds
    bus.lose(2)
    until(
        lambda: (
            status("holds") == "running" and controller.state.nodes["n0"].out == ("GPU-1", "GPU-2")
        )
    )
    job = controller.state.jobs["holds"]
    assert reason_of(controller, job, 0.0) == "some of what it runs on is out of order: GPU-1 on n0"
    assert "is out of order: GPU-1 on n0" in " ".join(
        explain_job(snapshot(controller), "holds", names=True).sentences
    )
    submit("wide", 2)
    submit("narrow", 1)
    until(lambda: status("narrow") == "running")
    assert status("wide") == "waiting" and not controller.state.jobs["wide"].attempts
    said = " ".join(explain_job(snapshot(controller), "wide", names=True).sentences)
    assert "It needs 2 GPUs, and none of the 4 t GPUs it could use is free" in said
    for name in ("GPU-1", "GPU-2"):
        bus.state(f"lost-{name[-1]}").unlink()
    gpus.executor.kill(job.attempts[0].key)
    until(lambda: status("wide") == "running")
    seen = [
        entry.event for entry in controller.journal.entries() if isinstance(entry.event, NodeSeen)
    ]
    assert any(event.usable and event.out for event in seen) and not seen[-1].out
    controller.journal.close()
