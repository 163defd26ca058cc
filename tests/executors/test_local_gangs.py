"""Attempts over several nodes: they start, fail and stop together."""

import os
import signal

from optsched.executors.base import AttemptState

from .conftest import Host, until

BOTH = ("n1", "n0")


def test_ranks_follow_the_placement(host: Host) -> None:
    key = host.start("gang", "env", nodes=BOTH, gpus=2)
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (0, None)
    assert seen.gpu_ids == {node: (f"EMULATED-{node}-0", f"EMULATED-{node}-1") for node in BOTH}
    found = []
    for node in BOTH:
        text = (host.attempt(key) / node / "stdout").read_text()
        found.append(dict(line.split("=", 1) for line in text.splitlines()))
    assert [one["OPTSCHED_NODE_RANK"] for one in found] == ["0", "1"]
    assert [one["OPTSCHED_NODE"] for one in found] == list(BOTH)
    assert {one["OPTSCHED_NODES"] for one in found} == {"n1,n0"}
    assert {one["MASTER_ADDR"] for one in found} == {"127.0.0.1"}
    assert len({one["MASTER_PORT"] for one in found}) == 1
    assert seen.output == str(host.attempt(key) / "n1" / "stdout")


def test_two_gangs_meet_at_different_ports(host: Host) -> None:
    keys = [host.shell(f"gang{i}", "echo $MASTER_PORT; sleep 600", nodes=BOTH) for i in range(3)]
    ports = {until(lambda key=key: host.printed(key)) for key in keys}
    assert len(ports) == 3


def test_one_fails_all_end(host: Host) -> None:
    script = "if [ $OPTSCHED_NODE_RANK = 1 ]; then until test -e go; do sleep 0.02; done; exit 4; fi; sleep 600"  # noqa: E501
    key = host.shell("gang", script, nodes=BOTH)
    host.reach(key, AttemptState.RUNNING)
    (host.folder / "go").touch()
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (4, "on n0 its command ended with exit status 4")
    assert not host.processes(key)


def test_one_fails_without_a_controller(host: Host) -> None:
    script = "if [ $OPTSCHED_NODE_RANK = 1 ]; then until test -e go; do sleep 0.02; done; exit 4; fi; sleep 600"  # noqa: E501
    key = host.shell("gang", script, nodes=BOTH)
    host.reach(key, AttemptState.RUNNING)
    host.executor.close()
    (host.folder / "go").touch()
    until(lambda: all((host.attempt(key) / node / "exit.json").exists() for node in BOTH))
    host.executor = type(host.executor)(host.folder, host.nodes)
    assert host.end(key).exit_status == 4


def test_one_cannot_start_none_runs(host: Host) -> None:
    (host.folder / "run").write_text("#!/bin/sh\nsleep 600\n")
    (host.folder / "run").chmod(0o755)
    script = f"test $OPTSCHED_NODE_RANK = 0 && exec {host.folder}/run; exec no-such-command"
    seen = host.end(host.shell("gang", script, nodes=BOTH))
    assert seen.exit_status == 127
    seen = host.end(host.start("other", "no-such-command", nodes=BOTH))
    assert seen.exit_status == 127
    assert seen.reason in [f"on {node} its command no-such-command is not found" for node in BOTH]


def test_one_ends_well_the_others_go_on(host: Host) -> None:
    script = "test $OPTSCHED_NODE_RANK = 0 && exit 0; until test -e go; do sleep 0.02; done"
    key = host.shell("gang", script, nodes=BOTH)
    until(lambda: (host.attempt(key) / "n1" / "exit.json").exists())
    host.reach(key, AttemptState.RUNNING)
    (host.folder / "go").touch()
    assert host.end(key).exit_status == 0


def test_one_supervisor_is_killed(host: Host) -> None:
    key = host.shell("gang", "sleep 600", nodes=BOTH)
    host.reach(key, AttemptState.RUNNING)
    pid = host.executor._attempts[key].began("n0")
    assert pid is not None
    os.kill(pid["shim"][0], signal.SIGKILL)
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (None, "on n0 its supervisor was killed")
    assert not host.processes(key)


def test_all_are_asked_to_save(host: Host) -> None:
    """Rank 0 saves; the others may end by the signal."""
    script = 'test $OPTSCHED_NODE_RANK = 0 && trap "exit 85" TERM; touch ready$OPTSCHED_NODE_RANK; sleep 600 & wait'  # noqa: E501
    key = host.shell("gang", script, nodes=BOTH)
    until(lambda: all((host.folder / f"ready{rank}").exists() for rank in (0, 1)))
    host.executor.checkpoint_stop(key, 60)
    seen = host.end(key)
    assert seen.exit_status == 85
    assert not host.processes(key)


def test_a_gang_is_killed_whole(host: Host) -> None:
    key = host.shell("gang", "trap '' TERM; sleep 600", nodes=BOTH)
    host.reach(key, AttemptState.RUNNING)
    host.executor.kill(key)
    seen = host.end(key)
    assert (seen.exit_status, seen.reason) == (-9, None)
    assert not host.processes(key)
