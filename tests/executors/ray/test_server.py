"""The client of Ray's head against a server that answers as told: Ray's own words, and what is none
of Ray's."""

import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from optsched.executors.base import NoAnswerError
from optsched.executors.ray import JobServer
from optsched.executors.ray.nodes import found_nodes
from optsched.executors.ray.server import RejectedError
from optsched.model.cluster import Node


class Told:
    """What the server answers, and what it was asked."""

    def __init__(self) -> None:
        self.status, self.text, self.pause_s, self.moved_to = 200, "[]", 0.0, ""
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self.address = ""


@pytest.fixture
def told() -> Iterator[Told]:
    made = Told()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            made.asked.append((self.command, self.path, dict(self.headers), body))
            self.send_response(made.status)
            if made.moved_to:
                self.send_header("Location", made.moved_to)
            self.end_headers()
            try:
                for byte in made.text.encode():
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(made.pause_s)
            except OSError:
                pass

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made.address = f"http://127.0.0.1:{server.server_address[1]}/"
    yield made
    server.shutdown()
    server.server_close()


def client(told: Told, timeout_s: float = 20.0, **more: Any) -> JobServer:
    return JobServer(told.address, more.get("headers", {}), more.get("token_file"), timeout_s)


def test_a_name_that_is_taken_is_no_fault(told: Told) -> None:
    """Ray 2.60 answers with status 500 and a traceback that ends in lines of one dot."""
    told.status = 500
    told.text = (
        "Traceback (most recent call last):\n  raise ValueError(\nValueError: Job with "
        "submission_id a:1 already "
        "exists. Please use a different submission_id.\n.\n.\n"
    )
    client(told).submit({"submission_id": "a:1"})
    with pytest.raises(
        NoAnswerError, match="status 500: ValueError: Job with submission_id a:1 already exists"
    ):
        client(told).submit({"submission_id": "a:12"})


def test_what_it_refuses_is_told_from_what_nobody_knows(told: Told) -> None:
    told.status, told.text = 400, "no such field"
    with pytest.raises(RejectedError, match="no such field"):
        client(told).submit({"submission_id": "a"})
    with pytest.raises(NoAnswerError, match="did not list its jobs: no such field"):
        client(told).jobs()
    for status in (408, 429, 500, 503):
        told.status = status
        with pytest.raises(NoAnswerError, match=f"status {status}"):
            client(told).stop("a")


def test_names_are_quoted(told: Told) -> None:
    told.text = "{}"
    client(told).stop("optsched:a/b:1")
    client(told).delete("optsched:a/b:1")
    assert [one[:2] for one in told.asked] == [
        ("POST", "/api/jobs/optsched%3Aa%2Fb%3A1/stop"),
        ("DELETE", "/api/jobs/optsched%3Aa%2Fb%3A1"),
    ]


def test_the_token_is_read_anew(told: Told, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    asks = client(told, headers={"X-Site": "lab"}, token_file=token)
    asks.jobs()
    token.write_text("second\n")
    asks.jobs()
    assert [one[2]["Authorization"] for one in told.asked] == ["Bearer first", "Bearer second"]
    assert {one[2]["X-Site"] for one in told.asked} == {"lab"}
    told.status, told.text = 403, "Forbidden: Invalid authentication token"
    with pytest.raises(NoAnswerError, match=r"wants another token .*token_file"):
        asks.jobs()
    token.unlink()
    for make in (lambda: None, lambda: os.mkfifo(token)):
        make()
        with pytest.raises(NoAnswerError, match="cannot be read"):
            asks.jobs()


def test_the_token_goes_nowhere_else(told: Told, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    told.status, told.moved_to = 302, f"{told.address}elsewhere"
    with pytest.raises(NoAnswerError):
        client(told, headers={"X-Site": "lab"}, token_file=tmp_path / "token").jobs()
    first, *others = (asked[2] for asked in told.asked)
    assert {"Authorization", "X-Site"} <= first.keys() and others
    assert not any({"Authorization", "X-Site"} & asked.keys() for asked in others)


def test_an_answer_without_end(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched.executors.ray.server.MOST_BYTES", 1 << 10)
    told.text = "x" * 2000
    with pytest.raises(NoAnswerError, match="answered more than 0 MiB"):
        client(told).jobs()


@pytest.mark.parametrize(
    "text", ["<html>a proxy</html>", "[1]", '{"a": 1}', '"text"', "", "null", "[[]]"]
)
def test_what_is_no_ray(told: Told, text: str) -> None:
    told.text = text
    for ask in (client(told).jobs, client(told).nodes):
        with pytest.raises(NoAnswerError):
            ask()


def test_an_answer_that_never_ends_does(told: Told) -> None:
    told.text, told.pause_s = " " * 10_000, 0.02
    with pytest.raises(NoAnswerError, match="timed out"):
        client(told, timeout_s=0.5).jobs()


def test_nobody_is_there() -> None:
    with pytest.raises(NoAnswerError, match=r"does not answer: .*refused"):
        JobServer("http://127.0.0.1:9", {}, None, 5.0).nodes()


def listed(name: str | None, state: str = "ALIVE", **more: Any) -> dict[str, Any]:
    labels = {} if name is None else {"optsched-node": name}
    resources = {"GPU": 8.0, "CPU": 32.0, "memory": 64.0 * 2**30}
    return {
        "node_id": f"id-{name}-{state}",
        "node_ip": "10.0.0.7",
        "state": state,
        "labels": labels,
        "resources_total": resources,
        "state_message": None,
        **more,
    }


def test_nodes_without_a_declaration_are_as_ray_says() -> None:
    gpus = {"optsched-node": "b", "ray.io/accelerator-type": "H100"}
    found = found_nodes(
        [listed("c", "DEAD"), listed("b", labels=gpus), listed(None), listed("a/b")],
        "optsched-node",
        (),
    )
    assert list(found) == ["b", "c"]
    assert found["b"].status.node == Node(
        name="b", gpu_type="H100", gpus=8, cpus=32, memory_gib=64.0
    )
    assert (found["b"].status.usable, found["b"].ray_id, found["b"].address) == (
        True,
        "id-b-ALIVE",
        "10.0.0.7",
    )
    assert (found["c"].status.usable, found["c"].status.reason) == (False, "its Ray node is dead")


def test_declared_nodes_are_checked() -> None:
    declared = [Node(name=name, gpus=8, gpu_type="a100", cpus=32) for name in ("d", "c", "b", "a")]
    dead = listed("b", "DEAD", state_message="missed too many\nheartbeats.")
    small = listed("c", resources_total={"GPU": 4.0, "CPU": 32.0})
    found = found_nodes(
        [listed("d"), dead, small, listed("a"), listed("a"), listed("z")], "optsched-node", declared
    )
    assert {name: one.status.reason for name, one in found.items()} == {
        "d": None,
        "c": "Ray knows 4 GPUs of it, 8 are declared",
        "b": "its Ray node is dead: missed too many heartbeats",
        "a": "2 nodes of Ray have the label optsched-node=a; give each its own",
    }
    assert list(found) == ["d", "c", "b", "a"]
    assert [found[name].status.node for name in found] == declared
    again = found_nodes([dead, listed("b")], "optsched-node", declared[2:3])
    assert again["b"].status.usable and again["b"].ray_id == "id-b-ALIVE"
