"""SocketReceiver and FramedSocketReceiver against real loopback servers."""

from __future__ import annotations

import contextlib
import pickle
import random
import socket
import struct
from collections.abc import Iterator

import pytest

from penstock.errors import ConfigError, FencedError, ReceiverError
from penstock.receivers import FramedSocketReceiver, SocketReceiver
from penstock.testing import RecordingHost
from penstock.testing.recording_host import Report
from tests.free_port import free_port
from tests.waiting import WAIT_S


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT_S)
        yield listening


def receiver_for(server: socket.socket, **options: int) -> SocketReceiver:
    return SocketReceiver("127.0.0.1", server.getsockname()[1], **options)


def accept(server: socket.socket) -> socket.socket:
    connection, _ = server.accept()
    connection.settimeout(WAIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def delay_of(report: Report) -> int:
    """Return the delay in ms before the next connection, which the report tells."""
    return int(report.message.split()[-2])


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


def test_the_end_of_the_stream_completes_the_last_line_and_reconnects(
    server: socket.socket,
) -> None:
    host = RecordingHost(expect_errors=True)
    with host.run(receiver_for(server)):
        with accept(server) as connection:
            connection.sendall(b"whole\nlast")
        with accept(server) as connection:
            connection.sendall(b"next\n")
            assert host.wait_for_records(3) == ["whole", "last", "next"]
    assert "no more data" in host.errors[0].message
    assert host.restarts == []


def test_a_server_that_closes_after_each_burst_finds_us_back_at_once(server: socket.socket) -> None:
    host = RecordingHost(expect_errors=True)
    with host.run(receiver_for(server)):
        for number in range(6):
            with accept(server) as connection:
                connection.sendall(f"{number}\n".encode())
        host.wait_until(lambda: len(host.errors) == 6)
    assert host.records == list("012345")
    assert all(delay_of(report) <= 100 for report in host.errors)


def test_a_server_that_closes_at_once_is_tried_less_and_less(server: socket.socket) -> None:
    host = RecordingHost(expect_errors=True)
    with host.run(receiver_for(server)):
        for _ in range(4):
            accept(server).close()
        host.wait_until(lambda: len(host.errors) == 4)
    delays = [delay_of(report) for report in host.errors]
    assert 50 <= delays[0] <= 100 < delays[2] < delays[3] <= 800


def test_a_reset_keeps_whole_lines_and_drops_the_cut_one(server: socket.socket) -> None:
    host = RecordingHost(expect_errors=True)
    with host.run(receiver_for(server)):
        with accept(server) as connection:
            connection.sendall(b"whole\ncut of")
            host.wait_until(lambda: bool(host.stores))
            reset_on_close = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_on_close)
        host.wait_until(lambda: bool(host.errors))
    assert host.records == ["whole"]
    assert host.errors[0].message.startswith("Error receiving data")
    assert isinstance(host.errors[0].error, ConnectionResetError)


def test_an_absent_server_is_found_when_it_comes() -> None:
    port = free_port()
    host = RecordingHost(expect_errors=True)
    with host.run(SocketReceiver("127.0.0.1", port)):
        host.wait_until(lambda: len(host.errors) >= 2)
        with socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(WAIT_S)
            with accept(server) as connection:
                connection.sendall(b"here\n")
                assert host.wait_for_records(1) == ["here"]
    assert f"Error connecting to 127.0.0.1:{port}" in host.errors[0].message
    assert isinstance(host.errors[0].error, ConnectionRefusedError)
    assert host.restarts == []


def test_a_server_that_does_not_answer_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        with socket.create_connection(silent.getsockname()):  # fills the backlog of one
            host = RecordingHost(expect_errors=True)
            with host.run(receiver_for(silent, connect_timeout_ms=200)):
                host.wait_until(lambda: bool(host.errors))
    assert isinstance(host.errors[0].error, TimeoutError)


def test_stops_promptly_while_it_waits_for_an_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        with socket.create_connection(silent.getsockname()):
            host = RecordingHost()
            with host.run(receiver_for(silent, connect_timeout_ms=3_600_000)):
                pass  # onStop raises when the thread outlives it
    assert host.errors == []


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
        connection.settimeout(WAIT_S)
        connection.sendall(line[sent % len(line) :] if sent % len(line) else b"")
        host.wait_for_records(-(-sent // len(line)))
    assert len(host.records) == -(-sent // len(line))
    assert set(host.records) == {"x" * 999}


def test_a_line_beyond_the_limit_ends_the_connection_with_the_reason(server: socket.socket) -> None:
    host = RecordingHost(expect_errors=True)
    with host.run(receiver_for(server, max_line_bytes=10)), accept(server) as connection:
        connection.sendall(b"fits\n" + b"x" * 11)
        host.wait_until(lambda: bool(host.errors))
    assert host.records == ["fits"]
    assert isinstance(host.errors[0].error, ReceiverError)


def test_a_fenced_store_ends_the_thread_without_a_restart(server: socket.socket) -> None:
    host = RecordingHost(expect_errors=True)
    host.fail_stores(FencedError("sealed by a successor"))
    with host.run(receiver_for(server)), accept(server) as connection:
        connection.sendall(b"line\n")
        assert connection.recv(1) == b""  # the thread ended and closed its side
    assert (host.records, host.errors, host.restarts, host.stops) == ([], [], [], [])


def test_framed_records_are_stored_however_the_bytes_are_cut(server: socket.socket) -> None:
    expected = [bytes([i % 256]) * (i % 300) for i in range(20_000)]
    data = b"".join(struct.pack("<H", len(record)) + record for record in expected)
    chance = random.Random(7)
    host = RecordingHost()
    port = server.getsockname()[1]
    framed = FramedSocketReceiver("127.0.0.1", port, length_bytes=2, byteorder="little")
    with host.run(framed), accept(server) as connection:
        start = 0
        while start < len(data):
            end = start + chance.choice([1, 3, 80, 5_000, 200_000])
            connection.sendall(data[start:end])
            start = end
        assert host.wait_for_records(len(expected)) == expected


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"\0\0\0\x02ok\0\0\0\x05torn", "within a record, after 8 of 9 bytes"),
        (b"\0\0\0\x02ok\0\0", "within a record, after 2 of 4 bytes"),
        (b"\0\0\0\x02ok\x7f\xff\xff\xff?", "longer than 100"),
    ],
)
def test_torn_and_oversize_records_are_named_and_the_next_connection_goes_on(
    server: socket.socket, sent: bytes, problem: str
) -> None:
    host = RecordingHost(expect_errors=True)
    port = server.getsockname()[1]
    with host.run(FramedSocketReceiver("127.0.0.1", port, max_record_bytes=100)):
        with accept(server) as connection:
            connection.sendall(sent)
        with accept(server) as connection:
            connection.sendall(b"\0\0\0\x04next")
            assert host.wait_for_records(2) == [b"ok", b"next"]
    assert problem in str(host.errors[0].error)
    assert isinstance(host.errors[0].error, ReceiverError)
    assert host.restarts == []


@pytest.mark.parametrize(
    ("host", "port", "options"),
    [
        ("", 1, {}),
        ("h", 0, {}),
        ("h", 65536, {}),
        ("h", "9999", {}),
        ("h", 1, {"connect_timeout_ms": 0}),
        ("h", 1, {"max_line_bytes": 0}),
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
