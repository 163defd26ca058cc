"""What Slurm has given to others is taken off, and what it did not start is not tried at once
again."""

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import AttemptKey, NoAnswerError, NodeStatus, RefusedError
from optsched.executors.slurm import declining as module
from optsched.executors.slurm.client import SlurmClient
from optsched.executors.slurm.declining import Declining
from optsched.executors.slurm.executor import SlurmExecutor
from optsched.executors.slurm.jobs import SlurmJob, limit_min
from optsched.executors.slurm.others import (
    Others,
    Part,
    Reservation,
    minutes_before,
    read_holdings,
    read_reservations,
    reserved,
    together,
    windows_of,
    without,
)
from optsched.executors.slurm.site import Site
from optsched.model.cluster import FOR_EVER_S, Node

OLD: dict[str, Any] = {
    "job_id": 7,
    "nodes": "n[1-2]",
    "gres_detail": ["gpu:h100:2(IDX:0-1)", "gpu:h100:1(IDX:3)"],
    "tres_per_node": "gres:gpu:2",
    "job_resources": {
        "allocated_nodes": [
            {
                "nodename": "n1",
                "memory_allocated": 100,
                "sockets": {
                    "0": {"cores": {"0": "allocated", "1": "unallocated"}},
                    "1": {"cores": {"0": "allocated"}},
                },
            },
            {
                "nodename": "n2",
                "memory_allocated": 200,
                "sockets": {"0": {"cores": {"3": "allocated"}}},
            },
        ]
    },
}
NEW: dict[str, Any] = {
    **OLD,
    "job_resources": {
        "nodes": {
            "allocation": [
                {
                    "name": "n1",
                    "cpus": {"count": 2, "used": 0},
                    "memory": {"used": 0, "allocated": 100},
                },
                {
                    "name": "n2",
                    "cpus": {"count": 1, "used": 0},
                    "memory": {"used": 0, "allocated": 200},
                },
            ]
        }
    },
}
NODE = NodeStatus(node=Node(name="n1", gpu_type="h100", gpus=4, cpus=32, memory_gib=100.0))
RESERVATIONS = """\
ReservationName=maint StartTime=1000 EndTime=2000 Duration=00:16:40 Nodes=n[1-2],m4 NodeCnt=3 CoreCnt=96 \
Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES TRES=cpu=96 Users=root State=INACTIVE
ReservationName=lic StartTime=1000 EndTime=2000 Duration=00:16:40 Nodes=(null) NodeCnt=0 CoreCnt=0 Flags=ANY_NODES
"""  # noqa: E501


def test_what_jobs_hold() -> None:
    for entry in (OLD, NEW):
        text = json.dumps({"jobs": [entry, {**entry, "job_id": 8}]})
        assert read_holdings(text, {7}) == {7: {"n1": Part(2, 2, 100), "n2": Part(1, 1, 200)}}
    completes = {**OLD, "gres_detail": [], "job_resources": {}}
    assert read_holdings(json.dumps({"jobs": [completes]}), {7})[7]["n1"] == Part(None)
    plain = {**completes, "tres_per_node": ""}
    assert read_holdings(json.dumps({"jobs": [plain]}), {7})[7]["n1"] == Part(0)
    assert together([("a", Part(1, 2, 3)), ("a", Part(1)), ("b", Part(None)), ("b", Part(1))]) == {
        "a": Part(2, 2, 3),
        "b": Part(None),
    }
    for wrong in ("", "[]", '{"jobs": [{}]}', '{"jobs": [7]}'):
        with pytest.raises(NoAnswerError, match="is not understood"):
            read_holdings(wrong, {7})


class Says(SlurmClient):
    """A Slurm whose programs all print the same."""

    def __init__(self, text: str) -> None:
        self.text = text

    def ask(self, program: str, *words: str, given: str = "", unix_times: bool = False) -> str:
        return self.text


@pytest.mark.parametrize(
    "text", ["what?", "7|now", "x|1000|n1", "7|1000|n[1", "\ufffd|\ufffd|", f"{'9' * 5000}|1|n1"]
)
def test_other_lists_of_holders_are_none(text: str) -> None:
    with pytest.raises(NoAnswerError, match="is not understood"):
        Others(Says(text)).held({"n1"}, ())


def test_a_node_less_what_others_hold() -> None:
    assert without(NODE, Part(), Part(4)) is NODE
    less = without(NODE, Part(3, 8, 10240), Part())
    assert (less.node.gpus, less.node.cpus, less.node.memory_gib, less.usable) == (
        1,
        24,
        90.0,
        True,
    )
    assert (less.hardware, less.reason) == (NODE.node, "others hold 3 of its 4 GPUs")
    ours = without(NODE, Part(None, 40, 10**9), Part(2, 4, 1024))
    assert (ours.node.gpus, ours.node.cpus, ours.node.memory_gib) == (
        2,
        4,
        1.0,
    )  # never less than what is ours
    none = without(NODE, Part(None), Part())
    assert (none.usable, none.node) == (False, NODE.node)
    cores = without(NODE, Part(0, 8), Part())
    assert (cores.node.gpus, cores.node.cpus, cores.reason) == (4, 24, None)


def test_reservations() -> None:
    found = read_reservations(RESERVATIONS)
    assert found[0] == Reservation("maint", 1000.0, 2000.0, frozenset({"n1", "n2", "m4"}))
    assert [one.nodes for one in found[1:]] == [frozenset()]
    assert read_reservations("No reservations in the system\n") == []
    assert reserved(NODE, found, 0.0).usable
    assert reserved(NODE, found, 930.0).usable
    assert reserved(NODE, found, 940.0).reason == "is reserved in 1 min (maint)"
    assert reserved(NODE, found, 1500.0).reason == "is reserved (maint)"
    assert reserved(NODE, found, 2000.0).usable
    assert reserved(NodeStatus(node=Node(name="n3")), found, 1500.0).usable


ODD = """\
ReservationName=odd name=1, StartTime=5 EndTime=6 StartTime=1000 EndTime=Unknown Duration=365-00:00:00 Nodes=n[1-2],zz9 NodeCnt=3 CoreCnt=2 \
Features=(null) PartitionName=(null) Flags=MAINT,DAILY,SPEC_NODES NodeName=n1 CoreIDs=0-1 TRES=cpu=2,gres/gpu=1 Users=root State=INACTIVE
ReservationName=float StartTime=1100 EndTime=2000 Duration=00:15:00 Nodes=n2 NodeCnt=1 CoreCnt=32 Flags=TIME_FLOAT,SPEC_NODES State=INACTIVE
ReservationName=backwards StartTime=Unknown EndTime=0 Duration=00:00:00 Nodes=n2 NodeCnt=1 CoreCnt=32 Flags= State=INACTIVE
ReservationName=others StartTime=900 EndTime=2000 Duration=00:18:20 Nodes=m[0-3] NodeCnt=4 CoreCnt=32 Flags= State=INACTIVE
"""  # noqa: E501


def test_reservations_are_windows() -> None:
    """Whatever they are called, of the nodes that are ours."""
    found = read_reservations(ODD)
    assert [own.end_s for own in found] == [FOR_EVER_S, 2000.0, 0.0, 2000.0]
    (window,) = windows_of(found, ["n3", "n2", "n1"], 60.0)
    assert (window.nodes, window.from_s, window.to_s) == (("n2", "n1"), 940.0, FOR_EVER_S)
    assert window.name == "Slurm's odd name=1, StartTime=5 EndTime=6"
    assert windows_of([], ["n1"], 0.0) == ()
    endless = found[0].__class__("x" * 300, 1000.0, FOR_EVER_S, frozenset({"n1"}))
    (window,) = windows_of([endless], ["n1"], 60.0)
    assert (window.from_s, window.to_s, len(window.name)) == (940.0, FOR_EVER_S, 48)
    for wrong in (
        "ReservationName=x",
        "ReservationName=x StartTime=1 EndTime=2 Duration=1 Nodes=n[",
    ):
        with pytest.raises(NoAnswerError, match="is not understood"):
            read_reservations(wrong)


def test_the_longest_time_limit_before_a_reservation() -> None:
    found = read_reservations(RESERVATIONS + ODD.splitlines()[1])
    for nodes, now_s, minutes in (
        ({"n1"}, 0.0, 16),
        ({"n1", "x"}, 938.0, 0),
        ({"n1"}, 937.0, 1),
        ({"n2"}, 1500.0, 0),
        ({"n1"}, 2000.0, None),
        ({"n3"}, 0.0, None),
    ):
        assert minutes_before(found, nodes, now_s) == minutes
    texts = ("1-02:03:30", "10:00", "2:00:00", "UNLIMITED", "NOT_SET")
    assert [*map(limit_min, texts)] == [1563.5, 10.0, 120.0, math.inf, math.inf]


class Told:
    """A client of a Slurm with one node, which tells `reservations`, or why it does not."""

    def __init__(self) -> None:
        self.reservations: str | Exception = "No reservations in the system\n"
        self.asked = 0

    def ask(self, program: str, *words: str, **_: Any) -> str:
        if words[-1] == "reservation":
            self.asked += 1
            if isinstance(self.reservations, Exception):
                raise self.reservations
            return self.reservations
        if words == ("--version",):
            return "slurm-wlm 22.05.8"
        node = {"name": "n1", "state": "idle", "gres": "gpu:h100:4", "partitions": ["a"]}
        return json.dumps({"nodes": [node]}) if program == "sinfo" else ""


def test_a_slurm_that_does_not_tell_its_reservations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last known hold, nodes are seen all the same, and it is not asked at every look."""
    client = Told()
    executor = SlurmExecutor(tmp_path, client, Site(poll_s=1e-9), {})  # type: ignore[arg-type]
    try:
        line = RESERVATIONS.splitlines()[0].replace("=1000 ", "=8000000000 ")
        client.reservations = line.replace("EndTime=2000", "EndTime=9000000000")
        assert [status.usable for status in executor.inventory()] == [True]
        (window,) = executor.reserved_windows()
        assert (window.name, window.nodes, window.to_s) == ("Slurm's maint", ("n1",), 9e9)
        for fault in (NoAnswerError("it is slow"), RefusedError("it is slow")):
            client.reservations, client.asked = fault, 0
            for _ in range(3):
                assert [status.usable for status in executor.inventory()] == [True]
            assert client.asked == 1 and len(executor.reservations) == 1
            with pytest.raises(NoAnswerError, match="it is slow"):
                executor.reserved_windows()
            monkeypatch.setattr(executor, "_reservations_s", -math.inf)
        client.reservations = "No reservations in the system\n"
        executor.inventory()
        assert executor.reserved_windows() == ()
    finally:
        executor.close()


def test_a_time_limit_that_ends_before_a_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is lowered again while Slurm is late, and given back to a job that runs, by root."""
    client = Told()
    executor = SlurmExecutor(tmp_path, client, Site(), {})  # type: ignore[arg-type]
    told: list[str] = []
    monkeypatch.setattr(executor, "_set_limit", lambda _, limit: told.append(limit))
    now_s = time.time()
    try:
        attempt = executor.follow(AttemptKey("a", 1))
        attempt.folder.path.mkdir(parents=True)
        monkeypatch.setattr(type(attempt), "names", ["n1"])
        attempt.submitted(0, 7)
        attempt.keep_limit(0, ("UNLIMITED", 5))
        for uid, state, left_s in (
            (0, "PENDING", 304.0),
            (0, "PENDING", 200.0),
            (0, "PENDING", 30.0),
            (1, "RUNNING", 30.0),
            (0, "RUNNING", 30.0),
            (0, "RUNNING", 30.0),
        ):
            monkeypatch.setattr(os, "geteuid", lambda who=uid: who)
            executor.reservations = [
                Reservation("m", now_s + left_s, now_s + 1e6, frozenset({"n1"}))
            ]
            job = SlurmJob(7, state, 0, "", "", "", "Reserved", attempt.key)
            executor._see_to_limits(attempt, [job])
            assert executor.follow(attempt.key).limits == attempt.limits  # it is on disk
        assert told == ["3", "UNLIMITED"]
    finally:
        executor.close()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: at[0])
    return at


def test_a_limit_bars_all_alike(now: list[float]) -> None:
    asked, waits = Declining(), []
    for _ in range(8):
        waits.append(asked.declined("QOSMaxGRESPerUser", 1000, "a", ("n1",)))
        assert (
            asked.limit(1000) == "QOSMaxGRESPerUser"
            and asked.limit(1001) is None
            and asked.node("n1") is None
        )
        now[0] += waits[-1]
        assert asked.limit(1000) is None
    assert waits == [15.0, 30.0, 60.0, 120.0, 240.0, 300.0, 300.0, 300.0]
    asked.declined("AssocGrpGRES", 1000, "a", ("n1",))
    asked.freed(1000)
    assert asked.limit(1000) is None
    asked.began(1000, "a", ("n1",))
    assert asked.declined("AssocGrpGRES", 1000, "a", ("n1",)) == 15.0


def test_a_node_is_avoided_that_starts_nothing(now: list[float]) -> None:
    """Of two jobs; or as soon as it is said to be the node."""
    asked = Declining()
    assert asked.declined("Resources", 1, "a", ("n1",)) == 15.0
    assert (
        asked.declined("Resources", 1, "a", ("n1",)) == 30.0
    )  # one that asks for too much closes no node
    assert asked.node("n1") is None
    asked.declined("Resources", 1, "b", ("n1",))
    assert asked.node("n1") == "Resources"
    why = "ReqNodeNotAvail, Reserved for maintenance"
    assert [asked.declined(why, 1, "c", ("n2", "n3")) for _ in range(3)] == [5.0, 30.0, 60.0]
    assert asked.node("n2") == asked.node("n3") == why
    now[0] += 20.0
    assert asked.node("n1") is asked.node("n2") is None  # however often one job has it said
    for why in (
        "PartitionTimeLimit",
        "QOSMaxGRESPerJob",
        "QOSMaxWallDurationPerJobLimit",
        "QOSMinGRES",
        "InvalidQOS",
    ):
        for job in ("a", "b"):
            asked.declined(why, 1, job, ("n4",))
        assert asked.node("n4") is None and asked.limit(1) is None
    now[0] += 4000.0
    asked.declined("QOSGrpGRES", 2, "c", ("n4",))
    assert len(asked._bars) == 1  # what is long past is forgotten


def test_how_long_slurm_may_have_it_wait() -> None:
    site = Site(start_timeout_s=60.0)
    reasons = ("None", "Resources", "QOSMaxJobsPerUserLimit", "AssocGrpGRES")
    assert [site.gives_up_s(reason) for reason in reasons] == [60.0, 60.0, 5.0, 5.0]
