"""Connections from accept on: how many, how long a handshake may take, and descriptors."""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path

import httpx
import pytest
import trustme
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.errors import ConfigError
from penstock.receivers import HttpReceiver
from penstock.receivers.http import acceptor, connection
from tests.receivers.http_receiver.serving import Served, serving
from tests.waiting import WAIT_S, eventually


@pytest.fixture
def tls(tmp_path: Path) -> HttpReceiver:
    """A receiver that serves TLS."""
    issued = trustme.CA().issue_cert("127.0.0.1")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return HttpReceiver(port=0, tls_certificate=str(certificate), tls_key=str(key))


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S)


def is_closed(client: socket.socket) -> bool:
    """Whether the server ended a connection, once it says anything at all."""
    try:
        return client.recv(100) == b""
    except ConnectionError:
        return True


def test_connections_without_a_handshake_count(
    tmp_path: Path, tls: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "max_connections", lambda: 3)
    with serving(tmp_path, tls) as served:
        silent = [connect(served) for _ in range(3)]
        with connect(served) as one_more:
            assert is_closed(one_more)
        for each in silent:
            each.close()
        assert eventually(lambda: is_taken(served))


def test_a_handshake_has_a_time_limit(
    tmp_path: Path, tls: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_TIMEOUT_S", 0.3)
    with serving(tmp_path, tls) as served, connect(served) as silent:
        assert is_closed(silent)
        assert served.post(b"x").status_code == 200


def test_what_is_no_tls_ends_its_connection_alone(tmp_path: Path, tls: HttpReceiver) -> None:
    with serving(tmp_path, tls) as served:
        with connect(served) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
            plain.shutdown(socket.SHUT_WR)
            while not is_closed(plain):
                pass
        assert served.post(b"x").status_code == 200


def test_a_stop_ends_handshakes(tmp_path: Path, tls: HttpReceiver) -> None:
    with serving(tmp_path, tls) as served:
        silent = connect(served)
        assert served.post(b"x").status_code == 200
    with silent:
        assert is_closed(silent)


def test_near_the_limit_of_descriptors_clients_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_are_left = threading.Event()
    few_are_left.set()
    monkeypatch.setattr(acceptor, "is_near_limit", lambda number: few_are_left.is_set())
    with serving(tmp_path) as served:
        with connect(served) as first, connect(served) as waiting:
            for client in (first, waiting):
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert first.recv(1000).startswith(b"HTTP/1.1 200 ")  # it showed how few are left
            waiting.settimeout(1)
            with pytest.raises(TimeoutError):
                waiting.recv(1000)
            few_are_left.clear()
            waiting.settimeout(WAIT_S)
            assert waiting.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert served.post(b"x").status_code == 200


def test_without_any_descriptor_clients_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = socket.socket.accept
    failures = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))] * 2

    def failing(listener: socket.socket) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    with serving(tmp_path) as served:
        assert served.post(b"x").status_code == 200
    assert failures == []


def test_a_uvicorn_without_what_is_built_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.check_uvicorn()
    hooks = {HttpToolsProtocol: ("pipeline", "_gone", "_too")}
    monkeypatch.setattr(connection, "_HOOKS", hooks)
    with pytest.raises(ConfigError, match=r"no HttpToolsProtocol\._gone, HttpToolsProtocol\._too"):
        connection.check_uvicorn()


def is_taken(served: Served) -> bool:
    try:
        return served.post(b"x").status_code == 200
    except httpx.TransportError:  # closed at once, or while the handshake was under way
        return False
