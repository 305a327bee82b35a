"""One connection: uvicorn's protocol, with limits and rules of HTTP/1.1 that it does not have.

- A client may keep a connection idle, but not half a request: head and body have to come in time,
  and what is not a body (heads, trailers, sizes of chunks) within a size. Connections beyond what
  the process can hold are told so and closed. The sweep that finds late ones costs nothing per
  request.
- What cannot be parsed is refused only where that cannot be taken for the answer to an earlier
  request: one that is whole is answered first, as its records are or become durable.
- A request has one Host, so that no proxy before this server can have read another one.
- Trailers are not headers (RFC 9110, 6.5.1), and are dropped.
- An offer to upgrade is declined by serving the request as it is (RFC 9110, 7.8). Java's HttpClient
  makes one with every first request, and sends the body all the same.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn import Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.errors import ConfigError
from penstock.receivers.descriptors import spare_descriptors
from penstock.receivers.http.pace import BodyPace

if TYPE_CHECKING:
    from uvicorn.server import ServerState

_log = logging.getLogger(__name__)

HEAD_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 60.0
STALLED_BODY_S = 10.0
MAX_HEAD_BYTES = 64 << 10
_MAX_CONNECTIONS = 4096
_NEVER = float("inf")

_HOOKS: dict[type, tuple[str, ...]] = {
    HttpToolsProtocol: (
        "_unset_keepalive_if_required",
        "access_log",
        "client",
        "connection_made",
        "connections",
        "cycle",
        "data_received",
        "headers",
        "on_body",
        "on_headers_complete",
        "on_message_begin",
        "on_message_complete",
        "parser",
        "pipeline",
        "scope",
        "transport",
        "url",
    ),
    RequestResponseCycle: ("keep_alive", "more_body", "response_complete", "response_started"),
    Server: ("serve", "server_state", "should_exit"),
}
"""What this and the server use of uvicorn beyond what it documents."""


def check_uvicorn() -> None:
    """Refuse a version of uvicorn that lacks what is built on here.

    Raises:
        ConfigError: it lacks something; names it.
    """
    missing = [
        f"{kind.__name__}.{name}"
        for kind, names in _HOOKS.items()
        for name in names
        if name not in _names(kind)
    ]
    if missing:
        raise ConfigError(
            f"this version of uvicorn has no {', '.join(missing)}",
            operation="set up HTTP receiver",
            hint="pip install 'uvicorn>=0.30,<1'; if such a version is installed, an older one",
        )


def _names(kind: type) -> set[str]:
    """Return the names of a class's methods, and of what they set on an instance."""
    methods = (method for method in vars(kind).values() if hasattr(method, "__code__"))
    return {*dir(kind), *(name for method in methods for name in method.__code__.co_names)}


def max_connections() -> int:
    """Return how many connections this process takes, so that it has descriptors for the rest."""
    return min(_MAX_CONNECTIONS, spare_descriptors())


class LimitedConnection(HttpToolsProtocol):
    """Answers 400, 408, 431 and 503 by itself, where a request did not come far enough for more."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False  # one line a request is not for a journal's log
        self._max_connections = max_connections()
        self._extra_bytes = 0
        """Since the last head or piece of a body began: of a long head, trailers or such."""
        self._has_progress = False
        self._pace: BodyPace
        self._is_offer = False
        self._is_over = False
        """Whether nothing that still comes counts."""
        self.due_s = _NEVER
        """When what is awaited from the client is late."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a head, unless there are too many connections."""
        super().connection_made(transport)
        self.due_s = time.monotonic() + HEAD_TIMEOUT_S
        if len(self.connections) > self._max_connections:
            self._refuse(b"503 Service Unavailable", "too many connections", b"retry-after: 1\r\n")

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless what is not a body became too long."""
        if self._is_over or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._has_progress = False
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            why = error.__context__ or error  # what a callback of ours raised says more
            _log.warning("Refused a request of %s: %s", (self.client or ["?"])[0], why)
            self._refuse(b"400 Bad Request", f"the request cannot be parsed: {why}")
            return
        if self._has_progress:
            return
        # Not the piece in which it began: that may hold much else before it.
        self._extra_bytes += len(data)
        if self._extra_bytes > MAX_HEAD_BYTES:
            self._refuse(b"431 Request Header Fields Too Large", "the head is too large")
        elif self.due_s == _NEVER:  # bytes that begin no request, after the last one
            self.due_s = time.monotonic() + HEAD_TIMEOUT_S

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._is_offer:  # CONNECT: what follows is not HTTP, whatever it is answered
                    self._is_over = True
                    self.cycle.keep_alive = False
                    return
                # The parser is done with HTTP: another one gets the request, without the offer.
                (end_of_head,) = upgrade.args
                data = self._head_without_offer() + data[end_of_head:]
                self.parser = httptools.HttpRequestParser(self)

    def _head_without_offer(self) -> bytes:
        method, version = self.scope["method"], self.scope["http_version"]
        lines = [b"%b %b HTTP/%b" % (method.encode(), self.url, version.encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """Wait for the rest of the head."""
        super().on_message_begin()
        self._is_offer = False
        self._progress()
        self.due_s = time.monotonic() + HEAD_TIMEOUT_S

    def on_headers_complete(self) -> None:
        """Wait for the rest of the body."""
        self._check_host()
        method = self.parser.get_method()
        if self.parser.should_upgrade() and method != b"CONNECT":
            self._is_offer = True
            self.scope["method"] = method.decode("ascii")
            self.scope["http_version"] = self.parser.get_http_version()
            return
        self.scope["headers"] = self.headers.copy()  # trailers will be added to the other list
        self._pace = BodyPace(BODY_TIMEOUT_S, STALLED_BODY_S, time.monotonic())
        self.due_s = self._pace.due_s
        super().on_headers_complete()

    def _check_host(self) -> None:
        """Raise ValueError unless there is one Host, as RFC 9112, 3.2, asks for."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            raise ValueError(f"there are {hosts} Host headers")

    def on_body(self, body: bytes) -> None:
        """Hand on a piece of the body, and wait for more."""
        self._progress()
        self._pace.add(len(body), time.monotonic())
        self.due_s = self._pace.due_s
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for nothing, until the next request begins."""
        if self._is_offer:
            return
        self._progress()
        self.due_s = _NEVER
        super().on_message_complete()

    def time_out(self) -> None:
        """Close a connection whose client is late."""
        self._refuse(b"408 Request Timeout", "the request did not arrive in time")

    def _progress(self) -> None:
        self._has_progress, self._extra_bytes = True, 0

    def _refuse(self, status: bytes, error: str, headers: bytes = b"") -> None:
        """Close the connection, after an answer that is not taken for that to another request."""
        self._is_over, self.due_s = True, _NEVER
        cycle = self.cycle
        is_idle = cycle is None or cycle.response_complete
        if not (is_idle or cycle.more_body):
            cycle.keep_alive = False  # the last whole request: closed when it is answered
            return
        if is_idle or not (self.pipeline or cycle.response_started):
            body = json.dumps({"error": error}).encode()
            self.transport.write(
                b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
                b"connection: close\r\n%b\r\n%b" % (status, len(body), headers, body)
            )
        self.transport.close()


def close_late(state: ServerState) -> None:
    """Close the connections that are late; to be called every second or so."""
    now_s = time.monotonic()
    for connection in list(state.connections):
        if isinstance(connection, LimitedConnection) and connection.due_s < now_s:
            connection.time_out()
