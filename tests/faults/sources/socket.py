"""A TCP server that sends lines and never hears back: what is in flight at a kill is lost.

So the promise is weaker. Of each connection a prefix arrives, each line once and whole: nothing is
made up, doubled, or left out in the middle. Of one that lasts to the end, all arrives.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.background import background
from tests.faults.sources.source import PAUSE_S, Balance, ReceiverSpec, Source

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 s: close() sends RST, what is queued is gone


class SocketSource(Source):
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = int(self._listener.getsockname()[1])
        self._connections: list[_Connection] = []

    def receiver(self, place: str) -> ReceiverSpec:
        return ReceiverSpec(
            "SocketReceiver",
            {"host": "127.0.0.1", "port": self._port},
            ("socket", "--host", "127.0.0.1", "--port", str(self._port)),
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._listener:
            yield

    @contextmanager
    def sending(self) -> Iterator[None]:
        with background(self._accept):
            yield

    def cut(self) -> None:
        for connection in self._connections:
            connection.reset.set()

    def balance(self, seen: Counter[str]) -> Balance:
        arrived: dict[int, list[int]] = {c.number: [] for c in self._connections}
        unexpected = []
        for line in seen:
            try:
                connection, number = map(int, line.split(":"))
                arrived[connection].append(number)
            except (ValueError, KeyError):
                unexpected.append(line)
        lost = []
        for connection in self._connections:
            numbers = arrived[connection.number]
            due = max(numbers, default=-1) + 1 if connection.failed else connection.sent
            held = set(numbers)
            lost += [f"{connection.number}:{n}" for n in range(due) if n not in held]
            unexpected += [f"{connection.number}:{n}" for n in numbers if n >= connection.sent]
        twice = sum(times - 1 for times in seen.values())
        sent = sum(connection.sent for connection in self._connections)
        return Balance(sent, tuple(lost), tuple(unexpected), twice)

    def _accept(self, end: threading.Event) -> None:
        self._listener.settimeout(0.1)
        while not end.is_set():
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                connection = _Connection(len(self._connections), client, end)
                self._connections.append(connection)
                connection.start()
        for connection in self._connections:
            connection.join()


class _Connection(threading.Thread):
    """Sends lines ``<connection>:<number>`` until it is cut, or the sending ends."""

    def __init__(self, number: int, client: socket.socket, end: threading.Event) -> None:
        super().__init__()
        self.number = number
        self.sent = 0
        self.failed = False
        self.reset = threading.Event()
        self._client = client
        self._end = end

    def run(self) -> None:
        self._client.settimeout(1)
        with self._client:
            while not self._end.wait(PAUSE_S):
                if self.reset.is_set():
                    self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    self.failed = True
                    return
                if not self._send():
                    self.failed = True
                    return
            self.failed = not self._finish()

    def _finish(self) -> bool:
        """Whether the receiver read all there is: it closes in order when it sees the end.

        One that died closes in order too, if it had read all that was there.
        """
        if self._was_closed():
            return False
        self._client.settimeout(10)
        try:
            self._client.shutdown(socket.SHUT_WR)
            return self._client.recv(1) == b""
        except OSError:
            return False

    def _was_closed(self) -> bool:
        self._client.setblocking(False)
        try:
            return self._client.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _send(self) -> bool:
        lines = b"".join(b"%d:%d\n" % (self.number, self.sent + n) for n in range(20))
        self.sent += 20  # also what may have been cut in two
        try:
            self._client.sendall(lines)
        except OSError:  # also a receiver that reads nothing for a second
            return False
        return True
