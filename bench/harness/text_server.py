"""The sender: a TCP server in a process of its own. Prints its port; ends when its input ends.

Usage: python -m harness.text_server log|words LINES_PER_S PACED_S BURST. A client gets LINES_PER_S
for the first PACED_S seconds; then the server prints the time (monotonic seconds) and the client
gets BURST lines as quickly as it reads, or lines without end where BURST is 0.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
import time
from contextlib import suppress

from harness.lines import log_lines, word_lines

_LINES = 40_000
_PIECE_LINES = 1_000
_TEXTS = {"log": log_lines, "words": word_lines}


def main() -> None:
    """Serve one client after the other."""
    kind, lines_per_s, paced_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    burst = int(sys.argv[4])
    threading.Thread(target=_end_with_input, daemon=True).start()
    text = _TEXTS[kind](_LINES)
    pieces = _pieces(text)
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            client, _ = server.accept()
            with client, suppress(ConnectionError):
                _send_paced(client, pieces, lines_per_s, paced_s)
                print(time.monotonic(), flush=True)
                for _ in itertools.repeat(None, burst // _LINES) if burst else itertools.count():
                    client.sendall(text)
                client.recv(1)  # hold the connection until the client is gone


def _pieces(text: bytes) -> list[bytes]:
    lines = text.splitlines(keepends=True)
    return [b"".join(lines[at : at + _PIECE_LINES]) for at in range(0, _LINES, _PIECE_LINES)]


def _send_paced(
    client: socket.socket, pieces: list[bytes], lines_per_s: int, paced_s: float
) -> None:
    start_s = time.monotonic()
    for number in range(int(paced_s * lines_per_s / _PIECE_LINES)):
        client.sendall(pieces[number % len(pieces)])
        due_s = start_s + (number + 1) * _PIECE_LINES / lines_per_s
        time.sleep(max(0.0, due_s - time.monotonic()))


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
