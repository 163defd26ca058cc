"""Arrays and batches through the API and the command: all or none, by name, and only so many."""

import json
from pathlib import Path
from typing import Any

import pytest

from optsched.control.api.bodies import MOST_BYTES, MOST_BYTES_OF_MANY
from optsched.control.api.naming import read_array
from optsched.control.api.refusal import HttpError

from .live import Live, until, work
from .test_commands import Run, run

__all__ = ["run"]


@pytest.mark.parametrize(
    ("text", "indices", "at_once"),
    [
        (None, [0], None),
        ("0-3", [0, 1, 2, 3], None),
        ("7", [7], None),
        ("1,3,3,2-4", [1, 3, 2, 4], None),
        ("0-10:5%2", [0, 5, 10], 2),
        ("000-001%007", [0, 1], 7),
    ],
)
def test_indices_are_read(text: str | None, indices: list[int], at_once: int | None) -> None:
    assert read_array(text) == (indices, at_once)


@pytest.mark.parametrize(
    "text", ["3-1", "0-9:0", "0-3%0", "0-10000", "0-999999999", "0-9999,10000"]
)
def test_wrong_indices_are_refused(text: str) -> None:
    with pytest.raises(HttpError) as refused:
        read_array(text)
    assert refused.value.status == 422 and str(refused.value).startswith("array: ")


def names(live: Live, query: str) -> list[str]:
    return [job["id"] for job in live.ask("GET", f"/v1/jobs?limit=1000&{query}")[1]["jobs"]]


def test_an_array_is_submitted_listed_and_cancelled_by_its_name(live: Live, run: Run) -> None:
    status, out, _ = run(
        *("submit", "--name", "sweep", "--array", "0-4%2", "--hold", "--"),
        *("work", "{index}", "0", "0", "{index}-{index}"),
    )
    assert (status, out) == (0, "sweep\n")
    tasks = [f"sweep-{i}" for i in range(5)]
    assert names(live, "array=sweep") == tasks
    detail = live.ask("GET", "/v1/jobs/sweep-3")[1]
    assert detail["argv"] == ["work", "3", "0", "0", "3-3"]
    assert (detail["job"]["array"], detail["job"]["index"]) == ("sweep", 3)
    assert detail["job"]["command"] == "work 3 0 0 3-3"
    for taken in ("sweep", "sweep-4"):
        status, refused = live.submit(name=taken, hold=True)
        assert status == 409 and f"a job named '{taken}'" in refused["error"]
    assert live.submit(name="sweep-5", hold=True)[0] == 201
    status, refused = live.submit(name="sweep", array="5-6", hold=True)
    assert status == 409
    status, out, _ = run("queue", "--array", "sweep", "--columns", "job,index")
    assert [line.split() for line in out.splitlines()[2:]] == [
        [task, str(i)] for i, task in enumerate(tasks)
    ]
    assert run("cancel", "sweep", "sweep-5") == (
        0,
        "5 jobs are cancelled: sweep-0, sweep-1, sweep-2, sweep-3, sweep-4\nsweep-5 is cancelled\n",
        "",
    )
    assert run("cancel", "sweep")[2] == "optsched: there is no job 'sweep'\n"


def test_a_task_is_told_its_index_and_waits_for_its_turn(live: Live) -> None:
    status, first = live.submit(1000.0, name="turns", array="3-9:3%1")
    assert (status, first["id"]) == (201, "turns-3")
    live.wait("turns-3", "running")
    why = "array turns may run 1 job at once, and as many run or come before it"
    until(lambda: live.ask("GET", "/v1/jobs/turns-6")[1]["job"]["reason"] == why)
    said = live.ask("GET", "/v1/jobs/turns-6/explain")[1]["sentences"]
    assert said[0] == f"turns-6 waits because {why}."
    order = next(
        process.order
        for key, process in live.executor.processes.items()
        if key.job == "turns-3" and process.order is not None
    )
    assert order.environment["OPTSCHED_ARRAY"] == "turns"
    assert order.environment["OPTSCHED_ARRAY_INDEX"] == "3"
    behind = live.submit(name="reduce", after=["turns"])[1]
    assert behind["after"] == ["turns-3", "turns-6", "turns-9"]
    live.ask("POST", "/v1/cancel", {"array": "turns"})
    live.wait("reduce", "cancelled")


def test_a_repeated_request_makes_no_second_array(live: Live) -> None:
    body = work(hold=True, array="0-2", request_id="again-array", name="again")
    first, second = live.ask("POST", "/v1/jobs", body), live.ask("POST", "/v1/jobs", body)
    assert (first[0], second[0]) == (201, 200) and first[1]["id"] == second[1]["id"] == "again-0"
    batch = {"jobs": [work(hold=True), work(hold=True)], "request_id": "again-batch"}
    first, second = live.ask("POST", "/v1/batch", batch), live.ask("POST", "/v1/batch", batch)
    assert (first[0], second[0]) == (201, 200) and first[1] == second[1]
    assert len(set(first[1]["jobs"])) == 2


def test_a_batch_is_taken_whole_or_not_at_all(live: Live) -> None:
    chain = [
        work(name="b-first", hold=True),
        work(name="b-many", array="0-2", after=["b-first"], hold=True),
        work(name="b-last", after=["b-many"], hold=True),
    ]
    before = live.journal.last
    wrong: list[tuple[dict[str, Any], str]] = [
        (work(gpus=900), "jobs[3]: it can never run here"),
        (work(name="b-many"), "jobs[3]: there is, or was, a job named 'b-many'"),
        (work(name="b-many", array="7"), "jobs[3]: there is, or was, a job named 'b-many'"),
        (work(name="b-many-1"), "jobs[3]: there is, or was, a job named 'b-many-1'"),
        (work(after=["b-later"]), "jobs[3]: after: there is no job 'b-later'"),
        (work(request_id="x"), "jobs[3].request_id is for all jobs"),
        (work(array="0-9998"), "jobs[3]: more than 10,000 jobs in one request"),
        ({"argv": ["x"]}, "jobs[3].directory is missing"),
        (work(name="x" * 60, array="0-1000"), "is longer than 63 characters"),
    ]
    for job, sentence in wrong:
        status, answer = live.ask("POST", "/v1/batch", {"jobs": [*chain, job]})
        assert status in (409, 422) and sentence in answer["error"], answer
    assert live.ask("POST", "/v1/batch", {"jobs": []})[0] == 422
    assert live.journal.last == before
    status, answer = live.ask("POST", "/v1/batch", {"jobs": chain})
    tasks = ["b-many-0", "b-many-1", "b-many-2"]
    assert (status, answer) == (201, {"jobs": ["b-first", *tasks, "b-last"]})
    assert live.ask("GET", "/v1/jobs/b-last")[1]["job"]["after"] == tasks
    live.ask("POST", "/v1/cancel", {"name": "b-*"})


def test_names_to_wait_for_are_limited_over_a_whole_request(live: Live) -> None:
    array = work(name="wide", array="0-999", hold=True)
    jobs = [array, *(work(name=f"deep-{i}", after=["wide"], hold=True) for i in range(101))]
    status, answer = live.ask("POST", "/v1/batch", {"jobs": jobs})
    assert status == 422 and "jobs[101]: after: more than 100,000 names" in answer["error"]
    assert names(live, "array=wide") == []


def test_only_a_request_with_many_jobs_may_be_large(live: Live) -> None:
    job = {**work(hold=True), "environment": {"A": "x" * 100_000}}
    large = json.dumps({"jobs": [job] * 12}).encode()
    assert MOST_BYTES < len(large) < MOST_BYTES_OF_MANY
    status, answer = live.ask("POST", "/v1/batch", large)
    assert status == 201
    live.ask("POST", "/v1/cancel", {"name": answer["jobs"][0].rpartition("-")[0] + "-*"})
    assert live.ask("POST", "/v1/jobs", large)[0] == 413
    assert live.ask("POST", "/v1/batch", b" " * (MOST_BYTES_OF_MANY + 1))[0] == 413


def test_jobs_of_a_file(live: Live, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text(
        '{"name": "f-one", "argv": ["work", "0", "0", "0"]}\n\n'
        '{"name": "f-two", "argv": ["work", "0", "0", "0"], "gpus": 2, "after": ["f-one"]}\n'
    )
    status, out, _ = run("submit", "--file", str(file), "--hold", "--gpus", "3", "--time", "1h")
    assert (status, out) == (0, "f-one\nf-two\n")
    one, two = (live.ask("GET", f"/v1/jobs/f-{name}")[1]["job"] for name in ("one", "two"))
    assert (one["max_gpus"], two["max_gpus"], two["after"]) == (3, 2, ["f-one"])
    for text, sentence in (
        ("", "holds no job"),
        ("[1]\n", "line 1: is not a job"),
        ('{"argv": ["x"]}\n{', "line 2: is no JSON"),
        (
            '{"argv": ["x"], "gpu": 1}',
            "line 1: gpu is not a known field; remove it or correct its name\n",
        ),
        ('{"argv": ["x"]}\n\n{"argv": "x"}', "line 3: argv should be a list"),
        ('{"argv": ["x"], "gpus": "two"}', "line 1: gpus should be a whole number"),
        ('{"name": "f-d", "argv": ["x"]}\n' * 2, "line 2: there is, or was, a job named"),
    ):
        file.write_text(text)
        status, out, err = run("submit", "--file", str(file))
        assert (status, out) == (2, "") and sentence in err
    for words in (("--file", str(file), "--", "x"), (), ("--array", "0-3", "--wait", "--", "x")):
        status, out, err = run("submit", *words)
        assert (status, out) == (2, "") and (
            "after --, or jobs by --file" in err or "--wait" in err
        )
    run("cancel", "--name", "f-*", "--yes")
