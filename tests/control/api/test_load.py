"""Many at once, slow ones, and ones that go away: all others are answered, and nothing is left
open."""

import contextlib
import gc
import json
import os
import resource
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from optsched.control.api import connection
from optsched.control.api.client import Client

from .live import PATIENCE_S, Live, connect, until, work

REQUEST = b"GET /v1/state HTTP/1.1\r\nHost: localhost\r\n\r\n"


def open_files() -> int:
    gc.collect()  # what other tests have left open
    return len(os.listdir("/proc/self/fd"))


def settled(live: Live, before: int) -> None:
    """No connection is open, and as few files as before."""
    until(lambda: not live.server._server.server_state.connections and open_files() <= before)


def received(one: socket.socket) -> bytes:
    """All that comes until the other end closes, or resets."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := one.recv(1 << 16):
            found += piece
    return found


@pytest.mark.parametrize("each", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_hundred_clients_at_once_all_are_served_once(live: Live, each: int) -> None:
    """Through the client, which comes again when it is told that there are too many."""
    there = live.ask("GET", "/v1/jobs?limit=1")[1]["total"]
    before = open_files()
    begin = threading.Barrier(100)
    names: list[str] = []
    faults: list[BaseException] = []

    def submit(number: int) -> None:
        client = Client(path=live.path)
        try:
            begin.wait(PATIENCE_S)
            for i in range(each):
                names.append(
                    client.post(
                        "/v1/jobs", work(hold=True, request_id=f"many-{each}-{number}-{i}")
                    )["id"]
                )
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300.0)
    assert not faults and len(set(names)) == 100 * each
    assert live.ask("GET", "/v1/jobs?limit=1")[1]["total"] == there + 100 * each
    settled(live, before)


def test_a_thousand_connections_at_once_are_answered_or_told_to_come_again(live: Live) -> None:
    live.ask("GET", "/v1/state")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    before = open_files()
    opened: list[socket.socket] = []
    full = 0
    try:
        for _ in range(1000):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            one.settimeout(PATIENCE_S)
            opened.append(one)
            try:
                one.connect(str(live.path))
            except BlockingIOError:  # so many wait already
                opened.pop().close()
                full += 1
                continue
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                one.sendall(REQUEST.replace(b"localhost", b"localhost\r\nConnection: close"))
        answers = Counter(received(one)[9:12] for one in opened)
    finally:
        for one in opened:
            one.close()
    assert set(answers) <= {b"200", b"503", b""} and answers.total() + full == 1000
    assert answers[b"200"] >= connection.MOST_CONNECTIONS // 2, answers
    settled(live, before)
    assert live.ask("GET", "/v1/state")[0] == 200


def test_connections_that_say_nothing_are_bounded_and_closed(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 1.0)
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 20)
    before = open_files()
    idle = [connect(live.path) for _ in range(20)]
    until(lambda: len(live.server._server.server_state.connections) == 20)
    one = connect(live.path)
    one.sendall(REQUEST)
    answer = received(one)
    assert answer.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
        "error": "too many connections at once; try again"
    }
    one.close()
    for one in idle:
        assert received(one).startswith(b"HTTP/1.1 408")
        one.close()
    settled(live, before)
    assert live.ask("GET", "/v1/state")[0] == 200


@pytest.mark.parametrize(
    "parts",
    [
        [REQUEST[:10]] + [b"x"] * 30,
        [b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"] + [b"x"] * 30,
        [REQUEST, REQUEST[:20]] + [b"x"] * 30,
    ],
)
def test_a_slow_request_is_ended_while_others_are_answered(
    live: Live, monkeypatch: pytest.MonkeyPatch, parts: list[bytes]
) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.5)
    one = connect(live.path)
    begun_s = time.monotonic()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for part in parts:
            one.sendall(part)
            time.sleep(0.1)
            if parts.index(part) == 0:
                assert live.ask("GET", "/v1/state")[0] == 200
        assert b"HTTP/1.1 408" in received(one)
    assert time.monotonic() - begun_s < PATIENCE_S
    one.close()


def test_answers_that_nobody_reads_are_dropped(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "DRAIN_S", 1.0)
    before = open_files()
    one = connect(live.path)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.settimeout(2.0)
    with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
        for _ in range(200):  # answers of 40 kB: more than the kernel keeps
            one.sendall(b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    until(lambda: not live.server._server.server_state.connections)
    one.close()
    settled(live, before)


def test_who_goes_away_leaves_nothing_behind(live: Live) -> None:
    live.ask("GET", "/v1/state")
    before = open_files()
    body = json.dumps(work(hold=True)).encode()
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    for sent in (b"", b"GET", head, head + body[:10], head + body, REQUEST * 5):
        for _ in range(10):
            one = connect(live.path)
            one.sendall(sent)
            one.close()
    settled(live, before)
    assert live.ask("GET", "/v1/state")[0] == 200 and live.failed is None


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: " + b"b" * 100_000 + b"\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: "
        b"chunked\r\n\r\nzz\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_gets_one_answer(live: Live, sent: bytes) -> None:
    one = connect(live.path)
    one.sendall(sent)
    one.shutdown(socket.SHUT_WR)
    answer = received(one)
    one.close()
    assert answer.startswith(b"HTTP/1.1 400")
    assert list(json.loads(answer.rpartition(b"\r\n\r\n")[2])) == ["error"]


def test_a_socket_left_behind_is_replaced_and_one_in_use_is_not(folder: Path) -> None:
    from optsched.control.api.server import serve
    from optsched.errors import InputError

    long = folder / ("a" * 100)
    long.mkdir()
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    short = folder / "api.sock"
    left.bind(str(short))
    left.close()
    short.rename(long / "api.sock")
    live = Live(long)
    try:
        state = Client(path=long / "api.sock").get("/v1/state")  # too long for a socket's address
        assert "gpus" in state  # how many there are it may not know yet
        with pytest.raises(InputError, match="another controller answers there"):
            serve(live.loop, live.settings)
    finally:
        live.close()
    assert not (long / "api.sock").exists()


def test_whoever_sees_the_socket_can_connect(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listen, seen = socket.socket.listen, []

    def before(listening: socket.socket, *backlog: int) -> None:
        seen.append((folder / "api.sock").exists())
        listen(listening, *backlog)

    monkeypatch.setattr(socket.socket, "listen", before)
    Live(folder).close()
    assert not seen[0]


def test_what_is_no_socket_is_not_replaced(folder: Path) -> None:
    from optsched.errors import InputError

    (folder / "api.sock").write_text("mine")
    with pytest.raises(InputError, match="this is not a socket"):
        Live(folder, turns=False)
    assert (folder / "api.sock").read_text() == "mine"
