"""A TCP proxy on loopback whose connections a test can cut, as a failing network does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.waiting import WAIT_S

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 s: close() sends RST, what is queued is gone


class Proxy:
    """Forwards every connection to ``target``; the port stays while connections are cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._open: set[_Pair] = set()
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
                thread.join(WAIT_S)
            assert not any(thread.is_alive() for thread in self._threads)

    def cut(self) -> int:
        """Reset all connections in both directions; return how many there were."""
        with self._lock:
            for pair in self._open:
                pair.cut()
            return len(self._open)

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
            pair = _Pair(client, server)
            with self._lock:
                self._open.add(pair)
                self.accepted += 1
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._spawn(self._forward, pair, client, server)
            self._spawn(self._forward, pair, server, client)

    def _spawn(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _forward(self, pair: _Pair, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        pair.end()
        with self._lock:
            pair.directions -= 1
            if pair.directions == 0:  # before, a thread might read a number that is used again
                self._open.discard(pair)
                pair.close()


class _Pair:
    """The two connections of one that is forwarded."""

    def __init__(self, *connections: socket.socket) -> None:
        self._connections = connections
        self.directions = len(connections)
        """How many of them are still forwarded."""

    def cut(self) -> None:
        """Reset both."""
        for connection in self._connections:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.end()

    def end(self) -> None:
        """Shut both down, which wakes the threads that read them."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
