"""The receiver's life: full disks, limits, stops, and clients that are in no hurry."""

from __future__ import annotations

import pickle
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from penstock.receivers import Command, HttpReceiver, claim_run, read_status
from penstock.receivers.http import application, connection
from penstock.receivers.http.pace import BodyPace
from penstock.storage import open_storage
from tests.receivers.http_receiver.serving import Served, serving
from tests.storage.faulty_storage import FaultyStorage, Operation
from tests.waiting import WAIT_S, eventually


def raw(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S)


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def test_while_the_disk_is_full_the_port_answers_503_and_goes_on_by_itself(tmp_path: Path) -> None:
    storage = FaultyStorage(open_storage(tmp_path))
    with serving(storage) as served:
        assert served.post(b"before").status_code == 200
        storage.fill_up()
        refused = served.post(b"refused")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert eventually(lambda: served.client.get("/healthz").status_code == 503)
        assert served.client.get("/healthz").json()["state"] == "no journal"
        for _ in range(20):
            assert served.post(b"refused").status_code == 503
        storage.free_up()
        assert eventually(lambda: served.client.get("/healthz").status_code == 200)
        assert served.post(b"after").status_code == 200
        assert served.records() == ["before", "after"]
        status = read_status(served.stream, "r0")
        assert status is not None
        assert status.errors > 0


def test_requests_that_wait_for_a_publish_that_fails_are_answered_503(tmp_path: Path) -> None:
    blocked, go = threading.Event(), threading.Event()
    storage = FaultyStorage(open_storage(tmp_path))

    def block(operation: Operation) -> None:
        if operation.kind == "create" and operation.path.endswith(".parquet"):
            blocked.set()
            assert go.wait(WAIT_S)

    with serving(storage) as served, ThreadPoolExecutor(8) as clients:
        storage.fail("create", path="*.parquet")
        storage.before = block
        waiting = [clients.submit(served.post, b"x") for _ in range(8)]
        assert blocked.wait(WAIT_S)
        assert eventually(lambda: served.client.get("/healthz").json()["unacked_requests"] == 8)
        storage.before = None
        go.set()
        assert [found.result().status_code for found in waiting] == [503] * 8
        assert eventually(lambda: served.post(b"after").status_code == 200)
        assert served.records() == ["after"]


def test_a_stop_answers_what_is_under_way_after_its_publish(tmp_path: Path) -> None:
    blocked, go = threading.Event(), threading.Event()
    storage = FaultyStorage(open_storage(tmp_path))

    def block(operation: Operation) -> None:
        if operation.kind == "create" and operation.path.endswith(".parquet"):
            blocked.set()
            assert go.wait(WAIT_S)

    with ThreadPoolExecutor(4) as clients:
        with serving(storage) as served:
            storage.before = block
            waiting = [clients.submit(served.post, b"%d" % n) for n in range(4)]
            assert blocked.wait(WAIT_S)
            assert eventually(lambda: served.client.get("/healthz").json()["unacked_requests"] == 4)
            served.command(stop=True)
            assert eventually(lambda: is_closed(served.port)), "it still accepts"
            assert not any(found.done() for found in waiting)
            storage.before = None
            go.set()
            assert [found.result().status_code for found in waiting] == [200] * 4
        assert sorted(served.records()) == ["0", "1", "2", "3"]


def is_closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=WAIT_S).close()
    except OSError:
        return True
    return False


def test_a_fenced_receiver_refuses_what_it_could_not_publish(tmp_path: Path) -> None:
    zombie = serving(tmp_path)
    served = zombie.__enter__()
    with serving(tmp_path) as successor:
        with suppress(httpx.TransportError):  # it may have noticed by itself, and be gone
            assert served.post(b"x").status_code == 503
        assert successor.post(b"y").status_code == 200
        assert successor.records() == ["y"]
    with pytest.raises(AssertionError, match="FencedError"):
        zombie.__exit__(None, None, None)


def test_a_rate_limit_is_told_in_whole_seconds(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert served.post(b"at once").status_code == 200
        served.command(rate=0.4)

        def is_limited() -> bool:
            response = served.post(b"x")
            return (response.status_code, response.headers.get("retry-after")) == (429, "3")

        assert eventually(is_limited)
        before = served.records()
        served.command(paused=True)
        assert eventually(lambda: served.post(b"x").headers.get("retry-after") == "1")
        served.command()
        assert eventually(lambda: served.post(b"after").status_code == 200)
        assert served.records() == [*before, "after"]


def test_a_free_port_is_told_and_kept_over_restarts(tmp_path: Path) -> None:
    receiver = HttpReceiver(port=0)
    with serving(tmp_path, receiver) as served:
        receiver.restart("for the test", None, delay_ms=0)
        assert eventually(
            lambda: (
                (status := read_status(served.stream, "r0")) is not None
                and status.errors == 1
                and status.state == "started"
                and status.listening_at == served.url
            )
        )
        with httpx.Client(base_url=served.url, timeout=WAIT_S) as client:
            assert client.get("/healthz").status_code == 200


def test_a_server_that_ends_by_itself_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, on_tick = threading.Event(), uvicorn.Server.on_tick

    async def break_once(server: uvicorn.Server, counter: int) -> bool:
        if counter == 1 and not ended.is_set():
            ended.set()
            raise OSError("the loop broke")
        return await on_tick(server, counter)

    monkeypatch.setattr(uvicorn.Server, "on_tick", break_once)
    with serving(tmp_path) as served:
        assert ended.wait(WAIT_S)
        assert eventually(lambda: is_taken(served))
        status = read_status(served.stream, "r0")
        assert status is not None
        assert "the HTTP server ended: the loop broke" in str(status.last_error)


def test_a_port_that_is_taken_is_said_and_tried_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        receiver = HttpReceiver(port=other.getsockname()[1])
        threading.Timer(1.0, other.close).start()
        with serving(tmp_path, receiver) as served:
            assert served.post(b"x").status_code == 200
            status = read_status(served.stream, "r0")
            assert status is not None
            assert "is in use by another process" in str(status.last_error)


def test_a_receiver_pickles_while_it_runs(tmp_path: Path) -> None:
    receiver = HttpReceiver(port=0)
    with serving(tmp_path, receiver):
        assert "127.0.0.1" in repr(pickle.loads(pickle.dumps(receiver)))


def test_a_head_that_does_not_come_is_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.5)
    with serving(tmp_path) as served, raw(served) as silent, raw(served) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert read_all(silent).startswith(b"HTTP/1.1 408 ")
        assert read_all(slow).startswith(b"HTTP/1.1 408 ")
        assert served.post(b"x").status_code == 200


def test_a_body_that_does_not_come_is_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 0.3)
    with serving(tmp_path) as served, raw(served) as slow:
        slow.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
            b"Content-Length: 10\r\n\r\nhalf"
        )
        assert read_all(slow).startswith(b"HTTP/1.1 408 ")
        assert eventually(lambda: served.client.get("/healthz").json()["unacked_bytes"] == 0)
        assert served.records() == []


def test_bodies_that_stop_coming_are_timed_out_and_leave_the_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four clients that send all but a byte would hold the backlog for the whole time of a body."""
    monkeypatch.setattr(connection, "STALLED_BODY_S", 0.3)
    monkeypatch.setattr(application, "_MAX_BACKLOG_BYTES", 4 * 999)
    with serving(tmp_path) as served, ExitStack() as stack:
        stalled = [stack.enter_context(raw(served)) for _ in range(4)]
        for client in stalled:
            client.sendall(
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
                b"Content-Length: 1000\r\n\r\n" + b"x" * 999
            )
        assert [read_all(client)[:13] for client in stalled] == [b"HTTP/1.1 408 "] * 4
        assert served.post(b"x").status_code == 200
        assert served.records() == ["x"]


@given(size=st.integers(1000, 1 << 24), seconds=st.floats(0, 50), pieces=st.integers(200, 400))
def test_a_body_that_comes_evenly_is_never_late(size: int, seconds: float, pieces: int) -> None:
    pace = BodyPace(60, 10, 1000.0)
    for n in range(1, pieces + 1):
        now_s = 1000.0 + seconds * n / pieces
        assert now_s <= pace.due_s
        pace.add(size * n // pieces - size * (n - 1) // pieces, now_s)


def test_the_more_of_a_body_has_come_the_more_has_to_follow() -> None:
    pace = BodyPace(60, 10, 0)
    assert pace.due_s == 60  # nothing has come, nothing is held
    pace.add(6_000, 1)
    pace.add(999, 10)
    assert pace.due_s == 11
    pace.add(1, 10)
    assert pace.due_s == 20
    pace.add(60_000, 55)
    assert pace.due_s == 60


def test_an_answer_that_takes_long_is_no_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 0.5)
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.5)
    go = threading.Event()
    storage = FaultyStorage(open_storage(tmp_path))

    def block(operation: Operation) -> None:
        if operation.path.endswith(".parquet"):
            go.wait(WAIT_S)

    with serving(storage) as served, ThreadPoolExecutor(1) as client:
        storage.before = block
        waiting = client.submit(served.post, b"x")
        threading.Timer(2.5, go.set).start()  # the sweep comes each second
        assert waiting.result().status_code == 200


def test_a_head_without_end_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as served, raw(served) as endless:
        endless.sendall(b"POST / HTTP/1.1\r\nX-Long: ")
        with pytest.raises(ConnectionError):
            endless.sendall(b"x" * 100_000_000)
        assert served.post(b"x").status_code == 200


def test_trailers_without_end_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as served, raw(served) as endless:
        endless.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
        )
        with pytest.raises(ConnectionError):
            endless.sendall(b"X-Long: " + b"x" * 100_000_000)
        assert served.post(b"x").status_code == 200
        assert served.records() == ["x"]


def test_bytes_that_begin_no_request_do_not_hold_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.5)
    with serving(tmp_path) as served, raw(served) as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 ")
        idle.sendall(b"\r\n")
        assert read_all(idle).startswith(b"HTTP/1.1 408 ")


def test_connections_beyond_the_most_are_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "max_connections", lambda: 3)
    with serving(tmp_path) as served:
        idle = [raw(served) for _ in range(3)]
        with raw(served) as one_more:
            found = read_all(one_more)
        assert found.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in found
        for each in idle:
            each.close()
        assert eventually(lambda: is_taken(served))


def is_taken(served: Served) -> bool:
    try:
        return served.post(b"x").status_code == 200
    except httpx.TransportError:
        return False


def test_a_later_run_ends_it(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        claim_run(served.stream, "r0", "2" * 32, Command())
        assert eventually(lambda: is_closed(served.port))
