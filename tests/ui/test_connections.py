"""Connections that stand still, or are too many, are closed: they are a driver's descriptors."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from penstock.ui import Dashboard, DashboardSettings, connections, start_dashboard
from tests.waiting import WAIT_S, eventually


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Dashboard]:
    served = start_dashboard([str(tmp_path)], DashboardSettings(port=0))
    yield served
    served.close()


def begun(port: int, head: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    client.sendall(head)
    return client


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: 127",
        b"POST /signin HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nto",
    ],
)
def test_a_client_that_stands_still_is_left(
    served: Dashboard, head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_STILL_S", 0.1)
    with begun(served.port, head) as client:
        assert is_closed(client)


def test_connections_are_bounded(served: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_MOST", 3)
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(begun(served.port, b"GET"))
        with begun(served.port, b"GET") as refused:
            assert is_closed(refused)
    assert eventually(lambda: is_answered(served.url))


def is_closed(client: socket.socket) -> bool:
    """Whether the server closes a connection, without a word."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def is_answered(url: str) -> bool:
    try:
        return httpx.get(url, timeout=WAIT_S).status_code == 200
    except httpx.TransportError:
        return False
