"""Records from a TCP server: lines, as Spark's ``socketTextStream``, or each after its length."""

from __future__ import annotations

import logging
import socket
import time
from abc import abstractmethod
from collections.abc import Iterator
from typing import Literal, Protocol

import pyarrow as pa

from penstock.errors import ConfigError, ReceiverError
from penstock.receivers.backoff import Backoff
from penstock.receivers.frames import DEFAULT_MAX_RECORD_BYTES, FrameSplitter
from penstock.receivers.lines import DEFAULT_MAX_LINE_BYTES, LineSplitter
from penstock.receivers.tcp import connect, read_available, wait_readable
from penstock.receivers.threaded import ThreadedReceiver

_log = logging.getLogger(__name__)

_BUFFER_BYTES = 4 * 1024 * 1024
_STABLE_S = 10.0
"""After a connection that held this long, the next failure counts as the first one again."""


class _Splitter(Protocol):
    """Makes records of one connection's bytes."""

    def feed(self, chunk: bytes) -> Iterator[pa.RecordBatch]:
        """Yield what the next chunk completes; ReceiverError for what can be no record."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield what the end of the connection completes; ReceiverError for a torn record."""


class _SocketSource(ThreadedReceiver):
    """Connects to a server, again and again, and stores what a splitter makes of its bytes."""

    def __init__(self, host: str, port: int, *, connect_timeout_ms: int) -> None:
        self._host_name = _check_host(host)
        self._port = _check_port(port)
        self._connect_timeout_s = _check_timeout(connect_timeout_ms) / 1000

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._host_name}:{self._port})"

    @abstractmethod
    def _splitter(self) -> _Splitter:
        """Return a splitter for a new connection."""

    def receive(self) -> None:
        """Connect and store until the receiver shall end; report each connection's end."""
        backoff = Backoff()
        while not self.shallEnd():
            began_s = time.monotonic()
            problem, error = self._connection(backoff)
            if self.shallEnd():
                return
            if time.monotonic() - began_s > _STABLE_S:
                backoff.worked()
            delay_ms = backoff.failed()
            self.reportError(f"{problem}; connecting again in {delay_ms} ms", error)
            self.pause(delay_ms / 1000)

    def _connection(self, backoff: Backoff) -> tuple[str, Exception | None]:
        """Store what one connection brings; return why it ended."""
        server = f"{self._host_name}:{self._port}"
        try:
            connection = connect(
                self._host_name, self._port, self._connect_timeout_s, self.shallEnd
            )
        except OSError as error:
            return f"Error connecting to {server}", error
        with connection:
            _log.info("Connected to %s", server)
            try:
                received = self._store_from(connection)
            except (OSError, ReceiverError) as error:
                return f"Error receiving data from {server}", error
        if received:
            backoff.worked()  # a server that closes after each burst is not a failing one
        return f"Socket data stream had no more data: {server} closed the connection", None

    def _store_from(self, connection: socket.socket) -> bool:
        """Store until the server closes; return whether it sent anything."""
        splitter = self._splitter()
        buffer = bytearray(_BUFFER_BYTES)
        received = False
        while not self.shallEnd():
            if not wait_readable(connection):
                continue
            read = read_available(connection, buffer)
            received = received or read.size > 0
            self._store_all(splitter.feed(bytes(memoryview(buffer)[: read.size])))
            if read.error is not None:
                raise read.error  # what came of the last record is cut off
            if read.ended:
                self._store_all(splitter.finish())
                break
        return received

    def _store_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            self.store(batch)


class SocketReceiver(_SocketSource):
    r"""Connects to ``host:port`` and stores each line that the server sends.

    What may be lost: a plain TCP sender cannot be asked to send again, so there is no position. A
    crash of this process loses the lines that were received and not yet durable (up to a block
    interval) and those in the kernel's socket buffers; lines sent while nothing is connected are
    the sender's to keep. Nothing is stored twice. Use a source with positions or acks where that
    is not enough.

    Back pressure is TCP's own: while ``store`` blocks nothing is read, the buffers fill, and the
    sender blocks. Memory is bounded by one buffer of 4 MiB and one unfinished line.

    A refused or lost connection is reported, and made again after 0.1 s at first, at most 30 s,
    by the same writer. A last line without ``\n`` is stored when the server closes the connection;
    of one that was cut off in another way, nothing.

    Args:
        host: name or address of the server; every address of a name is tried.
        port: TCP port, 1 to 65535.
        connect_timeout_ms: how long one address may take to answer.
        max_line_bytes: a longer line ends the connection with an error.

    Raises:
        ConfigError: an argument cannot work.

    Prior art: ``org.apache.spark.streaming.dstream.SocketReceiver``.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        connect_timeout_ms: int = 10_000,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    ) -> None:
        super().__init__(host, port, connect_timeout_ms=connect_timeout_ms)
        self._max_line_bytes = max_line_bytes
        self._splitter()  # checks it

    def _splitter(self) -> LineSplitter:
        return LineSplitter(self._max_line_bytes)


class FramedSocketReceiver(_SocketSource):
    """Connects to ``host:port`` and stores each record that the server sends after its length.

    A record is any bytes, also none. What may be lost, back pressure and connections are as
    SocketReceiver's. A record whose end does not come, and one that is too long, are reported as
    errors and end the connection; nothing of them is stored.

    Args:
        host: name or address of the server; every address of a name is tried.
        port: TCP port, 1 to 65535.
        length_bytes: how many bytes the length takes: 1, 2, 4 or 8. It is unsigned, and counts the
            record without these bytes.
        byteorder: ``"big"`` (the network's) or ``"little"``.
        connect_timeout_ms: how long one address may take to answer.
        max_record_bytes: a longer record ends the connection with an error.

    Raises:
        ConfigError: an argument cannot work.
    """

    schema = "binary"

    def __init__(
        self,
        host: str,
        port: int,
        *,
        length_bytes: int = 4,
        byteorder: Literal["big", "little"] = "big",
        connect_timeout_ms: int = 10_000,
        max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    ) -> None:
        super().__init__(host, port, connect_timeout_ms=connect_timeout_ms)
        self._length_bytes = length_bytes
        self._byteorder: Literal["big", "little"] = byteorder
        self._max_record_bytes = max_record_bytes
        self._splitter()  # checks them

    def _splitter(self) -> FrameSplitter:
        return FrameSplitter(self._length_bytes, self._byteorder, self._max_record_bytes)


def _check_host(host: str) -> str:
    if not isinstance(host, str) or not host.strip():
        raise ConfigError(
            f"host {host!r} is not a name or an address",
            operation="set up socket receiver",
            hint="pass for example 'localhost'; the port is the second argument",
        )
    return host


def _check_port(port: int) -> int:
    if not isinstance(port, int) or not 1 <= port <= 65535:
        raise ConfigError(
            f"port {port!r} is not a TCP port",
            operation="set up socket receiver",
            hint="pass an integer from 1 to 65535",
        )
    return port


def _check_timeout(connect_timeout_ms: int) -> int:
    if not connect_timeout_ms > 0:
        raise ConfigError(
            f"connect_timeout_ms is {connect_timeout_ms}",
            operation="set up socket receiver",
            hint="pass a number of milliseconds above 0",
        )
    return connect_timeout_ms
