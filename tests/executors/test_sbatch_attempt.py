"""What is told of an attempt in each state of Slurm's job."""

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import AttemptKey, AttemptState, NoAnswerError
from optsched.executors.sbatch import SbatchExecutor
from optsched.executors.sbatch import attempt as module
from optsched.executors.sbatch.attempt import ROLLED_BACK, SbatchAttempt
from optsched.executors.sbatch.executor import _kept
from optsched.executors.sbatch.jobs_json import HeldJob, read_held_jobs
from optsched.executors.sbatch.telling import Teller, unsaid
from optsched.executors.slurm.client import SlurmClient
from optsched.executors.slurm.declining import Declining
from optsched.executors.slurm.site import Site
from optsched.executors.supervision import records
from tests.small_disk import fill, small_disk

from .test_sbatch_answers import OLD

KEY = AttemptKey("7", 1)
MINE = f"optsched 17.000000001 {KEY}"
STOP = {"asked_s": 0.0, "grace_s": 60.0, "told": True}
KILL = {"asked_s": 0.0, "grace_s": None}


def slurm(state: str, code: int = 0, restarts: int = 0, mark: str = MINE, **more: Any) -> HeldJob:
    entry = {
        **OLD,
        "job_state": state,
        "exit_code": code,
        "restart_cnt": restarts,
        "admin_comment": mark,
        "start_time": 100,
        "end_time": 200,
        "nodes": "n1",
        "gres_detail": ["gpu:h100:2(IDX:1,3)"],
        **more,
    }
    (job,) = read_held_jobs(json.dumps({"jobs": [entry]}))
    return job


def started(folder: Path, **record: Any) -> SbatchAttempt:
    made = SbatchAttempt(folder, KEY)
    made.write(
        origin="17.000000001",
        restarts=0,
        status=0,
        placement=[["n1", 2, 8]],
        uid=1000,
        release=True,
        **record,
    )
    return made


@pytest.mark.parametrize(
    ("job", "record", "status", "reason"),
    [
        (slurm("COMPLETED"), {}, 0, None),
        (slurm("FAILED", 3 << 8), {}, 3, None),
        (slurm("FAILED", 9), {}, -9, None),
        (slurm("COMPLETED"), {"stop": STOP}, 0, None),
        (slurm("FAILED", 15), {"stop": STOP, "final": True}, -15, None),
        (slurm("TIMEOUT"), {}, -15, "its job's time limit in Slurm was reached"),
        (slurm("TIMEOUT", 85 << 8), {}, 85, "its job's time limit in Slurm was reached"),
        (slurm("OUT_OF_MEMORY", 0), {}, -9, "its memory limit in Slurm was exceeded"),
        (slurm("OUT_OF_MEMORY", 125 << 8), {}, 125, "its memory limit in Slurm was exceeded"),
        (slurm("NODE_FAIL", 1 << 8), {}, None, "a node failed"),
        (slurm("CANCELLED", 15), {}, -15, "its job was cancelled in Slurm"),
        (slurm("CANCELLED"), {}, None, "its job was cancelled in Slurm"),
        (slurm("CANCELLED", 15), {"stop": KILL}, -9, "its job was cancelled in Slurm"),
        (slurm("SPECIAL_EXIT", 85 << 8, 1), {}, 85, None),
        (slurm("SPECIAL_EXIT", 85 << 8, 1), {"stop": STOP}, 85, None),
        (slurm("PENDING", 0, 1), {"stop": STOP}, 85, None),
        (slurm("PENDING", 0, 1), {}, 85, "its job was requeued in Slurm"),
        (
            slurm("PENDING", 3 << 8, 1),
            {"stop": STOP, "last": {"status": 3, "ended_s": 9.0}},
            3,
            None,
        ),
        (slurm("PENDING", 15, 1), {"stop": STOP}, -15, None),
        (
            slurm("PENDING", 0, 1),
            {"stop": {**STOP, "forced": True}},
            -9,
            "did not stop within the 60 s it was given, and was killed",
        ),
        (slurm("PENDING", 0, 1), {"stop": KILL}, -9, None),
        (slurm("PENDING"), {"stop": STOP}, None, "was never started"),
        (slurm("PENDING"), {"stop": {**STOP, "lost": "node n1 is down"}}, None, "node n1 is down"),
        (slurm("CANCELLED", mark="optsched 17.000000001"), {}, None, "was never started"),
        (
            slurm("RUNNING", mark="optsched 17.000000001"),
            {},
            None,
            "its job was started in Slurm by somebody else",
        ),
    ],
)
def test_ends(
    tmp_path: Path, job: HeldJob, record: dict[str, Any], status: int | None, reason: str | None
) -> None:
    made = started(tmp_path, **record)
    seen = made.look_at_job(job, tuple)
    assert (seen.state, seen.exit_status, seen.reason) == (AttemptState.ENDED, status, reason)
    kept = SbatchAttempt(tmp_path, KEY, json.loads(made.path.read_text()))
    assert kept.look_at_job(None, tuple) == seen


def test_an_old_exit_status_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """Slurm keeps that of the run before until the next has ended."""
    made = started(tmp_path)
    made.write(status=3)
    assert made.look_at_job(slurm("PENDING", 3 << 8, 1), tuple).exit_status == 85


def test_a_node_that_takes_no_jobs(tmp_path: Path) -> None:
    seen = started(tmp_path).look_at_job(slurm("PENDING", 0, 1), lambda: {"n1", "n2"})
    assert (seen.exit_status, seen.reason) == (None, "a node failed: n1")


@pytest.mark.parametrize(
    ("job", "state", "reason"),
    [
        (
            slurm("PENDING", priority=7, state_reason="Resources"),
            AttemptState.STARTING,
            "Slurm has it wait: Resources",
        ),
        (slurm("CONFIGURING"), AttemptState.RUNNING, None),
        (slurm("RUNNING"), AttemptState.RUNNING, None),
        (slurm("COMPLETING"), AttemptState.RUNNING, None),
        (slurm("COMPLETING", 0, 1), AttemptState.RUNNING, None),
    ],
)
def test_goes_on(tmp_path: Path, job: HeldJob, state: AttemptState, reason: str | None) -> None:
    seen = started(tmp_path).look_at_job(job, tuple)
    assert (seen.state, seen.reason) == (state, reason)


def test_what_it_runs_on_is_kept(tmp_path: Path) -> None:
    made = started(tmp_path)
    first = made.look_at_job(slurm("RUNNING"), tuple)
    assert (first.started_s, first.gpu_ids, first.output) == (
        100.0,
        {"n1": ("1", "3")},
        "/home/ann/slurm-7.out",
    )
    last = made.look_at_job(
        slurm("SPECIAL_EXIT", 85 << 8, 1, nodes="", gres_detail=[], start_time=0), tuple
    )
    assert (last.started_s, last.gpu_ids, last.output) == (
        first.started_s,
        first.gpu_ids,
        first.output,
    )


@pytest.mark.parametrize("seen", [False, True])
def test_forgotten(tmp_path: Path, seen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Slurm forgot in a crash may go on for a while; only then is it taken to have ended."""
    made = started(tmp_path)
    if seen:
        made.look_at_job(slurm("RUNNING"), tuple)
    waits = slurm("PENDING", mark="optsched 17.000000001")
    expected = AttemptState.RUNNING if seen else AttemptState.STARTING
    assert made.look_at_job(waits, tuple).state is made.look_at_job(None, tuple).state is expected
    monkeypatch.setattr(module, "FENCE_S", 0.0)
    assert made.look_at_job(waits, tuple).reason == ROLLED_BACK


def test_not_yet_released(tmp_path: Path) -> None:
    """Nobody was told to start it: there is nothing to wait for."""
    made = started(tmp_path)
    made.write(release=False)
    assert (
        made.look_at_job(slurm("PENDING", mark="optsched 17.000000001"), tuple).state
        is AttemptState.STARTING
    )
    assert made.look_at_job(None, tuple).reason == "was never started"


class Slurm(SlurmClient):
    """Does what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def ask(self, program: str, *words: str, given: str = "", unix_times: bool = False) -> str:
        self.told.append((program, *words))
        return ""


def test_given_up_for_a_limit(tmp_path: Path) -> None:
    """Its comment says why until it is tried again; one that begins after all is not ended."""
    client, declining = Slurm(), Declining()
    teller = Teller(client, Site(start_timeout_s=60.0), declining)
    made = started(tmp_path, released_s=time.time() - 10, who=[1000, "", "small"])
    waits = slurm("PENDING", priority=7, state_reason="Resources", comment="mine")
    teller.see_to(made, waits, ())
    assert client.told == [] and made.stop is None  # not yet
    limited = slurm(
        "PENDING",
        priority=7,
        state_reason="QOSMaxGRESPerUser",
        comment="mine [not started: Resources]",
    )
    teller.see_to(made, limited, ())
    assert client.told == [
        (
            "scontrol",
            "update",
            "jobid=7",
            "Comment=mine [not started: Slurm did not start it: QOSMaxGRESPerUser]",
        ),
        ("scontrol", "hold", "7"),
    ]
    assert declining.limit(made.who) == "QOSMaxGRESPerUser" and made.stop is not None
    begun = SbatchAttempt(tmp_path, KEY, dict(made.record))
    seen = made.look_at_job(slurm("PENDING", priority=0), tuple)
    assert (seen.state, seen.reason) == (
        AttemptState.ENDED,
        "Slurm did not start it: QOSMaxGRESPerUser",
    )
    assert seen.retry_s is not None and seen.retry_s < 15
    teller.see_to(begun, slurm("RUNNING"), ())
    assert begun.stop is None
    assert begun.look_at_job(slurm("RUNNING"), tuple).state is AttemptState.RUNNING


def test_comments_say_when_jobs_start() -> None:
    client = Slurm()
    teller = Teller(client, Site(), Declining())
    job = slurm("PENDING", comment="mine [not started: Resources]")
    teller.foretell([job], {job.origin: "12-24 18:05"})
    teller.foretell([job], {})
    told = slurm("PENDING", comment="mine [not started: Resources] [starts: 12-24 18:05]")
    teller.foretell([told], {job.origin: "12-24 18:05"})
    teller.foretell([told], {job.origin: "12-24 18:10"})
    teller.foretell([told], {})
    teller.foretell([slurm("RUNNING", comment="[starts: 12-24 18:05]")], {})
    assert unsaid(told) == "mine"
    update = ("scontrol", "update", "jobid=7")
    assert client.told == [
        (*update, "Comment=mine [not started: Resources] [starts: 12-24 18:05]"),
        (*update, "Comment=mine [not started: Resources] [starts: 12-24 18:10]"),
        (*update, "Comment=mine [not started: Resources]"),
        (*update, "Comment= "),
    ]


def test_a_time_limit_that_ends_before_a_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is lowered again while Slurm is late, and its own comes back however it goes on, also
    where Slurm did not answer."""
    told: list[str] = []
    teller = Teller(SlurmClient.__new__(SlurmClient), Site(), Declining())
    monkeypatch.setattr(teller, "tell", lambda *words: told.append(words[-1]))
    waits, runs = slurm("PENDING"), slurm("RUNNING")
    attempt = started(tmp_path, shortened=[9, "UNLIMITED"])
    for job, minutes in ((waits, 9), (waits, None), (waits, 0), (waits, 8), (runs, 8), (runs, 7)):
        teller.see_to_limit(attempt, job, minutes)
    assert told == ["TimeLimit=8", "TimeLimit=UNLIMITED"]
    for record, job in (({"stop": STOP}, waits), ({}, slurm("PENDING", restarts=1))):
        told.clear()
        attempt = started(tmp_path, shortened=[9, 9], **record)
        with monkeypatch.context() as silent:
            silent.setattr(teller, "tell", _no_answer)
            teller.see_to_limit(attempt, job, 5)
        for _ in range(2):
            teller.see_to_limit(attempt, job, 5)
        assert told == ["TimeLimit=9"]
    attempt = started(tmp_path, shortened=[9, 20])
    for job in (slurm("COMPLETED"), slurm("RUNNING", mark="optsched 17.000000001")):
        teller.see_to_limit(attempt, job, 5)
    assert told == ["TimeLimit=9"]


def _no_answer(*words: str) -> None:
    raise NoAnswerError("scontrol did not answer")


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """How an attempt is stopped and ended is written in room that was taken before, and read again
    by the next controller."""
    with small_disk(tmp_path / "disk") as disk:
        attempt = started(disk)
        fill(disk)
        with pytest.raises(OSError, match="No space"):
            SbatchAttempt(disk, AttemptKey("8", 1)).write(origin="17.000000002")
        attempt.look_at_job(slurm("RUNNING"), tuple)
        attempt.write_stop(60.0)
        attempt.write(stop={**(attempt.stop or {}), "told": True})
        seen = attempt.look_at_job(slurm("SPECIAL_EXIT", 85 << 8, 1), tuple)
        assert (seen.state, seen.exit_status) == (AttemptState.ENDED, 85)
        again = SbatchAttempt(disk, KEY, records.read(attempt.path))
        assert again.ended == seen and again.stop == attempt.stop
        attempt.remove(outputs=False)
        assert not [*attempt.path.parent.iterdir()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_each_user_has_a_folder_of_his_own_for_reports(tmp_path: Path) -> None:
    """Nobody else puts a file there under the name of his job's report, or of an attempt."""
    executor = SbatchExecutor.__new__(SbatchExecutor)
    for _ in range(2):  # a controller that was ended in between
        executor.prepare(tmp_path)
        executor._let_report(1000)
    folders = [tmp_path / "sbatch" / "reports" / name for name in ("1000", "")]
    found = [(path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) for path in folders]
    assert found == [(1000, 0o700), (0, 0o711)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_record_that_a_user_wrote_is_none(tmp_path: Path) -> None:
    path = started(tmp_path).path
    assert [attempt.key for attempt in _kept(tmp_path)] == [KEY]
    os.chown(path, 1000, -1)
    assert not [*_kept(tmp_path)]
