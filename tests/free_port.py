"""A TCP port of loopback that is free now, for a server that must be told its port.

No connection takes it before its server does, or while the server is down: it is below what systems
give to clients and to those who ask for any port. Nor does another test: each process has a block
of ports of its own, and goes through all of it before one comes again.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

_FIRST, _LAST = 10_000, 32_000
_BLOCK = 500


def free_port() -> int:
    while True:
        with (
            suppress(OSError),  # a server of something else than tests has it
            socket.create_server(("127.0.0.1", next(_own_ports(os.getpid())))) as server,
        ):
            return int(server.getsockname()[1])


@functools.cache
def _own_ports(process_id: int) -> Iterator[int]:
    """Take a block that no other process has; return its ports, again and again."""
    for first in range(_FIRST, _LAST, _BLOCK):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0penstock-tests-ports-{first}")
        except OSError:
            name.close()
        else:
            name.detach()  # it is taken until this process ends
            return itertools.cycle(range(first, first + _BLOCK))
    raise AssertionError("each block of ports is taken by a process that runs tests")
