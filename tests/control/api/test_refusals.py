"""What is refused, with which status, and that nothing happened."""

import base64
import http.client
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .live import Live, connect, work

GOOD: dict[str, Any] = {"argv": ["x"], "directory": "/tmp", "hold": True}
PAGES = [
    base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    for text in (
        "[",
        "[1]",
        "null",
        "[[false, {}, 1], 0.5]",
        '[[false, [], "a"], 0.5]',
        '[[false, "x", "a"], 0.5]',
        "[" * 3000,
    )
]
FAULTY: list[tuple[dict[str, Any], str]] = [
    ({"argv": []}, "argv is empty"),
    ({"argv": "x"}, "argv should be a list"),
    ({"argv": [""]}, "argv[0] is empty"),
    ({"argv": ["a\0b"]}, "argv[0] holds characters"),
    ({"argv": ["x" * 131_072]}, "argv[0] is longer"),
    ({"argv": ["ü" * 70_000]}, "argv has an entry longer than"),
    ({"argv": ["x"] * 5000}, "argv has more than 4096"),
    ({"argv": None}, "argv should be a list"),
    ({"directory": "tmp"}, "directory must be an absolute path"),
    ({"directory": "/a/../b"}, "directory must be written without .."),
    ({"directory": "/a\0"}, "directory must be an absolute path"),
    ({"directory": "/" + "a" * 5000}, "directory is longer"),
    *(
        ({"name": name}, "name takes letters")
        for name in ("..", "../x", "/", "a/b", "a b", "ü", "-a", "a-", "", "a\n")
    ),
    ({"name": "a" * 64}, "name is longer than 63"),
    ({"argv": [], "directory": "x"}, "argv is empty; give it an entry. directory must"),
    ({"name": 7}, "name should be a text"),
    ({"environment": {"A=B": "x"}}, "environment.A=B takes variable names"),
    ({"environment": {"A": "\0"}}, "environment.A takes variable names"),
    ({"environment": {"OPTSCHED_JOB": "x"}}, "environment.OPTSCHED_JOB is set by"),
    ({"environment": {f"V{i}": "" for i in range(2000)}}, "environment has more than 1024"),
    ({"environment": {"A": 1}}, "environment.A should be a text"),
    ({"limit_s": 0}, "limit_s should be at least"),
    ({"warning": "USR1@60"}, "warning is for jobs with a time limit"),
    ({"warning": "STOP@60", "limit_s": 9}, "warning takes a signal"),
    ({"begin_s": 1e300}, "begin_s should be at most"),
    ({"after_any": ["none"]}, "after_any: there is no job 'none'"),
    ({"after_not_ok": ["none"]}, "after_not_ok: there is no job 'none'"),
    ({"if_never": "ask"}, "if_never should be 'cancel' or 'hold'"),
    ({"array": "x"}, "array takes indices"),
    ({"image": "a b"}, "image is not the name of a container image"),
    ({"image": ""}, "image "),
    ({"image": "torch:2"}, "image: the executor local runs commands, not images; leave it out"),
    ({"gpus": -1}, "gpus should be at least 0"),
    ({"gpus": 1.5}, "gpus should be a whole number"),
    ({"gpus": "2"}, 'gpus should be a whole number or an object; write 8, or {"min": 1, "max": 8}'),
    ({"gpus": 10**400}, "gpus should be at most 1000000"),
    ({"gpus": {"min": 1}}, "gpus.max is missing"),
    ({"gpus": {"min": 3, "max": 2}}, "gpus min 3 is above max 2; swap them"),
    ({"gpus": {"min": 0, "max": 2}}, "gpus.min should be at least 1"),
    ({"gpus": 9}, "it can never run here: it needs 9 GPUs of one type, the cluster has at most 8"),
    (
        {"gpus": 6},
        "it can never run here: it needs 6 GPUs on one node, one node has room for at most 4; if "
        "its command "
        "is to run on each of 2 nodes, add --nodes 2 (min_nodes in a request)",
    ),
    (
        {"gpus": 5, "min_nodes": 2},
        "it can never run here: 5 GPUs cannot be split equally over 2 nodes",
    ),
    (
        {"gpus": 8, "min_nodes": 1, "max_nodes": 1},
        "it needs 8 GPUs on one node, one node has room for at most 4",
    ),
    ({"gpus": 4, "min_nodes": 3, "max_nodes": 2}, "max_nodes 2 is below min_nodes 3; swap them"),
    ({"gpus": 4, "min_nodes": 0}, "min_nodes should be at least 1"),
    ({"gpus": 0, "max_nodes": 2}, "min_nodes and max_nodes are for jobs with GPUs"),
    (
        {"gpus": 0, "cpus": 9},
        "it can never run here: it needs 9 cores on one node, the most are the 8 of n0",
    ),
    (
        {"gpu_types": ["h100"]},
        "it can never run here: its profile has rates for h100, the cluster has a",
    ),
    ({"gpu_types": ["a"], "profile": {"rate": {"b": 1}}}, "gpu_types names none of the GPU types"),
    ({"gpus": 1, "cpus": 1}, "cpus is for jobs without GPUs; give cpus_per_gpu"),
    ({"gpus": 0, "cpus_per_gpu": 1}, "cpus_per_gpu is for jobs with GPUs; give cpus"),
    ({"gpus": 1, "memory_gib": 1}, "memory_gib is for jobs without GPUs"),
    ({"gpus": 0, "memory_gib_per_gpu": 1}, "are for jobs with GPUs; give memory_gib"),
    ({"duration_s": 0}, "duration_s should be at least 0.001"),
    ({"duration_s": "1h"}, "duration_s should be a number"),
    ({"duration_s": 1e300}, "duration_s should be at most 10000000000"),
    ({"weight": -1}, "weight should be at least 0"),
    ({"priority": 10**30}, "priority should be at most"),
    ({"tenant": "nobody"}, "there is no tenant 'nobody'"),
    ({"deadline_s": 1}, "deadline_s has passed"),
    ({"after": ["../.."]}, "after[0] holds characters"),
    ({"after": ["none"]}, "after: there is no job 'none'"),
    ({"resources": {"licence": 1}}, "resources.licence the cluster has no 'licence'"),
    ({"retries": 1001}, "retries should be at most 1000"),
    ({"grace_s": 1e6}, "grace_s should be at most 86400"),
    ({"hold": "yes"}, "hold should be true or false"),
    ({"profile": {"rat": {}}}, "profile.rat is not a known field"),
    (
        {"profile": {"locality": {"node": 0.5, "rack": 1}}},
        "profile.locality a wider spread has a higher rate",
    ),
    ({"request_id": "a b"}, "request_id holds characters"),
    ({"unknown": 1}, "unknown is not a known field"),
    ({"unknown" * 1000: 1}, "is not a known field"),
]


@pytest.mark.parametrize(
    ("fields", "sentence"), FAULTY, ids=[sentence[:40] for _, sentence in FAULTY]
)
def test_faulty_fields_are_refused_with_a_sentence(
    live: Live, fields: dict[str, Any], sentence: str
) -> None:
    before = live.journal.last
    status, answer = live.ask("POST", "/v1/jobs", {**GOOD, **fields})
    assert status == 422 and list(answer) == ["error"]
    assert sentence in answer["error"] and len(answer["error"]) < 600
    assert "\n" not in answer["error"] and "Traceback" not in answer["error"]
    new = [entry.event for entry in live.journal.entries() if entry.number > before]
    assert "Submitted" not in {type(event).__name__ for event in new}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nothing",
        b"\xff\xfe",
        b'"\\ud800"',
        b"[" * 100_000,
        b'{"argv": ["\\ud800"], "directory": "/"}',
        b'{"argv": ["x"], "directory": "/", "weight": NaN}',
        b'{"argv":["x"],"directory":"/","gpus":' + b"1" * 5000 + b"}",
        b"null",
        b"[]",
        b"1",
        b'{"argv":["x"],"directory":"/","argv":["y"]}',
        b"\x00",
    ],
)
def test_what_is_no_request_is_refused(live: Live, body: bytes) -> None:
    status, answer = live.ask("POST", "/v1/jobs", body)
    assert status in (400, 422) and answer["error"]


def test_a_model_has_one_size(live: Live) -> None:
    """Two sizes would make the instance of every later round faulty."""
    model = {"name": "llm", "fetch_s": 5, "model_gib": 10}
    assert live.submit(hold=True, profile=model)[0] == 201
    status, answer = live.submit(hold=True, profile={**model, "model_gib": 20})
    assert status == 422 and "model llm has 10 GiB in another job" in answer["error"]
    assert live.submit(hold=True, profile=model)[0] == 201


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/index.html", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/jobs/", 404),
        ("GET", "/v1/jobs/none", 404),
        ("GET", "/v1/jobs/../../etc/passwd", 404),
        ("GET", "/v1/jobs/%2e%2e%2fetc", 404),
        ("GET", "/v1/jobs/%00", 404),
        ("GET", "/v1/jobs/a%0ab", 404),
        ("GET", "/v1/jobs/%FF/output", 404),
        ("GET", "/v1/jobs/" + "a" * 5000, 404),
        ("DELETE", "/v1/jobs", 405),
        ("PUT", "/v1/state", 405),
        ("POST", "/v1/jobs/none/cancel", 404),
        ("GET", "/v1/jobs?limit=0", 422),
        ("GET", "/v1/jobs?limit=x", 422),
        ("GET", "/v1/jobs?nothing=1", 422),
        ("GET", "/v1/jobs?all=1&all=1", 422),
        ("GET", "/v1/jobs?page=x", 422),
        ("GET", "/v1/jobs?page=nan,a", 422),
        ("GET", "/v1/jobs?sort=size", 422),
        ("GET", "/v1/jobs?sort=--name", 422),
        ("GET", "/v1/jobs?state=waiting,done", 422),
        ("GET", "/v1/jobs?state=", 422),
        ("GET", "/v1/jobs?name=%00", 422),
        ("GET", "/v1/state?x", 422),
        ("GET", "/v1/rounds?before=0", 422),
        ("GET", "/v1/rounds?limit=" + "9" * 5000, 422),
    ],
)
def test_other_addresses_and_queries(live: Live, method: str, path: str, status: int) -> None:
    found, answer = live.ask(method, path)
    assert (found, list(answer)) == (status, ["error"])


@pytest.mark.parametrize("page", PAGES)
def test_pages_that_no_answer_gave(live: Live, page: str) -> None:
    assert live.submit(hold=True)[0] == 201  # the page is compared with a job's place in the order
    found, answer = live.ask("GET", f"/v1/jobs?page={page}")
    assert (found, list(answer)) == (422, ["error"])


def test_a_method_that_is_not_there_is_told_those_that_are(live: Live) -> None:
    connection = http.client.HTTPConnection("localhost", timeout=60.0)
    connection.sock = connect(live.path)
    connection.request("OPTIONS", "/v1/jobs")
    answer = connection.getresponse()
    assert answer.status == 405 and set((answer.getheader("allow") or "").split(", ")) == {
        "GET",
        "HEAD",
        "POST",
    }
    answer.read()
    connection.request("HEAD", "/v1/state")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()


def test_other_types_of_body(live: Live) -> None:
    body = json.dumps(work(hold=True)).encode()
    assert live.ask("POST", "/v1/jobs", body, {"Content-Type": "text/plain"})[0] == 415
    assert (
        live.ask("POST", "/v1/jobs", body, {"Content-Type": "application/json; charset=utf-8"})[0]
        == 201
    )
    assert live.ask("GET", "/v1/state", b'{"a": 1}')[0] == 422


def test_bodies_that_are_too_large(live: Live) -> None:
    whole = json.dumps({**GOOD, "environment": {"A": "x" * 100_000}}).encode()
    assert live.ask("POST", "/v1/jobs", whole)[0] == 201
    for size in (1 << 20, 30 << 20):
        status, answer = live.ask("POST", "/v1/jobs", b'{"argv": ["' + b"x" * size + b'"]}')
        assert status == 413 and "1048576 bytes" in answer["error"]
    assert live.ask("POST", "/v1/jobs", None, {"Content-Length": "9" * 300})[0] in (400, 413)


def test_what_could_not_be_written_down_is_refused(live: Live) -> None:
    """Escaped, it would be longer than a record of an attempt may be."""
    body = json.dumps(
        {**GOOD, "environment": {f"A{i}": "\u00e9" * 30_000 for i in range(5)}}, ensure_ascii=False
    )
    status, answer = live.ask("POST", "/v1/jobs", body.encode())
    assert status == 422 and "put some of it into a file" in answer["error"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
FIELDS = (
    "argv",
    "directory",
    "name",
    "environment",
    "gpus",
    "cpus_per_gpu",
    "cpus",
    "memory_gib_per_gpu",
    "memory_gib",
    "gpu_memory_gib",
    "gpu_types",
    "duration_s",
    "total_steps",
    "weight",
    "priority",
    "tenant",
    "deadline_s",
    "after",
    "resources",
    "preemptible",
    "retries",
    "grace_s",
    "profile",
    "request_id",
)


@given(fields=st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), JSON, max_size=4))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_sent_the_answer_is_a_job_or_a_sentence(
    live: Live, fields: dict[str, Any]
) -> None:
    status, answer = live.ask("POST", "/v1/jobs", {**GOOD, **fields, "hold": True})
    assert status in (201, 200, 400, 409, 422), answer
    assert answer["status"] == "held" if status in (200, 201) else answer["error"]
    assert live.failed is None
