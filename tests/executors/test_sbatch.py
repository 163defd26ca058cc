"""Jobs that users give to Slurm themselves, on a real cluster whose job_submit.lua holds them."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from optsched.control.settings import read_settings
from optsched.errors import InputError
from optsched.executors.base import AttemptKey, AttemptState, Order, RefusedError
from optsched.executors.opening import open_executor
from optsched.model.instance import Slot
from optsched.testing.executors import COUNTING_JOB, run_beside, until
from tests.live.slurm_cluster import SlurmCluster

from .holding_place import NOBODY, SAVES, UNTIL_GO, WAITS, HoldingPlace

ASKED: dict[str, tuple[int, int, float] | None] = {
    "--gres=gpu:2 --cpus-per-task=6 --mem=8G": (2, 3, 4.0),
    "--gres=gpu:h100:1 --mem=1G": (1, 1, 1.0),
    "--gpus=2 --cpus-per-gpu=3 --mem-per-gpu=2G": (2, 3, 2.0),
    "--ntasks=2 --gpus-per-task=1 --mem-per-cpu=1G --cpus-per-task=2": (2, 2, 2.0),
    "--gpus-per-node=3 --mem=3G": (3, 1, 1.0),
    "--nodes=2 --gres=gpu:1 --mem=1G --ntasks-per-node=1": (2, 1, 1.0),
    "--ntasks=4 --ntasks-per-node=2 --gres=gpu:4 --mem=4G": (8, 1, 1.0),
    "--exclusive": (4, 8, 0.0),
    "--exclusive --nodes=2": (8, 8, 0.0),
    "--ntasks=3 --cpus-per-task=2 --mem=6G": (0, 6, 6.0),
    "--gres=gpu:1 --nodelist=n3": None,
    "--nodes=2": None,
}
"""Words of sbatch, and GPUs, cores and memory that are planned; None for a job that is not."""


@pytest.fixture
def place(holding: SlurmCluster) -> Iterator[HoldingPlace]:
    with tempfile.TemporaryDirectory(prefix="optsched-place-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        made = HoldingPlace(Path(name), holding)
        yield made
        made.clear()


def test_a_command_beside(place: HoldingPlace) -> None:
    """It runs as the job's user, in its directory, on its first node and with its GPUs; the job is
    asked to save as if it were not there."""
    job = place.submit(f"echo $CUDA_VISIBLE_DEVICES >> log; {SAVES}", "--gres=gpu:2")
    key = place.start(job, "n3")
    until(lambda: place.log()[1:])
    place.reach(key, AttemptState.RUNNING)
    way = place.executor.shell(key, terminal=False)
    words = "echo $SLURM_JOB_ID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES; id -u; pwd"
    told = run_beside(way, *way.enter, "sh", "-c", words)
    assert told.split() == [job, "n3", place.log()[0], str(NOBODY), str(place.folder)]

    def stay() -> None:
        with suppress(subprocess.CalledProcessError):
            run_beside(way, *way.enter, "sleep", "600")

    with pytest.raises(RefusedError, match="it runs on n3, not on n1"):
        place.executor.shell(key, False, "n1")
    way = place.executor.shell(key, False, "n3")
    stays = Thread(target=stay)
    stays.start()
    until(lambda: f"{job}.1" in place.cluster.slurm("squeue", "-h", "--steps", "-o", "%i"))
    place.executor.checkpoint_stop(key, 60)
    assert place.end(key) == (85, None)
    stays.join()
    with pytest.raises(RefusedError, match="does not run"):
        place.executor.shell(key, terminal=True)


def test_the_very_node(place: HoldingPlace) -> None:
    """Nothing runs before it is asked for; then where it was said, once, and what it printed and
    used is told."""
    job = place.submit(
        "echo hello $SLURMD_NODENAME; echo ran >> log; sleep 1; exit 3", "--output=out-%j"
    )
    arrival = place.arrival(job)
    assert arrival.ready and arrival.request is not None and arrival.request.user_id == NOBODY
    assert arrival.request.job.gpus == 1 and arrival.request.limit_s == 600
    time.sleep(0.5)
    order = place.order(job, "n3")
    for _ in range(2):
        place.executor.start(order)
    place.reopen()
    place.executor.start(order)
    assert place.end(order.key) == (3, None)
    seen = place.see(order.key)
    assert seen.gpu_ids == {"n3": ("0",)} and seen.output == str(place.folder / f"out-{job}")
    assert Path(seen.output).read_text() == "hello n3\n"
    assert seen.started_s and seen.ended_s and 0 <= seen.ended_s - seen.started_s < 30
    place.executor.start(order)
    place.reopen()
    assert place.see(order.key) == seen and place.log() == ["ran"]
    assert place.arrival(job).gone == "it has ended in Slurm"
    place.executor.forget(order.key)
    assert place.executor.observe() == ()


def test_what_sbatch_asks_for(place: HoldingPlace) -> None:
    """By node: cores for each GPU and memory for each GPU; without any, in all."""
    jobs = {
        place.cluster.sbatch("true", "--output=/dev/null", *words.split(), uid=NOBODY): words
        for words in ASKED
    }
    place.arrival([*jobs][-1])
    arrivals = {one.name: one for one in place.arrivals()}
    found: dict[str, tuple[int, int, float] | None] = {}
    for name, words in jobs.items():
        request = arrivals[name].request
        assert (request is None) is (arrivals[name].unplanned is not None)
        job = None if request is None else request.job
        if job is None:
            found[words] = None
        elif job.gpus:
            assert isinstance(job.gpus, int)
            (cpus,) = job.profile.cpus_per_gpu
            found[words] = (job.gpus, cpus, job.profile.memory_gib_per_gpu)
        else:
            found[words] = (0, job.cpus, job.memory_gib)
    assert found == ASKED


def test_a_gang(place: HoldingPlace) -> None:
    script = "srun --mpi=none --output=none sh -c 'echo $SLURMD_NODENAME $SLURM_STEP_GPUS >> log'"
    job = place.submit(f"{script}\n{UNTIL_GO}", "--nodes=2", "--gres=gpu:4")
    with pytest.raises(RefusedError, match="Slurm gives it 2 nodes, its placement has 1"):
        place.start(job, "n2")
    key = place.start(job, "n4", "n2")
    place.reach(key, AttemptState.RUNNING)  # Slurm forgets the GPUs of jobs that have ended
    (place.folder / "go").touch()
    assert place.end(key) == (0, None)
    assert sorted(place.log()) == ["n2 0,1,2,3", "n4 0,1,2,3"]
    assert place.see(key).gpu_ids == {"n2": ("0", "1", "2", "3"), "n4": ("0", "1", "2", "3")}


def test_saved_and_resumed_elsewhere(place: HoldingPlace) -> None:
    """No step is lost and none is done twice; it does not wait for the two minutes that a requeued
    job waits."""
    (place.folder / "saved").mkdir()
    words = f"{sys.executable} -S {COUNTING_JOB} {place.folder}/log 100 0.02"
    job = place.submit(
        f"export OPTSCHED_ATTEMPT=$SLURMD_NODENAME OPTSCHED_CHECKPOINT_DIR={place.folder}/saved "
        "OPTSCHED_NODE_RANK=0\n"
        f"exec {words}",
        uid=0,
    )
    first = place.start(job, "n1")
    until(lambda: len(place.log()) > 5)
    for _ in range(2):
        place.executor.checkpoint_stop(first, 60)
    assert place.end(first) == (85, None)
    assert place.says(job, "%T %r") == "PENDING job requeued in held state"
    assert place.arrival(job).gone is None
    began_s = time.monotonic()
    second = place.start(job, "n2", number=2)
    assert place.end(second) == (0, None)
    assert time.monotonic() < began_s + 60
    counted = [line.split()[:2] for line in place.log() if not line.startswith("SAVED")]
    done = sum(node == "n1" for _, node in counted)
    assert 5 < done < 100
    assert counted == [[str(step), "n1" if step <= done else "n2"] for step in range(1, 101)]


def test_saved_by_steps(place: HoldingPlace) -> None:
    """An srun that was signalled itself would have killed them. A script that has none is signalled
    with its children, a shell alone if its user says so."""
    begun, saved = "echo begun >> log", "echo saved >> log; exit 85"
    (place.folder / "task.sh").write_text(
        f"trap 'sleep 0.5; {saved}' TERM; {begun}; while :; do sleep 0.05; done"
    )
    scripts = {
        "srun --mpi=none --output=none sh task.sh": "",
        "trap : TERM; sh task.sh": "",
        f"trap '{saved}' USR1; {begun}; sh -c 'trap \"\" USR1; sleep 600' & while :; do wait; "
        "done": "--comment=optsched: signal=B:USR1",
    }
    jobs = [place.submit(script, *([words] if words else [])) for script, words in scripts.items()]
    keys = [place.start(job, f"n{i + 1}") for i, job in enumerate(jobs)]
    until(lambda: place.log() == ["begun"] * 3)
    for key in keys:
        place.reach(key, AttemptState.RUNNING)
        place.executor.checkpoint_stop(key, 60)
    assert [place.end(key) for key in keys] == [(85, None)] * 3
    assert place.log()[3:] == ["saved"] * 3


@pytest.mark.slow
def test_one_that_asks_to_be_requeued(place: HoldingPlace) -> None:
    """As scripts do that have saved; another command of a signal, and Slurm without a word of how
    it ended."""
    script = "trap 'scontrol requeue $SLURM_JOB_ID; sleep 600' USR1; echo begin >> log; while :; do sleep 0.1; done"  # noqa: E501
    job = place.submit(script, "--comment=optsched: signal=USR1")
    key = place.start(job)
    until(place.log)
    place.executor.checkpoint_stop(key, 60)
    assert place.end(key) == (85, None)
    assert (
        place.says(job, "%T %r") == "PENDING JobHeldAdmin"
    )  # it waits for us, not for Slurm's scheduler


@pytest.mark.slow
def test_what_dies_when_asked_to_save_may_go_on(place: HoldingPlace) -> None:
    job = place.submit("echo begin >> log; exec sleep 600")
    key = place.start(job)
    until(place.log)
    place.executor.checkpoint_stop(key, 60)
    assert place.end(key) == (-15, None)
    second = place.start(job, "n2", number=2)
    until(lambda: len(place.log()) == 2)
    place.executor.kill(second)
    assert place.end(second) == (-9, None)
    assert place.says(job, "%T") == "PENDING"


@pytest.mark.slow
def test_a_user_cancels(place: HoldingPlace) -> None:
    waits, runs = place.submit(WAITS), place.submit(WAITS)
    key = place.start(runs)
    until(place.log)
    place.cluster.as_user(NOBODY, "scancel", waits, runs)
    assert place.end(key)[1] == "its job was cancelled in Slurm"
    for job in (waits, runs):
        assert place.arrival(job).cancelled


def test_a_user_holds_and_releases(place: HoldingPlace) -> None:
    """He cannot let it go by himself, only say that it may."""
    job = place.submit(WAITS, "--hold", "--comment=mine")
    assert place.arrival(job).held
    place.cluster.as_user(NOBODY, "scontrol", "release", job)
    assert not place.arrival(job).held
    place.cluster.as_user(NOBODY, "scontrol", "hold", job)
    assert place.arrival(job).held
    place.cluster.as_user(NOBODY, "scontrol", "release", job)
    time.sleep(1.0)
    assert place.says(job) == "PENDING" and not place.arrival(job).held and place.log() == []
    assert place.says(job, "%k") == "mine"
    roots = place.submit(WAITS, "--hold", uid=0)
    assert place.arrival(roots).held
    place.cluster.slurm("scontrol", "release", roots)
    until(lambda: place.says(roots) == "RUNNING n1")  # an administrator's release always starts it


@pytest.mark.slow
def test_a_user_stops_and_holds(place: HoldingPlace) -> None:
    """`scontrol requeuehold`: it waits until he releases it."""
    job = place.submit(WAITS, "--comment=mine")
    key = place.start(job)
    until(place.log)
    place.reach(key, AttemptState.RUNNING)
    place.executor.observe()
    place.cluster.as_user(NOBODY, "scontrol", "requeuehold", job)
    assert place.end(key) == (85, "its job was requeued in Slurm")
    assert place.arrival(job).held
    place.cluster.as_user(NOBODY, "scontrol", "release", job)
    assert not place.arrival(job).held
    assert place.says(job, "%k %T") == "mine PENDING"


def test_killed_before_it_was_started(place: HoldingPlace) -> None:
    job = place.submit(WAITS)
    order = place.order(job, "n1")
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
    assert place.says(job) == "PENDING"


@pytest.mark.slow
def test_stopped_while_slurm_has_it_wait(place: HoldingPlace) -> None:
    """It is taken back, and never begins."""
    holds = place.start(place.submit(WAITS, "--gres=gpu:4"))
    place.reach(holds, AttemptState.RUNNING)
    job = place.submit(WAITS, "--gres=gpu:4")
    key = place.start(job)
    assert place.see(key).state is AttemptState.STARTING
    place.executor.checkpoint_stop(key, 60)
    assert place.end(key) == (None, "was never started")
    (place.folder / "go").touch()
    assert place.end(holds) == (0, None)
    time.sleep(1.5)
    assert place.says(job) == "PENDING" and place.log() == ["begin n1"]


def test_what_is_left_alone(place: HoldingPlace) -> None:
    job = place.submit(WAITS, "--exclude=n2")
    arrival = place.arrival(job)
    assert (arrival.request, arrival.unplanned) == (None, "it excludes nodes")
    place.executor.leave(arrival.origin, "it excludes nodes")
    place.reopen()
    place.executor.observe()
    assert job not in {one.name for one in place.executor.arrivals()}
    told = place.cluster.slurm("scontrol", "show", "job", job)
    assert "not planned: it excludes nodes" in told


def test_users_do_not_get_round_it(place: HoldingPlace) -> None:
    """What is held only an administrator releases, whether or not it is planned; what it asks for
    its user does not change, and what an administrator changes is seen."""
    odd, job = place.submit(WAITS, "--exclude=n2"), place.submit(WAITS)
    place.executor.leave(place.arrival(odd).origin, "it excludes nodes")
    assert place.says(odd, "%r") == place.says(job, "%r") == "JobHeldAdmin"
    other = place.cluster.as_user(
        NOBODY,
        "sbatch",
        "--parsable",
        "--partition=all",
        "--hold",
        "--output=/dev/null",
        "--wrap=true",
    ).strip()
    for words in (
        ("release", odd),
        ("update", f"jobid={odd}", "partition=all"),
        ("update", f"jobid={job}", "partition=all"),
        ("update", f"jobid={job}", "gres=gpu:3"),
        ("update", f"jobid={job}", "numnodes=2"),
        ("update", f"jobid={other}", "partition=optsched"),
    ):
        with pytest.raises(AssertionError):
            place.cluster.as_user(NOBODY, "scontrol", *words)
    place.cluster.as_user(NOBODY, "scontrol", "release", job)
    time.sleep(1.0)
    assert place.says(odd) == place.says(job) == "PENDING"
    place.cluster.as_user(
        NOBODY, "scontrol", "update", f"jobid={job}", "timelimit=5", "jobname=mine"
    )
    place.cluster.slurm("scontrol", "update", f"jobid={job}", "gres=gpu:3")
    request = until(lambda: place.arrival(job).request or None)
    assert (request.job.gpus, request.limit_s) == (3, 300.0)
    place.cluster.slurm("scontrol", "update", f"jobid={job}", "partition=all")
    assert place.arrival(job).unplanned == "it is in the partition all"
    place.cluster.slurm("scontrol", "release", odd)
    until(lambda: place.says(odd, "%T") == "RUNNING")


def test_jobs_of_other_partitions_and_our_own_are_not_held(place: HoldingPlace) -> None:
    other = place.cluster.as_user(
        NOBODY,
        "sbatch",
        "--parsable",
        "--partition=all",
        "--output=/dev/null",
        "--mem=1M",
        "--wrap=true",
    ).strip()
    order = Order(
        key=AttemptKey("own", 1),
        placement=(Slot(node="n2", gpus=1, cpus=1),),
        argv=("sh", "-c", "exit 4"),
        directory="/",
        memory_gib=(0.1,),
    )
    place.executor.start(order)
    assert place.end(order.key) == (4, None)
    until(lambda: place.says(other, "%T") == "COMPLETED")
    assert not {"own", other} & {one.name for one in place.arrivals()}


def test_a_number_that_slurm_gives_out_again(place: HoldingPlace) -> None:
    """What is meant for one job is refused for another of its number."""
    job = place.submit(WAITS)
    with pytest.raises(AssertionError, match="error for job"):
        place.cluster.slurm(
            "scontrol", "update", f"jobid={job}", "AdminComment=optsched 1.000000001 optsched:x:1"
        )
    assert place.arrival(job).ready


@pytest.mark.slow
def test_progress(place: HoldingPlace) -> None:
    """A job that writes it is believed; nobody else gets into its user's folder first."""
    report = """echo '{"step": 3, "at_s": '$(date +%s)'.9}' > $OPTSCHED_PROGRESS; """
    job = place.submit(f"sleep 1; {report} {WAITS}")
    folder = place.cluster.shared / "sbatch" / "reports" / str(NOBODY)
    place.arrival(job)
    other = {"user": 65533, "group": 65533, "extra_groups": []}
    assert subprocess.run(["touch", folder / "x"], check=False, **other).returncode == 1
    assert subprocess.run(["touch", folder.parent / "x"], check=False, **other).returncode == 1
    key = place.start(job)
    progress = until(lambda: place.see(key).progress)
    assert progress.step == 3
    (place.folder / "go").touch()
    assert place.end(key) == (0, None)
    place.reopen()
    assert place.see(key).progress == progress


def test_withdrawn(place: HoldingPlace) -> None:
    job = place.submit(WAITS)
    place.executor.withdraw(place.arrival(job).origin)
    until(lambda: place.arrival(job).cancelled)


@pytest.mark.slow
def test_memory_of_which_nobody_speaks(place: HoldingPlace) -> None:
    """Slurm would give all of the node's; so two such jobs run beside each other."""
    words = ("--gres=gpu:1", "--time=10", "--output=/dev/null")
    jobs = [place.cluster.sbatch(WAITS, *words, uid=NOBODY, folder=place.folder) for _ in range(2)]
    keys = [place.start(job) for job in jobs]
    for key in keys:
        place.reach(key, AttemptState.RUNNING)
    ids = [gpu for key in keys for gpu in place.see(key).gpu_ids["n1"]]
    assert len(set(ids)) == 2
    (place.folder / "go").touch()
    for key in keys:
        assert place.end(key) == (0, None)


@pytest.mark.slow
def test_somebody_at_a_terminal(place: HoldingPlace) -> None:
    """salloc waits until its job is started, and its job is not to be stopped for others."""
    asked = subprocess.Popen(
        [
            "salloc",
            "--partition=optsched",
            "--gres=gpu:2",
            "--mem=100",
            "sh",
            "-c",
            "echo $SLURM_JOB_NODELIST; exit 3",
        ],
        env={"SLURM_CONF": str(place.cluster.conf), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    arrival = until(lambda: next((one for one in place.arrivals() if one.ready), None))
    assert arrival.request is not None and not arrival.request.job.preemptible
    key = place.start(arrival.name, "n3")
    printed, said = asked.communicate(timeout=60)
    assert (printed, asked.returncode) == ("n3\n", 3), said
    assert place.end(key) == (3, None)


@pytest.mark.slow
def test_an_array(place: HoldingPlace) -> None:
    job = place.submit(
        "echo $SLURM_ARRAY_TASK_ID $SLURMD_NODENAME >> log; sleep 0.5", "--array=1-3%2"
    )
    place.executor.observe()
    assert [one.name for one in place.executor.arrivals() if one.ready] == [f"{job}_1", f"{job}_2"]
    keys = [place.start(f"{job}_{task}", f"n{4 - task}") for task in (1, 2)]
    for key in keys:
        assert place.end(key) == (0, None)
    assert place.end(place.start(f"{job}_3", "n1")) == (0, None)
    assert sorted(place.log()) == ["1 n3", "2 n2", "3 n1"]


def test_a_slurm_that_holds_nothing(slurm: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(
        'format = "optsched-cluster/1"\nexecutor = "slurm"\n'
        f'[slurm]\nsbatch = true\npartition = "optsched"\nconf = "{slurm.conf}"\n'
    )
    with pytest.raises(InputError, match="Slurm holds no jobs, as its JobSubmitPlugins has no lua"):
        open_executor(read_settings(tmp_path / "cluster.toml"))
