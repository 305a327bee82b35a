from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from penstock.errors import ConfigError
from penstock.metrics import Exporter, MetricsServer
from penstock.metrics import server as metrics_server
from tests.free_port import free_port
from tests.waiting import WAIT_S, eventually


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    server = MetricsServer(Exporter(), "127.0.0.1", 0)
    yield server
    server.close()


def test_metrics_are_served_and_nothing_else(server: MetricsServer) -> None:
    assert server.url == f"http://127.0.0.1:{server.port}/metrics"
    found = httpx.get(server.url, timeout=WAIT_S)
    assert found.status_code == 200
    assert found.headers["content-type"].startswith("text/plain")
    assert "penstock_build_info{version=" in found.text
    assert httpx.get(server.url.replace("/metrics", "/"), timeout=WAIT_S).status_code == 404
    assert httpx.post(server.url, timeout=WAIT_S).status_code == 501


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:9", 200), ("evil.example", 421), ("", 421)],
)
def test_a_strangers_name_that_points_here_is_refused(
    server: MetricsServer, host: str, status: int
) -> None:
    assert httpx.get(server.url, headers={"Host": host}, timeout=WAIT_S).status_code == status


def test_a_token_is_asked_for_where_there_is_one(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    server = MetricsServer(Exporter(), "127.0.0.1", 0, str(token))
    try:
        assert httpx.get(server.url, timeout=WAIT_S).status_code == 401
        wrong = {"Authorization": "Bearer other"}
        assert httpx.get(server.url, headers=wrong, timeout=WAIT_S).status_code == 401
        right = {"Authorization": "Bearer s3cret"}
        assert httpx.get(server.url, headers=right, timeout=WAIT_S).status_code == 200
    finally:
        server.close()


def test_an_address_that_others_reach_needs_a_token() -> None:
    with pytest.raises(ConfigError, match="there is no token"):
        MetricsServer(Exporter(), "0.0.0.0", 0)


def test_a_port_that_is_taken_is_said(server: MetricsServer) -> None:
    with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}"):
        MetricsServer(Exporter(), "127.0.0.1", server.port)


def test_connections_that_are_left_open_hold_few_threads(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "_MOST", 3)
    before = threading.active_count()
    with ExitStack() as held:
        for _ in range(20):
            held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S))
        assert httpx.get(server.url, timeout=WAIT_S).status_code == 200
        assert eventually(lambda: threading.active_count() <= before + 3)


def test_a_closed_server_frees_its_port_and_ends_its_thread(server: MetricsServer) -> None:
    one = MetricsServer(Exporter(), "127.0.0.1", free_port())
    one.close()
    with socket.create_server(("127.0.0.1", one.port)):
        pass
