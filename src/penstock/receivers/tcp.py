"""A TCP connection of a source: opened, kept alive, and closed within 100 ms of a stop."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_STOP_POLL_MS = 100

# A peer that vanished without a FIN is noticed after about 90 s (60 + 3 x 10).
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


def connect(host: str, port: int, timeout_s: float, shall_end: Callable[[], bool]) -> socket.socket:
    """Return a non-blocking connection; one that is not connected only when ``shall_end()``.

    Raises:
        OSError: no address of the host answered.
    """
    failure: OSError | None = None
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in addresses:
        connection = socket.socket(family, kind, protocol)
        try:
            _connect_to(connection, address, timeout_s, shall_end)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure or OSError(f"{host} has no address")


def _connect_to(
    connection: socket.socket, address: Any, timeout_s: float, shall_end: Callable[[], bool]
) -> None:
    _keep_alive(connection)
    connection.setblocking(False)
    _raise_errno(connection.connect_ex(address), but=errno.EINPROGRESS)
    deadline = time.monotonic() + timeout_s
    while not _wait(connection, select.POLLOUT):
        if shall_end():
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer within {timeout_s:g} s")
    _raise_errno(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    if connection.getsockname() == connection.getpeername():
        # Retrying a local port without a listener sooner or later selects the same port as the
        # outgoing one. TCP then connects it to itself, and the server could not bind it.
        raise ConnectionRefusedError(errno.ECONNREFUSED, "the connection led back to itself")


class Read(NamedTuple):
    """What one round of reads brought: bytes, and why no more will follow, if so."""

    size: int
    ended: bool = False
    error: OSError | None = None


def read_available(connection: socket.socket, buffer: bytearray) -> Read:
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
            return Read(size, error=error)
        if received == 0:
            return Read(size, ended=True)
        size += received
    return Read(size)


def wait_readable(connection: socket.socket) -> bool:
    """Whether there is something to read, within the time between two checks of ``shall_end``."""
    return _wait(connection, select.POLLIN)


def _wait(connection: socket.socket, event: int) -> bool:
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
