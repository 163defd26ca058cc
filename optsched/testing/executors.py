"""What every executor must do, as a plug-in of pytest.

A test suite names it in its conftest.py, `pytest_plugins = ["optsched.testing.executors"]`, derives
a class from `Conformance`, and has a fixture `open_place`: a function that makes a `Place` on a
folder which is empty and seen by all nodes. Everything is asked through the interface, of real
processes, on at least two nodes of at least four GPUs each.
"""

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import (
    AttemptKey,
    AttemptState,
    Beside,
    Executor,
    NoAnswerError,
    Observation,
    Order,
    RefusedError,
    Shells,
)
from optsched.executors.supervision import processes
from optsched.model import Slot

PATIENCE_S = 120.0
COUNTING_JOB = str(Path(__file__).with_name("counting_job.py"))


def until(true: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Return what `true` returns once that is not false."""
    end_s = time.monotonic() + patience_s
    while not (result := true()):
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.02)
    return result


def run_beside(way: Beside, *words: str) -> str:
    """Return what a command prints, the words that enter an attempt before it."""
    account = pwd.getpwuid(os.geteuid() if way.user is None else way.user)
    root = os.geteuid() == 0
    done = subprocess.run(
        words,
        env={**(os.environ if way.enter else {}), **way.environment},
        cwd=way.directory,
        user=account.pw_uid if root else None,
        group=account.pw_gid if root else None,
        extra_groups=[] if root else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


class Place(ABC):
    """An executor, the nodes it has, and what can happen to them. `folder` is empty and seen by all
    nodes."""

    executor: Executor
    folder: Path
    nodes: tuple[str, ...]
    not_for_others: str | None = None
    """Why other users can run nothing here."""

    @abstractmethod
    def open(self) -> Executor:
        """Return an executor on the same state as the last one."""

    def reopen(self) -> None:
        """Reopen as after `kill -9` of the controller: nothing of the old executor is left but what
        it wrote."""
        self.executor.close()
        self.executor = self.open()

    def lose_node(self, node: str) -> None:
        """Have a node go down with all that runs there."""
        pytest.skip("its nodes cannot be lost one by one")

    def return_node(self, node: str) -> None:
        """Have it come back."""
        raise NotImplementedError

    def restart_manager(self) -> None:
        """Kill what stands between executor and nodes, and start it again."""
        pytest.skip("nothing stands between it and its nodes")

    def enter(self, way: Beside) -> Sequence[str]:
        """Return the words that enter an attempt."""
        return way.enter

    def beside(self, key: AttemptKey, *words: str, node: str | None = None) -> str:
        """Return what a command prints that is run beside an attempt."""
        assert isinstance(self.executor, Shells)
        way = self.executor.shell(key, False, node)
        return run_beside(way, *self.enter(way), *words)

    # -------------------------------------------------------------------------------------------
    # what tests ask

    def order(
        self,
        job: str,
        *argv: str,
        nodes: Sequence[str] = (),
        gpus: int = 1,
        number: int = 1,
        **more: Any,
    ) -> Order:
        placement = tuple(Slot(node=node, gpus=gpus, cpus=1) for node in nodes or self.nodes[:1])
        more.setdefault("directory", str(self.folder))
        more.setdefault("environment", {"PLACE": str(self.folder)})  # see `processes`
        return Order(key=AttemptKey(job, number), placement=placement, argv=argv, **more)

    def shell(self, job: str, script: str, **more: Any) -> AttemptKey:
        order = self.order(job, "/bin/sh", "-c", script, **more)
        self.executor.start(order)
        return order.key

    def uneven_gang(self, script: str) -> tuple[AttemptKey, dict[str, int]]:
        """Start a gang on the first two nodes, with three GPUs and one; return which."""
        order = self.order("gang", "/bin/sh", "-c", script, nodes=self.nodes[:2])
        counts = dict(zip(order.nodes, (3, 1), strict=True))
        placement = tuple(replace(slot, gpus=counts[slot.node]) for slot in order.placement)
        self.executor.start(replace(order, placement=placement))
        return order.key, counts

    def until_there(self, *names: str) -> None:
        """Wait for files that commands make."""
        until(lambda: all((self.folder / name).exists() for name in names))

    def see(self, key: AttemptKey) -> Observation:
        return next(seen for seen in self.executor.observe() if seen.key == key)

    def sees(self, key: AttemptKey) -> bool:
        return any(seen.key == key for seen in self.executor.observe())

    def reach(self, key: AttemptKey, state: AttemptState) -> Observation:
        until(lambda: self.see(key).state in (state, AttemptState.ENDED))
        seen = self.see(key)
        assert seen.state is state, (seen.exit_status, seen.reason)
        return seen

    def end(self, key: AttemptKey) -> Observation:
        return self.reach(key, AttemptState.ENDED)

    def ends(self, key: AttemptKey, status: int | None, reason: str | None = None) -> Observation:
        seen = self.end(key)
        assert (seen.exit_status, seen.reason) == (status, reason)
        return seen

    def printed(self, key: AttemptKey) -> str:
        output = self.see(key).output
        return Path(output).read_text() if output is not None and Path(output).exists() else ""

    def variables(self, key: AttemptKey) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.printed(key).splitlines())

    def processes(self, key: AttemptKey) -> list[int]:
        return processes.marked(f"OPTSCHED_KEY={key}".encode(), f"PLACE={self.folder}".encode())

    def clear(self) -> None:
        for seen in self.executor.observe():
            if seen.state is not AttemptState.ENDED:
                self.executor.kill(seen.key)
        until(lambda: all(seen.state is AttemptState.ENDED for seen in self.executor.observe()))
        self.executor.close()


class Conformance:
    """The suite."""

    @pytest.fixture
    def place(self, open_place: Callable[[Path], Place]) -> Iterator[Place]:
        """Return the executor that is tested."""
        # Who has told that it ended may still put a last file there.
        with tempfile.TemporaryDirectory(
            prefix="optsched-place-", ignore_cleanup_errors=True
        ) as name:
            Path(name).chmod(0o755)
            made = open_place(Path(name))
            yield made
            made.clear()

    def test_inventory(self, place: Place) -> None:
        statuses = place.executor.inventory()
        assert [status.node.name for status in statuses if status.usable] == list(place.nodes)
        assert all(status.node.gpus >= 4 for status in statuses)
        assert place.executor.observe() == ()

    def test_exact_node_and_what_the_command_is_told(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("A_TOKEN", "secret")
        saved = place.folder / "saved" / "env"
        order = place.order(
            "env",
            "env",
            nodes=place.nodes[1:2],
            gpus=2,
            checkpoint_directory=str(saved),
            environment={"MINE": "a=b"},
        )
        place.executor.start(order)
        seen = place.ends(order.key, 0)
        assert seen.started_s and seen.ended_s and 0 <= seen.ended_s - seen.started_s < 60
        assert abs(time.time() - seen.ended_s) < 60
        variables = place.variables(order.key)
        expected = {
            "OPTSCHED_JOB": "env",
            "OPTSCHED_ATTEMPT": "1",
            "OPTSCHED_KEY": "optsched:env:1",
            "OPTSCHED_CHECKPOINT_DIR": str(saved),
            "OPTSCHED_NODES": place.nodes[1],
            "OPTSCHED_NODE": place.nodes[1],
            "OPTSCHED_NODE_RANK": "0",
            "OPTSCHED_GPUS_PER_NODE": "2",
            "OMP_NUM_THREADS": "1",
            "MINE": "a=b",
        }
        assert {**variables, **expected} == variables
        assert "MASTER_ADDR" not in variables and "secret" not in variables.values()
        assert list(seen.gpu_ids) == [place.nodes[1]]
        assert len(set(seen.gpu_ids[place.nodes[1]])) == 2
        assert variables["CUDA_VISIBLE_DEVICES"].split(",") == list(seen.gpu_ids[place.nodes[1]])
        assert saved.is_dir()

    def test_no_gpu_is_given_twice(self, place: Place) -> None:
        keys = [place.shell(f"half{i}", "sleep 600", gpus=2) for i in range(2)]
        ids = [
            gpu
            for key in keys
            for gpu in place.reach(key, AttemptState.RUNNING).gpu_ids[place.nodes[0]]
        ]
        assert len(ids) == len(set(ids)) == 4

    def test_a_command_beside(self, place: Place) -> None:
        """Check that it has directory, variables and GPUs of the command; none beside what does
        not run."""
        if not isinstance(place.executor, Shells):
            pytest.skip("it starts no shell beside a job")
        script = "echo $CUDA_VISIBLE_DEVICES > gpus; mv gpus ready; export LATER=1; sleep 600"
        mine = {"MINE": "a=b c", "PLACE": str(place.folder)}
        key = place.shell("job", script, nodes=place.nodes[1:2], gpus=2, environment=mine)
        place.until_there("ready")
        place.reach(key, AttemptState.RUNNING)
        try:
            place.executor.shell(key, terminal=True)
        except RefusedError as refusal:
            assert f"no way into its nodes; log in to {place.nodes[1]} as user" in str(refusal)
            return
        words = "pwd; echo $OPTSCHED_JOB-$OPTSCHED_NODE-$LATER; echo $MINE; echo $1"
        told = place.beside(key, "sh", "-c", f"{words}; echo $CUDA_VISIBLE_DEVICES", "sh", "x  y")
        *lines, gpus = told.splitlines()
        assert lines == [str(place.folder), f"job-{place.nodes[1]}-", "a=b c", "x y"]
        assert gpus == (place.folder / "ready").read_text().strip() and gpus.count(",") == 1
        assert place.see(key).state is AttemptState.RUNNING
        place.executor.kill(key)
        place.end(key)
        for absent in (key, AttemptKey("nothing", 1)):
            with pytest.raises(RefusedError, match="does not run"):
                place.executor.shell(absent, terminal=True)

    def test_a_command_beside_each_of_a_gang(self, place: Place) -> None:
        """Check that it has the GPUs of the node on which it is asked for."""
        if not isinstance(place.executor, Shells):
            pytest.skip("it starts no shell beside a job")
        script = "touch at-$OPTSCHED_NODE_RANK; sleep 600"
        key, _ = place.uneven_gang(script)
        place.until_there("at-0", "at-1")
        seen = place.reach(key, AttemptState.RUNNING)
        with pytest.raises(RefusedError, match="not on elsewhere"):
            place.executor.shell(key, True, "elsewhere")
        try:
            place.executor.shell(key, True)
        except RefusedError as refusal:
            assert "no way into its nodes" in str(refusal)
            return
        words = ("sh", "-c", "echo $OPTSCHED_NODE $CUDA_VISIBLE_DEVICES")
        for node, gpu_ids in seen.gpu_ids.items():
            told = place.beside(key, *words, node=node)
            assert told == f"{node} {','.join(gpu_ids)}\n"

    def test_a_command_without_gpus_sees_none(self, place: Place) -> None:
        key = place.shell("cpu", 'echo "<$CUDA_VISIBLE_DEVICES>"', gpus=0)
        assert place.end(key).exit_status == 0
        assert place.printed(key) == "<>\n"

    def test_how_it_ended_is_told(self, place: Place) -> None:
        cases = {
            "status": (("sh", "-c", "exit 3"), 3, None),
            "kill": (("sh", "-c", "kill -9 $$"), -9, None),
            "usr2": (("sh", "-c", "kill -USR2 $$"), -12, None),
            "absent": (("no-such-command",), 127, "its command no-such-command is not found"),
        }
        orders = {job: place.order(job, *argv) for job, (argv, _, _) in cases.items()}
        for order in orders.values():
            place.executor.start(order)
        for job, (_, status, reason) in cases.items():
            place.ends(orders[job].key, status, reason)

    def test_gang(self, place: Place) -> None:
        """Check that its commands meet, ranked as placed; the first to fail ends all."""
        nodes = place.nodes[1::-1]
        script = """
        echo $MASTER_ADDR $MASTER_PORT; touch at-$OPTSCHED_NODE_RANK-$OPTSCHED_NODE
        until test -e at-0-* -a -e at-1-*; do sleep 0.02; done
        if [ $OPTSCHED_NODE_RANK = 1 ]; then until test -e go; do sleep 0.02; done; exit 4; fi
        sleep 600
        """
        key = place.shell("gang", script, nodes=nodes, gpus=2)
        seen = place.reach(key, AttemptState.RUNNING)
        assert {node: len(ids) for node, ids in seen.gpu_ids.items()} == dict.fromkeys(nodes, 2)
        place.until_there(*(f"at-{rank}-{node}" for rank, node in enumerate(nodes)))
        address, port = until(lambda: place.printed(key).split())
        assert address and int(port) > 1023
        (place.folder / "go").touch()
        seen = place.ends(key, 4, f"on {nodes[1]} its command ended with exit status 4")
        assert not place.processes(key)

    def test_a_gang_with_different_numbers_of_gpus(self, place: Place) -> None:
        """Check that its commands begin together, and one that fails ends all."""
        script = """
        echo $OPTSCHED_GPUS_PER_NODE $CUDA_VISIBLE_DEVICES $MASTER_PORT > at-$OPTSCHED_NODE_RANK
        until test -e go; do sleep 0.02; done
        test $OPTSCHED_NODE_RANK = 0 || exit 4
        sleep 600
        """
        key, counts = place.uneven_gang(script)
        seen = place.reach(key, AttemptState.RUNNING)
        assert {node: len(ids) for node, ids in seen.gpu_ids.items()} == counts
        files = [place.folder / f"at-{rank}" for rank in (0, 1)]
        until(lambda: all(file.exists() and file.read_text().endswith("\n") for file in files))
        said = [file.read_text().split() for file in files]
        assert (
            [int(words[0]) for words in said]
            == [3, 1]
            == [len(words[1].split(",")) for words in said]
        )
        assert said[0][2] == said[1][2]
        (place.folder / "go").touch()
        seen = place.ends(key, 4, f"on {place.nodes[1]} its command ended with exit status 4")
        assert not place.processes(key)

    def test_a_gang_ends_well(self, place: Place) -> None:
        place.ends(place.shell("gang", "exit 0", nodes=place.nodes[:2]), 0)

    def test_a_gang_is_killed_whole(self, place: Place) -> None:
        script = "trap '' TERM; touch $OPTSCHED_NODE; sleep 600"
        key = place.shell("gang", script, nodes=place.nodes[:2])
        place.until_there(*place.nodes[:2])
        for _ in range(3):
            place.executor.kill(key)
        seen = place.ends(key, -9)
        assert not place.processes(key)
        place.executor.kill(key)
        assert place.see(key) == seen

    def test_starting_again_does_nothing(self, place: Place) -> None:
        order = place.order("once", "sh", "-c", "echo run >> runs; sleep 0.3")
        for _ in range(3):
            place.executor.start(order)
        place.reopen()
        place.executor.start(order)
        place.end(order.key)
        place.executor.start(order)
        place.reopen()
        place.executor.start(order)
        assert place.end(order.key).exit_status == 0
        assert (place.folder / "runs").read_text() == "run\n"

    def test_saved_and_resumed_elsewhere(self, place: Place) -> None:
        """Check that no step is lost and none is done twice, on another node and with more GPUs."""
        log, steps = place.folder / "log", 10**6
        words = (sys.executable, "-S", COUNTING_JOB, str(log))
        saved = str(place.folder / "checkpoints")
        first = place.order("count", *words, str(steps), "0.02", checkpoint_directory=saved)
        place.executor.start(first)
        until(lambda: log.exists() and len(log.read_text().splitlines()) > 5)
        for _ in range(2):  # the second time it was asked before
            place.executor.checkpoint_stop(first.key, 60)
        place.ends(first.key, 85)
        done = int((Path(saved) / "step").read_text())
        second = place.order(
            "count",
            *words,
            str(done + 5),
            "0.02",
            nodes=place.nodes[1:2],
            gpus=2,
            number=2,
            checkpoint_directory=saved,
        )
        place.executor.start(second)
        assert place.end(second.key).exit_status == 0
        lines = [line.split() for line in log.read_text().splitlines()]
        assert "OVERLAP" not in {line[0] for line in lines}
        counted = [(int(line[0]), int(line[1])) for line in lines if line[0] != "SAVED"]
        assert counted == [(step, 1 if step <= done else 2) for step in range(1, done + 6)]

    def test_a_gang_is_asked_to_save(self, place: Place) -> None:
        script = 'test $OPTSCHED_NODE_RANK = 0 && trap "exit 85" TERM; touch r$OPTSCHED_NODE_RANK; sleep 600 & wait'  # noqa: E501
        key = place.shell("gang", script, nodes=place.nodes[:2])
        place.until_there("r0", "r1")
        place.executor.checkpoint_stop(key, 60)
        place.ends(key, 85)
        assert not place.processes(key)

    def test_the_deadline_holds_without_a_controller(self, place: Place) -> None:
        key = place.shell("deaf", "trap '' TERM; touch ready; while :; do sleep 0.05; done")
        place.until_there("ready")
        place.executor.checkpoint_stop(key, 0.5)
        place.executor.close()
        try:
            until(lambda: not place.processes(key))
        finally:
            place.executor = place.open()
        place.ends(key, -9, "did not stop within the 0.5 s it was given, and was killed")

    def test_signals_reach_its_commands(self, place: Place) -> None:
        script = (
            "trap 'touch got' USR1; trap 'exit 7' USR2; touch ready; while :; do sleep 0.05; done"
        )
        key = place.shell("hears", script)
        place.until_there("ready")
        place.executor.signal(key, signal.SIGUSR1)
        place.until_there("got")
        place.executor.signal(key, signal.SIGUSR2)
        place.ends(key, 7)
        with pytest.raises(RefusedError):
            place.executor.signal(key, signal.SIGUSR1)

    def test_killed_before_it_was_started(self, place: Place) -> None:
        order = place.order("never", "touch", "ran")
        place.executor.kill(order.key)
        for _ in range(2):
            place.executor.start(order)
            seen = place.see(order.key)
            assert (seen.state, seen.exit_status, seen.reason) == (
                AttemptState.ENDED,
                None,
                "was never started",
            )
            place.reopen()
        assert not (place.folder / "ran").exists()

    def test_killed_right_after_it_was_started(self, place: Place) -> None:
        keys = [place.shell(f"job{i}", "echo ran >> runs; sleep 600", gpus=0) for i in range(4)]
        for key in keys:
            place.executor.kill(key)
        for key in keys:
            assert place.end(key).exit_status in (-9, None)

    def test_what_is_left_behind_is_ended(self, place: Place) -> None:
        script = "(setsid sh -c 'trap \"\" TERM; sleep 600 & touch up; wait' &); (sleep 600 &); "
        script += "until test -e up; do sleep 0.02; done"
        key = place.shell("daemons", script)
        place.ends(key, 0, "left 3 processes behind, which were killed")
        assert not place.processes(key)

    def test_a_controller_that_is_killed_finds_what_runs(self, place: Place) -> None:
        key = place.shell("job", "until test -e go; do sleep 0.05; done; exit 7")
        before = place.reach(key, AttemptState.RUNNING)
        place.reopen()
        after = place.see(key)
        assert after == replace(before, started_s=before.started_s or after.started_s)
        (place.folder / "go").touch()
        assert place.end(key).exit_status == 7

    def test_what_ended_meanwhile_is_told(self, place: Place) -> None:
        key = place.shell("job", "touch ran; exit 7")
        place.executor.close()
        try:
            until(lambda: (place.folder / "ran").exists() and not place.processes(key))
        finally:
            place.executor = place.open()
        seen = place.end(key)
        place.reopen()
        assert place.see(key) == seen
        assert (seen.exit_status, seen.reason) == (7, None)

    def test_forgotten(self, place: Place) -> None:
        key = place.shell("job", "echo hello; until test -e go; do sleep 0.05; done")
        place.reach(key, AttemptState.RUNNING)
        with pytest.raises(NoAnswerError):
            place.executor.forget(key)
        (place.folder / "go").touch()
        output = place.end(key).output
        for _ in range(2):
            place.executor.forget(key)
        assert not place.sees(key)
        place.reopen()
        assert not place.sees(key)
        assert output is not None and Path(output).read_text() == "hello\n"

    def test_progress_and_use(self, place: Place) -> None:
        script = "import os; x = bytearray(200 << 20); print(open(os.environ['OPTSCHED_PROGRESS'], 'w').write("  # noqa: E501
        script += """'{"step": 3, "at_s": 9.5}'))"""
        order = place.order("job", sys.executable, "-S", "-c", script)
        place.executor.start(order)
        seen = place.end(order.key)
        assert seen.progress is not None and (seen.progress.step, seen.progress.at_s) == (3, 9.5)
        assert seen.peak_memory_gib is not None and 0.15 < seen.peak_memory_gib < 0.5
        assert seen.cpu_s is not None and seen.cpu_s > 0

    def test_too_much_memory(self, place: Place) -> None:
        script = "import time; x = bytearray(b'x') * (400 << 20); time.sleep(600)"
        order = place.order("job", sys.executable, "-S", "-c", script, memory_gib=(0.125,))
        place.executor.start(order)
        place.ends(order.key, -9, "its memory limit of 0.125 GiB was exceeded")

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"nodes": ("elsewhere",)}, "node elsewhere is not one of this executor"),
            ({"gpus": 999}, "GPUs"),
            ({"directory": "here"}, "'here' is not an absolute path"),
            ({"environment": {"A=B": "c"}}, "NUL"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, place: Place, change: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(RefusedError, match=words):
            place.shell("job", "true", **change)
        assert place.executor.observe() == ()
        place.reopen()
        assert place.executor.observe() == ()

    def test_as_another_user(self, place: Place) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can start processes of others")
        if place.not_for_others is not None:
            pytest.skip(place.not_for_others)
        (place.folder / "theirs").mkdir()
        os.chown(place.folder / "theirs", 65534, 65534)
        script = "touch $OPTSCHED_CHECKPOINT_DIR/saved || exit 4; id -u; id -g; echo mine > $OPTSCHED_NODE_RANK; "  # noqa: E501
        script += "until test -e 0 -a -e 1; do sleep 0.02; done; exit 3"
        order = place.order(
            "job",
            "sh",
            "-c",
            script,
            user=65534,
            nodes=place.nodes[:2],
            directory=str(place.folder / "theirs"),
            checkpoint_directory=str(place.folder / "checkpoints" / "job"),
        )
        place.executor.start(order)
        seen = place.end(order.key)
        assert (seen.exit_status, place.printed(order.key)) == (3, "65534\n65534\n"), seen.reason
        assert (place.folder / "theirs" / "1").stat().st_uid == 65534

    def test_a_lost_node(self, place: Place) -> None:
        """Check that what ran there ends in an unknown way; what runs elsewhere goes on."""
        lost, other = place.nodes[:2]
        gone, stays = (
            place.shell("gone", "sleep 600", nodes=[lost]),
            place.shell("stays", "sleep 600", nodes=[other]),
        )
        for key in (gone, stays):
            place.reach(key, AttemptState.RUNNING)
        place.lose_node(lost)
        try:
            seen = place.end(gone)
            assert seen.exit_status is None and seen.reason
            unusable = until(
                lambda: [status for status in place.executor.inventory() if not status.usable]
            )
            assert [status.node.name for status in unusable] == [lost]
            assert unusable[0].reason
            assert place.see(stays).state is AttemptState.RUNNING
        finally:
            place.return_node(lost)
        until(lambda: all(status.usable for status in place.executor.inventory()))
        assert place.end(place.shell("again", "exit 0", nodes=[lost])).exit_status == 0

    def test_a_manager_that_is_restarted(self, place: Place) -> None:
        """Check that what runs goes on, and ends meanwhile or later; both are told."""
        later = place.shell("later", "until test -e go; do sleep 0.05; done; exit 7")
        soon = place.shell("soon", "until test -e went; do sleep 0.05; done; exit 6")
        for key in (later, soon):
            place.reach(key, AttemptState.RUNNING)
        (place.folder / "went").touch()
        place.restart_manager()
        assert place.end(soon).exit_status == 6
        assert place.reach(later, AttemptState.RUNNING)
        (place.folder / "go").touch()
        assert place.end(later).exit_status == 7
