"""SocketReceiver against real loopback servers."""

from __future__ import annotations

import contextlib
import pickle
import random
import socket
import struct
from collections.abc import Iterator

import pytest

from penstock.errors import ConfigError, FencedError, ReceiverError
from penstock.receivers import SocketReceiver
from penstock.testing import RecordingHost


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        yield listening


def receiver_for(server: socket.socket, **options: int) -> SocketReceiver:
    return SocketReceiver("127.0.0.1", server.getsockname()[1], **options)


def accept(server: socket.socket) -> socket.socket:
    connection, _ = server.accept()
    connection.settimeout(10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def test_stores_each_line_once_however_the_bytes_are_cut(server: socket.socket) -> None:
    expected = [f"line {i} é😀 {'x' * (i % 90)}" for i in range(20_000)]
    data = "".join(line + "\n" for line in expected).encode()
    chance = random.Random(7)
    host = RecordingHost()
    with host.run(receiver_for(server)), accept(server) as connection:
        start = 0
        while start < len(data):
            end = start + chance.choice([1, 3, 80, 5_000, 200_000])
            connection.sendall(data[start:end])
            start = end
        assert host.wait_for_records(len(expected)) == expected


def test_a_lonely_line_is_stored_at_once(server: socket.socket) -> None:
    host = RecordingHost()
    with host.run(receiver_for(server)), accept(server) as connection:
        for i in range(3):  # each is waited for before the next one is sent
            connection.sendall(f"{i}\n".encode())
            host.wait_for_records(i + 1)
    assert [stored.records for stored in host.stores] == [["0"], ["1"], ["2"]]
    assert all(stored.position is None for stored in host.stores)


def test_the_end_of_the_stream_completes_the_last_line_and_restarts(server: socket.socket) -> None:
    host = RecordingHost(expect_errors=True)
    with host.run(receiver_for(server)):
        with accept(server) as connection:
            connection.sendall(b"whole\nlast")
        host.wait_until(lambda: bool(host.restarts))
    assert host.records == ["whole", "last"]
    assert "no more data" in host.restarts[0].message


def test_a_reset_keeps_whole_lines_and_drops_the_cut_one(server: socket.socket) -> None:
    host = RecordingHost(expect_errors=True)
    with host.run(receiver_for(server)):
        with accept(server) as connection:
            connection.sendall(b"whole\ncut of")
            host.wait_until(lambda: bool(host.stores))
            reset_on_close = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_on_close)
        host.wait_until(lambda: bool(host.restarts))
    assert host.records == ["whole"]
    assert host.restarts[0].message.startswith("Error receiving data")
    assert isinstance(host.restarts[0].error, ConnectionResetError)


def test_an_absent_server_restarts_and_the_next_start_finds_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    receiver = SocketReceiver("127.0.0.1", port)
    absent = RecordingHost(expect_errors=True)
    with absent.run(receiver):
        absent.wait_until(lambda: bool(absent.restarts))
    assert f"Error connecting to 127.0.0.1:{port}" in absent.restarts[0].message
    assert isinstance(absent.restarts[0].error, ConnectionRefusedError)

    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(10)
        host = RecordingHost()
        with host.run(receiver), accept(server) as connection:
            connection.sendall(b"here\n")
            assert host.wait_for_records(1) == ["here"]


def test_a_server_that_does_not_answer_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        with socket.create_connection(silent.getsockname()):  # fills the backlog of one
            host = RecordingHost(expect_errors=True)
            with host.run(receiver_for(silent, connect_timeout_ms=200)):
                host.wait_until(lambda: bool(host.restarts))
    assert isinstance(host.restarts[0].error, TimeoutError)


def test_stops_promptly_while_it_waits_for_an_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        with socket.create_connection(silent.getsockname()):
            host = RecordingHost()
            with host.run(receiver_for(silent, connect_timeout_ms=3_600_000)):
                pass  # onStop raises when the thread outlives it
    assert host.restarts == []


def test_a_slow_store_makes_the_sender_block(server: socket.socket) -> None:
    line, most = b"x" * 999 + b"\n", 512 * 1024 * 1024
    host = RecordingHost()
    host.block_stores()
    with host.run(receiver_for(server)), accept(server) as connection:
        connection.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < most:
                sent += connection.send(line * 100)
        assert 0 < sent < most
        host.unblock_stores()
        connection.settimeout(10)
        connection.sendall(line[sent % len(line) :] if sent % len(line) else b"")
        host.wait_for_records(-(-sent // len(line)))
    assert len(host.records) == -(-sent // len(line))
    assert set(host.records) == {"x" * 999}


def test_a_line_beyond_the_limit_restarts_with_the_reason(server: socket.socket) -> None:
    host = RecordingHost(expect_errors=True)
    with host.run(receiver_for(server, max_line_bytes=10)), accept(server) as connection:
        connection.sendall(b"fits\n" + b"x" * 11)
        host.wait_until(lambda: bool(host.restarts))
    assert host.records == ["fits"]
    assert isinstance(host.restarts[0].error, ReceiverError)


def test_a_fenced_store_ends_the_thread_without_a_restart(server: socket.socket) -> None:
    host = RecordingHost(expect_errors=True)
    host.fail_stores(FencedError("sealed by a successor"))
    with host.run(receiver_for(server)), accept(server) as connection:
        connection.sendall(b"line\n")
        assert connection.recv(1) == b""  # the thread ended and closed its side
    assert (host.records, host.restarts, host.stops) == ([], [], [])


@pytest.mark.parametrize(
    ("host", "port", "options"),
    [
        ("", 1, {}),
        ("h", 0, {}),
        ("h", 65536, {}),
        ("h", "9999", {}),
        ("h", 1, {"connect_timeout_ms": 0}),
    ],
)
def test_bad_arguments_fail_at_construction(host: str, port: int, options: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        SocketReceiver(host, port, **options)


def test_pickles_as_configured_after_use(server: socket.socket) -> None:
    receiver = receiver_for(server)
    with RecordingHost().run(receiver):
        accept(server).close()
    copy = pickle.loads(pickle.dumps(receiver))
    assert repr(copy) == repr(receiver)
