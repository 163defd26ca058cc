"""Who sees and changes what: other users' processes over the socket, and the port with and without
its token."""

import json
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from optsched.control.api import connection
from optsched.control.api.bodies import SubmitBody
from optsched.control.api.peer import Access
from optsched.control.api.refusal import HttpError
from optsched.control.api.server import read_token
from optsched.control.api.service import Service
from optsched.control.settings import (
    ApiSettings,
    LimitSettings,
    TenantSettings,
    TierSettings,
    UserLimits,
)
from optsched.errors import InputError
from optsched.executors.base import AttemptKey
from tests.other_user import NOBODY, as_root, as_user

from .live import Live, connect

OTHER = 54321
"""A user that this host has no name for."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Live]:
    with tempfile.TemporaryDirectory(prefix="api") as name:
        Path(name).chmod(0o711)
        found = Live(
            Path(name),
            api=ApiSettings(port=0, administrators=("daemon",)),
            tenants=(
                TenantSettings(name="open"),
                TenantSettings(name="theirs", users=("nobody",), gpu_quota=2),
                TenantSettings(name="closed", users=("someone",)),
            ),
        )
        yield found
        found.close()


@as_root
def test_weight_and_priority_are_limited_but_for_operators() -> None:
    with tempfile.TemporaryDirectory(prefix="api") as name:
        Path(name).chmod(0o711)
        daemon = pwd.getpwnam("daemon").pw_uid
        live = Live(
            Path(name),
            api=ApiSettings(administrators=("daemon",)),
            tenants=(
                TenantSettings(name="rich", max_weight=7.0, max_priority=2),
                TenantSettings(name="deep"),
            ),
            tiers=(
                TierSettings(name="urgent", priority=50, users=("sys",), groups=("bin",)),
                TierSettings(name="low", priority=-9, tenants=("deep",)),
                TierSettings(name="open", priority=20),
            ),
            limits=LimitSettings(
                max_weight=2.0, max_time_limit=100.0, users={"bin": UserLimits(max_weight=1e6)}
            ),
        )
        try:

            def submitted(uid: int, **more: Any) -> tuple[int, str]:
                status, answer = as_user(uid, lambda: live.submit(hold=True, **more))
                return status, answer.get("error", "")

            for more, sentence in (
                ({"weight": 2.1}, "weight 2.1 is above 2, the most that jobs of nobody may have"),
                ({"weight": 1e9}, "ask an administrator, or give less"),
                (
                    {"weight": 7.1, "tenant": "rich"},
                    "above 7, the most that jobs of nobody in tenant rich may have",
                ),
                ({"priority": 1}, "priority 1 is above 0"),
                ({"priority": 3, "tenant": "rich"}, "priority 3 is above 2, the most that jobs of"),
                ({"tier": "urgent"}, "jobs of nobody may not be of tier urgent"),
                ({"priority": 50}, "jobs of nobody may not be of tier urgent"),
                ({"tier": "low", "tenant": "rich"}, "in tenant rich may not be of tier low"),
                ({"limit_s": 101.0}, "limit_s 101 is above 100, the most that jobs of nobody"),
            ):
                status, error = submitted(NOBODY, **more)
                assert status == 403 and sentence in error, error
            rich = {"weight": 7, "priority": 2, "tenant": "rich"}
            for more in ({"weight": 2.0}, {"weight": 0.1, "priority": -5}, rich):
                assert submitted(NOBODY, **more) == (201, "")
            assert submitted(pwd.getpwnam("bin").pw_uid, weight=1e6) == (201, "")
            assert submitted(pwd.getpwnam("bin").pw_uid, weight=1e6 + 1)[0] == 403
            for uid, more in (
                (pwd.getpwnam("bin").pw_uid, {"tier": "urgent"}),
                (daemon, {"priority": 50}),
                (NOBODY, {"tier": "low", "tenant": "deep", "name": "deep"}),
                (NOBODY, {"tier": "open"}),
                (NOBODY, {"tier": "open", "priority": 20}),
            ):
                assert submitted(uid, **more) == (201, "")
            jobs = live.loop.ask(lambda controller: controller.state.jobs)
            assert jobs["deep"].submission.job.priority == -9
            for more, sentence in (
                ({"tier": "urgnt"}, "there is no tier 'urgnt'; there are urgent, low, open"),
                ({"tier": "open", "priority": 1}, "tier open has priority 20; leave out priority"),
            ):
                status, error = submitted(NOBODY, **more)
                assert status == 422 and sentence in error, error
            for operator in (0, daemon):
                assert submitted(operator, weight=1e9, priority=10**9) == (201, "")
        finally:
            live.close()


@as_root
def test_users_see_and_change_their_own_jobs_only(shared: Live) -> None:
    shared.submit(1000.0, name="of-root", gpus=2)
    shared.wait("of-root", "running")
    mine = as_user(NOBODY, lambda: shared.submit(1000.0, name="of-nobody"))
    assert mine[0] == 201 and mine[1]["user"] == "nobody"
    made = shared.loop.ask(lambda controller: controller.state.jobs["of-nobody"].submission)
    assert made.user_id == NOBODY
    assert (
        shared.loop.ask(lambda controller: controller.state.jobs["of-root"].submission).user_id
        is None
    )
    asked = [
        ("GET", ""),
        ("POST", "/cancel"),
        ("POST", "/requeue"),
        ("POST", "/hold"),
        ("POST", "/release"),
        ("GET", "/output"),
        ("GET", "/shell"),
    ]
    for uid in (NOBODY, OTHER):
        absent, *foreign, everything, of_root, user, every, own, behind, listed, nodes = as_user(
            uid,
            lambda: [
                shared.ask("GET", "/v1/jobs/absent"),
                *(shared.ask(method, f"/v1/jobs/of-root{path}") for method, path in asked),
                shared.ask("GET", "/v1/jobs?all"),
                shared.ask("GET", "/v1/jobs?user=root"),
                shared.ask("POST", "/v1/cancel", {"name": "of-root", "user": "root"}),
                shared.ask("POST", "/v1/cancel", {"name": "of-root", "all": True}),
                shared.ask("POST", "/v1/cancel", {"name": "of-root"}),
                shared.submit(after=["of-root"]),
                shared.ask("GET", "/v1/jobs"),
                shared.ask("GET", "/v1/nodes"),
            ],
        )
        assert absent[0] == 404
        assert foreign == [[404, {"error": absent[1]["error"].replace("absent", "of-root")}]] * len(
            asked
        )
        assert (everything[0], of_root[0], behind[0]) == (403, 403, 422)
        assert (user[0], every[0], own) == (403, 403, [200, {"jobs": []}])
        assert [job["id"] for job in listed[1]["jobs"]] == (["of-nobody"] if uid == NOBODY else [])
        assert "of-root" not in json.dumps(nodes) and any(
            node["gpus_in_use"] for node in nodes[1]["nodes"]
        )
    assert {job["id"] for job in shared.ask("GET", "/v1/jobs?all")[1]["jobs"]} == {
        "of-root",
        "of-nobody",
    }
    assert [job["id"] for job in shared.ask("GET", "/v1/jobs")[1]["jobs"]] == ["of-root"]
    theirs = shared.ask("GET", "/v1/jobs?user=nobody")[1]["jobs"]
    assert [job["id"] for job in theirs] == ["of-nobody"]
    assert as_user(NOBODY, lambda: shared.ask("POST", "/v1/jobs/of-nobody/cancel"))[0] == 200
    shared.ask("POST", "/v1/jobs/of-root/cancel")
    shared.wait("of-root", "cancelled")


@as_root
def test_administrators_change_everything_but_read_no_output(shared: Live) -> None:
    uid = pwd.getpwnam("daemon").pw_uid
    shared.submit(hold=True, name="administered")
    assert as_user(uid, lambda: shared.ask("GET", "/v1/jobs/administered"))[0] == 200
    status, answer = as_user(uid, lambda: shared.ask("GET", "/v1/jobs/administered/output"))
    assert status == 403 and "only its user" in answer["error"]
    assert as_user(uid, lambda: shared.ask("POST", "/v1/jobs/administered/cancel"))[0] == 200
    assert as_user(uid, lambda: shared.ask("GET", "/v1/jobs?all&finished"))[1]["total"] >= 1


@as_root
def test_who_may_vouch_that_an_attempt_is_over(shared: Live) -> None:
    """Its owner where nobody has a record of it; administrators also where it may go on."""

    def clear(name: str, uid: int | None = None) -> Any:
        def ask() -> Any:
            return shared.ask("POST", f"/v1/jobs/{name}/clear")

        return ask() if uid is None else as_user(uid, ask)

    for name, seen in (
        ("hidden", shared.executor.hidden),
        ("unreachable", shared.executor.unreachable),
    ):
        as_user(NOBODY, lambda name=name: shared.submit(1000.0, name=name))
        shared.wait(name, "running")
        status, answer = clear(name, NOBODY)
        assert (
            status == 409
            and answer["error"]
            == f"attempt 1 of {name} is not lost; cancel or hold {name} to end it"
        )
        seen.add(AttemptKey(name, 1))
        shared.wait(name, "lost")
        as_user(NOBODY, lambda name=name: shared.ask("POST", f"/v1/jobs/{name}/cancel"))
        assert clear(name, OTHER)[0] == 404
    assert clear("hidden", NOBODY)[1]["status"] == "cancelled"
    status, answer = clear("unreachable", NOBODY)
    assert status == 403 and "may still run, so only administrators" in answer["error"]
    assert clear("unreachable")[1]["status"] == "cancelled"
    assert clear("unreachable") == (
        409,
        {"error": "unreachable holds nothing, so there is nothing to clear"},
    )
    shared.executor.hidden.clear()
    shared.executor.unreachable.clear()


@as_root
def test_tenants_are_named_by_their_users(shared: Live) -> None:
    def tenant_of(name: str | None) -> Any:
        given = {} if name is None else {"tenant": name}
        return as_user(NOBODY, lambda: shared.submit(hold=True, **given))

    assert tenant_of("open")[1]["tenant"] == "open"
    assert tenant_of(None)[1]["tenant"] == "theirs"
    assert tenant_of("closed") == [403, {"error": "nobody is not among the users of tenant closed"}]
    status, answer = as_user(NOBODY, lambda: shared.submit(gpus=3, hold=True))
    assert status == 422 and "the quota of theirs is 2" in answer["error"]
    assert shared.submit(hold=True, tenant="closed")[0] == 201
    assert shared.submit(hold=True)[1]["tenant"] is None


@as_root
def test_output_is_read_only_where_it_is_the_owners_file(shared: Live, folder: Path) -> None:
    path, secret = folder / "stdout", folder / "secret"
    secret.write_text("of root")
    path.write_bytes("line ü\n".encode() * 10_000)
    os.chown(path, NOBODY, NOBODY)
    shared.executor.outputs["prints"] = str(path)
    as_user(NOBODY, lambda: shared.submit(0.2, name="prints"))
    shared.wait("prints", "completed")

    def read(query: str = "") -> Any:
        return as_user(NOBODY, lambda: shared.ask("GET", f"/v1/jobs/prints/output{query}"))

    status, tail = read("?tail=1")
    assert status == 200 and tail["ended"] and tail["size"] == tail["next"] == path.stat().st_size
    assert (
        tail["text"].encode() == path.read_bytes()[tail["start"] :]
        and 1020 <= len(tail["text"].encode()) <= 1024
    )
    parts, at = b"", 0
    while True:
        part = read(f"?start={at}")[1]
        if not part["text"]:
            break
        parts, at = parts + part["text"].encode(), part["next"]
    assert parts == path.read_bytes()
    assert shared.ask("GET", "/v1/jobs/prints/output")[0] == 200  # root reads every file anyway
    assert as_user(OTHER, lambda: shared.ask("GET", "/v1/jobs/prints/output"))[0] == 404
    path.unlink()
    assert read()[0] == 404
    path.symlink_to(secret)
    assert read()[0] == 404
    path.unlink()
    os.link(secret, path)
    assert read()[0] == 404
    path.unlink()
    os.mkfifo(path)
    os.chown(path, NOBODY, NOBODY)
    assert read()[0] == 404


def test_whoever_is_not_root_starts_nothing_as_another_user(
    shared: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: OTHER)
    access = Access(shared.settings, {})
    monkeypatch.undo()
    assert (access.own_uid, access.of_user(OTHER).all_jobs, access.of_user(NOBODY).all_jobs) == (
        OTHER,
        True,
        False,
    )
    service = Service(shared.loop, access)
    body = SubmitBody(argv=("x",), directory="/", hold=True)
    with pytest.raises(HttpError, match="does not run as root") as refused:
        service.submit(access.of_user(NOBODY), body)
    assert refused.value.status == 403
    assert service.submit(access.of_user(OTHER), body)[1]


def test_the_port_needs_the_token(shared: Live) -> None:
    path = shared.settings.state / "token"
    token = path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and len(token) >= 40
    right = {"Authorization": f"Bearer {token}"}
    assert shared.ask("GET", "/v1/jobs?all", headers=right, port=True)[0] == 200
    status, job = shared.ask(
        "POST", "/v1/jobs", {"argv": ["x"], "directory": "/", "hold": True}, right, port=True
    )
    assert status == 201 and job["user"] == pwd.getpwuid(os.geteuid()).pw_name
    for headers in (
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {token}x"},
        {"Authorization": f"Bearer {token[:-1]}"},
        {"Authorization": f"Basic {token}"},
        {"Authorization": token},
        {"Authorization": "Bearer \xfc"},
    ):
        for target in ("/v1/state", "/v1/jobs", "/v1/openapi.json"):
            assert shared.ask("GET", target, headers=headers, port=True)[0] == 401
    assert shared.ask("POST", "/v1/jobs", {"argv": ["x"], "directory": "/"}, port=True)[0] == 401


def test_the_token_of_the_metrics_opens_nothing_else(shared: Live) -> None:
    path = shared.settings.state / "metrics-token"
    token = path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and len(token) >= 40
    assert token != (shared.settings.state / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    with urlopen(Request(f"{shared.server.url}/metrics", headers=headers), timeout=30) as answer:
        assert answer.status == 200 and b"optsched_" in answer.read()
    assert (
        shared.ask("GET", "/metrics", headers={"Authorization": f"Bearer {token}x"}, port=True)[0]
        == 401
    )
    assert shared.ask("GET", "/metrics", port=True)[0] == 401
    for method, target, body in (
        ("GET", "/v1/state", None),
        ("GET", "/v1/jobs?all", None),
        ("GET", "/v1/history", None),
        ("POST", "/v1/jobs", {"argv": ["x"], "directory": "/"}),
    ):
        assert shared.ask(method, target, body, headers, port=True)[0] == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:9", 200),
        ("evil.example", 403),
        ("evil.example:80", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ],
)
def test_the_port_answers_to_its_own_names_only(shared: Live, host: str, status: int) -> None:
    token = (shared.settings.state / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Host": host}
    assert shared.ask("GET", "/v1/state", headers=headers, port=True)[0] == status


def test_the_token_is_kept_and_must_be_secret(folder: Path) -> None:
    token = read_token(folder / "token")
    assert read_token(folder / "token") == token != read_token(folder / "another")
    (folder / "token").chmod(0o640)
    with pytest.raises(InputError, match="others may read the token"):
        read_token(folder / "token")
    (folder / "short").write_text("abc")
    (folder / "short").chmod(0o600)
    with pytest.raises(InputError, match="holds no token"):
        read_token(folder / "short")
    os.mkfifo(folder / "pipe", 0o600)
    with pytest.raises(InputError, match="others may read the token"):
        read_token(folder / "pipe")
    (folder / "link").symlink_to(folder / "another")
    with pytest.raises(InputError, match="cannot be read or made"):
        read_token(folder / "link")


@as_root
def test_one_user_cannot_take_all_connections(
    shared: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_OF_ONE_USER", 5)
    request = b"GET /v1/state HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def answers() -> list[str]:
        found, taken = [], []
        for _ in range(8):
            taken.append(connect(shared.path))
            taken[-1].sendall(request)
            found.append(taken[-1].recv(12).decode())
        return found

    assert as_user(NOBODY, answers) == ["HTTP/1.1 200"] * 5 + ["HTTP/1.1 503"] * 3
    assert shared.ask("GET", "/v1/state")[0] == 200
