"""What NVML says of GPUs, asked through nvidia-ml-py of a small library that stands in for the
driver's."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(
        shutil.which("cc") is None, reason="there is no C compiler to build the stand-in for NVML"
    ),
    pytest.mark.skipif(find_spec("pynvml") is None, reason="nvidia-ml-py is not installed"),
]

TRAIN = """
import json, os, time
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
to = os.environ["OPTSCHED_PROGRESS"]
state = os.environ["GPU_STATE"]
ids = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
for i, gpu in enumerate(ids):
    pid = os.environ.get("STRANGER", os.getpid())
    open(f"{state}-{gpu[4:]}", "w").write(f"60 {3072 + 1024 * i} 1 {pid}")
began = time.time()
for step in range(1, 10**6):
    time.sleep(0.02)
    open(to + ".tmp", "w").write(json.dumps({"step": step, "at_s": time.time(), "began_s": began}))
    os.replace(to + ".tmp", to)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    made: Path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", made, Path(__file__).with_name("nvml.c")], check=True
    )
    return made


@pytest.fixture
def profile(library, tmp_path, python):
    """Run `optsched profile --json` on a host with so many GPUs, in the states given by index."""

    def go(*options, gpus=4, states=(), visible=None, stranger=None, good=lambda measured: True):
        for time_s in ("1s", "8s", "60s"):
            for old in tmp_path.glob("state-*"):
                old.unlink()
            for index, state in dict(states).items():
                (tmp_path / f"state-{index}").write_text(state)
            environment = {
                **os.environ,
                "LD_LIBRARY_PATH": str(library.parent),
                "GPU_COUNT": str(gpus),
                "GPU_STATE": str(tmp_path / "state"),
            }
            environment.pop("CUDA_VISIBLE_DEVICES", None)
            if stranger is not None:
                environment["STRANGER"] = str(stranger)
            if visible is not None:
                environment["CUDA_VISIBLE_DEVICES"] = visible
            words = ["profile", "--for", time_s, "--json", *options, "--", *python(TRAIN)]
            done = subprocess.run(
                [sys.executable, "-m", "optsched", *words],
                capture_output=True,
                text=True,
                env=environment,
            )
            found = json.loads(done.stdout) if done.returncode == 0 else None
            if found is None or good(found["measured"]):
                break
        return found, done.stderr

    return go


def test_memory_and_duty_are_measured(profile) -> None:
    """GPU 0 is in use by others, so 1 and 2 are taken; GPU 2 had 1 GiB in use before, and takes 4
    GiB then."""
    found, _ = profile(
        "--gpus",
        "2",
        states={0: "90 8000 1", 2: "0 1024 0"},
        good=lambda measured: measured.get("steps", 0) > 10 and "gpu_duty" in measured,
    )
    measured = found["measured"]
    assert measured["gpu_type"] == "Model T"
    assert measured["gpu_memory_gib"] == 3, "3 GiB of GPU 1, and 4 - 1 of GPU 2"
    assert measured["gpu_memory_total_gib"] == 16
    assert measured["gpu_duty"] == pytest.approx(0.6)
    assert found["profile"]["sharing"] == {"duty": 0.6}
    assert found["profile"]["gpu_memory_gib"] == 3.3


def test_gpus_in_use_are_not_measured(profile) -> None:
    """Nor is their memory where NVML tells of processes that have no number here."""
    found, _ = profile(states={0: "90 8000 1"}, gpus=1, stranger=0)
    assert "gpu_memory_gib" not in found["measured"] and "gpu_duty" not in found["measured"]
    assert found["measured"]["absent"]["gpu_memory_gib"] == "others use the GPU: GPU-0"
    assert "gpu_memory_gib" not in found["profile"]


def test_who_comes_meanwhile_is_not_measured(profile) -> None:
    """Its memory and its kernels were taken for those of the command."""
    with subprocess.Popen(["sleep", "600"]) as other:
        found, _ = profile(stranger=other.pid, good=lambda measured: measured.get("steps", 0) > 10)
        other.kill()
    measured = found["measured"]
    assert "gpu_memory_gib" not in measured and "gpu_duty" not in measured
    assert measured["absent"]["gpu_duty"] == "others use the GPU: GPU-0"
    assert "sharing" not in found["profile"]
    assert any("others used the GPU meanwhile" in note for note in measured["notes"])


def test_beside_others_its_memory_is_that_of_its_processes(profile) -> None:
    """The GPU was in use before, of which NVML says nothing later on."""
    found, _ = profile(
        states={0: "90 8000 1"}, gpus=1, good=lambda measured: "gpu_memory_gib" in measured
    )
    assert found["measured"]["gpu_memory_gib"] == 3
    assert found["measured"]["absent"]["gpu_duty"] == "others use the GPU: GPU-0"


def test_a_command_without_steps_has_no_duty(library, tmp_path) -> None:
    """Its start-up, in which no kernel runs, was taken for its steps: two such jobs would have
    shared a GPU at full speed."""
    script = "printf '60 3072 1' > $GPU_STATE-0; sleep 600"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(library.parent),
        "GPU_COUNT": "1",
        "GPU_STATE": str(tmp_path / "state"),
    }
    words = ["profile", "--for", "2s", "--json", "--", "sh", "-c", script]
    done = subprocess.run(
        [sys.executable, "-m", "optsched", *words], capture_output=True, text=True, env=environment
    )
    found = json.loads(done.stdout)
    assert "sharing" not in found["profile"] and found["measured"]["gpu_memory_gib"] == 3
    assert found["measured"]["absent"]["gpu_duty"] == (
        "no steps were seen, so it is not known when it trained"
    )


def test_cuda_visible_devices_is_kept_to(profile) -> None:
    found, error = profile(
        "--gpus", "2", visible="3,GPU-1,none,0", good=lambda one: one.get("gpu_memory_gib")
    )
    assert found["measured"]["gpu_memory_gib"] == 4
    none, error = profile("--gpus", "3", visible="3,GPU-1,none,0")
    assert none is None and "--gpus 3: there are only 2 GPUs here" in error
