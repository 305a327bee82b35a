"""One connection: uvicorn's protocol, with limits that it does not have.

A client may keep a connection idle, but not half a request: head and body have to come in time, and
the head within a size. Connections beyond the number that the process can hold are told so and
closed. The sweep that finds late ones costs nothing per request.
"""

from __future__ import annotations

import asyncio
import resource
import time
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from uvicorn.server import ServerState

__all__ = ["LimitedConnection", "close_late"]

HEAD_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 60.0
MAX_HEAD_BYTES = 64 << 10
_MAX_CONNECTIONS = 4096
_DESCRIPTORS_FOR_OTHERS = 128
_NEVER = float("inf")


def max_connections() -> int:
    """Return how many connections this process takes, so that it has descriptors for the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return min(_MAX_CONNECTIONS, max(soft - _DESCRIPTORS_FOR_OTHERS, 16))


class LimitedConnection(HttpToolsProtocol):
    """Answers 408, 431 and 503 by itself, where a request did not come far enough for more."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False  # one line a request is not for a journal's log
        self._max_connections = max_connections()
        self._head_bytes = 0
        self._is_in_head = True
        self._is_new_head = True
        self.due_s = _NEVER
        """When what is awaited from the client is late."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a head, unless there are too many connections."""
        super().connection_made(transport)
        self.due_s = time.monotonic() + HEAD_TIMEOUT_S
        if len(self.connections) > self._max_connections:
            self._refuse(b"503 Service Unavailable", b"retry-after: 1\r\n")

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless a head became too long."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_in_head:
            # Not the piece in which it began: that may hold many requests before it.
            self._head_bytes += 0 if self._is_new_head else len(data)
            self._is_new_head = False
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """Wait for the rest of the head."""
        super().on_message_begin()
        self._is_in_head = self._is_new_head = True
        self._head_bytes = 0
        self.due_s = time.monotonic() + HEAD_TIMEOUT_S

    def on_headers_complete(self) -> None:
        """Wait for the rest of the body."""
        self._is_in_head = False
        self.due_s = time.monotonic() + BODY_TIMEOUT_S
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Wait for nothing, until the next request begins."""
        self.due_s = _NEVER
        super().on_message_complete()

    def time_out(self) -> None:
        """Close a connection whose client is late."""
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes, headers: bytes = b"") -> None:
        """Answer, unless that would seem to be the answer to an earlier request, and close."""
        self.due_s = _NEVER
        cycle = self.cycle
        is_idle = cycle is None or cycle.response_complete
        if is_idle or not (self._is_in_head or self.pipeline or cycle.response_started):
            self.transport.write(
                b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n%b\r\n"
                % (status, headers)
            )
        self.transport.close()


def close_late(state: ServerState) -> None:
    """Close the connections that are late; to be called every second or so."""
    now_s = time.monotonic()
    for connection in list(state.connections):
        if isinstance(connection, LimitedConnection) and connection.due_s < now_s:
            connection.time_out()
