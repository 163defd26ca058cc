"""What is measured of real commands; times have lower bounds, which are slept, and generous upper
ones."""

import json
import os

import pytest

from optsched.profiling.probe import ProbeError, probe
from optsched.profiling.result import dump_result, result
from tests.profiling.conftest import LOOP, patiently


def stepped_often(found) -> bool:
    return (found.steps or 0) >= 8 and found.restore_s is not None


def test_a_command_that_follows_the_contract(python, setting, tmp_path) -> None:
    core = min(os.sched_getaffinity(0))
    found = patiently(
        lambda for_s: probe(setting(python(LOOP), cores=(core,), for_s=for_s), gpu_type="a100"),
        stepped_often,
    )
    assert found.preemptible is True
    assert found.step_median_s is not None and found.step_median_s >= 0.04
    assert found.step_p90_s is not None and found.step_p90_s >= found.step_median_s
    assert found.startup_s is not None and found.startup_s > 0
    assert found.restore_s is not None and found.restore_s >= 0.15
    assert found.save_s is not None and found.save_s >= 0.1
    assert found.stop_s is not None and found.stop_s > found.save_s
    assert found.checkpoint_gib == pytest.approx(500_000 / 2**30, rel=0.01)
    assert found.memory_gib is not None and 0.003 < found.memory_gib < 0.2
    assert (found.gpu_type, found.gpus, found.cpus) == ("a100", 1, 1)
    whole = result(found, name="loop")
    assert (whole.profile.restore_s, whole.profile.checkpoint_s) == (
        round(found.restore_s, 3),
        round(found.stop_s, 3),
    )
    again = json.loads(dump_result(whole))
    assert again["profile"]["checkpoint_s"] == whole.profile.checkpoint_s
    assert again["measured"].get("absent", {}) == found.absent


def test_what_is_not_measured_is_absent(setting) -> None:
    found = probe(setting(["sleep", "60"], for_s=0.5))
    assert (found.step_s, found.startup_s, found.restore_s, found.stop_s, found.save_s) == (
        None,
    ) * 5
    assert (found.checkpoint_gib, found.torch_gpu_memory_gib) == (None, None)
    assert found.preemptible is False
    assert found.absent["stop_s"] == "it was ended by signal 15 without saving"
    assert "no two steps" in found.absent["step_s"]
    assert any('"preemptible": false' in note for note in found.notes)
    profile = result(found).profile
    assert (
        profile.startup_s,
        profile.checkpoint_s,
        profile.restore_s,
        profile.checkpoint_every_s,
    ) == (0, 0, 0, None)


def test_a_command_that_ends_before_its_time(python, setting) -> None:
    found = probe(setting(python("import time; time.sleep(0.3)"), for_s=60))
    assert found.preemptible is None
    assert found.absent["stop_s"] == "it ended by itself before it was asked to stop"


def test_a_command_that_saves_now_and_then(python, setting) -> None:
    """Its reports say so; SIGTERM just ends it."""
    code = """
import json, os, time
to = os.environ["OPTSCHED_PROGRESS"]
saved = {}
for step in range(1, 10**6):
    time.sleep(0.02)
    if step % 10 == 0:
        saved = {"saved_step": step, "saved_at_s": time.time(), "checkpoint_s": 0.5}
    open(to + ".tmp", "w").write(json.dumps({"step": step, "at_s": time.time(), **saved}))
    os.replace(to + ".tmp", to)
"""
    found = patiently(
        lambda for_s: probe(setting(python(code), for_s=for_s)), lambda found: found.save_every_s
    )
    assert found.preemptible is False
    assert found.save_s == 0.5
    assert found.save_every_s is not None and found.save_every_s >= 0.2
    profile = result(found).profile
    assert profile.checkpoint_every_s == round(found.save_every_s, 3)
    assert profile.checkpoint_s == 0


def test_a_command_that_cannot_begin_where_it_saved(python, setting) -> None:
    code = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(85))
if os.environ["OPTSCHED_ATTEMPT"] == "2":
    sys.exit("the file is damaged")
time.sleep(60)
"""
    found = patiently(
        lambda for_s: probe(setting(python(code), for_s=for_s)),
        lambda found: "status" in found.absent["restore_s"],
    )
    assert found.preemptible is True and found.restore_s is None
    assert (
        "status 1" in found.absent["restore_s"]
        and "the file is damaged" in found.absent["restore_s"]
    )


def test_a_command_that_fails(python, setting) -> None:
    with pytest.raises(ProbeError, match=r"status 3 after .*\nno data"):
        probe(setting(python("import sys; print('no data'); sys.exit(3)")))
    with pytest.raises(ProbeError, match=r"signal 9 .* printed nothing"):
        probe(setting(python("import os; os.kill(os.getpid(), 9)")))


def test_processor_time_is_that_of_the_whole_tree(python, setting) -> None:
    """The work is done by a child: without it there would be none."""
    code = """
import os, time
if os.fork() == 0:
    while True:
        pass
time.sleep(600)
"""
    found = patiently(
        lambda for_s: probe(setting(python(code), for_s=for_s)), lambda found: found.cpu_use
    )
    assert found.cpu_use is not None and 0 < found.cpu_use < 1.3


def test_the_training_helper_is_measured(python, setting) -> None:
    code = """
import time
from optsched.training import Training

def load(path):
    time.sleep(0.1)
    assert path.read_text() == "weights"

for _ in Training(save=lambda path: path.write_text("weights"), load=load).steps():
    time.sleep(0.03)
"""
    found = patiently(
        lambda for_s: probe(setting(python(code), for_s=for_s)), stepped_often, (1.6, 10.0, 60.0)
    )
    assert found.preemptible is True
    assert found.step_s is not None and found.step_s >= 0.03
    assert found.restore_s is not None and found.restore_s >= 0.1
    assert found.stop_s is not None and found.save_s is not None
    assert any("median and p90 are of means" in note for note in found.notes)
