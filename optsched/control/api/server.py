"""Serving the API beside a loop: the socket, the port, the token, and the thread."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ..loop import Loop
from ..settings import Settings
from .place import SOCKET, TOKENS, short

if TYPE_CHECKING:
    import uvicorn

BACKLOG = 512
"""So many connections wait to be taken."""
TOKEN_BYTES = 32
STARTS_S = 30.0


class Server:
    """Answers requests on a thread of its own until `close`. `socket_path` and, where there is a
    port, `url` are where it is reached."""

    def __init__(
        self, server: "uvicorn.Server", sockets: Sequence[socket.socket], socket_path: Path
    ) -> None:
        self.socket_path = socket_path
        port = next(
            (
                listening.getsockname()[1]
                for listening in sockets
                if listening.family == socket.AF_INET
            ),
            None,
        )
        self.url = None if port is None else f"http://127.0.0.1:{port}"
        self._inode = socket_path.stat().st_ino
        self._server = server
        self._sockets = list(sockets)
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)
        self._thread.start()
        until_s = time.monotonic() + STARTS_S
        while not server.started and self._thread.is_alive() and time.monotonic() < until_s:
            time.sleep(0.01)
        if not server.started:
            self.close()
            raise InputError(f"the API could not be started: {self._failed or 'it took too long'}")

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=self._sockets))
        except BaseException as error:
            self._failed = error

    def close(self) -> None:
        """Answer what was asked, take no more, and remove the socket."""
        with contextlib.suppress(OSError):
            if self.socket_path.stat().st_ino == self._inode:
                self.socket_path.unlink()
        self._server.should_exit = True
        self._thread.join(10.0)
        for listening in self._sockets:
            listening.close()


def serve(loop: Loop, settings: Settings, routes: Sequence[Any] | None = None) -> Server:
    """Answer requests about the controller of `loop` from now on, on `<state>/api.sock` and the
    port if one is set; `routes` None: all there are.

    Raises InputError where the socket, the port or the token cannot be had, or a library is
    missing.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise InputError(
            f"the API needs {error.name}; install it by: pip install optsched"
        ) from None
    from .app import make_app
    from .connection import Connection
    from .peer import Access
    from .routes import ROUTES
    from .service import Service

    path = settings.state / SOCKET
    sockets: list[socket.socket] = []
    try:
        tokens = {}
        if settings.api.port is not None:
            tokens = {name: read_token(settings.state / name) for name in TOKENS}
            sockets.append(_listen_on_port(settings.api.port))
        sockets.append(_listen_at(path))
        access = Access(settings, tokens)
        loop.controller.on_reload.append(access.reload)
        service = Service(loop, access)
        logging.getLogger("uvicorn.error").setLevel(
            logging.ERROR
        )  # what is no HTTP is the caller's business
        config = uvicorn.Config(
            make_app(service, ROUTES if routes is None else routes),
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=10,
            proxy_headers=False,
        )
        return Server(uvicorn.Server(config), sockets, path)
    except BaseException:
        for listening in sockets:
            listening.close()
        raise


def read_token(path: Path) -> str:
    """Return the token in a file, which is made where there is none. Raises InputError where others
    may read it."""
    try:
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w") as new:
                new.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
                new.flush()
                os.fsync(descriptor)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="ascii", errors="replace") as file:
            about = os.fstat(descriptor)
            token = file.read(1000).strip()
    except OSError as error:
        raise InputError(f"{path}: the token cannot be read or made: {error.strerror}") from None
    if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077 or about.st_uid != os.geteuid():
        raise InputError(f"{path}: others may read the token; remove the file, a new one is made")
    if len(token) < 16 or not token.isprintable() or " " in token or not token.isascii():
        raise InputError(
            f"{path}: holds no token of 16 characters or more; remove the file, a new one is made"
        )
    return token


def _listen_on_port(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise InputError(
            f"port {port} of 127.0.0.1 cannot be had: {error.strerror}; set another as api.port"
        ) from None
    return listening


def _listen_at(path: Path) -> socket.socket:
    """Return a socket at `path` that everybody may connect to; one that a controller left behind is
    replaced. Who sees the path can connect: it is put there when the socket listens."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made = path.with_name(f"{path.name}.new")
    try:
        if path.is_socket():
            with short(path) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                if other.connect_ex(address) == 0:
                    raise InputError(f"{path}: another controller answers there; stop it first")
        elif path.exists():
            raise InputError(f"{path}: this is not a socket; remove it, a socket is made there")
        made.unlink(missing_ok=True)
        with short(made) as address:
            listening.bind(address)
        os.chmod(made, 0o666)
        listening.listen(BACKLOG)
        made.replace(path)
    except OSError as error:
        listening.close()
        raise InputError(f"{path}: no socket can be made there: {error.strerror}") from None
    except InputError:
        listening.close()
        raise
    return listening
