"""A TCP service that sends numbered tasks and sends each again until it is acked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event

from tests.background import background


class AckingService:
    """Sends ``<number> task <number>`` a line; serves one connection at a time."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._unacked = dict.fromkeys(range(tasks))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0

    def has_acked(self, tasks: int) -> bool:
        """Whether so many tasks are acked."""
        return self._tasks - len(self._unacked) >= tasks

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._listener, background(self._serve):
            yield

    def _serve(self, end: Event) -> None:
        self._listener.settimeout(0.05)
        while not end.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                self.connections += 1
                with client, suppress(OSError):
                    self._send_all(client, end)

    def _send_all(self, client: socket.socket, end: Event) -> None:
        """Send ten tasks at a time, and wait for their acks before the next."""
        client.settimeout(0.05)
        while not end.is_set():
            wanted = list(self._unacked)[:10]
            client.sendall(b"".join(b"%d task %d\n" % (n, n) for n in wanted))
            if not self._wait_acks(client, set(wanted), end):
                return

    def _wait_acks(self, client: socket.socket, wanted: set[int], end: Event) -> bool:
        received = b""
        while not end.is_set():
            try:
                data = client.recv(4096)
            except TimeoutError:
                continue
            if not data:
                return False
            *numbers, received = (received + data).split(b"\n")
            for number in map(int, numbers):
                self._unacked.pop(number, None)
                wanted.discard(number)
            if not wanted and self._unacked:
                return True
        return False
