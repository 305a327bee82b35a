"""Lines from a TCP server, as Spark's ``socketTextStream``."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.receivers.lines import DEFAULT_MAX_LINE_BYTES, LineSplitter, check_max_line_bytes
from penstock.receivers.threaded import ThreadedReceiver

__all__ = ["SocketReceiver"]

_BUFFER_BYTES = 4 * 1024 * 1024
_STOP_POLL_MS = 100

# A peer that vanished without a FIN is noticed after about 90 s (60 + 3 x 10).
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class SocketReceiver(ThreadedReceiver):
    r"""Connects to ``host:port`` and stores each line that the server sends.

    What may be lost: a plain TCP sender cannot be asked to send again, so there is no position. A
    crash of this process loses the lines that were received and not yet durable (up to a block
    interval) and those in the kernel's socket buffers; lines sent while nothing is connected are
    the sender's to keep. Nothing is stored twice. Use a source with positions or acks where that
    is not enough.

    Back pressure is TCP's own: while ``store`` blocks nothing is read, the buffers fill, and the
    sender blocks. Memory is bounded by one buffer of 4 MiB and one unfinished line.

    A refused or lost connection restarts the receiver, which connects again after the host's
    back-off. A last line without ``\n`` is stored when the server closes the connection.

    Args:
        host: name or address of the server; every address of a name is tried.
        port: TCP port, 1 to 65535.
        connect_timeout_ms: how long one address may take to answer.
        max_line_bytes: a longer line restarts the receiver with an error.

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
        self._host_name = _check_host(host)
        self._port = _check_port(port)
        self._connect_timeout_s = _check_timeout(connect_timeout_ms) / 1000
        self._max_line_bytes = check_max_line_bytes(max_line_bytes)

    def __repr__(self) -> str:
        return f"SocketReceiver({self._host_name}:{self._port})"

    def receive(self) -> None:
        """Connect and store lines until the server closes; then ask for a restart."""
        server = f"{self._host_name}:{self._port}"
        try:
            connection = self._connect()
        except OSError as error:
            self.restart(f"Error connecting to {server}", error)
            return
        with connection:
            try:
                self._receive_lines(connection)
            except OSError as error:
                self.restart(f"Error receiving data from {server}", error)
                return
        if not self.shallEnd():
            self.restart(f"Socket data stream had no more data: {server} closed the connection")

    def _receive_lines(self, connection: socket.socket) -> None:
        splitter = LineSplitter(self._max_line_bytes)
        buffer = bytearray(_BUFFER_BYTES)
        while not self.shallEnd():
            if not _wait(connection, select.POLLIN):
                continue
            read = _read_available(connection, buffer)
            self._store_all(splitter.feed(bytes(memoryview(buffer)[: read.size])))
            if read.error is not None:
                raise read.error  # what came of the last line is cut off, not a line
            if read.ended:
                self._store_all(splitter.finish())
                return

    def _store_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            self.store(batch)

    def _connect(self) -> socket.socket:
        """Return a connection; one that is not connected only when the receiver shall end.

        Raises:
            OSError: no address of the host answered.
        """
        failure: OSError | None = None
        addresses = socket.getaddrinfo(self._host_name, self._port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in addresses:
            connection = socket.socket(family, kind, protocol)
            try:
                self._connect_to(connection, address)
            except OSError as error:
                connection.close()
                failure = error
            else:
                return connection
        raise failure or OSError(f"{self._host_name} has no address")

    def _connect_to(self, connection: socket.socket, address: Any) -> None:
        _keep_alive(connection)
        connection.setblocking(False)
        _raise_errno(connection.connect_ex(address), but=errno.EINPROGRESS)
        deadline = time.monotonic() + self._connect_timeout_s
        while not _wait(connection, select.POLLOUT):
            if self.shallEnd():
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {self._connect_timeout_s:g} s")
        _raise_errno(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        if connection.getsockname() == connection.getpeername():
            # Retrying a local port that no one listens on sooner or later draws that very port as
            # the outgoing one. TCP then connects it to itself, and the server could not bind it.
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the connection led back to itself")


class _Read(NamedTuple):
    """What one round of reads brought: bytes, and why no more will follow, if so."""

    size: int
    ended: bool = False
    error: OSError | None = None


def _read_available(connection: socket.socket, buffer: bytearray) -> _Read:
    """Read what has arrived, up to the buffer's size, without waiting for more.

    So a line that comes alone is stored at once, and the faster they come, or the slower the store
    is, the more of them share a batch.
    """
    view = memoryview(buffer)
    size = 0
    while size < len(buffer):
        try:
            received = connection.recv_into(view[size:])
        except BlockingIOError:
            break
        except OSError as error:
            return _Read(size, error=error)
        if received == 0:
            return _Read(size, ended=True)
        size += received
    return _Read(size)


def _wait(connection: socket.socket, event: int) -> bool:
    """Whether the event (or an error) came within the time between two looks at ``shallEnd``."""
    poll = select.poll()  # unlike select(), not limited to descriptors below 1024
    poll.register(connection, event)
    return bool(poll.poll(_STOP_POLL_MS))


def _raise_errno(code: int, but: int = 0) -> None:
    if code not in (0, but):
        raise OSError(code, os.strerror(code))


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # the names are Linux's
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _check_host(host: str) -> str:
    if not isinstance(host, str) or not host.strip():
        raise ConfigError(
            f"host {host!r} is not a name or an address",
            operation="set up socket receiver",
            hint="pass for example 'localhost'",
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
