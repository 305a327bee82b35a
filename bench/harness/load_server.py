"""A source under a scripted load: a TCP server that sends numbered lines when they arrive at it.

Usage: python -m harness.load_server BACKLOG FROM_S:LINES_PER_S ...

Lines arrive at the server at the given rates, from the moment its client connects; BACKLOG lines
are there already. It sends what has arrived as fast as it is read, and keeps what is not: TCP's
back pressure delays, and loses nothing. It prints its port, then the time of the connection
(milliseconds since the epoch), and ends when its input ends.
"""

from __future__ import annotations

import bisect
import os
import socket
import sys
import threading
import time
from contextlib import suppress

_DIGITS = 11
_PIECE_LINES = 2_000
_LOOK_S = 0.02


def main() -> None:
    """Serve one client."""
    backlog = int(sys.argv[1])
    steps = [(float(at), float(rate)) for at, rate in (arg.split(":") for arg in sys.argv[2:])]
    threading.Thread(target=_end_with_input, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        client, _ = server.accept()
        print(time.time_ns() // 1_000_000, flush=True)
        with client, suppress(ConnectionError):
            # Small, so that what was sent and what was read differ by little.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
            _send(client, backlog, steps)


def _send(client: socket.socket, backlog: int, steps: list[tuple[float, float]]) -> None:
    begin_s, sent = time.monotonic(), 0
    while True:
        to_send = backlog + int(arrived(steps, time.monotonic() - begin_s))
        while sent < to_send:
            end = min(sent + _PIECE_LINES, to_send)
            client.sendall(b"".join(b"%0*d\n" % (_DIGITS, number) for number in range(sent, end)))
            sent = end
        time.sleep(_LOOK_S)


def arrived(steps: list[tuple[float, float]], now_s: float) -> float:
    """Return how many lines have arrived by a time since the connection."""
    passed = bisect.bisect_right([at_s for at_s, _ in steps], now_s)
    ends_s = [at_s for at_s, _ in steps[1:passed]] + [now_s]
    spans = zip(steps[:passed], ends_s, strict=True)
    return sum(rate * (end_s - at_s) for (at_s, rate), end_s in spans)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
