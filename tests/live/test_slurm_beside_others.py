"""What Slurm gives to others and does not start for us: limits of a QOS, reservations, jobs that
were there before."""

import time
from collections.abc import Iterator

import pytest

from optsched.control.api.views import reason_of
from optsched.control.explain.explaining import explain_job
from optsched.control.what_if.snapshot import snapshot
from optsched.executors.sbatch import SbatchExecutor
from optsched.executors.slurm import declining

from .slurm_cluster import SlurmCluster, missing_accounting, slurm_cluster
from .test_sbatch_controller import NOBODY, Lab, lab

WAITS = "until test -e go-$SLURM_JOB_NAME; do sleep 0.05; done"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    reason = missing_accounting()
    if reason is not None:
        pytest.skip(reason)
    with slurm_cluster(nodes=4, gpus=4, holds=True, accounting=True) as made:
        made.slurm("sacctmgr", "-i", "add", "qos", "small", "set", "MaxTRESPerUser=gres/gpu=4")
        made.slurm("sacctmgr", "-i", "modify", "user", "nobody", "set", "qos+=small")
        yield made


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Slurm did not start is tried again sooner than usual."""
    monkeypatch.setattr(declining, "FIRST_S", 3.0)
    monkeypatch.setattr(declining, "AVOID_S", 8.0)


def start(here: Lab, name: str, *words: str) -> str:
    return here.submit(WAITS, "--gres=gpu:4", f"--job-name={name}", *words)


def go(here: Lab, *names: str) -> None:
    for name in names:
        (here.folder / f"go-{name}").touch()


def nodes_of(here: Lab, job: str) -> list[str]:
    return [slot.node for attempt in here.job(job).attempts[-1:] for slot in attempt.placement]


def turn(here: Lab, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    here.until(lambda: time.monotonic() > end_s)


def test_a_limit_of_a_qos(cluster: SlurmCluster) -> None:
    """Jobs over it hold no GPUs, say why, and start when there is room again; others have those
    GPUs."""
    with lab(cluster) as here:
        small = [start(here, "small", "--qos=small") for _ in range(4)]
        here.until(lambda: here.controller.state.barred)
        runs = [job for job in small if here.status(job) == "running"]
        wait = [job for job in small if job not in runs]
        assert len(runs) == 1
        others = [start(here, "others") for _ in range(3)]
        here.until(lambda: all(here.status(job) == "running" for job in others))
        assert [here.status(job) for job in wait] == ["waiting"] * 3
        now_s = here.controller.clock.now_s()
        for job in wait:
            assert "QOSMaxGRESPerUser" in (reason_of(here.controller, here.job(job), now_s) or "")
        barred = [job for job in wait if job in here.controller.state.barred]
        said = explain_job(snapshot(here.controller), barred[0]).sentences[0]
        assert said.endswith("Slurm starts no more jobs of its user: QOSMaxGRESPerUser.")
        comments = cluster.slurm("squeue", "-h", "--qos=small", "-t", "PENDING", "-o", "%k").split(
            "\n"
        )
        assert "[not started: Slurm did not start it: QOSMaxGRESPerUser]" in comments
        (here.folder / "go-small").touch()
        here.until(lambda: all(here.status(job) == "completed" for job in small))
        assert all(here.job(job).held is None and here.job(job).faults == 0 for job in small)
        assert cluster.slurm("squeue", "-h", "-t", "all", "-j", wait[0], "-o", "[%k]").strip() in (
            "[]",
            "[(null)]",
        )
        go(here, "others")
        here.until(lambda: all(here.status(job) == "completed" for job in others))


def test_weight_is_what_the_site_says_of_a_qos(cluster: SlurmCluster) -> None:
    """And no comment of a user: of two equal jobs the one of the better QOS has the only free
    node."""
    cluster.slurm("sacctmgr", "-i", "add", "qos", "high")
    cluster.slurm("sacctmgr", "-i", "modify", "user", "nobody", "set", "qos+=high")
    with lab(cluster, more="qos_weight = { high = 4 }\n") as here:
        fill = [start(here, f"fill{i}") for i in range(4)]
        here.until(lambda: all(here.status(job) == "running" for job in fill))
        loud = start(here, "pair", "--comment=optsched: weight=1000")
        high = start(here, "pair", "--qos=high")
        here.until(lambda: here.status(loud) == here.status(high) == "waiting")
        assert [here.job(job).submission.job.weight for job in (loud, high)] == [1.0, 4.0]
        go(here, "fill0")
        here.until(lambda: here.status(high) == "running" or here.status(loud) == "running")
        go(here, "fill1", "fill2", "fill3", "pair")
        here.until(lambda: all(here.status(job) == "completed" for job in (*fill, loud, high)))
        assert here.job(high).attempts[0].intended_s < here.job(loud).attempts[0].intended_s


def reserve(cluster: SlurmCluster, name: str, nodes: set[str], start: str, *more: str) -> None:
    cluster.slurm(
        "scontrol",
        "create",
        "reservation",
        f"reservationname={name}",
        "users=root",
        f"nodes={','.join(sorted(nodes))}",
        f"starttime={start}",
        "duration=60",
        *more,
    )


def test_reservations(cluster: SlurmCluster) -> None:
    """Who cannot save stays where one begins; who would run into one starts elsewhere."""
    names = {f"n{number}" for number in range(1, 5)}
    try:
        with lab(cluster) as here:
            kept = start(here, "kept", "--time=600")
            here.until(lambda: here.status(kept) == "running")
            rest = sorted(names - {*nodes_of(here, kept)})
            reserve(cluster, "now", {rest[0], *nodes_of(here, kept)}, "now", "flags=ignore_jobs")
            reserve(cluster, "later", {rest[1]}, "now+30minutes")
            here.until(lambda: here.controller.state.nodes[rest[0]].reason == "is reserved (now)")
            long = start(here, "long", "--time=60")
            here.until(lambda: here.status(long) == "running")
            short = start(here, "short")
            here.until(lambda: here.status(short) == "running")
            assert (nodes_of(here, long), nodes_of(here, short)) == ([rest[2]], [rest[1]])
            more = [start(here, "more", "--time=1") for _ in range(2)]
            longer = start(here, "longer", "--time=60")
            turn(here, 3)
            assert [here.status(job) for job in (kept, long, short, *more)] == ["running"] * 3 + [
                "waiting"
            ] * 2
            assert not any(here.job(job).attempts for job in (*more, longer))
            # there is no room there for the longer one: who is short gets it at once
            go(here, "short")
            here.until(lambda: any(here.status(job) == "running" for job in more))
            assert here.job(kept).preemptions == 0
            cluster.slurm("scancel", longer)  # it could be the next to begin
            here.until(lambda: here.status(longer) == "cancelled")
            cluster.slurm("scontrol", "delete", "reservationname=now")
            here.until(lambda: all(here.status(job) == "running" for job in more))
            go(here, "kept", "long", "more")
            here.until(
                lambda: all(here.status(job) == "completed" for job in (kept, long, short, *more))
            )
            reserve(cluster, "all", names - {rest[1]}, "now+40minutes")
            executor = here.controller.executor
            assert isinstance(executor, SbatchExecutor)
            here.until(lambda: len(executor.reservations) == 2)
            never, last = start(here, "never", "--time=60"), start(here, "last", "--time=1")
            here.until(lambda: here.status(last) == "running")
            said = reason_of(here.controller, here.job(never), here.controller.clock.now_s())
            assert said is not None and said.startswith("every node is reserved in ")
            cluster.slurm("scancel", never)
            go(here, "last")
            here.until(
                lambda: here.status(last) == "completed" and here.status(never) == "cancelled"
            )
    finally:
        for word in cluster.slurm("scontrol", "--oneliner", "show", "reservation").split():
            if word.startswith("ReservationName="):
                cluster.slurm("scontrol", "delete", word)


def test_jobs_that_were_there_before(cluster: SlurmCluster) -> None:
    """They keep what they hold, also suspended, and there is so much less to give."""
    words = ("--partition=all", "--time=10", "--mem=100", "--output=/dev/null", "--wrap=sleep 600")
    before = [
        cluster.as_user(
            NOBODY, "sbatch", "--parsable", f"--nodelist={node}", f"--gres=gpu:{gpus}", *words
        ).strip()
        for node, gpus in (("n1", 3), ("n2", 4), ("n3", 4))
    ]
    with lab(cluster) as here:
        here.until(
            lambda: (
                set(cluster.slurm("squeue", "-h", "-t", "RUNNING", "-o", "%i").split()) == {*before}
            )
        )
        cluster.slurm("scontrol", "suspend", before[1])
        here.until(
            lambda: sum(one.node.gpus for one in here.controller.statuses if one.usable) == 5
        )
        jobs = [start(here, "job0")]
        here.until(lambda: here.status(jobs[0]) == "running")
        jobs += [start(here, f"job{gpus}", f"--gres=gpu:{gpus}") for gpus in (1, 2)]
        here.until(lambda: here.status(jobs[1]) == "running")
        assert (nodes_of(here, jobs[0]), nodes_of(here, jobs[1])) == (["n4"], ["n1"])
        assert {one.node.name: (one.node.gpus, one.usable) for one in here.controller.statuses} == {
            "n1": (1, True),
            "n2": (4, False),
            "n3": (4, False),
            "n4": (4, True),
        }
        turn(here, 2)
        assert not here.job(jobs[2]).attempts
        cluster.slurm("scancel", before[2])
        here.until(lambda: here.status(jobs[2]) == "running")
        assert nodes_of(here, jobs[2]) == ["n3"]
        cluster.slurm("scontrol", "resume", before[1])
        cluster.slurm("scancel", *before)
        go(here, "job0", "job1", "job2")
        here.until(lambda: all(here.status(job) == "completed" for job in jobs))
        here.until(
            lambda: all(one.node.gpus == 4 and one.usable for one in here.controller.statuses)
        )
