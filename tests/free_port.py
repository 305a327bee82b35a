"""A TCP port of loopback that is free now, for a server that must be told its port."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

_PORTS = range(10_000, 32_000)
"""Below what systems give to those who ask for any port, and to clients.

So no connection of another test takes the port before its server does, or while the server is down.
"""


def free_port() -> int:
    while True:
        with (
            suppress(OSError),
            socket.create_server(("127.0.0.1", random.choice(_PORTS))) as server,
        ):
            return int(server.getsockname()[1])
