"""Binds a port."""

from __future__ import annotations

import socket

_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 is any free one.

    Raises:
        OSError: the address is in use, or not this machine's.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
