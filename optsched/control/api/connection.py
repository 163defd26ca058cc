"""One connection to the API: whose it is, how many there may be, and how long a request may take to
come."""

import asyncio
import os
import socket
import struct
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 512
MOST_OF_ONE_USER = 128
"""Of any user but root and the controller's own."""
MOST_TURNED_AWAY = 256
"""So many at once are told that there are too many; further ones are just closed."""
REQUEST_S = 15.0
"""So long may a request take to come, from its connection or its first byte on."""
DRAIN_S = 60.0
"""So long may an answer take to be read."""
CREDENTIALS = struct.Struct("3i")


class Connection(H11Protocol):
    """uvicorn's, with the peer's user id in the scope's state (`uid`; None over TCP), bounds, and
    deadlines."""

    turned_away: ClassVar[set["Connection"]] = set()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.uid: int | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._drained: asyncio.TimerHandle | None = None
        self._admitted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit it, or turn it away."""
        self.transport = transport
        self.uid = peer_uid(transport)
        self.app_state = {**self.app_state, "uid": self.uid}
        if self._too_many():
            if len(self.turned_away) >= MOST_TURNED_AWAY:
                transport.abort()
                return
            self.turned_away.add(self)
            transport.write(
                _plain_response(
                    503, "Service Unavailable", "too many connections at once; try again"
                )
            )
            self._deadline = self.loop.call_later(1.0, transport.abort)
            return
        self._admitted = True
        super().connection_made(transport)
        self._expect_request()

    def _too_many(self) -> bool:
        if len(self.connections) >= MOST_CONNECTIONS:
            return True
        if self.uid in (0, os.geteuid()):
            return False
        same = [
            own for own in self.connections if isinstance(own, Connection) and own.uid == self.uid
        ]
        return len(same) >= MOST_OF_ONE_USER

    def _expect_request(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_S, self._too_slow)

    def _too_slow(self) -> None:
        self._deadline = None
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self.transport.write(
                _plain_response(408, "Request Timeout", f"the request took over {REQUEST_S:g} s")
            )
            self.transport.close()
        self.loop.call_later(1.0, self.transport.abort)

    def _come(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def data_received(self, data: bytes) -> None:
        """Take in what came, and stop the clock where that completes a request."""
        if not self._admitted:
            # only now, as closing it with something unread would lose the answer
            self.transport.close()
            return
        if self.cycle is None or self.cycle.response_complete:
            self._expect_request()
        super().data_received(data)
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            self._come()

    def on_response_complete(self) -> None:
        """Give the peer some time to read it."""
        super().on_response_complete()
        if self._drained is not None:
            self._drained.cancel()
            self._drained = None
        if self.transport.get_write_buffer_size():
            self._drained = self.loop.call_later(DRAIN_S, self._not_read)

    def _not_read(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._come()
        if self._drained is not None:
            self._drained.cancel()
        self.turned_away.discard(self)
        if self._admitted:
            super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, as JSON as all others."""
        self._come()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(
                _plain_response(400, "Bad Request", "this is not an HTTP/1.1 request")
            )
        self.transport.close()


def peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """Return the user at the other end of a unix socket, when it connected; None for other
    sockets."""
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family != socket.AF_UNIX:
        return None
    _, uid, _ = CREDENTIALS.unpack(
        connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    )
    return int(uid)


def _plain_response(status: int, phrase: str, sentence: str) -> bytes:
    body = f'{{"error":"{sentence}"}}'
    again = "retry-after: 1\r\n" if status == 503 else ""
    return (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: "
        f"{len(body)}\r\n{again}connection: close\r\n\r\n{body}"
    ).encode()
