"""Stands for a process that the server of ``tests.interpreter`` forks: ADDRESS -m MODULE ...

It imports as little as it can.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress


def end(*_: object) -> None:
    """Pass a SIGTERM on, to a fork that may have ended by itself meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


address, *command = sys.argv[1:]
if command[0] != "-m":
    os.execv(sys.executable, [sys.executable, *command])
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(address)
    request = {"command": command[1:], "environment": dict(os.environ), "folder": os.getcwd()}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    pid = int(server.recv(16))
    signal.signal(signal.SIGTERM, end)
    status = int(server.recv(16) or 1)
sys.exit(status if status >= 0 else 128 - status)
