"""The controller and jobs that users submit by sbatch, on a real Slurm cluster."""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from optsched.control.controller import Controller
from optsched.control.journal.events import Cancelled, Event, Held, Noted, Released
from optsched.control.journal.journal import Journal
from optsched.control.journal.state import LiveJob, State
from optsched.control.opening import opened
from optsched.control.settings import read_settings
from optsched.executors.base import AttemptKey, Order
from optsched.executors.sbatch import SbatchExecutor
from optsched.executors.sbatch.heartbeat import Heartbeat
from optsched.executors.sbatch.jobs_json import WHAT_CHANGES
from optsched.executors.slurm.client import PROGRAMS
from optsched.model.cluster import Window
from optsched.model.instance import Slot
from optsched.testing.executors import COUNTING_JOB

from .slurm_cluster import SlurmCluster, missing, slurm_cluster, wait_until
from .test_fault_campaign import HERE, JOBS

TOML = """
format = "optsched-cluster/1"
executor = "slurm"
state = "{state}"
every = "5s"
budget = "5s"
[[tenants]]
name = "vision"
[slurm]
conf = "{conf}"
partition = "optsched"
poll = "0.2s"
sbatch = true
heartbeat = "{state}/../heartbeat/optsched"
min_run = "{min_run}"
max_preemptions = 1000
"""
PROGRAM = """#!/bin/sh
echo >> {folder}/calls; n=$(wc -l < {folder}/calls); point=$(cat {folder}/point)
[ "$n" = "$point" ] && kill -9 $PPID
{real} "$@"
status=$?
[ "-$n" = "$point" ] && kill -9 $PPID
exit $status
"""
"""One of Slurm's programs that kills whoever calls it, before or after it does its work."""
POINTS = int(os.environ.get("OPTSCHED_FAULT_POINTS", "40"))
NOBODY = 65534
COMMON = ("--time=10", "--mem=100", "--output=/dev/null")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with slurm_cluster(nodes=4, gpus=4, holds=True) as made:
        yield made


class Lab:
    """A controller turned by the test, and a folder in which jobs run."""

    def __init__(self, controller: Controller, folder: Path, cluster: SlurmCluster) -> None:
        self.controller, self.folder, self.cluster = controller, folder, cluster
        self.notes: list[str] = []
        controller.listeners.append(self.hear)

    def hear(self, _: float, event: Event) -> None:
        if isinstance(event, Noted):
            self.notes.append(event.text)

    def submit(self, script: str, *words: str, uid: int = NOBODY) -> str:
        return self.cluster.sbatch(script, *COMMON, *words, uid=uid, folder=self.folder)

    def job(self, name: str) -> LiveJob:
        return self.controller.state.jobs[name]

    def status(self, name: str) -> str | None:
        job = self.controller.state.jobs.get(name)
        return None if job is None else job.status

    def until(self, true: Callable[[], object], seconds: float = 90.0) -> None:
        end_s = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end_s, {
                name: job.status for name, job in self.controller.state.jobs.items()
            }
            self.controller.step()
            self.controller.executor.changes(0.1)

    def log(self) -> list[list[str]]:
        file = self.folder / "log"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@contextmanager
def lab(cluster: SlurmCluster, more: str = "", min_run: str = "0s") -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="optsched-lab-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        cluster.shared.mkdir(exist_ok=True)
        cluster.shared.chmod(0o755)
        text = TOML.format(conf=cluster.conf, state=cluster.shared, min_run=min_run)
        (folder / "cluster.toml").write_text(text + more)
        with opened(read_settings(folder / "cluster.toml")) as controller:
            yield Lab(controller, folder, cluster)


def test_twenty_jobs_of_two_users(cluster: SlurmCluster) -> None:
    """Each ends, having run once, as none is to be stopped for others, and no GPU is ever given to
    two."""
    with lab(cluster) as here:
        (here.folder / "log").touch()
        (here.folder / "log").chmod(0o666)
        draw = random.Random(0)
        gpus = [draw.choice((1, 1, 2, 4)) for _ in range(20)]
        script = "echo + $SLURM_JOB_ID $SLURMD_NODENAME $SLURM_JOB_GPUS >> log; sleep 0.5; echo - $SLURM_JOB_ID >> log"  # noqa: E501
        jobs = [
            here.submit(
                script,
                f"--gres=gpu:{count}",
                "--account=vision",
                "--no-requeue",
                uid=NOBODY if i % 2 else 0,
            )
            for i, count in enumerate(gpus)
        ]
        here.until(lambda: all(here.status(job) == "completed" for job in jobs))
        held: dict[tuple[str, str], str] = {}
        for sign, job, *where in here.log():
            if sign == "-":
                held = {place: holder for place, holder in held.items() if holder != job}
                continue
            node, ids = where[0], where[1].split(",")
            assert len(ids) == gpus[jobs.index(job)]
            assert not [gpu for gpu in ids if (node, gpu) in held]
            held |= {(node, gpu): job for gpu in ids}
            assert [node] == [one.placement[0].node for one in here.job(job).attempts]
        assert sorted(line[1] for line in here.log() if line[0] == "+") == sorted(jobs)
        for i, job in enumerate(jobs):
            live = here.job(job)
            assert live.submission.user_id == (NOBODY if i % 2 else None)
            assert live.submission.job.tenant == "vision" and live.submission.job.user in (
                "root",
                "nobody",
            )
        longest = here.job(jobs[0]).submission
        assert (longest.job.work_s, longest.estimate) == (600.0, "its time limit")


def test_only_what_saves_is_stopped_for_others(cluster: SlurmCluster) -> None:
    """And not before it has run for a while: jobs of which nobody says that they save run to their
    end."""
    saves = "trap 'exit 85' TERM; while ! test -e go; do sleep 0.05; done"
    with lab(cluster, min_run="4s") as here:
        plain = [
            here.submit("until test -e go; do sleep 0.05; done", "--gres=gpu:4") for _ in range(3)
        ]
        saver = here.submit(saves, "--gres=gpu:4", "--comment=optsched: save=1s")
        here.until(lambda: all(here.status(job) == "running" for job in (*plain, saver)))
        short = here.submit("true", "--gres=gpu:4", "--time=1")
        here.until(lambda: here.status(short) == "completed")
        (here.folder / "go").touch()
        here.until(lambda: all(here.status(job) == "completed" for job in (*plain, saver)))
        assert [here.job(job).preemptions for job in (*plain, saver)] == [0, 0, 0, 1]
        first = here.job(saver).attempts[0]
        assert (
            first.stop_s is not None
            and first.started_s is not None
            and first.stop_s - first.started_s >= 4
        )


@pytest.mark.slow
def test_what_users_and_administrators_do(cluster: SlurmCluster) -> None:
    """Cancelled and held there is cancelled and held here, and the other way round."""
    with lab(cluster) as here:
        waits = "until test -e go; do sleep 0.05; done"
        runs, stays = here.submit(waits, "--gres=gpu:1"), here.submit(waits, "--gres=gpu:1")
        held, kept, ours = (here.submit("true", "--hold", "--gres=gpu:1") for _ in range(3))
        odd = here.submit("true", "--exclude=n1")
        said = here.submit(waits, "--gres=gpu:1", "--comment=optsched: cheese=1 weight=0.5")
        here.until(
            lambda: here.status(runs) == here.status(stays) == here.status(said) == "running"
        )
        here.until(lambda: here.status(held) == here.status(kept) == here.status(ours) == "held")
        assert any(
            note.startswith(f"{said}: in its comment cheese=1: choose from") for note in here.notes
        )
        assert here.job(said).submission.job.weight == 0.5
        assert f"{odd} is left alone: it excludes nodes" in here.notes and here.status(odd) is None
        cluster.as_user(NOBODY, "scancel", runs)
        here.controller.record(Cancelled(job=stays, by="root"), Cancelled(job=ours, by="root"))
        here.controller.record(Held(job=kept, by="root"))
        cluster.as_user(NOBODY, "scontrol", "release", f"{held},{kept}")
        here.until(
            lambda: here.status(runs) == here.status(stays) == here.status(ours) == "cancelled"
        )
        assert here.job(runs).reason == "it was cancelled in Slurm"
        here.until(lambda: here.status(held) == "completed")
        for job in (stays, ours):
            here.until(
                lambda job=job: (
                    cluster.slurm(  # type: ignore[misc]
                        "squeue", "-h", "--states=all", "-j", job, "-o", "%T"
                    )
                    == "CANCELLED\n"
                )
            )
        assert here.status(kept) == "held"  # what is held here Slurm does not release
        here.controller.record(Released(job=kept, by="root"))
        (here.folder / "go").touch()
        here.until(lambda: here.status(kept) == here.status(said) == "completed")


def submit_counting(cluster: SlurmCluster, folder: Path) -> dict[str, tuple[str, int]]:
    """The jobs of the fault campaign as users submit them: Slurm's number of each, with its name
    and its steps."""
    found = {}
    for name, gpus, steps, seconds in JOBS:
        (folder / f"saved-{name}").mkdir()
        words = f"{sys.executable} -S -E {COUNTING_JOB} {folder / name} {steps} {seconds}"
        script = (
            f"export OPTSCHED_ATTEMPT=${{SLURM_RESTART_COUNT:-0}} "
            f"OPTSCHED_CHECKPOINT_DIR={folder}/saved-{name}\n"
            f"OPTSCHED_NODE_RANK=0 exec {words}"
        )
        duration_s = steps * seconds * (20 if name == "big" else 1)
        comment = f"optsched: save=200ms restore=200ms duration={duration_s}s grace=20s"
        job = cluster.sbatch(
            script, *COMMON, f"--comment={comment}", f"--gres=gpu:{gpus}", folder=folder
        )
        found[job] = (name, steps)
    return found


def control(folder: Path, point: int, call: int) -> subprocess.CompletedProcess[str]:
    """A controller that dies at `point`, or in its call of Slurm number `call` (before it where
    that is negative, 0 for none), or ends when all jobs have."""
    (folder / "point").write_text(str(call))
    (folder / "calls").write_text("")
    return subprocess.run(
        [
            sys.executable,
            str(HERE / "controller_process.py"),
            str(folder / "cluster.toml"),
            str(point),
            "120",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def prepare(folder: Path, cluster: SlurmCluster) -> None:
    programs = folder / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        real = shutil.which(name)
        assert real is not None
        if name in ("scontrol", "scancel"):
            (programs / name).write_text(PROGRAM.format(folder=folder, real=real))
            (programs / name).chmod(0o755)
        else:
            (programs / name).symlink_to(real)
    text = TOML.format(conf=cluster.conf, state=cluster.shared, min_run="0s")
    (folder / "cluster.toml").write_text(f'{text}programs = "{programs}"\n')
    cluster.shared.mkdir(exist_ok=True)
    # As if one had run until now: else Slurm starts what is submitted by itself.
    Heartbeat(cluster.heartbeat)


def campaign(cluster: SlurmCluster, draw: random.Random, times: int) -> int:
    """Kill controllers at random points until all is done or this has happened so many `times`; how
    often it did."""
    with tempfile.TemporaryDirectory(prefix="optsched-lab-") as name:
        folder = Path(name)
        prepare(folder, cluster)
        jobs = submit_counting(cluster, folder)
        killed = 0
        while killed < times:
            inside = draw.random() < 0.5
            call = draw.choice((-1, 1)) * draw.randint(1, 12) if inside else 0
            done = control(folder, 0 if inside else draw.randint(1, 24), call)
            if done.returncode == 0:
                break
            assert done.returncode == -9, done.stderr
            killed += 1
        else:
            done = control(folder, 0, 0)
            assert done.returncode == 0, done.stderr
        check(cluster, folder, jobs)
        return killed


def check(cluster: SlurmCluster, folder: Path, jobs: dict[str, tuple[str, int]]) -> None:
    """Every job has completed, each of its steps was done once, in order, and nothing of it is
    left."""
    journal = Journal(cluster.shared / "journal", read_only=True)
    state = State()
    for entry in journal.entries():
        state.apply(entry.at_s, entry.event)
    journal.close()
    for job, (what, steps) in jobs.items():
        live = state.jobs[job]
        assert live.status == "completed", (what, live.status, live.reason)
        lines = [line.split() for line in (folder / what).read_text().splitlines()]
        assert not [line for line in lines if line[0] == "OVERLAP"]
        counted = [int(line[0]) for line in lines if line[0] != "SAVED"]
        assert counted == list(range(1, steps + 1)), (what, counted)
        assert all(attempt.ended is not None for attempt in live.attempts)
    assert not [
        path for path in (cluster.shared / "sbatch").rglob("*.json") if path.parent.name in jobs
    ]


@pytest.mark.slow
def test_killed_again_and_again(cluster: SlurmCluster) -> None:
    assert campaign(cluster, random.Random(1), 3) > 0


@pytest.mark.slow
def test_killed_at_many_points(cluster: SlurmCluster) -> None:
    draw, killed = random.Random(0), 0
    while killed < POINTS:
        killed += max(1, campaign(cluster, draw, min(10, POINTS - killed)))


@pytest.mark.slow
def test_slurm_is_killed_too(cluster: SlurmCluster) -> None:
    """slurmctld dies with -9 every few seconds while jobs are submitted, preempted and resumed:
    every job that it has not forgotten runs all of its steps, in order, and never twice at once."""
    draw = random.Random(0)
    with lab(cluster) as here:
        jobs = submit_counting(cluster, here.folder)
        cluster.until_saved()
        for _ in range(4):
            end_s = time.monotonic() + draw.uniform(0.5, 5)
            here.until(lambda end_s=end_s: time.monotonic() > end_s)  # type: ignore[misc]
            cluster.kill_controller()
            cluster.start_controller()
        here.until(lambda: all(here.status(job) == "completed" for job in jobs), 900)
        for what, steps in jobs.values():
            lines = [line.split() for line in (here.folder / what).read_text().splitlines()]
            assert not [line for line in lines if line[0] == "OVERLAP"]
            counted = [int(line[0]) for line in lines if line[0] != "SAVED"]
            assert set(counted) == set(
                range(1, steps + 1)
            )  # what Slurm's crash killed is done again


@pytest.mark.slow
def test_round_trips(cluster: SlurmCluster) -> None:
    """Medians of what is asked of Slurm, with 1,000 jobs, printed (`-s`)."""
    cluster.as_user(
        NOBODY, "sbatch", "--partition=optsched", "--array=1-500", *COMMON, "--wrap=true"
    )
    for _ in range(500):
        cluster.as_user(
            NOBODY, "sbatch", "--partition=optsched", *COMMON, "--exclude=n1", "--wrap=true"
        )
    found: dict[str, list[float]] = {}

    def timed(what: str, call: Callable[[], object], pause_s: float = 0.3) -> None:
        began_s = time.monotonic()
        call()
        found.setdefault(what, []).append(time.monotonic() - began_s)
        time.sleep(pause_s)

    with lab(cluster) as here:
        executor = here.controller.executor
        assert isinstance(executor, SbatchExecutor)
        executor.inventory()
        script = (
            "trap 'exit 85' TERM; touch begun-$SLURM_RESTART_COUNT; while :; do sleep 0.02; done"
        )
        job = here.submit(script, "--gres=gpu:1")
        executor.observe()
        origin = next(one.origin for one in executor.arrivals() if one.name == job)
        for number in range(1, 8):
            timed("squeue --json", lambda: cluster.slurm("squeue", "--json"))
            timed(
                "squeue -O",
                lambda: cluster.slurm("squeue", "-h", "--states=all", "-O", WHAT_CHANGES),
            )
            timed("observe, something new", executor.observe)
            timed("observe, nothing new", executor.observe)
            timed("arrivals", executor.arrivals)
            key = AttemptKey(job, number)
            slot = Slot(node=f"n{number % 4 + 1}", gpus=1, cpus=1)
            order = Order(
                key=key, placement=(slot,), argv=("sbatch",), directory="/", origin=origin
            )

            def begin(order: Order = order, number: int = number) -> None:
                executor.start(order)
                begun = here.folder / ("begun-" if number == 1 else f"begun-{number - 1}")
                wait_until(begun.exists)

            def stop(key: AttemptKey = key) -> None:
                executor.checkpoint_stop(key, 60.0)
                wait_until(
                    lambda: (
                        next(one for one in executor.observe() if one.key == key).state == "ended"
                    )
                )

            timed("from the start until the script runs", begin)
            wait_until(
                lambda key=key: (
                    next(  # type: ignore[misc]
                        one for one in executor.observe() if one.key == key
                    ).state
                    == "running"
                )
            )
            timed("from the stop until it is seen to have ended", stop)
            executor.forget(key)
    cluster.slurm("scancel", "--user=nobody")
    print(
        json.dumps(
            {f"{what}, ms": round(1000 * statistics.median(all_s)) for what, all_s in found.items()}
        )
    )


def reserve(cluster: SlurmCluster, name: str, start: str, *more: str) -> None:
    words = (f"reservationname={name}", "users=root", f"starttime={start}", *more)
    cluster.slurm("scontrol", "create", "reservation", *words)


def windows(here: Lab) -> list[Window]:
    return [*here.controller.cluster.windows]


def test_reservations_are_read(cluster: SlurmCluster) -> None:
    """Whatever their names, until Slurm has them no more."""
    with lab(cluster) as here:
        reserve(cluster, "odd, name=1", "now+30minutes", "nodes=n1", "duration=UNLIMITED")
        reserve(cluster, "daily", "now+1hour", "nodes=n[1-2]", "duration=60", "flags=daily,overlap")
        cores = ("nodes=n2", "corecnt=2", "duration=60", "flags=overlap")
        reserve(cluster, "cores", "now+2hours", *cores)
        floats = ("nodes=n2", "duration=60", "flags=time_float,overlap")
        reserve(cluster, "float", "now+3hours", *floats)
        here.until(lambda: len(windows(here)) == 3)
        assert [(own.name, own.nodes) for own in windows(here)] == [
            ("Slurm's odd, name=1", ("n1",)),
            ("Slurm's daily", ("n1", "n2")),
            ("Slurm's cores", ("n2",)),
        ]
        starts_s = [own.from_s - time.time() for own in windows(here)]
        assert all(
            abs(start_s - hours * 3600) < 300
            for start_s, hours in zip(starts_s, (0.5, 1, 2), strict=True)
        )
        for name in ("odd, name=1", "daily", "cores", "float"):
            cluster.slurm("scontrol", "delete", f"reservationname={name}")
        here.until(lambda: not windows(here))
