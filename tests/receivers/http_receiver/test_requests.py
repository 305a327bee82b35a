"""Requests over real sockets: answers, refusals, and what is in the journal after each."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from penstock.errors import ConfigError
from penstock.receivers import HttpReceiver
from penstock.receivers.http import application
from tests.receivers.http_receiver.serving import JSON, NDJSON, TEXT, Served, serving
from tests.waiting import WAIT_S, eventually

BINARY = {"content-type": "application/octet-stream"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    receiver = HttpReceiver(port=0, max_body_bytes=100_000, max_expanded_bytes=300_000)
    with serving(tmp_path_factory.mktemp("journal"), receiver) as running:
        yield running


def stored(served: Served, response: httpx.Response) -> list[object]:
    """Return the records of a request, read where its answer says they are."""
    assert response.status_code == 200, response.text
    at = response.json()
    assert at["writer"] == "r0-00000000"
    return served.records()[at["start"] : at["end"]]


def test_an_answer_tells_where_the_records_are(served: Served) -> None:
    assert stored(served, served.post(b"alone")) == ["alone"]
    assert stored(served, served.post("é\r\nb\nc".encode())) == ["é", "b", "c"]
    assert stored(served, served.post(b'{"a": 1.0}\n\n[2]\n', NDJSON)) == ['{"a": 1.0}', "[2]"]
    assert stored(served, served.post(b'[{"a":\n1}, "b"]', JSON)) == ['{"a":\n1}', '"b"']


def test_large_bodies_are_stored_whole_and_small_ones_go_past_them(served: Served) -> None:
    lines = [f"{n} " + "x" * 90 for n in range(1000)]
    threads = [threading.Thread(target=served.post, args=(b"small",)) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert stored(served, served.post("\n".join(lines).encode())) == lines
    for thread in threads:
        thread.join()


def test_columns_may_be_given_as_text() -> None:
    columns = pa.schema([("id", pa.int64()), ("name", pa.string())])
    assert HttpReceiver(schema="id int64, name string").schema == columns
    with pytest.raises(ConfigError, match="'id integer' is not a record schema"):
        HttpReceiver(schema="id integer")
    with pytest.raises(ConfigError, match="cannot be records of schema 'pickle'"):
        HttpReceiver(schema="pickle")


def test_columns_and_binary_bodies_reach_the_journal(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    with serving(tmp_path / "columns", HttpReceiver(port=0, schema=columns)) as served:
        rows = [{"id": n, "name": f"n{n}"} for n in range(2000)]
        assert served.post(b'[{"id": 5}]', JSON).status_code == 200
        assert served.post("\n".join(map(json.dumps, rows)).encode(), NDJSON).status_code == 200
        assert served.post(b"text").status_code == 415
        assert served.records() == [{"id": 5, "name": None}, *rows]
    with serving(tmp_path / "binary", HttpReceiver(port=0, schema="binary")) as served:
        assert served.post(b"\x00\xff", BINARY).status_code == 200
        assert served.post(b"text").status_code == 415
        assert served.records() == [b"\x00\xff"]


def test_notifications_that_come_as_text_are_records(tmp_path: Path) -> None:
    notification = b'{\n  "Type": "Notification",\n  "Timestamp": "2026-11-25T01:02:03.456Z"\n}'
    with serving(tmp_path / "string", HttpReceiver(port=0)) as served:
        assert served.post(notification, TEXT).status_code == 200
        assert served.records() == [notification.decode()]
    receiver = HttpReceiver(
        port=0,
        schema="Type string, Timestamp timestamp[ms, UTC]",
        content_types={"text/plain": "json", "Application/JSON": "ndjson"},
    )
    with serving(tmp_path / "columns", receiver) as served:
        assert served.post(notification, TEXT).status_code == 200
        assert served.post(b'{"Type": "a"}\n{"Type": "b"}\n', JSON).status_code == 200
        assert [row["Type"] for row in served.records()] == ["Notification", "a", "b"]
        other = served.post(b"a", {"content-type": "text/csv"})
        assert "content_types can say what it is" in other.json()["error"]


def test_a_retry_with_its_key_may_have_been_cut_to_the_unit(tmp_path: Path) -> None:
    receiver = HttpReceiver(port=0, schema="at timestamp[us, UTC]")
    body, keyed = b'{"at": "2026-11-25T01:02:03.1234567Z"}', {**JSON, "idempotency-key": "1"}
    with serving(tmp_path, receiver) as served:
        answers = [served.post(body, keyed) for _ in range(2)]
        assert answers[0].json() == answers[1].json()
        assert [row["at"].microsecond for row in served.records()] == [123456]


def refused(
    served: Served, status: int, content: object, headers: dict[str, str] = TEXT, **more: str
) -> httpx.Response:
    """Post what is refused; nothing of it may be stored."""
    before = served.records()
    response = served.post(content, headers, **more)
    assert (response.status_code, served.records()) == (status, before), response.text
    assert response.json()["error"]
    return response


def test_nothing_of_a_bad_body_is_stored_and_its_place_is_told(served: Served) -> None:
    assert refused(served, 400, b'{"a": 1}\n{"a": 2', NDJSON).json()["line"] == 2
    assert refused(served, 400, b"[1, 2, x]", JSON).json()["index"] == 2
    assert refused(served, 400, b'{"a": "\xff"}', NDJSON).json()["line"] == 1
    refused(served, 400, b"")
    refused(served, 400, b"[]", JSON)


def test_a_date_that_python_does_not_have_is_refused_with_its_line(tmp_path: Path) -> None:
    columns = pa.schema([("d", pa.date32())])
    with serving(tmp_path, HttpReceiver(port=0, schema=columns)) as served:
        found = refused(served, 400, b'{"d": 1}\n\n{"d": 2932897}\n', NDJSON).json()
        assert (found["line"], "'d' holds 10000-01-01" in found["error"]) == (3, True)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/xml"},
        {"content-type": "application/octet-stream"},
        {"content-type": "text/plain; charset=latin-1"},
        {**TEXT, "content-encoding": "br"},
    ],
)
def test_other_types_and_encodings_are_refused(served: Served, headers: dict[str, str]) -> None:
    refused(served, 415, b"text", headers)


def test_types_are_taken_with_parameters_and_in_any_case(served: Served) -> None:
    headers = {"content-type": 'Text/Plain; charset="UTF-8"', "content-encoding": "identity"}
    assert served.post(b"text", headers).status_code == 200


def test_other_paths_and_methods_are_refused(served: Served) -> None:
    assert served.client.post("/other", content=b"x", headers=TEXT).status_code == 404
    response = served.client.get("/")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert served.client.post("/healthz", content=b"x").status_code == 405


def test_every_answer_is_of_penstock(served: Served) -> None:
    for response in (served.post(b"x"), served.client.get("/"), served.client.get("/healthz")):
        assert response.headers["server"] == "penstock"
        assert response.headers["content-type"] == "application/json"


def test_health_needs_no_body_and_tells_the_state(served: Served) -> None:
    assert served.client.get("/healthz").json()["state"] == "ok"
    assert served.client.head("/healthz").status_code == 200


def test_gzip_is_expanded_also_of_several_members(served: Served) -> None:
    body = gzip.compress(b"a\nb\n") + gzip.compress(b"c\n")
    assert stored(served, served.post(body, **{"content-encoding": "gzip"})) == ["a", "b", "c"]


def test_gzip_stops_at_the_cap(served: Served) -> None:
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join([*(bomb.compress(bytes(1 << 20)) for _ in range(80)), bomb.flush()])
    assert len(body) < 100_000
    refused(served, 413, body, **{"content-encoding": "gzip"})


@pytest.mark.storm  # it measures
def test_gzip_of_many_short_members_takes_no_longer_than_of_one(served: Served) -> None:
    body = gzip.compress(b"") * 4_500 + gzip.compress(b"a\n" * 40_000)
    assert len(body) > 90_000
    began_s = time.monotonic()
    for _ in range(20):
        assert served.post(body, **{"content-encoding": "gzip"}).status_code == 200
    assert time.monotonic() - began_s < 5, "time must not grow with the square of the members"


@pytest.mark.parametrize("cut", [5, -5, -1])
def test_gzip_that_is_cut_off_is_refused(served: Served, cut: int) -> None:
    refused(served, 400, gzip.compress(b"text" * 99)[:cut], **{"content-encoding": "gzip"})
    refused(served, 400, b"no gzip", **{"content-encoding": "gzip"})


def test_a_body_beyond_the_limit_is_refused_however_it_comes(served: Served) -> None:
    refused(served, 413, b"x" * 100_001)
    refused(served, 413, (b"x" * 10_000 for _ in range(11)))  # chunked: its length is not told
    refused(served, 413, b"x" * 5_000_000)  # the answer comes while it is being sent


def test_chunked_bodies_are_whole(served: Served) -> None:
    assert stored(served, served.post(iter([b"one\nt", b"wo", b"\n"]))) == ["one", "two"]


def request(body: bytes, *headers: str) -> bytes:
    lines = ["POST / HTTP/1.1", "Host: x", "Content-Type: text/plain", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def raw(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_S)


def answers(connection: socket.socket, count: int) -> list[bytes]:
    """Read until so many answers came, or the end."""
    data = b""
    while data.count(b"HTTP/1.1 ") < count or not data.endswith(b"}"):
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    return data.split(b"HTTP/1.1 ")[1:]


def test_pipelined_requests_are_answered_in_their_order(served: Served) -> None:
    with raw(served) as connection:
        connection.sendall(b"".join(request(b"p%d" % n) for n in range(30)))
        found = answers(connection, 30)
    starts = [json.loads(answer.partition(b"\r\n\r\n")[2])["start"] for answer in found]
    assert len(starts) == 30
    assert starts == sorted(starts)
    everything = served.records()
    assert [everything[start] for start in starts] == [f"p{n}" for n in range(30)]


def test_a_client_that_asks_first_is_told_to_send_only_what_is_taken(served: Served) -> None:
    with raw(served) as connection:
        head = request(b"hello", "Expect: 100-continue")[:-5]
        connection.sendall(head)
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"hello")
        assert answers(connection, 1)[0].startswith(b"200 ")
    with raw(served) as connection:
        connection.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
            b"Expect: 100-continue\r\nContent-Length: 100001\r\n\r\n"
        )
        assert answers(connection, 1)[0].startswith(b"413 ")
        assert connection.recv(1000) == b""


def test_a_client_that_leaves_before_its_answer_is_stored_all_the_same(served: Served) -> None:
    with raw(served) as connection:
        connection.sendall(request(b"left early"))
    assert eventually(lambda: "left early" in served.records())


def test_a_client_that_leaves_in_its_body_is_not_stored(served: Served) -> None:
    before = served.records()
    with raw(served) as connection:
        connection.sendall(request(b"whole line\nhalf a l")[:-8])
    assert served.post(b"after").status_code == 200
    assert served.records() == [*before, "after"]
    assert served.client.get("/healthz").json()["unacked_bytes"] == 0


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\na",
        b"POST / HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 1\r\n\r\na",
    ],
)
def test_what_is_no_http_is_answered_with_400_and_closed(served: Served, sent: bytes) -> None:
    before = served.records()
    with raw(served) as connection:
        connection.sendall(sent)
        assert answers(connection, 2)[0].startswith((b"400 ", b"415 "))
    assert served.records() == before


@pytest.mark.parametrize(
    "after",
    [
        b"GARBAGE\r\n\r\n",
        b" and a body that is longer than its Content-Length\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
    ],
)
def test_what_follows_a_whole_request_does_not_change_its_answer(
    served: Served, after: bytes
) -> None:
    before = served.records()
    with raw(served) as connection:
        connection.sendall(request(b"first") + request(b"second") + after)
        found = answers(connection, 3)
        assert connection.recv(1000) == b""
    assert [answer[:4] for answer in found] == [b"200 ", b"200 "]
    assert served.records() == [*before, "first", "second"]


def test_refusals_that_need_no_request_are_json_too(served: Served) -> None:
    with raw(served) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        head, _, body = answers(connection, 1)[0].partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert "cannot be parsed" in json.loads(body)["error"]


@pytest.mark.parametrize(
    "trailer", [b"Content-Encoding: br", b"Idempotency-Key: \xff", b"Origin: https://a.example"]
)
def test_trailers_are_no_headers(served: Served, trailer: bytes) -> None:
    chunked = (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n" + trailer + b"\r\n\r\n"
    )
    with raw(served) as connection:
        connection.sendall(chunked)
        assert answers(connection, 1)[0].startswith(b"200 ")


@pytest.mark.parametrize(
    ("coding", "status"),
    [
        (b"gzip, chunked", b"501 "),
        (b"deflate,chunked", b"501 "),
        (b"gzip\r\nTransfer-Encoding: chunked", b"400 "),
        (b"Chunked", b"200 "),
    ],
)
def test_chunks_of_what_is_encoded_are_refused(
    served: Served, coding: bytes, status: bytes
) -> None:
    before = served.records()
    body = gzip.compress(b"hello") if status != b"200 " else b"hello"
    sent = (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nTransfer-Encoding: "
        + coding
        + b"\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    )
    with raw(served) as connection:
        connection.sendall(sent)
        assert answers(connection, 1)[0].startswith(status)
    assert served.records() == before + ["hello"] * (status == b"200 ")


@pytest.mark.parametrize(("protocol", "pieces"), [("h2c", 1), ("h2c", 7), ("websocket", 2)])
def test_an_offer_to_upgrade_is_declined_and_the_request_served(
    served: Served, protocol: str, pieces: int
) -> None:
    # As Java's HttpClient, which offers HTTP/2 with its first request.
    offer = request(
        b"upgrade?",
        "Connection: Upgrade, HTTP2-Settings",
        f"Upgrade: {protocol}",
        "HTTP2-Settings: A",
    )
    with raw(served) as connection:
        size = len(offer) // pieces + 1
        for start in range(0, len(offer), size):
            connection.sendall(offer[start : start + size])
            time.sleep(0.01)
        (first,) = answers(connection, 1)
        connection.sendall(request(b"next"))
        (second,) = answers(connection, 1)
    assert first.startswith(b"200 ")
    assert second.startswith(b"200 ")
    assert served.records()[-2:] == ["upgrade?", "next"]


@pytest.mark.parametrize(
    "header", ["Idempotency-Key: a", "Content-Type: text/plain", "Content-Encoding: identity"]
)
def test_a_header_that_says_two_things_is_refused(served: Served, header: str) -> None:
    before = served.records()
    with raw(served) as connection:
        connection.sendall(request(b"x", header, header))
        assert answers(connection, 1)[0].startswith(b"400 ")
    assert served.records() == before


def test_a_byte_order_mark_in_front_is_left_out_and_a_later_one_is_named(served: Served) -> None:
    mark = b"\xef\xbb\xbf"
    assert stored(served, served.post(mark + b'{"a":1}\n{}\n', NDJSON)) == ['{"a":1}', "{}"]
    assert stored(served, served.post(mark + b"[1]", JSON)) == ["1"]
    later = b'{"a":1}\n' + mark + b"{}\n"
    assert "byte order mark" in refused(served, 400, later, NDJSON).text


def test_many_offers_to_upgrade_may_be_pipelined(served: Served) -> None:
    with raw(served) as connection:
        offer = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        connection.sendall(offer * 1500)
        assert len(answers(connection, 1500)) == 1500


@pytest.mark.parametrize(("target", "status"), [(b"a.example:443", b"400 "), (b"/", b"405 ")])
def test_a_tunnel_is_refused_and_the_connection_closed(
    served: Served, target: bytes, status: bytes
) -> None:
    with raw(served) as connection:
        connection.sendall(b"CONNECT " + target + b" HTTP/1.1\r\nHost: x\r\n\r\nwhat follows")
        assert answers(connection, 1)[0].startswith(status)
        assert connection.recv(1000) == b""


def test_pages_in_a_browser_cannot_post_without_a_token(served: Served) -> None:
    refused(served, 403, b"x", origin="https://elsewhere.example")


def test_more_than_the_backlog_holds_is_told_to_come_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_MAX_BACKLOG_BYTES", 1000)
    with raw(served) as connection:
        connection.sendall(request(b"x" * 999)[:-1])  # is being received
        assert eventually(lambda: served.client.get("/healthz").json()["unacked_bytes"] == 998)
        response = refused(served, 429, b"too much")
        assert response.headers["retry-after"] == "1"
        connection.sendall(b"x")
        assert answers(connection, 1)[0].startswith(b"200 ")
    assert served.post(b"x" * 5000).status_code == 200, "one request may exceed it on its own"


def announced(served: Served, size: int) -> socket.socket:
    """Return a connection whose request is being read, and of whose body nothing has come."""
    connection = raw(served)
    head = request(b"x" * size, "Expect: 100-continue")[:-size]
    connection.sendall(head)
    assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
    return connection


def test_bodies_take_of_the_backlog_what_has_arrived(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_MAX_BACKLOG_BYTES", 1000)
    with ExitStack() as stack:
        first, second, *_ = [stack.enter_context(announced(served, 900)) for _ in range(4)]
        assert served.client.get("/healthz").json()["unacked_bytes"] == 0
        assert served.post(b"others are stored").status_code == 200
        first.sendall(b"x" * 600)
        assert eventually(lambda: served.client.get("/healthz").json()["unacked_bytes"] == 600)
        second.sendall(b"x" * 401)
        assert answers(second, 1)[0].startswith(b"429 ")
        first.sendall(b"x" * 300)
        assert answers(first, 1)[0].startswith(b"200 ")
