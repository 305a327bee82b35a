"""A source that keeps each record until it is acked: lines over TCP, answered by the same line."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class AckingSource:
    """Serves one client after the other; each is sent first what the ones before did not ack."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._unacked: list[str] = []
        self._client: socket.socket | None = None
        self._server = socket.create_server(("127.0.0.1", 0))
        self._ended = False
        self.port: int = self._server.getsockname()[1]
        self.resent: list[list[str]] = []
        """What each client was sent at first."""

    @contextmanager
    def serving(self) -> Iterator[AckingSource]:
        thread = threading.Thread(target=self._serve)
        thread.start()
        try:
            yield self
        finally:
            with self._changed:
                self._ended = True
                self._hang_up()
            # Wakes the thread that accepts.
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
            thread.join()
            self._server.close()

    def send(self, *records: str) -> None:
        with self._changed:
            self._unacked += records
            self._deliver(records)

    def unacked(self) -> list[str]:
        with self._changed:
            return list(self._unacked)

    def _serve(self) -> None:
        readers = []
        while True:
            client, _ = self._server.accept()
            with self._changed:
                if self._ended:
                    client.close()
                    break
                self._hang_up()
                self._client = client
                self.resent.append(list(self._unacked))
                self._deliver(self._unacked)
            readers.append(threading.Thread(target=self._take_acks, args=(client,)))
            readers[-1].start()
        for reader in readers:
            reader.join()

    def _take_acks(self, client: socket.socket) -> None:
        with client, suppress(OSError), client.makefile("r") as lines:
            for line in lines:
                with self._changed:
                    if line.rstrip("\n") in self._unacked:
                        self._unacked.remove(line.rstrip("\n"))

    def _deliver(self, records: tuple[str, ...] | list[str]) -> None:
        if self._client is not None:
            with suppress(OSError):
                self._client.sendall("".join(f"{record}\n" for record in records).encode())

    def _hang_up(self) -> None:
        if self._client is not None:
            with suppress(OSError):
                self._client.shutdown(socket.SHUT_RDWR)
            self._client = None
