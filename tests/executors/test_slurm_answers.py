"""What Slurm prints is understood, in the shapes of its releases."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from optsched.errors import InputError
from optsched.executors.base import AttemptKey, NoAnswerError, RefusedError
from optsched.executors.slurm import client as module
from optsched.executors.slurm.client import PROGRAMS, SlurmClient
from optsched.executors.slurm.jobs import read_jobs
from optsched.executors.slurm.nodes import gpus, number, read_nodes
from optsched.executors.slurm.site import split_nodes
from optsched.model.cluster import Node
from tests.data import DATA

FIXTURES = DATA.parent / "recipes" / "fixtures"
OLD: dict[str, Any] = {
    "name": "a1",
    "state": "idle",
    "state_flags": [],
    "gres": "gpu:a100:8(S:0-1)",
    "cpus": 96,
    "real_memory": 1048576,
    "partitions": ["optsched", "all"],
    "reason": "",
    "address": "10.0.0.1",
}
NEW: dict[str, Any] = {
    **OLD,
    "state": ["IDLE"],
    "effective_cpus": 94,
    "gres": "gpu:a100:8",
    "real_memory": {"set": True, "infinite": False, "number": 1048576},
}
del NEW["state_flags"]


@pytest.mark.skipif(not FIXTURES.is_dir(), reason=f"{FIXTURES} is absent")
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            "slurm-22.05.8-sinfo.json",
            [("n1", "h100", 4), ("n2", "h100", 4), ("n3", "a100", 8), ("n4", "a100_0", 1)],
        ),
        ("slurm-24.11.5-node.json", [("n1", "h100", 4), ("n2", "h100", 4)]),
    ],
)
def test_recorded_answers(file: str, expected: list[tuple[str, str, int]]) -> None:
    text = (FIXTURES / file).read_text()
    found = read_nodes(text, {}, "main")
    nodes = [one.status.node for one in found]
    assert [(node.name, node.gpu_type, node.gpus) for node in nodes] == expected
    assert {(node.cpus, node.memory_gib) for node in nodes} == {(32, 500000 / 1024)}
    assert {one.address for one in found} == {"127.0.0.1"}
    reasons = {one.status.node.name: one.status.reason for one in found if not one.status.usable}
    several = "has GPUs of several types, which one node cannot have here"
    assert reasons == ({"n4": several} if len(expected) == 4 else {})
    assert read_nodes(text, {}, "another") == []


@pytest.mark.parametrize("entry", [OLD, NEW])
def test_nodes(entry: dict[str, Any]) -> None:
    (found,) = read_nodes(json.dumps({"nodes": [entry]}), {}, None)
    node = found.status.node
    assert (node.name, node.gpu_type, node.gpus, node.memory_gib, node.rack) == (
        "a1",
        "a100",
        8,
        1024.0,
        None,
    )
    assert node.cpus == entry.get("effective_cpus", 96)
    declared = {"a1": Node(name="a1", rack="r1", labels=("ssd",), gpu_memory_gib=80)}
    (found,) = read_nodes(
        json.dumps({"nodes": [entry, {**entry, "name": "a2"}]}), declared, "optsched"
    )
    assert (found.status.node.rack, found.status.node.gpu_memory_gib) == ("r1", 80)
    assert found.status.node.labels == ("ssd",)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (("idle", []), ["IDLE"], None),
        (("mixed", ["COMPLETING"]), ["MIXED", "COMPLETING"], None),
        (("allocated", []), ["ALLOCATED"], None),
        (("idle", ["DRAIN"]), ["IDLE", "DRAIN"], "is drained: fan"),
        (("down", []), ["DOWN"], "is down: fan"),
        (("down", ["NOT_RESPONDING"]), ["DOWN", "NOT_RESPONDING"], "does not respond: fan"),
        (("idle", ["MAINTENANCE"]), ["IDLE", "MAINTENANCE"], "is under maintenance: fan"),
    ],
)
def test_states_of_nodes(old: tuple[str, list[str]], new: list[str], reason: str | None) -> None:
    for entry in ({**OLD, "state": old[0], "state_flags": old[1]}, {**NEW, "state": new}):
        (found,) = read_nodes(json.dumps({"nodes": [{**entry, "reason": "fan"}]}), {}, None)
        assert (found.status.usable, found.status.reason) == (reason is None, reason)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"nodes": [{}]}',
        '{"sinfo": []}',
        '{"nodes": [7]}',
        "[" * 100_000,
        '{"nodes": [{"name": "a1", "state": [], "cpus": Infinity}]}',
        '{"nodes": [{"name": "a1", "state": [], "cpus": %s}]}' % ("9" * 5000),
    ],
    ids=lambda text: text[:50],
)
def test_other_answers_are_none(text: str) -> None:
    with pytest.raises(NoAnswerError, match="is not understood"):
        read_nodes(text, {}, None)


def test_numbers() -> None:
    assert number(7) == number({"set": True, "infinite": False, "number": 7}) == 7
    assert number(None) is number({"set": False, "infinite": False, "number": 0}) is None
    assert number({"set": True, "infinite": True, "number": 0}) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("(null)", []),
        ("gpu:4", [(None, 4)]),
        ("gpu:h100:4", [("h100", 4)]),
        ("gpu:h100:4(S:0-1)", [("h100", 4)]),
        ("shard:8,gpu:a100:2(S:0,1),gpu:1g.5gb:7", [("a100", 2), ("1g.5gb", 7)]),
        ("license:gpu:3", []),
    ],
)
def test_gpus(text: str, found: list[tuple[str | None, int]]) -> None:
    assert gpus(text) == found


def test_hostlists() -> None:
    assert split_nodes("a[1-2,5],b7") == ["a1", "a2", "a5", "b7"]
    assert split_nodes("(null)") == []


def test_lines_of_jobs() -> None:
    """Comments are written by users: neither lines nor separators in them deceive."""
    text = "\n".join(
        (
            "m|7|RUNNING|0|n[1-2]|x|/state/a|b/attempts/x/1|None|optsched:x:1",
            "m|8|PENDING|0||y|/home|ReqNodeNotAvail, UnavailableNodes:n1|optsched:x:2",
            "m|9|COMPLETED|0|n1|x|/home|None|(null)",
            "m|10_4|COMPLETED|0|n1|x|/home|None|optsched:x:3",
            "m|11|RUNNING|7|n1|x|/home|None|so",
            "12|RUNNING|0|n1|x|/home|None|optsched:x:4",
            "",
        )
    )
    found = list(read_jobs(text, "m"))
    assert [(job.id, job.key, job.directory) for job in found] == [
        (7, AttemptKey("x", 1), "/state/a|b/attempts/x/1"),
        (8, AttemptKey("x", 2), "/home"),
    ]
    assert [job.waits for job in found] == [False, True]


def test_programs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sbatch, squeue, scancel, scontrol, sinfo are not found"):
        SlurmClient(1.0, programs=tmp_path)


def test_a_slurm_conf_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"slurm\.conf: there is no file"):
        SlurmClient(1.0, conf=tmp_path / "slurm.conf")


def test_a_program_that_does_not_answer(tmp_path: Path) -> None:
    for name in PROGRAMS:
        (tmp_path / name).write_text("#!/bin/sh\nsleep 600 & wait\n")
        (tmp_path / name).chmod(0o755)
    client = SlurmClient(0.3, programs=tmp_path)
    for _ in range(2):  # the second time it is not even asked
        with pytest.raises(NoAnswerError, match=r"squeue did not answer within 0\.3 s"):
            client.ask("squeue")


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("cat", None, "given"),
        ("echo out; sed 's/^/error: /' >&2; exit 3", RefusedError, "squeue: given"),
        ("echo Unable to contact the controller >&2; exit 1", NoAnswerError, "squeue: Unable"),
        ("exec >&- 2>&-; exec sleep 9", NoAnswerError, "squeue did not answer within 0.2 s"),
        ("while echo an endless name; do :; done", NoAnswerError, "more than 1 MiB"),
        ("while echo an endless fault >&2; do :; done", NoAnswerError, "more than 1 MiB"),
    ],
)
def test_what_a_program_answers(
    script: str,
    error: type[Exception] | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer is read for so long, and to such a length, and nothing of the program stays."""
    for name in PROGRAMS:
        (tmp_path / name).write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    client = SlurmClient(0.2 if "sleep" in script else 20.0, programs=tmp_path)
    if error is None:
        assert client.ask("squeue", given=said) == said
    else:
        with pytest.raises(error, match=said):
            client.ask("squeue", given=said)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
