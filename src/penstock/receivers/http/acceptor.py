"""Connections from accept on: limits of number, of time for a TLS handshake, and of descriptors.

uvicorn learns of a TLS connection when its handshake is done, so until then it neither counts nor
ends it. Here the listener is read instead:

- Every connection counts from accept on. Those beyond the most are answered 503 when they are plain
  HTTP, and closed when they are TLS, as a handshake would have to come first.
- Near the process's limit of descriptors nothing is accepted until some are free again: clients
  wait in the kernel's backlog, and the journal has descriptors to write with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial

from penstock.receivers.descriptors import is_near_limit

_log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
_AT_ONCE = 64
_PAUSE_S = 0.25


class Acceptor:
    """Accepts connections for an event loop, from ``start`` to ``close``; used on that loop.

    Args:
        loop: the event loop.
        listener: a listening socket, which this closes.
        protocol: makes the protocol of a connection.
        tls: serves TLS if it is given.
        is_full: given how many are being opened, says whether there are as many as may be.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        is_full: Callable[[int], bool],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._protocol = protocol
        self._tls = tls
        self._is_full = is_full
        self._opening: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False

    def start(self) -> None:
        """Accept from now on."""
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept nothing more, and end the handshakes; connections that are open stay."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for task in self._opening:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor or no memory is left
                self._stop_for_a_while(str(error))
                return
            self._open(client)
            if is_near_limit(client.fileno()):
                self._stop_for_a_while("few file descriptors are left")
                return

    def _open(self, client: socket.socket) -> None:
        if self._tls is not None and self._is_full(len(self._opening)):
            client.close()
            return
        task = self._loop.create_task(self._connect(client))
        self._opening.add(task)
        task.add_done_callback(partial(self._opened, client))

    async def _connect(self, client: socket.socket) -> None:
        limit_s = None if self._tls is None else HANDSHAKE_TIMEOUT_S
        await self._loop.connect_accepted_socket(
            self._protocol, client, ssl=self._tls, ssl_handshake_timeout=limit_s
        )

    def _opened(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        self._opening.discard(task)
        if task.cancelled():
            client.close()
        elif error := task.exception():  # of the client or its network: no handshake, say
            _log.debug("A connection was not opened: %s", error)
            client.close()

    def _stop_for_a_while(self, why: str) -> None:
        _log.warning("HTTP connections wait: %s. Raise the limit (ulimit -n) or use fewer", why)
        self._loop.remove_reader(self._listener.fileno())
        self._pause = self._loop.call_later(_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        try:
            probe = os.dup(self._listener.fileno())
        except OSError:
            is_near = True
        else:
            os.close(probe)
            is_near = is_near_limit(probe)
        if is_near:
            self._pause = self._loop.call_later(_PAUSE_S, self._go_on)
        else:
            self._pause = None
            self._loop.add_reader(self._listener.fileno(), self._accept)
