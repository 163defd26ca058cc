"""What is particular to Slurm, on a real cluster: lost answers and jobs, jobs of others, nodes that
are taken away."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from optsched.errors import InputError
from optsched.executors.base import AttemptState, NoAnswerError
from optsched.executors.slurm import SlurmExecutor
from optsched.executors.slurm.attempt import FORGOTTEN
from optsched.executors.slurm.client import PROGRAMS, SlurmClient
from optsched.executors.slurm.site import Site
from optsched.executors.supervision import processes
from optsched.testing.executors import until
from tests.live.slurm_cluster import SlurmCluster, slurm_cluster

from .test_slurm_conformance import SlurmPlace

RUN = "echo run >> runs; until test -e go; do sleep 0.05; done"


@pytest.fixture
def place(slurm: SlurmCluster) -> Iterator[SlurmPlace]:
    with tempfile.TemporaryDirectory(prefix="optsched-place-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        made = SlurmPlace(Path(name), slurm)
        yield made
        made.clear()


def jobs_of(place: SlurmPlace, states: str = "all") -> list[tuple[int, str]]:
    """Number and state of each job that Slurm has of this place's folder."""
    text = place.cluster.slurm("squeue", "-h", f"--states={states}", "-o", "%i %T %Z")
    listed = [line.split(" ", 2) for line in text.splitlines()]
    return [
        (int(number), state)
        for number, state, folder in listed
        if folder.startswith(str(place.folder))
    ]


def open_with(place: SlurmPlace, sbatch: str, patience_s: float = 2.0) -> None:
    """Reopen with a script in place of sbatch; `$REAL` is the real one."""
    programs = place.folder / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        real = shutil.which(name)
        assert real is not None
        if name == "sbatch":
            (programs / name).write_text(f"#!/bin/sh\nREAL={real}\n{sbatch}\n")
            (programs / name).chmod(0o755)
        else:
            (programs / name).symlink_to(real)
    place.executor.close()
    place.executor = place.cluster.executor(
        place.folder / "state", patience_s=patience_s, programs=programs
    )


@pytest.mark.parametrize("reopened", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_answer_that_is_lost(place: SlurmPlace, reopened: bool) -> None:
    """The job was submitted, but sbatch was killed before it could say so: it is found, not
    submitted again."""
    open_with(place, '"$REAL" "$@" > /dev/null; sleep 600')
    order = place.order("job", "sh", "-c", RUN)
    with pytest.raises(NoAnswerError, match="sbatch did not answer"):
        place.executor.start(order)
    if reopened:
        place.reopen()

    def started() -> bool:
        with suppress(NoAnswerError):
            place.executor.start(order)
            return place.see(order.key).state is AttemptState.RUNNING
        return False

    until(started)
    (place.folder / "go").touch()
    assert place.end(order.key).exit_status == 0
    assert len(jobs_of(place)) == 1
    assert (place.folder / "runs").read_text() == "run\n"


def test_a_submission_that_came_to_nothing(place: SlurmPlace) -> None:
    """It was killed before the job was submitted: that is done once it is asked for again."""
    open_with(place, "sleep 600")
    order = place.order("job", "sh", "-c", RUN)
    with pytest.raises(NoAnswerError):
        place.executor.start(order)
    place.reopen()
    assert place.see(order.key).state is AttemptState.STARTING
    for _ in range(2):
        place.executor.start(order)
    (place.folder / "go").touch()
    assert place.end(order.key).exit_status == 0
    assert len(jobs_of(place)) == 1


@pytest.mark.slow
def test_killed_while_nobody_knows_whether_it_was_submitted(place: SlurmPlace) -> None:
    open_with(place, "sleep 600")
    order = place.order("job", "touch", "ran")
    with pytest.raises(NoAnswerError):
        place.executor.start(order)
    place.reopen()
    place.executor.kill(order.key)
    place.executor.start(order)
    seen = place.end(order.key)
    assert (seen.exit_status, seen.reason) == (None, "was never started")
    assert jobs_of(place) == [] and not (place.folder / "ran").exists()


def test_submitted_twice(place: SlurmPlace) -> None:
    """A second job with the same key, as of a submission that arrives late, never runs and is taken
    away."""
    open_with(
        place, 'IN=$(mktemp); cat > $IN; "$REAL" "$@" < $IN; "$REAL" "$@" < $IN > /dev/null; rm $IN'
    )
    key = place.shell("job", RUN)
    place.reach(key, AttemptState.RUNNING)
    until(
        lambda: (
            place.see(key)
            and sorted(state for _, state in jobs_of(place)) == ["CANCELLED", "RUNNING"]
        )
    )
    (place.folder / "go").touch()
    assert place.end(key).exit_status == 0
    assert (place.folder / "runs").read_text() == "run\n"


def test_jobs_of_others_with_our_comment(place: SlurmPlace) -> None:
    """Neither another user's nor one of another folder's is taken for ours."""
    wrapped = (
        "--parsable",
        "--hold",
        "--comment=optsched:job:1",
        "--output=/dev/null",
        "--wrap=sleep 600",
    )
    environment = {"SLURM_CONF": str(place.cluster.conf), "PATH": os.environ["PATH"]}
    as_other = {"user": 65534, "group": 65534, "extra_groups": []}
    at = place.folder / "state" / "attempts" / "job" / "1"
    theirs = [
        subprocess.run(
            ["sbatch", f"--chdir={folder}", *wrapped],
            env=environment,
            check=True,
            text=True,
            capture_output=True,
            cwd="/",
            **user,
        ).stdout.strip()  # type: ignore[call-overload]
        for folder, user in ((at, as_other), ("/", {}))
    ]
    try:
        assert place.executor.observe() == ()
        key = place.shell("job", "exit 3")
        assert place.end(key).exit_status == 3
        place.executor.kill(key)
        for number in theirs:
            assert place.cluster.slurm("squeue", "-h", "-j", number, "-o", "%T") == "PENDING\n"
    finally:
        place.cluster.slurm("scancel", *theirs)


def test_without_slurms_controller(place: SlurmPlace) -> None:
    """Nobody waits long for an answer, and what is to stop stops in its time all the same."""
    mine = {"PLACE": str(place.folder)}
    waits = "while :; do sleep 0.05; done"
    saves = place.shell(
        "saves", f"trap 'touch saved; exit 85' TERM; touch a; {waits}", environment=mine
    )
    dies = place.shell("dies", f"trap '' TERM; touch b; {waits}", environment=mine)
    until(lambda: (place.folder / "a").exists() and (place.folder / "b").exists())
    place.cluster.until_saved()
    place.executor.close()
    place.executor = place.cluster.executor(place.folder / "state", patience_s=0.5)
    place.cluster.kill_controller()
    try:
        time.sleep(0.2)
        for ask in (
            place.executor.observe,
            lambda: place.executor.start(place.order("late", "true")),
        ):
            began_s = time.monotonic()
            with pytest.raises(NoAnswerError):
                ask()
            assert time.monotonic() < began_s + 10
        place.executor.checkpoint_stop(saves, 60)
        place.executor.kill(dies)
        until(lambda: not place.processes(saves) and not place.processes(dies))
        assert (place.folder / "saved").exists()
    finally:
        place.cluster.start_controller()
        place.reopen()
    assert place.end(saves).exit_status == 85
    assert place.end(dies).exit_status == -9


@pytest.mark.slow
def test_a_job_that_slurm_forgets(place: SlurmPlace) -> None:
    """A controller that crashes within seconds of a submission forgets the job and gives its number
    to the next one."""
    place.cluster.until_saved()
    key = place.shell("job", "touch ran; sleep 600", environment={"PLACE": str(place.folder)})
    until(lambda: (place.folder / "ran").exists())
    ((number, _),) = jobs_of(place)
    place.cluster.kill_controller()
    place.cluster.start_controller()
    other = place.shell(
        "other", RUN, nodes=["n2"]
    )  # on n1 it would be a duplicate, for which Slurm drains the node
    assert (number, "PENDING") in jobs_of(place) or (number, "RUNNING") in jobs_of(place)
    seen = place.end(key)
    assert (seen.exit_status, seen.reason) == (None, FORGOTTEN)
    assert not place.processes(key)
    place.reach(other, AttemptState.RUNNING)
    (place.folder / "go").touch()
    assert place.end(other).exit_status == 0


def test_what_slurm_does_not_start_is_taken_back(place: SlurmPlace) -> None:
    """For a job that was there before, which the inventory shows; it may be tried again."""
    words = (
        "--parsable",
        "--partition=all",
        "--nodelist=n1",
        "--mem=100",
        "--output=/dev/null",
        "--wrap=sleep 600",
    )
    before = place.cluster.slurm("sbatch", "--gres=gpu:3", *words).strip()
    place.executor.site = replace(place.executor.site, start_timeout_s=3.0)
    try:
        key = place.shell("a", RUN, gpus=2)
        until(lambda: place.see(key).reason == "Slurm has it wait: Resources")
        seen = place.end(key)
        assert (seen.exit_status, seen.reason) == (None, "Slurm did not start it: Resources")
        assert seen.retry_s == 15.0 and not jobs_of(place, "PENDING,RUNNING")
        place.reopen()
        assert place.see(key).retry_s == 15.0
        until(lambda: place.executor.inventory()[0].reason == "others hold 3 of its 4 GPUs")
        status = place.executor.inventory()[0]
        assert (status.node.gpus, status.hardware.gpus) == (1, 4)
        other = place.shell("b", RUN)
        until(lambda: place.see(other).state is AttemptState.RUNNING)
        place.executor._nodes_s = -float("inf")
        assert place.executor.inventory()[0] == status  # ours is none of the others
        (place.folder / "go").touch()
        assert place.end(other).exit_status == 0
    finally:
        place.cluster.slurm("scancel", before)
        until(lambda: before not in place.cluster.slurm("squeue", "-h", "-o", "%i").split())


def test_a_node_that_is_drained_before_it_starts(place: SlurmPlace) -> None:
    holds = place.shell("holds", "sleep 600", gpus=4)
    place.reach(holds, AttemptState.RUNNING)
    waits = place.shell("waits", "touch ran", gpus=4)
    seen = place.see(waits)
    assert seen.state is AttemptState.STARTING
    place.cluster.set_node(1, "drain")
    try:
        until(lambda: not place.executor.inventory()[0].usable)
        assert place.executor.inventory()[0].reason == "is drained: a test"
        seen = place.end(waits)
        assert (seen.exit_status, seen.reason) == (None, "node n1 is drained: a test")
        assert place.see(holds).state is AttemptState.RUNNING
        place.executor.kill(holds)
        place.end(holds)
    finally:
        place.cluster.set_node(1, "resume")
    assert not (place.folder / "ran").exists()


def test_what_is_asked_for(place: SlurmPlace) -> None:
    """Cores, memory and GPUs are Slurm's to give; what it gave is read back."""
    other = place.shell("other", RUN, gpus=1)
    place.reach(other, AttemptState.RUNNING)
    key = place.shell("job", RUN, gpus=2, memory_gib=(3.5,))
    seen = place.reach(key, AttemptState.RUNNING)
    (number,) = [number for number, _ in jobs_of(place)][1:]
    told = place.cluster.slurm("scontrol", "-o", "-d", "show", "job", str(number))
    assert "GRES=gpu:h100:2(IDX:1-2)" in told and seen.gpu_ids == {"n1": ("1", "2")}
    assert (
        " MinMemoryNode=3.50G " in told and " CPUs/Task=1 " in told and " ReqNodeList=n1 " in told
    )
    told = place.cluster.slurm("scontrol", "-o", "show", "job", str(number - 1))
    assert (
        " MinMemoryNode=125000M " in told
    )  # no more is said of it than its GPU, a quarter of the node's
    (place.folder / "go").touch()
    for each in (key, other):
        assert place.end(each).exit_status == 0


def test_cancelled_in_slurm(place: SlurmPlace) -> None:
    """Nobody asked for it here: the job is to be started again, from what it saved if it did."""
    plain = place.shell("plain", "sleep 600")
    saves = place.shell("saves", "trap 'exit 85' TERM; touch a; sleep 600 & wait")
    place.reach(plain, AttemptState.RUNNING)
    until(lambda: (place.folder / "a").exists())
    place.cluster.slurm("scancel", *(str(number) for number, _ in jobs_of(place)))
    for key, status in ((plain, None), (saves, 85)):
        seen = place.end(key)
        assert (seen.exit_status, seen.reason) == (status, "its job was cancelled in Slurm")


def test_an_agent_that_is_killed(place: SlurmPlace) -> None:
    key = place.shell("job", "sleep 600", environment={"PLACE": str(place.folder)})
    place.reach(key, AttemptState.RUNNING)
    (agent,) = processes.marked(
        f"SLURM_CONF={place.cluster.conf}".encode(), b"SLURM_JOB_NAME=" + _name(place, key)
    )
    os.kill(agent, 9)
    seen = place.end(key)
    assert (
        seen.exit_status is None
        and seen.reason
        and "its agent did not say how it ended" in seen.reason
    )
    processes.send_all(
        place.processes(key), 9
    )  # which proctrack/linuxproc, unlike proctrack/cgroup, loses sight of


def _name(place: SlurmPlace, key: object) -> bytes:
    return (
        place.cluster.slurm("squeue", "-h", "-j", str(jobs_of(place)[0][0]), "-o", "%j")
        .strip()
        .encode()
    )


def test_slurm_has_no_such_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    client = SlurmClient(30.0, slurm.conf)
    with pytest.raises(InputError, match="Slurm has no nodes of partition gpus; see `sinfo`"):
        SlurmExecutor(tmp_path, client, Site(partition="gpus"), {})


def test_a_reservation(slurm: SlurmCluster, tmp_path: Path) -> None:
    slurm.slurm(
        "scontrol",
        "create",
        "reservation",
        "reservationname=ours",
        "users=root",
        "nodes=n2,n4",
        "starttime=now",
        "duration=UNLIMITED",
        "flags=ignore_jobs",
    )
    try:
        executor = SlurmExecutor(
            tmp_path, SlurmClient(30.0, slurm.conf), Site(reservation="ours"), {}
        )
        assert [status.node.name for status in executor.inventory()] == ["n2", "n4"]
        assert "--reservation=ours" in executor.site.words()
        executor.close()
    finally:
        slurm.slurm("scontrol", "delete", "reservationname=ours")


@pytest.mark.slow
def test_a_node_that_crashes() -> None:
    with (
        slurm_cluster(2) as cluster,
        tempfile.TemporaryDirectory(prefix="optsched-place-", ignore_cleanup_errors=True) as name,
    ):
        place = SlurmPlace(Path(name), cluster)
        gone = place.shell("gone", "sleep 600", nodes=["n1", "n2"], environment={"PLACE": name})
        stays = place.shell("stays", "sleep 600", nodes=["n2"])
        for key in (gone, stays):
            place.reach(key, AttemptState.RUNNING)
        cluster.kill_node(1)
        seen = place.end(gone)
        assert (seen.exit_status, seen.reason) == (None, "a node failed")
        until(lambda: [one.usable for one in place.executor.inventory()] == [False, True])
        assert place.see(stays).state is AttemptState.RUNNING
        assert not place.processes(gone)
        cluster.start_node(1)
        until(lambda: all(one.usable for one in place.executor.inventory()))
        place.clear()
