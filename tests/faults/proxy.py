"""A TCP proxy on loopback whose connections a test can cut, as a failing network does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 s: close() sends RST, what is queued is gone


class Proxy:
    """Forwards every connection to ``target``; the port stays while connections are cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._all: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._ended = False
        self.accepted = 0
        """How many connections came through so far."""

    @contextmanager
    def running(self) -> Iterator[None]:
        self._spawn(self._accept)
        try:
            yield
        finally:
            self._ended = True
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
            self._listener.close()
            self.cut()
            for thread in self._threads:
                thread.join(10)
            # Only now: a number that was closed while a thread reads it would be used again.
            for connection in self._all:
                connection.close()
            assert not any(thread.is_alive() for thread in self._threads)

    def cut(self) -> int:
        """Reset all connections in both directions; return how many there were."""
        with self._lock:
            cut, self._open = self._open, set()
        for connection in cut:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
        return len(cut) // 2

    def _accept(self) -> None:
        while not self._ended:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=2)
            except OSError:  # nobody listens there: refuse as that would
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
                self._all += (client, server)
                self.accepted += 1
            self._spawn(self._forward, client, server)
            self._spawn(self._forward, server, client)

    def _spawn(self, run: object, *args: socket.socket) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for connection in (source, target):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._open.discard(connection)
