"""What Slurm says of held jobs is understood, in the shapes of its releases, and what users say in
comments."""

import json
from typing import Any

import pytest

from optsched.executors.base import AttemptKey, NoAnswerError, Request
from optsched.executors.sbatch.arriving import Arriving
from optsched.executors.sbatch.hints import Hints, hints_of
from optsched.executors.sbatch.jobs_json import (
    MOST_TASKS,
    HeldJob,
    exit_status,
    read_held_jobs,
    task_numbers,
)
from optsched.executors.sbatch.request import (
    UnplannableError,
    gpus_per_node,
    node_count,
    request_of,
)
from optsched.executors.slurm.rules import Rules
from optsched.model.cluster import Node
from optsched.model.job import Job
from tests.data import DATA

FIXTURES = DATA.parent / "recipes" / "fixtures"
NODES = [
    *(Node(name=f"a{i}", gpu_type="a100", gpus=4, cpus=32, memory_gib=512) for i in range(3)),
    *(Node(name=f"h{i}", gpu_type="h100", gpus=8, cpus=64, memory_gib=1024) for i in range(2)),
]
OLD: dict[str, Any] = {
    "job_id": 7,
    "array_job_id": 0,
    "array_task_id": None,
    "array_task_string": "",
    "array_max_tasks": 0,
    "job_state": "PENDING",
    "state_reason": "JobHeldUser",
    "priority": 0,
    "user_id": 1000,
    "user_name": "ann",
    "account": "",
    "name": "train.sh",
    "command": "/home/ann/train.sh 3",
    "current_working_directory": "/home/ann",
    "comment": "",
    "admin_comment": "optsched 17.000000001",
    "restart_cnt": 0,
    "exit_code": 0,
    "nodes": "",
    "gres_detail": [],
    "node_count": 1,
    "tasks": 1,
    "cpus": 4,
    "tasks_per_node": 0,
    "memory_per_node": 4096,
    "memory_per_cpu": None,
    "memory_per_tres": "",
    "cpus_per_tres": "",
    "tres_per_node": "gres:gpu:h100:2",
    "tres_per_job": "",
    "tres_per_task": "",
    "tres_per_socket": "",
    "tres_req_str": "cpu=4,mem=4G,node=1,billing=4",
    "time_limit": 60,
    "eligible_time": 0,
    "start_time": 0,
    "end_time": 0,
    "dependency": "",
    "features": "",
    "licenses": "",
    "excluded_nodes": "",
    "required_nodes": "",
    "resv_name": "",
    "burst_buffer": "",
    "het_job_id": 0,
    "shared": None,
    "batch_flag": True,
    "requeue": True,
    "standard_output": "",
}


def as_new(entry: dict[str, Any]) -> dict[str, Any]:
    """The same in the shape of later releases."""
    given = {**entry}
    for name in (
        "array_job_id",
        "array_task_id",
        "array_max_tasks",
        "priority",
        "node_count",
        "tasks",
        "cpus",
        "tasks_per_node",
        "memory_per_node",
        "memory_per_cpu",
        "time_limit",
        "eligible_time",
        "start_time",
        "end_time",
        "het_job_id",
    ):
        given[name] = {
            "set": entry[name] is not None,
            "infinite": False,
            "number": entry[name] or 0,
        }
    given["job_state"] = [entry["job_state"]]
    given["shared"] = [] if entry["shared"] is None else [entry["shared"]]
    status, signal = entry["exit_code"] >> 8, entry["exit_code"] & 0x7F
    given["exit_code"] = {
        "status": ["SIGNALED" if signal else "SUCCESS"],
        "return_code": {"set": not signal, "infinite": False, "number": status},
        "signal": {"id": {"set": bool(signal), "infinite": False, "number": signal}, "name": ""},
    }
    given["hold"] = entry["priority"] == 0
    for name in ("tres_per_node", "tres_per_job", "tres_per_task"):
        given[name] = entry[name].replace("gres:", "gres/")
    return {**given, "extra": ""}


def both(**changes: Any) -> list[HeldJob]:
    """The job in both shapes."""
    entry = {**OLD, **changes}
    return [read(entry), read(as_new(entry))]


def read(*entries: dict[str, Any]) -> HeldJob:
    (job,) = read_held_jobs(json.dumps({"jobs": entries}))
    return job


@pytest.mark.skipif(not FIXTURES.is_dir(), reason=f"{FIXTURES} is absent")
@pytest.mark.parametrize(
    ("file", "number", "runs", "waits", "over", "gpus"),
    [
        ("slurm-22.05.8-squeue_mixed.json", 1100, False, False, True, {}),
        ("slurm-24.11.5-squeue.json", 1, True, False, False, {"n1": ("0", "1")}),
        ("slurm-24.11.5-squeue.json", 2, False, True, False, {}),
        ("slurm-24.11.5-squeue_held.json", 1, False, True, False, {}),
        ("slurm-24.11.5-squeue_comp.json", 1, True, False, False, {}),
    ],
)
def test_recorded_answers(
    file: str, number: int, runs: bool, waits: bool, over: bool, gpus: dict[str, tuple[str, ...]]
) -> None:
    entries = [
        one for one in json.loads((FIXTURES / file).read_text())["jobs"] if one["job_id"] == number
    ]
    job = read({**entries[0], "admin_comment": "optsched 1.000000002"})
    assert (job.runs, job.waits, job.over) == (runs, waits, over)
    assert {node: ids for node, ids in job.gpu_ids.items() if ids} == gpus
    assert job.status == 0


def test_a_job_in_both_shapes() -> None:
    for job in both():
        assert (job.origin, job.target, job.waits, job.priority, job.status) == (
            "17.000000001",
            "7",
            True,
            0,
            0,
        )
        assert (job.key, job.left, job.held, job.depends) == (None, False, False, False)
        asked = request_of(job, NODES)
        assert asked.argv == ("sbatch", "/home/ann/train.sh", "3")
        assert (asked.directory, asked.user_id) == ("/home/ann", 1000)
        assert (asked.limit_s, asked.saves, asked.account, asked.job.duration_s) == (
            3600.0,
            None,
            None,
            None,
        )
        assert (asked.job.gpus, asked.job.user, asked.job.preemptible) == (2, "ann", True)
        profile = asked.job.profile
        assert (profile.rate, profile.cpus_per_gpu, profile.memory_gib_per_gpu) == (
            {"h100": 1.0},
            {2: 1.0},
            2.0,
        )


def test_marks() -> None:
    """Only jobs that job_submit.lua has marked are read."""
    key = "optsched:7:3"
    for text, expected in (
        ("optsched 17.000000001", (None, False)),
        (f"optsched 17.000000001 {key}", (AttemptKey("7", 3), False)),
        ("optsched 17.000000001 not planned: it\nasks", (None, True)),
    ):
        for job in both(admin_comment=text):
            assert (job.key, job.left) == expected
    for text in ("", "optsched", "optsched x", "an optsched 17.000000001", None):
        assert list(read_held_jobs(json.dumps({"jobs": [{**OLD, "admin_comment": text}]}))) == []
    for job in both(comment="mine [on hold]"):
        assert job.held


@pytest.mark.parametrize(
    ("state", "waits", "runs", "over"),
    [
        ("PENDING", True, False, False),
        ("SPECIAL_EXIT", True, False, False),
        ("REQUEUE_HOLD", True, False, False),
        ("CONFIGURING", False, True, False),
        ("RUNNING", False, True, False),
        ("COMPLETING", False, True, False),
        ("SUSPENDED", False, True, False),
        ("COMPLETED", False, False, True),
        ("TIMEOUT", False, False, True),
    ],
)
def test_states(state: str, waits: bool, runs: bool, over: bool) -> None:
    for job in both(job_state=state):
        assert (job.waits, job.runs, job.over) == (waits, runs, over)


def test_states_with_flags() -> None:
    """Later releases name a state and what goes on beside it."""
    for states, expected in (
        (["PENDING", "COMPLETING"], (False, True)),
        (["FAILED", "COMPLETING"], (False, True)),
        (["RUNNING", "CONFIGURING"], (False, True)),
        (["PENDING", "SPECIAL_EXIT"], (True, False)),
    ):
        job = read({**as_new(OLD), "job_state": states})
        assert (job.waits, job.runs) == expected


@pytest.mark.parametrize(
    ("raw", "status"), [(0, 0), (768, 3), (21760, 85), (9, -9), (15, -15), (0x8B, -11)]
)
def test_exit_statuses(raw: int, status: int) -> None:
    for job in both(exit_code=raw):
        assert job.status == status
    assert exit_status(None) is None


def test_arrays() -> None:
    whole = {**OLD, "array_job_id": 7, "array_task_string": "1,3-4%2", "array_max_tasks": 2}
    for entry in (whole, as_new(whole)):
        jobs = list(read_held_jobs(json.dumps({"jobs": [entry]})))
        assert [(job.origin, job.target, job.limit) for job in jobs] == [
            ("17.000000001_1", "7_1", 2),
            ("17.000000001_3", "7_3", 2),
            ("17.000000001_4", "7_4", 2),
        ]
    split = {**OLD, "job_id": 9, "array_job_id": 7, "array_task_id": 0}
    for entry in (split, as_new(split)):
        assert (read(entry).origin, read(entry).target) == ("17.000000001_0", "7_0")
    assert task_numbers("0-9:4,20%3") == [0, 4, 8, 20]
    assert task_numbers("[5]") == [5] and task_numbers("") == []


def test_only_so_many_tasks_at_once() -> None:
    """`--array=1-4%2`: a task that was started counts, whether or not it runs now."""
    common = {**OLD, "array_job_id": 7, "array_max_tasks": 2}
    rest = {**common, "array_task_string": "3-4%2"}

    def ready(*begun: dict[str, Any]) -> list[str]:
        jobs = list(read_held_jobs(json.dumps({"jobs": [*begun, rest]})))
        return [one.name for one in Arriving().arrivals(jobs, (), NODES) if one.ready]

    def task(number: int, **changes: Any) -> dict[str, Any]:
        mark = f"optsched 17.000000001 optsched:7_{number}:1"
        return {
            **common,
            "job_id": 10 + number,
            "array_task_id": number,
            "admin_comment": mark,
            **changes,
        }

    assert ready() == ["7_3", "7_4"]
    assert ready(task(1, job_state="RUNNING")) == ["7_3"]
    assert ready(task(1, job_state="RUNNING"), task(2, job_state="SPECIAL_EXIT")) == ["7_2"]
    assert ready(task(1, job_state="COMPLETED"), task(2, job_state="RUNNING")) == ["7_3"]


def test_an_array_that_is_not_planned() -> None:
    """Its tasks are left alone together."""
    entry = {**OLD, "array_job_id": 7, "array_task_string": "1-1000", "features": "fast"}
    jobs = list(read_held_jobs(json.dumps({"jobs": [entry]})))
    (arrival,) = Arriving().arrivals(jobs, (), NODES)
    assert (arrival.name, arrival.unplanned) == ("7", "it asks for features of nodes")
    assert {job.whole for job in jobs} == {"7"}


@pytest.mark.parametrize(
    ("changes", "ready"),
    [
        ({}, True),
        ({"dependency": "afterok:3(unfulfilled)"}, False),
        ({"eligible_time": 10**10}, False),
        ({"eligible_time": 10**9}, True),
        ({"job_state": "RUNNING"}, False),
    ],
)
def test_what_is_ready(changes: dict[str, Any], ready: bool) -> None:
    for job in both(**changes):
        (arrival,) = Arriving().arrivals([job], (), NODES)
        assert arrival.ready is ready and (arrival.request is not None) is ready


def test_changed_jobs_are_read_again() -> None:
    arriving = Arriving(partition="gpu")

    def read_now(**changes: Any) -> tuple[Any, Any, Any]:
        (arrival,) = arriving.arrivals([read({**OLD, "partition": "gpu", **changes})], (), NODES)
        request = arrival.request
        return arrival.unplanned, None if request is None else request.job.gpus, arrival.barred

    assert read_now() == (None, 2, None)
    assert read_now(tres_per_node="gres:gpu:h100:3") == (None, 3, None)
    assert read_now(dependency="afterok:3") == (None, 3, "it comes after other jobs in Slurm")
    assert read_now(partition="all") == ("it is in the partition all", None, None)


def test_what_is_gone() -> None:
    def gone(state: str, live: tuple[str, ...] = ()) -> tuple[str | None, bool]:
        (arrival,) = Arriving().arrivals([read({**OLD, "job_state": state})], live, NODES)
        return arrival.gone, arrival.cancelled

    assert gone("PENDING") == (None, False)
    assert gone("CANCELLED") == ("it was cancelled in Slurm", True)
    assert gone("COMPLETED") == ("it has ended in Slurm", False)
    assert gone("RUNNING") == ("it was started in Slurm by somebody else", False)
    assert gone("RUNNING", ("17.000000001",)) == (None, False)


def planned(**changes: Any) -> Job:
    old, new = (request_of(job, NODES).job for job in both(**changes))
    assert old == new
    return old


def test_gpus_of_one_node() -> None:
    job = planned(tres_per_node="gres:gpu:2", cpus=8)
    assert (job.gpus, job.profile.rate, job.profile.cpus_per_gpu) == (2, {}, {4: 1.0})
    assert (job.min_nodes, job.max_nodes) == (1, 1)
    assert planned(tres_per_node="", tres_per_job="gres:gpu:3").gpus == 3
    assert planned(tres_per_node="", tres_per_task="gres:gpu:1", tasks=2).gpus == 2
    job = planned(
        tres_per_node="gres:gpu:2", cpus_per_tres="gres:gpu:6", memory_per_tres="gres:gpu:8192"
    )
    assert (job.profile.cpus_per_gpu, job.profile.memory_gib_per_gpu) == ({6: 1.0}, 8.0)
    assert (
        planned(memory_per_node=None, memory_per_cpu=1024).profile.memory_gib_per_gpu == 2.0
    )  # 4 cores, 2 GPUs


def test_without_gpus() -> None:
    job = planned(tres_per_node="", cpus=6, memory_per_node=2048)
    assert (job.gpus, job.cpus, job.memory_gib) == (0, 6, 2.0)


def test_several_nodes() -> None:
    """Each has as many GPUs as Slurm will give it there."""
    asked = {"tres_req_str": "cpu=8,mem=8G,node=2,billing=8", "cpus": 8}
    job = planned(tres_per_node="gres:gpu:2", **asked)
    assert (job.gpus, job.min_nodes, job.max_nodes, job.profile.rate) == (4, 2, 2, {})
    assert job.profile.cpus_per_gpu == {2: 1.0}
    job = planned(tres_per_node="gres:gpu:h100:2", **asked)
    assert (job.gpus, job.min_nodes, job.profile.rate) == (4, 2, {"h100": 1.0})
    assert planned(tres_per_node="gres:gpu:8", **asked).gpus == 16
    assert planned(tres_per_node="", tres_per_job="gres:gpu:8", **asked).gpus == 8
    (job_old, _) = both(tasks=4, tasks_per_node=2)
    assert node_count(job_old) == 2


def test_whole_nodes() -> None:
    job = planned(tres_per_node="", shared="none")
    assert (job.gpus, job.profile.rate, job.profile.cpus_per_gpu) == (4, {"a100": 1.0}, {8: 1.0})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"features": "fast"}, "it asks for features of nodes"),
        ({"licenses": "matlab:1"}, "it asks for licences"),
        ({"excluded_nodes": "a1"}, "it excludes nodes"),
        ({"required_nodes": "a1"}, "it names its nodes"),
        ({"het_job_id": 7}, "it is heterogeneous"),
        ({"partition": "all,optsched"}, "it names several partitions"),
        (
            {"tres_per_node": "gres:gpu:a100:1,gres:gpu:h100:1"},
            "it asks for gres:gpu:a100:1,gres:gpu:h100:1, of which only GPUs of one type are "
            "planned",
        ),
        (
            {"tres_per_node": "gres:nic:1"},
            "it asks for gres:nic:1, of which only GPUs of one type are planned",
        ),
        (
            {"tres_per_node": "", "tres_req_str": "cpu=8,node=2"},
            "it needs several nodes without GPUs",
        ),
        (
            {"tres_per_node": "", "tres_per_job": "gres:gpu:3", "tres_req_str": "cpu=8,node=2"},
            "its nodes would have different numbers of GPUs",
        ),
        ({"tres_per_node": "gres:gpu:16", "tres_req_str": "cpu=8,node=2"}, "no node has 16 GPUs"),
    ],
)
def test_what_is_not_planned(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UnplannableError) as raised:
        request_of(read({**OLD, **changes}), NODES)
    assert str(raised.value) == why


def test_nodes_of_several_sizes() -> None:
    nodes = [Node(name="a", gpu_type="x", gpus=4), Node(name="b", gpu_type="x", gpus=8)]
    job = read(
        {**OLD, "tres_per_node": "gres:gpu:2", "tres_req_str": "cpu=8,node=2", "shared": "none"}
    )
    with pytest.raises(UnplannableError, match="have different numbers of them"):
        request_of(job, nodes)


def test_what_may_not_be_stopped() -> None:
    assert not planned(requeue=False).preemptible
    assert not planned(comment="optsched: preempt=no").preemptible
    asked: Request = request_of(read({**OLD, "batch_flag": False, "command": ""}), NODES)
    assert not asked.job.preemptible and asked.argv == ("salloc", "train.sh")


def test_what_may_be_stopped() -> None:
    """What saves, by default; what does not only where the site says so, of all jobs or by QOS and
    account."""

    def stopped(rules: Rules, **changes: Any) -> tuple[bool, bool | None]:
        asked = request_of(read({**OLD, **changes}), NODES, rules)
        assert (asked.job.min_run_s, asked.job.max_preemptions) == (
            rules.min_run_s,
            rules.max_preemptions,
        )
        return asked.job.preemptible, asked.preempt_unsaved

    savers = Rules(
        preempt_qos=("spot",), preempt_accounts=("guests",), min_run_s=300.0, max_preemptions=5
    )
    assert stopped(savers) == (True, False)
    assert stopped(savers, qos="spot") == stopped(savers, account="guests") == (True, True)
    assert stopped(savers, qos="spot", comment="optsched: preempt=no") == (True, True)
    assert stopped(savers, comment="optsched: preempt=no") == (False, False)
    assert stopped(savers, qos="spot", requeue=False) == (False, True)
    assert stopped(Rules(preempt="all")) == (True, True)
    assert stopped(Rules(preempt="none")) == (False, False)
    assert stopped(Rules(preempt="none", preempt_qos=("spot",)), qos="spot") == (True, True)


def test_gpus_with_cores_beside_them() -> None:
    """Later releases list cores and memory among what a task takes."""
    assert gpus_per_node({"tres_per_task": "cpu=4,gres/gpu:a100:1", "tasks": 2}, 1) == ("a100", 2)
    assert gpus_per_node({"tres_per_task": "cpu=4,gres/gpu:a100=1", "tasks": 2}, 2) == ("a100", 1)
    assert gpus_per_node({"tres_per_task": "gres/gpu=3", "tasks": 1}, 1) == (None, 3)
    assert gpus_per_node({"tres_per_task": "cpu=4"}, 1) == (None, 0)


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("", Hints()),
        ("my job", Hints()),
        (
            "optsched: duration=2h save=30s restore=20s start=5s grace=5m",
            Hints(duration_s=7200, save_s=30, restore_s=20, start_s=5, grace_s=300),
        ),
        (
            "net 7, optsched: weight=2.5 signal=usr1 preempt=no steps=100; see wiki",
            Hints(weight=2.5, signal="USR1", preempt=False, steps=100),
        ),
        (
            "optsched: gpus=1-8",
            Hints(faults=("gpus=1-8: the number of GPUs of a Slurm job cannot be changed",)),
        ),
        (
            "optsched: signal=KILL weight=0 save=5s",
            Hints(
                save_s=5,
                faults=(
                    "signal=KILL: choose from TERM, INT, USR1, USR2, HUP, with B: before it for "
                    "the batch script alone",
                    "weight=0: must be above 0 and at most 1000",
                ),
            ),
        ),
        ("optsched: signal=B:SIGUSR2", Hints(signal="USR2", batch_only=True)),
        (
            "optsched: cheese=brie",
            Hints(
                faults=(
                    "cheese=brie: choose from duration, save, restore, start, grace, signal, "
                    "weight, preempt, steps",
                )
            ),
        ),
    ],
)
def test_hints(comment: str, expected: Hints) -> None:
    assert hints_of(comment) == expected


def test_hints_are_heeded() -> None:
    comment = "optsched: duration=20m save=30s restore=20s grace=5m weight=3"
    asked = request_of(read({**OLD, "comment": comment}), NODES)
    profile = asked.job.profile
    assert (asked.job.duration_s, asked.asked_weight, asked.saves, asked.grace_s) == (
        1200,
        3.0,
        True,
        300,
    )
    assert asked.job.weight == 1.0
    assert (profile.checkpoint_s, profile.restore_s) == (30, 20)


def test_a_time_limit_is_a_limit() -> None:
    """What is hoped for is believed within it, down to a tenth."""
    for hint, limit, believed in (
        ("2h", 60, 3600),
        ("1s", 60, 360),
        ("7m", 60, 420),
        ("1s", None, 1),
    ):
        asked = request_of(
            read({**OLD, "comment": f"optsched: duration={hint}", "time_limit": limit}), NODES
        )
        assert asked.job.duration_s == believed


def test_the_site_says_what_jobs_weigh() -> None:
    rules = Rules(qos_weight={"high": 4.0}, account_weight={"vision": 0.5})
    for changes, weight in (
        ({}, 1.0),
        ({"qos": "high"}, 4.0),
        ({"qos": "high", "account": "vision"}, 2.0),
        ({"qos": "low", "comment": "optsched: weight=1000"}, 1.0),
    ):
        asked = request_of(read({**OLD, **changes}), NODES, rules)
        assert (asked.job.weight, asked.qos) == (weight, changes.get("qos"))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"standard_output": "/x/%j-%x.out"}, "/x/7-train.sh.out"),
        ({"standard_output": ""}, "/home/ann/slurm-7.out"),
        ({"standard_output": "o/%5j%%"}, "/home/ann/o/00007%"),
        ({"standard_output": "%t"}, None),
        ({"array_job_id": 5, "array_task_id": 3}, "/home/ann/slurm-5_3.out"),
        ({"batch_flag": False}, None),
    ],
)
def test_outputs(changes: dict[str, Any], path: str | None) -> None:
    for job in both(**changes):
        assert job.output == path


def test_tasks_without_end() -> None:
    assert len(task_numbers("0-999999999999,5,0-999999999999:7")) == MOST_TASKS
    assert task_numbers("1-3,7,10-20:5%2") == [1, 2, 3, 7, 10, 15, 20]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"jobs": [{}]}', '{"jobs": [7]}', '{"jobs": {}}x', '{"jobs":' + "[" * 100_000],
    ids=lambda text: text[:20],
)
def test_other_answers_are_none(text: str) -> None:
    with pytest.raises(NoAnswerError, match="is not understood"):
        list(read_held_jobs(text))


def test_one_that_is_not_understood_keeps_nobody_from_the_others() -> None:
    """Users write words of sbatch as they like: a number with thousands of zeros before it."""
    odd = {
        **OLD,
        "job_id": 8,
        "tres_per_node": f"gres:gpu:{'0' * 5000}1",
        "admin_comment": "optsched 17.000000002",
    }
    jobs = list(read_held_jobs(json.dumps({"jobs": [odd, OLD]})))
    odd_one, other = Arriving().arrivals(jobs, (), NODES)
    assert odd_one.request is None and "is not understood" in (odd_one.unplanned or "")
    assert other.request is not None
