"""A Kafka receiver as a member of its group: rebalances, protocols, logins, and its evenness."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from penstock.journal import Bounds, JournalStream
from penstock.kafka.brokers import group_members
from penstock.rate import RateLimiter
from penstock.receivers import KafkaReceiver
from penstock.receivers.kafka import consumption
from penstock.receivers.kafka.consumption import store_size
from penstock.receivers.ownership import read_shares
from penstock.testing.manual_clock import ManualClock
from tests.ingest_process import records
from tests.kafka.broker import PASSWORD, Broker
from tests.kafka.test_receiver import conf, last_error, receive, stream_of
from tests.receivers.supervised import HASTY, commanded
from tests.waiting import eventually


def owned(stream: JournalStream) -> int:
    return sum(share.writer is not None for share in read_shares(stream).values())


def test_a_rebalance_does_not_wait_for_a_full_journal(broker: Broker, tmp_path: Path) -> None:
    """What was read and does not fit is dropped, and read again by the next owner."""
    broker.create_topic("full", 2)
    for partition in (0, 1):
        broker.produce("full", [b"%d-%d" % (partition, n) for n in range(150)], partition)
    receiver = KafkaReceiver("full", conf(broker, "full"), "earliest")
    stream = stream_of(tmp_path, receiver)
    bounded = replace(HASTY, bounds=Bounds(max_lag_records=120))
    with commanded(stream, receiver, settings=bounded) as raised:
        assert eventually(lambda: owned(stream) == 2 and len(records(tmp_path)) >= 100)
        other = Consumer(receiver._options.member_conf("other"))
        other.subscribe(["full"])
        assert eventually(lambda: bool(other.poll(0.1)) or owned(stream) == 1)
        other.close()
        assert eventually(lambda: owned(stream) == 2)
        assert len(records(tmp_path)) < 300
    assert not raised
    found = receive(tmp_path, receiver, 300)
    assert sorted(found) == sorted(b"%d-%d" % (p, n) for p in (0, 1) for n in range(150))


@pytest.mark.parametrize("rate", [50.0, 2_000.0, 500_000.0])
def test_stores_under_a_rate_limit_are_even(rate: float) -> None:
    """After the first ones, no store delays the next by more than half a second."""
    clock = ManualClock()
    limiter = RateLimiter(rate, clock=clock)
    most = newest = 100
    times_ms: list[int] = []
    is_retry = False
    while len(times_ms) < 40:
        stored = most
        wait_ms = limiter.try_acquire(stored)
        if not is_retry:
            most = store_size(most, newest, wait_ms)
        is_retry = wait_ms > 0
        clock.advance(wait_ms)
        if not wait_ms:
            newest = stored
            times_ms.append(clock.monotonic_ms())
    delays = [later - earlier for earlier, later in pairwise(times_ms[10:])]
    assert max(delays) <= 500


def test_two_streams_of_one_static_group_are_told_apart(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("fenced")
    static = conf(broker, "fenced", **{"group.instance.id": "static"})
    streams = []
    for name in ("one", "two"):
        receiver = KafkaReceiver("fenced", static, "earliest")
        streams.append((stream_of(tmp_path / name, receiver), receiver))
    (first, receiver), (second, other) = streams
    with commanded(first, receiver):
        assert eventually(lambda: owned(first) == 1)
        with commanded(second, other):
            assert eventually(lambda: "group.instance.id" in last_error(first))


def test_two_streams_of_one_group_are_told(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "_CHECK_S", 1.0)
    broker.create_topic("shared", 2)
    one, two = (KafkaReceiver("shared", conf(broker, "shared"), "earliest") for _ in range(2))
    first, second = stream_of(tmp_path / "one", one), stream_of(tmp_path / "two", two)
    with commanded(first, one):
        assert eventually(lambda: owned(first) == 2)
        with commanded(second, two):
            for stream in (first, second):
                assert eventually(lambda s=stream: "group shared gives shared/" in last_error(s))
                assert "does not store them in this stream" in last_error(stream)


def test_receivers_of_one_stream_share_a_group_without_a_word(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[dict[str, str]] = []

    def members(*args: Any) -> dict[str, str]:
        checked.append(group_members(*args))
        return checked[-1]

    monkeypatch.setattr(consumption, "group_members", members)
    monkeypatch.setattr(consumption, "_CHECK_S", 1.0)
    broker.create_topic("alone", 2)
    receiver = KafkaReceiver("alone", conf(broker, "alone"), "earliest")
    stream = stream_of(tmp_path, receiver)
    with commanded(stream, receiver):
        assert eventually(lambda: bool(checked))
        assert checked[0].keys() == {"alone/0", "alone/1"}
        assert not last_error(stream)


def test_the_group_protocol_of_kafka_4(broker: Broker, tmp_path: Path) -> None:
    """KIP-848, where the broker assigns partitions: moves, and patterns of whole names."""
    broker.create_topic("next-a", 2)
    broker.produce("next-a", [b"1"])
    settings = {**broker.conf, "group.id": "next", "group.protocol": "consumer"}
    receiver = KafkaReceiver("^next-.*", settings, "earliest")
    stream = stream_of(tmp_path, receiver)
    with commanded(stream, receiver) as raised:
        assert eventually(lambda: owned(stream) == 2 and records(tmp_path) == [b"1"])
        other = Consumer(receiver._options.member_conf("other"))
        other.subscribe(["^next-.*"])
        assert eventually(lambda: bool(other.poll(0.1)) or owned(stream) == 1)
        other.close()
        assert eventually(lambda: owned(stream) == 2)
        for partition in (0, 1):
            broker.produce("next-a", [b"2"], partition)
        assert eventually(lambda: len(records(tmp_path)) == 3)
    assert not raised
    assert sorted(records(tmp_path)) == [b"1", b"2", b"2"]


def secure(broker: Broker, folder: Path, password: str) -> dict[str, Any]:
    (folder / "password").write_text(password)
    settings = conf(broker, "secure") | broker.secure_conf
    del settings["sasl.password"]
    return settings | {"sasl.password.file": str(folder / "password")}


def test_a_receiver_over_tls_and_scram(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("secure")
    broker.produce("secure", [b"1"])
    receiver = KafkaReceiver("secure", secure(broker, tmp_path, PASSWORD), "earliest")
    journal = tmp_path / "journal"
    assert receive(journal, receiver, 1) == [b"1"]
    files = [path for path in journal.rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []


def test_a_receiver_with_a_wrong_password_tells_it(broker: Broker, tmp_path: Path) -> None:
    receiver = KafkaReceiver("secure", secure(broker, tmp_path, "wrong-word"))
    stream = stream_of(tmp_path, receiver)
    with commanded(stream, receiver):
        assert eventually(lambda: "check sasl.mechanism" in last_error(stream))
    assert "wrong-word" not in last_error(stream)
