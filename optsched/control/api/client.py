"""Asking a controller, from another process: over its unix socket, or over http with a token."""

import http.client
import json
import os
import random
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ...errors import InputError, OptschedError
from ..settings import read_settings
from .place import SOCKET, short

ANSWER_S = 60.0
"""So long to wait for an answer."""
PATIENCE_S = 30.0
"""So long to ask again while the controller says that it is busy."""


class NoControllerError(OptschedError):
    """No controller answers, or it cannot do anything now."""


class ApiError(InputError):
    """The controller would not do it; the message is its own, `status` that of HTTP."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_S)
        with short(self._path) as address:
            self.sock.connect(address)


class Client:
    """Asks one controller. Every request may be repeated safely: submissions carry a request id."""

    def __init__(
        self, *, path: Path | None = None, url: str | None = None, token: str | None = None
    ) -> None:
        """Ask over a unix socket at `path`, else over `url` with `token`. Raises InputError for a
        faulty URL."""
        self._path = path
        self._token = token
        self._host, self._port = "", 0
        if path is None:
            parts = urlsplit(url or "")
            with suppress(ValueError):
                self._host, self._port = parts.hostname or "", parts.port or 0
            sound = parts.scheme == "http" and parts.path in ("", "/")
            if not (sound and self._host and self._port):
                raise InputError(
                    f"{url!r} is not the address of a controller; write http://127.0.0.1:PORT or "
                    "unix:/PATH"
                )
        self.place = str(path) if path is not None else f"http://{self._host}:{self._port}"

    def get(self, path: str, **query: Any) -> Any:
        """Return what is at `path`; those of `query` that are None are left out."""
        given = {
            name: "true" if value is True else value
            for name, value in query.items()
            if value is not None and value is not False
        }
        return self._ask("GET", path + (f"?{urlencode(given)}" if given else ""), None)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer to a request that changes something; a submission gets a request id
        where it has none. Raises NoControllerError, ApiError."""
        if path in ("/v1/jobs", "/v1/batch") and body is not None:
            body = {"request_id": secrets.token_hex(16), **body}
        return self._ask("POST", path, None if body is None else json.dumps(body).encode())

    def job_path(self, job: str, what: str = "") -> str:
        """Return where a job is, or what can be done with it."""
        return f"/v1/jobs/{quote(job, safe='')}" + (f"/{what}" if what else "")

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        until_s, pause_s = time.monotonic() + PATIENCE_S, 0.1
        while True:
            try:
                status, data = self._once(method, path, body)
                why = _sentence(data)
            except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
                status, data, why = 503, b"", "it closed the connection"
            except BlockingIOError:  # too many wait at a unix socket
                status, data, why = 503, b"", "too many wait for it"
            except (OSError, http.client.HTTPException) as error:
                raise NoControllerError(self._no_answer(error)) from None
            if status != 503 or time.monotonic() > until_s:
                break
            time.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(2.0, pause_s * 2)
        if status == 503:
            raise NoControllerError(f"the controller at {self.place} cannot answer now: {why}")
        if status >= 400:
            raise ApiError(status, why)
        try:
            return json.loads(data)
        except ValueError:
            raise NoControllerError(
                f"what answers at {self.place} is not a controller of optsched"
            ) from None

    def _once(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection = (
            SocketConnection(self._path)
            if self._path is not None
            else http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S)
        )
        headers = {"Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _no_answer(self, error: Exception) -> str:
        match error:
            case FileNotFoundError() | ConnectionRefusedError() | NotADirectoryError():
                return f"no controller answers at {self.place}; start one by: optsched run --config cluster.toml"  # noqa: E501
            case PermissionError():
                return f"no permission to reach {self.place}; its folder must be open to all users (chmod o+x)"  # noqa: E501
            case TimeoutError():
                return f"the controller at {self.place} did not answer within {ANSWER_S:g} s"
        return f"the controller at {self.place} does not answer: {error}"


def find_client(config: Path | None) -> Client:
    """Return the client of the controller that is meant: by `config`, else $OPTSCHED_URL, else
    $OPTSCHED_CONFIG, else ./cluster.toml. Raises InputError where none is."""
    url = os.environ.get("OPTSCHED_URL")
    if config is None and url:
        if url.startswith("unix:"):
            return Client(path=Path(url.removeprefix("unix:").removeprefix("//")))
        return Client(url=url, token=os.environ.get("OPTSCHED_TOKEN"))
    if config is None:
        config = Path(os.environ.get("OPTSCHED_CONFIG") or "cluster.toml")
        if not config.exists():
            raise InputError(
                f"{config}: there is no such file; name the controller's by --config or "
                "$OPTSCHED_CONFIG, or its address by $OPTSCHED_URL"
            )
    return Client(path=read_settings(config).state / SOCKET)


def _sentence(data: bytes) -> str:
    try:
        return str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        return data[:200].decode(errors="replace").strip() or "no reason was given"
