"""A TCP service that sends numbered tasks and sends each again until it is acked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class AckingService:
    """Sends ``<number> task <number>`` a line; serves one connection at a time."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._unacked = dict.fromkeys(range(tasks))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._end = threading.Event()
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0

    def has_acked(self, tasks: int) -> bool:
        """Whether so many tasks are acked."""
        return self._tasks - len(self._unacked) >= tasks

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._serve)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()
            self._listener.close()

    def _serve(self) -> None:
        self._listener.settimeout(0.05)
        while not self._end.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                self.connections += 1
                with client, suppress(OSError):
                    self._send_all(client)

    def _send_all(self, client: socket.socket) -> None:
        """Send ten tasks at a time, and wait for their acks before the next."""
        client.settimeout(0.05)
        while not self._end.is_set():
            wanted = list(self._unacked)[:10]
            client.sendall(b"".join(b"%d task %d\n" % (n, n) for n in wanted))
            if not self._wait_acks(client, set(wanted)):
                return

    def _wait_acks(self, client: socket.socket, wanted: set[int]) -> bool:
        received = b""
        while not self._end.is_set():
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
