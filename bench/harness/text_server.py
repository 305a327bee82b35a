"""The sender: a TCP server in a process of its own. Prints its port; ends when its input ends.

Usage: python -m harness.text_server LINES_PER_S PACED_S. A client gets LINES_PER_S for the first
PACED_S seconds, and after that as many as it reads.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import suppress

from harness.lines import LINE_BYTES, log_lines

_LINES = 40_000
_PIECE_LINES = 1_000


def main() -> None:
    """Serve one client after the other."""
    lines_per_s, paced_s = int(sys.argv[1]), float(sys.argv[2])
    threading.Thread(target=_end_with_input, daemon=True).start()
    text = log_lines(_LINES)
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            client, _ = server.accept()
            with client, suppress(ConnectionError):
                _send_paced(client, text, lines_per_s, paced_s)
                while True:
                    client.sendall(text)


def _send_paced(client: socket.socket, text: bytes, lines_per_s: int, paced_s: float) -> None:
    size = _PIECE_LINES * LINE_BYTES
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
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
