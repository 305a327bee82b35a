"""Ranges of a real broker's topics, read to their ends."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from penstock.errors import KafkaDataLossError, KafkaError
from penstock.kafka import COLUMNS, KafkaRange, KafkaRecord, brokers, idle, reader, topics
from penstock.kafka.brokers import group_offsets
from penstock.kafka.idle import IdleClients
from penstock.kafka.losses import LossLog
from penstock.kafka.pass_over import PassOver
from penstock.kafka.reader import read_batches, read_records
from penstock.kafka.records import YEARS_MS
from penstock.kafka.sink import Encoder, partition, send_partition, transactions
from penstock.kafka.sink.producer import Sender
from penstock.kafka.sink.tokens import Done
from penstock.kafka.sink.transactions import lend_sender
from penstock.kafka.topics import TopicFacts, Topics
from penstock.model import OffsetRange
from penstock.storage import open_storage
from tests.kafka.broker import Broker
from tests.kafka.clients import living_clients
from tests.waiting import eventually

pytestmark = pytest.mark.slow
_number = count()
TIME_MS = 1_700_000_000_123
TIME = datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=TIME_MS)


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"read-{next(_number)}")


def values(broker: Broker, wanted: KafkaRange, **settings: str) -> list[bytes | None]:
    records = read_records({**broker.conf, **settings}, [wanted])
    return [record.value for record in records]


def whole(broker: Broker, topic: str, **settings: str) -> KafkaRange:
    facts = Topics({**broker.conf, **settings}, [topic]).scan()
    return KafkaRange(topic, 0, 0, facts.ends[f"{topic}/0"])


def test_a_record_has_all_that_kafka_has_of_it(broker: Broker, topic: str) -> None:
    headers = [("h", b"1"), ("h", None)]
    broker.produce(topic, [b"v"], key=b"k", headers=headers, timestamp=TIME_MS)
    (record,) = read_records(broker.conf, [KafkaRange(topic, 0, 0, 1)])
    assert record == KafkaRecord(b"k", b"v", topic, 0, 0, TIME_MS, tuple(headers))
    (batch,) = read_batches(broker.conf, [KafkaRange(topic, 0, 0, 1)], COLUMNS)
    assert batch.schema == pa.schema(COLUMNS.items())
    (row,) = batch.to_pylist()
    assert row["timestamp"] == TIME
    assert row["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    (batch,) = read_batches(broker.conf, [KafkaRange(topic, 0, 0, 1)], ["value", "offset"])
    assert batch.to_pylist() == [{"value": b"v", "offset": 0}]


def test_headers_that_the_client_cannot_decode_stop_no_reader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As confluent-kafka does with a name that is not UTF-8."""

    class Undecodable:
        topic, partition, offset = (lambda self: "clicks"), (lambda self: 3), (lambda self: 7)

        def headers(self) -> None:
            raise SystemError("returned a result with an exception set")

    batch = reader.to_batch([Undecodable(), Undecodable()], ["headers"])  # type: ignore[list-item]
    assert batch.to_pylist() == [{"headers": []}, {"headers": []}]
    assert "Record 7 of clicks/3 has a header whose name is not UTF-8" in caplog.text


def test_a_timestamp_that_python_does_not_have_is_null(broker: Broker) -> None:
    topic = broker.create_topic("far", message_timestamp_after_max_ms=str(2**63 - 1))
    times_ms = [TIME_MS, YEARS_MS.stop - 1, YEARS_MS.stop, 10**16, 2**63 - 1]
    for time_ms in times_ms:
        broker.produce(topic, [b"v"], timestamp=time_ms)
    wanted = KafkaRange(topic, 0, 0, len(times_ms))
    assert [record.timestamp for record in read_records(broker.conf, [wanted])] == times_ms
    rows = [
        row for b in read_batches(broker.conf, [wanted], ["timestamp"]) for row in b.to_pylist()
    ]
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, timezone.utc)
    assert [row["timestamp"] for row in rows] == [TIME, last, None, None, None]


def test_tombstones_and_empty_values_are_records(broker: Broker, topic: str) -> None:
    broker.produce(topic, [b"a", None, b"", None])
    assert values(broker, KafkaRange(topic, 0, 0, 4)) == [b"a", None, b"", None]


def test_a_range_within_a_topic_is_read_and_no_more(broker: Broker, topic: str) -> None:
    broker.produce(topic, [b"%d" % n for n in range(30_000)])
    for start, end in ((0, 1), (5, 5), (12_345, 23_456), (29_999, 30_000)):
        assert values(broker, KafkaRange(topic, 0, start, end)) == [
            b"%d" % n for n in range(start, end)
        ]


def test_a_range_that_ends_in_marks_and_aborted_records(broker: Broker, topic: str) -> None:
    producer = Producer({**broker.conf, "transactional.id": topic})
    producer.init_transactions()
    for commits, value in ((True, b"a"), (False, b"lost"), (True, b"b"), (False, b"lost, too")):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
    assert whole(broker, topic) == KafkaRange(topic, 0, 0, 8)  # each has a mark behind it
    assert values(broker, KafkaRange(topic, 0, 0, 8)) == [b"a", b"b"]
    assert values(broker, KafkaRange(topic, 0, 0, 4)) == [b"a"]
    every = values(broker, KafkaRange(topic, 0, 0, 8), **{"isolation.level": "read_uncommitted"})
    assert every == [b"a", b"lost", b"b", b"lost, too"]


def test_aborted_records_are_passed_over_for_as_long_as_it_takes(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer({**broker.conf, "transactional.id": topic})
    producer.init_transactions()
    for value in [b"x" * 2000] * 5 + [b"a"]:
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        producer.commit_transaction() if value == b"a" else producer.abort_transaction()
    monkeypatch.setattr(reader, "PATIENCE_S", 0.6)
    # Each fetch takes so long, and brings one record.
    slow = {"fetch.min.bytes": "100000", "fetch.wait.max.ms": "400", "fetch.message.max.bytes": "9"}
    assert values(broker, KafkaRange(topic, 0, 0, 12), **slow) == [b"a"]


def test_records_of_an_open_transaction_are_not_planned(broker: Broker, topic: str) -> None:
    producer = Producer({**broker.conf, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"a")
    producer.flush()
    assert whole(broker, topic).count == 0
    assert whole(broker, topic, **{"isolation.level": "read_uncommitted"}).count == 1
    producer.commit_transaction()
    assert eventually(lambda: whole(broker, topic).count == 2)
    assert values(broker, whole(broker, topic)) == [b"a"]


def test_what_compaction_removed_is_no_loss(broker: Broker) -> None:
    topic = broker.create_topic(
        f"compacted-{next(_number)}",
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        min_compaction_lag_ms="0",
    )
    for value in (b"1", b"2", b"3"):
        broker.produce(topic, [value] * 5, key=b"k")

    def compacted() -> bool:
        broker.produce(topic, [b"other"], key=b"other")  # the newest segment is never compacted
        return len(values(broker, KafkaRange(topic, 0, 0, 15))) == 1

    assert eventually(compacted)
    assert values(broker, KafkaRange(topic, 0, 0, 15)) == [b"3"]
    assert values(broker, KafkaRange(topic, 0, 0, 9)) == []


def test_a_topic_that_is_gone_fails_no_task_that_has_its_records(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce(topic, [b"a", b"b"])
    monkeypatch.setattr(reader._Client, "takes_gone", lambda client: True)
    assert values(broker, KafkaRange(topic, 0, 0, 2)) == [b"a", b"b"]


def test_records_that_were_deleted_are_a_loss(broker: Broker, topic: str) -> None:
    broker.produce(topic, [b"a", b"b", b"c"])
    broker.delete_records(topic, before=2)
    with pytest.raises(KafkaDataLossError, match=f"offset 0 of {topic}/0 is not in the topic"):
        values(broker, KafkaRange(topic, 0, 0, 2))


@pytest.mark.parametrize(("to_latest", "left"), [(False, 2), (True, 4)])
def test_records_that_were_deleted_are_passed_over(
    broker: Broker, topic: str, tmp_path: Path, to_latest: bool, left: int
) -> None:
    broker.produce(topic, [b"0", b"1", b"2", b"3"])
    broker.delete_records(topic, before=2)
    log, wanted = LossLog(open_storage(str(tmp_path)), "clicks"), KafkaRange(topic, 0, 0, 4)
    pass_over = PassOver(broker.conf, log, to_latest=to_latest)
    for _ in range(2):  # found again, and not noted again
        records = read_records(broker.conf, [wanted], pass_over)
        assert [record.offset for record in records] == list(range(left, 4))
        batches = list(read_batches(broker.conf, [wanted], ["offset"], pass_over))
        assert [row["offset"] for b in batches for row in b.to_pylist()] == list(range(left, 4))
    assert log.read() == {f"{topic}-0": [OffsetRange(f"{topic}-0", 0, left)]}


def test_a_partition_that_is_not_listed_for_a_moment_is_no_loss(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_over = PassOver(broker.conf, LossLog(open_storage(tmp_path), "clicks"), to_latest=False)
    monkeypatch.setattr(Topics, "scan", lambda _: TopicFacts({topic: "id"}, {}, {}))
    with pytest.raises(KafkaError, match=f"{topic}/0 was not among the partitions.*tried again"):
        pass_over(KafkaRange(topic, 0, 0, 4), 2)
    assert pass_over.log.read() == {}


def test_brokers_that_are_away_are_waited_for_a_time(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PATIENCE_S", 1.0)
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1\b.*bootstrap\.servers.*position=0"):
        list(read_records({"bootstrap.servers": "127.0.0.1:1"}, [KafkaRange(topic, 0, 0, 1)]))


def test_topics_by_name_and_by_pattern(broker: Broker) -> None:
    for name in ("by-name-1", "by-name-2"):
        broker.create_topic(name, partitions=2)
    names = ["by-name-1/0", "by-name-1/1", "by-name-2/0", "by-name-2/1"]
    found = Topics(broker.conf, re.compile("by-name-.")).scan()
    assert (found.begins, found.ends) == (dict.fromkeys(names, 0), dict.fromkeys(names, 0))
    assert list(found.ids) == ["by-name-1", "by-name-2"]
    assert list(Topics(broker.conf, ["by-name-2"]).scan().begins) == names[2:]
    with pytest.raises(KafkaError, match=r"Unknown topic.*create the topic.*topic=by-name-3"):
        Topics(broker.conf, ["by-name-3"]).scan()


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda conf: Topics(conf, ["asked"]).scan(), id="topics"),
        pytest.param(lambda conf: group_offsets(conf, "asked"), id="offsets"),
    ],
)
def test_who_asks_the_brokers_leaves_no_client(
    broker: Broker, ask: Callable[[dict[str, str]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor if they refuse or do not answer: the garbage collector may come after hours."""
    gc.collect()
    before = living_clients()
    gc.disable()
    try:
        with suppress(KafkaError):  # there is no such topic
            ask(broker.conf)
        monkeypatch.setattr(brokers, "_TIMEOUT_S", 0.2)
        monkeypatch.setattr(topics, "_TIMEOUT_S", 0.2)
        with pytest.raises(KafkaError):
            ask({"bootstrap.servers": "127.0.0.1:1"})
        assert eventually(lambda: living_clients() <= before)
    finally:
        gc.enable()


def test_offsets_of_a_group_that_come_too_late(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are an error, and do not end the process."""
    assert not group_offsets(broker.conf, "too-late")
    for number in range(50):
        monkeypatch.setattr(brokers, "_TIMEOUT_S", number / 1000)
        with suppress(KafkaError):
            group_offsets(broker.conf, "too-late")


def test_clients_that_no_task_takes_end(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "KEPT_S", 0.2)
    for module in (reader, partition, transactions):
        monkeypatch.setattr(module, "_idle", IdleClients[Any](lambda client: client.close()))
    before = living_clients()
    send_partition(broker.conf, Encoder(topic)([b"a"]))
    with lend_sender(broker.conf, topic, "ends", Done, lambda done: False):
        pass
    assert [r.value for r in read_records(broker.conf, [KafkaRange(topic, 0, 0, 1)])] == [b"a"]
    assert eventually(lambda: living_clients() <= before, 10)


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(reader._Client, id="consumer"),
        pytest.param(Sender, id="producer"),
    ],
)
def test_a_client_ends_with_its_owner(
    broker: Broker, client: Callable[[dict[str, str]], object]
) -> None:
    before = living_clients()
    held = client(broker.conf)
    assert eventually(lambda: len(living_clients() - before) == 1)
    del held
    gc.collect()
    assert eventually(lambda: living_clients() <= before)


def test_where_a_time_begins(broker: Broker, topic: str) -> None:
    for time_ms in (1000, 2000, 3000):
        broker.produce(topic, [b"x"], timestamp=time_ms)
    asked = Topics(broker.conf, [topic])
    facts = asked.scan()
    at = [asked.at_time(time_ms, facts)[f"{topic}/0"] for time_ms in (1, 2000, 2001, 3001)]
    assert at == [0, 1, 2, 3]
