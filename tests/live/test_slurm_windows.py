"""Reservations of a real Slurm as windows: nobody runs into one unsaved, and who can save works
until it begins."""

import time
from collections.abc import Iterator

import pytest

from optsched import Job, Profile
from optsched.control.journal.events import Submitted
from optsched.control.submission import Submission

from .slurm_cluster import SlurmCluster, missing, slurm_cluster
from .test_sbatch_controller import lab, reserve


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with slurm_cluster(nodes=2, gpus=4, holds=True) as made:
        yield made


@pytest.mark.slow
def test_who_saves_works_until_a_reservation_begins(cluster: SlurmCluster) -> None:
    """Slurm starts such a job although its time limit reaches into the reservation, and not one
    that cannot save."""
    with lab(cluster) as here:
        begins_s = int(time.time()) + 85
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(begins_s))
        reserve(cluster, "maint", start, "nodes=ALL", "duration=60", "flags=maint")
        script = (
            f"trap 'date +%s.%N >> {here.folder}/$0; exit 85' TERM; while :; do sleep 0.1; done"
        )
        users = here.submit(
            script.replace("$0", "users"), "--gres=gpu:4", "--comment=optsched: save=1s", uid=0
        )
        here.controller.record(
            Submitted(
                submission=Submission(
                    job=Job(id="ours", gpus=4, duration_s=600.0, profile=Profile(checkpoint_s=1.0)),
                    argv=("/bin/sh", "-c", script.replace("$0", "ours")),
                    directory=str(here.folder),
                    grace_s=10.0,
                )
            )
        )
        here.until(lambda: here.status(users) == here.status("ours") == "running")
        plain = here.submit("sleep 600", "--gres=gpu:4", uid=0)
        limits = ("squeue", "-h", "-t", "RUNNING", "-o", "%l")
        here.until(lambda: sorted(cluster.slurm(*limits).split()) == ["10:00", "UNLIMITED"])
        here.until(lambda: here.status(users) == here.status("ours") == "waiting")
        for name in ("users", "ours"):
            saved_s = float((here.folder / name).read_text())
            assert begins_s - 10 < saved_s < begins_s
        assert here.status(plain) == "waiting" and not here.job(plain).attempts
        here.until(lambda: time.time() > begins_s + 1)
        cluster.slurm("scontrol", "delete", "reservationname=maint")
        here.until(lambda: here.status(users) == here.status("ours") == "running")
        cluster.slurm("scancel", users, plain)
        here.until(lambda: here.status(users) == here.status(plain) == "cancelled")
