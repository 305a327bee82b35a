"""What is sent, of records, and of columns in Arrow's memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import ConfigError, KafkaError
from penstock.kafka import KafkaRange
from penstock.kafka.reader import read_records
from penstock.kafka.sink import Encoder, Outgoing, send_partition
from penstock.kafka.sink.producer import Sender
from penstock.kafka.sink.records import Tally
from tests.kafka.broker import Broker

Row = tuple[bytes | None, bytes | None]
ROWS: list[Row] = [(b"k", b"1"), (None, b""), (b"", None), (b"\0\xff", b"a\0b")]


@pytest.mark.parametrize(
    ("headers", "sent"),
    [
        (None, None),
        ({"id": b"7"}, [("id", b"7")]),
        ([("a", "1"), ["b", None]], [("a", b"1"), ("b", None)]),
    ],
)
def test_headers(headers: Any, sent: Any) -> None:
    (outgoing,) = Encoder("t", headers=lambda record: headers)(["x"])
    assert outgoing.headers == [sent]


@pytest.mark.parametrize("headers", [["id"], [("a",)], 1, [(b"a", b"1")], [("a\0b", b"1")], {1: 2}])
def test_headers_that_cannot_be_sent(headers: Any) -> None:
    with pytest.raises(ConfigError, match=r"the headers of a record is.*str with.*record=str 'x'"):
        list(Encoder("t", headers=lambda record: headers)(["x"]))


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_surrogate_pair_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="the value of a record is a str"):
        list(Encoder("t")([text]))
    with pytest.raises(ConfigError, match="the headers of a record is"):
        list(Encoder("t", headers=lambda record: [(text, b"")])(["x"]))


def test_the_checksum_is_of_the_records_and_not_of_their_columns() -> None:
    keys, values = [list(column) for column in zip(*ROWS, strict=True)]
    tallies = []
    for parts in (
        [Outgoing("t", keys, values)],
        [Outgoing("t", pa.array(keys, pa.binary()), pa.array(values, pa.binary()))],
        [Outgoing("t", [key], [value]) for key, value in reversed(ROWS)],
    ):
        tally = Tally()
        for part in parts:
            tally.add(part)
        tallies.append((tally.count, tally.checksum))
    assert tallies[0][0] == len(ROWS)
    assert len(set(tallies)) == 1


def _checksum(*records: Outgoing) -> int:
    tally = Tally()
    for each in records:
        tally.add(each)
    return tally.checksum


@pytest.mark.parametrize("key", [b"k", b"", None])
def test_the_checksum_tells_topics_apart(key: bytes | None) -> None:
    assert _checksum(Outgoing("t", [key], [b"v"])) != _checksum(Outgoing("u", [key], [b"v"]))


def test_the_checksum_tells_no_key_and_an_empty_one_apart() -> None:
    assert _checksum(Outgoing("t", [None], [b"v"])) != _checksum(Outgoing("t", [b""], [b"v"]))


def test_the_checksum_tells_which_key_has_which_value() -> None:
    """CRCs are linear: where they were added up, one pair of 10,000 was told for its swap."""
    values = [b"%05d" % n for n in range(400)]
    keys = [b"%d" % (n * 7919) for n in range(100_000, 100_400)]
    for one, other in combinations(range(400), 2):
        key, value = [keys[one], keys[other]], [values[one], values[other]]
        assert _checksum(Outgoing("t", key, value)) != _checksum(Outgoing("t", key, value[::-1]))


def _columns() -> Iterator[Any]:
    keys, values = [list(column) for column in zip(*ROWS, strict=True)]
    yield pytest.param(keys, values, id="bytes")
    yield pytest.param(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), id="arrow")
    padded = [
        pa.array([b"before", *column, b"after"], pa.binary())[1:-1] for column in (keys, values)
    ]
    yield pytest.param(*padded, id="arrow-slice")


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "values"), [*_columns()])
def test_columns_are_sent_as_they_are(
    broker: Broker, request: pytest.FixtureRequest, keys: Any, values: Any
) -> None:
    topic = broker.create_topic(f"columns-{request.node.callspec.id}")
    headers = [None, [("h", None), ("\u00fc", b"\0")], None, None]
    sent = [Outgoing(topic, keys, values), Outgoing(topic, None, values)]
    assert send_partition(broker.conf, iter([*sent, Outgoing(topic, keys, values, headers)])) == 12
    found = list(read_records(broker.conf, [KafkaRange(topic, 0, 0, 12)]))
    assert [(r.key, r.value) for r in found] == [*ROWS, *((None, v) for _, v in ROWS), *ROWS]
    assert [r.headers for r in found[8:]] == [(), (("h", None), ("\u00fc", b"\0")), (), ()]


@pytest.mark.slow
def test_more_records_than_the_queue_holds(broker: Broker) -> None:
    topic = broker.create_topic("small-queue")
    conf = {**broker.conf, "queue.buffering.max.messages": 10}
    values = [b"%d" % number for number in range(2500)]
    headers = lambda record: [("h", b"")] if int(record) % 2 else None  # noqa: E731
    assert send_partition(conf, Encoder(topic)(values)) == 2500
    assert send_partition(conf, Encoder(topic, headers=headers)(values)) == 2500
    found = list(read_records(broker.conf, [KafkaRange(topic, 0, 0, 5000)]))
    assert [r.value for r in found] == 2 * values


def test_a_message_that_the_client_refuses_is_told() -> None:
    sender = Sender({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": 1000})
    with pytest.raises(KafkaError, match=r"too large.*topic=t.*value b'333"):
        sender.send(Outgoing("t", None, [b"1", b"3" * 2000, b"4"]))
    sender.close()
