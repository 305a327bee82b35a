"""A Kafka receiver under its supervisor, with a real broker: what it stores, and from where on."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import Producer

from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat
from penstock.receivers import Command, KafkaReceiver, read_status
from penstock.receivers.kafka.progress import read_progress
from penstock.receivers.ownership import read_shares
from penstock.storage import open_storage
from tests.cli.commands import Commands
from tests.free_port import free_port
from tests.ingest_process import records
from tests.kafka.broker import Broker
from tests.kafka.raw_headers import produce_with_header
from tests.kafka.receiving import HASTY, Receiving
from tests.receivers.supervised import commanded, override
from tests.waiting import eventually


def conf(broker: Broker, group: str, **more: Any) -> dict[str, Any]:
    return {**broker.conf, **HASTY, "group.id": group, **more}


def stream_of(folder: Path, receiver: KafkaReceiver) -> JournalStream:
    return JournalStream.create(open_storage(str(folder)), "s", RecordFormat(receiver.schema))


def receive(
    folder: Path, receiver: KafkaReceiver, count: int, command: Command | None = None
) -> list[Any]:
    """Run the receiver until so many records are stored in all; return them."""
    with commanded(stream_of(folder, receiver), receiver, command) as raised:
        assert eventually(lambda: len(records(folder)) >= count or bool(raised)), raised
    assert not raised
    return records(folder)


def committed(broker: Broker, group: str, *names: tuple[str, int]) -> list[int]:
    consumer = Consumer({**broker.conf, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(*name) for name in names], 30)
        return [place.offset for place in found]
    finally:
        consumer.close()


def test_values_are_stored_and_then_committed_to_the_group(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("plain", 2)
    broker.produce("plain", [b"a", None, b"c"])
    broker.produce("plain", [b"d"], partition=1)
    receiver = KafkaReceiver("plain", conf(broker, "plain"), "earliest")
    assert sorted(receive(tmp_path, receiver, 4)) == [b"", b"a", b"c", b"d"]
    assert committed(broker, "plain", ("plain", 0), ("plain", 1)) == [3, 1]
    shares = read_shares(stream_of(tmp_path, receiver))
    assert {part: (share.writer, share.start) for part, share in shares.items()} == {
        "plain/0": (None, 3),
        "plain/1": (None, 1),
    }


def test_columns_are_those_asked_for(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("rows")
    producer = Producer(broker.conf)
    time_ms = 1_700_000_000_123
    producer.produce("rows", b"v", b"k", timestamp=time_ms, headers=[("h", b"1"), ("h", None)])
    assert producer.flush(60) == 0
    columns = ["offset", "key", "value", "topic", "partition", "timestamp", "headers"]
    receiver = KafkaReceiver(["rows"], conf(broker, "rows"), "earliest", columns=columns)
    (row,) = receive(tmp_path, receiver, 1)
    assert row == {
        "offset": 0,
        "key": b"k",
        "value": b"v",
        "topic": "rows",
        "partition": 0,
        "timestamp": datetime.fromtimestamp(time_ms / 1000, timezone.utc),
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }


def test_header_names_may_be_any_bytes(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("names")
    broker.produce("names", [b"1"])
    produce_with_header(broker.address, "names", b"2", b"\xff-id")
    broker.produce("names", [b"3"], headers=[("h", b"")])
    receiver = KafkaReceiver(
        "names", conf(broker, "names"), "earliest", columns=["value", "headers"]
    )
    rows = receive(tmp_path, receiver, 3)
    names = [[header["key"] for header in row["headers"]] for row in rows]
    assert names == [[], ["\ufffd-id"], ["h"]]


def test_the_journal_decides_where_to_go_on(broker: Broker, tmp_path: Path) -> None:
    """Neither what others commit for the group, nor ``starting``."""
    broker.create_topic("again")
    broker.produce("again", [b"1", b"2"])
    settings = conf(broker, "again")
    assert receive(tmp_path, KafkaReceiver("again", settings, "earliest"), 2) == [b"1", b"2"]
    for offset in (0, 3):
        broker.produce("again", [b"%d" % (3 + offset // 3)])
        other = Consumer(settings)
        other.commit(offsets=[TopicPartition("again", 0, offset)], asynchronous=False)
        other.close()
        receive(tmp_path, KafkaReceiver("again", settings, "latest"), 3 + offset // 3)
    assert records(tmp_path) == [b"1", b"2", b"3", b"4"]


def test_a_new_stream_begins_where_its_group_is_or_where_it_is_told(
    broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("begin")
    broker.produce("begin", [b"0", b"1", b"2", b"3"])
    other = Consumer(conf(broker, "begun"))
    other.commit(offsets=[TopicPartition("begin", 0, 3)], asynchronous=False)
    other.close()
    for name, group, starting, expected in (
        ("group", "begun", "earliest", [b"3"]),
        ("told", "begun", {"begin": {0: 1}}, [b"1", b"2", b"3"]),
        ("time", "begun", datetime.fromtimestamp(0, timezone.utc), [b"0", b"1", b"2", b"3"]),
    ):
        receiver = KafkaReceiver("begin", conf(broker, group), starting)
        assert receive(tmp_path / name, receiver, len(expected)) == expected


def test_latest_is_the_end_at_the_first_start(broker: Broker, tmp_path: Path) -> None:
    """What comes while no receiver runs is read; and so is a partition that is new."""
    broker.create_topic("late")
    broker.produce("late", [b"before"])
    receiver = KafkaReceiver(
        "^lat", conf(broker, "late", **{"topic.metadata.refresh.interval.ms": 200})
    )
    with commanded(stream_of(tmp_path, receiver), receiver):
        assert eventually(lambda: bool(read_shares(stream_of(tmp_path, receiver))))
    broker.produce("late", [b"between"])
    broker.add_partitions("late", 2)
    broker.produce("late", [b"new"], partition=1)
    assert sorted(receive(tmp_path, receiver, 2)) == [b"between", b"new"]


def test_a_pattern_means_what_the_client_takes_it_for(broker: Broker, tmp_path: Path) -> None:
    """Else it is never known where a topic begins that only the client finds."""
    for topic in ("pat-a", "my-pat-b"):
        broker.create_topic(topic)
        broker.produce(topic, [topic.encode()])
    receiver = KafkaReceiver("^pat-|pat-b$", conf(broker, "pat"), "earliest")
    assert sorted(receive(tmp_path, receiver, 2)) == [b"my-pat-b", b"pat-a"]


def test_records_that_are_gone_are_an_error(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("gone")
    broker.produce("gone", [b"1"])
    receiver = KafkaReceiver("gone", conf(broker, "gone"), "earliest")
    assert receive(tmp_path, receiver, 1) == [b"1"]
    broker.produce("gone", [b"2", b"3", b"4"])
    broker.delete_records("gone", 3)
    stream = stream_of(tmp_path, receiver)
    with commanded(stream, receiver):
        assert eventually(lambda: "offset 1 of gone/0" in last_error(stream))
    assert records(tmp_path) == [b"1"]
    reset = ("reset", str(tmp_path), "--brokers", broker.address, "--to-earliest", "--apply")
    assert "gone/0: from 3: 2 offsets are not read" in Commands("kafka").succeed(*reset)
    assert receive(tmp_path, receiver, 2) == [b"1", b"4"]


def test_a_topic_that_was_created_anew_is_an_error(broker: Broker, tmp_path: Path) -> None:
    """Its first records would be skipped, if it is longer than what was read of the old one."""
    broker.create_topic("anew")
    broker.produce("anew", [b"old"])
    receiver = KafkaReceiver("anew", conf(broker, "anew"), "earliest")
    assert receive(tmp_path, receiver, 1) == [b"old"]
    broker.delete_topic("anew")
    assert eventually(lambda: not broker.has_topic("anew"))
    broker.create_topic("anew")
    broker.produce("anew", [b"0", b"1", b"2"])
    stream = stream_of(tmp_path, receiver)
    with commanded(stream, receiver):
        assert eventually(lambda: "created anew" in last_error(stream))
    assert records(tmp_path) == [b"old"]
    reset = ("reset", str(tmp_path), "--brokers", broker.address, "--to-earliest", "--apply")
    Commands("kafka").succeed(*reset)
    assert receive(tmp_path, receiver, 4) == [b"old", b"0", b"1", b"2"]


def test_the_mark_of_a_transaction_is_read_too(broker: Broker, tmp_path: Path) -> None:
    """Else retention, which deletes what was read and the mark, would look like a loss."""
    broker.create_topic("marks")
    receiver = KafkaReceiver("marks", conf(broker, "marks"), "earliest")
    stream = stream_of(tmp_path, receiver)
    with commanded(stream, receiver):
        write_transaction(broker, "marks", [b"1", b"2"])
        assert eventually(lambda: read_progress(stream).get("marks/0", (0,))[0] == 3)
    broker.delete_records("marks", 3)
    write_transaction(broker, "marks", [b"aborted"], commits=False)
    write_transaction(broker, "marks", [b"3"])
    assert receive(tmp_path, receiver, 3) == [b"1", b"2", b"3"]


def write_transaction(
    broker: Broker, topic: str, values: list[bytes], *, commits: bool = True
) -> None:
    producer = Producer({**broker.conf, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    producer.commit_transaction(60) if commits else producer.abort_transaction(60)


def test_a_receiver_ends_though_no_broker_answers(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("mute")
    receiving = Receiving(tmp_path, "a", ["mute"], conf(broker, "mute"))
    stream = JournalStream.create(
        open_storage(str(tmp_path / "journal")), "s", RecordFormat("binary")
    )
    assert eventually(lambda: bool(read_shares(stream)))
    broker.pause()
    try:
        assert receiving.drain() == 0
    finally:
        broker.resume()
    assert "did not end" not in receiving.log.read_text()


def test_brokers_that_cannot_be_reached_are_reported(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    receiver = KafkaReceiver("mute", {"bootstrap.servers": address, "group.id": "mute"})
    stream = stream_of(tmp_path, receiver)
    with commanded(stream, receiver):
        assert eventually(lambda: f"brokers={address}" in last_error(stream))
    assert "no broker answers" in last_error(stream)


def test_an_unknown_topic_is_an_error(broker: Broker, tmp_path: Path) -> None:
    receiver = KafkaReceiver("unknown", conf(broker, "unknown"))
    stream = stream_of(tmp_path, receiver)
    with commanded(stream, receiver):
        assert eventually(lambda: "UNKNOWN_TOPIC" in last_error(stream))


def test_a_rate_limit_holds_and_the_member_stays(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("slow")
    broker.produce("slow", [b"%d" % n for n in range(3000)])
    receiver = KafkaReceiver("slow", conf(broker, "slow"), "earliest")
    stream = stream_of(tmp_path, receiver)
    with commanded(stream, receiver, Command(paused=True)):
        assert eventually(lambda: bool(read_shares(stream)))
        assert records(tmp_path) == []
    found = receive(tmp_path, receiver, 3000, Command(rate=5000.0))
    assert found == [b"%d" % n for n in range(3000)]


def test_partitions_that_left_under_a_pause_are_read_when_they_are_back(
    broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("leave", 2)
    receiver = KafkaReceiver("leave", conf(broker, "leave"), "earliest")
    stream = stream_of(tmp_path, receiver)

    def owned() -> int:
        return sum(share.writer is not None for share in read_shares(stream).values())

    with commanded(stream, receiver) as raised:
        assert eventually(lambda: owned() == 2)
        override(stream, "r0", Command(paused=True))
        for partition in (0, 1):
            broker.produce("leave", [b"1"], partition)
        other = Consumer(receiver._options.member_conf("other"))
        other.subscribe(["leave"])
        assert eventually(lambda: bool(other.poll(0.1)) or owned() == 1)
        override(stream, "r0", Command())
        other.close()
        assert eventually(lambda: owned() == 2)
        for partition in (0, 1):
            broker.produce("leave", [b"2"], partition)
        assert eventually(lambda: len(records(tmp_path)) == 4), records(tmp_path)
    assert not raised


def last_error(stream: JournalStream) -> str:
    status = read_status(stream, "r0")
    return (status.last_error or "") if status else ""


@pytest.mark.parametrize(
    ("topics", "more", "options", "message"),
    [
        ([], {}, {}, "no topic"),
        (5, {}, {}, "5 is not a topic"),
        ("a b", {}, {}, "not a topic"),
        ("^(", {}, {}, "not a pattern"),
        (r"^n-\d+", {}, {}, "POSIX"),
        ("^(?:a|b)", {}, {}, "POSIX"),
        ("a", {"group.id": ""}, {}, "group.id is missing"),
        ("a", {"sasl.password": "x"}, {}, "sasl.password holds a secret"),
        ("a", {"auto.offset.reset": "latest"}, {}, "starting="),
        ("a", {"no.such": "x"}, {}, "no.such"),
        ("a", {}, {"starting": "sometime"}, "starting"),
        ("a", {}, {"columns": ["when"]}, "columns"),
    ],
)
def test_wrong_arguments_are_refused(
    topics: Any, more: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        KafkaReceiver(topics, {"bootstrap.servers": "h:1", "group.id": "g", **more}, **options)
